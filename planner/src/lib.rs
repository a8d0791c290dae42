// SPDX-License-Identifier: Apache-2.0
//! Pure functions that turn a fabric and its faults into checked plans. Evaluations of whole
//! designs are in `lightloom-study`.
//!
//! * [`joint`] plans a whole fabric: groups, ranks, and circuits for the traffic between leaves.
//! * [`khop`] builds the groups: rings of GPUs that bypass faults.
//! * [`rfabric`] chooses the circuits of each phase of a step.
//! * [`goodput`] computes the cost of interruptions to a job: policies, causes, training progress.
//! * [`check`] proves a plan and shares no code with the planner.

#![warn(missing_docs)]

pub mod check;
pub mod goodput;
pub mod joint;
pub mod khop;
pub mod rfabric;

pub use joint::{Options, PlanError, load, load_with, plan};
