// SPDX-License-Identifier: Apache-2.0
//! The facts that all kinds of logs share. `None` means unknown.

use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::mentions::Fact;
use super::problem::{LogPlace, LogProblem};

#[derive(Clone, Copy, Debug)]
pub struct LogFile<'f> {
    pub name: &'f str,
    pub bytes: &'f [u8],
}

impl LogFile<'_> {
    pub(crate) fn line(&self, line: usize) -> LogPlace {
        LogPlace { file: self.name.to_owned(), line: Some(line) }
    }

    pub(crate) fn whole(&self) -> LogPlace {
        LogPlace { file: self.name.to_owned(), line: None }
    }

    pub(crate) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.bytes)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRecord {
    pub switches: Vec<String>,
    pub domain: Option<String>,
    pub gpus: Option<u32>,
    pub product: Option<String>,
    /// First mention in a topology. `None` for hosts that occur only in job or fault logs.
    pub place: Option<LogPlace>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostShape {
    pub gpus: u32,
    pub product: Option<String>,
    pub bits_per_second: Option<u64>,
    pub domain_links: Option<u32>,
    pub place: LogPlace,
}

/// Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedJob {
    pub id: String,
    pub name: Option<String>,
    pub gpus: u64,
    pub nodes: u64,
    pub hosts: Vec<String>,
    pub start: i64,
    pub end: Option<i64>,
    pub place: LogPlace,
}

/// Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOutage {
    pub host: String,
    pub start: i64,
    pub end: Option<i64>,
    pub class: String,
    pub description: String,
    pub place: LogPlace,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingProfile {
    pub place: LogPlace,
    pub files: Vec<String>,
    pub world: Option<u32>,
    pub ranks_per_host: Option<u32>,
    pub accelerators: Option<u32>,
    pub product: Option<String>,
    /// Median step in seconds; `None` without marked steps.
    pub step_seconds: Option<f64>,
    pub step_rule: Option<&'static str>,
    /// Samples per step.
    pub batch: Option<u64>,
    /// Tokens per sample.
    pub sequence: Option<u64>,
    pub groups: BTreeMap<String, u32>,
    /// Bytes in a rank's buffers by group size, per step or, without marked steps, per file.
    pub exchanged: BTreeMap<u32, u64>,
    /// Highest bus bandwidth of a collective in bytes per second, by group size.
    pub bandwidth: BTreeMap<u32, f64>,
}

impl TrainingProfile {
    pub(crate) fn new(place: LogPlace) -> Self {
        Self { place, ..Self::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ReadLog {
    pub file: String,
    pub kind: &'static str,
}

#[derive(Clone, Debug, Default)]
pub struct Logs {
    pub read: Vec<ReadLog>,
    pub hosts: BTreeMap<String, HostRecord>,
    pub shapes: Vec<HostShape>,
    pub jobs: Vec<LoggedJob>,
    pub outages: Vec<HostOutage>,
    pub profiles: Vec<TrainingProfile>,
    pub problems: Vec<LogProblem>,
    /// Where a fact is mentioned, even if no reader understands its form.
    pub(crate) mentions: BTreeMap<Fact, String>,
}

impl Logs {
    pub fn say_nothing(&self) -> bool {
        self.hosts.is_empty()
            && self.shapes.is_empty()
            && self.jobs.is_empty()
            && self.outages.is_empty()
            && self.profiles.is_empty()
    }

    pub(crate) fn lacks(&self, fact: Fact, absent: &str) -> String {
        match self.mentions.get(&fact) {
            Some(place) => format!("not understood: {place}"),
            None => absent.to_owned(),
        }
    }

    pub(crate) fn problem(
        &mut self,
        place: LogPlace,
        trouble: impl Into<String>,
        still: impl Into<String>,
    ) {
        self.problems.push(LogProblem { place, trouble: trouble.into(), still: still.into() });
    }

    pub fn topology(&self) -> Option<&str> {
        let placed =
            self.hosts.values().find(|host| !host.switches.is_empty() || host.domain.is_some());
        placed.and_then(|host| host.place.as_ref()).map(|place| &*place.file)
    }

    pub(crate) fn host(&mut self, name: &str, found: HostRecord) {
        let Some(host) = self.hosts.get_mut(name) else {
            self.hosts.insert(name.to_owned(), found);
            return;
        };
        match (host.switches.first(), found.switches.first(), found.place) {
            (Some(first), Some(second), Some(place)) if first != second => {
                let trouble = format!("host {name} is attached to both {first} and {second}");
                let still = format!("{first} is used");
                self.problems.push(LogProblem { place, trouble, still });
            }
            (None, Some(_), place) => {
                host.switches = found.switches;
                host.place = place;
            }
            _ => {}
        }
        host.domain = host.domain.take().or(found.domain);
        host.gpus = host.gpus.or(found.gpus);
        host.product = host.product.take().or(found.product);
    }

    pub(crate) fn named_hosts(&self) -> BTreeSet<&str> {
        let of_jobs = self.jobs.iter().flat_map(|job| job.hosts.iter());
        of_jobs.chain(self.outages.iter().map(|outage| &outage.host)).map(String::as_str).collect()
    }
}

pub(crate) fn most_common<T: Copy + Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(value, count)| (*count, *value)).map(|(value, _)| value)
}

#[derive(Clone, Debug)]
pub(crate) struct HostChange {
    pub(crate) host: String,
    pub(crate) at: i64,
    /// Class of the failed part, which is also the class of its recovery.
    pub(crate) class: String,
    /// Names of the failed part, such as a GPU's index and UUID. Empty for the whole host, whose
    /// recovery ends the faults of all parts.
    pub(crate) part: Vec<String>,
    pub(crate) is_back: bool,
    pub(crate) description: String,
    pub(crate) place: LogPlace,
}

fn overlap(part: &[String], other: &[String]) -> bool {
    part == other || part.iter().any(|name| other.contains(name))
}

/// Index of an open outage, and the names of each failed part.
type OpenOutage = (usize, Vec<Vec<String>>);

/// Accepts observations in any order. A host is out of service while any part is; a fault observed
/// again before its end is the same fault.
pub(crate) fn outages(mut changes: Vec<HostChange>) -> Vec<HostOutage> {
    changes.sort_by_key(|change| (change.at, change.is_back));
    let mut open: BTreeMap<(String, String), OpenOutage> = BTreeMap::new();
    let mut found: Vec<HostOutage> = Vec::new();
    for change in changes {
        let HostChange { host, at, class, part, is_back, description, place } = change;
        let key = (host.clone(), class.clone());
        match open.entry(key) {
            Entry::Occupied(mut occupied) if is_back => {
                occupied.get_mut().1.retain(|other| !part.is_empty() && !overlap(&part, other));
                if occupied.get().1.is_empty() {
                    found[occupied.remove().0].end = Some(at);
                }
            }
            Entry::Occupied(mut occupied) => {
                if !occupied.get().1.iter().any(|other| overlap(&part, other)) {
                    occupied.get_mut().1.push(part);
                }
            }
            Entry::Vacant(vacant) if !is_back => {
                vacant.insert((found.len(), vec![part]));
                found.push(HostOutage { host, start: at, end: None, class, description, place });
            }
            Entry::Vacant(_) => {}
        }
    }
    found
}
