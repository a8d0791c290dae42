// SPDX-License-Identifier: Apache-2.0
//! Utilisation of links, and the queues before them.

use lightloom_units::{Bytes, Picoseconds};
use serde::Serialize;

/// All links of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkClass {
    /// `gpu-gpu` (copper), `fibre`, `gpu-tor`, `tor-gpu` or `switch-switch`.
    pub class: &'static str,
    /// The number of links, counting each direction.
    pub links: usize,
    /// The number of links that carried packets.
    pub links_used: usize,
    /// Mean utilisation over the whole run of the links that carried packets.
    pub utilisation_mean: f64,
    /// Utilisation of the busiest link.
    pub utilisation_max: f64,
    /// The queue that packets found.
    pub queue: QueueResult,
    /// The busiest links, in descending order.
    pub busiest: Vec<LinkResult>,
}

/// The queue that packets found at a class of links.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueResult {
    /// The number of packets counted. Hosts hold data back in memory, so only their
    /// acknowledgements queue.
    pub packets: u64,
    /// Half of the packets found no more, in bytes.
    pub p50_bytes: Bytes,
    /// 99 % of the packets found no more, in bytes.
    pub p99_bytes: Bytes,
    /// 99.9 % of the packets found no more, in bytes.
    pub p999_bytes: Bytes,
    /// The longest queue that a packet found, to three digits, in bytes.
    pub max_bytes: Bytes,
    /// Packets by the queue they found. Row limits are powers of two; a row excludes the rows
    /// before it.
    pub histogram: Vec<QueueRow>,
}

/// One row of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct QueueRow {
    /// The upper limit of the row, in bytes.
    pub at_most_bytes: Bytes,
    /// The number of packets.
    pub packets: u64,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkResult {
    /// Its ends.
    pub link: String,
    /// Share of the run that it spent sending.
    pub utilisation: f64,
    /// Bytes put on the wire.
    pub bytes: Bytes,
    /// Packets dropped at a full queue.
    pub dropped: u64,
    /// Marked packets.
    pub marked: u64,
    /// Packets lost on it while it was dark or faulty.
    pub lost: u64,
    /// How long its far end paused at least one priority.
    #[serde(rename = "paused_ps")]
    pub paused: Picoseconds,
}
