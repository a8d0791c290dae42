// SPDX-License-Identifier: Apache-2.0

use std::sync::Arc;

use lightloom_fabric::trace::FaultTrace;
use lightloom_units::{Dollars, Milliseconds};

use super::KnownLosses;
use crate::substrate::AnyPart;

/// A long training period with failures.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Length of the period.
    pub length: Milliseconds,
    /// Source of failures.
    pub failures: FailureSource,
    /// Number of runs that measure the loss of each kind of failure.
    pub samples: u32,
    /// Losses reused from an earlier result. `None` if they are measured.
    pub losses: Option<Arc<KnownLosses>>,
    /// Price of a GPU-hour, if given.
    pub gpu_hour: Option<Dollars>,
}

/// Source of failures.
#[derive(Clone, Debug, PartialEq)]
pub enum FailureSource {
    /// A fault trace.
    Trace {
        /// Trace.
        trace: Arc<FaultTrace>,
        /// File name as written in the scenario.
        file: String,
        /// First day of the trace.
        from_day: f64,
    },
    /// Failure rates by kind of part.
    Rates(Vec<FailureRate>),
}

/// Failure rate and repair time of one kind of part. Both times are exponentially distributed.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureRate {
    /// Kind of part.
    pub part: AnyPart,
    /// Mean time between failures of one part.
    pub mtbf: Milliseconds,
    /// Mean time to repair.
    pub repair: Milliseconds,
    /// Source of these figures. `None` if assumed.
    pub source: Option<String>,
}
