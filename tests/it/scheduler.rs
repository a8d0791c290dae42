// SPDX-License-Identifier: Apache-2.0
//! Runs the daemon, emulated modules, `lightloom ctl slurm`, and slurmctld with one slurmd per
//! node, as in `lightloom demo --live`. Slurm is the judge: `scontrol` and its log, which orders
//! all allocations, drains and reconfigurations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lightloom_units::seed::Seed;
use rand::RngExt;
use serde_json::Value;

use crate::daemon_rig::times::Times;
use crate::exports::hosts;
use crate::programs;

const RING: usize = 4;
const BROKEN_MAX: usize = 4;

type Nodes = BTreeSet<u32>;

pub(crate) struct Cluster {
    folder: tempfile::TempDir,
    demo: Child,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Only SIGTERM lets the demo stop all its processes.
        if let Ok(None) = self.demo.try_wait() {
            let _ = Command::new("kill").arg(self.demo.id().to_string()).status();
        }
        let _ = self.demo.wait();
    }
}

fn is_slurm_here() -> bool {
    let probe = "slurmctld -V && slurmd -V && command -v sbatch munged && test $(id -u) = 0";
    let is_here = Command::new("sh").args(["-c", probe]).output().unwrap().status.success();
    if !is_here {
        println!("skipped: no slurmctld, slurmd, slurm-client and munge as root");
    }
    is_here
}

impl Cluster {
    fn start(nodes: u32) -> Option<Self> {
        is_slurm_here().then(|| Self::started(nodes))
    }

    fn started(nodes: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let size = [nodes, nodes / 4 * 3].map(|nodes| nodes.to_string());
        let mut demo = Command::new(programs::folder().join("lightloom"));
        demo.args("demo --live --stay --folder".split(' ')).arg(folder.path());
        demo.args(["--nodes", &size[0], "--job-nodes", &size[1]]);
        let demo = environment(&mut demo, folder.path());
        let demo = demo.stdout(Stdio::null()).spawn().unwrap();
        let mut cluster = Self { folder, demo };
        let until = Instant::now() + Duration::from_secs(60);
        while !cluster.path("ready").exists() {
            assert!(
                cluster.demo.try_wait().unwrap().is_none(),
                "{}",
                cluster.read("ctl-slurm.err")
            );
            assert!(Instant::now() < until, "not ready: {}", cluster.read("lightloomd.err"));
            std::thread::sleep(Duration::from_millis(20));
        }
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn shown(&self, command: &str) -> String {
        let mut bash = Command::new("bash");
        let output = environment(bash.args(["-c", command]), self.folder.path()).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn known_since(&self, node: u32) -> String {
        let status: Value =
            serde_json::from_str(&self.shown("lightloom ctl status --format json")).unwrap();
        let parts = status["broken_parts"].as_array().unwrap();
        let part = parts.iter().find(|part| part["part"] == format!("n{node}")).unwrap();
        let seconds = part["since_unix_ms"].as_u64().unwrap() as f64 / 1e3;
        self.shown(&format!("date -u -d @{seconds:.3} +%FT%T.%3N")).trim().to_owned()
    }

    fn plan(&self) -> (String, Vec<Nodes>) {
        let status: Value =
            serde_json::from_str(&self.shown("lightloom ctl status --format json")).unwrap();
        let mut socket = UnixStream::connect(self.path("daemon/lightloomd.sock")).unwrap();
        socket.write_all(b"GET /v1/plan HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let plan: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let node = |node: &Value| node.as_str().unwrap()[1..].parse().unwrap();
        let nodes = |group: &Value| group["nodes"].as_array().unwrap().iter().map(node).collect();
        let rings = plan["groups"].as_array().unwrap().iter().map(nodes).collect();
        (status["plan_sha256"].as_str().unwrap()[..12].to_owned(), rings)
    }

    fn until_it_agrees(&self, broken: &Nodes) -> (String, Vec<Nodes>) {
        let (digest, rings) = self.plan();
        let until = Instant::now() + Duration::from_secs(20);
        while !self.agrees(broken, &digest, &rings) {
            assert!(
                Instant::now() < until,
                "{broken:?}: {} {}",
                self.read("ctl-slurm.out"),
                self.read("ctl-slurm.err")
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        (digest, rings)
    }

    /// Slurm must show exactly these nodes as drained by us, and exactly these rings.
    fn agrees(&self, broken: &Nodes, digest: &str, rings: &[Nodes]) -> bool {
        let shown = self.shown("scontrol -ao show node; scontrol show topology");
        let is_drained = |node: &u32| {
            let line = shown.lines().find(|line| line.starts_with(&format!("NodeName=n{node} ")));
            line.is_some_and(|line| {
                line.contains("+DRAIN") && line.contains(&format!("broken, plan {digest}"))
            })
        };
        let leaf = |line: &str| line.starts_with("SwitchName=") && !line.contains(" Switches=");
        let loaded =
            shown.lines().filter(|line| leaf(line)).filter_map(|line| line.split(" Nodes=").nth(1));
        let loaded: BTreeSet<Nodes> = loaded.map(hosts).collect();
        broken.iter().all(is_drained) && loaded == rings.iter().cloned().collect()
    }
}

fn environment<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    let path = format!("{}:{}", programs::folder().display(), std::env::var("PATH").unwrap());
    command
        .current_dir(folder)
        .env("PATH", path)
        .env("TZ", "UTC")
        .env("SLURM_CONF", folder.join("slurm.conf"));
    command.env("LIGHTLOOM_SOCKET", folder.join("daemon/lightloomd.sock")).stdin(Stdio::null())
}

#[derive(Debug)]
enum Logged {
    Starts(String, Nodes),
    Reason(u32, String),
    Back(Nodes),
    Loads,
}

fn logged(line: &str) -> Option<Logged> {
    let job = line.split_once("JobId=").map(|(_, rest)| rest.split(' ').next().unwrap().to_owned());
    let list = line.split_once("NodeList=").filter(|_| line.contains("sched: Allocate"));
    let list =
        list.or_else(|| line.split_once(" on n").filter(|_| line.contains("Started JobId=")));
    if let (Some(job), Some((_, list))) = (job, list) {
        return Some(Logged::Starts(job, hosts(list.split(' ').next()?)));
    }
    if let Some((before, reason)) = line.split_once(" reason set to: ") {
        let node = before.rsplit_once("node n")?.1.parse().ok()?;
        return Some(Logged::Reason(node, reason.to_owned()));
    }
    if let Some((before, _)) =
        line.split_once(" state set to IDLE").or_else(|| line.split_once(" state set to UNDRAIN"))
    {
        return Some(Logged::Back(Nodes::from([before.rsplit_once("node n")?.1.parse().ok()?])));
    }
    line.contains("Processing Reconfiguration Request").then_some(Logged::Loads)
}

#[derive(Default)]
struct Placed {
    jobs: usize,
    large: usize,
    /// Jobs allocated to a failed node when the daemon knew of the failure, but Slurm did not.
    late: usize,
    refused: usize,
}

/// Each job must occupy as many whole rings as requested, without failed nodes, in the plan loaded
/// at its start (initially `first`). Allocations after a detected failure must be sent back.
/// `known` is the detection time of each failure in log format.
fn judged(
    log: &str,
    first: &str,
    plans: &BTreeMap<String, Vec<Nodes>>,
    known: &[(String, u32)],
) -> Placed {
    let (mut written, mut loaded) = (first.to_owned(), first.to_owned());
    let (mut broken, mut unheard) = (Nodes::new(), Nodes::new());
    let (mut placed, mut known, mut late) =
        (Placed::default(), known.iter().peekable(), BTreeMap::new());
    for line in log.lines() {
        let now = line.get(1..24).unwrap_or_default();
        while let Some((_, node)) = known.next_if(|(since, _)| since.as_str() <= now) {
            unheard.insert(*node);
        }
        if let Some(job) =
            line.split_once("prolog_slurmctld JobId=").filter(|_| line.contains("exit status"))
        {
            placed.refused += 1;
            late.remove(job.1.split(' ').next().unwrap());
        }
        match logged(line) {
            Some(Logged::Reason(node, reason)) => {
                unheard.remove(&node);
                if reason.contains("lightloom: broken") {
                    broken.insert(node);
                } else {
                    broken.remove(&node);
                }
                written =
                    reason.split_once("plan ").map_or(written, |(_, digest)| digest.to_owned());
            }
            Some(Logged::Back(nodes)) => broken.retain(|node| !nodes.contains(node)),
            Some(Logged::Loads) => loaded.clone_from(&written),
            Some(Logged::Starts(job, nodes)) => {
                let rings = &plans[&loaded];
                let whole = rings.iter().filter(|ring| ring.is_subset(&nodes)).count();
                assert_eq!(whole * RING, nodes.len(), "{line}: {loaded}: {rings:?}");
                assert!(nodes.is_disjoint(&broken), "{line}: {broken:?} are broken");
                placed.jobs += 1;
                placed.large += usize::from(whole > 1);
                if !nodes.is_disjoint(&unheard) {
                    placed.late += 1;
                    late.insert(job, line);
                }
            }
            None => {}
        }
    }
    assert!(late.is_empty(), "the daemon knew, and they ran: {late:?}");
    placed
}

fn starts(log: &str) -> usize {
    log.lines().filter(|line| matches!(logged(line), Some(Logged::Starts(..)))).count()
}

fn submit(cluster: &Cluster, jobs: usize, seconds: f64) {
    let mut all = String::new();
    for job in 0..jobs {
        let rings = 1 + job % 3;
        let nodes = rings * RING;
        writeln!(all, "sbatch -Q -N{nodes} --exclusive --switches={rings} -o /dev/null --wrap 'sleep {seconds}'").unwrap();
    }
    cluster.shown(&all);
}

fn deaths(cluster: &Cluster, nodes: u32, count: usize, held: u32, pause_ms: u64) -> (Times, Nodes) {
    let mut draws = Seed(49).stream("deaths", 0);
    let (mut broken, mut order) = (Nodes::new(), Vec::new());
    let (mut plans, mut known) = (BTreeMap::new(), Vec::new());
    let mut took = Times::default();
    let (first, rings) = cluster.plan();
    plans.insert(first.clone(), rings);
    let mut seen = 0;
    while took.0.len() < count {
        let waiting = cluster.shown("squeue -h -t pending -o %i").lines().count();
        if waiting < 12 {
            submit(cluster, 12, 0.5);
        }
        // Some jobs must have started since the last change.
        let until = Instant::now() + Duration::from_secs(30);
        while starts(&cluster.read("slurmctld.log")) < seen + 2 {
            assert!(Instant::now() < until, "{}", cluster.shown("squeue; sinfo -R"));
            std::thread::sleep(Duration::from_millis(20));
        }
        seen = starts(&cluster.read("slurmctld.log"));
        // Wait until a random moment within the scheduler's second.
        std::thread::sleep(Duration::from_millis(draws.random_range(0..pause_ms)));
        let started = Instant::now();
        let dies = broken.len() < BROKEN_MAX;
        if dies {
            let node = draws.random_range(0..nodes);
            if node == held || !broken.insert(node) {
                continue;
            }
            order.push(node);
            let said = cluster.shown(&format!("lightloom ctl fault n{node} 2>&1 || true"));
            println!("{}", said.trim());
        } else {
            let node = order.remove(0);
            broken.remove(&node);
            cluster.shown(&format!(
                "until lightloom ctl fault --repaired n{node}; do sleep 0.1; done 2>&1"
            ));
        }
        let (digest, rings) = cluster.until_it_agrees(&broken);
        plans.insert(digest, rings);
        if dies {
            took.0.push(started.elapsed().as_secs_f64() * 1e3);
            let node = order[order.len() - 1];
            known.push((cluster.known_since(node), node));
        }
    }
    let log = cluster.read("slurmctld.log");
    let Placed { jobs, large, late, refused } = judged(&log, &first, &plans, &known);
    println!(
        "{jobs} jobs placed, {large} of them on more than one ring; {refused} sent back, {late} of them since their node was known to be broken"
    );
    assert!(jobs > count, "there was load: {jobs}\n{log}");
    (took, broken)
}

/// One failing node also has an operator's drain, which must survive the repair.
fn followed(nodes: u32, count: usize, pause_ms: u64) -> Option<Times> {
    const HELD: u32 = 5;
    let cluster = Cluster::start(nodes)?;
    cluster.shown("scontrol update nodename=n5 state=drain reason='operator: fan'");
    let (took, broken) = deaths(&cluster, nodes, count, HELD, pause_ms);
    let is_theirs = || {
        let line = cluster.shown("scontrol -ao show node n5");
        assert!(line.contains("+DRAIN") && line.contains("Reason=operator: fan [root@"), "{line}");
    };
    is_theirs();
    cluster.shown("lightloom ctl fault n5 || true");
    cluster.until_it_agrees(&broken);
    is_theirs();
    cluster.shown("until lightloom ctl fault --repaired n5; do sleep 0.1; done");
    cluster.until_it_agrees(&broken);
    is_theirs();
    Some(took)
}

#[test]
fn slurm_follows_the_plan_and_keeps_operator_drains() {
    followed(16, 2, 1);
}

/// While the daemon is down, operators may change anything and jobs continue. After its return,
/// Slurm again follows the daemon.
#[test]
fn absent_daemon_changes_nothing_in_slurm() {
    let Some(cluster) = Cluster::start(16) else { return };
    let drained = "scontrol -ao show node n2 | grep -q +DRAIN";
    let until = |what: &str| {
        cluster.shown(&format!("timeout 20 sh -c 'until {what}; do sleep 0.05; done'"))
    };
    cluster.shown("lightloom ctl fault n2");
    until(drained);
    cluster.shown("kill -9 $(pgrep -f '^[^ ]*lightloomd --config daemon.yaml' | while read p; do test $(readlink /proc/$p/cwd) = $PWD && echo $p; done)");
    until("grep -q \"Slurm is left unchanged\" ctl-slurm.err");
    cluster.shown(&format!("scontrol update nodename=n2 state=resume; sleep 0.6; ! {drained}"));
    let said = cluster.shown("lightloom ctl slurm fabric.yaml --starts n2 2>&1");
    assert!(said.contains("not checked: cannot reach lightloomd"), "{said}");
    let mut daemon = Command::new("lightloomd");
    let daemon = environment(daemon.args(["--config", "daemon.yaml"]), cluster.folder.path());
    let mut daemon = daemon.stderr(Stdio::null()).spawn().unwrap();
    until(drained);
    cluster.shown("! lightloom ctl slurm fabric.yaml --starts n2");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

#[test]
fn slurm_page_commands_work_as_documented() {
    let Some(cluster) = Cluster::start(16) else { return };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/how-to/slurm.md");
    let page = std::fs::read_to_string(page).unwrap().replace("/etc/slurm/", "");
    let blocks = |kind: &str| {
        let opens = format!("```{kind}\n");
        let blocks = page.split(&opens).skip(1);
        blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect::<String>()
    };
    let shown = cluster.shown(&format!("set -e; exec 2>&1\n{}", blocks("sh")));
    let digestless = |line: &str| line.split(", plan ").next().unwrap().to_owned();
    for line in blocks("text").lines().map(digestless) {
        assert!(shown.contains(&line), "`{line}` is not shown:\n{shown}");
    }
    assert!(shown.contains("Slurm agrees with plan "), "a dry run where all is well:\n{shown}");
}

fn demonstrated(folder: &Path, path: &str) -> String {
    let mut demo = Command::new(programs::folder().join("lightloom"));
    demo.args("demo --live --no-open --folder".split(' '));
    let output = demo.arg(folder).env("PATH", path).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(left_of(folder), "", "processes are left");
    shown
}

fn left_of(folder: &Path) -> String {
    let find = "for p in /proc/[0-9]*; do { readlink $p/cwd; tr '\\0' ' ' < $p/cmdline; } 2> /dev/null \
                | grep -q \"$1\" && grep -v '^[0-9]* (.*) Z' $p/stat; done; true";
    let output = Command::new("bash").args(["-c", find, "_"]).arg(folder).output().unwrap();
    let left = String::from_utf8_lossy(&output.stdout).into_owned();
    let own = |line: &&str| !line.contains("(bash)") && !line.contains("(grep)");
    left.lines().filter(own).collect()
}

#[test]
fn live_demo_ends_with_one_plan_in_daemon_emulator_and_slurm() {
    let folder = tempfile::tempdir().unwrap();
    // The folder has the permissions of a home folder, where munged refuses to start without
    // `--force`.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let shown = demonstrated(folder.path(), &std::env::var("PATH").unwrap());
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    if is_slurm_here() {
        assert!(
            shown.contains("drained in Slurm: n5, reason \"lightloom: broken, plan "),
            "{shown}"
        );
        assert!(shown.contains("64 nodes, 16 whole rings of plan "), "{shown}");
        assert!(page.contains("all 4 places show plan "), "{shown}");
    }
}

#[test]
fn live_demo_reports_missing_slurm() {
    let folder = tempfile::tempdir().unwrap();
    let shown = demonstrated(folder.path(), "/nowhere");
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    for text in [shown, page] {
        assert!(text.contains("`munged` is not installed"), "{text}");
        assert!(text.contains("all 2 places show plan "), "{text}");
    }
}

#[test]
fn interrupted_cluster_leaves_no_process() {
    let Some(mut cluster) = Cluster::start(16) else { return };
    submit(&cluster, 3, 60.0);
    assert_ne!(left_of(cluster.folder.path()), "");
    let kill = Command::new("kill").args(["-INT", &cluster.demo.id().to_string()]).status();
    assert!(kill.unwrap().success() && cluster.demo.wait().unwrap().success());
    assert_eq!(left_of(cluster.folder.path()), "");
}

/// Modules become unreachable and dark without a report. `LIGHTLOOM_KILLS` overrides the number (100).
#[test]
#[ignore = "minutes: 100 deaths"]
fn silent_node_failure_is_drained_within_two_seconds() {
    let Some(cluster) = Cluster::start(64) else { return };
    let mut draws = Seed(49).stream("silent deaths", 0);
    let mut took = Times::default();
    while took.0.len() < kills() {
        // Only far ends in a ring can detect the loss of light.
        let (_, rings) = cluster.plan();
        let ring = &rings[draws.random_range(0..rings.len())];
        let node = *ring.iter().nth(draws.random_range(0..RING)).unwrap();
        std::thread::sleep(Duration::from_millis(draws.random_range(0..1_000)));
        let died = Instant::now();
        cluster.shown(&format!("lightloom device fault --control faults n{node} dead"));
        let drained =
            format!("scontrol -ao show node n{node} | grep -q '+DRAIN.*lightloom: broken, plan'");
        cluster.shown(&format!("timeout 20 sh -c \"until {drained}; do :; done\""));
        took.0.push(died.elapsed().as_secs_f64() * 1e3);
        cluster.shown(&format!(
            "lightloom device fault --control faults n{node} clear; lightloom ctl resume
             until lightloom ctl fault --repaired n{node}; do sleep 0.1; done 2>&1
             until ! scontrol -ao show node n{node} | grep 'lightloom: broken'; do sleep 0.05; done"
        ));
    }
    took.show("silent death to drained in Slurm");
    assert!(took.at(0.99) <= 2_000.0);
}

fn kills() -> usize {
    let kills = std::env::var("LIGHTLOOM_KILLS").ok();
    kills.and_then(|kills| kills.parse().ok()).unwrap_or(100)
}

#[test]
#[ignore = "minutes: 100 deaths under load"]
fn no_job_starts_over_a_broken_ring_in_a_hundred_faults() {
    if let Some(took) = followed(64, kills(), 1_000) {
        took.show("fault reported to drained and topology loaded");
    }
}
