// SPDX-License-Identifier: Apache-2.0
//! Models the GPU time that interruptions cost a job: the job's progress, its recovery policy and
//! the causes of lost time. Times are whole picoseconds of one GPU. Callers decide when each part
//! fails, which nodes each job has, and how the control plane responds.

mod cause;
mod policy;
mod stage;
mod training;

use serde::Serialize;

pub use cause::Cause;
pub use policy::{Answer, Policy, Replicas, TrainedJob};
pub use stage::StageName;
pub use training::Training;

/// Goodput over a span, split into the three factors of arXiv 2502.06982.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goodput {
    /// Share of all GPU time while jobs had all their GPUs.
    pub scheduling: f64,
    /// Share of the scheduled time spent in steps that were not lost.
    pub runtime: f64,
    /// Utilisation of the GPUs in these steps (MFU).
    pub program: f64,
    /// Product of the three factors.
    pub overall: f64,
}

impl Goodput {
    /// Multiplies the three factors.
    #[must_use]
    pub fn new(scheduling: f64, runtime: f64, program: f64) -> Self {
        Self { scheduling, runtime, program, overall: scheduling * runtime * program }
    }
}
