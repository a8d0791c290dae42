// SPDX-License-Identifier: Apache-2.0
//! Derives the dependencies between the operations of one rank.
//!
//! The host is a chain of tasks: each call that launches or waits for operations follows the previous call after some
//! host time. An operation waits for its predecessor on the stream, for its launch, and for stream waits in `cuda_sync`
//! events (`enable_cuda_sync_events` in PyTorch). A host wait ends when the awaited operations have ended. Without
//! recorded stream waits, an operation depends on another stream only if it starts at the end of an operation there,
//! and neither at the end of its own stream nor at its launch. Unexplained delays are replayed as host time.
//!
//! Calls of several host threads form one sequence. The exception is a wait during which another
//! thread continued: only the waiting thread depends on it.

mod waits;

use std::collections::BTreeMap;

use super::super::graph::TaskId;
use super::KinetoError;
use super::document::{Category, Event, Events, MarkedSteps};
use waits::{Launches, ProfiledWaits};

pub(super) struct ProfiledOperation<'e> {
    pub(super) event: &'e Event,
    pub(super) stream: u32,
    pub(super) end: f64,
    pub(super) call: Option<&'e Event>,
    pub(super) number: Option<u64>,
}

impl ProfiledOperation<'_> {
    pub(super) fn launched(&self) -> f64 {
        self.call.map_or(self.event.ts, |call| call.ts)
    }
}

pub(super) enum RankWork {
    Host(f64),
    Operation(usize),
}

pub(super) type Emit<'e> = dyn FnMut(Vec<TaskId>, RankWork) -> Result<TaskId, KinetoError> + 'e;

/// Clock resolution of a profile in microseconds.
const CLOCK: f64 = 1e-3;

#[derive(Clone, Copy)]
struct HostPoint {
    time: f64,
    task: Option<TaskId>,
    waited_since: Option<f64>,
}

/// Variants are in the order in which simultaneous events are processed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NextInOrder {
    WaitEnds(usize),
    Launch(usize),
    WaitBegins(usize),
    Begins(usize),
}

struct OrderWalk<'w> {
    operations: &'w [ProfiledOperation<'w>],
    waits: &'w ProfiledWaits,
    begin: f64,
    /// Shortest time from a launch to its operation, by which all host times are shifted.
    latency: f64,
    emit: &'w mut Emit<'w>,
    task_of: Vec<Option<TaskId>>,
    launched: Vec<Option<TaskId>>,
    waiting: Vec<Option<TaskId>>,
    points: BTreeMap<u32, HostPoint>,
    held_by: BTreeMap<u32, Vec<TaskId>>,
    /// By stream: `ended` is the last operation that ended, `last` the last one that started.
    ended: BTreeMap<u32, usize>,
    last: BTreeMap<u32, usize>,
}

/// `operations` are sorted by start; `events` are all events of the file.
pub(super) fn walk<'w>(
    operations: &'w [ProfiledOperation<'w>],
    events: &Events,
    steps: Option<MarkedSteps>,
    emit: &'w mut Emit<'w>,
) -> Result<(), KinetoError> {
    let launches = Launches::of(operations, events);
    let waits = ProfiledWaits::of(&launches, operations, events);
    let mut nexts: Vec<(f64, NextInOrder)> = Vec::with_capacity(2 * operations.len());
    let mut latency = f64::MAX;
    for (place, operation) in operations.iter().enumerate() {
        nexts.push((operation.event.ts, NextInOrder::Begins(place)));
        if let Some(call) = operation.call {
            nexts.push((call.ts, NextInOrder::Launch(place)));
            latency = latency.min((operation.event.ts - call.ts).max(0.0));
        }
    }
    let calls = operations.iter().filter_map(|operation| operation.call);
    let last_call = calls.map(|call| call.ts).fold(f64::MIN, f64::max);
    // Waits after the last launch can only delay the end of the last step.
    let last_call = steps.map_or(last_call, |steps| last_call.max(steps.end));
    for (place, wait) in waits.host.iter().enumerate().filter(|(_, wait)| wait.end <= last_call) {
        nexts.push((wait.begun, NextInOrder::WaitBegins(place)));
        // Subtract the clock resolution: rounding must not place a wait after the following launch.
        nexts.push((f64::max(wait.begun, wait.end - CLOCK), NextInOrder::WaitEnds(place)));
    }
    nexts.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut walk = OrderWalk {
        operations,
        begin: operations.first().map_or(0.0, |operation| operation.event.ts),
        latency: if latency == f64::MAX { 0.0 } else { latency },
        emit,
        task_of: vec![None; operations.len()],
        launched: vec![None; operations.len()],
        waiting: vec![None; waits.host.len()],
        waits: &waits,
        points: BTreeMap::new(),
        held_by: BTreeMap::new(),
        ended: BTreeMap::new(),
        last: BTreeMap::new(),
    };
    for (time, next) in nexts {
        match next {
            NextInOrder::WaitEnds(wait) => walk.wait_ends(wait)?,
            NextInOrder::Launch(operation) => walk.launch(operation)?,
            NextInOrder::WaitBegins(wait) => {
                walk.waiting[wait] = walk.host_at(waits.host[wait].thread, time)?;
            }
            NextInOrder::Begins(operation) => walk.begins(operation)?,
        }
    }
    steps.map_or(Ok(()), |steps| walk.ends(steps))
}

impl OrderWalk<'_> {
    fn host(&mut self, after: Vec<TaskId>, micros: f64) -> Result<TaskId, KinetoError> {
        (self.emit)(after, RankWork::Host(micros))
    }

    fn host_at(&mut self, thread: u32, time: f64) -> Result<Option<TaskId>, KinetoError> {
        let time = f64::max(time + self.latency, self.begin);
        let own = self.points.get(&thread).copied();
        let own_time = own.map_or(f64::MIN, |point| point.time);
        // If this thread continued during another thread's wait, the wait did not delay it.
        let others = self.points.iter().filter(|(other, point)| {
            **other != thread && point.waited_since.is_none_or(|since| since >= own_time)
        });
        let before = others
            .map(|(_, point)| *point)
            .chain(own)
            .max_by(|a, b| a.time.total_cmp(&b.time))
            .unwrap_or(HostPoint { time: self.begin, task: None, waited_since: None });
        let took = time - before.time;
        let task = match took > CLOCK {
            true => Some(self.host(before.task.into_iter().collect(), took)?),
            false => before.task,
        };
        self.points.insert(thread, HostPoint { time, task, waited_since: None });
        Ok(task)
    }

    fn wait_ends(&mut self, wait: usize) -> Result<(), KinetoError> {
        let waited = &self.waits.host[wait];
        let (begun, end) = (waited.begun + self.latency, waited.end + self.latency);
        let (mut after, mut ready): (Vec<TaskId>, f64) =
            (self.waiting[wait].into_iter().collect(), begun.max(self.begin));
        for operation in &waited.after {
            if let Some(task) = self.task_of[*operation] {
                after.push(task);
                ready = ready.max(self.operations[*operation].end);
            }
        }
        let task = Some(self.host(after, (end - ready).max(0.0))?);
        let point = HostPoint { time: end.max(self.begin), task, waited_since: Some(begun) };
        self.points.insert(waited.thread, point);
        Ok(())
    }

    fn launch(&mut self, place: usize) -> Result<(), KinetoError> {
        let Some(call) = self.operations[place].call else { return Ok(()) };
        // If the calling thread has operations, the launch is within or after one of them.
        let Some(around) = self.last.get(&call.thread).copied() else {
            self.launched[place] = self.host_at(call.thread, call.ts)?;
            return Ok(());
        };
        let ProfiledOperation { event, end, .. } = self.operations[around];
        let (after, since) = match end <= call.ts {
            true => (self.task_of[around].into_iter().collect(), end),
            false => (self.held_by.get(&call.thread).cloned().unwrap_or_default(), event.ts),
        };
        let took = (call.ts + self.latency - since).max(0.0);
        self.launched[place] = Some(self.host(after, took)?);
        Ok(())
    }

    fn ends(&mut self, steps: MarkedSteps) -> Result<(), KinetoError> {
        let time = steps.end - self.latency;
        match self.last.get(&steps.thread).copied() {
            None => self.host_at(steps.thread, time).map(drop),
            Some(last) => {
                let after = self.task_of[last].into_iter().collect();
                let took = (steps.end - self.operations[last].end).max(0.0);
                self.host(after, took).map(drop)
            }
        }
    }

    fn begins(&mut self, place: usize) -> Result<(), KinetoError> {
        let operation = &self.operations[place];
        let start = operation.event.ts;
        for (stream, last) in &self.last {
            if self.operations[*last].end <= start + CLOCK {
                self.ended.insert(*stream, *last);
            }
        }
        let own = self.last.insert(operation.stream, place);
        let mut after: Vec<usize> = own.into_iter().collect();
        match self.waits.streams.as_ref() {
            Some(streams) => after.extend(streams.get(&place).into_iter().flatten()),
            None => self.infer(place, own, &mut after),
        }
        // Drop dependencies on later operations, so that inconsistent clocks cannot create a cycle.
        after.retain(|before| *before < place);
        let ends = after.iter().map(|before| self.operations[*before].end);
        let ready = ends.fold(self.begin, f64::max);
        let mut tasks: Vec<TaskId> =
            after.iter().filter_map(|before| self.task_of[*before]).collect();
        let launched_at = operation.call.map_or(f64::MIN, |call| call.ts + self.latency);
        let late = start - ready.max(launched_at);
        let launch = self.launched[place];
        if late > CLOCK && launched_at >= ready {
            let launch = launch.into_iter().collect();
            tasks.push(self.host(launch, late)?);
        } else {
            tasks.extend(launch);
            if late > CLOCK {
                tasks = vec![self.host(tasks, late)?];
            }
        }
        if operation.call.is_none() {
            self.held_by.insert(operation.stream, tasks.clone());
        }
        self.task_of[place] = Some((self.emit)(tasks, RankWork::Operation(place))?);
        Ok(())
    }

    fn infer(&self, place: usize, own: Option<usize>, after: &mut Vec<usize>) {
        let operation = &self.operations[place];
        let idle_since = own.map_or(f64::MIN, |own| self.operations[own].end);
        let launched = operation.call.map_or(f64::MIN, |call| call.ts + self.latency);
        let since = idle_since.max(launched) + CLOCK;
        if operation.event.ts <= since {
            return;
        }
        let others = self.ended.values().map(|other| (*other, &self.operations[*other]));
        let waited = others.clone().filter(|(_, operation)| operation.end > since);
        after.extend(waited.clone().map(|(other, _)| other));
        // Waiting for one collective of the host means waiting for all that have started.
        let mut exchanges = waited.filter(|(_, one)| one.event.category == Category::Exchange);
        if exchanges.next().is_some() {
            let exchanges = others.filter(|(_, one)| one.event.category == Category::Exchange);
            after.extend(exchanges.map(|(other, _)| other));
        }
    }
}
