// SPDX-License-Identifier: Apache-2.0
//! Reads Slurm accounting: plain `sacct`, `sacct --json`, and `sacct -P`, whose fields are separated by `|`.
//!
//! The fields are documented in sacct(1) of Slurm 22.05 (`State` with `NODE_FAIL`, `FailedNode`, `AllocTRES` with
//! `gres/gpu=64`), and `--json` is read from versions 21.08 and 23.11. `-P` does not quote, so a `|` in a job name
//! shifts later fields. NODE_FAIL begins an outage that lasts until the next job on that host.
//!
//! The job tables of AcmeTrace (InternLM/AcmeTrace, CC-BY-4.0) are from Slurm, too. According to the section "Job Trace"
//! of its README, hosts are not listed, so NODE_FAIL becomes a fault of an unnamed host.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value;

use super::LogKind;
use crate::clock::{LogTime, time};
use crate::host_list::expand_hosts;
use crate::json::{parse, records};
use crate::logs::{HostOutage, LogFile, LoggedJob, Logs};
use crate::problem::{LogPlace, RECORD_SKIPPED};

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

pub(super) const ACME: LogKind = LogKind {
    name: "AcmeTrace job table",
    from: "data/job_trace of github.com/InternLM/AcmeTrace",
    is: |text| {
        let header = text.lines().next().filter(|header| header.starts_with(ACME_START));
        let columns = ["node_num", "gpu_num", "start_time"];
        header.is_some_and(|header| columns.iter().all(|name| header.contains(name)))
    },
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

const ACME_START: &str = "job_id,";
/// Columns of AcmeTrace, and their names in sacct. The number of GPUs and the time of a fault are separate.
const ACME_COLUMNS: [[&str; 2]; 8] = [
    ["job_id", "jobid"],
    ["type", "jobname"],
    ["state", "state"],
    ["start_time", "start"],
    ["end_time", "end"],
    ["fail_time", "failed"],
    ["node_num", "nnodes"],
    ["gpu_num", "gpus"],
];

const DEAD_HOST: &str = "Node";

struct SacctRow {
    place: LogPlace,
    columns: Rc<[String]>,
    fields: Vec<String>,
}

impl SacctRow {
    fn get(&self, column: &str) -> &str {
        let mut fields = self.columns.iter().zip(&self.fields);
        fields.find(|(name, _)| *name == column).map_or("", |(_, field)| field.trim())
    }

    fn number(&self, column: &str) -> Option<u64> {
        self.get(column).parse::<f64>().ok().map(|number| number.max(0.0) as u64)
    }
}

fn acme(file: &LogFile<'_>, logs: &mut Logs) -> Vec<SacctRow> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(file.bytes);
    let header = reader.headers().cloned().unwrap_or_default();
    let found = ACME_COLUMNS
        .iter()
        .filter_map(|[name, own]| Some((header.iter().position(|column| column == *name)?, *own)));
    let (places, columns): (Vec<usize>, Vec<&str>) = found.unzip();
    let columns: Rc<[String]> = columns.into_iter().map(str::to_owned).collect();
    let mut rows = Vec::new();
    for record in reader.records() {
        let trouble = match record {
            Ok(record) if record.len() >= header.len() => {
                let line = record.position().map_or(1, |position| position.line() as usize);
                let fields = places.iter().map(|at| record[*at].to_owned()).collect();
                rows.push(SacctRow {
                    place: file.line(line),
                    columns: Rc::clone(&columns),
                    fields,
                });
                continue;
            }
            Ok(record) => format!("{} fields for {} columns", record.len(), header.len()),
            Err(error) => error.to_string(),
        };
        logs.problem(file.whole(), trouble, RECORD_SKIPPED);
    }
    rows
}

/// Splits a line into columns of these widths, or at each `|`.
fn cut(line: &str, widths: Option<&[usize]>) -> Vec<String> {
    let Some(widths) = widths else {
        return line.trim_end_matches('\r').split('|').map(str::to_owned).collect();
    };
    let mut rest = line.chars();
    widths.iter().map(|width| rest.by_ref().take(width + 1).collect()).collect()
}

fn table(file: &LogFile<'_>, logs: &mut Logs) -> Vec<SacctRow> {
    let mut lines = file.bytes.split(|byte| *byte == b'\n').map(String::from_utf8_lossy);
    let header = lines.next().unwrap_or_default();
    let mut lines = lines.zip(2..).peekable();
    let widths: Option<Vec<usize>> = lines
        .next_if(|(line, _)| {
            line.starts_with("--") && line.trim().chars().all(|c| "- ".contains(c))
        })
        .map(|(dashes, _)| dashes.split_whitespace().map(str::len).collect());
    let widths = widths.as_deref();
    let columns: Vec<String> =
        cut(&header, widths).iter().map(|name| name.trim().to_ascii_lowercase()).collect();
    for (column, help) in [("start", "add `-o …,Start`"), ("end", "add `-o …,End`")] {
        if !columns.iter().any(|name| name == column) {
            let still = format!("the file is skipped: {help}");
            logs.problem(file.line(1), format!("no column `{column}`"), still);
            return Vec::new();
        }
    }
    let name = columns.iter().position(|column| column == "jobname");
    let columns: Rc<[String]> = columns.into();
    let mut rows = Vec::new();
    for (line, number) in lines.filter(|(line, _)| !line.trim().is_empty()) {
        let (mut fields, place) = (cut(&line, widths), file.line(number));
        if let Some(surplus) = fields.len().checked_sub(columns.len()).filter(|more| *more > 0) {
            match name {
                Some(at) => {
                    let whole = fields.drain(at..=at + surplus).collect::<Vec<_>>().join("|");
                    fields.insert(at, whole);
                }
                None => {
                    let trouble = format!(
                        "{} fields for {} columns, and no JobName that could contain a `|`",
                        fields.len(),
                        columns.len()
                    );
                    logs.problem(place, trouble, RECORD_SKIPPED);
                    continue;
                }
            }
        }
        rows.push(SacctRow { place, columns: Rc::clone(&columns), fields });
    }
    rows
}

/// Reads a number, which newer releases write as `{set, infinite, number}`.
fn number(value: &Value) -> u64 {
    value.get("number").unwrap_or(value).as_u64().unwrap_or(0)
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn documents(file: &LogFile<'_>, logs: &mut Logs) -> Vec<SacctRow> {
    let columns = ["jobid", "jobname", "state", "start", "end"];
    let others = ["nnodes", "nodelist", "alloctres", "failednode"];
    let columns: Rc<[String]> = columns.into_iter().chain(others).map(str::to_owned).collect();
    let mut rows = Vec::new();
    for record in records(file, logs) {
        let Some(job) = parse::<Value>(file, &record, logs) else { continue };
        let [start, end] = ["start", "end"].map(|key| match number(&job["time"][key]) {
            0 => String::new(),
            seconds => seconds.to_string(),
        });
        let state = &job["state"]["current"];
        let tres = job["tres"]["allocated"].as_array().into_iter().flatten();
        let tres = tres.map(|one| {
            let slash = if one["name"].as_str().is_none_or(str::is_empty) { "" } else { "/" };
            format!("{}{slash}{}={}", word(&one["type"]), word(&one["name"]), number(&one["count"]))
        });
        let fields = vec![
            number(&job["job_id"]).to_string(),
            word(&job["name"]),
            word(state.get(0).unwrap_or(state)),
            start,
            end,
            number(&job["allocation_nodes"]).to_string(),
            word(&job["nodes"]),
            tres.collect::<Vec<_>>().join(","),
            word(&job["failed_node"]),
        ];
        let columns = Rc::clone(&columns);
        rows.push(SacctRow { place: file.line(record.line), columns, fields });
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
    let rows = match file.bytes.trim_ascii_start() {
        text if text.starts_with(b"{") => documents(file, logs),
        text if text.starts_with(ACME_START.as_bytes()) => acme(file, logs),
        _ => table(file, logs),
    };
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
            Err(trouble) => logs.problem(row.place, trouble, RECORD_SKIPPED),
        }
    }
    if !has_zone {
        let still = "UTC is assumed, which does not affect durations";
        logs.problem(file.line(1), "the timestamps have no time zone", still);
    }
    let count = dead.iter().filter(|dead| !dead.is_named).count();
    if count > 0 {
        let trouble = format!("jobs ended by the failure of an unnamed node: {count}");
        let still = "each is assigned to a host of the job or to an unnamed host; also request FailedNode from sacct";
        logs.problem(file.whole(), trouble, still);
    }
    for (number, dead) in (1..).zip(dead.iter_mut().filter(|dead| dead.hosts.is_empty())) {
        dead.hosts.push(format!("unnamed-{number}"));
    }
    logs.outages.extend(outages(dead, &jobs));
    logs.jobs.extend(jobs);
}

fn job(row: &SacctRow) -> Result<Option<(LoggedJob, LogTime)>, String> {
    let id = ["jobid", "jobidraw"].iter().map(|name| row.get(name)).find(|id| !id.is_empty());
    // Job steps (`17.batch`, `17.0`) repeat fields of their job.
    let Some(id) = id.filter(|id| !id.contains('.')) else { return Ok(None) };
    let [start, end] = ["start", "end"]
        .map(|column| time(row.get(column)).map_err(|text| format!("`{text}` is not a time")));
    let Some(start) = start? else { return Ok(None) };
    let end = end?.map(|end| end.seconds);
    if let Some(end) = end.filter(|end| *end < start.seconds) {
        return Err(format!("the end is {} s before the start", start.seconds - end));
    }
    let hosts = expand_hosts(hosts_of(row.get("nodelist")))?;
    let tres = [row.get("alloctres"), row.get("reqtres")];
    let job = LoggedJob {
        id: id.to_owned(),
        name: Some(row.get("jobname").to_owned()).filter(|name| !name.is_empty()),
        gpus: tres.iter().find_map(|tres| gpus(tres)).or(row.number("gpus")).unwrap_or(0),
        nodes: row.number("nnodes").unwrap_or(hosts.len() as u64),
        hosts,
        start: start.seconds,
        end,
        place: row.place.clone(),
    };
    Ok(Some((job, start)))
}

/// Removes suffixes, as in `CANCELLED by 1000`.
fn state(row: &SacctRow) -> &str {
    row.get("state").split_whitespace().next().unwrap_or_default()
}

fn dead_hosts(row: &SacctRow, job: &LoggedJob) -> Option<DeadHosts> {
    let end = job.end.filter(|_| state(row) == "NODE_FAIL")?;
    let at = time(row.get("failed")).ok().flatten().map_or(end, |time| time.seconds);
    let failed = expand_hosts(hosts_of(row.get("failednode"))).unwrap_or_default();
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
