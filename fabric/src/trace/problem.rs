// SPDX-License-Identifier: Apache-2.0
//! What can be wrong with a fault trace, and where it stands.

use std::fmt;

use super::MAX_TRACE_BYTES;

/// What is wrong with a trace.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TraceProblem {
    /// Not JSON at all, or not the shape of a trace.
    #[error("{0}")]
    NotJson(String),
    /// More than [`MAX_TRACE_BYTES`].
    #[error("{bytes} bytes; a trace may have {MAX_TRACE_BYTES}")]
    TooLarge {
        /// The size found.
        bytes: usize,
    },
    /// A record lacks a field, or a field has the wrong type.
    #[error("{0}")]
    Record(String),
    /// Time before observation began.
    #[error("`event_time` is {days} days: time is counted from 0, the start of observation")]
    NegativeTime {
        /// As read.
        days: f64,
    },
    /// A time beyond a century.
    #[error("`event_time` is {days} days, over a century: the unit is days, not seconds")]
    TooLate {
        /// As read.
        days: f64,
    },
    /// The end of a fault is earlier than its start.
    #[error(
        "the fault of `{node}` ends at {end_days} days, before its start at {start_days} days \
         (record {start_record})"
    )]
    EndBeforeStart {
        /// The server's name.
        node: String,
        /// Where the start is.
        start_record: usize,
        /// The start's time.
        start_days: f64,
        /// The end's time.
        end_days: f64,
    },
    /// An end that matches no open fault of a server that did fail otherwise.
    #[error("this ends a fault of `{node}` that has no `fault_start` with the same fault type")]
    EndWithoutStart {
        /// The server's name.
        node: String,
    },
    /// An end for a server that no `fault_start` names.
    #[error("unknown node `{node}`: no `fault_start` names it")]
    UnknownNode {
        /// The server's name.
        node: String,
    },
    /// More distinct names than servers.
    #[error("unknown node `{node}`: the trace has {servers} servers and this is one more")]
    TooManyServers {
        /// The first name too many.
        node: String,
        /// How many there may be.
        servers: u32,
    },
    /// A fault that begins a day or more after the days watched.
    #[error("a fault begins on day {start_days:.1}, but only {days} days are said to be watched")]
    AfterTheWatch {
        /// When it begins.
        start_days: f64,
        /// The days watched.
        days: f64,
    },
    /// `servers`, `gpus_per_server` or `days` is not a positive number.
    #[error("`{field}` must be positive")]
    NotPositive {
        /// Which one.
        field: &'static str,
    },
}

/// A problem and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceError {
    /// Line of the file, from 1; 0 where the problem has no place.
    pub line: usize,
    /// Column in bytes, from 1.
    pub column: usize,
    /// Which event, from 0.
    pub record: Option<usize>,
    /// What is wrong.
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

/// Everything wrong with a trace, in the order of the file.
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
