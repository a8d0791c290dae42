// SPDX-License-Identifier: Apache-2.0
//! Packets on a network of vertices and links. Nothing here knows a fabric, a plan or a scenario.
//!
//! * the engine, at the root of this crate – how packets move; [`transport`] – how hosts send, pace and
//!   repair them;
//! * [`topology`] – networks in common shapes;
//! * [`steady`] – exact shortcuts: of equal parts only one is simulated;
//! * [`collective`] – collectives as flows that wait for each other;
//! * [`capture`] – packets and timelines of a run as files.

pub mod capture;
pub mod collective;
mod engine;
pub mod steady;
pub mod topology;
pub mod transport;

pub use engine::*;
