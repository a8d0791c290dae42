// SPDX-License-Identifier: Apache-2.0
//! Where the time of a step went: its critical path, task by task, from the last end back to the beginning.
//!
//! Each stretch of the path, from the end of the last task waited for to the end of the task, belongs to one cause: what
//! the task takes alone to computing or its dimension, waiting for a node to be replaced to the fault, work that was done
//! and lost to the restart, and the rest to contention. The causes add up to the step, to the picosecond.
//!
//! Time of the fault and the restart belongs to the earliest fault still in effect that holds the groups of the task.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_training::graph::TaskId;
use lightloom_training::step_graph::TaskPurpose;
use lightloom_units::{Picoseconds, SimTime};

use super::super::super::context::Context;
use super::tasks::rings_of;
use super::{Outage, TrainingJob};

/// Where the time of a step went. Its parts add up to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepBreakdown {
    pub(crate) compute: Picoseconds,
    pub(crate) generation: Picoseconds,
    /// Exchange of each dimension: TP, PP, DP, CP, EP; then samples, and weights.
    pub(crate) exposed: [Picoseconds; 7],
    pub(crate) contention: Picoseconds,
    pub(crate) transition: Picoseconds,
    pub(crate) fault: Picoseconds,
    pub(crate) restart: Picoseconds,
    /// Of the last two, the part of each fault: waiting, and work that was lost.
    pub(crate) by_fault: BTreeMap<usize, [Picoseconds; 2]>,
}

impl StepBreakdown {
    fn lose(&mut self, fault: Option<usize>, waited: Picoseconds, redone: Picoseconds) {
        self.fault += waited;
        self.restart += redone;
        if let Some(fault) = fault {
            let parts = self.by_fault.entry(fault).or_default();
            parts[0] += waited;
            parts[1] += redone;
        }
    }

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
        let every: BTreeSet<u32> = (0..self.seats.len() as u32).collect();
        let again = self.before((start, self.round), &every, &mut why);
        why.lose(self.outages.last().and_then(|outage| outage.fault), Picoseconds::ZERO, again);
        why
    }

    /// The stretch of the path from `from` to the end of `task`.
    fn stretch(&self, context: &Context<'_>, task: TaskId, from: SimTime, why: &mut StepBreakdown) {
        let log = &self.tasks[task.index()];
        let work = &self.order.graph.tasks()[task.index()].work;
        let rings = rings_of(work, self.order.tensor()).into_iter().collect();
        let gap = self.before((from, log.begun.max(from)), &rings, why);
        let took = gap + span(log.begun.max(from), log.end);
        let alone = took.min(log.ideal);
        *why.of(self.order.dimensions[task.index()]) += alone;
        let rest = took.saturating_sub(alone);
        // News of an end travels one shortest delay: that much belongs to what ended.
        if rest <= context.substrate.network.shortest_delay() {
            *why.of(self.order.dimensions[task.index()]) += rest;
        } else if let Some(fault) = self.disturbed_by(context, log.begun, log.end) {
            why.lose(Some(fault), rest, Picoseconds::ZERO);
        } else {
            why.contention += rest;
        }
    }

    /// Accounts for the time before a task of these groups began: work lost at each fault, then waiting until the restart.
    /// Returns the rest.
    fn before(
        &self,
        (from, to): (SimTime, SimTime),
        rings: &BTreeSet<u32>,
        why: &mut StepBreakdown,
    ) -> Picoseconds {
        let mut left = span(from, to);
        let overlaps = |outage: &&Outage| {
            outage.began < to && outage.ended > from && !outage.rings.is_disjoint(rings)
        };
        let mut outages: Vec<&Outage> = self.outages.iter().filter(overlaps).collect();
        outages.sort_unstable_by_key(|outage| (outage.began, outage.ended));
        let mut until = from;
        for outage in outages {
            let ended = outage.ended.min(to);
            let lost = span(until, outage.began);
            let waited = span(until.max(outage.began), ended);
            why.lose(outage.fault, waited, lost);
            left = left.saturating_sub(lost + waited);
            until = until.max(ended);
        }
        let changing =
            self.changes.iter().map(|(began, ended)| span(from.max(*began), to.min(*ended)));
        let changing = changing.sum::<Picoseconds>().min(left);
        why.transition += changing;
        left.saturating_sub(changing)
    }

    /// The earliest fault that was in effect at some time between, of those that hit the job if any did.
    fn disturbed_by(&self, context: &Context<'_>, from: SimTime, to: SimTime) -> Option<usize> {
        let is_there = |fault: &usize| {
            let log = &context.faults[*fault];
            let began = log.mattered.is_some_and(|at| at < to);
            !context.events[*fault].from_start && began && log.over() > from
        };
        let there = (0..context.faults.len()).filter(is_there);
        there.min_by_key(|fault| (!self.hit_by.contains(fault), context.faults[*fault].mattered))
    }
}
