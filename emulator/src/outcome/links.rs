// SPDX-License-Identifier: Apache-2.0

use lightloom_units::{Bytes, Picoseconds};
use serde::Serialize;

/// All links of one class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkClass {
    /// `gpu-gpu` (copper), `fibre`, `gpu-tor`, `tor-gpu` or `switch-switch`.
    pub class: &'static str,
    /// Number of links, counting each direction.
    pub links: usize,
    /// Number of links that carried packets.
    pub links_used: usize,
    /// Mean utilisation of the links that carried packets, over the whole run.
    pub utilisation_mean: f64,
    /// Utilisation of the busiest link.
    pub utilisation_max: f64,
    /// Queue lengths on packet arrival.
    pub queue: QueueResult,
    /// Busiest links, in descending order.
    pub busiest: Vec<LinkResult>,
}

/// Queue lengths on packet arrival for one class of links.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueResult {
    /// Number of packets counted. Hosts queue only acknowledgements, because data waits in memory.
    pub packets: u64,
    /// Median queue length, in bytes.
    pub p50_bytes: Bytes,
    /// 99th percentile of the queue length, in bytes.
    pub p99_bytes: Bytes,
    /// 99.9th percentile of the queue length, in bytes.
    pub p999_bytes: Bytes,
    /// Maximum queue length, in bytes, rounded to three digits.
    pub max_bytes: Bytes,
    /// Packets by queue length, in non-cumulative buckets with powers of two as limits.
    pub histogram: Vec<QueueRow>,
}

/// A histogram bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct QueueRow {
    /// Upper limit, in bytes.
    pub at_most_bytes: Bytes,
    /// Number of packets.
    pub packets: u64,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkResult {
    /// Source and destination.
    pub link: String,
    /// Share of the run spent sending.
    pub utilisation: f64,
    /// Bytes sent.
    pub bytes: Bytes,
    /// Packets dropped because of a full queue.
    pub dropped: u64,
    /// ECN-marked packets.
    pub marked: u64,
    /// Packets lost because the link was dark or faulty.
    pub lost: u64,
    /// Time during which the far end paused at least one priority.
    #[serde(rename = "paused_ps")]
    pub paused: Picoseconds,
}
