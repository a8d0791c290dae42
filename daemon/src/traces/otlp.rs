// SPDX-License-Identifier: Apache-2.0

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::Agent;

use crate::config::TracesFile;
use crate::http;
use crate::metrics::Metrics;
use lightloom_control::journal::hex;

/// Batch size, and maximum delay of the first span in a batch.
const SPANS_MAX: usize = 512;
const GATHERED_WITHIN: Duration = Duration::from_millis(500);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const INTERNAL: u8 = 1;
const OK: u8 = 1;
const ERROR: u8 = 2;

#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) trace: [u8; 16],
    pub(super) id: [u8; 8],
    parent: Option<[u8; 8]>,
    name: String,
    start: u64,
    pub(super) end: u64,
    pub(super) attributes: Vec<(&'static str, String)>,
    pub(super) error: Option<String>,
}

impl Span {
    pub(super) fn new(
        trace: [u8; 16],
        id: [u8; 8],
        parent: Option<[u8; 8]>,
        name: String,
        start: u64,
    ) -> Self {
        let (attributes, error) = (Vec::new(), None);
        Self { trace, id, parent, name, start, end: start, attributes, error }
    }

    fn json(&self) -> Value {
        let state = match &self.error {
            None => json!({"code": OK}),
            Some(why) => json!({"code": ERROR, "message": why}),
        };
        let attributes: Vec<Value> =
            self.attributes.iter().map(|(key, value)| attribute(key, value)).collect();
        let mut span = json!({
            "traceId": hex(&self.trace), "spanId": hex(&self.id), "name": self.name, "kind": INTERNAL,
            "startTimeUnixNano": self.start.to_string(), "endTimeUnixNano": self.end.to_string(),
            "attributes": attributes, "status": state,
        });
        if let Some(parent) = &self.parent {
            span["parentSpanId"] = hex(parent).into();
        }
        span
    }
}

fn attribute(key: &str, value: &str) -> Value {
    match value.parse::<i64>() {
        Ok(number) => json!({"key": key, "value": {"intValue": number.to_string()}}),
        Err(_) => json!({"key": key, "value": {"stringValue": value}}),
    }
}

pub(super) struct Exporter {
    agent: Agent,
    url: String,
    instance: String,
    metrics: Metrics,
    is_away: bool,
}

impl Exporter {
    pub(super) fn new(
        file: &TracesFile,
        instance: &str,
        metrics: &Metrics,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            agent: http::agent(file.tls.as_ref(), ANSWER_WITHIN)?,
            url: format!("{}/v1/traces", file.endpoint.trim_end_matches('/')),
            instance: instance.to_owned(),
            metrics: metrics.clone(),
            is_away: false,
        })
    }

    pub(super) fn run(mut self, spans: &Receiver<Span>) {
        while let Ok(first) = spans.recv() {
            let (until, mut batch) = (Instant::now() + GATHERED_WITHIN, vec![first]);
            while batch.len() < SPANS_MAX {
                match spans.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(span) => batch.push(span),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            self.post(&batch);
        }
    }

    fn post(&mut self, batch: &[Span]) {
        let body = json!({"resourceSpans": [{
            "resource": {"attributes": [
                attribute("service.name", "lightloomd"),
                attribute("service.version", env!("CARGO_PKG_VERSION")),
                attribute("service.instance.id", &self.instance),
            ]},
            "scopeSpans": [{
                "scope": {"name": "lightloomd"},
                "spans": batch.iter().map(Span::json).collect::<Vec<_>>(),
            }],
        }]});
        let answer = self
            .agent
            .post(&self.url)
            .header("Content-Type", "application/json")
            .send(body.to_string().as_bytes());
        let trouble = match answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = &trouble {
            self.metrics.spans_dropped.inc_by(batch.len() as u64);
            if !self.is_away {
                tracing::warn!(
                    url = self.url,
                    why,
                    "traces are dropped until the collector responds"
                );
            }
        }
        self.is_away = trouble.is_some();
    }
}
