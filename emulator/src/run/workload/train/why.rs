// SPDX-License-Identifier: Apache-2.0
//! Step time by cause, computed backwards along the critical path.
//!
//! A task's time without contention is attributed to computation or to its dimension, waiting for a
//! replaced node to `fault`, lost work to `restart`, and the rest to contention. Fault and restart
//! time is attributed to the earliest active fault that stopped the groups. All parts add up exactly.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_training::graph::TaskId;
use lightloom_training::tasks::TaskPurpose;
use lightloom_units::{Picoseconds, SimTime};
use serde::Serialize;

use super::super::super::context::Context;
use super::tasks::rings_of;
use super::{Interruption, TaskLog, TrainingJob};

/// Exchange time of a step by parallel dimension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exposed {
    /// Tensor parallelism.
    pub tp: Picoseconds,
    /// Pipeline parallelism.
    pub pp: Picoseconds,
    /// Data parallelism.
    pub dp: Picoseconds,
    /// Context parallelism.
    pub cp: Picoseconds,
    /// Expert parallelism.
    pub ep: Picoseconds,
    /// Transfer of samples and of caches between replicas. Absent for training-only jobs.
    #[serde(skip_serializing_if = "is_nothing")]
    pub samples: Picoseconds,
    /// Transfer of new weights to replicas. Absent for training-only jobs.
    #[serde(skip_serializing_if = "is_nothing")]
    pub weights: Picoseconds,
}

impl Exposed {
    /// Returns the sum over all dimensions.
    pub fn total(&self) -> Picoseconds {
        self.tp + self.pp + self.dp + self.cp + self.ep + self.samples + self.weights
    }
}

pub(crate) fn is_nothing(time: &Picoseconds) -> bool {
    time.0 == 0
}

/// Step time by cause along the critical path. The parts add up exactly to the step time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WhyResult {
    /// Computation on the critical path, including stages that another stage waits for.
    #[serde(rename = "compute_ps")]
    pub compute: Picoseconds,
    /// Generation on the critical path. Absent without generation.
    #[serde(rename = "generation_ps", skip_serializing_if = "is_nothing")]
    pub generation: Picoseconds,
    /// Exchange time on the critical path, excluding contention.
    #[serde(rename = "exposed_ps")]
    pub exposed: Exposed,
    /// Additional exchange time due to contention while no fault is active.
    #[serde(rename = "contention_ps")]
    pub contention: Picoseconds,
    /// Time waiting for a circuit change.
    #[serde(rename = "transition_ps")]
    pub transition: Picoseconds,
    /// Time until affected groups could continue, and additional exchange time during faults.
    #[serde(rename = "fault_ps")]
    pub fault: Picoseconds,
    /// Time spent redoing lost work.
    #[serde(rename = "restart_ps")]
    pub restart: Picoseconds,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepBreakdown {
    pub(crate) parts: WhyResult,
    pub(crate) by_fault: BTreeMap<usize, [Picoseconds; 2]>,
}

impl StepBreakdown {
    fn lose(&mut self, fault: Option<usize>, waited: Picoseconds, redone: Picoseconds) {
        self.parts.fault += waited;
        self.parts.restart += redone;
        if let Some(fault) = fault {
            let parts = self.by_fault.entry(fault).or_default();
            parts[0] += waited;
            parts[1] += redone;
        }
    }

    fn of(&mut self, dimension: TaskPurpose) -> &mut Picoseconds {
        let WhyResult { compute, generation, exposed, .. } = &mut self.parts;
        match dimension {
            TaskPurpose::Compute => compute,
            TaskPurpose::Generation => generation,
            TaskPurpose::Tensor => &mut exposed.tp,
            TaskPurpose::Pipeline => &mut exposed.pp,
            TaskPurpose::Data => &mut exposed.dp,
            TaskPurpose::Context => &mut exposed.cp,
            TaskPurpose::Expert => &mut exposed.ep,
            TaskPurpose::Samples => &mut exposed.samples,
            TaskPurpose::Weights | TaskPurpose::Reshard => &mut exposed.weights,
        }
    }
}

fn span(from: SimTime, to: SimTime) -> Picoseconds {
    Picoseconds(to.0.saturating_sub(from.0))
}

/// Adds up the causes of the time that a job's last step took.
pub(super) struct StepAudit<'a, 'c> {
    job: &'a TrainingJob<'a>,
    context: &'a Context<'c>,
    why: StepBreakdown,
}

impl<'a, 'c> StepAudit<'a, 'c> {
    pub(super) fn of(job: &'a TrainingJob<'a>, context: &'a Context<'c>) -> StepBreakdown {
        let mut audit = Self { job, context, why: StepBreakdown::default() };
        if let Some(step) = job.steps.last() {
            audit.walk_back(step.start);
        }
        audit.why
    }

    fn walk_back(&mut self, start: SimTime) {
        let job = self.job;
        let last = (0..job.tasks.len()).max_by_key(|task| job.tasks[*task].end);
        let mut at = last.map(|task| TaskId(task as u32));
        let last_before = [0, 1, 2, 3]
            .map(|phase| job.phases.before(phase).max_by_key(|task| job.tasks[task.index()].end));
        while let Some(task) = at {
            let after = &job.order.graph.tasks()[task.index()].after;
            at = after.iter().copied().max_by_key(|before| job.tasks[before.index()].end);
            let phase = job.phases.waits_for(task);
            if at.is_some_and(|at| job.phases.is_before(at, phase)) {
                at = last_before[phase]
                    .filter(|last| job.tasks[last.index()].end <= job.tasks[task.index()].begun)
                    .or(at);
            }
            let from = at.map_or(job.round, |before| job.tasks[before.index()].end);
            self.stretch(task, from);
        }
        // Ignore work before the last checkpoint load, because it was lost or repeated.
        let every: BTreeSet<u32> = (0..job.seats.len() as u32).collect();
        let again = self.before(start, job.round, &every);
        let fault = job.outages.last().and_then(|outage| outage.fault);
        self.why.lose(fault, Picoseconds::ZERO, again);
    }

    fn stretch(&mut self, task: TaskId, from: SimTime) {
        let job = self.job;
        let log = &job.tasks[task.index()];
        let work = &job.order.graph.tasks()[task.index()].work;
        let rings = rings_of(work, job.order.tensor()).into_iter().collect();
        let gap = self.before(from, log.begun.max(from), &rings);
        let took = gap + span(log.begun.max(from), log.end);
        let alone = took.min(log.ideal);
        *self.why.of(job.order.dimensions[task.index()]) += alone;
        let rest = took.saturating_sub(alone);
        // Attribute the reporting delay, which is the shortest network delay, to the task that ended.
        if rest <= self.context.substrate.network.shortest_delay() {
            *self.why.of(job.order.dimensions[task.index()]) += rest;
        } else {
            self.disturbances(log, rest);
        }
    }

    fn before(&mut self, from: SimTime, to: SimTime, rings: &BTreeSet<u32>) -> Picoseconds {
        let mut left = span(from, to);
        let mut outages: Vec<&Interruption> = self.job.outages.iter().collect();
        outages.retain(|outage| {
            outage.began < to && outage.ended > from && !outage.rings.is_disjoint(rings)
        });
        outages.sort_unstable_by_key(|outage| (outage.began, outage.ended));
        let mut until = from;
        for outage in outages {
            let ended = outage.ended.min(to);
            let lost = span(until, outage.began);
            let waited = span(until.max(outage.began), ended);
            self.why.lose(outage.fault, waited, lost);
            left = left.saturating_sub(lost + waited);
            until = until.max(ended);
        }
        let changing =
            self.job.changes.iter().map(|(began, ended)| span(from.max(*began), to.min(*ended)));
        let changing = changing.sum::<Picoseconds>().min(left);
        self.why.parts.transition += changing;
        left.saturating_sub(changing)
    }

    fn disturbances(&mut self, task: &TaskLog, mut delay: Picoseconds) {
        let (from, to) = (task.begun, task.end);
        let faults = self.context.faults.iter().enumerate().filter_map(|(fault, log)| {
            let began = log.mattered.filter(|at| *at < to && log.over() > from)?;
            Some((began, fault))
        });
        let mut faults: Vec<_> = faults.collect();
        if faults.iter().any(|(_, fault)| self.job.hit_by.contains(fault)) {
            faults.retain(|(_, fault)| self.job.hit_by.contains(fault));
        }
        faults.sort_unstable();
        let mut until = from;
        for (at, (began, fault)) in faults.iter().enumerate() {
            let over = self.context.faults[*fault].over();
            let is_last = at + 1 == faults.len();
            let part =
                if is_last { delay } else { span(until.max(*began), over.min(to)).min(delay) };
            self.why.lose(Some(*fault), part, Picoseconds::ZERO);
            delay = delay.saturating_sub(part);
            until = until.max(over);
        }
        self.why.parts.contention += delay;
    }
}
