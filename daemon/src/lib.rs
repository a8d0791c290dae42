// SPDX-License-Identifier: Apache-2.0
//! `lightloomd` drives transceivers, optical switches and Linux switches.
//!
//! ```text
//!   plan ──▶ target ─┐                   ┌──▶ driver ──▶ device
//!                    ▼          Send     │
//!   clients ──▶ controller ─────────────▶ runtime ──▶ journal (durable before any Send after it)
//!                    ▲                   │
//!                    └─ replies, time ───┘
//! ```
//!
//! The controller and all policies are in [`lightloom_control`]; this crate adds the I/O. Without
//! the feature `edges`, only the configuration file is compiled.

#[cfg(feature = "edges")]
pub mod api;
#[cfg(feature = "edges")]
pub mod audit;
#[cfg(feature = "edges")]
pub mod check;
#[cfg(feature = "edges")]
pub mod clock;
#[cfg(feature = "edges")]
pub mod cluster;
pub mod config;
#[cfg(feature = "edges")]
pub mod disk;
#[cfg(feature = "edges")]
pub mod driver;
#[cfg(feature = "edges")]
pub mod fence;
#[cfg(feature = "edges")]
pub mod file_storage;
#[cfg(feature = "edges")]
pub mod hooks;
#[cfg(feature = "edges")]
pub mod http;
#[cfg(feature = "edges")]
pub mod job_lines;
#[cfg(feature = "edges")]
pub mod metrics;
pub mod protocol;
pub mod rate;
#[cfg(feature = "edges")]
pub mod runtime;
#[cfg(feature = "edges")]
pub mod serve;
#[cfg(feature = "edges")]
pub mod service;
#[cfg(feature = "edges")]
pub mod start;
#[cfg(feature = "edges")]
pub mod tend;
#[cfg(feature = "edges")]
pub mod traces;
#[cfg(feature = "edges")]
pub mod view;

pub use lightloom_control::journal;
