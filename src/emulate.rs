//! `lightloom emulate`: runs a scenario packet by packet.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lightloom_emulator::scenario::{self, Outcome as Run, Progress as Watch, Scenario};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::seed::Seed;
use lightloom_fabric::units::{Picoseconds, SimTime};
use lightloom_planner::khop::{self, Method};

use crate::cli::{Format, FormatArgument};
use crate::output::{self, Outcome};
use crate::progress::Progress;
use crate::table::Table;
use crate::{files, plan};

/// Runs a scenario packet by packet: collectives, faults, what felt them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom emulate topologies/scenarios/node-fault.yaml
  lightloom emulate topologies/scenarios/node-fault.yaml --seed 7 --flows-out flows.csv --format json")]
pub(crate) struct Arguments {
    /// The scenario file; it names the fabric file, relative to itself.
    scenario: PathBuf,
    /// Seed of every random draw [default: the scenario's].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Threads; the result does not depend on it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Write every flow to this file: flow,src,dst,bytes,start_ps,end_ps.
    #[arg(long, value_name = "FILE")]
    flows_out: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgument,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let (fabric, scenario) = read(arguments)?;
    if arguments.format.format == Format::Text {
        output::print(&describe_plan(&fabric, &scenario)?)?;
    }
    let start = Instant::now();
    let mut bar = Bar::new(if scenario.faults.is_empty() { 1 } else { 2 });
    let mut result = scenario::run(&fabric, &scenario, usize::from(arguments.threads), &mut bar)?;
    drop(bar);
    result.wall_seconds = start.elapsed().as_secs_f64();
    result.packet_hops_per_second = result.packet_hops as f64 / result.wall_seconds;
    if let Some(path) = &arguments.flows_out {
        files::write(path, flows_csv(&result).as_bytes())?;
    }
    match arguments.format.format {
        Format::Json => output::print_json(&result)?,
        Format::Text => output::print(&describe(&result))?,
    }
    Ok(if result.passed() { Outcome::Good } else { Outcome::Bad })
}

/// Reads the scenario, its fabric and its trace.
fn read(arguments: &Arguments) -> anyhow::Result<(Fabric, Scenario)> {
    let (scenario, mistakes) = match files::read_document(&arguments.scenario) {
        Ok(bytes) => scenario::load(&files::name(&arguments.scenario), &bytes),
        Err(mistake) => (None, vec![*mistake]),
    };
    output::diagnostics(&mistakes);
    let mut scenario = scenario.ok_or(output::Refused)?;
    if let Some(seed) = arguments.seed {
        scenario.seed = Seed(seed);
    }
    let folder = arguments.scenario.parent().unwrap_or(Path::new(""));
    let fabric = files::read_fabric(&folder.join(&scenario.fabric))?;
    if let Some(day) = &scenario.broken_by {
        scenario.broken.extend(plan::broken_on(
            &fabric,
            &folder.join(&day.trace),
            day.day,
            scenario.seed,
        )?);
    }
    Ok((fabric, scenario))
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

fn describe(result: &Run) -> String {
    let mut text =
        format!("\nrun `{}`, seed {}\n\n{}", result.scenario, result.seed.0, collectives(result));
    for fault in &result.faults {
        text.push_str(&describe_fault(result, fault));
    }
    let packets = &result.packets;
    let _ = writeln!(
        text,
        "\npackets: {} sent, {} delivered, {} dropped, {} lost on dark links, {} sent again, {} marked",
        packets.sent,
        packets.delivered,
        packets.dropped,
        packets.lost,
        packets.retransmitted,
        packets.marked,
    );
    let _ = writeln!(
        text,
        "flows: {} ended (median {}, P99 {}, longest {}), {} given up for a restart",
        result.flows.count,
        result.flows.fct_p50,
        result.flows.fct_p99,
        result.flows.fct_max,
        result.flows.cancelled,
    );
    let _ = writeln!(
        text,
        "simulated {} in {:.2} s: {} packet-hops, {:.1} million a second{}",
        result.simulated,
        result.wall_seconds,
        result.packet_hops,
        result.packet_hops_per_second / 1e6,
        if result.faults.is_empty() { "" } else { " (the run without faults comes on top)" },
    );
    for expectation in &result.expectations {
        let verdict = if expectation.passed { "passed" } else { "FAILED" };
        let _ = writeln!(text, "{verdict}: {} ({})", expectation.expect, expectation.value);
    }
    text
}

/// One line for each collective of the scenario, over all groups.
fn collectives(result: &Run) -> String {
    let mut table = Table::new([
        "collective",
        "kind",
        "size",
        "runs",
        "groups",
        "fastest",
        "median",
        "slowest",
        "lower bound",
        "bus GB/s",
        "restarts",
    ]);
    let mut names: Vec<&str> = result.collectives.iter().map(|c| c.name.as_str()).collect();
    names.dedup();
    let mut seen = Vec::new();
    for name in names {
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        let all: Vec<_> = result.collectives.iter().filter(|c| c.name == name).collect();
        let mut times: Vec<Picoseconds> =
            all.iter().filter_map(|c| c.end.map(|end| end.since(c.start))).collect();
        times.sort_unstable();
        let groups: std::collections::BTreeSet<_> = all.iter().filter_map(|c| c.group).collect();
        let undisturbed = all.iter().filter(|c| c.restarts == 0).map(|c| c.busbw_bytes_per_s);
        let show = |time: Option<&Picoseconds>| time.map_or("-".to_owned(), ToString::to_string);
        table.row([
            name.to_owned(),
            all[0].kind.to_owned(),
            all[0].bytes.to_string(),
            all.len().to_string(),
            if groups.is_empty() { "all".to_owned() } else { groups.len().to_string() },
            show(times.first()),
            show(times.get(times.len() / 2)),
            show(times.last()),
            all[0].ideal.to_string(),
            format!("{:.1}", undisturbed.fold(0.0, f64::max) / 1e9),
            all.iter().map(|c| c.restarts).sum::<u32>().to_string(),
        ]);
    }
    table.to_string()
}

fn describe_fault(result: &Run, fault: &scenario::FaultResult) -> String {
    let since = |at: Option<SimTime>| {
        at.map_or("never".to_owned(), |at| format!("+{}", at.since(fault.at)))
    };
    let groups: Vec<String> = fault.groups_affected.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "\nfault: {} at {}: detected {}, replanned {}, restored {}; {} bundles switched{}\n",
        fault.what,
        fault.at,
        since(fault.detected),
        since(fault.replanned),
        since(fault.restored),
        fault.bundles_switched,
        fault.dark.map_or(String::new(), |[least, most]| format!(", dark for {least} to {most}")),
    );
    let all: std::collections::BTreeSet<_> =
        result.collectives.iter().filter_map(|c| c.group).collect();
    let moved = |group: &&lightloom_fabric::id::GroupId| {
        result.collectives.iter().any(|c| c.group == Some(**group) && c.end != c.end_without_faults)
    };
    let felt = |group: &&lightloom_fabric::id::GroupId| fault.groups_affected.contains(group);
    let unmoved = all.iter().filter(|group| !moved(group) && !felt(group)).count();
    let _ = writeln!(
        text,
        "felt by: {} ({} GPUs; {} out of service); the other {unmoved} groups ended every collective at the \
         same picosecond as without the fault",
        if groups.is_empty() { "no group".to_owned() } else { groups.join(" ") },
        fault.gpus_affected,
        fault.gpus_lost,
    );
    text
}
