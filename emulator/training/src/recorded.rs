// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use lightloom_collective::CollectiveKind;
use lightloom_fabric::document::explain_json;
use lightloom_units::{Bytes, Picoseconds};
use serde::Deserialize;

use super::graph::{GraphError, LONGEST, MOST_RANKS, Task, TaskGraph, TaskId, TaskWork};

#[derive(Clone, Debug)]
pub struct Recorded {
    /// Collectives of a TP group run on its ring.
    pub graph: TaskGraph,
    pub took: Vec<Picoseconds>,
    pub parts: Vec<TimedPart>,
    /// One more than the largest rank in the trace.
    pub ranks: u32,
    pub recorded: Picoseconds,
    pub steps: u32,
    /// Time from the start of the first step to the first operation.
    pub before: Picoseconds,
    /// Duration of a step as a share of the mean of all. Below 1 if the first step also fills the device's queue.
    pub steady: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimedPart {
    Kernel,
    Copy,
    Host,
    /// A collective or transfer, or a kernel of an undescribed collective.
    Exchange,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    #[error("line {}, column {}: {reason}", line, column)]
    Json { line: usize, column: usize, reason: String },
    #[error("traceEvents[{event}] `{name}` of rank {rank}: {reason}")]
    Event { event: usize, name: String, rank: String, reason: String },
    #[error("the trace has no complete events (`\"ph\": \"X\"`)")]
    Empty,
    #[error(transparent)]
    Graph(#[from] GraphError),
}

#[derive(Deserialize)]
struct RecordedTrace {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    name: String,
    ph: String,
    #[serde(default)]
    pid: serde_json::Value,
    #[serde(default)]
    tid: serde_json::Value,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Arguments,
}

#[derive(Default, Deserialize)]
struct Arguments {
    id: Option<String>,
    #[serde(default)]
    after: Vec<String>,
    collective: Option<String>,
    group: Option<Vec<u32>>,
    send_to: Option<u32>,
    receive_from: Option<u32>,
    bytes: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SharedTask {
    Collective { group: Vec<u32>, kind: String, nth: usize },
    Transfer { from: u32, to: u32, nth: usize },
}

struct RecordedOperation<'e> {
    event: usize,
    source: &'e Event,
    rank: u32,
    shared: Option<SharedTask>,
    work: TaskWork,
}

const CLOCK_MICROS: f64 = 1e-3;
const MOST_EVENTS: usize = 5_000_000;

/// TP groups consist of `tensor` consecutive ranks. Fails if the text is not a trace or an event lacks required
/// arguments; the error states the position.
pub fn read(text: &[u8], tensor: u32) -> Result<Recorded, RecordedError> {
    let document: RecordedTrace = serde_json::from_slice(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        RecordedError::Json { line, column, reason: explain_json(&error) }
    })?;
    let mut counts = BTreeMap::new();
    let mut events: Vec<(usize, &Event)> =
        document.events.iter().enumerate().filter(|(_, event)| event.ph == "X").collect();
    if events.is_empty() || events.len() > MOST_EVENTS {
        return Err(RecordedError::Empty);
    }
    events.sort_by(|a, b| a.1.ts.total_cmp(&b.1.ts));
    let operations: Vec<RecordedOperation<'_>> = events
        .into_iter()
        .map(|(place, event)| operation(place, event, tensor, &mut counts))
        .collect::<Result<_, _>>()?;
    join(&operations)
}

fn operation<'e>(
    event: usize,
    source: &'e Event,
    tensor: u32,
    counts: &mut BTreeMap<(u32, SharedTask), usize>,
) -> Result<RecordedOperation<'e>, RecordedError> {
    let rank = source.pid.as_u64().and_then(|rank| u32::try_from(rank).ok()).unwrap_or(u32::MAX);
    let wrong = |reason: String| {
        let (name, rank) = (source.name.clone(), source.pid.to_string());
        RecordedError::Event { event, name, rank, reason }
    };
    if rank >= MOST_RANKS {
        return Err(wrong("`pid` is not a rank: expected a whole number".to_owned()));
    }
    if !source.ts.is_finite() || !is_time(source.dur) {
        return Err(wrong(no_time(source.dur)));
    }
    let (shared, work) = meaning(rank, source, tensor, |first: SharedTask| {
        let count = counts.entry((rank, first)).or_insert(0);
        *count += 1;
        *count - 1
    })
    .map_err(wrong)?;
    Ok(RecordedOperation { event, source, rank, shared, work })
}

/// Returns the work of an event and its identity across ranks. `nth` counts equal events of this rank.
fn meaning(
    rank: u32,
    source: &Event,
    tensor: u32,
    mut nth: impl FnMut(SharedTask) -> usize,
) -> Result<(Option<SharedTask>, TaskWork), String> {
    let arguments = &source.args;
    let bytes = arguments.bytes.filter(|bytes| *bytes > 0).map(Bytes);
    let bytes = bytes.ok_or_else(|| "communication needs `bytes` above 0".to_owned());
    if let Some(name) = &arguments.collective {
        let kind = CollectiveKind::of_name(name).ok_or_else(|| {
            let known = CollectiveKind::NAMED.map(CollectiveKind::name).join(", ");
            format!("unknown `collective` {name} (known: {known})")
        })?;
        let mut group = arguments.group.clone().unwrap_or_default();
        group.sort_unstable();
        group.dedup();
        if group.len() < 2 || !group.contains(&rank) || group.iter().any(|rank| *rank >= MOST_RANKS)
        {
            return Err("`group` must be a list of ranks that includes this one".to_owned());
        }
        let work = exchange(kind, &group, tensor, bytes?);
        let nth = nth(SharedTask::Collective { group: group.clone(), kind: name.clone(), nth: 0 });
        return Ok((Some(SharedTask::Collective { group, kind: name.clone(), nth }), work));
    }
    let (from, to) = match (arguments.send_to, arguments.receive_from) {
        (Some(to), _) => (rank, to),
        (None, Some(from)) => (from, rank),
        (None, None) => {
            return Ok((None, TaskWork::Compute { rank, took: microseconds(source.dur) }));
        }
    };
    let peer = if from == rank { to } else { from };
    if peer == rank || peer >= MOST_RANKS {
        return Err(format!("rank {peer} is the sender itself"));
    }
    let work = TaskWork::Transfer { from, to, bytes: bytes? };
    let nth = nth(SharedTask::Transfer { from, to, nth: 0 });
    Ok((Some(SharedTask::Transfer { from, to, nth }), work))
}

fn exchange(kind: CollectiveKind, group: &[u32], tensor: u32, bytes: Bytes) -> TaskWork {
    let first = group[0];
    let is_row = group.len() == tensor as usize && group[group.len() - 1] - first + 1 == tensor;
    if is_row && first.is_multiple_of(tensor) && !kind.is_pairwise() {
        return TaskWork::Ring { kind, ring: first / tensor, bytes };
    }
    TaskWork::Across { kind, ranks: group.to_vec(), bytes }
}

pub(super) fn is_time(micros: f64) -> bool {
    (0.0..=LONGEST.0 as f64 / 1e6).contains(&micros)
}

pub(super) fn no_time(micros: f64) -> String {
    format!("`dur` {micros} is not a time in microseconds of at most a day")
}

/// A negative time counts as 0.
pub(crate) fn microseconds(micros: f64) -> Picoseconds {
    Picoseconds((micros * 1e6).round() as u64)
}

fn join(operations: &[RecordedOperation<'_>]) -> Result<Recorded, RecordedError> {
    let (mut tasks, mut took, mut task_of) = (Vec::<Task>::new(), Vec::new(), Vec::new());
    let mut known: BTreeMap<&SharedTask, usize> = BTreeMap::new();
    for operation in operations {
        let duration = microseconds(operation.source.dur);
        let task = match operation.shared.as_ref().and_then(|shared| known.get(shared)) {
            Some(task) => *task,
            None => {
                let name = operation.source.name.clone();
                tasks.push(Task { name, after: Vec::new(), work: operation.work.clone() });
                took.push(duration);
                tasks.len() - 1
            }
        };
        // Use the minimum, because ranks that arrive early also wait for the last one.
        took[task] = took[task].min(duration);
        if let Some(shared) = &operation.shared {
            known.insert(shared, task);
        }
        task_of.push(task);
    }
    wait(operations, &task_of, &mut tasks)?;
    let first = operations.iter().map(|operation| operation.source.ts).fold(f64::MAX, f64::min);
    let ends = operations.iter().map(|operation| operation.source.ts + operation.source.dur);
    let named = operations.iter().flat_map(|operation| match &operation.work {
        TaskWork::Compute { .. } | TaskWork::Ring { .. } => vec![operation.rank],
        work => work.members(&[]).into_owned(),
    });
    let parts = tasks.iter().map(|task| match task.work {
        TaskWork::Compute { .. } => TimedPart::Kernel,
        _ => TimedPart::Exchange,
    });
    Ok(Recorded {
        parts: parts.collect(),
        steps: 1,
        before: Picoseconds::ZERO,
        steady: 1.0,
        ranks: named.max().unwrap_or(0) + 1,
        graph: TaskGraph::new(tasks)?,
        took,
        recorded: microseconds(ends.fold(first, f64::max) - first),
    })
}

fn wait(
    operations: &[RecordedOperation<'_>],
    task_of: &[usize],
    tasks: &mut [Task],
) -> Result<(), RecordedError> {
    let mut by_id: BTreeMap<(u32, &str), usize> = BTreeMap::new();
    for (place, operation) in operations.iter().enumerate() {
        let Some(id) = &operation.source.args.id else { continue };
        if by_id.insert((operation.rank, id), place).is_some() {
            return Err(event_error(
                operation,
                format!("the id `{id}` appears twice on this rank"),
            ));
        }
    }
    let mut streams: BTreeMap<(u32, String), usize> = BTreeMap::new();
    for (place, operation) in operations.iter().enumerate() {
        let task = task_of[place];
        for id in &operation.source.args.after {
            let Some(before) = by_id.get(&(operation.rank, id.as_str())) else {
                return Err(event_error(
                    operation,
                    format!("it waits for `{id}`, which does not exist on this rank"),
                ));
            };
            tasks[task].after.push(TaskId(task_of[*before] as u32));
        }
        let stream = (operation.rank, operation.source.tid.to_string());
        let before = streams.insert(stream, place);
        // A stream may have several operations in progress, so overlapping ones are not ordered.
        if let Some(before) = before.filter(|before| {
            let source = operations[*before].source;
            source.ts + source.dur <= operation.source.ts + CLOCK_MICROS
        }) {
            tasks[task].after.push(TaskId(task_of[before] as u32));
        }
    }
    for (index, task) in tasks.iter_mut().enumerate() {
        task.after.sort_unstable();
        task.after.dedup();
        // Both ends of one communication may be consecutive on a stream.
        task.after.retain(|before| before.index() != index);
    }
    Ok(())
}

fn event_error(operation: &RecordedOperation<'_>, reason: String) -> RecordedError {
    RecordedError::Event {
        event: operation.event,
        name: operation.source.name.clone(),
        rank: operation.rank.to_string(),
        reason,
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Scales {
    pub kernel: f64,
    pub copy: f64,
    pub host: f64,
}

impl Recorded {
    pub fn scaled(&self, scales: Scales) -> Result<Self, GraphError> {
        let (mut tasks, mut times) = (self.graph.tasks().to_vec(), self.took.clone());
        for ((task, took), part) in tasks.iter_mut().zip(&mut times).zip(&self.parts) {
            let factor = match part {
                TimedPart::Kernel => scales.kernel,
                TimedPart::Copy => scales.copy,
                TimedPart::Host => scales.host,
                TimedPart::Exchange => continue,
            };
            if let TaskWork::Compute { took: own, .. } = &mut task.work {
                *own = Picoseconds((own.0 as f64 * factor).round() as u64);
                *took = *own;
            }
        }
        Ok(Self { graph: TaskGraph::new(tasks)?, took: times, ..self.clone() })
    }

    pub fn time_of(&self, part: TimedPart) -> Picoseconds {
        let tasks = self.took.iter().zip(&self.parts).filter(|(_, own)| **own == part);
        tasks.map(|(took, _)| *took).fold(Picoseconds::ZERO, |sum, took| sum + took)
    }

    pub fn step_seconds(&self, end: Picoseconds) -> f64 {
        (end + self.before).as_secs_f64() / f64::from(self.steps.max(1)) * self.steady
    }
}
