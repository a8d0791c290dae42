// SPDX-License-Identifier: Apache-2.0

mod ci;
mod daemon;
mod junit;
mod live;
mod look;
mod months;
mod phases;
mod source;
mod steps;
mod summary;
mod sweep;
mod text;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use lightloom_emulator::outcome::{FlowRow, Outcome as RunOutcome};
use lightloom_emulator::run::IslandReuse;
use lightloom_emulator::scenario::{self, On, RunStart, Scenario};
use lightloom_emulator::shipped::{MakeControl, no_daemon};
use lightloom_emulator::sweep::{SeedRange, SweepShard};
use lightloom_emulator::{RunSettings, emulate_with};
use lightloom_units::seed::Seed;

use crate::output::{self, VerbOutcome, WrongUsage};
use crate::result::ResultArguments;
use crate::second::Needed;
use crate::{files, plan};
pub use ci::Reports;
pub use live::Live;
pub use source::ScenarioSource;
pub use sweep::show as show_sweep;

/// Run a scenario packet by packet: times, faults and their effects
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom emulate topologies/scenarios/node-fault.yaml
  lightloom emulate topologies/scenarios/lossless-incast.yaml
  lightloom emulate topologies/scenarios/all-at-once.yaml
  lightloom emulate topologies/rfabric-2048.yaml
  lightloom emulate topologies/scenarios/node-fault.yaml --plan plan.json
  lightloom emulate topologies/scenarios/node-fault.yaml --seed 7 --flows-out flows.csv --format json
  lightloom emulate topologies/scenarios/node-fault.yaml --prove-reuse
  lightloom emulate topologies/scenarios/node-fault.yaml --seed 0..9 --junit junit.xml --summary summary.md
  lightloom emulate topologies/scenarios/node-fault.yaml --seed 0..99 --shard 3/8 --format json > part-3.json
  lightloom emulate topologies/scenarios/months.yaml --seed 0..99")]
pub struct Arguments {
    /// Scenario file, or a fabric file whose step is run once without faults
    scenario: PathBuf,
    /// Active plan, as written by `lightloom plan`, `replan` or `ctl plan` [default: the
    /// scenario's, or a new plan for the fabric's initial state]
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Seed of all random draws [default: the scenario's]; `0..99` runs a hundred seeds and reports
    /// the worst
    #[arg(long, value_name = "N")]
    seed: Option<SeedRange>,
    /// Run only part `i` of `n` of the seeds, counted from 0; combine the parts with `lightloom
    /// merge`
    #[arg(long, value_name = "I/N")]
    shard: Option<SweepShard>,
    /// Continue an interrupted sweep: take the finished seeds from the file of -o, which is saved
    /// every few seconds
    #[arg(long, requires_all = ["seed", "output"])]
    resume: bool,
    /// Number of threads; does not affect the result
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::number::whole::<u16>(1..=256))]
    threads: u16,
    /// Write one line per flow to this file: flow,src,dst,bytes,start_ps,end_ps,workload
    #[arg(long, value_name = "FILE", value_parser = files::destination)]
    flows_out: Option<PathBuf>,
    /// Simulate every ring, even one identical to a simulated ring; does not affect the result
    #[arg(long)]
    no_reuse: bool,
    /// Also simulate reused rings and compare the arrival of every packet; fail at the first
    /// difference
    #[arg(long, conflicts_with = "no_reuse")]
    prove_reuse: bool,
    #[command(flatten)]
    look: look::Recordings,
    #[command(flatten)]
    reports: Reports,
    #[command(flatten)]
    result: ResultArguments,
}

/// `control` creates the production daemon. Without it, a scenario that needs the daemon returns [`Needed`].
pub fn run(arguments: &Arguments, control: Option<&MakeControl>) -> anyhow::Result<VerbOutcome> {
    if arguments.prove_reuse && arguments.look.is_asked_for() {
        let message = "--prove-reuse has no effect with --timeline, --pcap, --links-out or series, which simulate every ring";
        return Err(WrongUsage(message.to_owned()).into());
    }
    if let (Some(SweepShard { index, count }), None) = (arguments.shard, arguments.seed) {
        let message = format!("--shard {index}/{count} needs a range of seeds: add --seed 0..99");
        return Err(WrongUsage(message).into());
    }
    arguments.look.refuse_idle()?;
    let first = arguments.seed.map(|seeds| Seed(seeds.first));
    let (source, mistakes) =
        ScenarioSource::read_under(arguments.plan.as_deref(), first, &arguments.scenario);
    let runs_daemon =
        source.as_ref().is_some_and(|source| source.scenario.control.lightloomd.is_some());
    if runs_daemon && control.is_none() {
        return Err(Needed.into());
    }
    output::diagnostics(&mistakes);
    let source = source.ok_or(output::InputRefused)?;
    let control = control.unwrap_or(&no_daemon);
    if source.scenario.span.is_some() {
        return months::run(arguments, &source, control);
    }
    match arguments.seed {
        Some(seeds) if seeds.is_many() || arguments.shard.is_some() || arguments.resume => {
            sweep::run(arguments, source.subject(), &source.inputs, seeds, |seed| {
                Ok((&of_a_sweep(&source.under(seed), control)?).into())
            })
        }
        seed => {
            let seed = seed.map_or(source.scenario.seed, |range| Seed(range.first));
            run_once(arguments, &source, &source.under(seed), control)
        }
    }
}

fn of_a_sweep(
    scenario: &Scenario,
    control: &MakeControl,
) -> anyhow::Result<lightloom_emulator::outcome::Outcome> {
    let start = scenario::plan(scenario)?;
    let (watch, sharing) = (Default::default(), IslandReuse::Reuse);
    let settings = RunSettings { threads: 1, watch, sharing, series: None };
    Ok(emulate_with(scenario, &start, settings, control, &mut ())?.outcome)
}

fn run_once(
    arguments: &Arguments,
    source: &ScenarioSource,
    scenario: &Scenario,
    control: &MakeControl,
) -> anyhow::Result<VerbOutcome> {
    let start = scenario::plan(scenario)?;
    arguments.look.refuse_packets(scenario)?;
    let watch = arguments.look.watch(&start.substrate)?;
    let threads = usize::from(arguments.threads);
    let (sharing, series) = (arguments.sharing(), arguments.look.series());
    let settings = RunSettings { threads, watch, sharing, series };
    let begun = Instant::now();
    let mut live = Live::default();
    let finished = emulate_with(scenario, &start, settings, control, &mut live)?;
    drop(live);
    let mut result = finished.outcome;
    result.head.took(begun.elapsed().as_secs_f64());
    result.head.made.inputs.clone_from(&source.inputs);
    if let Some(engine) = finished.engine.engine() {
        arguments.look.write(&result, engine, &finished.substrate, &finished.series)?;
    }
    conclude(arguments, source, &result, || heading(scenario, &start))
}

fn heading(scenario: &Scenario, start: &RunStart) -> String {
    match (&scenario.on, start.plan.as_deref()) {
        (On::Fabric(fabric), Some((plan, _))) => plan::heading(fabric, plan),
        _ => text::network(&start.substrate),
    }
}

fn conclude(
    arguments: &Arguments,
    source: &ScenarioSource,
    result: &RunOutcome,
    heading: impl Fn() -> String,
) -> anyhow::Result<VerbOutcome> {
    if let Some(path) = &arguments.flows_out {
        files::write(path, flows_csv(&result.flow_records).as_bytes())?;
    }
    arguments.reports.write(&source.subject(), &[result.into()])?;
    if result.never_ended {
        output::note(&text::never_ended(result));
    }
    let rows = match result.workloads.is_empty() && !result.steps.is_empty() {
        true => "steps",
        false => "workloads",
    };
    arguments.result.show(result, rows, || text::describe(result, &heading()))?;
    Ok(if result.passed() { VerbOutcome::Good } else { VerbOutcome::Bad })
}

impl Arguments {
    /// To record packets or links, the engine must simulate all of them.
    fn sharing(&self) -> IslandReuse {
        if self.no_reuse || self.look.is_asked_for() {
            IslandReuse::Whole
        } else if self.prove_reuse {
            IslandReuse::Proven
        } else {
            IslandReuse::Reuse
        }
    }
}

fn flows_csv(flows: &[FlowRow]) -> String {
    let mut csv = String::from("flow,src,dst,bytes,start_ps,end_ps,workload\n");
    for (number, flow) in flows.iter().enumerate() {
        let end = flow.end.map_or(String::new(), |end| end.0.to_string());
        let (source, destination) = (&flow.source, &flow.destination);
        let workload = flow.workload.as_deref().unwrap_or_default();
        let _ = writeln!(
            csv,
            "{number},{source},{destination},{},{},{end},{workload}",
            flow.size.0, flow.start.0
        );
    }
    csv
}
