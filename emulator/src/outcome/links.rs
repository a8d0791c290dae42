// SPDX-License-Identifier: Apache-2.0
//! How busy links were, and how full the queues before them.

use lightloom_units::{Bytes, Picoseconds};
use serde::Serialize;

/// Links of one kind together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkClass {
    /// `gpu-gpu` copper, `fibre`, `gpu-tor`, `tor-gpu`, `switch-switch`.
    pub class: &'static str,
    /// How many there are, each direction counted.
    pub links: usize,
    /// How many carried packets.
    pub links_used: usize,
    /// Mean over the links that carried packets, of the whole run.
    pub utilisation_mean: f64,
    /// That of the busiest.
    pub utilisation_max: f64,
    /// What packets found before them in the queue.
    pub queue: QueueResult,
    /// The busiest links, busiest first.
    pub busiest: Vec<LinkResult>,
}

/// What packets found before them in the queues of a class of links.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueResult {
    /// Packets counted. Hosts hold their data back in memory: only their acknowledgements queue.
    pub packets: u64,
    /// Half of the packets found no more.
    pub p50_bytes: Bytes,
    /// 99 of 100 packets found no more.
    pub p99_bytes: Bytes,
    /// 999 of 1,000 packets found no more.
    pub p999_bytes: Bytes,
    /// None found more, to three digits.
    pub max_bytes: Bytes,
    /// Packets by the queue they found: at most so many bytes, and more than the row before; powers of two.
    pub histogram: Vec<QueueRow>,
}

/// One row of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct QueueRow {
    /// At most so many bytes.
    pub at_most_bytes: Bytes,
    /// So many packets.
    pub packets: u64,
}

/// One link, one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkResult {
    /// Its ends.
    pub link: String,
    /// Share of the run in which it was sending.
    pub utilisation: f64,
    /// Bytes put on the wire.
    pub bytes: Bytes,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Packets that were marked.
    pub marked: u64,
    /// Packets lost on it while it was dark or wrong.
    pub lost: u64,
    /// Time in which its far end had it pause some priority.
    #[serde(rename = "paused_ps")]
    pub paused: Picoseconds,
}
