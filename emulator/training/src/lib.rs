// SPDX-License-Identifier: Apache-2.0
//! How fast a model trains on a fabric.
//!
//! ```text
//!  Model ──▶ flops ─┐
//!                   ├─▶ step (analytic) ──▶ StepTime ──▶ mfu ──▶ goodput
//!  Mapping ▶ bytes ─┤        ▲                 ▲
//!          ▶ memory │   Calibration         schedule
//!  Network ─────────┘
//! ```
//!
//! A [`model::Model`] is a set of dimensions, a [`mapping::Mapping`] says how it is cut over GPUs, a
//! [`network::Network`] says what joins them, a [`calibration::Calibration`] holds what was measured of an
//! accelerator and its software. From these, [`step::step_time`] is a pure function.

pub mod architecture;
pub mod calibrated;
pub mod calibration;
pub mod cards;
pub mod chakra;
pub mod chrome;
pub mod claims;
pub mod described;
pub mod explain;
pub mod fit;
pub mod flops;
pub mod goal;
pub mod goodput;
pub mod graph;
pub mod kineto;
pub mod longest_path;
pub mod machine;
pub mod mapped;
pub mod mapping;
pub mod memory;
pub mod mfu;
pub mod network;
pub mod recorded;
pub mod request;
pub mod runs;
pub mod schedule;
pub mod search;
pub mod simai;
pub mod step;
pub mod step_graph;

pub use lightloom_fabric::model;
