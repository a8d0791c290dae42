// SPDX-License-Identifier: Apache-2.0

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
        let counter = |name: &str, help: &str| registered(&registry, IntCounter::new(name, help)?);
        let by = |name: &str, help: &str, labels: &[&str]| {
            registered(&registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let gauge_by = |name: &str, help: &str| {
            registered(&registry, GaugeVec::new(Opts::new(name, help), &["device"])?)
        };
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            registered(&registry, GaugeVec::new(Opts::new(name, help), labels)?)
        };
        let int_gauge = |name: &str, help: &str| registered(&registry, IntGauge::new(name, help)?);
        let seconds = |name: &str, help: &str| {
            let buckets = prometheus::exponential_buckets(0.000_25, 2.0, 18)?;
            let options = HistogramOpts::new(name, help).buckets(buckets);
            registered(&registry, Histogram::with_opts(options)?)
        };
        let version = Opts::new("build_info", "Version of the running daemon.")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        registered(&registry, IntGauge::with_opts(version)?)?.set(1);
        Ok(Self {
            transactions: by("transactions_total", "Completed transactions.", &["result"])?,
            transaction_seconds: seconds(
                "transaction_seconds",
                "Duration of transactions, from \
                intent to end.",
            )?,
            operation_seconds: seconds(
                "operation_seconds",
                "Time from sending an operation to a device to its reply.",
            )?,
            unknown: counter("outcomes_unknown_total", "Operations without a trustworthy reply.")?,
            late: counter("late_replies_total", "Replies that arrived after their time limit.")?,
            journal_seconds: seconds("journal_sync_seconds", "Time to make records durable.")?,
            journal_records: int_gauge("journal_records", "Records in the journal.")?,
            journal_failed: int_gauge("journal_failed", "1 when the journal has failed.")?,
            event_to_fired_seconds: seconds(
                "event_to_fired_seconds",
                "Time from a known fault to the first switched circuit.",
            )?,
            device_up: gauge_by("device_up", "1 when the device is reachable.")?,
            drifted_slots: gauge_by("drifted_slots", "Slots that differ from the journal.")?,
            contended: gauge_by("device_contended", "1 while another controller changes it.")?,
            crossed_ends: gauge_by("crossed_ends", "Ends that receive light from the wrong port.")?,
            dark_circuits: int_gauge(
                "dark_circuits",
                "Planned circuits that are down for no known reason.",
            )?,
            device_noise: gauge_by("device_noise", "Malformed messages.")?,
            confirm_pending_seconds: registered(
                &registry,
                Gauge::new("confirm_pending_seconds", "Time left to confirm.")?,
            )?,
            requests: by("requests_total", "API requests.", &["verb", "result"])?,
            spans_dropped: counter(
                "spans_dropped_total",
                "Trace spans that did not reach a \
                collector.",
            )?,
            hooks: by("hooks_total", "Runs of hooks.", &["hook", "result"])?,
            port_power_dbm: gauges(
                "port_power_dbm",
                "Received power by device and slot.",
                &["device", "slot"],
            )?,
            attention: gauge_by("device_attention", "1 when the device needs an operator.")?,
            broken_parts: gauges(
                "broken_parts",
                "Known faults, by whether the plan bypasses them.",
                &["bypassed"],
            )?,
            own_changes_left: int_gauge(
                "own_changes_left",
                "Automatic changes left in the current hour.",
            )?,
            phase: gauges("phase", "1 for the phase in force.", &["phase"])?,
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

    #[must_use]
    pub fn text(&self) -> String {
        let mut text = Vec::new();
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8(text).unwrap_or_default()
    }
}

fn registered<C: prometheus::core::Collector + Clone + 'static>(
    registry: &Registry,
    metric: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}
