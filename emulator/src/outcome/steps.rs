// SPDX-License-Identifier: Apache-2.0

use lightloom_units::{Picoseconds, SimTime};
use serde::Serialize;

use super::StepResult;
use crate::run::{Exposed, WhyResult, is_nothing};

/// Steps of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Steps {
    /// Steps of a fabric, as sums over their phases.
    OfPhases(Vec<StepResult>),
    /// Steps of training jobs, by job.
    OfJobs(Vec<JobStep>),
}

impl Steps {
    /// Returns whether there are no steps.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::OfPhases(steps) => steps.is_empty(),
            Self::OfJobs(steps) => steps.is_empty(),
        }
    }

    /// Returns the measured duration of each step. `None` for unfinished steps.
    pub fn took(&self) -> impl Iterator<Item = Option<Picoseconds>> + '_ {
        let (phases, jobs): (&[StepResult], &[JobStep]) = match self {
            Self::OfPhases(steps) => (steps, &[]),
            Self::OfJobs(steps) => (&[], steps),
        };
        let of_phases = phases.iter().map(|step| step.times.packets);
        of_phases.chain(jobs.iter().map(JobStep::took))
    }

    /// Returns the steps of a fabric's phases.
    pub fn of_phases(&self) -> &[StepResult] {
        match self {
            Self::OfPhases(steps) => steps,
            Self::OfJobs(_) => &[],
        }
    }

    /// Returns the steps of training jobs.
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
    /// Name of the job.
    pub job: String,
    /// Number of GPUs.
    pub gpus: u64,
    /// Index of the step, from 0.
    pub index: u32,
    /// End time of the previous step.
    #[serde(rename = "start_ps")]
    pub start: SimTime,
    /// End time of the last task. `None` if it never finished.
    #[serde(rename = "end_ps")]
    pub end: Option<SimTime>,
    /// End time in the run without faults.
    #[serde(rename = "end_without_faults_ps")]
    pub end_without_faults: Option<SimTime>,
    /// Model FLOPs utilisation, counting attention over the full mask. `None` for unfinished steps.
    pub mfu: Option<f64>,
    /// Closed-form step time, without overlap, contention or faults.
    #[serde(rename = "closed_form_ps")]
    pub closed_form: Picoseconds,
    /// Closed-form step time by part.
    pub closed_form_parts: ClosedForm,
    /// Measured step time by cause. `None` for unfinished steps.
    pub why: Option<WhyResult>,
    /// Number of full or partial restarts.
    pub restarts: u32,
}

impl JobStep {
    /// Returns the duration of the step. `None` if it never finished.
    pub fn took(&self) -> Option<Picoseconds> {
        self.end.map(|end| end.since(self.start))
    }
}

/// Closed-form step time by part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClosedForm {
    /// Computation on the slowest stage, the optimizer, pipeline bubbles and stragglers.
    #[serde(rename = "compute_ps")]
    pub compute: Picoseconds,
    /// Sample generation, which may overlap with training. Absent for training-only jobs.
    #[serde(rename = "generation_ps", skip_serializing_if = "is_nothing")]
    pub generation: Picoseconds,
    /// Exchange time by dimension.
    #[serde(rename = "exposed_ps")]
    pub exposed: Exposed,
}
