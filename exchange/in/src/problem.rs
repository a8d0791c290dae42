// SPDX-License-Identifier: Apache-2.0
//! Parts of logs that are unusable or inconsistent: location, problem and consequence.

use std::fmt;

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LogPlace {
    pub file: String,
    /// Line number from 1, or `None` for the whole file.
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
    #[error("compressed with gzip")]
    Compressed,
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    Unreadable(String),
    #[error("{count} of its edges join hosts directly")]
    HostLinks { count: usize },
    #[error("its host has {gpus} GPUs, but hosts in {other} have {others}")]
    OtherShape { gpus: u32, other: String, others: u32 },
    #[error("no column `{column}`")]
    NoColumn { column: &'static str, help: &'static str },
    #[error("`{0}` is not a time")]
    NoTime(String),
    #[error("it ends {seconds} s before it begins")]
    EndsFirst { seconds: i64 },
    #[error("host {host} is below {first} and below {second}")]
    TwoPlaces { host: String, first: String, second: String },
    #[error("switch {0} is referenced but not defined")]
    NoSwitch(String),
    #[error("none of its {count} hosts ({first}, …) is in {topology}: logs of different clusters")]
    OtherCluster { count: usize, first: String, topology: String },
    #[error("host {host} is not in {topology}")]
    UnknownHost { host: String, topology: String },
    #[error(
        "its faults are {minutes} min {direction} those of {other} on the same hosts: the clocks differ"
    )]
    Clocks {
        minutes: i64,
        /// `after` or `before`.
        direction: &'static str,
        other: String,
    },
    #[error("it covers {period}, but {other} covers {others}: they do not overlap")]
    Periods { period: String, other: String, others: String },
    #[error("seen {count} times, {between} of them between its first and its last time")]
    Merged { count: u64, between: u64 },
    #[error("{found} fields for {columns} columns, and no JobName that could hold a `|`")]
    Fields { found: usize, columns: usize },
    #[error("its times have no time zone")]
    NoZone,
    #[error("job {job} ran for {days:.1} days, but faults are logged for only {covered:.1}", days = *hours as f64 / 24.0, covered = *covered_hours as f64 / 24.0)]
    LongJob { job: String, hours: i64, covered_hours: i64 },
    #[error("job {job} has {gpus} GPUs, but the topology has only {total}")]
    LargeJob { job: String, gpus: u64, total: u64 },
    #[error("jobs that an unnamed failed node ended: {count}")]
    NamelessFault { count: usize },
    #[error("{name} number {number} of a group of {ranks} ranks did not end")]
    Hang { name: String, number: u64, ranks: usize },
}

impl LogTrouble {
    /// Returns the remaining usable information, or what to do.
    #[must_use]
    pub fn still(&self) -> String {
        match self {
            Self::Unrecognised { .. } => "it is left out".into(),
            Self::Compressed => "it is left out: unpack it with gunzip".into(),
            Self::Unreadable(_) => "it is left out".into(),
            Self::HostLinks { .. } => {
                "they are not read: which hosts share a fast domain is assumed".into()
            }
            Self::OtherShape { others, .. } => format!("{others} is used"),
            Self::Malformed(_)
            | Self::Fields { .. }
            | Self::NoTime(_)
            | Self::EndsFirst { .. } => {
                "this record is left out; the others are used".into()
            }
            Self::Merged { .. } => "those in between are left out, because their times are not recorded".into(),
            Self::NoColumn { help, .. } => format!("it is left out: {help}"),
            Self::TwoPlaces { first, .. } => format!("{first} is used"),
            Self::NoSwitch(_) => "everything below it is assigned to the switch that references it".into(),
            Self::OtherCluster { .. } => {
                "how often hosts fail, and for how long, is still read from it".into()
            }
            Self::UnknownHost { .. } => {
                "its faults are left out; add it to the topology if it belongs to this cluster".into()
            }
            Self::Clocks { .. } => {
                "the durations of outages stay correct, but faults that both files record count twice: keep one of the files, or correct the times in one"
                    .into()
            }
            Self::Periods { .. } => {
                "the fault trace uses the files with the most faults; the losses of jobs in the other files cannot be attributed to faults".into()
            }
            Self::NoZone => "they are treated as UTC, which does not change durations".into(),
            Self::LongJob { .. } => "the fault rate is computed over the logged time".into(),
            Self::LargeJob { .. } => "the job is drafted with the GPUs that exist".into(),
            Self::NamelessFault { .. } => {
                "each is assigned to a host of the job or to an unnamed host; also request FailedNode from sacct".into()
            }
            Self::Hang { .. } => "sizes and groups are still read from it".into(),
        }
    }
}
