// SPDX-License-Identifier: Apache-2.0
//! Slurm accounting: `sacct -P`, with a header and one job per line, fields separated by `|`.
//!
//! Source: sacct(1) of Slurm 22.05: `State` with `NODE_FAIL`, `FailedNode`, `AllocTRES` with
//! `gres/gpu=64`. A job ended by a failed host begins an outage, which ends when the next job
//! starts on that host.

use std::collections::BTreeMap;

use super::LogKind;
use crate::clock::{LogTime, time};
use crate::host_list::expand;
use crate::logs::{HostOutage, LogFile, LoggedJob, Logs};
use crate::problem::{LogPlace, LogTrouble};

pub(super) const KIND: LogKind = LogKind {
    name: "sacct -P",
    from: "sacct -a -P -S 2026-01-01 -o JobID,JobName,State,Start,End,NNodes,NodeList,AllocTRES,FailedNode",
    is: |file| {
        let head = file.head();
        let header = head.lines().next().unwrap_or_default().to_ascii_lowercase();
        let columns: Vec<&str> = header.split('|').collect();
        columns.len() > 1 && columns.iter().any(|column| column.starts_with("jobid"))
    },
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

/// Fault class of failures seen by the scheduler.
const DEAD_HOST: &str = "Node";

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(b'|')
        .quoting(false)
        .flexible(true)
        .from_reader(file.bytes);
    let header = reader.headers().cloned().unwrap_or_default();
    let columns: BTreeMap<String, usize> = header
        .iter()
        .enumerate()
        .map(|(at, name)| (name.trim().to_ascii_lowercase(), at))
        .collect();
    for (column, help) in [("start", "add `-o …,Start`"), ("end", "add `-o …,End`")] {
        if !columns.contains_key(column) {
            return logs.problem(file.line(1), LogTrouble::NoColumn { column, help });
        }
    }
    let mut jobs = Vec::new();
    let mut dead: Vec<(Vec<String>, i64, LogPlace, bool)> = Vec::new();
    let mut has_zone = true;
    for record in reader.records() {
        let Ok(record) = record else { continue };
        let place = file.line(record.position().map_or(1, |position| position.line() as usize));
        let field = |name: &str| {
            columns.get(name).and_then(|at| record.get(*at)).unwrap_or_default().trim()
        };
        let id = ["jobid", "jobidraw"].iter().map(|name| field(name)).find(|id| !id.is_empty());
        // Job steps (`17.batch`, `17.0`) repeat the information of the job's own line.
        let Some(id) = id.filter(|id| !id.contains('.')) else { continue };
        let (start, end) = match (time(field("start")), time(field("end"))) {
            (Ok(Some(start)), Ok(end)) => (start, end),
            (Ok(None), _) => continue,
            (Err(text), _) | (_, Err(text)) => {
                logs.problem(place, LogTrouble::NoTime(text));
                continue;
            }
        };
        has_zone &= start.has_zone;
        if let Some(end) = end.filter(|end| end.seconds < start.seconds) {
            let seconds = start.seconds - end.seconds;
            logs.problem(place, LogTrouble::EndsFirst { seconds });
            continue;
        }
        let hosts = match expand(hosts_of(field("nodelist"))) {
            Ok(hosts) => hosts,
            Err(error) => {
                logs.problem(place, LogTrouble::Malformed(error));
                continue;
            }
        };
        let state = field("state").split_whitespace().next().unwrap_or_default().to_owned();
        if let (Some(LogTime { seconds, .. }), "NODE_FAIL") = (end, &*state) {
            let failed = expand(hosts_of(field("failednode"))).unwrap_or_default();
            let is_named = !failed.is_empty();
            let of = if is_named { failed } else { hosts.iter().take(1).cloned().collect() };
            dead.push((of, seconds, place.clone(), is_named || hosts.len() == 1));
        }
        let tres = [field("alloctres"), field("reqtres")];
        jobs.push(LoggedJob {
            id: id.to_owned(),
            name: Some(field("jobname").to_owned()).filter(|name| !name.is_empty()),
            gpus: tres.iter().find_map(|tres| gpus(tres)).unwrap_or(0),
            nodes: field("nnodes").parse().unwrap_or(hosts.len() as u64),
            hosts,
            start: start.seconds,
            end: end.map(|end| end.seconds),
            failed: ["NODE_FAIL", "FAILED", "BOOT_FAIL", "OUT_OF_MEMORY"].contains(&&*state),
            place,
        });
    }
    if !has_zone {
        logs.problem(file.line(1), LogTrouble::NoZone);
    }
    let count = dead.iter().filter(|(.., is_named)| !is_named).count();
    if count > 0 {
        logs.problem(file.whole(), LogTrouble::NamelessFault { count });
    }
    logs.outages.extend(outages(dead, &jobs));
    logs.jobs.extend(jobs);
}

/// Returns the host list; empty if sacct reports none.
fn hosts_of(list: &str) -> &str {
    if list.eq_ignore_ascii_case("none assigned") { "" } else { list }
}

/// Parses the GPUs of a resource list: `billing=64,gres/gpu=64,gres/gpu:h100=64,node=8`.
fn gpus(tres: &str) -> Option<u64> {
    let all = tres.split(',').filter_map(|item| item.split_once('='));
    let of_gpus = all.filter(|(name, _)| *name == "gres/gpu" || name.starts_with("gres/gpu:"));
    of_gpus.filter_map(|(_, count)| count.parse().ok()).max()
}

fn outages(dead: Vec<(Vec<String>, i64, LogPlace, bool)>, jobs: &[LoggedJob]) -> Vec<HostOutage> {
    let mut begins: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for job in jobs {
        for host in &job.hosts {
            begins.entry(host).or_default().push(job.start);
        }
    }
    let mut found = Vec::new();
    for (hosts, start, place, _) in dead {
        for host in hosts {
            let next = begins.get(&*host).into_iter().flatten().filter(|begin| **begin >= start);
            found.push(HostOutage {
                end: next.min().copied(),
                host,
                start,
                class: DEAD_HOST.to_owned(),
                description: "a job ended with NODE_FAIL".to_owned(),
                place: place.clone(),
            });
        }
    }
    found
}
