// SPDX-License-Identifier: Apache-2.0
//! Turns a fabric and its faults into plans. All functions are pure, except that the solver of the
//! exact method stops after 20 s. [`plan`] does not validate its result; call [`check`] for that.
//!
//! * [`joint`] plans the groups, ranks, and circuits between leaves of a whole fabric.
//! * [`khop`] forms groups, which are rings of GPUs that bypass faults.
//! * [`rfabric`] chooses the circuits of each phase of a step.
//! * [`goodput`] models the cost of interruptions to a job.
//! * [`check`] validates a plan. It shares only the parsers of models and steps with the planner.

#![warn(missing_docs)]

pub mod check;
pub mod goodput;
pub mod joint;
pub mod khop;
pub mod rfabric;

pub use joint::{Options, PlanError, load, load_with, plan};
