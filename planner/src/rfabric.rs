// SPDX-License-Identifier: Apache-2.0
//! Plans a reconfigurable fat-tree: the circuits of each phase, and when changing them pays off.
//!
//! ```text
//!   file ──▶ workload ──▶ Demand of each phase
//!                           │ one_hop     fastest circuits between leaves for it
//!                           │ phases      chooses one of these topologies per phase (switching: when to change)
//!                           │ realise     cross-connects of the switches for them
//!                           │ transition  stages from one phase to the next, under traffic
//!                           ▼
//!                         CarriedStep
//! ```

pub mod concurrent;
pub mod demand;
pub mod evaluate;
pub mod exact;
mod flow;
pub mod fluid;
mod mistake;
pub mod one_hop;
mod one_way;
mod patch;
pub mod phases;
pub mod plan;
pub mod realise;
pub mod rings;
pub mod step;
pub mod switching;
pub mod templates;
#[doc(hidden)]
pub mod testkit;
pub mod topology;
pub mod transition;
mod unserved;
pub mod workload;

pub use plan::{CarriedStep, Options, plan};
