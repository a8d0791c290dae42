// SPDX-License-Identifier: Apache-2.0
//! Reads fault traces from JSON and locates their errors.
//!
//! There are two formats. The public format is an array of events:
//!
//! ```json
//! [{"node_id": "6f24…", "event_time": 3.8955, "event_type": "fault_start",
//!   "fault_type": {"Level": "Hardware Failure", "Class": "GPU", "Desc": "…"}}, …]
//! ```
//!
//! The other format is an object with this array as `events` and the keys `servers`, `gpus_per_server` and `days`.
//!
//! A start and an end event match if node and fault type are equal. If several faults are open, the oldest ends first.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::document::explain_json;

use super::problem::{TraceError, TraceErrors};
use super::{Fault, FaultKind, FaultTrace, PUBLISHED_SERVERS, ServerId, TraceTime};

/// Maximum file size. Larger files are rejected without reading.
pub const MAX_TRACE_BYTES: usize = 256 << 20;
/// Larger times are assumed to have the wrong unit.
const MAX_DAYS: f64 = 36_525.0;
const MAX_ERRORS: usize = 100;

/// Facts about a trace that its file may lack. These facts take precedence over the file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// Observed servers [default: as in the file, or the public trace's 400].
    pub servers: Option<u32>,
    /// GPUs per server [default: as in the file, or 8].
    pub gpus_per_server: Option<u32>,
    /// Days of observation [default: as in the file, or whole days up to the last event].
    pub days: Option<f64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Described<'a> {
    servers: Option<u32>,
    gpus_per_server: Option<u32>,
    days: Option<f64>,
    #[serde(default, rename = "source")]
    _source: Option<String>,
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
}

#[derive(Clone, Copy, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub(super) enum EventType {
    FaultStart,
    FaultEnd,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Record<'a> {
    #[serde(borrow)]
    pub(super) node_id: Cow<'a, str>,
    pub(super) event_time: f64,
    pub(super) event_type: EventType,
    pub(super) fault_type: FaultKind,
}

/// Returns the mistake in one field of a record.
fn mistake(name: &str, value: &str) -> Option<serde_json::Error> {
    match name {
        "node_id" => serde_json::from_str::<Cow<'_, str>>(value).err(),
        "event_time" => serde_json::from_str::<f64>(value).err(),
        "event_type" => serde_json::from_str::<EventType>(value).err(),
        "fault_type" => serde_json::from_str::<FaultKind>(value).err(),
        _ => None,
    }
}

impl FaultTrace {
    /// Reads a trace. `known` supplements or overrides values in the file.
    ///
    /// # Errors
    /// Returns up to 100 errors, each with line, column and record.
    pub fn read(bytes: &[u8], known: Observation) -> Result<Self, TraceErrors> {
        let described = open(bytes).map_err(|error| TraceErrors(vec![error]))?;
        let mut pairing = Pairing { bytes, ..Pairing::default() };
        for (index, raw) in described.events.iter().enumerate() {
            pairing.record(index, raw);
        }
        pairing.finish(&described, known)
    }
}

fn open(bytes: &[u8]) -> Result<Described<'_>, TraceError> {
    if bytes.len() > MAX_TRACE_BYTES {
        let bytes = bytes.len();
        let problem = format!("the file has {bytes} bytes, above the limit of {MAX_TRACE_BYTES}");
        return Err(TraceError { line: 0, column: 0, record: None, problem });
    }
    let is_object = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let read = if is_object {
        serde_json::from_slice(bytes)
    } else {
        serde_json::from_slice(bytes).map(|events| Described { events, ..Described::default() })
    };
    read.map_err(|error| TraceError {
        line: error.line().max(1),
        column: error.column().max(1),
        record: None,
        problem: explain_json(&error),
    })
}

#[derive(Clone, Copy)]
struct Half {
    record: usize,
    offset: usize,
    time: TraceTime,
    days: f64,
}

#[derive(Default)]
struct Pairing<'a> {
    bytes: &'a [u8],
    errors: Vec<TraceError>,
    servers: FxHashMap<String, ServerId>,
    first_named: Vec<(usize, usize)>,
    names: Vec<String>,
    kinds: Vec<FaultKind>,
    kind_of: FxHashMap<FaultKind, u32>,
    ever_started: Vec<bool>,
    starts: FxHashMap<(ServerId, u32), VecDeque<Half>>,
    ends: FxHashMap<(ServerId, u32), VecDeque<Half>>,
    faults: Vec<Fault>,
    last: TraceTime,
    last_event: Option<Half>,
}

impl Pairing<'_> {
    fn record(&mut self, index: usize, raw: &RawValue) {
        let offset = self.offset(raw);
        let record: Record<'_> = match serde_json::from_str(raw.get()) {
            Ok(record) => record,
            Err(first) => {
                let fields: BTreeMap<&str, &RawValue> =
                    serde_json::from_str(raw.get()).unwrap_or_default();
                let mistakes =
                    fields.iter().filter_map(|(name, raw)| Some((*raw, mistake(name, raw.get())?)));
                let mut mistakes: Vec<_> = mistakes.collect();
                if mistakes.is_empty() {
                    mistakes.push((raw, first));
                }
                return mistakes.iter().for_each(|(raw, error)| self.unreadable(index, raw, error));
            }
        };
        let days = record.event_time;
        if days < 0.0 {
            let problem = "time is counted from 0, the start of observation";
            return self.problem(index, offset, format!("`event_time` is {days} days: {problem}"));
        }
        if days > MAX_DAYS {
            let problem = "over a century: the unit is days, not seconds";
            return self.problem(index, offset, format!("`event_time` is {days} days, {problem}"));
        }
        let half = Half { record: index, offset, time: TraceTime::from_days(days), days };
        self.last = self.last.max(half.time);
        if self.last_event.is_none_or(|last| last.time < half.time) {
            self.last_event = Some(half);
        }
        let server = self.server(&record.node_id, half);
        let key = (server, self.kind(record.fault_type));
        self.pair(key, record.event_type, half);
    }

    fn offset(&self, raw: &RawValue) -> usize {
        raw.get().as_ptr() as usize - self.bytes.as_ptr() as usize
    }

    fn unreadable(&mut self, index: usize, raw: &RawValue, error: &serde_json::Error) {
        let text = raw.get().as_bytes();
        let at = self.offset(raw) + offset_of(text, error.line(), error.column());
        self.problem(index, at, explain_json(error));
    }

    fn pair(&mut self, key: (ServerId, u32), event: EventType, half: Half) {
        if event == EventType::FaultStart {
            self.ever_started[key.0.index()] = true;
        }
        let (own, other) = match event {
            EventType::FaultStart => (&mut self.starts, &mut self.ends),
            EventType::FaultEnd => (&mut self.ends, &mut self.starts),
        };
        let Some(partner) = other.get_mut(&key).and_then(VecDeque::pop_front) else {
            own.entry(key).or_default().push_back(half);
            return;
        };
        let (start, end) = match event {
            EventType::FaultStart => (half, partner),
            EventType::FaultEnd => (partner, half),
        };
        if end.time < start.time {
            let problem = format!(
                "the fault of `{}` ends at {} days, before its start at {} days (record {})",
                self.names[key.0.index()],
                end.days,
                start.days,
                start.record
            );
            return self.problem(end.record, end.offset, problem);
        }
        self.faults.push(Fault { start: start.time, end: end.time, server: key.0, kind: key.1 });
    }

    fn server(&mut self, name: &str, half: Half) -> ServerId {
        if let Some(&server) = self.servers.get(name) {
            return server;
        }
        let server = ServerId(u32::try_from(self.names.len()).expect("bounded by the file size"));
        self.servers.insert(name.to_owned(), server);
        self.names.push(name.to_owned());
        self.first_named.push((half.record, half.offset));
        self.ever_started.push(false);
        server
    }

    fn kind(&mut self, kind: FaultKind) -> u32 {
        let next = u32::try_from(self.kinds.len()).expect("bounded by the file size");
        *self.kind_of.entry(kind).or_insert_with_key(|kind| {
            self.kinds.push(kind.clone());
            next
        })
    }

    fn problem(&mut self, record: usize, offset: usize, problem: String) {
        if self.errors.len() < MAX_ERRORS {
            let (line, column) = position(self.bytes, offset);
            self.errors.push(TraceError { line, column, record: Some(record), problem });
        }
    }

    fn finish(
        mut self,
        described: &Described<'_>,
        known: Observation,
    ) -> Result<FaultTrace, TraceErrors> {
        self.report_lone_ends();
        let open_faults = self.close_open_faults();
        let servers = known.servers.or(described.servers).unwrap_or(PUBLISHED_SERVERS);
        self.report_surplus_server(servers);
        let gpus_per_server = known.gpus_per_server.or(described.gpus_per_server).unwrap_or(8);
        let whole_days = self.last.as_days().floor();
        let implied = if whole_days > 0.0 { whole_days } else { self.last.as_days() };
        let said = known.days.or(described.days);
        let window = TraceTime::from_days(said.unwrap_or(implied));
        self.report_not_positive("servers", u64::from(servers));
        self.report_not_positive("gpus_per_server", u64::from(gpus_per_server));
        if self.errors.is_empty() {
            // If the file does not declare days, the window is derived from the readable events.
            self.report_not_positive("days", window.0);
            self.report_late_event(said);
        }
        if !self.errors.is_empty() {
            self.errors.sort_by_key(|error| (error.line, error.column));
            return Err(TraceErrors(self.errors));
        }
        self.faults.sort_unstable();
        let Self { faults, kinds, names, .. } = self;
        Ok(FaultTrace { servers, gpus_per_server, window, faults, kinds, names, open_faults })
    }

    fn report_lone_ends(&mut self) {
        let ends = std::mem::take(&mut self.ends);
        let mut lone: Vec<(Half, ServerId)> = ends
            .into_iter()
            .flat_map(|(key, halves)| halves.into_iter().map(move |h| (h, key.0)))
            .collect();
        lone.sort_by_key(|(half, _)| half.record);
        for (half, server) in lone {
            let node = &self.names[server.index()];
            let problem = match self.ever_started[server.index()] {
                true => format!(
                    "this ends a fault of `{node}` that has no `fault_start` with the same fault type"
                ),
                false => format!("unknown node `{node}`: it has no `fault_start`"),
            };
            self.problem(half.record, half.offset, problem);
        }
    }

    fn close_open_faults(&mut self) -> u32 {
        let closed = self.faults.len();
        for (&(server, kind), halves) in &self.starts {
            let end = self.last;
            self.faults.extend(halves.iter().map(|half| Fault {
                start: half.time,
                end,
                server,
                kind,
            }));
        }
        u32::try_from(self.faults.len() - closed).expect("bounded by the file size")
    }

    fn report_surplus_server(&mut self, servers: u32) {
        if let Some(&(record, offset)) = self.first_named.get(servers as usize) {
            let node = &self.names[servers as usize];
            let problem = format!("unknown node `{node}`: the trace has only {servers} servers");
            self.problem(record, offset, problem);
        }
    }

    /// Observation is counted in whole days, so events on the last, partial day are valid.
    fn report_late_event(&mut self, days: Option<f64>) {
        if let (Some(days), Some(last)) = (days, self.last_event)
            && last.days >= days + 1.0
        {
            let problem = format!(
                "`event_time` is {} days, after the observation, which ends on day {days}: correct `days`, or use --days",
                last.days
            );
            self.problem(last.record, last.offset, problem);
        }
    }

    fn report_not_positive(&mut self, field: &'static str, value: u64) {
        if value == 0 {
            let problem = format!("`{field}` must be positive");
            self.errors.push(TraceError { line: 0, column: 0, record: None, problem });
        }
    }
}

fn offset_of(bytes: &[u8], line: usize, column: usize) -> usize {
    let line_start: usize = bytes
        .split_inclusive(|&byte| byte == b'\n')
        .take(line.saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    line_start + column.saturating_sub(1)
}

fn position(bytes: &[u8], offset: usize) -> (usize, usize) {
    let before = &bytes[..offset.min(bytes.len())];
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    (line, before.len() - line_start + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(node: &str, days: &str, event: &str) -> String {
        format!(
            r#"{{"node_id": "{node}", "event_time": {days}, "event_type": "{event}",
 "fault_type": {{"Level": "Hardware Failure", "Class": "GPU", "Desc": "xid"}}}}"#
        )
    }

    fn read(events: &[String]) -> Result<FaultTrace, TraceErrors> {
        FaultTrace::read(format!("[\n{}]", events.join(",\n")).as_bytes(), Observation::default())
    }

    fn message(events: &[String]) -> String {
        read(events).unwrap_err().to_string()
    }

    #[test]
    fn start_and_end_make_a_fault() {
        let trace = read(&[event("a", "1.0", "fault_start"), event("a", "2.5", "fault_end")]);
        let trace = trace.unwrap();
        assert_eq!(trace.servers, 400);
        assert_eq!(trace.window, TraceTime::from_days(2.0));
        assert_eq!(trace.faults[0].end, TraceTime::from_days(2.5));
        assert_eq!(trace.faulty_at(TraceTime::from_days(1.0)), [ServerId(0)]);
        assert_eq!(trace.faulty_at(TraceTime::from_days(2.5)), []);
    }

    #[test]
    fn end_may_precede_a_start_of_the_same_time() {
        let events = [event("a", "1.0", "fault_end"), event("a", "1.0", "fault_start")];
        assert_eq!(read(&events).unwrap().faults.len(), 1);
    }

    #[test]
    fn fault_without_an_end_lasts_to_the_last_event() {
        let events = [
            event("a", "1.0", "fault_start"),
            event("b", "2.0", "fault_start"),
            event("b", "3.0", "fault_end"),
        ];
        let trace = read(&events).unwrap();
        assert_eq!(trace.open_faults, 1);
        assert_eq!(trace.faulty_at(TraceTime::from_days(2.9)), [ServerId(0), ServerId(1)]);
    }

    #[test]
    fn problems_name_line_column_record_and_reason() {
        let late = [event("a", "5.0", "fault_start"), event("a", "4.0", "fault_end")];
        assert_eq!(
            message(&late),
            "line 4, column 1: record 1: the fault of `a` ends at 4 days, before its start at \
             5 days (record 0)"
        );
        assert_eq!(
            message(&[event("a", "-0.5", "fault_start")]),
            "line 2, column 1: record 0: `event_time` is -0.5 days: time is counted from 0, the \
             start of observation"
        );
        assert_eq!(
            message(&[event("a", "1", "fault_start"), event("ghost", "2", "fault_end")]),
            "line 4, column 1: record 1: unknown node `ghost`: it has no `fault_start`"
        );
        let reopened = event("a", "1", "fault_start") + "," + &event("a", "2", "fault_end");
        assert!(
            message(&[reopened, event("a", "3", "fault_end")]).contains("has no `fault_start`")
        );
        assert_eq!(
            message(&[event("a", "\"soon\"", "fault_start")]),
            "line 2, column 37: record 0: expected a number, found the string `soon`"
        );
        assert!(message(&[event("a", "1e9", "fault_start")]).contains("not seconds"));
        assert!(message(&[event("a", "1", "explosion")]).contains("unknown word `explosion`"));
    }

    #[test]
    fn shows_all_problems_together() {
        let events = [event("a", "-1", "fault_start"), event("b", "1", "fault_end")];
        assert_eq!(message(&events).lines().count(), 2);
        let both = message(&[event("a", "\"9.07\"", "fault_stop")]);
        assert!(both.contains("found the string `9.07`: remove the quotation marks"));
        assert!(both.contains("unknown word `fault_stop`") && both.lines().count() == 2, "{both}");
    }

    #[test]
    fn rejects_files_that_are_not_traces_with_a_location() {
        let refuse =
            |bytes: &[u8]| FaultTrace::read(bytes, Observation::default()).unwrap_err().to_string();
        assert!(refuse(b"[\n oops").starts_with("line 2, column 2: this is not JSON"));
        assert_eq!(refuse(b""), "line 1, column 1: the file is empty");
        assert!(refuse(b"\xef\xbb\xbf[]").contains("this is not JSON"));
        assert!(refuse(b"3").contains("expected a list"));
        assert!(refuse(br#"{"server": 4, "events": []}"#).contains("unknown key `server`"));
        assert!(refuse(b"[]").contains("`days` must be positive"));
        let deep = "[".repeat(100_000);
        assert!(refuse(deep.as_bytes()).contains("the file ends"), "{}", refuse(deep.as_bytes()));
    }

    #[test]
    fn rejects_events_after_the_observed_days() {
        let events = [event("a", "1", "fault_start"), event("b", "9.5", "fault_start")];
        let text = format!("[\n{}]", events.join(",\n"));
        let read = |days: f64| {
            let known = Observation { days: Some(days), ..Observation::default() };
            FaultTrace::read(text.as_bytes(), known)
        };
        assert_eq!(
            read(4.0).unwrap_err().to_string(),
            "line 4, column 1: record 1: `event_time` is 9.5 days, after the observation, which ends \
             on day 4: correct `days`, or use --days"
        );
        assert!(read(9.0).is_ok(), "days are counted whole");
        assert!(read(30.0).is_ok());
        let late = [event("a", "3", "fault_start"), event("a", "400", "fault_end")];
        let known = Observation { days: Some(20.0), ..Observation::default() };
        let late = format!("[\n{}]", late.join(",\n"));
        let error = FaultTrace::read(late.as_bytes(), known).unwrap_err().to_string();
        assert!(error.contains("`event_time` is 400 days, after the observation"), "{error}");
    }

    #[test]
    fn excess_servers_are_unknown_nodes() {
        let text = format!(
            r#"{{"servers": 1, "days": 9, "events": [{}, {}]}}"#,
            event("a", "1", "fault_start"),
            event("b", "2", "fault_start")
        );
        let errors = FaultTrace::read(text.as_bytes(), Observation::default()).unwrap_err();
        assert!(errors.to_string().contains("unknown node `b`: the trace has only 1 servers"));
    }
}
