// SPDX-License-Identifier: Apache-2.0
//! Functions that turn a fabric and its faults into plans. They are pure, except that the solver of
//! the exact method stops after 20 s. [`plan`] does not check its result; callers pass it to
//! [`check`]. Evaluations of whole designs are in `lightloom-study`.
//!
//! * [`joint`] plans a whole fabric: groups, ranks, and circuits for the traffic between leaves.
//! * [`khop`] builds the groups: rings of GPUs that bypass faults.
//! * [`rfabric`] chooses the circuits of each phase of a step.
//! * [`goodput`] computes the cost of interruptions to a job: policies, causes, training progress.
//! * [`check`] proves a plan. Of the planner's code it uses only the readers of models and steps.

#![warn(missing_docs)]

pub mod check;
pub mod goodput;
pub mod joint;
pub mod khop;
pub mod rfabric;

pub use joint::{Options, PlanError, load, load_with, plan};
