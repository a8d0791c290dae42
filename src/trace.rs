// SPDX-License-Identifier: Apache-2.0

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use lightloom_fabric::provenance::{Input, Inputs};
use lightloom_fabric::trace::{
    FaultTrace, Observation, Statistics, Synthesis, TraceErrors, public_json,
};
use lightloom_units::seed::Seed;

use crate::output::{self, VerbOutcome};
use crate::result::{ResultArguments, ResultDocument};
use crate::table::TextTable;
use crate::{files, kinds};

/// Inspect and generate fault traces
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom trace info fault_trace.json
  lightloom trace synth --servers 16384 --seed 7 year.json")]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show fault counts, durations and concurrent outages
    Info(InfoArguments),
    /// Generate a trace with the rate, durations and months of the public one
    Synth(Synth),
}

/// Values that the trace file may lack.
#[derive(Clone, Copy, Debug, Args)]
pub struct ObservationArguments {
    /// Number of observed servers [default: the file's, or the public trace's 400]
    #[arg(long, value_name = "N", value_parser = crate::number::whole::<u32>(1..=u32::MAX.into()))]
    servers: Option<u32>,
    /// Days of observation [default: the file's, or whole days up to the last event]
    #[arg(long, value_name = "DAYS", allow_negative_numbers = true)]
    days: Option<f64>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  lightloom trace info fault_trace.json --format json")]
struct InfoArguments {
    /// Trace file: JSON as published with InfiniteHBD or written by `trace synth`
    file: PathBuf,
    #[command(flatten)]
    observation: ObservationArguments,
    #[command(flatten)]
    result: ResultArguments,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  lightloom trace synth --servers 16384 --seed 7 year.json")]
struct Synth {
    /// File to write [default: standard output]
    file: Option<PathBuf>,
    /// Number of servers with 8 GPUs
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = crate::number::whole::<u32>(1..=u32::MAX.into()))]
    servers: u32,
    /// Days of observation
    #[arg(long, value_name = "DAYS", default_value_t = 348.0)]
    days: f64,
    /// Faults per server and year [default: the public trace's 1.53]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::number::whole::<u64>(0..=u64::MAX))]
    seed: u64,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    match &arguments.verb {
        Verb::Info(arguments) => info(arguments)?,
        Verb::Synth(arguments) => synth(arguments)?,
    }
    Ok(VerbOutcome::Good)
}

pub fn read(
    path: &Path,
    observation: Observation,
    inputs: &mut Inputs,
) -> anyhow::Result<FaultTrace> {
    let bytes = files::read_result(path)?;
    inputs.insert("trace".to_owned(), Input::of(files::name(path), &bytes));
    FaultTrace::read(&bytes, observation).map_err(|errors| refused(path, &bytes, &errors))
}

pub fn refused(path: &Path, bytes: &[u8], errors: &TraceErrors) -> anyhow::Error {
    let help = "docs/traces.md describes its JSON";
    if let Err(other) = kinds::expect(path, bytes, "a fault trace", help) {
        return other.into();
    }
    let lines: Vec<String> = errors.0.iter().map(|error| format!("\n  {error}")).collect();
    anyhow::anyhow!("{} is not a fault trace:{}", path.display(), lines.concat())
}

impl From<ObservationArguments> for Observation {
    fn from(arguments: ObservationArguments) -> Self {
        Self { servers: arguments.servers, gpus_per_server: None, days: arguments.days }
    }
}

fn info(arguments: &InfoArguments) -> anyhow::Result<()> {
    let mut inputs = Inputs::new();
    let trace = read(&arguments.file, arguments.observation.into(), &mut inputs)?;
    let statistics = trace.statistics();
    let document = ResultDocument::new("lightloom.trace/v1", inputs, &statistics);
    arguments.result.show(&document, "", || describe(&statistics))
}

fn synth(arguments: &Synth) -> anyhow::Result<()> {
    let Synth { servers, days, rate, seed, .. } = *arguments;
    let published = Synthesis::published(Seed(seed));
    let rate = rate.unwrap_or(published.faults_per_server_year);
    anyhow::ensure!(
        days > 0.0 && days <= 36_525.0,
        "`--days` must be over 0 and at most a century"
    );
    anyhow::ensure!((0.0..=1_000.0).contains(&rate), "`--rate` must be from 0 to 1000");
    let synthesis = Synthesis { servers, days, faults_per_server_year: rate, ..published };
    let source = format!(
        "synthetic: lightloom {} trace synth --servers {servers} --days {days} --rate {rate} \
         --seed {seed}",
        env!("CARGO_PKG_VERSION")
    );
    let text = public_json(&synthesis.trace(), &source);
    match &arguments.file {
        Some(path) => files::write(path, text.as_bytes()),
        None => output::print(&text),
    }
}

fn describe(statistics: &Statistics) -> String {
    let concurrency = &statistics.concurrency;
    let servers = f64::from(statistics.servers);
    let [p50, p90, p99, most] = [
        concurrency.p50_servers,
        concurrency.p90_servers,
        concurrency.p99_servers,
        concurrency.max_servers,
    ]
    .map(|count| format!("{count} ({:.2} %)", 100.0 * f64::from(count) / servers));
    let durations = &statistics.durations;
    let mut table = TextTable::new(["figure", "value"]);
    for (figure, value) in [
        ("servers watched", statistics.servers.to_string()),
        ("servers with a fault", statistics.servers_affected.to_string()),
        ("days watched", statistics.window_days.to_string()),
        ("faults", statistics.faults.to_string()),
        ("faults without an end", statistics.open_faults.to_string()),
        ("faults of zero length", durations.zero_length.to_string()),
        ("faults per server and year", format!("{:.2}", statistics.faults_per_server_year)),
        ("server-days lost", format!("{:.1}", statistics.server_days)),
        ("servers out of service, mean", format!("{:.3} %", 100.0 * concurrency.mean_ratio)),
        ("servers out of service, P50", p50),
        ("servers out of service, P90", p90),
        ("servers out of service, P99", p99),
        ("servers out of service, maximum", most),
        ("fault duration in days, mean", format!("{:.2}", durations.mean_days)),
    ] {
        table.row([figure.to_owned(), value]);
    }
    for (share, days) in &durations.quantiles_days {
        let figure = format!("fault duration in days, P{:.0}", share * 100.0);
        table.row([figure, format!("{days:.3}")]);
    }
    for (ratio, month) in statistics.mean_ratio_by_month.iter().zip(0..) {
        let figure = format!("servers out of service, days {}-{}", month * 30, (month + 1) * 30);
        table.row([figure, format!("{:.2} %", 100.0 * ratio)]);
    }
    let mut kinds = TextTable::new(["class of fault", "faults", "share of downtime"]);
    for kind in &statistics.kinds {
        let share = format!("{:.1} %", 100.0 * kind.downtime_share);
        kinds.row([kind.class.clone(), kind.faults.to_string(), share]);
    }
    format!("{table}\n{kinds}")
}
