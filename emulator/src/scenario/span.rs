// SPDX-License-Identifier: Apache-2.0
//! Training over months with failures.

use std::sync::Arc;

use lightloom_fabric::trace::FaultTrace;
use lightloom_units::{Dollars, Milliseconds};

use super::KnownLosses;
use crate::substrate::AnyPart;

/// A long period of training by the jobs of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Length.
    pub length: Milliseconds,
    /// Source of failures.
    pub failures: FailureSource,
    /// Number of runs that determine the loss of each kind of failure.
    pub samples: u32,
    /// Losses from an earlier result. `None` if new runs are made.
    pub losses: Option<Arc<KnownLosses>>,
    /// Price of a GPU-hour, if given.
    pub gpu_hour: Option<Dollars>,
}

/// Source of failures.
#[derive(Clone, Debug, PartialEq)]
pub enum FailureSource {
    /// A fault trace, from one of its days on.
    Trace {
        /// Trace.
        trace: Arc<FaultTrace>,
        /// File name in the scenario.
        file: String,
        /// First day of the trace that the span covers.
        from_day: f64,
    },
    /// Failure rates by kind of part.
    Rates(Vec<FailureRate>),
}

/// Failure rate and repair time of one kind of part. Times to failure and to repair are exponentially distributed.
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
