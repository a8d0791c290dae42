// SPDX-License-Identifier: Apache-2.0
//! Fault traces: which server was out of service, from when to when.
//!
//! A trace knows servers, as an operator counts them. A plan, a comparison or an emulation
//! needs the nodes of a fabric. [`FaultTrace::on_nodes`] leads from one to the other:
//!
//! ```text
//!   bytes ──read──▶ FaultTrace ──on_nodes──▶ Timeline of node changes ──▶ compare, plan, emulate
//!   seed ──synth──▶     │ statistics
//! ```
//!
//! Times are integer milliseconds since observation began ([`TraceTime`]), so sums of weights are
//! exact and do not depend on their order. One ten-thousandth of a day, the resolution of the
//! public trace, is 8,640 ms.

mod nodes;
mod problem;
mod read;
mod statistics;
mod synth;
mod timeline;
mod write;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use nodes::{NodesError, part_fault_probability};
pub use problem::{TraceError, TraceErrors, TraceProblem};
pub use read::{MAX_TRACE_BYTES, Observation};
pub use statistics::{Concurrency, Durations, KindStatistics, Statistics};
pub use synth::{PUBLISHED_SERVERS, Synthesis};
pub use timeline::{Change, Health, Timeline};
pub use write::{node_changes_csv, public_json, server_faults_csv};

/// Milliseconds since the observation of the servers began.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct TraceTime(pub u64);

const MS_PER_DAY: f64 = 86_400_000.0;

impl TraceTime {
    /// The instant observation began.
    pub const START: Self = Self(0);

    /// The instant `days` after observation began, to the nearest millisecond. Negative
    /// numbers become the start.
    #[must_use]
    pub fn from_days(days: f64) -> Self {
        Self((days * MS_PER_DAY).round().max(0.0) as u64)
    }

    /// Days since observation began.
    #[must_use]
    pub fn as_days(self) -> f64 {
        self.0 as f64 / MS_PER_DAY
    }

    /// Milliseconds from `earlier` to this instant; zero where `earlier` is later.
    #[must_use]
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for TraceTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "day {:.4}", self.as_days())
    }
}

/// A server of a trace, numbered in order of its first fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ServerId(pub u32);

impl ServerId {
    /// The position in arrays indexed by server.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What broke, in the words of the trace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FaultKind {
    /// `Hardware Failure`, `Software Failure` or `Other Failure`.
    #[serde(rename = "Level")]
    pub level: String,
    /// The part: `GPU`, `NIC`, `Power Supply`, ….
    #[serde(rename = "Class")]
    pub class: String,
    /// The symptom.
    #[serde(rename = "Desc")]
    pub description: String,
}

/// One fault of one server. Faults of a server may overlap and nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// When the server went out of service.
    pub start: TraceTime,
    /// When it came back; equal to `start` for a fault that was noted and gone.
    pub end: TraceTime,
    /// Which server.
    pub server: ServerId,
    /// Index into [`FaultTrace::kinds`].
    pub kind: u32,
}

/// The faults of a set of servers over a window of time.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultTrace {
    /// Servers observed, those without any fault included.
    pub servers: u32,
    /// GPUs in a server.
    pub gpus_per_server: u32,
    /// The end of the window that time-weighted figures are taken over; it begins at zero.
    pub window: TraceTime,
    /// All faults, by start time.
    pub faults: Vec<Fault>,
    /// The kinds that [`Fault::kind`] refers to.
    pub kinds: Vec<FaultKind>,
    /// Names of the servers that ever failed; the servers from `names.len()` on never did.
    pub names: Vec<String>,
    /// Faults whose end is not in the file; they are held to last to its last event.
    pub open_faults: u32,
}

impl FaultTrace {
    /// The servers out of service at `time`, in order. A fault counts from its start up to,
    /// but not including, its end.
    #[must_use]
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

    /// How a server is called in the file, or `server-<number>` where the file never names it.
    #[must_use]
    pub fn name(&self, server: ServerId) -> String {
        let named = self.names.get(server.index()).cloned();
        named.unwrap_or_else(|| format!("server-{}", server.0))
    }
}
