//! What a monitoring system scrapes at `/metrics`. Names and units follow OpenMetrics.

use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, TextEncoder,
};

/// Every metric of the daemon.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// Transactions that ended, by result.
    pub transactions: IntCounterVec,
    /// Time from intent to end.
    pub transaction_seconds: Histogram,
    /// Time from sending an operation to its answer: what devices and the way to them take.
    pub operation_seconds: Histogram,
    /// Operations without an answer that can be trusted.
    pub unknown: IntCounter,
    /// Answers that came after nobody waited.
    pub late: IntCounter,
    /// Time to make records durable.
    pub journal_seconds: Histogram,
    /// Records in the journal.
    pub journal_records: IntGauge,
    /// 1 when the journal has failed and changes are refused.
    pub journal_failed: IntGauge,
    /// Time from a fault being known to the first light moving.
    pub event_to_fired_seconds: Histogram,
    /// 1 when a device can be talked to.
    pub device_up: GaugeVec,
    /// Slots that stand elsewhere than the ledger says.
    pub drifted_slots: GaugeVec,
    /// 1 while another controller changes a device that this daemon changes.
    pub contended: GaugeVec,
    /// Ends that are lit by others than the fabric says.
    pub crossed_ends: GaugeVec,
    /// Circuits of the plan that do not stand, where nothing else explains it.
    pub dark_circuits: IntGauge,
    /// Messages from a device that made no sense.
    pub device_noise: GaugeVec,
    /// Time that is left to confirm.
    pub confirm_pending_seconds: Gauge,
    /// API requests, by verb and result.
    pub requests: IntCounterVec,
}

impl Metrics {
    /// All at zero.
    ///
    /// # Errors
    /// If two metrics have one name.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new_custom(Some("lightloomd".into()), None)?;
        let counter = |name: &str, help: &str| registered(&registry, IntCounter::new(name, help)?);
        let by = |name: &str, help: &str, labels: &[&str]| {
            registered(&registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let gauge_by = |name: &str, help: &str| {
            registered(&registry, GaugeVec::new(Opts::new(name, help), &["device"])?)
        };
        let int_gauge = |name: &str, help: &str| registered(&registry, IntGauge::new(name, help)?);
        let seconds = |name: &str, help: &str| {
            let buckets = prometheus::exponential_buckets(0.000_25, 2.0, 18)?;
            let options = HistogramOpts::new(name, help).buckets(buckets);
            registered(&registry, Histogram::with_opts(options)?)
        };
        let version = Opts::new("build_info", "The version that runs.")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        registered(&registry, IntGauge::with_opts(version)?)?.set(1);
        Ok(Self {
            transactions: by("transactions_total", "Transactions that ended.", &["result"])?,
            transaction_seconds: seconds("transaction_seconds", "From intent to end.")?,
            operation_seconds: seconds(
                "operation_seconds",
                "From sending an operation to a device to its answer.",
            )?,
            unknown: counter("outcomes_unknown_total", "Operations without a trusted answer.")?,
            late: counter("late_replies_total", "Answers that came after nobody waited.")?,
            journal_seconds: seconds("journal_sync_seconds", "To make records durable.")?,
            journal_records: int_gauge("journal_records", "Records in the journal.")?,
            journal_failed: int_gauge("journal_failed", "1 when changes are refused for it.")?,
            event_to_fired_seconds: seconds(
                "event_to_fired_seconds",
                "From a fault being known to the first light moving.",
            )?,
            device_up: gauge_by("device_up", "1 when the device can be talked to.")?,
            drifted_slots: gauge_by("drifted_slots", "Slots that stand elsewhere.")?,
            contended: gauge_by("device_contended", "1 while another controller changes it.")?,
            crossed_ends: gauge_by("crossed_ends", "Ends lit by others than the fabric says.")?,
            dark_circuits: int_gauge(
                "dark_circuits",
                "Circuits of the plan that do not stand and nothing explains it.",
            )?,
            device_noise: gauge_by("device_noise", "Messages that made no sense.")?,
            confirm_pending_seconds: registered(
                &registry,
                Gauge::new("confirm_pending_seconds", "Time that is left to confirm.")?,
            )?,
            requests: by("requests_total", "API requests.", &["verb", "result"])?,
            registry,
        })
    }

    /// The text a scraper reads.
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
