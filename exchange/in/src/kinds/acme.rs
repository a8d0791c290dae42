// SPDX-License-Identifier: Apache-2.0
//! Reads the job tables of AcmeTrace (InternLM/AcmeTrace, CC-BY-4.0).
//!
//! According to the section "Job Trace" of its README, `state` is COMPLETED, CANCELLED, FAILED, TIMEOUT or NODE_FAIL;
//! `duration` is in seconds. Hosts are not listed, so NODE_FAIL becomes a fault of an unnamed host.

use serde::Deserialize;

use super::LogKind;
use crate::clock::time;
use crate::logs::{HostOutage, LogFile, LoggedJob, Logs};
use crate::problem::LogTrouble;

pub(super) const KIND: LogKind = LogKind {
    name: "AcmeTrace job table",
    from: "data/job_trace of github.com/InternLM/AcmeTrace",
    is: |text| {
        let header = text.lines().next().unwrap_or_default();
        ["job_id", "node_num", "gpu_num", "start_time"].iter().all(|name| header.contains(name))
    },
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

#[derive(Deserialize)]
struct AcmeRow {
    job_id: String,
    node_num: f64,
    gpu_num: f64,
    #[serde(default, rename = "type")]
    kind: String,
    state: String,
    start_time: String,
    end_time: String,
    #[serde(default)]
    fail_time: String,
}

const UNKNOWN_END: Option<i64> = None;

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(file.bytes);
    let header = reader.headers().cloned().unwrap_or_default();
    let mut record = csv::StringRecord::new();
    let mut nameless = 0;
    loop {
        let line = reader.position().line() as usize;
        match reader.read_record(&mut record) {
            Ok(false) => break,
            Ok(true) => {}
            Err(error) => {
                logs.problem(file.line(line), LogTrouble::Malformed(error.to_string()));
                continue;
            }
        }
        let place = file.line(record.position().map_or(line, |position| position.line() as usize));
        let row: AcmeRow = match record.deserialize(Some(&header)) {
            Ok(row) => row,
            Err(error) => {
                logs.problem(place, LogTrouble::Malformed(error.to_string()));
                continue;
            }
        };
        let (start, end) = match (time(&row.start_time), time(&row.end_time)) {
            (Ok(Some(start)), Ok(end)) => (start.seconds, end.map(|end| end.seconds)),
            (Ok(None), _) => continue,
            (Err(text), _) | (_, Err(text)) => {
                logs.problem(place, LogTrouble::NoTime(text));
                continue;
            }
        };
        if let Some(end) = end.filter(|end| *end < start) {
            logs.problem(place, LogTrouble::EndsFirst { seconds: start - end });
            continue;
        }
        if row.state == "NODE_FAIL" {
            nameless += 1;
            let failed = time(&row.fail_time).ok().flatten().map(|time| time.seconds);
            logs.outages.extend(failed.or(end).map(|start| HostOutage {
                host: format!("unnamed-{nameless}"),
                start,
                end: UNKNOWN_END,
                class: "Node".to_owned(),
                description: "a job ended with NODE_FAIL".to_owned(),
                place: place.clone(),
            }));
        }
        logs.jobs.push(LoggedJob {
            id: row.job_id,
            name: Some(row.kind).filter(|kind| !kind.is_empty()),
            gpus: row.gpu_num.max(0.0) as u64,
            nodes: row.node_num.max(0.0) as u64,
            hosts: Vec::new(),
            start,
            end,
            failed: ["FAILED", "NODE_FAIL", "TIMEOUT"].contains(&&*row.state),
            place,
        });
    }
    if nameless > 0 {
        logs.problem(file.whole(), LogTrouble::NamelessFault { count: nameless });
    }
}
