// SPDX-License-Identifier: Apache-2.0
//! Training steps on a machine: durations, traffic and order.
//!
//! A [`model::Model`] is distributed over GPUs by a [`mapping::Mapping`]. A [`network::Network`] connects the GPUs, and
//! a [`calibration::Calibration`] holds measured constants of an accelerator with its software. [`step::step_time`], a
//! pure function of these, returns the duration of a step, from which [`mfu`] follows. [`search`] tries
//! mappings, `lightloom-step` evaluates a step, and [`kineto`], [`chakra`], [`goal`] and [`simai`] read steps from
//! other tools.
//!
//! Computed times are floating-point seconds, recorded and emulated times are picoseconds.

pub mod architecture;
pub mod bands;
pub mod batching;
pub mod calibrated;
pub mod calibration;
pub mod cards;
pub mod chakra;
pub mod chrome;
pub mod collectives;
pub mod connection_matrix;
pub mod described;
pub mod exchange;
pub mod explain;
pub mod features;
pub mod fit;
pub mod flops;
pub mod gain;
pub mod goal;
mod hugging_face;
pub mod kineto;
pub mod mapped;
pub mod memory;
pub mod mfu;
pub mod operators;
pub mod recorded;
pub mod reinforcement;
pub mod request;
pub mod rollout;
pub mod runs;
pub mod search;
pub mod serving;
pub mod simai;
pub mod step;

pub use lightloom_fabric::model;
pub use lightloom_step::{graph, longest_path, machine, mapping, network, schedule, tasks};
