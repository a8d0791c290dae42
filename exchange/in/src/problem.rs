// SPDX-License-Identifier: Apache-2.0
//! Describes unusable or inconsistent parts of logs by place, problem and consequence.

use std::fmt;

use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LogPlace {
    pub file: String,
    /// Line number from 1; `None` for the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

impl fmt::Display for LogPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(out, "{}:{line}", self.file),
            None => out.write_str(&self.file),
        }
    }
}

/// The consequence for a file that cannot be read.
pub(crate) const FILE_SKIPPED: &str = "the file is skipped";
/// The consequence for a record that cannot be read.
pub(crate) const RECORD_SKIPPED: &str = "only this record is skipped";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogProblem {
    pub place: LogPlace,
    pub trouble: String,
    /// The consequence of the trouble.
    pub still: String,
}

impl fmt::Display for LogProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}; {}", self.place, self.trouble, self.still)
    }
}
