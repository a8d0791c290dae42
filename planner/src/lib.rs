// SPDX-License-Identifier: Apache-2.0
//! Pure functions from a fabric and its faults to checked plans. Figures of whole designs: `lightloom-study`.
//!
//! * [`joint`] – one plan for a whole fabric: groups, ranks, and circuits for what is left between leaves;
//! * [`khop`] – its groups: rings of GPUs around what is broken;
//! * [`rfabric`] – its circuits, for each phase of a step;
//! * [`goodput`] – what interruptions cost a job: policies, causes, a job under way;
//! * [`convert`] – plans of earlier versions as plans of this one;
//! * [`check`] – proves a plan, and shares no code with what made it.

#![warn(missing_docs)]

pub mod check;
pub mod convert;
pub mod goodput;
pub mod joint;
pub mod khop;
pub mod rfabric;

pub use joint::{Options, PlanError, load, load_any_version, load_with, plan};
