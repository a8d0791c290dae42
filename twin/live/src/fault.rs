// SPDX-License-Identifier: Apache-2.0
//! Injects node failures: the transceivers lose light, the network loses its carrier, and programs are killed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::netlink::{Kernel, RequestBatch};
use crate::record::Folder;
use crate::{Error, enter, link, nodes, unix_us};

/// One [`InjectedFault`] per line.
pub const FILE: &str = "faults.jsonl";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InjectedFault {
    pub part: String,
    /// In the syntax of `lightloom device fault`.
    pub fault: String,
    pub unix_us: u64,
    pub killed: u32,
}

/// On a node, `dead` also kills the programs and disconnects the network.
pub fn inject(folder: &Folder, part: &str, fault: &str) -> Result<InjectedFault, Error> {
    let record = folder.record()?;
    let (holder, ready) = enter::up(folder)?;
    say(folder, &format!("{part} {fault}"))?;
    let mut entry = InjectedFault {
        part: part.to_owned(),
        fault: fault.to_owned(),
        unix_us: unix_us(),
        killed: 0,
    };
    if let (Ok(node), "dead") = (record.node(part), fault) {
        entry.killed = kill_all(&enter::network(holder, &ready, node)?)?;
        enter::enter_holder(holder, None)?;
        let mut batch = RequestBatch::default();
        link::set(&mut batch, nodes::dcn_index(node), false, None);
        Kernel::open()?.run(batch)?;
    }
    folder.add_line(FILE, &entry)?;
    Ok(entry)
}

fn say(folder: &Folder, line: &str) -> Result<(), Error> {
    let what = "connect to the emulated transceivers";
    let socket = UnixStream::connect(folder.device_socket()).map_err(Error::cannot(what))?;
    let mut socket = BufReader::new(socket);
    let sent = socket.get_mut().write_all(format!("{line}\n").as_bytes());
    sent.map_err(Error::cannot(what))?;
    let mut answer = String::new();
    socket.read_line(&mut answer).map_err(Error::cannot(what))?;
    match answer.trim() {
        "ok" => Ok(()),
        wrong => Err(Error::Refused(wrong.trim_start_matches("error: ").to_owned())),
    }
}

fn kill_all(network: &fs::File) -> Result<u32, Error> {
    let wanted = network.metadata().map(|of| (of.dev(), of.ino()));
    let wanted = wanted.map_err(Error::cannot("read the network of a node"))?;
    let processes = fs::read_dir("/proc").map_err(Error::cannot("list processes"))?;
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let of_node = pids.filter(|pid: &i32| {
        fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|of| (of.dev(), of.ino()) == wanted)
    });
    Ok(of_node.filter(|pid| kill(Pid::from_raw(*pid), Signal::SIGKILL).is_ok()).count() as u32)
}
