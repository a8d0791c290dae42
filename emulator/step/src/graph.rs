// SPDX-License-Identifier: Apache-2.0
//! A training step as tasks with dependencies: computation, collectives and transfers.
//!
//! Every [`TaskGraph`] can be executed: dependencies exist and have no cycles. A ring is a list of ranks, from 0.

use std::borrow::Cow;
use std::slice;
use std::sync::Arc;

use lightloom_collective::{CollectiveKind, Pace};
use lightloom_units::{Bytes, Picoseconds};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TaskWork {
    Compute {
        rank: u32,
        took: Picoseconds,
    },
    Ring {
        kind: CollectiveKind,
        ring: u32,
        bytes: Bytes,
    },
    Across {
        kind: CollectiveKind,
        ranks: Vec<u32>,
        bytes: Bytes,
    },
    /// Simultaneous messages of different sizes between all pairs of ranks.
    Pairs {
        ranks: Vec<u32>,
        bytes: PairBytes,
    },
    Transfer {
        from: u32,
        to: u32,
        bytes: Bytes,
    },
}

impl TaskWork {
    /// Returns the operation of a collective. `None` for a computation or transfer.
    pub const fn kind(&self) -> Option<CollectiveKind> {
        match self {
            Self::Compute { .. } | Self::Transfer { .. } => None,
            Self::Ring { kind, .. } | Self::Across { kind, .. } => Some(*kind),
            Self::Pairs { .. } => Some(CollectiveKind::PAIRWISE),
        }
    }

    /// Returns the buffer of one rank, and its mean if the messages differ. 0 for a computation.
    pub fn bytes(&self) -> Bytes {
        match self {
            Self::Compute { .. } => Bytes::ZERO,
            Self::Ring { bytes, .. }
            | Self::Across { bytes, .. }
            | Self::Transfer { bytes, .. } => *bytes,
            Self::Pairs { ranks, bytes } => {
                Bytes(bytes.iter().sum::<u64>() / ranks.len().max(1) as u64)
            }
        }
    }

    /// # Panics
    /// Panics if the task uses a ring that is not in `rings`.
    pub fn members<'a>(&'a self, rings: &'a [Vec<u32>]) -> Cow<'a, [u32]> {
        match self {
            Self::Compute { rank, .. } => slice::from_ref(rank).into(),
            Self::Ring { ring, .. } => (&*rings[*ring as usize]).into(),
            Self::Across { ranks, .. } | Self::Pairs { ranks, .. } => (&**ranks).into(),
            Self::Transfer { from, to, .. } => vec![*from, *to].into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub name: String,
    pub after: Vec<TaskId>,
    pub work: TaskWork,
}

pub const MOST_RANKS: u32 = 1_000_000;
/// Maximum duration of a computation task read from a file: one day.
pub const LONGEST: Picoseconds = Picoseconds(86_400_000_000_000_000);
/// Including communication, a step then fits in the 213 days of the emulator's clock.
const LONGEST_CHAIN: Picoseconds = Picoseconds(100 * LONGEST.0);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    #[error("task {task} `{name}` waits for task {missing}, which does not exist")]
    Missing { task: u32, name: String, missing: u32 },
    #[error("{count} tasks wait for each other in a cycle, including `{name}`")]
    Circle { count: usize, name: String },
    #[error(
        "task {task} `{name}` ends after more than 100 days of computation, the limit for a step"
    )]
    Long { task: u32, name: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskPace {
    start: Picoseconds,
    steps: [u32; 2],
    step: [Picoseconds; 2],
    billionths: [u32; 2],
}

impl TaskPace {
    pub const BARE: Self = Self {
        start: Picoseconds::ZERO,
        steps: [0; 2],
        step: [Picoseconds::ZERO; 2],
        billionths: [1_000_000_000; 2],
    };

    pub fn of(pace: &Pace) -> Self {
        Self {
            start: Picoseconds::from_secs_f64(pace.start_seconds),
            steps: pace.steps.map(|steps| steps.round() as u32),
            step: pace.step_seconds.map(Picoseconds::from_secs_f64),
            billionths: pace.shares.map(|share| (share * 1e9).round().max(1.0) as u32),
        }
    }

    pub fn lag(&self, cables: [Picoseconds; 2]) -> Picoseconds {
        let waits =
            [0, 1].map(|at| self.step[at].saturating_sub(cables[at]) * self.steps[at].into());
        self.start + waits[0] + waits[1]
    }

    /// Returns the effective shares of the link rates, inside a domain and between domains.
    pub fn shares(&self) -> [f64; 2] {
        self.billionths.map(|share| f64::from(share) * 1e-9)
    }
}

/// Bytes from each rank to each other rank, by rows, for uneven all-to-alls, gathers and scatters.
pub type PairBytes = Arc<[u64]>;

/// A valid graph of tasks. Clones share the tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskGraph {
    // `Arc<[Task]>` would copy up to millions of tasks on construction.
    tasks: Arc<Vec<Task>>,
    paces: Arc<TaskPaces>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskPaces {
    different: Vec<TaskPace>,
    of_task: Vec<u32>,
}

impl TaskPaces {
    pub fn push(&mut self, pace: TaskPace) {
        // Search from the end, because layers repeat.
        let known = self.different.iter().rposition(|known| *known == pace);
        let at = known.unwrap_or_else(|| {
            self.different.push(pace);
            self.different.len() - 1
        });
        self.of_task.push(at as u32);
    }
}

impl TaskGraph {
    /// Fails if a dependency does not exist, dependencies form a cycle, or a chain of computation is too long.
    pub fn new(tasks: Vec<Task>) -> Result<Self, GraphError> {
        for (index, task) in tasks.iter().enumerate() {
            if let Some(missing) = task.after.iter().find(|id| id.index() >= tasks.len()) {
                let name = task.name.clone();
                return Err(GraphError::Missing { task: index as u32, name, missing: missing.0 });
            }
        }
        let graph = Self { tasks: Arc::new(tasks), paces: Arc::default() };
        let mut schedule = Schedule::of(&graph);
        let mut ready = schedule.ready();
        let mut ends = vec![Picoseconds::ZERO; graph.tasks.len()];
        while let Some(id) = ready.pop() {
            let task = &graph.tasks[id.index()];
            let start = task.after.iter().map(|before| ends[before.index()]).max();
            let took = if let TaskWork::Compute { took, .. } = task.work {
                took
            } else {
                Picoseconds::ZERO
            };
            let end = start.unwrap_or_default().0.saturating_add(took.0);
            if end > LONGEST_CHAIN.0 {
                return Err(GraphError::Long { task: id.0, name: task.name.clone() });
            }
            ends[id.index()] = Picoseconds(end);
            ready.extend(schedule.finish(id));
        }
        match schedule.done.iter().position(|is_done| !is_done) {
            Some(stuck) => {
                let name = graph.tasks[stuck].name.clone();
                Err(GraphError::Circle { count: schedule.open, name })
            }
            None => Ok(graph),
        }
    }

    pub fn with_paces(self, paces: TaskPaces) -> Self {
        Self { paces: Arc::new(paces), ..self }
    }

    /// Tasks of a recorded step use the full link rates.
    pub fn pace(&self, task: TaskId) -> TaskPace {
        let at = self.paces.of_task.get(task.index());
        at.map_or(TaskPace::BARE, |at| self.paces.different[*at as usize])
    }

    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }
}

#[derive(Clone, Debug)]
pub struct Schedule {
    waiting: Vec<u32>,
    dependents: Dependents,
    done: Vec<bool>,
    open: usize,
}

#[derive(Clone, Debug)]
struct Dependents {
    ends: Vec<u32>,
    tasks: Vec<TaskId>,
}

impl Dependents {
    fn of(graph: &TaskGraph) -> Self {
        let mut ends = vec![0; graph.tasks.len()];
        let edges = graph.tasks.iter().enumerate().flat_map(|(task, of)| {
            of.after.iter().map(move |before| (before.index(), TaskId(task as u32)))
        });
        edges.clone().for_each(|(before, _)| ends[before] += 1);
        let mut count = 0;
        for end in &mut ends {
            count += std::mem::replace(end, count);
        }
        // During filling, each entry is the position of the task's next dependent.
        let mut tasks = vec![TaskId(0); count as usize];
        for (before, task) in edges {
            tasks[ends[before] as usize] = task;
            ends[before] += 1;
        }
        Self { ends, tasks }
    }

    fn of_task(&self, task: TaskId) -> &[TaskId] {
        let first = task.index().checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.tasks[first as usize..self.ends[task.index()] as usize]
    }
}

impl Schedule {
    pub fn of(graph: &TaskGraph) -> Self {
        let waiting: Vec<u32> = graph.tasks.iter().map(|task| task.after.len() as u32).collect();
        let (open, done) = (waiting.len(), vec![false; waiting.len()]);
        Self { dependents: Dependents::of(graph), waiting, done, open }
    }

    pub fn ready(&self) -> Vec<TaskId> {
        let tasks = 0..self.waiting.len();
        let ready = tasks.filter(|task| self.waiting[*task] == 0 && !self.done[*task]);
        ready.map(|task| TaskId(task as u32)).collect()
    }

    pub fn finish(&mut self, task: TaskId) -> Vec<TaskId> {
        let mut ready = Vec::new();
        if std::mem::replace(&mut self.done[task.index()], true) {
            return ready;
        }
        self.open -= 1;
        for next in self.dependents.of_task(task) {
            self.waiting[next.index()] -= 1;
            if self.waiting[next.index()] == 0 {
                ready.push(*next);
            }
        }
        ready
    }

    pub fn open(&self) -> usize {
        self.open
    }

    pub fn dependents(&self, task: TaskId) -> &[TaskId] {
        self.dependents.of_task(task)
    }

    pub fn is_done(&self, task: TaskId) -> bool {
        self.done[task.index()]
    }

    /// Marks these tasks and all transitive dependents as not done. Returns them in order of id.
    pub fn undo(&mut self, graph: &TaskGraph, tasks: &[TaskId]) -> Vec<TaskId> {
        let mut is_undone = vec![false; self.done.len()];
        let mut open = tasks.to_vec();
        while let Some(task) = open.pop() {
            if !std::mem::replace(&mut is_undone[task.index()], true) {
                open.extend(self.dependents.of_task(task));
            }
        }
        let undone = (0..is_undone.len()).filter(|task| is_undone[*task]);
        let undone: Vec<TaskId> = undone.map(|task| TaskId(task as u32)).collect();
        for task in &undone {
            self.open += usize::from(std::mem::take(&mut self.done[task.index()]));
        }
        for task in &undone {
            let after = graph.tasks[task.index()].after.iter();
            let waits = after.filter(|before| !self.done[before.index()]).count();
            self.waiting[task.index()] = waits as u32;
        }
        undone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undone_task_waits_for_an_undone_dependency() {
        let tasks = vec![task(&[]), task(&[]), task(&[0, 1]), task(&[2])];
        let graph = TaskGraph::new(tasks).unwrap();
        let mut schedule = Schedule::of(&graph);
        assert_eq!(schedule.ready(), [TaskId(0), TaskId(1)]);
        assert_eq!(schedule.finish(TaskId(0)), []);
        assert_eq!(schedule.finish(TaskId(1)), [TaskId(2)]);
        assert_eq!(schedule.finish(TaskId(2)), [TaskId(3)]);
        assert_eq!(schedule.undo(&graph, &[TaskId(1)]), [TaskId(1), TaskId(2), TaskId(3)]);
        assert_eq!((schedule.ready(), schedule.open()), (vec![TaskId(1)], 3));
        assert_eq!(schedule.finish(TaskId(1)), [TaskId(2)]);
        assert!(schedule.is_done(TaskId(0)) && !schedule.is_done(TaskId(2)));
    }

    fn task(after: &[u32]) -> Task {
        Task {
            name: "t".into(),
            after: after.iter().copied().map(TaskId).collect(),
            work: TaskWork::Compute { rank: 0, took: Picoseconds(1) },
        }
    }

    #[test]
    fn rejects_cycles_and_missing_tasks() {
        assert!(TaskGraph::new(vec![task(&[]), task(&[0]), task(&[0, 1])]).is_ok());
        let missing = TaskGraph::new(vec![task(&[7])]).unwrap_err();
        assert!(matches!(missing, GraphError::Missing { missing: 7, .. }));
        let circle = TaskGraph::new(vec![task(&[]), task(&[2]), task(&[1])]).unwrap_err();
        assert!(matches!(circle, GraphError::Circle { count: 2, .. }));
    }
}
