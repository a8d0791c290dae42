// SPDX-License-Identifier: Apache-2.0
//! Reads PyTorch profiles (Kineto), one file per rank, as a recorded step.
//!
//! Operations are kernels, copies and memsets on a device, in stream order. Without a device, they are the
//! outermost operators of each host thread and gloo's collectives. A collective's kind, sizes and members are
//! in its own arguments, or in the `record_param_comms` event with the same `External id`. Collectives match
//! across ranks by members and `Seq`, or by position if the file has no `Seq`; sends and receives match in
//! order. The module `order` derives the dependencies. Clocks of different ranks are never compared.
//!
//! If `torch.profiler` marked several steps (`ProfilerStep#4`), only operations that were launched in them are read. If the device
//! lags behind the marks, the first step also fills its queue, so the duration of a step is that of the others.

mod communication;
mod document;
mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use lightloom_units::Picoseconds;
use serde::Deserialize;

use communication::{Communication, Described, by_external_id, bytes_of, is_exchange};
use document::{Category, ConfiguredGroup, Document, Event, Events, MarkedSteps};
use order::{ProfiledOperation, RankWork, walk};

use super::exchange::{Operation, Share, pairs};
use super::graph::{MOST_RANKS, Task, TaskGraph, TaskId, TaskWork};
use super::recorded::{Recorded, RecordedError, TimedPart, microseconds};

pub use communication::element_bytes;

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
        "{file}: no `distributedInfo.rank`, which profiles of several ranks require (PyTorch 2.0 and later write it)"
    )]
    NoRank { file: String },
    #[error("{file}: an earlier file also has rank {rank}")]
    Twice { file: String, rank: u32 },
    #[error(
        "{file}: `distributedInfo` has rank or size {count}, but at most {MOST_RANKS} ranks are supported"
    )]
    ManyRanks { file: String, count: u32 },
    #[error(
        "{file}: traceEvents[{event}]: rank {rank} has {bytes} B in collective {nth} of the group, but {other} has {others} B"
    )]
    Sizes {
        file: String,
        event: usize,
        rank: u32,
        bytes: u64,
        other: String,
        others: u64,
        nth: u64,
    },
    #[error(
        "all-to-all {nth} of ranks {group:?}: the ranks send {sent} B, but receive {received} B"
    )]
    Totals { nth: u64, group: Vec<u32>, sent: u64, received: u64 },
    #[error(
        "{file}: no kernels and no CPU operators: the file has {found}; record with ProfilerActivity.CUDA or .CPU"
    )]
    Nothing { file: String, found: String },
    #[error(
        "{kind} {nth} of ranks {group:?}: the files of ranks {lacking:?} lack this collective; \
         {cause}"
    )]
    Partial {
        kind: &'static str,
        nth: u64,
        group: Vec<u32>,
        lacking: Vec<u32>,
        cause: PartialCause,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartialCause {
    #[error("rank {rank} recorded it with ranks {group:?}: `Process Group Ranks` differ")]
    OtherGroup { rank: u32, group: Vec<u32> },
    #[error("rank {rank} recorded {kind} instead")]
    OtherKind { rank: u32, kind: &'static str },
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

#[derive(Clone, Debug)]
pub struct ProfiledStep {
    pub recorded: Recorded,
    /// Group members without a file.
    pub missing: Vec<u32>,
    /// Number of NCCL kernels without a description of their communication, treated as computing.
    pub unknown: usize,
    pub collectives: usize,
}

const SIGNS: [&str; 7] = [
    "\"deviceProperties\"",
    "\"distributedInfo\"",
    "\"schemaVersion\"",
    "\"cuda_runtime\"",
    "\"cpu_op\"",
    "\"gpu_memcpy\"",
    "\"record_param_comms\"",
];

/// Accepts a full JSON text, or its beginning and end.
pub fn is_kineto(text: &[u8]) -> bool {
    const ENDS: usize = 1 << 16;
    let (head, tail) = (&text[..text.len().min(ENDS)], &text[text.len().saturating_sub(ENDS)..]);
    [head, tail].into_iter().any(|part| {
        let part = String::from_utf8_lossy(part);
        SIGNS.iter().any(|sign| part.contains(sign))
    })
}

/// Properties of a job in its profiles, which are known even if they contain no operations.
#[derive(Clone, Debug, Default)]
pub struct ProfiledJob {
    pub world: Option<u32>,
    /// Number of accelerators visible on the host, and the name of the first.
    pub devices: u32,
    pub product: Option<String>,
    /// Sizes of process groups by description or name.
    pub groups: BTreeMap<String, u32>,
    /// Largest number of marked steps in a file, and the longest of the files' median steps.
    pub steps: usize,
    pub step_seconds: Option<f64>,
}

impl ProfiledJob {
    fn note(&mut self, document: &Document) {
        let marks = document.events.kept.iter().filter(|event| event.category == Category::Step);
        let mut seconds: Vec<f64> = marks.map(|mark| mark.dur / 1e6).collect();
        seconds.sort_by(f64::total_cmp);
        let median = seconds.get(seconds.len() / 2).copied();
        self.step_seconds = self.step_seconds.into_iter().chain(median).reduce(f64::max);
        self.steps = self.steps.max(seconds.len());
        self.devices = self.devices.max(document.devices.len() as u32);
        let first = document.devices.first().map(|device| device.name.clone());
        self.product = self.product.take().or(first);
        let Some(info) = &document.info else { return };
        self.world = self.world.or(info.world_size);
        for ConfiguredGroup { name, description, size, .. } in &info.groups {
            let is_described = !description.is_empty() && description != "undefined";
            let name = if is_described { description } else { name };
            self.groups.insert(name.clone(), *size);
        }
    }
}

/// Fails if a file is not a profile or lacks its rank, or ranks recorded different sizes
/// of a collective; the error states file and event.
pub fn read(files: &[RankProfile<'_>]) -> Result<ProfiledStep, KinetoError> {
    let mut profiles = Profiles::default();
    for file in files {
        profiles.read_text(*file, files.len())?;
    }
    profiles.finish()
}

/// Reads profiles one at a time and keeps only the data needed for a replay.
#[derive(Default)]
pub struct Profiles {
    pub job: ProfiledJob,
    joined: Joined,
    first: Option<String>,
}

impl Profiles {
    pub fn read_text(&mut self, file: RankProfile<'_>, files: usize) -> Result<(), KinetoError> {
        self.add(file.name, serde_json::Deserializer::from_slice(file.text), files)
    }

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
        self.job.note(&document);
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

    /// Fails if a rank with a file lacks a collective of one of its groups.
    pub fn finish(self) -> Result<ProfiledStep, KinetoError> {
        self.joined.all_take_part()?;
        let file = self.first.unwrap_or_default();
        self.joined.finish().map_err(|error| KinetoError::File { file, error })
    }
}

type Numbered = (Vec<u32>, &'static str, u64);

struct Meeting {
    task: TaskId,
    place: (usize, u32),
    bytes: u64,
    ranks: BTreeSet<u32>,
    shares: BTreeMap<u32, Share>,
}

#[derive(Default)]
struct Joined {
    ranks: BTreeSet<u32>,
    files: Vec<String>,
    tasks: Vec<Task>,
    took: Vec<Picoseconds>,
    parts: Vec<TimedPart>,
    known: BTreeMap<Numbered, Meeting>,
    recorded: f64,
    /// Number of marked steps, the shortest time from their start to the first operation, and the lowest
    /// [`steady_share`].
    steps: Option<(u32, f64, f64)>,
    unknown: usize,
    unread: BTreeMap<u32, u32>,
}

impl Joined {
    fn file(&mut self, name: &str, rank: u32, document: &Document) -> Result<(), KinetoError> {
        let events = &document.events;
        let (named, info) = (by_external_id(events), document.info.as_ref());
        let described = Described { named, info, rank };
        let steps = events.steps();
        let operations = operations(events, steps);
        let Some(first) = operations.first() else {
            let (file, found) = (name.to_owned(), events.found());
            return Err(KinetoError::Nothing { file, found });
        };
        self.files.push(name.to_owned());
        let mut counts = BTreeMap::new();
        let mut emit = |after: Vec<TaskId>, work: RankWork| {
            let place = match work {
                RankWork::Host(micros) => {
                    let work = compute(rank, micros);
                    return Ok(self.add("host".to_owned(), after, work, TimedPart::Host));
                }
                RankWork::Operation(place) => place,
            };
            let operation = &operations[place];
            let (event, called) = (operation.event, events.name(operation.event));
            let is_exchange = is_exchange(events, event);
            let communication = is_exchange
                .then(|| described.exchange(events, event, operation.call))
                .flatten()
                .filter(|one| one.exchange.members.len() > 1);
            if is_exchange && communication.is_none() {
                self.unknown += 1;
                self.unread.entry(rank).or_insert(event.place);
            }
            let part = match event.category {
                _ if is_exchange => TimedPart::Exchange,
                Category::Copy => TimedPart::Copy,
                _ => TimedPart::Kernel,
            };
            match communication {
                Some(one) => self.exchange(rank, operation, one, &mut counts, after),
                None => Ok(self.add(called.to_owned(), after, compute(rank, event.dur), part)),
            }
        };
        walk(&operations, events, steps, &mut emit)?;
        let begin = first.event.ts;
        let ends = operations.iter().map(|operation| operation.end);
        let end = steps.map_or(begin, |steps| steps.end);
        self.recorded = self.recorded.max(ends.fold(end, f64::max) - begin);
        if let Some(marked) = steps {
            let MarkedSteps { count, begin: marked_begin, .. } = marked;
            let own = (count, (begin - marked_begin).max(0.0), steady_share(marked, &operations));
            let (_, before, steady) = self.steps.unwrap_or(own);
            self.steps = Some((count, before.min(own.1), steady.min(own.2)));
        }
        Ok(())
    }

    fn add(&mut self, name: String, after: Vec<TaskId>, work: TaskWork, part: TimedPart) -> TaskId {
        let took =
            if let TaskWork::Compute { took, .. } = &work { *took } else { Picoseconds::ZERO };
        self.tasks.push(Task { name, after, work });
        self.took.push(took);
        self.parts.push(part);
        TaskId(self.tasks.len() as u32 - 1)
    }

    fn exchange(
        &mut self,
        rank: u32,
        operation: &ProfiledOperation<'_>,
        communication: Communication,
        counts: &mut BTreeMap<(Vec<u32>, &'static str), u64>,
        after: Vec<TaskId>,
    ) -> Result<TaskId, KinetoError> {
        let Communication { exchange, share, seq } = communication;
        let kind = exchange.operation.name();
        let count = counts.entry((exchange.members.clone(), kind)).or_insert(0);
        *count += 1;
        let number = operation.number.filter(|_| !exchange.operation.is_between_two());
        let nth = seq.or(number).unwrap_or(*count);
        let key = (exchange.members.clone(), kind, nth);
        let (event, bytes) = (operation.event, exchange.bytes);
        let took = microseconds(operation.end - event.ts);
        let is_pairwise = exchange.operation.is_pairwise();
        let share = is_pairwise.then_some((rank, share));
        let Some(meeting) = self.known.get_mut(&key) else {
            let name = format!("{kind} {bytes} B");
            let task = self.add(name, after, exchange.work(), TimedPart::Exchange);
            self.took[task.index()] = took;
            let (place, ranks) = ((self.files.len() - 1, event.place), BTreeSet::from([rank]));
            let shares = share.into_iter().collect();
            self.known.insert(key, Meeting { task, place, bytes, ranks, shares });
            return Ok(task);
        };
        meeting.ranks.insert(rank);
        meeting.shares.extend(share);
        let task = meeting.task;
        if meeting.bytes != bytes && !is_pairwise {
            let (file, event) = (self.files[self.files.len() - 1].clone(), event.place as usize);
            let other =
                format!("{}: traceEvents[{}]", self.files[meeting.place.0], meeting.place.1);
            let others = meeting.bytes;
            return Err(KinetoError::Sizes { file, event, rank, bytes, other, others, nth });
        }
        // Use the minimum, because ranks that arrive early also wait for the last one.
        let own = &mut self.took[task.index()];
        *own = (*own).min(took);
        self.tasks[task.index()].after.extend(after);
        Ok(task)
    }

    fn all_take_part(&self) -> Result<(), KinetoError> {
        for ((group, kind, nth), Meeting { ranks, shares, .. }) in &self.known {
            let (kind, nth) = (*kind, *nth);
            let mut lacking = group.clone();
            lacking.retain(|rank| self.ranks.contains(rank) && !ranks.contains(rank));
            if !lacking.is_empty() {
                let cause = self.cause(kind, nth, group, &lacking);
                let group = group.clone();
                return Err(KinetoError::Partial { kind, nth, group, lacking, cause });
            }
            let sent = shares.values().map(|share| share.sent).sum::<u64>();
            let received = shares.values().map(|share| share.received).sum::<u64>();
            if shares.len() == group.len() && sent != received {
                return Err(KinetoError::Totals { nth, group: group.clone(), sent, received });
            }
        }
        Ok(())
    }

    fn cause(&self, kind: &str, nth: u64, group: &[u32], lacking: &[u32]) -> PartialCause {
        for &rank in lacking {
            if let Some(&event) = self.unread.get(&rank) {
                return PartialCause::Unread { rank, event };
            }
            let all = self.known.iter().filter(|(_, meeting)| meeting.ranks.contains(&rank));
            let mut own = all.map(|(key, _)| key).filter(|(_, _, number)| *number == nth);
            if let Some((_, kind, _)) = own.clone().find(|(other, ..)| other == group) {
                return PartialCause::OtherKind { rank, kind };
            }
            if let Some((group, ..)) = own.find(|(_, other, _)| *other == kind) {
                return PartialCause::OtherGroup { rank, group: group.clone() };
            }
        }
        PartialCause::OtherSteps
    }

    fn finish(mut self) -> Result<ProfiledStep, RecordedError> {
        if self.tasks.is_empty() {
            return Err(RecordedError::Empty);
        }
        let mut named: BTreeSet<u32> = self.ranks.clone();
        for ((group, ..), meeting) in &self.known {
            named.extend(group);
            let shares: Vec<Option<Share>> =
                group.iter().map(|rank| meeting.shares.get(rank).cloned()).collect();
            if let Some(bytes) = pairs(&shares) {
                let ranks = group.clone();
                self.tasks[meeting.task.index()].work = TaskWork::Pairs { ranks, bytes };
            }
        }
        for (index, task) in self.tasks.iter_mut().enumerate() {
            task.after.sort_unstable();
            task.after.dedup();
            task.after.retain(|before| before.index() != index);
        }
        let missing = named.difference(&self.ranks).copied().collect();
        let (steps, before, steady) = self.steps.unwrap_or((1, 0.0, 1.0));
        let recorded = Recorded {
            ranks: named.last().map_or(0, |last| last + 1),
            graph: TaskGraph::new(self.tasks)?,
            took: self.took,
            parts: self.parts,
            recorded: microseconds(self.recorded),
            steps,
            before: microseconds(before),
            steady,
        };
        let collectives = self.known.len();
        Ok(ProfiledStep { recorded, missing, unknown: self.unknown, collectives })
    }
}

fn compute(rank: u32, micros: f64) -> TaskWork {
    TaskWork::Compute { rank, took: microseconds(micros) }
}

/// Returns the duration of a step, as a share of the mean of all, in which the device also finishes a step.
fn steady_share(marked: MarkedSteps, operations: &[ProfiledOperation<'_>]) -> f64 {
    let last = operations.iter().map(|operation| operation.end).fold(f64::MIN, f64::max);
    if marked.count < 2 || last <= marked.end {
        return 1.0;
    }
    let of_first = operations.iter().filter(|operation| operation.launched() < marked.end_of_first);
    let first = of_first.map(|operation| operation.end).fold(marked.end_of_first, f64::max);
    let count = f64::from(marked.count);
    (last - first) / (count - 1.0) / ((last - marked.begin) / count)
}

/// Returns operations by start. Without a device, these are collectives and the outermost operators of host threads.
fn operations(events: &Events, steps: Option<MarkedSteps>) -> Vec<ProfiledOperation<'_>> {
    let has_device = events.kept.iter().any(Event::is_on_device);
    let mut found = if has_device { of_device(events) } else { of_host(events) };
    if let Some(MarkedSteps { begin, end, .. }) = steps {
        found.retain(|operation| (begin..end).contains(&operation.launched()));
    }
    found.sort_by(|a, b| {
        a.event.ts.total_cmp(&b.event.ts).then(b.event.dur.total_cmp(&a.event.dur))
    });
    found
}

fn of_device(events: &Events) -> Vec<ProfiledOperation<'_>> {
    let calls = events.kept.iter().filter(|event: &&Event| event.category == Category::Runtime);
    let calls: BTreeMap<u32, &Event> =
        calls.filter_map(|event| Some((event.correlation?, event))).collect();
    let on_device = events.kept.iter().filter(|event| event.is_on_device());
    let operations = on_device.map(|event| ProfiledOperation {
        event,
        stream: event.thread,
        end: event.end(),
        call: event.correlation.and_then(|id| calls.get(&id).copied()),
        number: None,
    });
    operations.collect()
}

fn of_host(events: &Events) -> Vec<ProfiledOperation<'_>> {
    let mut sorted: Vec<&Event> = events.kept.iter().collect();
    sorted.sort_by(|a, b| a.ts.total_cmp(&b.ts).then(b.dur.total_cmp(&a.dur)));
    let is_gloo = sorted.iter().any(|event| events.name(event).starts_with("gloo:"));
    let mut calls: Vec<&Event> =
        sorted.iter().copied().filter(|event| event.category == Category::Call).collect();
    let numbers: BTreeMap<u32, u64> = calls.iter().map(|call| call.place).zip(1..).collect();
    let mut lanes: Vec<f64> = Vec::new();
    let mut ends: BTreeMap<u32, f64> = BTreeMap::new();
    let mut found: Vec<ProfiledOperation<'_>> = Vec::new();
    for event in sorted {
        match event.category {
            Category::Exchange if events.name(event).starts_with("gloo:") == is_gloo => {
                let kind = Operation::of_name(events.name(event));
                let mut started = calls.iter().enumerate().filter(|(_, call)| {
                    is_gloo && call.ts <= event.ts && Operation::of_name(events.name(call)) == kind
                });
                // Gloo's threads may start collectives in a different order from the calls.
                let bytes = event.args.as_deref().and_then(bytes_of);
                let first = started.clone().next();
                let place = started
                    .find(|(_, call)| call.args.as_deref().and_then(bytes_of) == bytes)
                    .or(first)
                    .map(|(place, _)| place);
                let call = place.map(|place| calls.remove(place));
                let lane = lanes.iter().position(|end| *end <= event.ts).unwrap_or(lanes.len());
                lanes.resize(lanes.len().max(lane + 1), 0.0);
                lanes[lane] = event.end();
                let stream = u32::MAX - lane as u32;
                let number = call.and_then(|call| numbers.get(&call.place).copied());
                found.push(ProfiledOperation { event, stream, end: event.end(), call, number });
            }
            // Without an event of gloo, use the call that starts the collective.
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

/// A collective that the profile truncated ends with the longest later pause of its calling thread.
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
