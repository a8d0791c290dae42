// SPDX-License-Identifier: Apache-2.0

use prometheus::core::Collector;
use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, TextEncoder,
};

#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    pub transactions: IntCounterVec,
    pub transaction_seconds: Histogram,
    pub operation_seconds: Histogram,
    pub unknown: IntCounter,
    pub late: IntCounter,
    pub journal_seconds: Histogram,
    pub journal_records: IntGauge,
    pub journal_failed: IntGauge,
    pub event_to_fired_seconds: Histogram,
    pub device_up: GaugeVec,
    pub drifted_slots: GaugeVec,
    pub contended: GaugeVec,
    pub crossed_ends: GaugeVec,
    pub dark_circuits: IntGauge,
    pub device_noise: GaugeVec,
    pub confirm_pending_seconds: Gauge,
    pub requests: IntCounterVec,
    pub spans_dropped: IntCounter,
    pub hooks: IntCounterVec,
    pub job_lines: IntCounterVec,
    pub port_power_dbm: GaugeVec,
    pub attention: GaugeVec,
    pub broken_parts: GaugeVec,
    pub own_changes_left: IntGauge,
    pub phase: GaugeVec,
}

#[derive(Clone, Debug, Default)]
pub struct Watched {
    pub dark_circuits: usize,
    pub own_changes_left: usize,
    pub power_dbm: Vec<(String, String, f64)>,
    pub attention: Vec<String>,
    pub bypassed: usize,
    pub not_bypassed: usize,
    pub phase: Option<String>,
}

impl Metrics {
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new_custom(Some("lightloomd".into()), None)?;
        let metrics = Registering(&registry);
        let version = Opts::new("build_info", "Version of the running daemon.")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        metrics.add(IntGauge::with_opts(version)?)?.set(1);
        Ok(Self {
            transactions: metrics.counters(
                "transactions_total",
                "Completed transactions.",
                &["result"],
            )?,
            transaction_seconds: metrics
                .seconds("transaction_seconds", "Duration of transactions, from intent to end.")?,
            operation_seconds: metrics.seconds(
                "operation_seconds",
                "Time from sending an operation to a device to its reply.",
            )?,
            unknown: metrics
                .counter("outcomes_unknown_total", "Operations without a trustworthy reply.")?,
            late: metrics
                .counter("late_replies_total", "Replies that arrived after their time limit.")?,
            journal_seconds: metrics
                .seconds("journal_sync_seconds", "Time to make records durable.")?,
            journal_records: metrics.gauge("journal_records", "Records in the journal.")?,
            journal_failed: metrics.gauge("journal_failed", "1 when the journal has failed.")?,
            event_to_fired_seconds: metrics.seconds(
                "event_to_fired_seconds",
                "Time from a known fault to the first switched circuit.",
            )?,
            device_up: metrics.gauges(
                "device_up",
                "1 when the device is reachable.",
                &["device"],
            )?,
            drifted_slots: metrics.gauges(
                "drifted_slots",
                "Slots that differ from the journal.",
                &["device"],
            )?,
            contended: metrics.gauges(
                "device_contended",
                "1 while another controller changes it.",
                &["device"],
            )?,
            crossed_ends: metrics.gauges(
                "crossed_ends",
                "Ends that receive light from the wrong port.",
                &["device"],
            )?,
            dark_circuits: metrics
                .gauge("dark_circuits", "Planned circuits that are down for no known reason.")?,
            device_noise: metrics.gauges("device_noise", "Malformed messages.", &["device"])?,
            confirm_pending_seconds: metrics
                .add(Gauge::new("confirm_pending_seconds", "Time left to confirm.")?)?,
            requests: metrics.counters("requests_total", "API requests.", &["verb", "result"])?,
            spans_dropped: metrics
                .counter("spans_dropped_total", "Trace spans that did not reach a collector.")?,
            hooks: metrics.counters("hooks_total", "Runs of hooks.", &["hook", "result"])?,
            job_lines: metrics.counters(
                "job_lines_total",
                "Answered phase requests of process groups.",
                &["job", "result"],
            )?,
            port_power_dbm: metrics.gauges(
                "port_power_dbm",
                "Received power by device and slot.",
                &["device", "slot"],
            )?,
            attention: metrics.gauges(
                "device_attention",
                "1 when the device needs an operator.",
                &["device"],
            )?,
            broken_parts: metrics.gauges(
                "broken_parts",
                "Known faults, by whether the plan bypasses them.",
                &["bypassed"],
            )?,
            own_changes_left: metrics
                .gauge("own_changes_left", "Automatic changes left in the current hour.")?,
            phase: metrics.gauges("phase", "1 for the phase in force.", &["phase"])?,
            registry,
        })
    }

    pub fn watched(&self, watched: &Watched) {
        self.dark_circuits.set(i64::try_from(watched.dark_circuits).unwrap_or(i64::MAX));
        self.own_changes_left.set(i64::try_from(watched.own_changes_left).unwrap_or(i64::MAX));
        self.port_power_dbm.reset();
        for (device, slot, dbm) in &watched.power_dbm {
            self.port_power_dbm.with_label_values(&[device, slot]).set(*dbm);
        }
        self.attention.reset();
        for device in &watched.attention {
            self.attention.with_label_values(&[device]).set(1.0);
        }
        for (label, count) in [("yes", watched.bypassed), ("no", watched.not_bypassed)] {
            #[expect(clippy::cast_precision_loss, reason = "a metric")]
            self.broken_parts.with_label_values(&[label]).set(count as f64);
        }
        self.phase.reset();
        if let Some(phase) = &watched.phase {
            self.phase.with_label_values(&[phase]).set(1.0);
        }
    }

    pub fn text(&self) -> String {
        let mut text = Vec::new();
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8(text).unwrap_or_default()
    }
}

struct Registering<'a>(&'a Registry);

impl Registering<'_> {
    fn add<C: Collector + Clone + 'static>(&self, metric: C) -> Result<C, prometheus::Error> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.add(IntCounter::new(name, help)?)
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, prometheus::Error> {
        self.add(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.add(IntGauge::new(name, help)?)
    }

    fn gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<GaugeVec, prometheus::Error> {
        self.add(GaugeVec::new(Opts::new(name, help), labels)?)
    }

    fn seconds(&self, name: &str, help: &str) -> Result<Histogram, prometheus::Error> {
        let buckets = prometheus::exponential_buckets(0.000_25, 2.0, 18)?;
        self.add(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets))?)
    }
}
