// SPDX-License-Identifier: Apache-2.0
//! Errors of fault traces, with their positions.

use std::fmt;

/// An error in a trace, with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceError {
    /// Line number, from 1; 0 if the error has no position.
    pub line: usize,
    /// Column in bytes, from 1.
    pub column: usize,
    /// Event index, from 0.
    pub record: Option<usize>,
    /// What is wrong, and the correction if there is one.
    pub problem: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        if let Some(record) = self.record {
            write!(f, "record {record}: ")?;
        }
        f.write_str(&self.problem)
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
