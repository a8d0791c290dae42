// SPDX-License-Identifier: Apache-2.0
//! A packet simulator: hosts that send flows over a transport, and switches that queue and forward.
//!
//! [`Engine`] takes a [`Network`] of vertices and links, flows, and changes of links at times; it returns events in order:
//! the ends of flows and batches, and timers. [`transport`] is how hosts send, pace and repeat packets, [`topology`] makes
//! networks of common shapes, [`collective`] sends schedules, [`capture`] writes packets and timelines as files.
//! [`steady`] simulates equal and idle parts of a network once, with the same result.
//!
//! Times are integer picoseconds, sizes bytes. One seed gives one result on any number of threads.
//!
//! Not here: fabrics, plans, jobs and faults. The caller knows which link a part is, and decides what follows when one fails.

pub mod capture;
pub mod collective;
mod engine;
pub mod steady;
pub mod topology;
pub mod transport;

pub use engine::*;
