// SPDX-License-Identifier: Apache-2.0
//! A packet-level network simulator where hosts send flows over a transport and switches queue and forward packets.
//!
//! The inputs of an [`Engine`] are a [`Network`], flows, and timed link changes. It returns events
//! in order of time: completed batches and timers. [`transport`] implements the hosts,
//! [`topology`] builds networks of common shapes, [`collective`] runs collective schedules, and
//! [`capture`] writes packet captures and timelines. [`steady`] simulates identical and idle parts
//! only once and gets the same result.
//!
//! Times are integer picoseconds, sizes are bytes. The seed determines the result regardless of the
//! number of threads. Fabrics, plans, jobs and faults are not part of this crate.

pub mod capture;
pub mod collective;
mod engine;
pub mod steady;
pub mod topology;
pub mod transport;

pub use engine::*;
