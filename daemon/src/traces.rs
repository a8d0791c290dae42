// SPDX-License-Identifier: Apache-2.0
//! OpenTelemetry traces of changes, with spans for requests, journal records and operations.
//!
//! Tracing never delays a change: spans are dropped and counted if the queue is full or the collector is unreachable.

mod otlp;

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use lightloom_control::controller::Ticket;
use lightloom_control::record::{Cause, Intent, Record, TxnResult};
use lightloom_control::state::{DeviceName, Op, Outcome, Txn};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::config::TracesFile;
use crate::metrics::Metrics;
use otlp::{Exporter, Span};

const WAITING_MAX: usize = 8_192;
const REQUESTS_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    trace: [u8; 16],
    span: [u8; 8],
}

impl TraceParent {
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
        let parent = Self { trace: bytes_of(trace)?, span: bytes_of(span)? };
        let is_some = parent.trace != [0; 16] && parent.span != [0; 8];
        (version.len() == 2 && version != "ff" && parts.next().is_some() && is_some)
            .then_some(parent)
    }
}

fn bytes_of<const LENGTH: usize>(hex: &str) -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    if hex.len() != 2 * LENGTH || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[derive(Clone, Debug, Default)]
pub struct Parents(Arc<Mutex<VecDeque<(String, TraceParent)>>>);

impl Parents {
    pub fn keep(&self, request: &str, parent: TraceParent) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() == REQUESTS_MAX {
            known.pop_front();
        }
        known.push_back((request.to_owned(), parent));
    }

    fn take(&self, request: &str) -> Option<TraceParent> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = known.iter().position(|(of, _)| of == request)?;
        known.remove(at).map(|(_, parent)| parent)
    }
}

#[derive(Debug, Default)]
pub struct Traces {
    to: Option<SyncSender<Span>>,
    parents: Parents,
    metrics: Option<Metrics>,
    open: Option<(Txn, Span)>,
    operations: BTreeMap<(DeviceName, Ticket), Span>,
    spans: u64,
}

impl Traces {
    pub fn start(
        file: Option<&TracesFile>,
        instance: &str,
        metrics: &Metrics,
    ) -> anyhow::Result<(Self, Parents)> {
        let parents = Parents::default();
        let Some(file) = file else { return Ok((Self::default(), parents)) };
        let (to, spans) = sync_channel(WAITING_MAX);
        let exporter = Exporter::new(file, instance, metrics)?;
        std::thread::spawn(move || exporter.run(&spans));
        let (to, metrics) = (Some(to), Some(metrics.clone()));
        Ok((Self { to, parents: parents.clone(), metrics, ..Self::default() }, parents))
    }

    pub fn written(&mut self, records: &[Record], began: SystemTime, is_written: bool) {
        if self.to.is_none() {
            return;
        }
        let intent = records.iter().find_map(|record| match record {
            Record::Intent(intent) => Some(intent),
            _ => None,
        });
        if let Some(intent) = intent.filter(|_| is_written) {
            self.begin(intent, began);
        }
        let Some(mut span) = self.child("journal".into(), began) else { return };
        span.attributes.push(("lightloom.records", records.len().to_string()));
        span.error = (!is_written).then(|| "not written".to_owned());
        self.send(span);
    }

    fn begin(&mut self, intent: &Intent, began: SystemTime) {
        let parent = self.parents.take(&intent.asked.request);
        let trace = parent.map_or_else(|| self.id::<16>(), |parent| parent.trace);
        let (id, name) = (self.id(), cause_word(&intent.cause));
        let mut span = Span::new(trace, id, parent.map(|parent| parent.span), name, nanos(began));
        let attributes = [
            ("lightloom.txn", intent.txn.to_string()),
            ("lightloom.actor", intent.asked.actor.to_string()),
            ("lightloom.request_id", intent.asked.request.clone()),
            ("lightloom.plan_sha256", intent.plan_sha256.clone()),
            ("lightloom.devices_moved", intent.after.len().to_string()),
        ];
        span.attributes.extend(attributes.into_iter().filter(|(_, value)| !value.is_empty()));
        if let Cause::Rollback(undone) | Cause::ConfirmTimeout(undone) = intent.cause {
            span.attributes.push(("lightloom.undoes", undone.to_string()));
        }
        self.open = Some((intent.txn, span));
    }

    pub fn asked(&mut self, device: &DeviceName, ticket: Ticket, op: &Op) {
        let verb = match op {
            Op::Observe { .. } => "observe",
            Op::Arm { .. } => "arm",
            Op::Disarm { .. } => "disarm",
            Op::Switch { .. } => "switch",
        };
        let Some(mut span) = self.child(verb.into(), SystemTime::now()) else { return };
        span.attributes.push(("lightloom.device", device.to_string()));
        if let Op::Switch { moves, .. } = op {
            span.attributes.push(("lightloom.moves", moves.len().to_string()));
        }
        self.operations.insert((device.clone(), ticket), span);
    }

    pub fn answered(&mut self, device: &DeviceName, ticket: Ticket, outcome: &Outcome) {
        if self.operations.is_empty() {
            return;
        }
        let Some(mut span) = self.operations.remove(&(device.clone(), ticket)) else { return };
        span.error = match outcome {
            Outcome::Done(_) => None,
            Outcome::Refused(why) => Some(format!("refused: {why}")),
            // A device without light may have worked: the far end may not have switched.
            Outcome::Failed(why) => {
                span.attributes.push(("lightloom.said", why.clone()));
                None
            }
            Outcome::Unknown(why) => Some(format!("no answer: {why}")),
        };
        self.send(span);
    }

    pub fn ended(&mut self, txn: Txn, result: TxnResult, word: &str, trouble: Option<&str>) {
        let Some((_, mut span)) = self.open.take_if(|(open, _)| *open == txn) else { return };
        self.operations.clear();
        span.attributes.push(("lightloom.result", word.to_owned()));
        let why = trouble.map(|trouble| format!("{word}: {trouble}")).unwrap_or(word.to_owned());
        span.error = (result != TxnResult::Committed).then_some(why);
        self.send(span);
    }

    fn child(&mut self, name: String, began: SystemTime) -> Option<Span> {
        let id = self.id();
        let (_, open) = self.open.as_ref()?;
        Some(Span::new(open.trace, id, Some(open.id), name, nanos(began)))
    }

    fn id<const LENGTH: usize>(&mut self) -> [u8; LENGTH] {
        self.spans += 1;
        let now = nanos(SystemTime::now());
        let seed = format!("{now} {} {}", std::process::id(), self.spans);
        let digest = Sha256::digest(seed);
        let mut id = [0; LENGTH];
        id.copy_from_slice(&digest[..LENGTH]);
        id
    }

    fn send(&self, mut span: Span) {
        span.end = nanos(SystemTime::now());
        let is_dropped = self.to.as_ref().is_some_and(|to| to.try_send(span).is_err());
        if let Some(metrics) = self.metrics.as_ref().filter(|_| is_dropped) {
            metrics.spans_dropped.inc();
        }
    }
}

fn cause_word(cause: &Cause) -> String {
    match serde_json::to_value(cause) {
        Ok(Value::String(word)) => word,
        Ok(Value::Object(of)) => of.keys().next().cloned().unwrap_or_default(),
        _ => String::new(),
    }
}

fn nanos(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::TraceParent;

    #[test]
    fn parses_only_valid_trace_context_headers() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = TraceParent::parse(good).unwrap();
        assert_eq!((parent.trace[0], parent.span[1]), (0x4b, 0xf0));
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
    }
}
