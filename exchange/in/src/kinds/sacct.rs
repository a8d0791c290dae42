// SPDX-License-Identifier: Apache-2.0
//! Reads Slurm accounting: plain `sacct`, `sacct --json`, and `sacct -P`, whose fields are separated by `|`.
//!
//! The fields are documented in sacct(1) of Slurm 22.05 (`State` with `NODE_FAIL`, `FailedNode`, `AllocTRES` with
//! `gres/gpu=64`), and `--json` is read from versions 21.08 and 23.11. `-P` does not quote, so a `|` in a job name
//! shifts later fields. NODE_FAIL begins an outage that lasts until the next job on that host.

use std::collections::BTreeMap;

use serde_json::Value;

use super::LogKind;
use crate::clock::{LogTime, time};
use crate::host_list::expand;
use crate::json::{parse, records};
use crate::logs::{HostOutage, LogFile, LoggedJob, Logs};
use crate::problem::{LogPlace, LogTrouble};

pub(super) const KIND: LogKind = LogKind {
    name: "sacct",
    from: "sacct -a -P -S 2026-01-01 -o JobID,JobName,State,Start,End,NNodes,NodeList,AllocTRES,FailedNode",
    is: |text| {
        let header = text.lines().next().unwrap_or_default().to_ascii_lowercase();
        let mut columns = header.split(['|', ' ']).filter(|column| !column.is_empty());
        let is_table = header.contains("state") || header.contains('|');
        let is_json = text.contains("\"job_id\"") && text.contains("\"allocation_nodes\"");
        is_json || is_table && columns.any(|column| column.starts_with("jobid"))
    },
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

const DEAD_HOST: &str = "Node";

/// Keys are lower-case column names.
struct SacctRow {
    place: LogPlace,
    fields: BTreeMap<String, String>,
}

impl SacctRow {
    fn get(&self, column: &str) -> &str {
        self.fields.get(column).map_or("", |field| field.trim())
    }
}

fn table(file: &LogFile<'_>, logs: &mut Logs) -> Vec<SacctRow> {
    let mut lines = file.bytes.split(|byte| *byte == b'\n').map(String::from_utf8_lossy);
    let header = lines.next().unwrap_or_default();
    let mut lines = lines.zip(2..).peekable();
    let is_plain =
        |line: &str| line.starts_with("--") && line.trim().chars().all(|c| "- ".contains(c));
    let widths: Option<Vec<usize>> = lines
        .next_if(|(line, _)| is_plain(line))
        .map(|(dashes, _)| dashes.split_whitespace().map(str::len).collect());
    let cut = |line: &str| -> Vec<String> {
        let Some(widths) = &widths else {
            return line.trim_end_matches('\r').split('|').map(str::to_owned).collect();
        };
        let mut rest = line.chars();
        widths.iter().map(|width| rest.by_ref().take(width + 1).collect()).collect()
    };
    let columns: Vec<String> =
        cut(&header).iter().map(|name| name.trim().to_ascii_lowercase()).collect();
    for (column, help) in [("start", "add `-o …,Start`"), ("end", "add `-o …,End`")] {
        if !columns.iter().any(|name| name == column) {
            logs.problem(file.line(1), LogTrouble::NoColumn { column, help });
            return Vec::new();
        }
    }
    let name = columns.iter().position(|column| column == "jobname");
    let mut rows = Vec::new();
    for (line, number) in lines.filter(|(line, _)| !line.trim().is_empty()) {
        let (mut fields, place) = (cut(&line), file.line(number));
        if let Some(surplus) = fields.len().checked_sub(columns.len()).filter(|more| *more > 0) {
            match name {
                Some(at) => {
                    let whole = fields.drain(at..=at + surplus).collect::<Vec<_>>().join("|");
                    fields.insert(at, whole);
                }
                None => {
                    let (found, columns) = (fields.len(), columns.len());
                    logs.problem(place, LogTrouble::Fields { found, columns });
                    continue;
                }
            }
        }
        rows.push(SacctRow { place, fields: columns.iter().cloned().zip(fields).collect() });
    }
    rows
}

fn documents(file: &LogFile<'_>, logs: &mut Logs) -> Vec<SacctRow> {
    let mut rows = Vec::new();
    for record in records(file, logs) {
        let Some(job) = parse::<Value>(file, &record, logs) else { continue };
        // Newer releases write numbers as `{set, infinite, number}`.
        let number = |value: &Value| value.get("number").unwrap_or(value).as_u64().unwrap_or(0);
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let at = |key: &str| match number(&job["time"][key]) {
            0 => String::new(),
            seconds => seconds.to_string(),
        };
        let state = &job["state"]["current"];
        let tres = job["tres"]["allocated"].as_array().into_iter().flatten();
        let tres = tres.map(|one| {
            let slash = if one["name"].as_str().is_none_or(str::is_empty) { "" } else { "/" };
            format!("{}{slash}{}={}", word(&one["type"]), word(&one["name"]), number(&one["count"]))
        });
        let fields = [
            ("jobid", number(&job["job_id"]).to_string()),
            ("jobname", word(&job["name"])),
            ("state", word(state.get(0).unwrap_or(state))),
            ("start", at("start")),
            ("end", at("end")),
            ("nnodes", number(&job["allocation_nodes"]).to_string()),
            ("nodelist", word(&job["nodes"])),
            ("alloctres", tres.collect::<Vec<_>>().join(",")),
            ("failednode", word(&job["failed_node"])),
        ];
        let fields = fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect();
        rows.push(SacctRow { place: file.line(record.line), fields });
    }
    rows
}

/// The failed hosts, or all hosts of the job if the log does not contain them.
struct DeadHosts {
    hosts: Vec<String>,
    at: i64,
    place: LogPlace,
    is_named: bool,
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let is_json = file.bytes.trim_ascii_start().starts_with(b"{");
    let rows = if is_json { documents(file, logs) } else { table(file, logs) };
    let (mut jobs, mut dead) = (Vec::new(), Vec::new());
    let mut has_zone = true;
    for row in rows {
        match job(&row) {
            Ok(Some((job, start))) => {
                has_zone &= start.has_zone;
                dead.extend(dead_hosts(&row, &job));
                jobs.push(job);
            }
            Ok(None) => {}
            Err(trouble) => logs.problem(row.place, *trouble),
        }
    }
    if !has_zone {
        logs.problem(file.line(1), LogTrouble::NoZone);
    }
    let count = dead.iter().filter(|dead| !dead.is_named).count();
    if count > 0 {
        logs.problem(file.whole(), LogTrouble::NamelessFault { count });
    }
    logs.outages.extend(outages(dead, &jobs));
    logs.jobs.extend(jobs);
}

/// Returns `None` for job steps and for jobs that never started.
fn job(row: &SacctRow) -> Result<Option<(LoggedJob, LogTime)>, Box<LogTrouble>> {
    let id = ["jobid", "jobidraw"].iter().map(|name| row.get(name)).find(|id| !id.is_empty());
    // Job steps (`17.batch`, `17.0`) repeat fields of their job.
    let Some(id) = id.filter(|id| !id.contains('.')) else { return Ok(None) };
    let at =
        |column: &str| time(row.get(column)).map_err(|text| Box::new(LogTrouble::NoTime(text)));
    let Some(start) = at("start")? else { return Ok(None) };
    let end = at("end")?.map(|end| end.seconds);
    if let Some(end) = end.filter(|end| *end < start.seconds) {
        return Err(LogTrouble::EndsFirst { seconds: start.seconds - end }.into());
    }
    let hosts = expand(hosts_of(row.get("nodelist")));
    let hosts = hosts.map_err(|error| Box::new(LogTrouble::Malformed(error)))?;
    let tres = [row.get("alloctres"), row.get("reqtres")];
    let job = LoggedJob {
        id: id.to_owned(),
        name: Some(row.get("jobname").to_owned()).filter(|name| !name.is_empty()),
        gpus: tres.iter().find_map(|tres| gpus(tres)).unwrap_or(0),
        nodes: row.get("nnodes").parse().unwrap_or(hosts.len() as u64),
        hosts,
        start: start.seconds,
        end,
        failed: ["NODE_FAIL", "FAILED", "BOOT_FAIL", "OUT_OF_MEMORY"].contains(&state(row)),
        place: row.place.clone(),
    };
    Ok(Some((job, start)))
}

/// Removes suffixes, as in `CANCELLED by 1000`.
fn state(row: &SacctRow) -> &str {
    row.get("state").split_whitespace().next().unwrap_or_default()
}

fn dead_hosts(row: &SacctRow, job: &LoggedJob) -> Option<DeadHosts> {
    let at = job.end.filter(|_| state(row) == "NODE_FAIL")?;
    let failed = expand(hosts_of(row.get("failednode"))).unwrap_or_default();
    let is_named = !failed.is_empty() || job.hosts.len() == 1;
    let hosts =
        if failed.is_empty() { job.hosts.iter().take(1).cloned().collect() } else { failed };
    Some(DeadHosts { hosts, at, place: row.place.clone(), is_named })
}

/// Empty if sacct reports no hosts or a plain table truncates them.
fn hosts_of(list: &str) -> &str {
    let is_none = list.eq_ignore_ascii_case("none assigned") || list.ends_with('+');
    if is_none { "" } else { list }
}

/// In `gres/gpu=64,gres/gpu:h100=64`, the plain number includes typed GPUs. Some clusters account only for types.
fn gpus(tres: &str) -> Option<u64> {
    let all = tres.split(',').filter_map(|item| item.split_once('='));
    let all = all.filter_map(|(name, count)| Some((name, count.parse::<u64>().ok()?)));
    let of_gpus: Vec<(&str, u64)> = all.filter(|(name, _)| name.starts_with("gres/gpu")).collect();
    let plain = of_gpus.iter().find(|(name, _)| *name == "gres/gpu").map(|(_, count)| *count);
    let typed = of_gpus.iter().map(|(_, count)| count);
    plain.or_else(|| (!of_gpus.is_empty()).then(|| typed.sum()))
}

fn outages(dead: Vec<DeadHosts>, jobs: &[LoggedJob]) -> Vec<HostOutage> {
    let mut begins: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for job in jobs {
        for host in &job.hosts {
            begins.entry(host).or_default().push(job.start);
        }
    }
    let mut found = Vec::new();
    for DeadHosts { hosts, at: start, place, .. } in dead {
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
