// SPDX-License-Identifier: Apache-2.0
//! A cluster on this machine: emulated modules, the daemon, `lightloom ctl slurm`, and Slurm with
//! one slurmd per node. All files are in one folder, and all processes end with this one. Slurm
//! uses only loopback and a separate munged, so that other users cannot become root.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use lightloom_live::up::Programs;

use super::processes::Processes;

pub(super) const WITHIN: Duration = Duration::from_secs(60);
const GPUS_EACH: u32 = 4;
const GPUS_RING: u32 = 16;
pub(super) const RING: u32 = GPUS_RING / GPUS_EACH;

const SOCKET: &str = "daemon/lightloomd.sock";
const KEY_BYTES: u64 = 1024;
const LOWEST_PORT: u16 = 10_000;

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Size {
    #[arg(long, value_name = "N", default_value_t = 72, hide = true, value_parser = lightloom::number::whole::<u32>(16..=512))]
    nodes: u32,
    /// Number of nodes that the job in the fabric file uses.
    #[arg(long, value_name = "N", default_value_t = 64, hide = true, value_parser = lightloom::number::whole::<u32>(4..=512))]
    pub(super) job_nodes: u32,
}

pub(super) struct Cluster {
    pub(super) folder: PathBuf,
    pub(super) size: Size,
    pub(super) processes: Processes,
    pub(super) lacks: Option<String>,
    programs: Programs,
}

const FILES: [(&str, &str); 6] = [
    ("sleeps", "#!/bin/sh\nexec sleep 600\n"),
    (
        "fabric.yaml",
        "kind: fabric
version: 2
name: ring-NODES
hbd: {khop: {nodes: NODES, gpus_per_node: 4, k: 2}}
jobs:
  - {name: pretrain, gpus: GPUS, tp: 16}
",
    ),
    (
        "devices.yaml",
        "seed: 1
fabric: fabric.yaml
transceivers:
  - {names: 'n{0..LAST}/b{0..1}', powered_for: 2s, protocol: v1.2}
",
    ),
    (
        "daemon.yaml",
        "state_dir: FOLDER/daemon
fabric: fabric.yaml
policies: {on_fault: bypass, poll_every: 1s}
modules:
- {nodes: [0, LAST], bundles: 2, serial: 'FOLDER/links/n{node}-b{bundle}'}
",
    ),
    // slurmctld does not start without a valid file.
    ("topology.conf", "SwitchName=all Nodes=n[0-LAST]\n"),
    (
        "may-start",
        "#!/bin/sh
export PATH=PROGRAMS:$PATH LIGHTLOOM_SOCKET=FOLDER/daemon/lightloomd.sock
exec lightloom ctl slurm FOLDER/fabric.yaml --starts \"$SLURM_JOB_NODELIST\" 2>> FOLDER/refused
",
    ),
];

const SLURM_CONF: &str = "ClusterName=lightloom
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=CONTROLLER
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket=FOLDER/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=FOLDER/state
SlurmdSpoolDir=FOLDER/spool/%n
SlurmctldPidFile=FOLDER/slurmctld.pid
SlurmdPidFile=FOLDER/spool/%n.pid
SlurmctldLogFile=FOLDER/slurmctld.log
SlurmdLogFile=FOLDER/spool/%n.log
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=max_switch_wait=31536000,batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
SlurmctldParameters=node_reg_mem_percent=1
TopologyPlugin=topology/tree
PrologSlurmctld=FOLDER/may-start
NodeName=n[0-LAST] NodeHostName=localhost NodeAddr=127.0.0.1 Port=[PORTS] CPUs=4 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
";

const SLURM: [&str; 8] =
    ["munged", "slurmctld", "slurmd", "sbatch", "scontrol", "sinfo", "squeue", "scancel"];

impl Cluster {
    pub(super) fn new(folder: &Path, size: Size) -> anyhow::Result<Self> {
        ensure!(
            size.job_nodes.is_multiple_of(RING) && size.job_nodes < size.nodes,
            "the job needs a multiple of {RING} nodes and must be smaller than the cluster"
        );
        for name in ["links", "state", "spool", "daemon"] {
            let path = folder.join(name);
            fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        }
        let folder = folder.canonicalize()?;
        let shown = folder.display().to_string();
        ensure!(
            !shown.contains(|c: char| c.is_whitespace() || "%'\"#".contains(c)),
            "{shown}: slurm.conf requires a --folder name without spaces and quotes"
        );
        let (processes, programs) = (Processes::new()?, Programs::find()?);
        let cluster = Self { folder, size, processes, lacks: lacks(), programs };
        for (name, text) in FILES {
            cluster.write(name, text)?;
        }
        let mut executable = fs::metadata(cluster.path("may-start"))?.permissions();
        executable.set_mode(0o755);
        fs::set_permissions(cluster.path("may-start"), executable)?;
        Ok(cluster)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path(SOCKET)
    }

    fn beside(&self) -> &Path {
        self.programs.own.parent().unwrap_or(Path::new("/"))
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let at = self.folder.display().to_string();
        let text = text
            .replace("FOLDER", &at)
            .replace("PROGRAMS", &self.beside().display().to_string())
            .replace("NODES", &self.size.nodes.to_string())
            .replace("LAST", &(self.size.nodes - 1).to_string())
            .replace("GPUS", &(self.size.job_nodes * GPUS_EACH).to_string());
        fs::write(self.path(name), text).with_context(|| format!("cannot write {name}"))
    }

    fn command(&self, program: &Path) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", self.beside().display()))
            .env("SLURM_CONF", self.path("slurm.conf"))
            .env("LIGHTLOOM_SOCKET", self.socket());
        command
    }

    pub(super) fn shown(&self, words: &str) -> anyhow::Result<String> {
        let mut words = words.split(' ');
        let program = match words.next().unwrap_or_default() {
            "lightloom" => self.programs.lightloom.clone(),
            other => PathBuf::from(other),
        };
        let mut command = self.command(&program);
        let output = command.args(words.clone()).output();
        let output = output.with_context(|| format!("cannot run {}", program.display()))?;
        if !output.status.success() {
            let said = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text));
            let words: Vec<_> = words.collect();
            bail!("`{} {}`: {}", program.display(), words.join(" "), said.concat().trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn start(&mut self, name: &str, program: &Path, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = self.command(program);
        let [out, err] = ["out", "err"].map(|kind| self.path(&format!("{name}.{kind}")));
        self.processes.start(name, command.args(arguments), [&out, &err])
    }

    pub(super) fn start_daemon(&mut self) -> anyhow::Result<()> {
        let Programs { own, daemon, .. } = self.programs.clone();
        let devices = "device serve devices.yaml --links links --control faults";
        self.start("devices", &own, &devices.split(' ').collect::<Vec<_>>())?;
        self.has_file("the emulated devices", "faults")?;
        self.start("lightloomd", &daemon, &["--config", "daemon.yaml"])?;
        self.has_file("lightloomd", SOCKET)?;
        self.shown("lightloom ctl wait --for 60s").map(drop)
    }

    pub(super) fn apply(&mut self) -> anyhow::Result<()> {
        self.shown("lightloom plan fabric.yaml -o plan.json")?;
        self.shown("lightloom ctl adopt all")?;
        self.shown("lightloom ctl apply plan.json --cut-light").map(drop)
    }

    pub(super) fn start_slurm(&mut self) -> anyhow::Result<()> {
        let ports = free_ports(self.size.nodes as usize + 1)?;
        let nodes: Vec<String> = ports[1..].iter().map(u16::to_string).collect();
        let conf = SLURM_CONF.replace("CONTROLLER", &ports[0].to_string());
        self.write("slurm.conf", &conf.replace("PORTS", &nodes.join(",")))?;
        self.write_key()?;
        let files = ["key-file", "socket", "pid-file", "seed-file"].map(|option| {
            let name = option.strip_suffix("-file").unwrap_or("sock");
            format!("--{option}={}", self.path(&format!("munge.{name}")).display())
        });
        // munged refuses folders that other users cannot enter, except with `--force`.
        let munged: Vec<&str> = ["--foreground", "--force"]
            .into_iter()
            .chain(files.iter().map(String::as_str))
            .collect();
        self.start("munged", Path::new("munged"), &munged)?;
        self.has_file("munged", "munge.sock")?;
        self.start("slurmctld", Path::new("slurmctld"), &["-D", "-c"])?;
        for node in 0..self.size.nodes {
            let name = format!("n{node}");
            self.start(&format!("spool/{name}"), Path::new("slurmd"), &["-D", "-N", &name])?;
        }
        let all = self.size.nodes.to_string();
        self.seen("every slurmd", |cluster| {
            let idle = cluster.shown("sinfo -h -t idle -o %D").unwrap_or_default();
            Ok((idle.trim() == all).then_some(()))
        })
    }

    pub(super) fn follow(&mut self) -> anyhow::Result<()> {
        let own = self.programs.own.clone();
        let words = "ctl slurm fabric.yaml --topology topology.conf";
        self.start("ctl-slurm", &own, &words.split(' ').collect::<Vec<_>>())?;
        self.seen("Slurm to agree with the plan", |cluster| {
            let said = fs::read_to_string(cluster.path("ctl-slurm.err"))?;
            Ok(said.contains("Slurm agrees with plan").then_some(()))
        })
    }

    fn has_file(&mut self, what: &str, name: &str) -> anyhow::Result<()> {
        self.seen(what, |cluster| Ok(cluster.path(name).exists().then_some(())))
    }

    pub(super) fn seen<T>(
        &mut self,
        what: &str,
        ask: impl Fn(&Self) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let until = Instant::now() + WITHIN;
        loop {
            if let Some(found) = ask(self)? {
                return Ok(found);
            }
            self.processes.check(what)?;
            ensure!(Instant::now() < until, "{what}: timed out after {} s", WITHIN.as_secs());
        }
    }

    fn write_key(&self) -> anyhow::Result<()> {
        let mut key = Vec::new();
        fs::File::open("/dev/urandom")?.take(KEY_BYTES).read_to_end(&mut key)?;
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.path("munge.key"))?;
        Ok(file.write_all(&key)?)
    }
}

/// Returns ports below the ephemeral range, so that other connections do not use them first.
fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first: u16 =
        range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
    let room = first.saturating_sub(LOWEST_PORT).max(1);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let draw = (now.as_nanos() ^ u128::from(std::process::id()) << 10) % u128::from(room);
    let start = u16::try_from(draw)?;
    let mut held = Vec::new();
    for step in 0..room {
        let port =
            LOWEST_PORT + (u32::from(start) + u32::from(step)).rem_euclid(room.into()) as u16;
        held.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
        if held.len() == count {
            break;
        }
    }
    ensure!(held.len() == count, "cannot find {count} free ports");
    Ok(held
        .iter()
        .map(TcpListener::local_addr)
        .map(|at| Ok(at?.port()))
        .collect::<std::io::Result<_>>()?)
}

fn lacks() -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let missing = SLURM
        .iter()
        .find(|name| !path.split(':').any(|folder| Path::new(folder).join(name).is_file()));
    if let Some(missing) = missing {
        return Some(format!(
            "`{missing}` is not installed (Debian: slurmctld slurmd slurm-client munge)"
        ));
    }
    let is_root = rustix::process::geteuid().is_root();
    (!is_root).then(|| "slurmd must run as root".to_owned())
}
