// SPDX-License-Identifier: Apache-2.0
//! What interruptions cost a job: what it does that has lost a node, and where its GPU time goes.
//!
//! Months of a scenario (`emulator/src/months/`) and designs to buy (`planner/study/src/buy/`) are made of the same
//! [`Training`] under the same [`Policy`], and count the same [`Cause`]s. Time is whole picoseconds of one GPU.
//!
//! Not here: what fails when, who has which nodes, and what the control plane does about it.

mod cause;
mod policy;
mod stage;
mod training;

use serde::Serialize;

pub use cause::Cause;
pub use policy::{Answer, Policy, Replicas, TrainedJob};
pub use stage::StageName;
pub use training::Training;

/// Goodput over a span, by the three factors of arXiv 2502.06982.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goodput {
    /// Share of all GPU time in which jobs had all their GPUs.
    pub scheduling: f64,
    /// Share of that in steps that counted.
    pub runtime: f64,
    /// Utilisation of the GPUs in these steps: MFU.
    pub program: f64,
    /// Their product.
    pub overall: f64,
}

impl Goodput {
    /// Of its factors.
    #[must_use]
    pub fn new(scheduling: f64, runtime: f64, program: f64) -> Self {
        Self { scheduling, runtime, program, overall: scheduling * runtime * program }
    }
}
