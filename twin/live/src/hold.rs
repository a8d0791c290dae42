// SPDX-License-Identifier: Apache-2.0
//! The process that holds a twin. It creates namespaces and starts the first process in them, which sets up the rest.
//!
//! ```text
//!   twin up ─▶ twin hold (in new user, mount, process and network namespaces; waits)
//!                └▶ twin init (first process inside): nodes, transceivers on ptys, wiring, lightloomd
//! ```
//!
//! When the first process in a process namespace ends, the kernel kills all others. It ends when its parent ends.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lightloom_devices::serve::{Options, Server, raise_file_limit};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{getegid, geteuid, setsid};

use crate::record::{Folder, Holder, Process, Ready};
use crate::{Error, enter, nodes, wait_until, wiring};

pub const WAY: &str = "u32 and mirred at tc ingress, in an unprivileged user namespace";

/// Starts the first process. If the parent ends without sending this message, the first process ends as well.
const GO: &[u8] = b"go\n";

pub fn hold(folder: &Folder, own: &Path) -> Result<(), Error> {
    setsid().map_err(Error::cannot("leave the session of the terminal"))?;
    let (user, group) = (geteuid(), getegid());
    let namespaces = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC;
    unshare(namespaces).map_err(Error::cannot("make namespaces"))?;
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {user} 1")),
        ("/proc/self/gid_map", format!("0 {group} 1")),
    ] {
        fs::write(file, text).map_err(Error::cannot(format!("write {file}")))?;
    }
    let mut command = Command::new(own);
    command.args(["twin", "init", "--dir"]).arg(folder.path()).stdin(Stdio::piped());
    let mut init = command.spawn().map_err(Error::cannot("start the first process"))?;
    let [parent, child] = [std::process::id(), init.id()].map(|pid| {
        Process::find(pid).ok_or_else(|| Error::Refused("the first process ended early".into()))
    });
    let holder = Holder { parent: parent?, init: child? };
    folder.write("holder.json", &holder)?;
    if let Some(mut input) = init.stdin.take() {
        input.write_all(GO).map_err(Error::cannot("start the first process"))?;
    }
    init.wait().map_err(Error::cannot("wait for the first process"))?;
    Ok(())
}

pub fn init(folder: &Folder, own: &Path, daemon: &Path) -> Result<(), Error> {
    let mut word = [0; GO.len()];
    io::stdin().read_exact(&mut word).map_err(Error::cannot("begin"))?;
    set_pdeathsig(Signal::SIGKILL).map_err(Error::cannot("end with the parent"))?;
    mounts(folder)?;
    let record = folder.record()?;
    let text = read(&folder.file("fabric.yaml"))?;
    let (fabric, _) = lightloom_fabric::file::load("fabric.yaml", text.as_bytes());
    let fabric = fabric.ok_or_else(|| Error::Refused("the fabric file has errors".into()))?;
    raise_file_limit();
    let start = Instant::now();
    let namespaces = nodes::make(&record, &fabric)?;
    let namespaces_ms = milliseconds(start);
    let start = Instant::now();
    let watcher = wiring::start(folder, &record)?;
    let mut server = devices(folder, &text)?;
    server.watch_light(Box::new(watcher));
    std::thread::spawn(move || server.run());
    let devices_ms = milliseconds(start);
    let [log, errors] = folder.log("lightloomd.log")?;
    let mut command = Command::new(daemon);
    command.arg("--config").arg(folder.file("daemon.yaml")).stdin(Stdio::null());
    command.stdout(log).stderr(errors);
    let what = format!("start {} for {}", daemon.display(), own.display());
    let _daemon = command.spawn().map_err(Error::cannot(what))?;
    let ready = Ready {
        way: WAY.to_owned(),
        user_namespace: enter::own_user_namespace()?,
        namespaces: namespaces.iter().map(AsRawFd::as_raw_fd).collect(),
        namespaces_ms,
        devices_ms,
    };
    folder.write("ready.json", &ready)?;
    // Orphaned processes inside become children of this process, which must reap them.
    loop {
        while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status.pid().is_some())
        {
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn mounts(folder: &Folder) -> Result<(), Error> {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(Error::cannot("keep mounts private"))?;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none)
        .map_err(Error::cannot("mount /proc for the processes inside"))?;
    mount(Some(&folder.file("hosts")), "/etc/hosts", none, MsFlags::MS_BIND, none)
        .map_err(Error::cannot("write the node names to /etc/hosts"))
}

fn devices(folder: &Folder, fabric: &str) -> Result<Server, Error> {
    let list = read(&folder.file("devices.yaml"))?;
    let bytes = list.as_bytes();
    let (list, mistakes) =
        lightloom_devices::load_beside("devices.yaml", bytes, &mut |_| Ok(fabric.to_owned()));
    let list = list.ok_or_else(|| Error::Refused(format!("the device list: {mistakes:?}")))?;
    let options = Options {
        links: Some(folder.file("modules")),
        control: Some(folder.device_socket()),
        eeproms: None,
    };
    Server::start(list, &options).map_err(Error::cannot("serve the emulated transceivers"))
}

fn read(file: &Path) -> Result<String, Error> {
    fs::read_to_string(file).map_err(Error::cannot(format!("read {}", file.display())))
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

pub fn down(folder: &Folder) -> Result<(), Error> {
    let record = folder.record()?;
    if let Some(holder) = folder.read::<Holder>("holder.json")? {
        for process in [holder.init, holder.parent].into_iter().filter(|process| process.runs()) {
            let pid = nix::unistd::Pid::from_raw(process.pid.cast_signed());
            let _ended_meanwhile = nix::sys::signal::kill(pid, Signal::SIGKILL);
        }
        let ended = wait_until(Duration::from_secs(10), || {
            Ok((!holder.init.runs() && !holder.parent.runs()).then_some(()))
        });
        if ended?.is_none() {
            let pid = holder.init.pid;
            return Err(Error::Refused(format!(
                "process {pid} of the twin did not end within 10 s: see `ps {pid}`"
            )));
        }
    }
    for name in &record.files {
        remove(&folder.file(name))?;
    }
    remove(&folder.file(crate::record::RECORD))?;
    let _holds_other_files = fs::remove_dir(folder.path());
    Ok(())
}

fn remove(path: &Path) -> Result<(), Error> {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    let removed = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::system(format!("remove {}", path.display()), error))
        }
        _ => Ok(()),
    }
}
