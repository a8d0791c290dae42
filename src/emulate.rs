//! `lightloom emulate`: runs a scenario packet by packet, under one seed or many.

mod ci;
mod junit;
mod live;
mod look;
pub(crate) mod rfabric;
mod summary;
mod sweep;
mod text;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lightloom_emulator::scenario::{
    self, Finished, FlowRow, Loaded, Scenario, SeedRange, Settings, Shard,
};
use lightloom_fabric::seed::Seed;

use crate::cli::{Format, FormatArgument};
use crate::output::{self, Outcome};
use crate::{files, plan};
pub(crate) use ci::Reports;
use live::Live;
pub(crate) use sweep::show as show_sweep;

/// Runs a scenario packet by packet: collectives, faults, what felt them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom emulate topologies/scenarios/node-fault.yaml
  lightloom emulate topologies/rfabric-2048.yaml
  lightloom emulate topologies/rfabric-faults.yaml
  lightloom emulate topologies/scenarios/node-fault.yaml --seed 7 --flows-out flows.csv --format json
  lightloom emulate topologies/scenarios/node-fault.yaml --seed 0..9 --junit junit.xml --summary summary.md
  lightloom emulate topologies/scenarios/node-fault.yaml --seed 0..99 --shard 3/8 --format json > part-3.json")]
pub(crate) struct Arguments {
    /// The scenario file, which names the fabric file relative to itself; or a reconfigurable fat-tree.
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
    look: look::Look,
    #[command(flatten)]
    reports: Reports,
    #[command(flatten)]
    format: FormatArgument,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    if let Some(bytes) = rfabric::claims(&arguments.scenario) {
        return rfabric::run(arguments, &bytes);
    }
    let source = Source::read(&arguments.scenario)?;
    match arguments.seed {
        Some(seeds) if seeds.is_many() || arguments.shard.is_some() => {
            sweep::run(arguments, &source, seeds)
        }
        seed => run_once(arguments, &source, seed.map(|range| Seed(range.first))),
    }
}

fn run_once(arguments: &Arguments, source: &Source, seed: Option<Seed>) -> anyhow::Result<Outcome> {
    let scenario = source.under(seed.unwrap_or(source.loaded.scenario.seed));
    let fabric = &source.loaded.fabric;
    let begun = Instant::now();
    let mut start = scenario::plan(fabric, &scenario)?;
    start.plan.metrics.plan_seconds = begun.elapsed().as_secs_f64();
    if arguments.format.format == Format::Text {
        output::print(&plan::describe(fabric, &start.plan, &start.verdict))?;
    }
    let watch = arguments.look.watch(fabric)?;
    let settings = Settings { threads: usize::from(arguments.threads), watch };
    let begun = Instant::now();
    let mut live = Live::new();
    let Finished { outcome: mut result, engine, installed } =
        scenario::run_from(fabric, &scenario, &start, settings, &mut live)?;
    drop(live);
    result.wall_seconds = begun.elapsed().as_secs_f64();
    result.packet_hops_per_second = result.packet_hops as f64 / result.wall_seconds;
    if let Some(path) = &arguments.flows_out {
        files::write(path, flows_csv(&result.flow_records).as_bytes())?;
    }
    arguments.look.write(&result, &engine, &installed)?;
    arguments.reports.write(&source.subject(), &[(&result).into()])?;
    if result.never_ended {
        output::note(&text::never_ended(&result));
    }
    match arguments.format.format {
        Format::Json => output::print_json(&result)?,
        Format::Text => output::print(&text::describe(&result))?,
    }
    Ok(if result.passed() { Outcome::Good } else { Outcome::Bad })
}

/// A scenario file that has been read, with its fabric.
struct Source {
    path: PathBuf,
    loaded: Loaded,
}

impl Source {
    /// Reads the scenario and all that it names, showing every mistake.
    fn read(path: &Path) -> anyhow::Result<Self> {
        let (loaded, mistakes) = match files::read_document(path) {
            Ok(bytes) => {
                scenario::load(&files::name(path), &bytes, &mut |name| files::beside(path, name))
            }
            Err(mistake) => (None, vec![*mistake]),
        };
        output::diagnostics(&mistakes);
        let loaded = loaded.ok_or(output::Refused)?;
        Ok(Self { path: path.to_owned(), loaded })
    }

    /// The scenario under one seed, which also decides which servers of a trace the nodes are.
    fn under(&self, seed: Seed) -> Scenario {
        Scenario { seed, ..self.loaded.scenario.clone() }
    }

    fn subject(&self) -> scenario::Subject {
        scenario::Subject {
            file: files::name(&self.path),
            scenario: self.loaded.scenario.name.clone(),
            fabric_sha256: self.loaded.fabric.sha256.clone(),
        }
    }
}

fn flows_csv<End: std::fmt::Display>(flows: &[FlowRow<End>]) -> String {
    let mut csv = String::from("flow,src,dst,bytes,start_ps,end_ps\n");
    for (number, flow) in flows.iter().enumerate() {
        let end = flow.end.map_or(String::new(), |end| end.0.to_string());
        let (source, destination) = (&flow.source, &flow.destination);
        let _ =
            writeln!(csv, "{number},{source},{destination},{},{},{end}", flow.size.0, flow.start.0);
    }
    csv
}
