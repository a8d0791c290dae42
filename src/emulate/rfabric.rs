//! `lightloom emulate` on a reconfigurable fat-tree: the phase sequence of its plan, packet by packet.

mod look;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use lightloom_emulator::phases::{self, FaultResult, InFlight, Outcome as Run, PhaseScenario};
use lightloom_emulator::scenario::{Progress as Watch, Subject};
use lightloom_fabric::document::{self, Diagnostic};
use lightloom_fabric::provenance::{Input, Inputs};
use lightloom_planner::rfabric;
use lightloom_planner::rfabric::file::{self as rfabric_file, RfabricInput};
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};

use super::Arguments;
use crate::cli::Format;
use crate::output::{self, Outcome};
use crate::progress::Progress;
use crate::table::Table;
use crate::{files, plan_rfabric};

/// The contents of the file if it is run here. Standard input is not: it can be read only once.
pub(crate) fn claims(path: &Path) -> Option<Vec<u8>> {
    let bytes = path.is_file().then(|| files::read_document(path).ok())??;
    let keys = document::top_keys(&bytes);
    (rfabric_file::is_kind(&keys) || is_scenario(&keys)).then_some(bytes)
}

fn is_scenario(keys: &[String]) -> bool {
    keys.iter().any(|key| key == "rfabric")
}

/// Every mistake of a phase scenario, and of the fabric it names.
pub(crate) fn check(file: &str, bytes: &[u8]) -> Vec<Diagnostic> {
    load_scenario(Path::new(file), bytes, &mut Inputs::new()).1
}

type Loaded = (Option<(PhaseScenario, RfabricInput)>, Vec<Diagnostic>);

fn load_scenario(path: &Path, bytes: &[u8], inputs: &mut Inputs) -> Loaded {
    inputs.insert("scenario".to_owned(), Input::of(files::name(path), bytes));
    let mut mistakes_there = Vec::new();
    let mut named: Option<RfabricInput> = None;
    let mut read = |name: &str| {
        let fabric = path.parent().unwrap_or(Path::new("")).join(name);
        let input = match files::read_document(&fabric) {
            Ok(bytes) => {
                inputs.insert("fabric".to_owned(), Input::of(files::name(&fabric), &bytes));
                let mut beside = |matrix: &str| {
                    let text = plan_rfabric::read_beside(&fabric, matrix)?;
                    files::note_input(inputs, "matrix", matrix, text.as_bytes());
                    Ok(text)
                };
                let (input, found) = rfabric_file::load(&files::name(&fabric), &bytes, &mut beside);
                mistakes_there.extend(found);
                input
            }
            Err(mistake) => {
                mistakes_there.push(*mistake);
                None
            }
        };
        named.clone_from(&input);
        input
    };
    let (scenario, mut mistakes) = phases::load(&files::name(path), bytes, &mut read);
    mistakes.extend(mistakes_there);
    (scenario.zip(named), mistakes)
}

/// Plans the fabric, runs its phases with packets and shows what they took.
///
/// # Errors
/// If a file has mistakes, the step cannot be planned or the run cannot be made.
pub(crate) fn run(arguments: &Arguments, bytes: &[u8]) -> anyhow::Result<Outcome> {
    let path = arguments.scenario.as_path();
    super::refuse_proof(arguments, "a phase sequence")?;
    look::refuse_packets(&arguments.look)?;
    let mut inputs = Inputs::new();
    let (mut scenario, input) = if is_scenario(&document::top_keys(bytes)) {
        let (loaded, mistakes) = load_scenario(path, bytes, &mut inputs);
        output::diagnostics(&mistakes);
        loaded.ok_or(output::Refused)?
    } else {
        let input = plan_rfabric::load(path, bytes, &mut inputs)?;
        (PhaseScenario::undisturbed(&files::name(path)), input)
    };
    let plan = rfabric::plan(&input.fabric, &input.phases, &[], input.options)?;
    plan_rfabric::prove(&input, &plan)?;
    let subject = Subject {
        file: files::name(path),
        scenario: scenario.name.clone(),
        fabric_sha256: input.sha256.clone(),
    };
    if let Some(seeds) = arguments.seed {
        scenario.seed = Seed(seeds.first);
        if seeds.is_many() || arguments.shard.is_some() {
            return super::sweep::run(arguments, subject, &inputs, seeds, |seed| {
                let scenario = PhaseScenario { seed, ..scenario.clone() };
                Ok((&phases::run(&input, &plan, &scenario, 1, &mut ())?).into())
            });
        }
    }
    let text = arguments.format.format == Format::Text;
    if text {
        output::print(&plan_rfabric::heading(&input))?;
    }
    let mut bar = Bar::new(phases::runs(&scenario));
    let start = Instant::now();
    let mut result =
        phases::run(&input, &plan, &scenario, usize::from(arguments.threads), &mut bar)?;
    drop(bar);
    result.head.took(start.elapsed().as_secs_f64());
    result.head.made.inputs = inputs;
    if let Some(path) = &arguments.flows_out {
        files::write(path, super::flows_csv(&result.flow_records).as_bytes())?;
    }
    look::write(&arguments.look, &result)?;
    arguments.reports.write(&subject, &[(&result).into()])?;
    if text {
        output::print(&describe(&result))?;
    } else {
        output::print_json(&result)?;
    }
    Ok(if result.passed() { Outcome::Good } else { Outcome::Bad })
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

fn describe(result: &Run) -> String {
    let mut text = format!(
        "run `{}`, seed {}, packets of {} of data\n{}\n{}\n{}",
        result.head.scenario,
        result.head.seed.0,
        result.payload_bytes,
        scale(result),
        phase_table(result),
        step_table(result),
    );
    let faulty = !result.faults.is_empty();
    for fault in &result.faults {
        text.push_str(&describe_fault(fault));
    }
    let _ = writeln!(
        text,
        "optical ports: {:.3} % of their time in changes{}",
        100.0 * result.ports.switching_share,
        if faulty {
            format!(", {:.3} % dark for faults", 100.0 * result.ports.fault_share)
        } else {
            String::new()
        },
    );
    text.push_str(&undrained(result));
    let packets = &result.head.packets;
    let _ = writeln!(
        text,
        "packets: {} sent, {} delivered, {} dropped, {} lost on dark circuits, {} sent again\n\
         simulated {} in {:.2} s: {} packet-hops",
        packets.sent,
        packets.delivered,
        packets.dropped,
        packets.lost,
        packets.retransmitted,
        time(Some(Picoseconds(result.head.simulated.0))),
        result.head.wall_seconds,
        result.head.packet_hops,
    );
    text.push_str(&super::text::expectations(&result.expectations));
    text
}

/// Why a change lost packets although circuits are drained before it.
fn undrained(result: &Run) -> String {
    let lost = result.head.packets.lost;
    if result.in_flight != InFlight::Drain || !result.faults.is_empty() || lost == 0 {
        return String::new();
    }
    format!(
        "{lost} packets were still under way when mirrors moved, although their circuits were drained: the time from \
         the command to the mirrors is divided by {}, a round trip is not; choose a smaller `scale`\n",
        result.scale
    )
}

fn scale(result: &Run) -> String {
    match result.scale {
        1 => "at full size".to_owned(),
        scale => format!(
            "scaled down: sizes and times were divided by {scale}, the figures below are multiplied by it again"
        ),
    }
}

fn phase_table(result: &Run) -> Table {
    let faulty = !result.faults.is_empty();
    let mut headings = vec!["step", "phase", "bytes", "circuits", "change", "packets"];
    if faulty {
        headings.push("no faults");
    }
    headings.extend(["fluid", "closed form", "÷", "sent twice"]);
    let mut table = Table::with_headings(headings.into_iter().map(str::to_owned));
    for phase in &result.phases {
        let mut row = vec![
            phase.step.to_string(),
            phase.name.clone(),
            phase.demand_bytes.to_string(),
            format!("{} of {}", phase.circuits_up, phase.circuits_planned),
            if phase.change_missed { "missed".to_owned() } else { time(Some(phase.transition)) },
            time(phase.times.packets),
        ];
        if faulty {
            row.push(time(phase.times.packets_without_faults));
        }
        row.extend([
            time(phase.times.fluid),
            time(Some(phase.times.closed_form)),
            ratio(phase.times.packets, phase.times.closed_form),
            phase.resent_bytes.to_string(),
        ]);
        table.row(row);
    }
    table
}

fn step_table(result: &Run) -> String {
    let faulty = !result.faults.is_empty();
    let mut text = String::new();
    for step in &result.steps {
        let _ = write!(text, "step {}: packets {}", step.step, time(step.times.packets));
        if faulty {
            let _ = write!(text, " (without faults {})", time(step.times.packets_without_faults));
        }
        let _ = writeln!(
            text,
            ", fluid {}, closed form {}; packets ÷ closed form {}",
            time(step.times.fluid),
            time(Some(step.times.closed_form)),
            ratio(step.times.packets, step.times.closed_form),
        );
    }
    text
}

fn describe_fault(fault: &FaultResult) -> String {
    let mut counts = BTreeMap::new();
    for phase in &fault.phases_slowed {
        *counts
            .entry(phase.split_once('/').map_or(phase.as_str(), |(_, name)| name))
            .or_insert(0) += 1;
    }
    let slowed: Vec<String> = counts
        .into_iter()
        .map(
            |(name, times)| if times > 1 { format!("{name} ({times} times)") } else { name.into() },
        )
        .collect();
    format!(
        "fault: {} in {} of step {}{}: {} circuits lost, {} leaves affected, {} changes missed, {} packets lost; \
         slowed {}; the run took {} longer\n",
        fault.what,
        fault.phase,
        fault.step,
        match (fault.at, fault.repaired) {
            (None, _) => ", never reached".to_owned(),
            (Some(at), None) => format!(" at {}, not repaired", time(Some(Picoseconds(at.0)))),
            (Some(at), Some(repaired)) => format!(
                " at {}, repaired after {}",
                time(Some(Picoseconds(at.0))),
                time(Some(repaired.since(at)))
            ),
        },
        fault.circuits_lost,
        fault.leaves_affected.len(),
        fault.changes_missed,
        fault.packets_lost,
        if slowed.is_empty() { "nothing".to_owned() } else { slowed.join(", ") },
        fault.delay.map_or("for ever".to_owned(), |delay| time(Some(delay))),
    )
}

fn time(time: Option<Picoseconds>) -> String {
    time.map_or("never".to_owned(), plan_rfabric::rounded)
}

fn ratio(time: Option<Picoseconds>, reference: Picoseconds) -> String {
    time.map_or("-".to_owned(), |time| format!("{:.3}", time.0 as f64 / reference.0.max(1) as f64))
}
