// SPDX-License-Identifier: Apache-2.0
//! Profiles of PyTorch (Kineto), one file a rank, as a recorded step.
//!
//! Kernels, copies and sets on a device are operations, in the order of their streams; in a profile without a device, the
//! outermost operators of each thread of the host, and gloo's collectives. A collective's kind, sizes and members stand in its
//! own arguments, or in those of the `record_param_comms` with the same `External id`. Collectives of several ranks are one
//! by their members and their `Seq`, or by their order where the file has none. What waits for what: the part `order`.
//! Clocks of ranks are never compared.

mod communication;
mod document;
mod order;

use std::collections::{BTreeMap, BTreeSet};

use lightloom_units::{Bytes, Picoseconds};

use communication::{Communication, by_external_id};
use document::{Category, Document, Event};
use order::{Before, ProfiledOperation, order};

use super::graph::{Task, TaskGraph, TaskId, TaskWork};
use super::recorded::{Recorded, RecordedError};

/// A file of one rank.
#[derive(Clone, Copy, Debug)]
pub struct RankProfile<'f> {
    /// As messages name it.
    pub name: &'f str,
    /// Its JSON.
    pub text: &'f [u8],
}

/// Why files cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum KinetoError {
    /// What is wrong with one file.
    #[error("{file}: {error}")]
    File {
        /// Which.
        file: String,
        /// What.
        error: RecordedError,
    },
    /// It does not say whose it is.
    #[error(
        "{file}: no `distributedInfo.rank`: the files of a job of several ranks need it (PyTorch 2.0 and later write it)"
    )]
    NoRank {
        /// Which.
        file: String,
    },
    /// Two files of one rank.
    #[error("{file}: rank {rank} has a file before this one")]
    Twice {
        /// Which.
        file: String,
        /// The rank.
        rank: u32,
    },
    /// Ranks saw different sizes.
    #[error(
        "{file}: traceEvents[{event}]: rank {rank} has {bytes} B in collective {nth} of its group, another rank {others} B"
    )]
    Sizes {
        /// Which file.
        file: String,
        /// Which event.
        event: usize,
        /// Whose.
        rank: u32,
        /// Its size.
        bytes: u64,
        /// The others'.
        others: u64,
        /// Its number in the group.
        nth: u64,
    },
    /// Nothing that ran.
    #[error(
        "{file}: no kernels and no operators of the CPU: the file has {found}; record with ProfilerActivity.CUDA or .CPU"
    )]
    Nothing {
        /// Which file.
        file: String,
        /// What it has.
        found: String,
    },
    /// A collective that ranks with a file do not have.
    #[error(
        "{kind} {nth} of ranks {group:?}: ranks {lacking:?} have a file and no such collective; record the same steps on all \
         ranks, so that the collectives of a group have the same `Seq` or number"
    )]
    Partial {
        /// Its kind.
        kind: &'static str,
        /// Its `Seq`, or its number in the group.
        nth: u64,
        /// Its members.
        group: Vec<u32>,
        /// Those that lack it.
        lacking: Vec<u32>,
    },
}

/// A step and what a reader should know of it.
#[derive(Clone, Debug)]
pub struct ProfiledStep {
    /// The step.
    pub recorded: Recorded,
    /// Ranks that other ranks' groups name and that have no file.
    pub missing: Vec<u32>,
    /// Kernels of NCCL that are taken as computing, because nothing says what they exchange.
    pub unknown: usize,
    /// Collectives.
    pub collectives: usize,
}

/// Whether a JSON text is of Kineto: its events have categories of its own.
#[must_use]
pub fn is_kineto(text: &[u8]) -> bool {
    let head = &text[..text.len().min(1 << 16)];
    let head = String::from_utf8_lossy(head);
    ["\"deviceProperties\"", "\"distributedInfo\"", "\"schemaVersion\""]
        .iter()
        .any(|part| head.contains(part))
}

/// Reads the files of a job.
///
/// # Errors
/// Files that are no profile, or of no rank; collectives whose sizes differ: file and event.
pub fn read(files: &[RankProfile<'_>]) -> Result<ProfiledStep, KinetoError> {
    let mut joined = Joined::default();
    for file in files {
        let document: Document = serde_json::from_slice(file.text).map_err(|error| {
            let (line, column, reason) = (error.line(), error.column(), error.to_string());
            let error = RecordedError::Json { line, column, reason };
            KinetoError::File { file: file.name.to_owned(), error }
        })?;
        let rank = document.info.as_ref().and_then(|info| info.rank);
        let rank = match (rank, files.len()) {
            (Some(rank), _) => rank,
            (None, 1) => 0,
            (None, _) => return Err(KinetoError::NoRank { file: file.name.to_owned() }),
        };
        if !joined.ranks.insert(rank) {
            return Err(KinetoError::Twice { file: file.name.to_owned(), rank });
        }
        joined.file(file.name, rank, &document)?;
    }
    joined.all_take_part()?;
    joined.finish().map_err(|error| {
        let file = files.first().map_or_else(String::new, |file| file.name.to_owned());
        KinetoError::File { file, error }
    })
}

/// Members, kind, and `Seq` or number.
type Numbered = (Vec<u32>, &'static str, u64);

#[derive(Default)]
struct Joined {
    ranks: BTreeSet<u32>,
    tasks: Vec<Task>,
    took: Vec<Picoseconds>,
    /// By members, kind and number: its task, and the ranks that took part.
    known: BTreeMap<Numbered, (usize, BTreeSet<u32>)>,
    recorded: f64,
    unknown: usize,
    collectives: usize,
}

impl Joined {
    fn file(&mut self, name: &str, rank: u32, document: &Document) -> Result<(), KinetoError> {
        let events = &document.events.kept;
        let named = by_external_id(events);
        let world = document.info.as_ref().and_then(|info| info.world_size);
        let operations = operations(events);
        if operations.is_empty() {
            let (file, found) = (name.to_owned(), document.events.found());
            return Err(KinetoError::Nothing { file, found });
        }
        let mut counts = BTreeMap::new();
        let mut task_of: Vec<usize> = Vec::with_capacity(operations.len());
        for (operation, before) in operations.iter().zip(order(&operations, events)) {
            let Before { after, host } = before;
            let tasks = |places: Vec<usize>| -> Vec<usize> {
                places.into_iter().map(|place| task_of[place]).collect()
            };
            let mut after = tasks(after);
            if let Some((held_up, micros)) = host {
                after.push(self.add("host".to_owned(), tasks(held_up), compute(rank, micros)));
            }
            let event = operation.event;
            let is_exchange =
                event.name.starts_with("nccl") || event.category == Category::Exchange;
            let communication =
                is_exchange.then(|| Communication::of(event, &named, world)).flatten();
            let communication = communication.filter(|one| one.group.len() > 1);
            self.unknown += usize::from(is_exchange && communication.is_none());
            task_of.push(match communication {
                Some(one) => self.exchange((name, rank), event, one, &mut counts, after)?,
                None => self.add(event.name.clone(), after, compute(rank, event.dur)),
            });
        }
        let begin = operations.first().map_or(0.0, |operation| operation.event.ts);
        let ends = operations.iter().map(|operation| operation.event.end());
        self.recorded = self.recorded.max(ends.fold(begin, f64::max) - begin);
        Ok(())
    }

    fn add(&mut self, name: String, after: Vec<usize>, work: TaskWork) -> usize {
        let took =
            if let TaskWork::Compute { took, .. } = &work { *took } else { Picoseconds::ZERO };
        let after = after.into_iter().map(|task| TaskId(task as u32)).collect();
        self.tasks.push(Task { name, after, work });
        self.took.push(took);
        self.tasks.len() - 1
    }

    /// The task of the collective that an event takes part in.
    fn exchange(
        &mut self,
        (file, rank): (&str, u32),
        event: &Event,
        communication: Communication,
        counts: &mut BTreeMap<(Vec<u32>, &'static str), u64>,
        after: Vec<usize>,
    ) -> Result<usize, KinetoError> {
        let Communication { kind, group, bytes, seq } = communication;
        let count = counts.entry((group.clone(), kind.name())).or_insert(0);
        *count += 1;
        let nth = seq.unwrap_or(*count);
        let key = (group.clone(), kind.name(), nth);
        let took = Picoseconds((event.dur * 1e6).round() as u64);
        let Some((task, ranks)) = self.known.get_mut(&key) else {
            let work = TaskWork::Across { kind, ranks: group, bytes: Bytes(bytes) };
            let task = self.add(format!("{} {bytes} B", kind.name()), after, work);
            self.took[task] = took;
            self.known.insert(key, (task, BTreeSet::from([rank])));
            self.collectives += 1;
            return Ok(task);
        };
        ranks.insert(rank);
        let task = *task;
        if let TaskWork::Across { bytes: others, .. } = &self.tasks[task].work
            && others.0 != bytes
        {
            let (file, event, others) = (file.to_owned(), event.place, others.0);
            return Err(KinetoError::Sizes { file, event, rank, bytes, others, nth });
        }
        // The others' times include waiting for the last to arrive.
        self.took[task] = self.took[task].min(took);
        self.tasks[task].after.extend(after.into_iter().map(|before| TaskId(before as u32)));
        Ok(task)
    }

    /// Every collective has all of its members that have a file.
    fn all_take_part(&self) -> Result<(), KinetoError> {
        for ((group, kind, nth), (_, ranks)) in &self.known {
            let lacks = |rank: &u32| self.ranks.contains(rank) && !ranks.contains(rank);
            let lacking: Vec<u32> = group.iter().copied().filter(lacks).collect();
            if !lacking.is_empty() {
                let (group, nth) = (group.clone(), *nth);
                return Err(KinetoError::Partial { kind, nth, group, lacking });
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<ProfiledStep, RecordedError> {
        if self.tasks.is_empty() {
            return Err(RecordedError::Empty);
        }
        let mut named: BTreeSet<u32> = self.ranks.clone();
        for (index, task) in self.tasks.iter_mut().enumerate() {
            task.after.sort_unstable();
            task.after.dedup();
            task.after.retain(|before| before.index() != index);
            if let TaskWork::Across { ranks, .. } = &task.work {
                named.extend(ranks);
            }
        }
        let missing = named.difference(&self.ranks).copied().collect();
        let recorded = Recorded {
            ranks: named.last().map_or(0, |last| last + 1),
            graph: TaskGraph::new(self.tasks)?,
            took: self.took,
            recorded: Picoseconds((self.recorded * 1e6).round() as u64),
        };
        let (unknown, collectives) = (self.unknown, self.collectives);
        Ok(ProfiledStep { recorded, missing, unknown, collectives })
    }
}

fn compute(rank: u32, micros: f64) -> TaskWork {
    TaskWork::Compute { rank, took: Picoseconds((micros.max(0.0) * 1e6).round() as u64) }
}

/// What ran on the device; without a device, the outermost operators of every thread and the collectives of the host. In the
/// order of their beginnings.
fn operations(events: &[Event]) -> Vec<ProfiledOperation<'_>> {
    let mut sorted: Vec<&Event> = events.iter().collect();
    sorted.sort_by(|a, b| a.ts.total_cmp(&b.ts).then(b.dur.total_cmp(&a.dur)));
    let of = |category| sorted.iter().copied().filter(move |event| event.category == category);
    let device: Vec<ProfiledOperation<'_>> = of(Category::Device)
        .map(|event| ProfiledOperation { event, stream: event.tid.to_string() })
        .collect();
    if !device.is_empty() {
        return device;
    }
    let is_gloo = of(Category::Exchange).any(|event| event.name.starts_with("gloo:"));
    // A collective of the host runs beside its threads, on the first lane that is free.
    let mut lanes: Vec<f64> = Vec::new();
    let mut ends: BTreeMap<String, f64> = BTreeMap::new();
    let mut found = Vec::new();
    for event in sorted {
        let thread = || format!("{}/{}", event.pid, event.tid);
        match event.category {
            Category::Exchange if event.name.starts_with("gloo:") == is_gloo => {
                let lane = lanes.iter().position(|end| *end <= event.ts).unwrap_or(lanes.len());
                lanes.resize(lanes.len().max(lane + 1), 0.0);
                lanes[lane] = event.end();
                found.push(ProfiledOperation { event, stream: format!("collectives {lane}") });
            }
            // The call that starts a collective spans it, where gloo has no event of its own.
            Category::Operator if is_gloo || !event.name.starts_with("c10d::") => {
                let end = ends.entry(thread()).or_insert(f64::MIN);
                if event.ts >= *end {
                    *end = event.end();
                    found.push(ProfiledOperation { event, stream: thread() });
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(rank: u32, elements: u64, shift: f64) -> String {
        let arguments = format!(
            "{{\"Collective name\": \"allreduce\", \"In msg nelems\": {elements}, \"dtype\": \"Float\", \"Process Group Ranks\": \"[0, 1]\", \"Seq\": 4}}"
        );
        format!(
            "{{\"distributedInfo\": {{\"rank\": {rank}}}, \"traceEvents\": [\
             {{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"tid\": 7, \"ts\": {shift}, \"dur\": 100}},\
             {{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclDevKernel_AllReduce\", \"tid\": 20, \"ts\": {}, \"dur\": 50, \"args\": {arguments}}}]}}",
            shift + 110.0
        )
    }

    fn files<'f>(texts: &'f [String]) -> Vec<RankProfile<'f>> {
        texts.iter().map(|text| RankProfile { name: "rank.json", text: text.as_bytes() }).collect()
    }

    #[test]
    fn ranks_with_clocks_that_disagree_meet_in_their_collectives() {
        let texts = [profile(0, 1000, 0.0), profile(1, 1000, 9e9)];
        let read = read(&files(&texts)).unwrap();
        assert_eq!((read.collectives, read.recorded.ranks, read.missing.len()), (1, 2, 0));
        let tasks = read.recorded.graph.tasks();
        let exchange =
            tasks.iter().find(|task| matches!(task.work, TaskWork::Across { .. })).unwrap();
        // Each rank's device stood idle for 10 us before it.
        assert_eq!(exchange.after.len(), 2);
        assert_eq!(read.recorded.recorded, Picoseconds(160_000_000));
    }

    #[test]
    fn a_missing_file_is_named_and_sizes_that_differ_have_their_event() {
        let alone = [profile(0, 1000, 0.0)];
        assert_eq!(read(&files(&alone)).unwrap().missing, [1]);
        let texts = [profile(0, 1000, 0.0), profile(1, 999, 0.0)];
        let error = read(&files(&texts)).unwrap_err().to_string();
        assert!(error.contains("rank.json: traceEvents[1]: rank 1 has 3996 B"), "{error}");
        let twice = [profile(0, 1000, 0.0), profile(0, 1000, 0.0)];
        let error = read(&files(&twice)).unwrap_err().to_string();
        assert!(error.contains("rank 0 has a file before"), "{error}");
    }
}
