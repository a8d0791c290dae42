// SPDX-License-Identifier: Apache-2.0
//! A packet-level network simulator: hosts send flows over a transport, and switches queue and forward packets.
//!
//! The inputs of an [`Engine`] are a [`Network`], flows and timed link changes. It returns events in chronological
//! order: completed batches and timers. [`steady`] simulates identical and idle parts only once, with the same result.
//!
//! Times are integer picoseconds and sizes are bytes. The seed determines the result, whatever the
//! number of threads. The crate does not model fabrics, plans, jobs or faults.

pub mod capture;
pub mod collective;
mod engine;
pub mod steady;
pub mod topology;
pub mod transport;

pub use engine::*;
