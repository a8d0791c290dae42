// SPDX-License-Identifier: Apache-2.0
//! The task graph of one training step with explicit overlap.
//!
//! A [`work::StepWork`] holds durations and sizes. `lightloom-training` computes them from kernels and links. Two evaluations
//! read its [`program::LayerProgram`]s: [`work::StepWork::time`] returns seconds on idle links for `mfu`, and [`tasks::step_tasks`]
//! returns tasks for packets. They differ only by contention and faults.
//!
//! ```text
//!   layer    stretches of computing, each with the exchange that it overlaps
//!   pass     layers of a piece of a stage, the transfer to the next stage during the last of them
//!   step     passes in the order of the schedule; weights are gathered in the first pass, gradients reduced in the last
//! ```
//! Not here: durations of kernels, and places of ranks.

pub mod graph;
pub mod longest_path;
pub mod machine;
pub mod mapping;
pub mod network;
pub mod program;
pub mod schedule;
pub mod tasks;
pub mod work;
