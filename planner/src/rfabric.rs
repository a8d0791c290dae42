// SPDX-License-Identifier: Apache-2.0
//! Planning a reconfigurable fat-tree: which circuits each phase gets, how the switches hold them,
//! and when changing them pays.
//!
//! ```text
//!   file ──▶ workload ──▶ Demand of each phase
//!                           │ one_hop     circuits between leaves that serve it fastest
//!                           │ phases      which of these topologies each phase gets
//!                           │ realise     cross-connects of the switches that make them
//!                           │ transition  the stages from one phase to the next, under traffic
//!                           ▼
//!                         CarriedStep
//! ```
//!
//! [`evaluate`] says in closed form how fast a topology is where traffic takes one hop, [`concurrent`] with routes over
//! several, with a bound that prices prove; [`fluid`] shares everything fairly, and
//! [`exact`] is the solver that the search of [`one_hop`] is held against. [`templates`] are further candidates, and
//! [`rings`] spreads an all-reduce over whichever rings suit the circuits.

pub mod concurrent;
pub mod demand;
pub mod evaluate;
pub mod exact;
mod flow;
pub mod fluid;
pub mod one_hop;
mod patch;
pub mod phases;
pub mod plan;
pub mod realise;
pub mod rings;
pub mod step;
pub mod templates;
#[doc(hidden)]
pub mod testing;
pub mod topology;
pub mod transition;
mod unserved;
pub mod workload;

pub use plan::{CarriedStep, Options, plan};
