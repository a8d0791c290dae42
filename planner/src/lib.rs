// SPDX-License-Identifier: Apache-2.0
//! Functions that turn a fabric and its faults into plans. They are pure, except that the exact
//! method's solver stops after 20 s. [`plan`] does not check its result; callers pass it to
//! [`check`]. `lightloom-study` evaluates whole designs.
//!
//! * [`joint`] plans a whole fabric: groups, ranks, and circuits for the traffic between leaves.
//! * [`khop`] builds the groups: rings of GPUs that bypass faults.
//! * [`rfabric`] chooses the circuits of each phase of a step.
//! * [`goodput`] computes the cost of interruptions to a job: policies, causes, training progress.
//! * [`check`] proves a plan. It shares only the readers of models and steps with the planner.

#![warn(missing_docs)]

pub mod check;
pub mod goodput;
pub mod joint;
pub mod khop;
pub mod rfabric;

pub use joint::{Options, PlanError, load, load_with, plan};
