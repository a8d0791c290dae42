// SPDX-License-Identifier: Apache-2.0
//! Errors of fault traces, with their positions.

use std::fmt;

use super::MAX_TRACE_BYTES;

/// An error in a trace.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TraceProblem {
    /// The file is not JSON or does not have the structure of a trace.
    #[error("{0}")]
    NotJson(String),
    /// The file exceeds [`MAX_TRACE_BYTES`].
    #[error("{bytes} bytes; a trace may have {MAX_TRACE_BYTES}")]
    TooLarge {
        /// File size.
        bytes: usize,
    },
    /// A record lacks a field, or a field has the wrong type.
    #[error("{0}")]
    Record(String),
    /// A time is before the start of observation.
    #[error("`event_time` is {days} days: time is counted from 0, the start of observation")]
    NegativeTime {
        /// Given time.
        days: f64,
    },
    /// A time is more than a century after the start.
    #[error("`event_time` is {days} days, over a century: the unit is days, not seconds")]
    TooLate {
        /// Given time.
        days: f64,
    },
    /// A fault ends before it starts.
    #[error(
        "the fault of `{node}` ends at {end_days} days, before its start at {start_days} days \
         (record {start_record})"
    )]
    EndBeforeStart {
        /// Server name.
        node: String,
        /// Record of the start event.
        start_record: usize,
        /// Time of the start event.
        start_days: f64,
        /// Time of the end event.
        end_days: f64,
    },
    /// An end event matches no open fault of its server.
    #[error("this ends a fault of `{node}` that has no `fault_start` with the same fault type")]
    EndWithoutStart {
        /// Server name.
        node: String,
    },
    /// An end event names a server without any `fault_start`.
    #[error("unknown node `{node}`: no `fault_start` names it")]
    UnknownNode {
        /// Server name.
        node: String,
    },
    /// The trace names more servers than it declares.
    #[error("unknown node `{node}`: the trace has {servers} servers and this is one more")]
    TooManyServers {
        /// First excess name.
        node: String,
        /// Declared number of servers.
        servers: u32,
    },
    /// A fault begins a day or more after the end of observation.
    #[error("a fault begins on day {start_days:.1}, but only {days} days are said to be watched")]
    AfterTheWatch {
        /// Time of the fault.
        start_days: f64,
        /// Declared days of observation.
        days: f64,
    },
    /// `servers`, `gpus_per_server` or `days` is not positive.
    #[error("`{field}` must be positive")]
    NotPositive {
        /// Name of the field.
        field: &'static str,
    },
}

/// An error with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceError {
    /// Line from 1; 0 if the error has no position.
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

/// All errors of a trace, in file order.
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
