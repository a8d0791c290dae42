// SPDX-License-Identifier: Apache-2.0
//! Turns a fabric and its faults into plans. All functions are pure, except that the solver of the
//! exact method stops after 20 s. [`plan`] does not validate its result; call [`check`] for that.

#![warn(missing_docs)]

pub mod check;
pub mod goodput;
pub mod joint;
pub mod khop;
pub mod rfabric;
mod solver;
pub mod why;

pub use joint::{Options, PlanError, load, load_with, plan};
