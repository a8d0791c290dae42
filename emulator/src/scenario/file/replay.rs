// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::document::Check;
use lightloom_fabric::trace::FaultTrace;
use lightloom_units::{Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::codes;
use super::neighbours::NamedFiles;
use crate::scenario::{Replay, TraceDay};

/// Several days of a fault trace in compressed time. Faults that are active on the first day exist from the start.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayFile {
    /// Trace file, relative to this file; see `lightloom trace`.
    pub trace: String,
    /// First day, counted from the start of the trace.
    #[schemars(range(min = 0, max = 36525))]
    pub from_day: f64,
    /// Last day.
    #[schemars(range(min = 0, max = 36525))]
    pub to_day: f64,
    /// Simulated time per day of the trace.
    pub day_takes: Text<Picoseconds>,
    /// GPUs per host of an inline network; default 1. If the network has servers, all GPUs of a
    /// server fail together; otherwise hosts fail individually.
    #[serde(default)]
    #[schemars(range(min = 1, max = 64))]
    pub gpus_per_host: Option<u32>,
}

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

pub(super) fn lower_day(
    raw: &TraceDayFile,
    check: &mut Check<'_>,
    neighbours: &mut NamedFiles<'_, '_>,
) -> Option<TraceDay> {
    let trace = neighbours.trace(&raw.trace, "/broken_by/trace", check)?;
    require_day(&trace, raw.day, "/broken_by/day", check);
    Some(TraceDay { trace, day: raw.day })
}

fn require_day(trace: &FaultTrace, day: f64, path: &str, check: &mut Check<'_>) {
    let last = trace.window.as_days();
    if !(0.0..=last).contains(&day) {
        let message = format!("day {day} is outside the trace (days 0 to {last})");
        check.error(codes::NO_SUCH_THING, path, message);
    }
}

pub(super) fn lower(
    raw: &ReplayFile,
    check: &mut Check<'_>,
    neighbours: &mut NamedFiles<'_, '_>,
) -> Option<Replay> {
    let trace = neighbours.trace(&raw.trace, "/replay/trace", check)?;
    require_day(&trace, raw.from_day, "/replay/from_day", check);
    require_day(&trace, raw.to_day, "/replay/to_day", check);
    if raw.from_day >= raw.to_day {
        check
            .error(codes::BAD_FAULT, "/replay/to_day", "the replay ends before it starts")
            .also("/replay/from_day", "it starts here");
    }
    if raw.day_takes.0 == Picoseconds::ZERO {
        let message = "the duration of a day is 0";
        check.error(codes::BAD_FAULT, "/replay/day_takes", message).help("write `1ms`");
    }
    let day_takes = raw.day_takes.0;
    let gpus_per_host = raw.gpus_per_host.unwrap_or(1);
    Some(Replay { trace, from_day: raw.from_day, to_day: raw.to_day, day_takes, gpus_per_host })
}
