// SPDX-License-Identifier: Apache-2.0
//! What happens on a fabric or a network: one scenario, one run, one result.
//!
//! ```text
//!   scenario.yaml ──▶ scenario ──▶ start ──▶ run ──▶ RunLog ──▶ judge ──▶ Outcome
//!                        │           │        ▲
//!                        └───────────┴── substrate: vertices, links, which links a part is
//! ```
//!
//! * [`scenario`] – what is run, on what, what breaks, what is expected: types, files, the plan at the start;
//! * [`substrate`] – a fabric or a network as vertices and links, and its parts by name;
//! * [`run`] – the only event loop, with its two seams: workloads and control planes;
//! * [`shipped`] – the seam to a control plane that runs instead of being assumed;
//! * [`outcome`] – the result, what it means being in docs/metrics.md; [`sweep`] – that of many seeds;
//! * [`training`] – training steps packet by packet.

mod emulate;
mod judge;
pub mod outcome;
pub mod run;
pub mod scenario;
pub mod shipped;
mod stages;
pub mod substrate;
pub mod sweep;
pub mod training;

pub use emulate::{EmulateError, Finished, RunSettings, emulate, emulate_from, emulate_with, runs};
