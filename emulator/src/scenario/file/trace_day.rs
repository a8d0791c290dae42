// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::document::Check;
use schemars::JsonSchema;
use serde::Deserialize;

use super::codes;
use super::neighbours::NamedFiles;
use crate::scenario::TraceDay;

/// A day of a fault trace.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceDayFile {
    /// Trace file, relative to this file; see `lightloom trace`.
    pub trace: String,
    /// Day, counted from the start of the trace.
    #[schemars(range(min = 0, max = 36525))]
    pub day: f64,
}

pub(super) fn lower(
    raw: &TraceDayFile,
    check: &mut Check<'_>,
    neighbours: &mut NamedFiles<'_, '_>,
) -> Option<TraceDay> {
    let trace = neighbours.trace(&raw.trace, "/broken_by/trace", check)?;
    let last = trace.window.as_days();
    if !(0.0..=last).contains(&raw.day) {
        let message = format!("day {} is outside the trace (days 0 to {last})", raw.day);
        check.error(codes::NO_SUCH_THING, "/broken_by/day", message);
    }
    Some(TraceDay { trace, day: raw.day })
}
