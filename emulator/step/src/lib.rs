// SPDX-License-Identifier: Apache-2.0
//! One training step: what ranks compute and exchange, in which order, and what covers what.
//!
//! A [`work::StepWork`] holds durations and sizes; whoever knows kernels and links makes one. It is evaluated twice, from the
//! same [`program::Program`]s: in seconds on idle links ([`work::StepWork::time`]), which is what `mfu` prints, and as tasks
//! ([`tasks::step_tasks`]), which packets run. What lies between both is contention, and faults.
//!
//! ```text
//!   layer    stretches of computing, each with the exchange that it covers
//!   pass     layers of a piece of a stage, the transfer to the next stage during the last of them
//!   step     passes in the order of the schedule; weights gathered during the first pass, gradients reduced during the last
//! ```
//! Not here: how long kernels take, and where ranks are.

pub mod graph;
pub mod longest_path;
pub mod machine;
pub mod mapping;
pub mod network;
pub mod program;
pub mod schedule;
pub mod tasks;
pub mod work;
