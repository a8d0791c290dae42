// SPDX-License-Identifier: Apache-2.0
//! Checks, before anything is created, whether this host can run a twin of the requested size.

use std::fs;
use std::process::{Command, Stdio};

use crate::netlink::{Kernel, RequestBatch};
use crate::record::{Folder, RECORD, Record};
use crate::{Error, link};

/// Memory in KiB for a namespace and its interfaces, above the highest measured value.
const NODE_KIB: u64 = 1_500;
const BASE_KIB: u64 = 200_000;

pub fn machine(folder: &Folder, record: &Record, own: &std::path::Path) -> Result<(), Error> {
    if folder.file(RECORD).exists() {
        let shown = folder.path().display();
        return Err(Error::Refused(format!(
            "{shown} already contains a twin: end it with `lightloom twin down --dir {shown}`, or \
             choose another folder"
        )));
    }
    for name in &record.files {
        if folder.file(name).exists() {
            return Err(Error::Refused(format!(
                "{} already exists and does not belong to a twin: choose an empty folder with \
                 --dir",
                folder.file(name).display()
            )));
        }
    }
    // Paths of Unix sockets are limited to 108 bytes.
    if folder.daemon_socket().as_os_str().len() > 100 {
        let shown = folder.path().display();
        return Err(Error::Refused(format!(
            "{shown} is too long for socket names: choose a folder path of at most 80 characters \
             with --dir"
        )));
    }
    size(record)?;
    kernel(own)
}

fn size(record: &Record) -> Result<(), Error> {
    let modules = u64::from(record.fabric_nodes) * u64::from(record.bundles);
    let [most, used] = ["/proc/sys/kernel/pty/max", "/proc/sys/kernel/pty/nr"]
        .map(|file| fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<u64>().ok()));
    if let (Some(most), Some(used)) = (most, used)
        && modules + used > most
    {
        return Err(Error::Refused(format!(
            "{modules} transceivers need as many ptys, but this machine has only {} of {most} left: raise kernel.pty.max with sysctl, or use a smaller fabric",
            most.saturating_sub(used)
        )));
    }
    let files = 2 * modules + u64::from(record.nodes) + 64;
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
    if let Ok((_, most)) = limit
        && files > most
    {
        return Err(Error::Refused(format!(
            "a twin of this size needs {files} open files in one process, but the limit is {most}: raise it (`ulimit -Hn {files}` as root), or use a smaller fabric"
        )));
    }
    let needed = BASE_KIB + NODE_KIB * u64::from(record.nodes);
    let free = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?.to_owned();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    });
    match free {
        Some(free) if free < needed => Err(Error::Refused(format!(
            "a twin of {} nodes needs about {} MiB of memory, but only {} MiB are free: use fewer \
             nodes (--nodes)",
            record.nodes,
            needed / 1024,
            free / 1024
        ))),
        _ => Ok(()),
    }
}

fn kernel(own: &std::path::Path) -> Result<(), Error> {
    let mut command = Command::new(own);
    command.args(["twin", "probe"]).stdin(Stdio::null());
    let output = command.output().map_err(Error::cannot("test the kernel's permissions"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Refused(said.trim().trim_start_matches("error: ").to_owned()))
}

pub fn probe() -> Result<(), Error> {
    use nix::sched::{CloneFlags, unshare};
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| {
        Error::Refused(format!(
            "this system does not let unprivileged users create namespaces ({error}): set \
             user.max_user_namespaces above 0 (on Ubuntu also kernel.apparmor_restrict_unprivileged_userns=0) with \
             sysctl; in a container start it with --security-opt seccomp=unconfined"
        ))
    })?;
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS)
        .map_err(|error| {
            Error::Refused(format!(
                "this system does not create network, process and mount namespaces ({error}): see \
                 user.max_net_namespaces, user.max_pid_namespaces and user.max_mnt_namespaces with sysctl"
            ))
        })?;
    let mut kernel = Kernel::open()?;
    let here = fs::File::open("/proc/self/ns/net").map_err(Error::cannot("open a namespace"))?;
    let mut try_it = |needs: &str, module: &str, batch: RequestBatch| {
        kernel.run(batch).map_err(|error| {
            Error::Refused(format!(
                "this kernel has no {needs} ({error}): load it as root with `modprobe -a {module}`, or run a kernel \
                 that has it"
            ))
        })
    };
    let mut batch = RequestBatch::default();
    let pair = link::Pair {
        name: "probe0",
        index: 1_000,
        address: crate::address::dcn(0),
        peer: "probe1",
        peer_index: 1_001,
        peer_namespace: std::os::fd::AsRawFd::as_raw_fd(&here),
    };
    link::add_pair(&mut batch, &pair);
    try_it("pairs of virtual interfaces", "veth", batch)?;
    let mut batch = RequestBatch::default();
    link::add_bridge(&mut batch, "probe2", 1_002);
    try_it("bridges", "bridge", batch)?;
    let mut batch = RequestBatch::default();
    link::add_ingress(&mut batch, 1_000);
    try_it("hook at ingress", "sch_ingress", batch)?;
    let mut batch = RequestBatch::default();
    link::redirect(&mut batch, 1_000, 1_001);
    try_it("u32 and mirred", "cls_u32 act_mirred", batch)
}
