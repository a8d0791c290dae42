// SPDX-License-Identifier: Apache-2.0
//! Utilisation of links, and the queues ahead of them.

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
    /// Mean utilisation, over the whole run, of the links that carried packets.
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
    /// The number of packets counted. Hosts keep waiting data in memory, so only their
    /// acknowledgements queue.
    pub packets: u64,
    /// Median queue length that packets found, in bytes.
    pub p50_bytes: Bytes,
    /// 99th percentile of the queue length that packets found, in bytes.
    pub p99_bytes: Bytes,
    /// 99.9th percentile of the queue length that packets found, in bytes.
    pub p999_bytes: Bytes,
    /// The longest queue that a packet found, in bytes and to three digits.
    pub max_bytes: Bytes,
    /// Packets by the queue length that they found. Row limits are powers of two, and a row
    /// excludes the packets in earlier rows.
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
    /// Share of the run during which it was sending.
    pub utilisation: f64,
    /// Bytes put on the wire.
    pub bytes: Bytes,
    /// Packets dropped at a full queue.
    pub dropped: u64,
    /// Marked packets.
    pub marked: u64,
    /// Packets lost on the link while it was dark or faulty.
    pub lost: u64,
    /// How long its far end paused at least one priority.
    #[serde(rename = "paused_ps")]
    pub paused: Picoseconds,
}
