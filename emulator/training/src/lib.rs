// SPDX-License-Identifier: Apache-2.0
//! How long a step of training takes on a machine, and what it sends and when.
//!
//! A [`model::Model`] is cut over GPUs by a [`mapping::Mapping`]; a [`network::Network`] joins the GPUs, and a
//! [`calibration::Calibration`] holds what was measured of an accelerator and its software. [`step::step_time`] is a pure
//! function of these: the time of a step, from which come [`mfu`] and [`goodput`]. [`search`] tries mappings, `lightloom-step`
//! evaluates a step, and [`kineto`], [`chakra`], [`goal`] and [`simai`] read the
//! steps that other tools recorded.
//!
//! Computing is in seconds of floating point, recorded and emulated steps in picoseconds, sizes in bytes.
//!
//! Not here: packets and plans. A step says what is sent; the planner and the emulator say how long that takes on a fabric.

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
pub mod explain;
pub mod features;
pub mod fit;
pub mod flops;
pub mod goal;
pub mod goodput;
pub mod kineto;
pub mod mapped;
pub mod memory;
pub mod mfu;
pub mod recorded;
pub mod reinforcement;
pub mod request;
pub mod rescale;
pub mod rollout;
pub mod runs;
pub mod search;
pub mod serving;
pub mod simai;
pub mod step;

pub use lightloom_fabric::model;
pub use lightloom_step::{graph, longest_path, machine, mapping, network, schedule, tasks};
