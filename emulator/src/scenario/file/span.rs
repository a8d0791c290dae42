// SPDX-License-Identifier: Apache-2.0

use std::str::FromStr;
use std::sync::Arc;

use lightloom_fabric::document::Check;
use lightloom_fabric::trace::{Timeline, TraceTime};
use lightloom_units::{Dollars, Milliseconds, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

use super::neighbours::NamedFiles;
use super::{ScenarioFile, codes, restart};
use crate::scenario::{FailureRate, FailureSource, KnownLosses, On, RunStart, Scenario, Span};
use crate::substrate::AnyPart;

/// Failures during a span: a fault trace, or failure rates by kind of part.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FailuresFile {
    /// Fault trace, relative to this file; see `lightloom trace`.
    pub trace: Option<String>,
    /// First day of the trace; default 0.
    #[schemars(range(min = 0, max = 36525))]
    pub from_day: Option<f64>,
    /// Nodes.
    pub node: Option<RateFile>,
    /// Packet switches.
    pub switch: Option<RateFile>,
    /// Cables.
    pub cable: Option<RateFile>,
    /// Optical switches.
    pub optical_switch: Option<RateFile>,
}

/// Failure rate and repair time of one part; both times are exponentially distributed.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateFile {
    /// Mean time between failures of one part.
    pub mtbf: Text<Milliseconds>,
    /// Mean time to repair.
    pub repair: Text<Milliseconds>,
    /// Source of these figures. Without it, the result marks them as assumed.
    #[serde(default)]
    pub source: Option<String>,
}

impl FailuresFile {
    fn rates(&self) -> [(&'static str, AnyPart, Option<&RateFile>); 4] {
        [
            ("node", AnyPart::Node, self.node.as_ref()),
            ("switch", AnyPart::Switch, self.switch.as_ref()),
            ("cable", AnyPart::Cable, self.cable.as_ref()),
            ("optical_switch", AnyPart::OpticalSwitch, self.optical_switch.as_ref()),
        ]
    }
}

fn key_of(part: AnyPart) -> &'static str {
    let none = FailuresFile::default();
    none.rates().iter().find(|(_, any, _)| *any == part).map_or("", |(key, ..)| *key)
}

/// Price of a GPU-hour, such as `2.5 USD`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuHourFile(pub Dollars);

impl FromStr for GpuHourFile {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().strip_suffix("USD").and_then(|number| number.trim().parse().ok());
        let price = number.filter(|price: &f64| price.is_finite() && *price > 0.0);
        price.map(|price| Self(Dollars(price))).ok_or_else(|| {
            format!(
                "`{text}` is not a price of a GPU-hour: use a number and `USD`, such as `2.5 USD`"
            )
        })
    }
}

impl<'de> Deserialize<'de> for GpuHourFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for GpuHourFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "gpu_hour".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "The cost of a GPU-hour in United States dollars",
            "pattern": "^[0-9]+(\\.[0-9]+)? *USD$",
            "examples": ["2.5 USD"],
        })
    }
}

const SAMPLES: u32 = 16;

pub(super) fn lower(
    raw: &ScenarioFile,
    check: &mut Check<'_>,
    neighbours: &mut NamedFiles<'_, '_>,
) -> Option<Span> {
    let Some(Text(length)) = raw.span else {
        refuse_without(raw, check);
        return None;
    };
    if raw.train.is_empty() {
        check
            .error(codes::NO_EFFECT, "/span", "there is no training job for this span")
            .help("add `train: [{job: NAME}]` with a job of the fabric")
            .depends_on("/train");
    }
    if length == Milliseconds::ZERO {
        check.error(codes::BAD_WORKLOAD, "/span", "the span has a length of 0").help("write `90d`");
    }
    refuse_beside(raw, check);
    if raw.samples.is_some_and(|samples| !(2..=1000).contains(&samples)) {
        check
            .error(codes::BAD_WORKLOAD, "/samples", "the number of runs is out of range")
            .help("use 2 to 1000");
    }
    let Some(failures) = &raw.failures else {
        check
            .error(codes::BAD_FAULT, "/span", "this span requires `failures`")
            .help(
                "add `failures: {node: {mtbf: 50000h, repair: 24h}}`, or `failures: {trace: FILE}`",
            )
            .depends_on("/failures");
        return None;
    };
    let source = lower_failures(failures, length, check, neighbours)?;
    let samples = raw.samples.unwrap_or(SAMPLES).clamp(2, 1000);
    let gpu_hour = raw.gpu_hour.map(|GpuHourFile(price)| price);
    let losses = match &raw.losses {
        Some(file) => Some(lower_losses(file, raw.samples.is_some(), check, neighbours)?),
        None => None,
    };
    Some(Span { length, failures: source, samples, losses, gpu_hour })
}

fn refuse_without(raw: &ScenarioFile, check: &mut Check<'_>) {
    let keys = [
        ("/failures".to_owned(), raw.failures.is_some()),
        ("/samples".to_owned(), raw.samples.is_some()),
        ("/losses".to_owned(), raw.losses.is_some()),
        ("/gpu_hour".to_owned(), raw.gpu_hour.is_some()),
    ];
    let keys = keys.into_iter().filter(|(_, written)| *written);
    let help = "add `span: 90d`, or leave it out";
    let keys = keys.map(|(key, _)| (key, help));
    let restarts = raw.train.iter().enumerate();
    let restarts = restarts.filter_map(|(at, train)| restart::of_span(at, train.restart));
    for (key, help) in keys.chain(restarts) {
        check.error(codes::NO_EFFECT, &key, "this requires `span`").help(help).depends_on("/span");
    }
}

fn refuse_beside(raw: &ScenarioFile, check: &mut Check<'_>) {
    let keys = ["/faults", "/faults_in", "/replay", "/broken", "/broken_by", "/expect", "/traffic"];
    let steps = (0..raw.train.len()).map(|at| format!("/train/{at}/steps"));
    for key in keys.map(str::to_owned).into_iter().chain(steps) {
        if check.is_written(&key) {
            let name = key.rsplit('/').next().unwrap_or_default();
            let message = format!("`{name}` has no effect together with `span`");
            check.error(codes::NO_EFFECT, &key, message).also("/span", "specified here").help(
                "leave it out: over a span, `failures` determines the faults, and jobs run as many steps as fit",
            );
        }
    }
}

fn lower_failures(
    raw: &FailuresFile,
    length: Milliseconds,
    check: &mut Check<'_>,
    neighbours: &mut NamedFiles<'_, '_>,
) -> Option<FailureSource> {
    let written: Vec<_> =
        raw.rates().into_iter().filter_map(|(key, part, rate)| Some((key, part, rate?))).collect();
    let Some(file) = &raw.trace else {
        if raw.from_day.is_some() {
            let message = "`from_day` requires `trace`";
            check.error(codes::NO_EFFECT, "/failures/from_day", message).help("add `trace: FILE`");
        }
        return lower_rates(&written, check);
    };
    for (key, ..) in &written {
        let path = format!("/failures/{key}");
        check
            .error(
                codes::NO_EFFECT,
                &path,
                "a rate has no effect with a trace, which lists all failures",
            )
            .also("/failures/trace", "specified here")
            .help("leave one of them out");
    }
    let trace = neighbours.trace(file, "/failures/trace", check)?;
    let from_day = raw.from_day.unwrap_or(0.0);
    let rest = trace.window.ms_since(TraceTime::from_days(from_day.max(0.0)));
    if from_day < 0.0 || length.get() > rest {
        let days = trace.window.as_days();
        let message =
            format!("{length} from day {from_day} exceeds the length of the trace ({days} days)");
        check
            .error(codes::NO_SUCH_THING, "/span", message)
            .also("/failures/trace", "specified here")
            .help(
                "use a shorter span, or create a longer trace with `lightloom trace synth --days`",
            );
        return None;
    }
    Some(FailureSource::Trace { trace, file: file.clone(), from_day })
}

fn lower_losses(
    file: &str,
    has_samples: bool,
    check: &mut Check<'_>,
    neighbours: &mut NamedFiles<'_, '_>,
) -> Option<Arc<KnownLosses>> {
    if has_samples {
        let message = "with `losses`, no runs are executed";
        check
            .error(codes::NO_EFFECT, "/samples", message)
            .also("/losses", "specified here")
            .help("leave one of them out");
    }
    let read = neighbours.read(file, "/losses", check)?;
    match serde_json::from_slice::<KnownLosses>(&read.bytes) {
        Ok(known) => Some(Arc::new(KnownLosses { file: file.to_owned(), ..known })),
        Err(error) => {
            let message = format!("losses cannot be read from {}: {error}", read.name);
            check.error(codes::BAD_NEIGHBOUR, "/losses", message).help(
                "use the result of `lightloom emulate SCENARIO -o FILE.json` for a scenario with `span`",
            );
            None
        }
    }
}

fn require_losses(scenario: &Scenario, span: &Span, check: &mut Check<'_>) {
    let Some(known) = &span.losses else { return };
    for train in &scenario.train {
        let is_there = known.job(&train.job).map(|job| job.fits(train.restart));
        let message = match is_there {
            Some(true) => continue,
            Some(false) => format!(
                "{} contains job `{}` with a different policy, and losses of elastic jobs are not comparable",
                known.file, train.job
            ),
            None => format!("{} does not contain job `{}`", known.file, train.job),
        };
        check
            .error(codes::NO_SUCH_THING, "/losses", message)
            .help("leave `losses` out to execute the runs");
    }
    let FailureSource::Rates(rates) = &span.failures else { return };
    for rate in rates.iter().filter(|rate| known.runs.iter().all(|run| run.case.part != rate.part))
    {
        let message =
            format!("{} does not contain a run in which {} fails", known.file, rate.part.name());
        check
            .error(codes::NO_SUCH_THING, "/losses", message)
            .help("leave `losses` out, or this rate");
    }
}

fn lower_rates(
    written: &[(&'static str, AnyPart, &RateFile)],
    check: &mut Check<'_>,
) -> Option<FailureSource> {
    if written.is_empty() {
        check
            .error(codes::BAD_FAULT, "/failures", "a trace or a rate is required")
            .help("use `{node: {mtbf: 50000h, repair: 24h}}`, or `{trace: FILE}`");
        return None;
    }
    let mut rates = Vec::new();
    for (key, part, RateFile { mtbf, repair, source }) in written {
        for (of, time) in [("mtbf", mtbf.0), ("repair", repair.0)] {
            if time == Milliseconds::ZERO {
                let path = format!("/failures/{key}/{of}");
                check
                    .error(codes::BAD_FAULT, &path, "the time must be positive")
                    .help("write `24h`");
            }
        }
        rates.push(FailureRate {
            part: *part,
            mtbf: mtbf.0,
            repair: repair.0,
            source: source.clone(),
        });
    }
    Some(FailureSource::Rates(rates))
}

pub(super) fn require(scenario: &Scenario, start: &RunStart, check: &mut Check<'_>) {
    if let Some(span) = &scenario.span {
        require_losses(scenario, span, check);
    }
    match scenario.span.as_ref().map(|span| &span.failures) {
        Some(FailureSource::Rates(rates)) => {
            for rate in rates.iter().filter(|rate| start.substrate.count(rate.part) == 0) {
                let path = format!("/failures/{}", key_of(rate.part));
                let message = format!("the fabric does not have {}", rate.part.name());
                check
                    .error(codes::NO_SUCH_THING, &path, message)
                    .help("leave it out")
                    .depends_on("/on");
            }
        }
        Some(FailureSource::Trace { trace, .. }) => {
            let On::Fabric(fabric) = &scenario.on else { return };
            let per_node = u32::from(fabric.hbd.gpus_per_node());
            let nodes = fabric.hbd.nodes();
            if let Err(error) = Timeline::on_nodes(trace, nodes, per_node, scenario.seed, 0) {
                check
                    .error(codes::BAD_NEIGHBOUR, "/failures/trace", error.to_string())
                    .depends_on("/on");
            }
        }
        None => {}
    }
}
