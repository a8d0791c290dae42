// SPDX-License-Identifier: Apache-2.0
//! Reads PyTorch profiles (Kineto), one file per rank, as a recorded step.
//!
//! Operations are the kernels, copies and sets on a device, in stream order. In a profile without a
//! device, they are the outermost operators of each host thread and gloo's collectives. The kind,
//! sizes and members of a collective are in its own arguments, or in those of the
//! `record_param_comms` event with the same `External id`. Collectives of different ranks match if
//! they have the same members and the same `Seq`, or the same position in order if the file has no
//! `Seq`. The module `order` derives the dependencies. Clocks of different ranks are never
//! compared.

mod communication;
mod document;
mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use lightloom_units::{Bytes, Picoseconds};
use serde::Deserialize;

use communication::{Communication, by_external_id, bytes_of, is_exchange, kind_of};
use document::{Category, Document, Event, Events};
use order::{ProfiledOperation, RankWork, walk};

use super::graph::{MOST_RANKS, Task, TaskGraph, TaskId, TaskWork};
use super::recorded::{Recorded, RecordedError};

#[derive(Clone, Copy, Debug)]
pub struct RankProfile<'f> {
    pub name: &'f str,
    pub text: &'f [u8],
}

#[derive(Debug, thiserror::Error)]
pub enum KinetoError {
    #[error("{file}: {error}")]
    File { file: String, error: RecordedError },
    #[error(
        "{file}: no `distributedInfo.rank`: the files of a job of several ranks need it (PyTorch 2.0 and later write it)"
    )]
    NoRank { file: String },
    #[error("{file}: an earlier file also has rank {rank}")]
    Twice { file: String, rank: u32 },
    #[error(
        "{file}: `distributedInfo` names rank or size {count}: at most {MOST_RANKS} ranks are read"
    )]
    ManyRanks {
        file: String,
        /// The rank, or the size of the job.
        count: u32,
    },
    #[error(
        "{file}: traceEvents[{event}]: rank {rank} has {bytes} B in collective {nth} of the group, another rank {others} B"
    )]
    Sizes { file: String, event: usize, rank: u32, bytes: u64, others: u64, nth: u64 },
    #[error(
        "{file}: no kernels and no operators of the CPU: the file has {found}; record with ProfilerActivity.CUDA or .CPU"
    )]
    Nothing { file: String, found: String },
    #[error(
        "{kind} {nth} of ranks {group:?}: ranks {lacking:?} have a file and no such collective; {cause}"
    )]
    Partial {
        kind: &'static str,
        /// Its `Seq`, or its number in the group.
        nth: u64,
        group: Vec<u32>,
        lacking: Vec<u32>,
        cause: PartialCause,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartialCause {
    #[error("rank {rank} has it with ranks {group:?}: `Process Group Ranks` differ")]
    OtherGroup { rank: u32, group: Vec<u32> },
    #[error(
        "traceEvents[{event}] of rank {rank} is a collective whose size, type or ranks cannot be read: see `In msg nelems`, \
         `Out msg nelems`, `dtype` and `Process Group Ranks`"
    )]
    Unread { rank: u32, event: u32 },
    #[error(
        "record the same steps on all ranks, so that the collectives of a group have the same `Seq` or number"
    )]
    OtherSteps,
}

/// The recorded step and statistics about its profiles.
#[derive(Clone, Debug)]
pub struct ProfiledStep {
    pub recorded: Recorded,
    /// Ranks that are members of a group but have no file.
    pub missing: Vec<u32>,
    /// NCCL kernels without a description of their communication; they count as computing.
    pub unknown: usize,
    pub collectives: usize,
}

/// Returns whether a JSON text is a Kineto profile, judged by keys near its beginning.
#[must_use]
pub fn is_kineto(text: &[u8]) -> bool {
    let head = &text[..text.len().min(1 << 16)];
    let head = String::from_utf8_lossy(head);
    ["\"deviceProperties\"", "\"distributedInfo\"", "\"schemaVersion\""]
        .iter()
        .any(|part| head.contains(part))
}

/// Reads the profiles of a job.
///
/// # Errors
/// If a file is not a profile or lacks its rank, or ranks recorded different sizes of a collective;
/// the error names file and event.
pub fn read(files: &[RankProfile<'_>]) -> Result<ProfiledStep, KinetoError> {
    let mut profiles = Profiles::default();
    for file in files {
        let json = serde_json::Deserializer::from_slice(file.text);
        profiles.add(file.name, json, files.len())?;
    }
    profiles.finish()
}

/// Reads the profiles of a job one at a time and keeps only the event data that a replay needs.
#[derive(Default)]
pub struct Profiles {
    joined: Joined,
    first: Option<String>,
}

impl Profiles {
    /// Reads one of `files` profiles from a stream.
    ///
    /// # Errors
    /// If it is not a profile or lacks its rank, or ranks recorded different sizes of a collective;
    /// the error names file and event.
    pub fn read(&mut self, name: &str, text: impl Read, files: usize) -> Result<(), KinetoError> {
        self.add(name, serde_json::Deserializer::from_reader(text), files)
    }

    fn add<'de>(
        &mut self,
        name: &str,
        mut json: serde_json::Deserializer<impl serde_json::de::Read<'de>>,
        files: usize,
    ) -> Result<(), KinetoError> {
        let document = Document::deserialize(&mut json).map_err(|error| {
            let (line, column, reason) = (error.line(), error.column(), error.to_string());
            let reason = reason.split(" at line ").next().unwrap_or_default().to_owned();
            let error = RecordedError::Json { line, column, reason };
            KinetoError::File { file: name.to_owned(), error }
        })?;
        let rank = document.info.as_ref().and_then(|info| info.rank);
        let rank = match (rank, files) {
            (Some(rank), _) => rank,
            (None, 1) => 0,
            (None, _) => return Err(KinetoError::NoRank { file: name.to_owned() }),
        };
        let world = document.info.as_ref().and_then(|info| info.world_size);
        if let Some(count) = world.max(Some(rank)).filter(|count| *count > MOST_RANKS) {
            return Err(KinetoError::ManyRanks { file: name.to_owned(), count });
        }
        if !self.joined.ranks.insert(rank) {
            return Err(KinetoError::Twice { file: name.to_owned(), rank });
        }
        self.first.get_or_insert_with(|| name.to_owned());
        self.joined.file(name, rank, &document)
    }

    /// Builds the step after all files have been read.
    ///
    /// # Errors
    /// If a rank with a file lacks a collective of one of its groups.
    pub fn finish(self) -> Result<ProfiledStep, KinetoError> {
        self.joined.all_take_part()?;
        let file = self.first.unwrap_or_default();
        self.joined.finish().map_err(|error| KinetoError::File { file, error })
    }
}

type Numbered = (Vec<u32>, &'static str, u64);

#[derive(Default)]
struct Joined {
    ranks: BTreeSet<u32>,
    tasks: Vec<Task>,
    took: Vec<Picoseconds>,
    /// Task of each collective, and the ranks that took part.
    known: BTreeMap<Numbered, (TaskId, BTreeSet<u32>)>,
    recorded: f64,
    unknown: usize,
    /// First collective of each rank that could not be read.
    unread: BTreeMap<u32, u32>,
    collectives: usize,
}

impl Joined {
    fn file(&mut self, name: &str, rank: u32, document: &Document) -> Result<(), KinetoError> {
        let events = &document.events;
        let named = by_external_id(events);
        let world = document.info.as_ref().and_then(|info| info.world_size);
        let operations = operations(events);
        if operations.is_empty() {
            let (file, found) = (name.to_owned(), events.found());
            return Err(KinetoError::Nothing { file, found });
        }
        let mut counts = BTreeMap::new();
        let mut emit = |after: Vec<TaskId>, work: RankWork| {
            let place = match work {
                RankWork::Host(micros) => {
                    return Ok(self.add("host".to_owned(), after, compute(rank, micros)));
                }
                RankWork::Operation(place) => place,
            };
            let operation = &operations[place];
            let (event, called) = (operation.event, events.name(operation.event));
            let is_exchange = is_exchange(events, event);
            let communication = is_exchange
                .then(|| Communication::of((event, called), operation.call, &named, world))
                .flatten()
                .filter(|one| one.group.len() > 1);
            if is_exchange && communication.is_none() {
                self.unknown += 1;
                self.unread.entry(rank).or_insert(event.place);
            }
            match communication {
                Some(one) => self.exchange((name, rank), operation, one, &mut counts, after),
                None => Ok(self.add(called.to_owned(), after, compute(rank, event.dur))),
            }
        };
        walk(&operations, events, &mut emit)?;
        let begin = operations.first().map_or(0.0, |operation| operation.event.ts);
        let ends = operations.iter().map(|operation| operation.end);
        self.recorded = self.recorded.max(ends.fold(begin, f64::max) - begin);
        Ok(())
    }

    fn add(&mut self, name: String, after: Vec<TaskId>, work: TaskWork) -> TaskId {
        let took =
            if let TaskWork::Compute { took, .. } = &work { *took } else { Picoseconds::ZERO };
        self.tasks.push(Task { name, after, work });
        self.took.push(took);
        TaskId(self.tasks.len() as u32 - 1)
    }

    /// Returns the task of the collective that an event belongs to, and creates it for the first
    /// rank.
    fn exchange(
        &mut self,
        (file, rank): (&str, u32),
        operation: &ProfiledOperation<'_>,
        communication: Communication,
        counts: &mut BTreeMap<(Vec<u32>, &'static str), u64>,
        after: Vec<TaskId>,
    ) -> Result<TaskId, KinetoError> {
        let Communication { kind, group, bytes, seq } = communication;
        let count = counts.entry((group.clone(), kind.name())).or_insert(0);
        *count += 1;
        let nth = seq.or(operation.number).unwrap_or(*count);
        let key = (group.clone(), kind.name(), nth);
        let event = operation.event;
        let took = Picoseconds(((operation.end - event.ts) * 1e6).round() as u64);
        let Some((task, ranks)) = self.known.get_mut(&key) else {
            let work = TaskWork::Across { kind, ranks: group, bytes: Bytes(bytes) };
            let task = self.add(format!("{} {bytes} B", kind.name()), after, work);
            self.took[task.index()] = took;
            self.known.insert(key, (task, BTreeSet::from([rank])));
            self.collectives += 1;
            return Ok(task);
        };
        ranks.insert(rank);
        let task = *task;
        if let TaskWork::Across { bytes: others, .. } = &self.tasks[task.index()].work
            && others.0 != bytes
        {
            let (file, event, others) = (file.to_owned(), event.place as usize, others.0);
            return Err(KinetoError::Sizes { file, event, rank, bytes, others, nth });
        }
        // Take the minimum, because the times of ranks that arrive early include waiting for the
        // last one.
        let own = &mut self.took[task.index()];
        *own = (*own).min(took);
        self.tasks[task.index()].after.extend(after);
        Ok(task)
    }

    /// Checks that every collective was recorded by all its members that have a file.
    fn all_take_part(&self) -> Result<(), KinetoError> {
        for ((group, kind, nth), (_, ranks)) in &self.known {
            let lacks = |rank: &u32| self.ranks.contains(rank) && !ranks.contains(rank);
            let lacking: Vec<u32> = group.iter().copied().filter(lacks).collect();
            if !lacking.is_empty() {
                let (group, nth) = (group.clone(), *nth);
                let cause = self.cause((kind, nth), &lacking);
                return Err(KinetoError::Partial { kind, nth, group, lacking, cause });
            }
        }
        Ok(())
    }

    fn cause(&self, (kind, nth): (&str, u64), lacking: &[u32]) -> PartialCause {
        let with_another = |rank: u32| {
            let mut all = self.known.iter();
            let is_it = |((_, other, number), (_, ranks)): &(&Numbered, &(_, BTreeSet<u32>))| {
                (*other, *number) == (kind, nth) && ranks.contains(&rank)
            };
            let ((group, ..), _) = all.find(is_it)?;
            Some(PartialCause::OtherGroup { rank, group: group.clone() })
        };
        let unread = |rank: u32| {
            let event = *self.unread.get(&rank)?;
            Some(PartialCause::Unread { rank, event })
        };
        let mut causes = lacking.iter().map(|rank| unread(*rank).or_else(|| with_another(*rank)));
        causes.find_map(|cause| cause).unwrap_or(PartialCause::OtherSteps)
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

/// Returns the operations on the device in order of their start. Without a device, returns the
/// outermost operators of every host thread and the collectives.
fn operations(events: &Events) -> Vec<ProfiledOperation<'_>> {
    let has = |category| events.kept.iter().any(|event| event.category == category);
    let mut found = if has(Category::Device) { of_device(events) } else { of_host(events) };
    found.sort_by(|a, b| {
        a.event.ts.total_cmp(&b.event.ts).then(b.event.dur.total_cmp(&a.event.dur))
    });
    found
}

fn of_device(events: &Events) -> Vec<ProfiledOperation<'_>> {
    let of = |category| events.kept.iter().filter(move |event| event.category == category);
    let calls: BTreeMap<u32, &Event> =
        of(Category::Runtime).filter_map(|event| Some((event.correlation?, event))).collect();
    let operation = |event| ProfiledOperation {
        event,
        stream: event.thread,
        end: event.end(),
        call: event.correlation.and_then(|id| calls.get(&id).copied()),
        number: None,
    };
    of(Category::Device).map(operation).collect()
}

fn of_host(events: &Events) -> Vec<ProfiledOperation<'_>> {
    let mut sorted: Vec<&Event> = events.kept.iter().collect();
    sorted.sort_by(|a, b| a.ts.total_cmp(&b.ts).then(b.dur.total_cmp(&a.dur)));
    let is_of_gloo = |event: &Event| events.name(event).starts_with("gloo:");
    let is_gloo = sorted.iter().any(|event| is_of_gloo(event));
    let is_call = |event: &&Event| event.category == Category::Call;
    let mut calls: Vec<&Event> = sorted.iter().copied().filter(is_call).collect();
    let numbers: BTreeMap<u32, u64> = calls.iter().map(|call| call.place).zip(1..).collect();
    // Collectives run asynchronously to the host threads, so assign each to the first free lane.
    let mut lanes: Vec<f64> = Vec::new();
    let mut ends: BTreeMap<u32, f64> = BTreeMap::new();
    let mut found: Vec<ProfiledOperation<'_>> = Vec::new();
    for event in sorted {
        match event.category {
            Category::Exchange if is_of_gloo(event) == is_gloo => {
                let kind = kind_of(events.name(event));
                let started = |call: &&Event| {
                    is_gloo && call.ts <= event.ts && kind_of(events.name(call)) == kind
                };
                // Gloo's threads may start collectives in a different order from the calls.
                let bytes = event.args.as_deref().and_then(bytes_of);
                let is_as_long = |call: &&Event| call.args.as_deref().and_then(bytes_of) == bytes;
                let place = calls.iter().position(|call| started(call) && is_as_long(call));
                let place = place.or_else(|| calls.iter().position(started));
                let call = place.map(|place| calls.remove(place));
                let lane = lanes.iter().position(|end| *end <= event.ts).unwrap_or(lanes.len());
                lanes.resize(lanes.len().max(lane + 1), 0.0);
                lanes[lane] = event.end();
                let stream = u32::MAX - lane as u32;
                let number = call.and_then(|call| numbers.get(&call.place).copied());
                found.push(ProfiledOperation { event, stream, end: event.end(), call, number });
            }
            // Without an event of gloo, the call that starts a collective spans it.
            Category::Operator | Category::Call
                if is_gloo || event.category == Category::Operator =>
            {
                let end = ends.entry(event.thread).or_insert(f64::MIN);
                if event.ts >= *end {
                    *end = event.end();
                    let (stream, end) = (event.thread, event.end());
                    let (call, number) = (None, None);
                    found.push(ProfiledOperation { event, stream, end, call, number });
                }
            }
            _ => {}
        }
    }
    lengthen(&mut found);
    found
}

/// Sets the end of collectives that the profile cut off: the end of the longest later pause of the
/// calling thread.
fn lengthen(found: &mut [ProfiledOperation<'_>]) {
    for place in 0..found.len() {
        let (event, call) = (found[place].event, found[place].call);
        let Some(call) = call.filter(|_| event.dur == 0.0) else { continue };
        let own: Vec<&ProfiledOperation<'_>> =
            found.iter().filter(|other| other.stream == call.thread).collect();
        let pauses = own.windows(2).map(|pair| (pair[1].event.ts - pair[0].end, pair[1].event.ts));
        let later = pauses.filter(|(_, end)| *end > event.ts);
        if let Some((_, end)) = later.max_by(|a, b| a.0.total_cmp(&b.0)) {
            found[place].end = end;
        }
    }
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
    fn collectives_align_ranks_with_different_clocks() {
        let texts = [profile(0, 1000, 0.0), profile(1, 1000, 9e9)];
        let read = read(&files(&texts)).unwrap();
        assert_eq!((read.collectives, read.recorded.ranks, read.missing.len()), (1, 2, 0));
        let tasks = read.recorded.graph.tasks();
        let exchange =
            tasks.iter().find(|task| matches!(task.work, TaskWork::Across { .. })).unwrap();
        // Each rank's device was idle for 10 us before it.
        assert_eq!(exchange.after.len(), 2);
        assert_eq!(read.recorded.recorded, Picoseconds(160_000_000));
    }

    #[test]
    fn missing_files_and_different_sizes_are_located() {
        let alone = [profile(0, 1000, 0.0)];
        assert_eq!(read(&files(&alone)).unwrap().missing, [1]);
        let texts = [profile(0, 1000, 0.0), profile(1, 999, 0.0)];
        let error = read(&files(&texts)).unwrap_err().to_string();
        assert!(error.contains("rank.json: traceEvents[1]: rank 1 has 3996 B"), "{error}");
        let twice = [profile(0, 1000, 0.0), profile(0, 1000, 0.0)];
        let error = read(&files(&twice)).unwrap_err().to_string();
        assert!(error.contains("an earlier file also has rank 0"), "{error}");
    }
}
