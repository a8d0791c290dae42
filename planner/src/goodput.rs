// SPDX-License-Identifier: Apache-2.0
//! Models the GPU time that a job loses to interruptions. All times are GPU time in whole picoseconds. The caller
//! provides failure times, node assignments and the control plane's response.

mod cause;
mod policy;
mod stage;
mod training;

use serde::Serialize;

pub use cause::Cause;
pub use policy::{Answer, Policy, Replicas, TrainedJob};
pub use stage::StageName;
pub use training::Training;

/// Goodput over a time span, split into the three factors of arXiv 2502.06982.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goodput {
    /// Fraction of all GPU time during which jobs had all their GPUs.
    pub scheduling: f64,
    /// Fraction of the scheduled time spent in steps that were not lost.
    pub runtime: f64,
    /// Model FLOPs utilisation (MFU) in these steps.
    pub program: f64,
    /// Product of the three factors.
    pub overall: f64,
}

impl Goodput {
    /// Multiplies the three factors.
    pub fn new(scheduling: f64, runtime: f64, program: f64) -> Self {
        Self { scheduling, runtime, program, overall: scheduling * runtime * program }
    }
}
