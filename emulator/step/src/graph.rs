// SPDX-License-Identifier: Apache-2.0
//! A training step as tasks that wait for each other: computing, collectives round a ring, transfers.
//!
//! A [`TaskGraph`] that exists can be run: every task it names is there and none waits for itself. Ranks are
//! numbered from 0; a ring is a list of ranks.

use std::sync::Arc;

use lightloom_collective::{CollectiveKind, Pace};
use lightloom_units::{Bytes, Picoseconds};

/// The place of a task in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// The position in arrays indexed by tasks.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a task does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskWork {
    /// A rank computes.
    Compute {
        /// Which rank.
        rank: u32,
        /// For how long.
        took: Picoseconds,
    },
    /// The ranks of a ring of the high-bandwidth domain exchange.
    Ring {
        /// What they compute.
        kind: CollectiveKind,
        /// Which ring.
        ring: u32,
        /// The size, as [`lightloom_collective`] defines it.
        bytes: Bytes,
    },
    /// Ranks exchange round a ring over the data-centre network.
    Across {
        /// What they compute.
        kind: CollectiveKind,
        /// The ranks in order.
        ranks: Vec<u32>,
        /// The size, as [`lightloom_collective`] defines it.
        bytes: Bytes,
    },
    /// One rank sends to another over the data-centre network.
    Transfer {
        /// Who sends.
        from: u32,
        /// Who receives.
        to: u32,
        /// How much.
        bytes: Bytes,
    },
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// What people call it.
    pub name: String,
    /// What must be done before.
    pub after: Vec<TaskId>,
    /// What it does.
    pub work: TaskWork,
}

/// The most ranks of a step that is read from a file.
pub const MOST_RANKS: u32 = 1_000_000;
/// The longest that one task of a file computes: a day.
pub const LONGEST: Picoseconds = Picoseconds(86_400_000_000_000_000);
/// The longest chain of computing: with what it sends, a run stays within the 213 days that its clock has.
const LONGEST_CHAIN: Picoseconds = Picoseconds(100 * LONGEST.0);

/// Why tasks are no graph that can be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// It waits for a task that is not there.
    #[error("task {task} `{name}` waits for task {missing}, which is not there")]
    Missing {
        /// The waiting task.
        task: u32,
        /// Its name.
        name: String,
        /// What it waits for.
        missing: u32,
    },
    /// Tasks wait for each other in a circle.
    #[error("{count} tasks wait for each other in a circle, `{name}` among them")]
    Circle {
        /// How many never become ready.
        count: usize,
        /// One of them.
        name: String,
    },
    /// It computes beyond what the clock of a run has.
    #[error("task {task} `{name}` ends after more than 100 days of computing, and a step has less")]
    Long {
        /// The task.
        task: u32,
        /// Its name.
        name: String,
    },
}

/// What software leaves of the links that an exchange passes: a [`Pace`] in whole units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskPace {
    start: Picoseconds,
    steps: [u32; 2],
    step: [Picoseconds; 2],
    billionths: [u32; 2],
}

impl TaskPace {
    /// The whole links at once.
    pub const BARE: Self = Self {
        start: Picoseconds::ZERO,
        steps: [0; 2],
        step: [Picoseconds::ZERO; 2],
        billionths: [1_000_000_000; 2],
    };

    /// The same in whole units.
    #[must_use]
    pub fn of(pace: &Pace) -> Self {
        let picoseconds = |seconds: f64| Picoseconds((seconds * 1e12).round() as u64);
        Self {
            start: picoseconds(pace.start_seconds),
            steps: pace.steps.map(|steps| steps.round() as u32),
            step: pace.step_seconds.map(picoseconds),
            billionths: pace.shares.map(|share| (share * 1e9).round().max(1.0) as u32),
        }
    }

    /// Time before the packets leave, where cables delay a step so long inside a domain and between domains.
    #[must_use]
    pub fn lag(&self, cables: [Picoseconds; 2]) -> Picoseconds {
        let level = |at: usize| self.step[at].saturating_sub(cables[at]) * self.steps[at].into();
        self.start + level(0) + level(1)
    }

    /// Shares of links' rates that carry its bytes, inside a domain and between domains.
    #[must_use]
    pub fn shares(&self) -> [f64; 2] {
        self.billionths.map(|share| f64::from(share) * 1e-9)
    }
}

/// Tasks that can be run. Clones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskGraph {
    // Not `Arc<[Task]>`: making one copies, and there may be millions.
    tasks: Arc<Vec<Task>>,
    paces: Arc<TaskPaces>,
}

/// What software leaves of links, by task: places in a list of different ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskPaces {
    different: Vec<TaskPace>,
    of_task: Vec<u32>,
}

impl TaskPaces {
    /// Notes that of the next task.
    pub fn push(&mut self, pace: TaskPace) {
        // Layers repeat each other: the same are near the end.
        let known = self.different.iter().rposition(|known| *known == pace);
        let at = known.unwrap_or_else(|| {
            self.different.push(pace);
            self.different.len() - 1
        });
        self.of_task.push(at as u32);
    }
}

impl TaskGraph {
    /// The graph of `tasks`.
    ///
    /// # Errors
    /// If a task waits for one that is not there, or for itself, or ends beyond the clock of a run.
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

    /// The same tasks, whose exchanges leave so much of links.
    #[must_use]
    pub fn with_paces(self, paces: TaskPaces) -> Self {
        Self { paces: Arc::new(paces), ..self }
    }

    /// What software leaves of the links that a task uses: of a recorded one, all.
    #[must_use]
    pub fn pace(&self, task: TaskId) -> TaskPace {
        let at = self.paces.of_task.get(task.index());
        at.map_or(TaskPace::BARE, |at| self.paces.different[*at as usize])
    }

    /// The tasks, by id.
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }
}

/// How far the tasks of a graph are: the one schedule that everybody who runs one keeps.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// By task: how many tasks it waits for.
    waiting: Vec<u32>,
    dependents: Dependents,
    done: Vec<bool>,
    open: usize,
}

/// By task: those that wait for it, all in one list.
#[derive(Clone, Debug)]
struct Dependents {
    ends: Vec<u32>,
    tasks: Vec<TaskId>,
}

impl Dependents {
    fn of(graph: &TaskGraph) -> Self {
        let mut ends = vec![0; graph.tasks.len()];
        let edges = || {
            graph.tasks.iter().enumerate().flat_map(|(task, of)| {
                of.after.iter().map(move |before| (before.index(), TaskId(task as u32)))
            })
        };
        edges().for_each(|(before, _)| ends[before] += 1);
        let mut count = 0;
        for end in &mut ends {
            count += std::mem::replace(end, count);
        }
        // Each end is where its list begins until the list is written.
        let mut tasks = vec![TaskId(0); count as usize];
        for (before, task) in edges() {
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
    /// Nothing of `graph` is done.
    #[must_use]
    pub fn of(graph: &TaskGraph) -> Self {
        let waiting: Vec<u32> = graph.tasks.iter().map(|task| task.after.len() as u32).collect();
        let (open, done) = (waiting.len(), vec![false; waiting.len()]);
        Self { dependents: Dependents::of(graph), waiting, done, open }
    }

    /// Tasks that wait for none and are not done.
    #[must_use]
    pub fn ready(&self) -> Vec<TaskId> {
        let is_ready = |task: &usize| self.waiting[*task] == 0 && !self.done[*task];
        (0..self.waiting.len()).filter(is_ready).map(|task| TaskId(task as u32)).collect()
    }

    /// A task is done: those that waited for it alone may begin.
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

    /// Tasks that are not done.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }

    /// Whether a task is done.
    #[must_use]
    pub fn is_done(&self, task: TaskId) -> bool {
        self.done[task.index()]
    }

    /// These tasks of `graph`, and all that wait for them, are to be done again. Returns all of them, in order.
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
    fn what_is_undone_waits_again_for_what_was_undone_alone() {
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
    fn circles_and_missing_tasks_are_refused() {
        assert!(TaskGraph::new(vec![task(&[]), task(&[0]), task(&[0, 1])]).is_ok());
        let missing = TaskGraph::new(vec![task(&[7])]).unwrap_err();
        assert!(matches!(missing, GraphError::Missing { missing: 7, .. }));
        let circle = TaskGraph::new(vec![task(&[]), task(&[2]), task(&[1])]).unwrap_err();
        assert!(matches!(circle, GraphError::Circle { count: 2, .. }));
    }
}
