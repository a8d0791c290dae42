// SPDX-License-Identifier: Apache-2.0
//! Fault traces record when each server was out of service.
//!
//! [`Timeline::on_nodes`] maps an operator's servers to the nodes of a fabric:
//!
//! ```text
//!   bytes ──read──▶ FaultTrace ──on_nodes──▶ Timeline of node changes ──▶ compare, plan, emulate
//!   seed ──synth──▶     │ statistics
//! ```
//!
//! Times are integer milliseconds since the start of observation ([`TraceTime`]), so time-weighted
//! sums are exact. The resolution of the public trace, one ten-thousandth of a day, is 8,640 ms.

mod nodes;
mod problem;
mod read;
mod statistics;
mod synth;
mod timeline;
mod write;

use std::fmt;

use lightloom_units::id::NodeId;
use serde::{Deserialize, Serialize};

pub use nodes::{NodesError, part_fault_probability};
pub use problem::{TraceError, TraceErrors};
pub use read::{MAX_TRACE_BYTES, Observation};
pub use statistics::{Concurrency, Durations, KindStatistics, Statistics};
pub use synth::{PUBLISHED_SERVERS, Synthesis};
pub use timeline::{Change, Health, Timeline};
pub use write::public_json;

/// A time in milliseconds since the start of observation.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct TraceTime(pub u64);

const MS_PER_DAY: f64 = 86_400_000.0;

impl TraceTime {
    /// The start of observation.
    pub const START: Self = Self(0);

    /// Rounds to the nearest millisecond. Negative values become zero.
    pub fn from_days(days: f64) -> Self {
        Self((days * MS_PER_DAY).round().max(0.0) as u64)
    }

    /// Returns the days since the start of observation.
    pub fn as_days(self) -> f64 {
        self.0 as f64 / MS_PER_DAY
    }

    /// Returns the milliseconds since `earlier`, or zero if `earlier` is later.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for TraceTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "day {:.4}", self.as_days())
    }
}

/// A server in a trace. Servers are numbered in order of their first fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ServerId(pub u32);

impl ServerId {
    /// Returns the number as an array index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The kind of a fault, in the terms of the trace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FaultKind {
    /// `Hardware Failure`, `Software Failure` or `Other Failure`.
    #[serde(rename = "Level")]
    pub level: String,
    /// The failed part, such as `GPU`, `NIC` or `Power Supply`.
    #[serde(rename = "Class")]
    pub class: String,
    /// The symptom.
    #[serde(rename = "Desc")]
    pub description: String,
}

/// A fault of one server. A server's faults may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Start of the outage.
    pub start: TraceTime,
    /// End of the outage; equal to `start` for an instantaneous fault.
    pub end: TraceTime,
    /// Failed server.
    pub server: ServerId,
    /// Index into [`FaultTrace::kinds`].
    pub kind: u32,
}

/// The faults of a set of servers during a time window.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultTrace {
    /// Observed servers, including those without faults.
    pub servers: u32,
    /// GPUs per server.
    pub gpus_per_server: u32,
    /// End of the window for time-weighted statistics. The window begins at zero.
    pub window: TraceTime,
    /// All faults, ordered by start time.
    pub faults: Vec<Fault>,
    /// The kinds indexed by [`Fault::kind`].
    pub kinds: Vec<FaultKind>,
    /// Names of the servers that failed. Servers from `names.len()` on have no faults.
    pub names: Vec<String>,
    /// Number of faults without an end in the file, assumed to last until the last event.
    pub open_faults: u32,
}

impl FaultTrace {
    /// Returns the servers out of service at `time`. A fault includes its start but not its end.
    pub fn faulty_at(&self, time: TraceTime) -> Vec<ServerId> {
        let mut faulty: Vec<ServerId> = self
            .faults
            .iter()
            .take_while(|fault| fault.start <= time)
            .filter(|fault| time < fault.end)
            .map(|fault| fault.server)
            .collect();
        faulty.sort_unstable();
        faulty.dedup();
        faulty
    }

    /// Returns the timeline with one node per server, cut off at `end` instead of the window's end.
    pub fn server_timeline(&self, end: TraceTime) -> Timeline {
        let intervals =
            self.faults.iter().map(|fault| (NodeId(fault.server.0), fault.start, fault.end));
        Timeline::from_intervals(self.servers, end, intervals)
    }

    /// Returns the server's name in the file, or `server-<number>` if it has none.
    pub fn name(&self, server: ServerId) -> String {
        let named = self.names.get(server.index()).cloned();
        named.unwrap_or_else(|| format!("server-{}", server.0))
    }
}
