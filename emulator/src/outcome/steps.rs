// SPDX-License-Identifier: Apache-2.0
//! The steps in a result, which are those of a fabric's phases or of training jobs.

use lightloom_units::{Picoseconds, SimTime};
use serde::Serialize;

use super::StepResult;

/// The steps of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Steps {
    /// The sums over the phases of the fabric's step.
    OfPhases(Vec<StepResult>),
    /// Steps of training jobs, grouped by job.
    OfJobs(Vec<JobStep>),
}

impl Steps {
    /// Returns whether there are no steps.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::OfPhases(steps) => steps.is_empty(),
            Self::OfJobs(steps) => steps.is_empty(),
        }
    }

    /// Returns the measured time of each step, or `None` for a step that never ended.
    pub fn took(&self) -> impl Iterator<Item = Option<Picoseconds>> + '_ {
        let (phases, jobs): (&[StepResult], &[JobStep]) = match self {
            Self::OfPhases(steps) => (steps, &[]),
            Self::OfJobs(steps) => (&[], steps),
        };
        let of_phases = phases.iter().map(|step| step.times.packets);
        of_phases.chain(jobs.iter().map(JobStep::took))
    }

    /// Returns the steps of phases.
    #[must_use]
    pub fn of_phases(&self) -> &[StepResult] {
        match self {
            Self::OfPhases(steps) => steps,
            Self::OfJobs(_) => &[],
        }
    }

    /// Returns the steps of jobs.
    #[must_use]
    pub fn of_jobs(&self) -> &[JobStep] {
        match self {
            Self::OfPhases(_) => &[],
            Self::OfJobs(steps) => steps,
        }
    }
}

/// One step of a training job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobStep {
    /// The job.
    pub job: String,
    /// Its number of GPUs.
    pub gpus: u64,
    /// The index of the step, from 0.
    pub index: u32,
    /// Time when the previous step ended.
    #[serde(rename = "start_ps")]
    pub start: SimTime,
    /// Time when its last task ended. `None` if it never did.
    #[serde(rename = "end_ps")]
    pub end: Option<SimTime>,
    /// Time when it ended in the run without faults.
    #[serde(rename = "end_without_faults_ps")]
    pub end_without_faults: Option<SimTime>,
    /// Model FLOPs utilisation, which counts attention over the full mask. `None` if the step never
    /// ended.
    pub mfu: Option<f64>,
    /// Closed form of the step, without overlap, contention or faults.
    #[serde(rename = "closed_form_ps")]
    pub closed_form: Picoseconds,
    /// The closed form by part.
    pub closed_form_parts: ClosedForm,
    /// The measured time by cause. `None` if the step never ended.
    pub why: Option<WhyResult>,
    /// Number of restarts of the step or a part of it.
    pub restarts: u32,
}

impl JobStep {
    /// Returns the time, or `None` if it never ended.
    #[must_use]
    pub fn took(&self) -> Option<Picoseconds> {
        self.end.map(|end| end.since(self.start))
    }
}

/// The closed form of a step by part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClosedForm {
    /// Computation on the slowest stage, the optimizer, and waiting in the pipeline and for stragglers.
    #[serde(rename = "compute_ps")]
    pub compute: Picoseconds,
    /// Generation of the samples, which may overlap with training. Absent in a job that only
    /// trains.
    #[serde(rename = "generation_ps", skip_serializing_if = "is_nothing")]
    pub generation: Picoseconds,
    /// Exchange by dimension.
    #[serde(rename = "exposed_ps")]
    pub exposed: Exposed,
}

/// Exchange time in a step, by dimension of the mapping.
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
    /// Transfer of samples to the trainer and of caches between replicas. Absent in a job that only trains.
    #[serde(skip_serializing_if = "is_nothing")]
    pub samples: Picoseconds,
    /// Transfer of new weights to replicas. Absent in a job that only trains.
    #[serde(skip_serializing_if = "is_nothing")]
    pub weights: Picoseconds,
}

fn is_nothing(time: &Picoseconds) -> bool {
    time.0 == 0
}

/// The time of a step by cause, along its critical path. The parts add up exactly to the step's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WhyResult {
    /// Computation on the critical path, including that of stages for which another stage waits.
    #[serde(rename = "compute_ps")]
    pub compute: Picoseconds,
    /// Generation on the critical path. Absent without generation.
    #[serde(rename = "generation_ps", skip_serializing_if = "is_nothing")]
    pub generation: Picoseconds,
    /// Exchange on the critical path, at its time without contention.
    #[serde(rename = "exposed_ps")]
    pub exposed: Exposed,
    /// Additional exchange time due to contention, except during faults.
    #[serde(rename = "contention_ps")]
    pub contention: Picoseconds,
    /// Time spent waiting for a circuit change.
    #[serde(rename = "transition_ps")]
    pub transition: Picoseconds,
    /// Time from a fault until the groups that it hit could continue, plus the additional exchange
    /// time during a fault.
    #[serde(rename = "fault_ps")]
    pub fault: Picoseconds,
    /// Lost work that was repeated.
    #[serde(rename = "restart_ps")]
    pub restart: Picoseconds,
}
