// SPDX-License-Identifier: Apache-2.0
//! The task graph of one training step with explicit overlap.
//!
//! A [`work::StepWork`] contains durations and sizes, which `lightloom-training` computes from kernels
//! and links. [`work::StepWork::time`] evaluates it on idle links, and [`tasks::step_tasks`] creates
//! tasks for packet simulation. The results differ only by contention and faults.
//!
//! ```text
//!   layer    segments of computation, each with the exchange that it overlaps
//!   pass     layers of a model chunk; the transfer to the next stage overlaps with the last layer
//!   step     passes in the order of the schedule; weights are gathered in the first pass, gradients reduced in the last
//! ```

pub mod graph;
pub mod longest_path;
pub mod machine;
pub mod mapping;
pub mod network;
pub mod program;
pub mod schedule;
pub mod tasks;
pub mod work;
