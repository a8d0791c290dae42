// SPDX-License-Identifier: Apache-2.0
//! Describes unusable or inconsistent parts of logs by place, problem and consequence.

use std::fmt;

use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LogPlace {
    pub file: String,
    /// Line number from 1; `None` for the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

impl fmt::Display for LogPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(out, "{}:{line}", self.file),
            None => out.write_str(&self.file),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogProblem {
    pub place: LogPlace,
    pub trouble: LogTrouble,
}

impl fmt::Display for LogProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}; {}", self.place, self.trouble, self.trouble.still())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogTrouble {
    #[error("not recognised as any of: {known}")]
    Unrecognised { known: String },
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    Unreadable(String),
    #[error("{count} edges connect hosts directly")]
    HostLinks { count: usize },
    #[error("the host has {gpus} GPUs, but hosts in {other} have {others}")]
    OtherShape { gpus: u32, other: String, others: u32 },
    #[error("no column `{column}`")]
    NoColumn { column: &'static str, help: &'static str },
    #[error("`{0}` is not a time")]
    NoTime(String),
    #[error("the end is {seconds} s before the start")]
    EndsFirst { seconds: i64 },
    #[error("host {host} is attached to both {first} and {second}")]
    TwoPlaces { host: String, first: String, second: String },
    #[error("switch {0} is referenced but not defined")]
    NoSwitch(String),
    #[error("none of the {count} hosts ({first}, …) is in {topology}: logs of different clusters")]
    OtherCluster { count: usize, first: String, topology: String },
    #[error("host {host} is not in {topology}")]
    UnknownHost { host: String, topology: String },
    #[error(
        "faults are {minutes} min {direction} those of {other} on the same hosts: the clocks differ"
    )]
    Clocks { minutes: i64, direction: &'static str, other: String },
    #[error("the period is {period}, but {other} covers {others}: they do not overlap")]
    Periods { period: String, other: String, others: String },
    #[error(
        "seen {count} times, including {between} times between the first and the last occurrence"
    )]
    Merged { count: u64, between: u64 },
    #[error("{found} fields for {columns} columns, and no JobName that could contain a `|`")]
    Fields { found: usize, columns: usize },
    #[error("the timestamps have no time zone")]
    NoZone,
    #[error("job {job} ran for {days:.1} days, but faults are logged for only {covered:.1}", days = *hours as f64 / 24.0, covered = *covered_hours as f64 / 24.0)]
    LongJob { job: String, hours: i64, covered_hours: i64 },
    #[error("job {job} uses {gpus} GPUs, but the topology contains only {total}")]
    LargeJob { job: String, gpus: u64, total: u64 },
    #[error("jobs ended by the failure of an unnamed node: {count}")]
    NamelessFault { count: usize },
    #[error("{name} number {number} in a group of {ranks} ranks did not complete")]
    Hang { name: String, number: u64, ranks: usize },
}

impl LogTrouble {
    pub fn still(&self) -> String {
        let still = match self {
            Self::OtherShape { others, .. } => return format!("{others} is used"),
            Self::NoColumn { help, .. } => return format!("the file is skipped: {help}"),
            Self::TwoPlaces { first, .. } => return format!("{first} is used"),
            Self::Unrecognised { .. } | Self::Unreadable(_) => "the file is skipped",
            Self::HostLinks { .. } => {
                "these edges are ignored, and high-bandwidth domains are assumed"
            }
            Self::Malformed(_) | Self::Fields { .. } | Self::NoTime(_) | Self::EndsFirst { .. } => {
                "only this record is skipped"
            }
            Self::Merged { .. } => "the others are omitted, because their times are not recorded",
            Self::NoSwitch(_) => "everything below it is assigned to the switch that references it",
            Self::OtherCluster { .. } => "fault rates and durations are still used",
            Self::UnknownHost { .. } => {
                "its faults are omitted; if it belongs to this cluster, add it to the topology"
            }
            Self::Clocks { .. } => {
                "outage durations are correct, but faults in both files are counted twice: remove one of the files, or correct its times"
            }
            Self::Periods { .. } => {
                "the fault trace uses the files with the most faults, so job losses in the other files cannot be attributed to faults"
            }
            Self::NoZone => "UTC is assumed, which does not affect durations",
            Self::LongJob { .. } => "the fault rate refers to the logged time",
            Self::LargeJob { .. } => "the drafted job uses the existing GPUs",
            Self::NamelessFault { .. } => {
                "each is assigned to a host of the job or to an unnamed host; also request FailedNode from sacct"
            }
            Self::Hang { .. } => "sizes and groups are still used",
        };
        still.to_owned()
    }
}
