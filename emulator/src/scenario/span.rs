// SPDX-License-Identifier: Apache-2.0
//! Months of training: for how long, and what fails meanwhile.

use std::sync::Arc;

use lightloom_fabric::trace::FaultTrace;
use lightloom_units::{Dollars, Milliseconds};

use super::KnownLosses;
use crate::substrate::AnyPart;

/// The jobs of a scenario train for so long.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// How long.
    pub length: Milliseconds,
    /// What fails meanwhile.
    pub failures: FailureSource,
    /// Runs from which the loss of each kind of failure is taken.
    pub samples: u32,
    /// Losses of an earlier result. `None` where runs are made.
    pub losses: Option<Arc<KnownLosses>>,
    /// What a GPU-hour costs, where that is said.
    pub gpu_hour: Option<Dollars>,
}

/// Where failures come from.
#[derive(Clone, Debug, PartialEq)]
pub enum FailureSource {
    /// A fault trace, from a day of it on.
    Trace {
        /// The trace.
        trace: Arc<FaultTrace>,
        /// The file, as the scenario names it.
        file: String,
        /// The day of the trace on which the span begins.
        from_day: f64,
    },
    /// Rates, of each kind of part.
    Rates(Vec<FailureRate>),
}

/// How often parts of a kind fail, and for how long: both are drawn from exponential distributions.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureRate {
    /// The kind of part.
    pub part: AnyPart,
    /// Mean time between failures of one part.
    pub mtbf: Milliseconds,
    /// Mean time until it works again.
    pub repair: Milliseconds,
    /// Where these figures are from. `None`: they are assumed.
    pub source: Option<String>,
}
