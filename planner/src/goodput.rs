// SPDX-License-Identifier: Apache-2.0
//! Models how interruptions cost a job GPU time: its progress, its recovery policy and the causes
//! of its losses. Times are whole picoseconds of one GPU. The callers decide which part fails when,
//! which job has which nodes, and how the control plane responds.

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
    /// Share of all GPU time during which jobs had all their GPUs.
    pub scheduling: f64,
    /// Share of the scheduled time spent in steps that counted.
    pub runtime: f64,
    /// Utilisation of the GPUs in those steps (MFU).
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
