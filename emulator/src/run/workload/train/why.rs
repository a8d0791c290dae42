// SPDX-License-Identifier: Apache-2.0
//! Where the time of a step went: its critical path, task by task, from the last end back to the beginning.
//!
//! Each stretch of the path, from the end of the last task waited for to the end of the task, belongs to one cause: what
//! the task takes alone to computing or its dimension, waiting for a node to be replaced to the fault, work that was done
//! and lost to the restart, and the rest to contention. The causes add up to the step, to the picosecond.

use lightloom_training::graph::TaskId;
use lightloom_training::tasks::TaskPurpose;
use lightloom_units::{Picoseconds, SimTime};

use super::super::super::context::Context;
use super::TrainingJob;
use crate::scenario::FaultEvent;

/// Where the time of a step went. Its parts add up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepBreakdown {
    pub(crate) compute: Picoseconds,
    pub(crate) generation: Picoseconds,
    /// Exchange of each dimension: TP, PP, DP, CP, EP; then samples, and weights.
    pub(crate) exposed: [Picoseconds; 7],
    pub(crate) contention: Picoseconds,
    pub(crate) transition: Picoseconds,
    pub(crate) fault: Picoseconds,
    pub(crate) restart: Picoseconds,
}

impl StepBreakdown {
    fn of(&mut self, dimension: TaskPurpose) -> &mut Picoseconds {
        match dimension {
            TaskPurpose::Compute => &mut self.compute,
            TaskPurpose::Generation => &mut self.generation,
            TaskPurpose::Tensor => &mut self.exposed[0],
            TaskPurpose::Pipeline => &mut self.exposed[1],
            TaskPurpose::Data => &mut self.exposed[2],
            TaskPurpose::Context => &mut self.exposed[3],
            TaskPurpose::Expert => &mut self.exposed[4],
            TaskPurpose::Samples => &mut self.exposed[5],
            TaskPurpose::Weights | TaskPurpose::Reshard => &mut self.exposed[6],
        }
    }
}

fn span(from: SimTime, to: SimTime) -> Picoseconds {
    Picoseconds(to.0.saturating_sub(from.0))
}

impl TrainingJob<'_> {
    /// Where the time of the step that has just ended went.
    pub(super) fn why(&self, context: &Context<'_>) -> StepBreakdown {
        let mut why = StepBreakdown::default();
        let Some(start) = self.steps.last().map(|step| step.start) else { return why };
        let last = (0..self.tasks.len()).max_by_key(|task| self.tasks[*task].end);
        let mut at = last.map(|task| TaskId(task as u32));
        let last_before = |phase: usize| {
            self.phases.before(phase).max_by_key(|task| self.tasks[task.index()].end)
        };
        let last_before = [0, 1, 2, 3].map(last_before);
        while let Some(task) = at {
            let after = &self.order.graph.tasks()[task.index()].after;
            at = after.iter().copied().max_by_key(|before| self.tasks[before.index()].end);
            // The circuits of a phase are asked for when the last task of the job before it is done.
            let phase = self.phases.waits_for(task);
            if at.is_some_and(|at| self.phases.is_before(at, phase)) {
                at = last_before[phase]
                    .filter(|last| self.tasks[last.index()].end <= self.tasks[task.index()].begun)
                    .or(at);
            }
            let from = at.map_or(self.round, |before| self.tasks[before.index()].end);
            self.stretch(context, task, from, &mut why);
        }
        // Before the last round, which follows a checkpoint that was read, everything was done in vain or again.
        let again = self.before(start, self.round, &mut why);
        why.restart += again;
        why
    }

    /// The stretch of the path from `from` to the end of `task`.
    fn stretch(&self, context: &Context<'_>, task: TaskId, from: SimTime, why: &mut StepBreakdown) {
        let log = &self.tasks[task.index()];
        let gap = self.before(from, log.begun.max(from), why);
        let took = gap + span(log.begun.max(from), log.end);
        let alone = took.min(log.ideal);
        *why.of(self.order.dimensions[task.index()]) += alone;
        let rest = took.saturating_sub(alone);
        // News of an end travels one shortest delay: that much belongs to what ended.
        if rest <= context.substrate.network.shortest_delay() {
            *why.of(self.order.dimensions[task.index()]) += rest;
        } else if is_disturbed(context, log.begun, log.end) {
            why.fault += rest;
        } else {
            why.contention += rest;
        }
    }

    /// Time before a task began: lost work up to each fault, and waiting from then until the groups went on. Returns what
    /// is neither.
    fn before(&self, from: SimTime, to: SimTime, why: &mut StepBreakdown) -> Picoseconds {
        let mut left = span(from, to);
        let overlaps = |outage: &&(SimTime, SimTime)| outage.0 < to && outage.1 > from;
        let mut outages: Vec<_> = self.outages.iter().filter(overlaps).collect();
        outages.sort_unstable();
        let mut until = from;
        for (began, ended) in outages {
            let lost = span(until, *began);
            let waited = span(until.max(*began), (*ended).min(to));
            why.restart += lost;
            why.fault += waited;
            left = left.saturating_sub(lost + waited);
            until = until.max((*ended).min(to));
        }
        let changing =
            self.changes.iter().map(|(began, ended)| span(from.max(*began), to.min(*ended)));
        let changing = changing.sum::<Picoseconds>().min(left);
        why.transition += changing;
        left.saturating_sub(changing)
    }
}

/// Whether a fault was there at some time between.
fn is_disturbed(context: &Context<'_>, from: SimTime, to: SimTime) -> bool {
    let is_there = |(event, log): (&FaultEvent, &super::super::super::FaultLog)| {
        let over = log.repaired.or(log.restored).unwrap_or(SimTime(u64::MAX));
        !event.from_start && log.mattered.is_some_and(|at| at < to) && over > from
    };
    context.events.iter().zip(&context.faults).any(is_there)
}
