// SPDX-License-Identifier: Apache-2.0
//! What is the same in all kinds of logs.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::problem::{LogPlace, LogProblem, LogTrouble};

/// A file of an operator.
#[derive(Clone, Copy, Debug)]
pub struct LogFile<'f> {
    /// As messages name it.
    pub name: &'f str,
    /// What is in it.
    pub bytes: &'f [u8],
}

impl LogFile<'_> {
    /// A line of it, from 1.
    pub(crate) fn line(&self, line: usize) -> LogPlace {
        LogPlace { file: self.name.to_owned(), line: Some(line) }
    }

    /// All of it.
    pub(crate) fn whole(&self) -> LogPlace {
        LogPlace { file: self.name.to_owned(), line: None }
    }

    /// Its beginning as text, for kinds to be recognised by.
    pub(crate) fn head(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..self.bytes.len().min(1 << 16)]).into_owned()
    }
}

/// A host of the topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRecord {
    /// The switches above it, the nearest first.
    pub switches: Vec<String>,
    /// What its accelerators share a fast domain in. `None` if no log says.
    pub domain: Option<String>,
    /// Its accelerators. `None` if no log says.
    pub gpus: Option<u32>,
    /// What they are called. `None` if no log says.
    pub product: Option<String>,
    /// Where it was first named. `None` for a host that only jobs or faults name.
    pub place: Option<LogPlace>,
}

/// What a host is like, whichever it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostShape {
    /// Its accelerators.
    pub gpus: u32,
    /// What they are called. `None` if the file does not say.
    pub product: Option<String>,
    /// The rate of an interface. `None` if the file does not say, or has several.
    pub bits_per_second: Option<u64>,
    /// The file.
    pub place: LogPlace,
}

/// A job that ran. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedJob {
    /// Its number or name in the log.
    pub id: String,
    /// What its owner calls it. `None` if the log does not say.
    pub name: Option<String>,
    /// Its accelerators.
    pub gpus: u64,
    /// Its hosts.
    pub nodes: u64,
    /// Their names, where the log has them.
    pub hosts: Vec<String>,
    /// When it began.
    pub start: i64,
    /// When it ended. `None` if it still ran.
    pub end: Option<i64>,
    /// Whether an error ended it.
    pub failed: bool,
    /// Where it is.
    pub place: LogPlace,
}

/// A host out of service. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOutage {
    /// The host.
    pub host: String,
    /// From when.
    pub start: i64,
    /// To when. `None` if no log says.
    pub end: Option<i64>,
    /// The part that failed, as the log calls it.
    pub class: String,
    /// What was seen.
    pub description: String,
    /// Where it begins.
    pub place: LogPlace,
}

/// What a profile of a training step shows, or a dump of its collectives.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingProfile {
    /// The file.
    pub place: LogPlace,
    /// The files of all ranks that have one, in the order of their names.
    pub files: Vec<String>,
    /// Ranks of the job. `None` if the file does not say.
    pub world: Option<u32>,
    /// Ranks on one host. `None` if the file does not say.
    pub ranks_per_host: Option<u32>,
    /// Seconds of one step, in the middle of those recorded. `None` if no step is marked.
    pub step_seconds: Option<f64>,
    /// Process groups by what they are called, with their sizes.
    pub groups: BTreeMap<String, u32>,
    /// Bytes of a rank's buffers in a step (or in all of the file, where none is marked), by ranks of the group.
    pub exchanged: BTreeMap<u32, u64>,
    /// The largest bus bandwidth of a collective, in bytes a second, by ranks of the group.
    pub bandwidth: BTreeMap<u32, f64>,
}

impl TrainingProfile {
    pub(crate) fn new(place: LogPlace) -> Self {
        Self {
            place,
            files: Vec::new(),
            world: None,
            ranks_per_host: None,
            step_seconds: None,
            groups: BTreeMap::new(),
            exchanged: BTreeMap::new(),
            bandwidth: BTreeMap::new(),
        }
    }
}

/// A file and what it was read as.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ReadLog {
    /// The file.
    pub file: String,
    /// The name of its kind.
    pub kind: &'static str,
}

/// What all files say.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    /// Files that were recognised.
    pub read: Vec<ReadLog>,
    /// Hosts, by name.
    pub hosts: BTreeMap<String, HostRecord>,
    /// What hosts are like, in the order of the files.
    pub shapes: Vec<HostShape>,
    /// Jobs, in the order of the files.
    pub jobs: Vec<LoggedJob>,
    /// Outages, by start.
    pub outages: Vec<HostOutage>,
    /// Profiles and dumps.
    pub profiles: Vec<TrainingProfile>,
    /// What cannot be used or does not fit together.
    pub problems: Vec<LogProblem>,
}

impl Logs {
    /// Whether the files said nothing.
    #[must_use]
    pub fn say_nothing(&self) -> bool {
        self.hosts.is_empty()
            && self.shapes.is_empty()
            && self.jobs.is_empty()
            && self.outages.is_empty()
            && self.profiles.is_empty()
    }

    pub(crate) fn problem(&mut self, place: LogPlace, trouble: LogTrouble) {
        self.problems.push(LogProblem { place, trouble });
    }

    /// The file that has the topology, if one has.
    #[must_use]
    pub fn topology(&self) -> Option<&str> {
        let placed =
            self.hosts.values().find(|host| !host.switches.is_empty() || host.domain.is_some());
        placed.and_then(|host| host.place.as_ref()).map(|place| &*place.file)
    }

    /// Notes where a host is; what is known of it stays.
    pub(crate) fn host(&mut self, name: &str, found: HostRecord) {
        let Some(host) = self.hosts.get_mut(name) else {
            self.hosts.insert(name.to_owned(), found);
            return;
        };
        match (host.switches.first(), found.switches.first(), found.place) {
            (Some(first), Some(second), Some(place)) if first != second => {
                let (first, second) = (first.clone(), second.clone());
                let trouble = LogTrouble::TwoPlaces { host: name.to_owned(), first, second };
                self.problems.push(LogProblem { place, trouble });
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

    /// Hosts that jobs and outages name.
    pub(crate) fn named_hosts(&self) -> BTreeSet<&str> {
        let of_jobs = self.jobs.iter().flat_map(|job| job.hosts.iter());
        of_jobs.chain(self.outages.iter().map(|outage| &outage.host)).map(String::as_str).collect()
    }
}

/// A host seen to go or to come back.
#[derive(Clone, Debug)]
pub(crate) struct HostChange {
    pub(crate) host: String,
    pub(crate) at: i64,
    /// What failed; what comes back must be the same.
    pub(crate) class: String,
    pub(crate) is_back: bool,
    pub(crate) description: String,
    pub(crate) place: LogPlace,
}

/// Outages from what was seen of hosts, in any order. A fault that is seen again before it is over is the same one.
pub(crate) fn outages(mut changes: Vec<HostChange>) -> Vec<HostOutage> {
    changes.sort_by_key(|change| (change.at, change.is_back));
    let mut open: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut found: Vec<HostOutage> = Vec::new();
    for change in changes {
        let HostChange { host, at, class, is_back, description, place } = change;
        let key = (host.clone(), class.clone());
        if is_back {
            if let Some(index) = open.remove(&key) {
                found[index].end = Some(at);
            }
        } else if let Entry::Vacant(vacant) = open.entry(key) {
            vacant.insert(found.len());
            found.push(HostOutage { host, start: at, end: None, class, description, place });
        }
    }
    found
}
