//! The way of one group, and of one job between its groups, through the collectives.

use lightloom_engine::LinkId;
use lightloom_planner::khop::RingGroup;
use lightloom_units::id::NodeId;
use lightloom_units::{Picoseconds, SimTime};

use crate::scenario::collectives::Running;

/// The way of one group through the collectives of its job.
pub(in crate::scenario) struct Lane {
    /// The job.
    pub(in crate::scenario) job: u32,
    /// Its nodes in rank order, as they are now.
    pub(super) ranks: Vec<NodeId>,
    /// GPUs in the group.
    pub(in crate::scenario) gpus: u32,
    /// One entry for each collective begun.
    pub(in crate::scenario) steps: Vec<StepRun>,
    /// Nothing was left to rebuild it from.
    pub(in crate::scenario) lost: bool,
    /// Time it stood still because of faults, until now.
    pub(in crate::scenario) down: Picoseconds,
    pub(super) down_since: Option<SimTime>,
    /// Place in the job's program of what it does now or next.
    pub(super) next: usize,
    pub(super) running: Option<Running>,
    /// Dark until somebody relights it.
    pub(super) stopped: bool,
    /// Links that its collectives use.
    pub(super) links: Vec<LinkId>,
}

impl Lane {
    /// The lane of a group of a job.
    pub(super) fn of(group: &RingGroup, gpus_per_node: u8) -> Option<Self> {
        Some(Self {
            job: group.job?,
            ranks: group.ranks.clone(),
            gpus: group.gpus(gpus_per_node),
            steps: Vec::new(),
            lost: false,
            down: Picoseconds::ZERO,
            down_since: None,
            next: 0,
            running: None,
            stopped: false,
            links: Vec::new(),
        })
    }

    /// Whether it has done everything.
    pub(in crate::scenario) fn is_through(&self, program_length: usize) -> bool {
        self.next >= program_length
    }

    /// It stands still from now on, if it has work left.
    pub(super) fn goes_down(&mut self, now: SimTime, program_length: usize) {
        if !self.is_through(program_length) {
            self.down_since.get_or_insert(now);
        }
    }

    /// It goes on from now on.
    pub(super) fn comes_back(&mut self, now: SimTime) {
        if let Some(since) = self.down_since.take() {
            self.down += now.since(since);
        }
    }
}

/// The way of one job through the collectives between its groups.
pub(in crate::scenario) struct Between {
    pub(in crate::scenario) steps: Vec<StepRun>,
    pub(super) running: Option<Running>,
    /// Place in the program after the last one that ended.
    pub(super) passed: usize,
}

/// One collective of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::scenario) struct StepRun {
    /// Place in the job's program, repetitions unrolled.
    pub(in crate::scenario) place: usize,
    /// Index of the collective in the scenario.
    pub(in crate::scenario) collective: usize,
    pub(in crate::scenario) start: SimTime,
    pub(in crate::scenario) end: Option<SimTime>,
    pub(in crate::scenario) ideal: Picoseconds,
    pub(in crate::scenario) ranks: u32,
    pub(in crate::scenario) restarts: u32,
}

/// Which collective begins, over how many ranks, and when.
pub(super) struct Begun {
    pub(super) place: usize,
    pub(super) collective: usize,
    pub(super) ranks: u32,
    pub(super) now: SimTime,
}

/// Notes that a collective begins; where it was begun before and given up, that it begins again.
pub(super) fn note_start(steps: &mut Vec<StepRun>, begun: &Begun, running: &Running) {
    match steps.last_mut() {
        Some(step) if step.end.is_none() && step.place == begun.place => step.restarts += 1,
        _ => steps.push(StepRun {
            place: begun.place,
            collective: begun.collective,
            start: begun.now,
            end: None,
            ideal: running.ideal,
            ranks: begun.ranks,
            restarts: 0,
        }),
    }
}

/// Notes when a collective ended.
pub(super) fn finish_step(steps: &mut [StepRun], at: SimTime) {
    steps.last_mut().expect("what ends has begun").end = Some(at);
}
