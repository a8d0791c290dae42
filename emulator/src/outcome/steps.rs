// SPDX-License-Identifier: Apache-2.0
//! Steps of a result: those of a fabric's phases, or those of jobs that train.

use lightloom_units::{Picoseconds, SimTime};
use serde::Serialize;

use super::StepResult;

/// The steps of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Steps {
    /// The sums over the phases of the fabric's step.
    OfPhases(Vec<StepResult>),
    /// Steps of jobs that train, job after job.
    OfJobs(Vec<JobStep>),
}

impl Steps {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::OfPhases(steps) => steps.is_empty(),
            Self::OfJobs(steps) => steps.is_empty(),
        }
    }

    /// What packets took for each; `None` for those that never ended.
    pub fn took(&self) -> impl Iterator<Item = Option<Picoseconds>> + '_ {
        let (phases, jobs): (&[StepResult], &[JobStep]) = match self {
            Self::OfPhases(steps) => (steps, &[]),
            Self::OfJobs(steps) => (&[], steps),
        };
        let of_phases = phases.iter().map(|step| step.times.packets);
        of_phases.chain(jobs.iter().map(JobStep::took))
    }

    /// The steps of phases.
    #[must_use]
    pub fn of_phases(&self) -> &[StepResult] {
        match self {
            Self::OfPhases(steps) => steps,
            Self::OfJobs(_) => &[],
        }
    }

    /// The steps of jobs.
    #[must_use]
    pub fn of_jobs(&self) -> &[JobStep] {
        match self {
            Self::OfPhases(_) => &[],
            Self::OfJobs(steps) => steps,
        }
    }
}

/// One step of a job that trains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobStep {
    /// The job.
    pub job: String,
    /// Its GPUs.
    pub gpus: u64,
    /// Which step, from 0.
    pub index: u32,
    /// When the step before it ended.
    #[serde(rename = "start_ps")]
    pub start: SimTime,
    /// When its last task ended. `None` if it never did.
    #[serde(rename = "end_ps")]
    pub end: Option<SimTime>,
    /// When it ended in the run without faults.
    #[serde(rename = "end_without_faults_ps")]
    pub end_without_faults: Option<SimTime>,
    /// Model operations, attention over the full mask, as a share of what its GPUs could do. `None` if it never ended.
    pub mfu: Option<f64>,
    /// Its closed form: nothing hidden, no contention, no faults.
    #[serde(rename = "closed_form_ps")]
    pub closed_form: Picoseconds,
    /// Where the closed form sees the time go.
    pub closed_form_parts: ClosedForm,
    /// Where the time went. `None` if it never ended.
    pub why: Option<WhyResult>,
    /// How often some of it was begun again.
    pub restarts: u32,
}

impl JobStep {
    /// What it took. `None` if it never ended.
    #[must_use]
    pub fn took(&self) -> Option<Picoseconds> {
        self.end.map(|end| end.since(self.start))
    }
}

/// Where the closed form sees the time of a step go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClosedForm {
    /// Computing on the slowest stage, the optimizer, and waiting in the pipeline.
    #[serde(rename = "compute_ps")]
    pub compute: Picoseconds,
    /// Generation of the samples, beside which training may go on; absent in a job that only trains.
    #[serde(rename = "generation_ps", skip_serializing_if = "is_nothing")]
    pub generation: Picoseconds,
    /// Exchange by dimension.
    #[serde(rename = "exposed_ps")]
    pub exposed: Exposed,
}

/// Exchange of a step, by dimension of the mapping.
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
    /// Samples to the trainer and caches between replicas; absent in a job that only trains.
    #[serde(skip_serializing_if = "is_nothing")]
    pub samples: Picoseconds,
    /// New weights to replicas; absent in a job that only trains.
    #[serde(skip_serializing_if = "is_nothing")]
    pub weights: Picoseconds,
}

fn is_nothing(time: &Picoseconds) -> bool {
    time.0 == 0
}

/// Where the time of a step went: its critical path, by cause. The parts add up to the step, to the picosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WhyResult {
    /// Computing on the critical path: that of other stages, for which a stage waits, is part of it.
    #[serde(rename = "compute_ps")]
    pub compute: Picoseconds,
    /// Generation on the critical path; absent where there is none.
    #[serde(rename = "generation_ps", skip_serializing_if = "is_nothing")]
    pub generation: Picoseconds,
    /// Exchange on the critical path, as long as it takes alone.
    #[serde(rename = "exposed_ps")]
    pub exposed: Exposed,
    /// What exchange took longer than alone, without a fault.
    #[serde(rename = "contention_ps")]
    pub contention: Picoseconds,
    /// Waiting for a change of circuits.
    #[serde(rename = "transition_ps")]
    pub transition: Picoseconds,
    /// From a fault until the groups it hit could go on, and what exchange took longer while a fault was there.
    #[serde(rename = "fault_ps")]
    pub fault: Picoseconds,
    /// Work that was done, lost and done again.
    #[serde(rename = "restart_ps")]
    pub restart: Picoseconds,
}
