// SPDX-License-Identifier: Apache-2.0
//! What in logs cannot be used or does not fit together: where, what, and what can still be said.

use std::fmt;

use serde::Serialize;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LogPlace {
    /// The file, as the user named it.
    pub file: String,
    /// The line, from 1. `None` if the file as a whole is meant.
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

/// Something that cannot be used, or does not fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogProblem {
    /// Where.
    pub place: LogPlace,
    /// What.
    pub trouble: LogTrouble,
}

impl fmt::Display for LogProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}; {}", self.place, self.trouble, self.trouble.still())
    }
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogTrouble {
    /// None of the kinds that are read.
    #[error("not recognised as any of: {known}")]
    Unrecognised {
        /// The kinds.
        known: String,
    },
    /// Packed.
    #[error("compressed with gzip")]
    Compressed,
    /// The file, or a record of it, has another form.
    #[error("{0}")]
    Malformed(String),
    /// The file as a whole has another form.
    #[error("{0}")]
    Unreadable(String),
    /// Hosts that are joined with each other, and not by a switch.
    #[error("{count} of its edges join hosts with each other")]
    HostLinks {
        /// How many edges.
        count: usize,
    },
    /// Hosts of two files with other numbers of GPUs.
    #[error("its host has {gpus} GPUs, and hosts of {other} have {others}")]
    OtherShape {
        /// Of this file.
        gpus: u32,
        /// The other file.
        other: String,
        /// Of the other file.
        others: u32,
    },
    /// A column that every record needs.
    #[error("no column `{column}`")]
    NoColumn {
        /// Its name.
        column: &'static str,
        /// How it is asked for.
        help: &'static str,
    },
    /// A time in no form that is known.
    #[error("`{0}` is no time")]
    NoTime(String),
    /// A record that ends before it begins.
    #[error("it ends {seconds} s before it begins")]
    EndsFirst {
        /// By how much.
        seconds: i64,
    },
    /// A host with two places in the topology.
    #[error("host {host} is below {first} and below {second}")]
    TwoPlaces {
        /// The host.
        host: String,
        /// The switch it has.
        first: String,
        /// The other one.
        second: String,
    },
    /// A switch that another names and no line defines.
    #[error("switch {0} is named and has no line of its own")]
    NoSwitch(String),
    /// No host of a file is in the topology.
    #[error("none of its {count} hosts ({first}, …) is in {topology}: logs of different clusters")]
    OtherCluster {
        /// Hosts of the file.
        count: usize,
        /// One of them.
        first: String,
        /// The file of the topology.
        topology: String,
    },
    /// A host that the topology does not have.
    #[error("host {host} is not in {topology}")]
    UnknownHost {
        /// The host.
        host: String,
        /// The file of the topology.
        topology: String,
    },
    /// Two files see the same faults at different times.
    #[error(
        "its faults are {minutes} min {direction} those of {other} on the same hosts: the clocks differ"
    )]
    Clocks {
        /// By how much, in the middle.
        minutes: i64,
        /// `after` or `before`.
        direction: &'static str,
        /// The other file.
        other: String,
    },
    /// Two files of different times.
    #[error("it is of {period}, and {other} of {others}: they do not overlap")]
    Periods {
        /// From and to.
        period: String,
        /// The other file.
        other: String,
        /// Its from and to.
        others: String,
    },
    /// Times without a zone.
    #[error("its times have no zone")]
    NoZone,
    /// A job that ran for longer than faults were logged.
    #[error("job {job} ran for {days:.1} days, and faults are logged for {covered:.1}", days = *hours as f64 / 24.0, covered = *covered_hours as f64 / 24.0)]
    LongJob {
        /// The job.
        job: String,
        /// How long it ran.
        hours: i64,
        /// How long faults were logged.
        covered_hours: i64,
    },
    /// A job of more GPUs than the cluster has.
    #[error("job {job} has {gpus} GPUs, and the topology {total}")]
    LargeJob {
        /// The job.
        job: String,
        /// Its GPUs.
        gpus: u64,
        /// Those of the cluster.
        total: u64,
    },
    /// Failed jobs whose host is not named.
    #[error("jobs that a dead node ended, without its name: {count}")]
    NamelessFault {
        /// How many.
        count: usize,
    },
    /// A collective that did not end.
    #[error("{name} number {number} of a group of {ranks} ranks did not end")]
    Hang {
        /// Its name.
        name: String,
        /// Its number in the group.
        number: u64,
        /// Members of the group.
        ranks: usize,
    },
}

impl LogTrouble {
    /// What can still be said, or what to do.
    #[must_use]
    pub fn still(&self) -> String {
        match self {
            Self::Unrecognised { .. } => "it is left out".into(),
            Self::Compressed => "it is left out: unpack it with gunzip".into(),
            Self::Unreadable(_) => "it is left out".into(),
            Self::HostLinks { .. } => {
                "they are not read: which hosts share a fast domain is assumed".into()
            }
            Self::OtherShape { others, .. } => format!("{others} is taken"),
            Self::Malformed(_) | Self::NoTime(_) | Self::EndsFirst { .. } => {
                "this record is left out, the others count".into()
            }
            Self::NoColumn { help, .. } => format!("it is left out: {help}"),
            Self::TwoPlaces { first, .. } => format!("{first} is taken"),
            Self::NoSwitch(_) => "what is below it counts as below the switch that names it".into(),
            Self::OtherCluster { .. } => {
                "how often hosts fail, and for how long, is still taken from it".into()
            }
            Self::UnknownHost { .. } => {
                "its faults are left out; add it to the topology if it is of this cluster".into()
            }
            Self::Clocks { .. } => {
                "lengths of outages hold, and faults that both saw count twice: keep one of the files, or \
                 set the times of one right"
                    .into()
            }
            Self::Periods { .. } => {
                "the fault trace is made of those with most faults; what a job of the others lost to which fault cannot be said".into()
            }
            Self::NoZone => "they are taken as UTC, which does not change lengths".into(),
            Self::LongJob { .. } => "the rate of faults is taken from the time that is logged".into(),
            Self::LargeJob { .. } => "the job is drafted with what there is".into(),
            Self::NamelessFault { .. } => {
                "a host of the job, or one without a name, is taken for each; ask sacct for FailedNode, too".into()
            }
            Self::Hang { .. } => "sizes and groups are still taken from it".into(),
        }
    }
}
