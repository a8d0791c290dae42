// SPDX-License-Identifier: Apache-2.0
//! Errors of fault traces, with their positions.

use std::fmt;

use super::MAX_TRACE_BYTES;

/// An error in a trace.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum TraceProblem {
    /// The file is not JSON or does not have the structure of a trace.
    #[error("{0}")]
    NotJson(String),
    #[error("the file has {bytes} bytes, above the limit of {MAX_TRACE_BYTES}")]
    TooLarge { bytes: usize },
    /// A record lacks a field, or a field has the wrong type.
    #[error("{0}")]
    Record(String),
    #[error("`event_time` is {days} days: time is counted from 0, the start of observation")]
    NegativeTime { days: f64 },
    #[error("`event_time` is {days} days, over a century: the unit is days, not seconds")]
    TooLate { days: f64 },
    #[error(
        "the fault of `{node}` ends at {end_days} days, before its start at {start_days} days \
         (record {start_record})"
    )]
    EndBeforeStart { node: String, start_record: usize, start_days: f64, end_days: f64 },
    #[error("this ends a fault of `{node}` that has no `fault_start` with the same fault type")]
    EndWithoutStart { node: String },
    #[error("unknown node `{node}`: it has no `fault_start`")]
    UnknownNode { node: String },
    #[error("unknown node `{node}`: the trace has only {servers} servers")]
    TooManyServers { node: String, servers: u32 },
    #[error(
        "`event_time` is {event_days} days, after the observation, which ends on day {days}: correct \
         `days`, or use --days"
    )]
    AfterTheWatch { event_days: f64, days: f64 },
    #[error("`{field}` must be positive")]
    NotPositive { field: &'static str },
}

/// An error with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceError {
    /// Line number, from 1; 0 if the error has no position.
    pub line: usize,
    /// Column in bytes, from 1.
    pub column: usize,
    /// Event index, from 0.
    pub record: Option<usize>,
    /// The error.
    pub problem: TraceProblem,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        if let Some(record) = self.record {
            write!(f, "record {record}: ")?;
        }
        self.problem.fmt(f)
    }
}

/// All errors in a trace, in file order.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct TraceErrors(pub Vec<TraceError>);

impl fmt::Display for TraceErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}
