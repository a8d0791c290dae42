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
    self, Finished, FlowRow, Loaded, Outcome as RunOutcome, Scenario, SeedRange, Settings, Shard,
    Sharing,
};
use lightloom_emulator::traffic::{self, TrafficScenario};
use lightloom_engine::capture::Watch;
use lightloom_engine::steady::Stage;
use lightloom_fabric::document::{self, Diagnostic};
use lightloom_fabric::provenance::{Input, Inputs};
use lightloom_units::seed::Seed;

use crate::cli::{Format, FormatArgument};
use crate::output::{self, Outcome, WrongUsage};
use crate::{files, kinds, plan};
pub(crate) use ci::Reports;
use live::Live;
pub(crate) use sweep::show as show_sweep;

/// Runs a scenario packet by packet: collectives, faults, what felt them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom emulate topologies/scenarios/node-fault.yaml
  lightloom emulate topologies/scenarios/lossless-incast.yaml
  lightloom emulate topologies/rfabric-2048.yaml
  lightloom emulate topologies/rfabric-faults.yaml
  lightloom emulate topologies/scenarios/node-fault.yaml --seed 7 --flows-out flows.csv --format json
  lightloom emulate topologies/scenarios/node-fault.yaml --prove-reuse
  lightloom emulate topologies/scenarios/node-fault.yaml --seed 0..9 --junit junit.xml --summary summary.md
  lightloom emulate topologies/scenarios/node-fault.yaml --seed 0..99 --shard 3/8 --format json > part-3.json")]
pub(crate) struct Arguments {
    /// The scenario file: of a fabric, which it names relative to itself; of traffic on a network; of a
    /// reconfigurable fat-tree, or that fat-tree itself.
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
    /// Simulate every ring, also those that are the same as another one. The result does not depend on it.
    #[arg(long)]
    no_reuse: bool,
    /// Simulate every ring besides, and compare every packet's arrival: fails at the first difference.
    #[arg(long, conflicts_with = "no_reuse")]
    prove_reuse: bool,
    #[command(flatten)]
    look: look::Look,
    #[command(flatten)]
    reports: Reports,
    #[command(flatten)]
    format: FormatArgument,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    if arguments.prove_reuse && arguments.look.is_asked_for() {
        let message = "--prove-reuse has nothing to prove with --timeline, --pcap or --links-out, for which \
                       everything is simulated";
        return Err(WrongUsage(message.to_owned()).into());
    }
    if let Some(bytes) = rfabric::claims(&arguments.scenario) {
        return rfabric::run(arguments, &bytes);
    }
    let source = Source::read(&arguments.scenario)?;
    match arguments.seed {
        Some(seeds) if seeds.is_many() || arguments.shard.is_some() => {
            sweep::run(arguments, source.subject(), &source.inputs, seeds, |seed| {
                Ok((&source.run(seed)?).into())
            })
        }
        seed => run_once(arguments, &source, seed.map(|range| Seed(range.first))),
    }
}

fn run_once(arguments: &Arguments, source: &Source, seed: Option<Seed>) -> anyhow::Result<Outcome> {
    match &source.what {
        What::Fabric(loaded) => {
            let scenario = under(&loaded.scenario, seed.unwrap_or(loaded.scenario.seed));
            run_fabric(arguments, source, loaded, &scenario)
        }
        What::Traffic(scenario) => {
            let seed = seed.unwrap_or(scenario.seed);
            run_traffic(arguments, source, &TrafficScenario { seed, ..(**scenario).clone() })
        }
    }
}

fn run_fabric(
    arguments: &Arguments,
    source: &Source,
    loaded: &Loaded,
    scenario: &Scenario,
) -> anyhow::Result<Outcome> {
    let fabric = &loaded.fabric;
    let begun = Instant::now();
    let start = scenario::plan(fabric, scenario)?;
    let took = begun.elapsed();
    if arguments.format.format == Format::Text {
        output::print(&plan::describe(fabric, &start.plan, &start.verdict, took))?;
    }
    let watch = arguments.look.watch(fabric)?;
    let settings =
        Settings { threads: usize::from(arguments.threads), watch, sharing: arguments.sharing() };
    let begun = Instant::now();
    let mut live = Live::new();
    let Finished { outcome, engine, installed } =
        scenario::run_from(fabric, scenario, &start, settings, &mut live)?;
    drop(live);
    let host = |vertex| installed.gpu(vertex).map_or_else(String::new, |gpu| gpu.to_string());
    let link = |link| installed.link_name(engine.network(), link);
    let names = look::Names { host: &host, link: &link };
    let result = timed(outcome, begun, source);
    if let Some(engine) = engine.engine() {
        arguments.look.write(&result, engine, &names)?;
    }
    conclude(arguments, source, &result)
}

/// Refuses to prove what is spared where nothing is.
fn refuse_proof(arguments: &Arguments, kind: &str) -> anyhow::Result<()> {
    if arguments.prove_reuse {
        let message =
            format!("--prove-reuse: {kind} is simulated whole, so there is nothing to prove");
        return Err(WrongUsage(message).into());
    }
    Ok(())
}

fn run_traffic(
    arguments: &Arguments,
    source: &Source,
    scenario: &TrafficScenario,
) -> anyhow::Result<Outcome> {
    refuse_proof(arguments, "traffic on a network")?;
    let plant = &scenario.plant;
    let watch = arguments.look.watch_plant(plant)?;
    if arguments.format.format == Format::Text {
        output::print(&text::network(scenario))?;
    }
    let begun = Instant::now();
    let mut live = Live::new();
    let traffic::Finished { outcome, engine } =
        traffic::run(scenario, usize::from(arguments.threads), watch, &mut live)?;
    drop(live);
    let host = |vertex| plant.name(vertex).to_owned();
    let link = |link| plant.link_name(link);
    let result = timed(outcome, begun, source);
    arguments.look.write(&result, &engine, &look::Names { host: &host, link: &link })?;
    conclude(arguments, source, &result)
}

fn timed(mut result: RunOutcome, begun: Instant, source: &Source) -> RunOutcome {
    result.head.took(begun.elapsed().as_secs_f64());
    result.head.made.inputs.clone_from(&source.inputs);
    result
}

/// Writes and shows the result of one run.
fn conclude(
    arguments: &Arguments,
    source: &Source,
    result: &RunOutcome,
) -> anyhow::Result<Outcome> {
    if let Some(path) = &arguments.flows_out {
        files::write(path, flows_csv(&result.flow_records).as_bytes())?;
    }
    arguments.reports.write(&source.subject(), &[result.into()])?;
    if result.never_ended {
        output::note(&text::never_ended(result));
    }
    match arguments.format.format {
        Format::Json => output::print_json(result)?,
        Format::Text => output::print(&text::describe(result))?,
    }
    Ok(if result.passed() { Outcome::Good } else { Outcome::Bad })
}

impl Arguments {
    /// Looking at packets and links takes the engine that has them all.
    fn sharing(&self) -> Sharing {
        if self.no_reuse || self.look.is_asked_for() {
            Sharing::Whole
        } else if self.prove_reuse {
            Sharing::Proven
        } else {
            Sharing::Reuse
        }
    }
}

/// A scenario file that has been read, with all that it names.
pub(crate) struct Source {
    path: PathBuf,
    what: What,
    /// The scenario file and all that it names.
    inputs: Inputs,
}

/// What a scenario is of.
enum What {
    Fabric(Box<Loaded>),
    Traffic(Box<TrafficScenario>),
}

/// Whether a file with these top keys is a scenario of traffic.
fn is_traffic(keys: &[String]) -> bool {
    keys.iter().any(|key| key == "network") && !keys.iter().any(|key| key == "fabric")
}

impl Source {
    /// Every mistake of a file of faults that this scenario could name.
    pub(crate) fn check_faults(&self, file: &str, bytes: &[u8]) -> Vec<Diagnostic> {
        match &self.what {
            What::Fabric(loaded) => {
                let (fabric, switches) = (&loaded.fabric, &loaded.scenario.switches);
                scenario::load_faults(file, bytes, Some(fabric), Some(switches)).1
            }
            What::Traffic(scenario) => scenario.check_faults(file, bytes),
        }
    }

    /// Reads the scenario and all that it names, showing every mistake.
    ///
    /// # Errors
    /// If there is one.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let mut inputs = Inputs::new();
        let (what, mistakes) = match files::read_document(path) {
            Ok(bytes) => Self::load(path, &bytes, &mut inputs),
            Err(mistake) => (None, vec![*mistake]),
        };
        output::diagnostics(&mistakes);
        Ok(Self { path: path.to_owned(), what: what.ok_or(output::Refused)?, inputs })
    }

    fn load(path: &Path, bytes: &[u8], inputs: &mut Inputs) -> (Option<What>, Vec<Diagnostic>) {
        inputs.insert("scenario".to_owned(), Input::of(files::name(path), bytes));
        let mut beside = |name: &str| {
            let file = files::beside(path, name)?;
            files::note_input(inputs, kinds::role_of(&file.bytes), &file.name, &file.bytes);
            Ok(file)
        };
        if is_traffic(&document::top_keys(bytes)) {
            let (loaded, mistakes) = traffic::load(&files::name(path), bytes, &mut beside);
            return (loaded.map(|loaded| What::Traffic(Box::new(loaded))), mistakes);
        }
        let (loaded, mistakes) = scenario::load(&files::name(path), bytes, &mut beside);
        (loaded.map(|loaded| What::Fabric(Box::new(loaded))), mistakes)
    }

    /// Runs the scenario under one seed, on one thread and without telling anybody.
    fn run(&self, seed: Seed) -> anyhow::Result<RunOutcome> {
        Ok(match &self.what {
            What::Fabric(loaded) => {
                scenario::run(&loaded.fabric, &under(&loaded.scenario, seed), 1, &mut ())?
            }
            What::Traffic(scenario) => {
                let scenario = TrafficScenario { seed, ..(**scenario).clone() };
                traffic::run(&scenario, 1, Watch::default(), &mut ())?.outcome
            }
        })
    }

    fn subject(&self) -> scenario::Subject {
        let (scenario, fabric_sha256) = match &self.what {
            What::Fabric(loaded) => (&loaded.scenario.name, &loaded.fabric.sha256),
            What::Traffic(scenario) => (&scenario.name, &scenario.sha256),
        };
        scenario::Subject {
            file: files::name(&self.path),
            scenario: scenario.clone(),
            fabric_sha256: fabric_sha256.clone(),
        }
    }
}

/// The scenario under one seed, which also decides which servers of a trace the nodes are.
fn under(scenario: &Scenario, seed: Seed) -> Scenario {
    Scenario { seed, ..scenario.clone() }
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
