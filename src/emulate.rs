//! `lightloom emulate`: runs a scenario packet by packet, under one seed or many.

mod ci;
mod junit;
mod summary;
mod sweep;
mod text;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lightloom_emulator::scenario::{
    self, Outcome as Run, Progress as Watch, Scenario, SeedRange, Shard,
};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::seed::Seed;
use lightloom_fabric::units::SimTime;
use lightloom_planner::khop::{self, Method};

use crate::cli::{Format, FormatArgument};
use crate::output::{self, Outcome};
use crate::progress::Progress;
use crate::{files, plan};
pub(crate) use ci::Reports;
pub(crate) use sweep::show as show_sweep;

/// Runs a scenario packet by packet: collectives, faults, what felt them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom emulate topologies/scenarios/node-fault.yaml
  lightloom emulate topologies/scenarios/node-fault.yaml --seed 7 --flows-out flows.csv --format json
  lightloom emulate topologies/scenarios/node-fault.yaml --seed 0..9 --junit junit.xml --summary summary.md
  lightloom emulate topologies/scenarios/node-fault.yaml --seed 0..99 --shard 3/8 --format json > part-3.json")]
pub(crate) struct Arguments {
    /// The scenario file; it names the fabric file, relative to itself.
    scenario: PathBuf,
    /// Seed of every random draw [default: the scenario's]; `0..99` runs a hundred seeds and tells
    /// which was the worst.
    #[arg(long, value_name = "N")]
    seed: Option<SeedRange>,
    /// Of the seeds, run only part `i` of `n`, counted from 0; `lightloom merge` puts the parts
    /// together.
    #[arg(long, value_name = "I/N", requires = "seed")]
    shard: Option<Shard>,
    /// Threads; the result does not depend on it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Write every flow to this file: flow,src,dst,bytes,start_ps,end_ps.
    #[arg(long, value_name = "FILE")]
    flows_out: Option<PathBuf>,
    #[command(flatten)]
    reports: Reports,
    #[command(flatten)]
    format: FormatArgument,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let source = Source::read(&arguments.scenario)?;
    match arguments.seed {
        Some(seeds) if seeds.is_many() || arguments.shard.is_some() => {
            sweep::run(arguments, &source, seeds)
        }
        seed => run_once(arguments, &source, seed.map(|range| Seed(range.first))),
    }
}

fn run_once(arguments: &Arguments, source: &Source, seed: Option<Seed>) -> anyhow::Result<Outcome> {
    let scenario = source.under(seed.unwrap_or(source.scenario.seed))?;
    let fabric = &source.fabric;
    if arguments.format.format == Format::Text {
        output::print(&describe_plan(fabric, &scenario)?)?;
    }
    let start = Instant::now();
    let mut bar = Bar::new(if scenario.faults.is_empty() { 1 } else { 2 });
    let mut result = scenario::run(fabric, &scenario, usize::from(arguments.threads), &mut bar)?;
    drop(bar);
    result.wall_seconds = start.elapsed().as_secs_f64();
    result.packet_hops_per_second = result.packet_hops as f64 / result.wall_seconds;
    if let Some(path) = &arguments.flows_out {
        files::write(path, flows_csv(&result).as_bytes())?;
    }
    arguments.reports.write(&source.subject(), &[(&result).into()])?;
    match arguments.format.format {
        Format::Json => output::print_json(&result)?,
        Format::Text => output::print(&text::describe(&result))?,
    }
    Ok(if result.passed() { Outcome::Good } else { Outcome::Bad })
}

/// A scenario file that has been read, with its fabric.
struct Source {
    path: PathBuf,
    fabric: Fabric,
    scenario: Scenario,
}

impl Source {
    /// Reads the scenario and its fabric, showing every mistake.
    fn read(path: &Path) -> anyhow::Result<Self> {
        let (scenario, mistakes) = match files::read_document(path) {
            Ok(bytes) => scenario::load(&files::name(path), &bytes),
            Err(mistake) => (None, vec![*mistake]),
        };
        output::diagnostics(&mistakes);
        let scenario = scenario.ok_or(output::Refused)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let fabric = files::read_fabric(&folder.join(&scenario.fabric))?;
        Ok(Self { path: path.to_owned(), fabric, scenario })
    }

    /// The scenario under one seed, which also decides which servers of a trace the nodes are.
    fn under(&self, seed: Seed) -> anyhow::Result<Scenario> {
        let mut scenario = Scenario { seed, ..self.scenario.clone() };
        if let Some(day) = &scenario.broken_by {
            let folder = self.path.parent().unwrap_or(Path::new(""));
            let trace = folder.join(&day.trace);
            let broken = plan::broken_on(&self.fabric, &trace, day.day, seed)?;
            scenario.broken.extend(broken);
        }
        Ok(scenario)
    }

    fn subject(&self) -> scenario::Subject {
        scenario::Subject {
            file: files::name(&self.path),
            scenario: self.scenario.name.clone(),
            fabric_sha256: self.fabric.sha256.clone(),
        }
    }
}

/// The plan that the run starts from.
fn describe_plan(fabric: &Fabric, scenario: &Scenario) -> anyhow::Result<String> {
    let faults = FaultSet::of(&fabric.hbd, scenario.broken.iter().copied())?;
    let start = Instant::now();
    let layout = khop::plan(fabric, &faults, Method::Scan)?;
    let mut document = khop::to_document(fabric, &faults, scenario.seed, &layout);
    document.metrics.plan_seconds = start.elapsed().as_secs_f64();
    let verdict = plan::prove(fabric, &faults, &document)?;
    Ok(plan::describe(fabric, &document, &verdict))
}

/// Progress over the runs of a scenario, each in thousandths.
struct Bar {
    progress: Progress,
    /// Thousandths of the runs before this one.
    before: u64,
    /// Thousandths of this run.
    this: u64,
}

impl Bar {
    fn new(runs: u64) -> Self {
        Self { progress: Progress::new("emulating", runs * 1000), before: 0, this: 0 }
    }
}

impl Watch for Bar {
    fn tell(&mut self, _: SimTime, _: u64, done: f64) {
        let done = (done * 1000.0) as u64;
        let told = self.before + self.this;
        // A share that falls back means that the next run has begun.
        if done < self.this {
            self.before += 1000;
        }
        self.this = done;
        self.progress.advance((self.before + done).saturating_sub(told));
    }
}

fn flows_csv(result: &Run) -> String {
    let mut csv = String::from("flow,src,dst,bytes,start_ps,end_ps\n");
    for (number, flow) in result.flow_records.iter().enumerate() {
        let end = flow.end.map_or(String::new(), |end| end.0.to_string());
        let (source, destination) = (flow.source, flow.destination);
        let _ =
            writeln!(csv, "{number},{source},{destination},{},{},{end}", flow.size.0, flow.start.0);
    }
    csv
}
