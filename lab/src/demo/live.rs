// SPDX-License-Identifier: Apache-2.0
//! `lightloom demo --live`: a node of a running cluster fails, and the daemon, Slurm and the
//! emulated run must report the same plan digest.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use lightloom_daemon_api::status::Status;
use lightloom_fabric::plan::{Plan, digest};
use lightloom_report::page::{LIVE_SCHEMA, LiveRun, LiveStep};
use serde_json::Value;

use super::cluster::{Cluster, RING, Size};
use crate::ctl;
use crate::ctl::slurm::{agree, read};
use lightloom::output;
use lightloom::result::ResultDocument;
use lightloom_fabric::provenance::Inputs;

const DIES: &str = "n5";
const SCENARIO: &str = "kind: scenario
version: 2
name: node-dies
on: {fabric: fabric.yaml}
seed: 1
control: lightloomd
collectives:
  - all_reduce: {name: tensor, bytes: 4MiB, repeat: 4}
faults:
  - {part: n5, at: 50us}
expect:
  - groups_lost == 0
";
pub(super) const PAGE: [&str; 4] = ["fabric.yaml", "after.json", "live.json", "run.json"];

type Hosts = BTreeSet<String>;

struct Demonstration {
    cluster: Cluster,
    live: LiveRun,
}

pub(super) fn run(folder: &Path, size: Size) -> anyhow::Result<()> {
    let cluster = Cluster::new(folder, size)?;
    let live = LiveRun { lacks: cluster.lacks.clone(), ..LiveRun::default() };
    let mut demonstration = Demonstration { cluster, live };
    demonstration.come_up()?;
    let job = demonstration.job("job on whole rings", None)?;
    let (before, _) = demonstration.plan()?;
    let died = demonstration.dies()?;
    let (after, plan) = demonstration.light_moves(&before, died)?;
    demonstration.slurm_follows(&after, &plan, died)?;
    demonstration.emulated()?;
    if let Some(job) = job {
        demonstration.cluster.shown(&format!("scancel {job}"))?;
        demonstration.job("next job on whole rings", Some(DIES))?;
    }
    demonstration.end(&after)
}

pub(super) fn stay(folder: &Path, size: Size) -> anyhow::Result<()> {
    let cluster = Cluster::new(folder, size)?;
    let mut demonstration = Demonstration { cluster, live: LiveRun::default() };
    demonstration.come_up()?;
    let cluster = demonstration.cluster;
    let at = cluster.folder.display().to_string();
    output::print(&format!(
        "running until interrupted; in another shell:\n\
         export SLURM_CONF={at}/slurm.conf LIGHTLOOM_SOCKET={at}/daemon/lightloomd.sock\n"
    ))?;
    fs::write(cluster.path("ready"), "")?;
    while !cluster.processes.is_stopped() {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

impl Demonstration {
    fn step(&mut self, name: &str, since: Instant, found: String) -> anyhow::Result<()> {
        let took_ms = since.elapsed().as_secs_f64() * 1e3;
        output::print(&format!("{took_ms:8.0} ms  {name}: {found}\n"))?;
        self.live.steps.push(LiveStep { name: name.to_owned(), found, took_ms });
        Ok(())
    }

    fn come_up(&mut self) -> anyhow::Result<()> {
        let since = Instant::now();
        self.cluster.start_daemon()?;
        let modules = self.status()?.devices.len();
        self.step("lightloomd", since, format!("{modules} emulated transceivers are read"))?;
        let since = Instant::now();
        self.cluster.apply()?;
        let (digest, plan) = self.plan()?;
        let rings = plan.groups.len();
        let found =
            format!("{rings} rings of {RING} nodes have light, plan {}", agree::short(&digest));
        self.step("first plan", since, found)?;
        if let Some(lacks) = &self.cluster.lacks {
            return output::print(&format!("   running without a scheduler: {lacks}\n"));
        }
        let since = Instant::now();
        self.cluster.start_slurm()?;
        let version = self.cluster.shown("scontrol --version")?;
        self.step("Slurm", since, format!("{}, a slurmd for each node, all idle", version.trim()))?;
        let since = Instant::now();
        self.cluster.follow()?;
        let spare = self.cluster.drained()?.len();
        self.step(
            "Slurm agrees",
            since,
            format!("{rings} rings loaded, {spare} nodes outside rings drained"),
        )
    }

    fn status(&self) -> anyhow::Result<Status> {
        ctl::read_at(&self.cluster.socket(), "/v1/status")
    }

    fn plan(&self) -> anyhow::Result<(String, Plan)> {
        let plan: Value = ctl::read_at(&self.cluster.socket(), "/v1/plan")?;
        Ok((digest(&plan), serde_json::from_value(plan)?))
    }

    /// Waits until a job runs on whole rings, and returns the job number. `None` without Slurm.
    fn job(&mut self, name: &str, without: Option<&str>) -> anyhow::Result<Option<String>> {
        if self.cluster.lacks.is_some() {
            return Ok(None);
        }
        let since = Instant::now();
        let nodes = self.cluster.size.job_nodes;
        let rings = nodes / RING;
        let job = self.cluster.shown(&format!(
            "sbatch --parsable -N{nodes} --exclusive --switches={rings} -o /dev/null sleeps"
        ))?;
        let job = job.trim().to_owned();
        let placed = self.cluster.seen(name, |cluster| {
            let shown = cluster.shown(&format!("squeue -h -t running -j {job} -o %N"))?;
            Ok((!shown.trim().is_empty()).then(|| read::hosts(shown.trim())))
        })?;
        let (digest, plan) = self.plan()?;
        let whole = whole_rings(&placed, &plan).context("the job uses only part of a ring")?;
        ensure!(whole == rings as usize, "the job uses {whole} rings instead of {rings}");
        let is_left_out = without.is_none_or(|node| !placed.contains(node));
        ensure!(is_left_out, "the job runs on the failed node");
        let but = without.map_or_else(String::new, |node| format!(", none with {node}"));
        let short = agree::short(&digest);
        self.step(name, since, format!("{nodes} nodes, {whole} whole rings of plan {short}{but}"))?;
        Ok(Some(job))
    }

    fn dies(&mut self) -> anyhow::Result<Instant> {
        let since = Instant::now();
        self.cluster.shown(&format!("lightloom device fault --control faults {DIES} dead"))?;
        if self.cluster.lacks.is_none() {
            self.cluster.processes.kill(&format!("spool/{DIES}"))?;
        }
        output::print(&format!("             {DIES} fails and reports nothing\n"))?;
        Ok(since)
    }

    fn light_moves(&mut self, before: &str, died: Instant) -> anyhow::Result<(String, Plan)> {
        let status = self.cluster.seen("the circuits to switch", |cluster| {
            let status: Status = ctl::read_at(&cluster.socket(), "/v1/status")?;
            let is_over = status.transaction.is_none() && status.pending.is_none();
            Ok((status.plan_sha256 != before && is_over).then_some(status))
        })?;
        let (digest, plan) = self.plan()?;
        ensure!(digest == status.plan_sha256, "the daemon's status and its plan differ");
        let moved = status.transactions.first().map_or(0, |last| last.devices.len());
        let short = agree::short(&digest);
        let found = format!("lightloomd bypasses {DIES}: {moved} transceivers moved, plan {short}");
        self.step("light moves", died, found)?;
        self.live.digests.push(("lightloomd, plan in force".into(), digest.clone()));
        Ok((digest, plan))
    }

    fn slurm_follows(&mut self, after: &str, plan: &Plan, died: Instant) -> anyhow::Result<()> {
        if self.cluster.lacks.is_some() {
            return Ok(());
        }
        let reason = self.cluster.seen("the drain in Slurm", |cluster| {
            let drained = cluster.drained()?;
            let of = drained.into_iter().find(|(node, _)| node == DIES);
            Ok(of.map(|(_, reason)| reason).filter(|reason| reason.contains("broken")))
        })?;
        self.step("drained in Slurm", died, format!("{DIES}, reason \"{reason}\""))?;
        let rings: BTreeSet<Hosts> = plan.groups.iter().map(|group| hosts(&group.nodes)).collect();
        self.cluster.seen("the topology in Slurm", |cluster| {
            let loaded = read::rings(&cluster.shown("scontrol show topology")?);
            Ok((loaded.into_values().collect::<BTreeSet<_>>() == rings).then_some(()))
        })?;
        let found = format!("{} rings, none with {DIES}", rings.len());
        self.step("topology loaded", died, found)?;
        let topology = fs::read_to_string(self.cluster.path("topology.conf"))?;
        let loaded = topology.lines().next().and_then(|line| line.strip_prefix("# plan "));
        let named = reason.rsplit_once("plan ").map(|(_, digest)| digest.to_owned());
        self.live.digests.extend([
            ("topology.conf, as slurmctld loaded it".into(), loaded.unwrap_or_default().to_owned()),
            (format!("Slurm's reason for {DIES}, first digits"), named.unwrap_or_default()),
        ]);
        ensure!(!after.is_empty(), "the daemon has no plan");
        Ok(())
    }

    fn emulated(&mut self) -> anyhow::Result<()> {
        let since = Instant::now();
        fs::write(self.cluster.path("node-dies.yaml"), SCENARIO)?;
        self.cluster.shown("lightloom emulate node-dies.yaml -o run.json")?;
        let run: Value = serde_json::from_slice(&fs::read(self.cluster.path("run.json"))?)?;
        let plan = run["lightloomd"]["plan_sha256"].as_str().unwrap_or_default().to_owned();
        let found =
            format!("the same fault packet by packet ends with plan {}", agree::short(&plan));
        self.step("emulated run", since, found)?;
        self.live.digests.push(("emulated run, plan at the end".into(), plan));
        Ok(())
    }

    fn end(mut self, after: &str) -> anyhow::Result<()> {
        for (place, digest) in &self.live.digests {
            let is_one = digest.len() >= 12 && after.starts_with(digest.as_str());
            ensure!(is_one, "{place} is {digest}, but the daemon's plan is {after}");
        }
        let count = self.live.digests.len();
        let drained = self.live.steps.iter().find(|step| step.name == "drained in Slurm");
        let followed = drained.map_or_else(
            || format!("{DIES} fails and its ring is bypassed"),
            |step| {
                format!(
                    "{DIES} fails: Slurm drains it in {:.0} ms, and the next job runs on whole \
                     rings",
                    step.took_ms
                )
            },
        );
        self.live.answer =
            format!("{followed}; all {count} places show plan {}.", agree::short(after));
        output::print(&format!("{}\n", self.live.answer))?;
        let plan: Value = ctl::read_at(&self.cluster.socket(), "/v1/plan")?;
        fs::write(self.cluster.path("after.json"), output::json(&plan)?)?;
        let document = ResultDocument::new(LIVE_SCHEMA, Inputs::new(), &self.live);
        Ok(fs::write(self.cluster.path("live.json"), output::json(&document)?)?)
    }
}

impl Cluster {
    fn drained(&self) -> anyhow::Result<Vec<(String, String)>> {
        let shown = self.shown("scontrol --all --oneliner show node")?;
        let drained = read::nodes(&shown).filter(|(_, node)| node.is_drained);
        Ok(drained.map(|(name, node)| (name, node.reason)).collect())
    }
}

fn hosts(nodes: &[impl ToString]) -> Hosts {
    nodes.iter().map(ToString::to_string).collect()
}

fn whole_rings(job: &Hosts, plan: &Plan) -> Option<usize> {
    let rings = plan.groups.iter().map(|group| hosts(&group.nodes));
    let met: Vec<Hosts> = rings.filter(|ring| !ring.is_disjoint(job)).collect();
    let is_whole = met.iter().all(|ring| ring.is_subset(job));
    (is_whole && met.iter().map(BTreeSet::len).sum::<usize>() == job.len()).then_some(met.len())
}
