// SPDX-License-Identifier: Apache-2.0
//! Predicts how long a training step takes on a machine, and which data it sends when.
//!
//! A [`mapping::Mapping`] distributes a [`model::Model`] over GPUs, a [`network::Network`] connects
//! the GPUs, and a [`calibration::Calibration`] holds the measured efficiency of an accelerator and
//! its software. [`step::step_time`] is a pure function of these and returns the time of a step;
//! [`mfu`] and [`goodput`] derive their figures from it. [`search`] tries mappings. [`step_graph`]
//! turns a step into tasks with dependencies for the emulator. [`kineto`], [`chakra`], [`goal`] and
//! [`simai`] read steps that other tools recorded or generated.
//!
//! Analytic times are floating-point seconds, recorded and emulated times are picoseconds, and
//! sizes are bytes.
//!
//! Packets and plans are outside the scope of this crate. A step states its traffic; the planner
//! and the emulator compute how long that traffic takes on a fabric.

pub mod architecture;
pub mod batching;
pub mod calibrated;
pub mod calibration;
pub mod cards;
pub mod chakra;
pub mod chrome;
pub mod claims;
pub mod collectives;
pub mod described;
pub mod exchange;
pub mod explain;
pub mod features;
pub mod fit;
pub mod flops;
pub mod goal;
pub mod goodput;
pub mod graph;
mod hugging_face;
pub mod kineto;
pub mod longest_path;
pub mod machine;
pub mod mapped;
pub mod mapping;
pub mod memory;
pub mod mfu;
pub mod network;
pub mod recorded;
pub mod reinforcement;
pub mod request;
pub mod rescale;
pub mod rollout;
pub mod runs;
pub mod schedule;
pub mod search;
pub mod serving;
pub mod simai;
pub mod step;
pub mod step_graph;

pub use lightloom_fabric::model;
