// SPDX-License-Identifier: Apache-2.0

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, sethostname};
use serde::Serialize;

use crate::record::{Folder, Holder, Ready, Record};
use crate::{Error, environment};

const INIT: u32 = 1;
/// Lowest scheduling priority, on the scale from -20 to 19.
const LEAST_FAVOURED: i32 = 19;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Moves this process into node `name`: its network, host name, `/etc/hosts` and processes. Later
/// child processes also run in the node. Fails if this process has several threads.
pub fn enter(folder: &Folder, name: &str) -> Result<(), Error> {
    let record = folder.record()?;
    let node = record.node(name)?;
    let (holder, ready) = up(folder)?;
    enter_holder(holder, Some(&network(holder, &ready, node)?))?;
    unshare(CloneFlags::CLONE_NEWUTS).map_err(Error::cannot(format!("give {name} a host name")))?;
    sethostname(name).map_err(Error::cannot(format!("give {name} a host name")))
}

pub(crate) fn network(holder: u32, ready: &Ready, node: u32) -> Result<File, Error> {
    let fd = ready.namespaces.get(node as usize);
    let fd = fd.ok_or_else(|| Error::Refused(format!("n{node} has no namespace")))?;
    open(format!("/proc/{holder}/fd/{fd}"))
}

/// A process that is already inside only changes its network.
pub(crate) fn enter_holder(pid: u32, network: Option<&File>) -> Result<(), Error> {
    if pid == INIT {
        let fibres = open(format!("/proc/{pid}/ns/net"))?;
        return setns(network.unwrap_or(&fibres), CloneFlags::CLONE_NEWNET)
            .map_err(Error::cannot("enter the network of a node"));
    }
    let here = std::env::current_dir().map_err(Error::cannot("find this folder"))?;
    let [user, fibres, processes, mounts] =
        ["user", "net", "pid", "mnt"].map(|kind| open(format!("/proc/{pid}/ns/{kind}")));
    let (user, fibres, processes, mounts) = (user?, fibres?, processes?, mounts?);
    for (file, what) in [
        (&user, CloneFlags::CLONE_NEWUSER),
        (network.unwrap_or(&fibres), CloneFlags::CLONE_NEWNET),
        (&processes, CloneFlags::CLONE_NEWPID),
        (&mounts, CloneFlags::CLONE_NEWNS),
    ] {
        setns(file, what).map_err(Error::cannot("enter the twin's namespaces"))?;
    }
    std::env::set_current_dir(&here).map_err(Error::cannot(format!("return to {}", here.display())))
}

fn open(path: String) -> Result<File, Error> {
    File::open(&path).map_err(Error::cannot(format!("open {path}")))
}

pub(crate) fn own_user_namespace() -> Result<u64, Error> {
    let file = fs::metadata("/proc/self/ns/user");
    file.map(|of| of.ino()).map_err(Error::cannot("read its user namespace"))
}

pub fn up(folder: &Folder) -> Result<(u32, Ready), Error> {
    let holder: Option<Holder> = folder.read("holder.json")?;
    let ready: Option<Ready> = folder.read("ready.json")?;
    let inside = own_user_namespace()?;
    match (holder, ready) {
        (_, Some(ready)) if ready.user_namespace == inside => Ok((INIT, ready)),
        (Some(holder), Some(ready)) if holder.init.runs() => Ok((holder.init.pid, ready)),
        _ => Err(Error::Refused(format!(
            "the twin in {} is not up (its process has ended): remove its files with `lightloom twin down --dir {}`",
            folder.path().display(),
            folder.path().display()
        ))),
    }
}

#[derive(Clone, Debug)]
pub struct NodePrograms {
    pub name: String,
    pub command: Vec<String>,
    pub timeout: Option<Duration>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Ended {
    pub node: String,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub timed_out: bool,
    pub ran_ms: f64,
    pub log: PathBuf,
}

impl Ended {
    pub fn is_good(&self) -> bool {
        self.code == Some(0) && !self.timed_out
    }
}

pub fn everywhere(
    folder: &Folder,
    own: &Path,
    programs: &NodePrograms,
) -> Result<Vec<Ended>, Error> {
    let record: Record = folder.record()?;
    up(folder)?;
    let logs = folder.file("log").join(&programs.name);
    fs::create_dir_all(&logs).map_err(Error::cannot(format!("make {}", logs.display())))?;
    let start = Instant::now();
    let mut running = Vec::new();
    for node in 0..record.nodes {
        let name = format!("n{node}");
        let [out, err] = ["out", "err"].map(|kind| {
            let file = logs.join(format!("{name}.{kind}"));
            File::create(&file).map_err(Error::cannot(format!("write {}", file.display())))
        });
        let mut command = Command::new(own);
        command.args(["twin", "exec", &name, "--dir"]).arg(folder.path()).arg("--");
        command.args(&programs.command).stdin(Stdio::null());
        command.stdout(out?).stderr(err?).process_group(0);
        let child = command.spawn().map_err(Error::cannot("start a program"))?;
        running.push((name, child, false));
    }
    let mut ended = Vec::new();
    while !running.is_empty() {
        running.retain_mut(|(name, child, killed)| {
            let late = programs.timeout.is_some_and(|timeout| start.elapsed() > timeout);
            if late && !*killed {
                *killed = true;
                kill_group(child);
            }
            let Ok(Some(status)) = child.try_wait() else { return true };
            let log = logs.join(format!("{name}.out"));
            ended.push(outcome(name, status, *killed, start, log));
            false
        });
        std::thread::sleep(LOOK_EVERY);
    }
    ended.sort_by_key(|of: &Ended| record.node(&of.node).unwrap_or(u32::MAX));
    folder.write_in(&logs, "result.json", &ended)?;
    Ok(ended)
}

fn outcome(name: &str, status: ExitStatus, timed_out: bool, start: Instant, log: PathBuf) -> Ended {
    Ended {
        node: name.to_owned(),
        code: status.code(),
        signal: status.signal(),
        timed_out,
        ran_ms: start.elapsed().as_secs_f64() * 1e3,
        log,
    }
}

pub fn kill_group(child: &Child) {
    let _ended_meanwhile = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
}

pub fn run(
    folder: &Folder,
    node: &str,
    command: &[String],
    timeout: Option<Duration>,
) -> Result<ExitStatus, Error> {
    enter(folder, node)?;
    let environment = environment::of(folder, node)?;
    // Real nodes have their own processors. In the twin, programs share processors with the daemon
    // and the transceivers, which must take priority.
    rustix::process::nice(LEAST_FAVOURED).map_err(Error::cannot("give the daemon priority"))?;
    let Some((program, arguments)) = command.split_first() else {
        return Err(Error::Refused("specify a program after --".into()));
    };
    let started = Instant::now();
    let mut starting = Command::new(program);
    starting.args(arguments).envs(environment);
    // With a timeout, the process group is killed. Without one, the command stays in the terminal's process group.
    if timeout.is_some() {
        starting.process_group(0);
    }
    let mut child = starting.spawn().map_err(Error::cannot(format!("run {program} on {node}")))?;
    let Some(timeout) = timeout else {
        return child.wait().map_err(Error::cannot(format!("wait for {program}")));
    };
    loop {
        let ended = child.try_wait();
        if let Some(status) = ended.map_err(Error::cannot("wait for a program"))? {
            return Ok(status);
        }
        if started.elapsed() > timeout {
            kill_group(&child);
            let _reaped = child.wait();
            return Err(Error::Refused(format!(
                "{program} did not end within {:.1} s on {node} and was killed: raise the limit \
                 with --timeout",
                timeout.as_secs_f64()
            )));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
