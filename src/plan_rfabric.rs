//! `lightloom plan` on a reconfigurable fat-tree: the phase table and the changes between phases.

use std::fs;
use std::path::Path;
use std::time::Instant;

use lightloom_fabric::document;
use lightloom_fabric::units::Picoseconds;
use lightloom_planner::rfabric::check::check;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::file::{self, RfabricInput};
use lightloom_planner::rfabric::{self, RfabricPlan};
use serde::Serialize;

use crate::cli::Format;
use crate::output::{self, Outcome, Refused};
use crate::table::Table;

/// The plan as programs read it.
#[derive(Serialize)]
struct PlanDocument<'a> {
    schema: &'static str,
    name: &'a str,
    #[serde(flatten)]
    plan: &'a RfabricPlan,
    metrics: Metrics,
}

#[derive(Serialize)]
struct Metrics {
    gpus_total: u64,
    plan_seconds: f64,
}

/// Whether the file describes a reconfigurable fat-tree.
pub(crate) fn is_kind(bytes: &[u8]) -> bool {
    file::is_kind(&document::top_keys(bytes))
}

/// Plans the file's step and shows the plan; writes it to `plan_file` as JSON where one is named.
///
/// # Errors
/// If the step cannot be planned or the plan cannot be written.
pub(crate) fn run(
    path: &Path,
    bytes: &[u8],
    format: Format,
    plan_file: Option<&Path>,
) -> anyhow::Result<Outcome> {
    let input = load(path, bytes)?;
    let start = Instant::now();
    let plan = rfabric::plan(&input.fabric, &input.phases, &[], input.options)?;
    let plan_seconds = start.elapsed().as_secs_f64();
    prove(&input, &plan)?;
    let spec = input.fabric.spec();
    let document = PlanDocument {
        schema: lightloom_fabric::plan::SCHEMA,
        name: &input.name,
        plan: &plan,
        metrics: Metrics {
            gpus_total: u64::from(spec.leaves) * u64::from(spec.gpus_per_leaf),
            plan_seconds,
        },
    };
    if let Some(plan_file) = plan_file {
        crate::files::write(plan_file, &serde_json::to_vec_pretty(&document)?)?;
    }
    match format {
        Format::Json => output::print_json(&document)?,
        Format::Text => output::print(&text(&input, &plan, plan_seconds))?,
    }
    Ok(Outcome::Good)
}

/// Holds a plan against the independent checker.
///
/// # Errors
/// If the checker refuses it, which is a mistake of this program.
pub(crate) fn prove(input: &RfabricInput, plan: &RfabricPlan) -> anyhow::Result<()> {
    let demands: Vec<Demand> = input.phases.iter().map(|phase| phase.demand.clone()).collect();
    let findings = check(input.fabric.spec(), &demands, plan);
    let Some(first) = findings.first() else { return Ok(()) };
    anyhow::bail!("the plan is not sound (a mistake in the planner, please report it): {first}")
}

/// Reads the file and shows what is wrong with it.
///
/// # Errors
/// If anything is.
pub(crate) fn load(path: &Path, bytes: &[u8]) -> anyhow::Result<RfabricInput> {
    let mut read = |matrix: &str| read_beside(path, matrix);
    let (input, mistakes) = file::load(&path.display().to_string(), bytes, &mut read);
    output::diagnostics(&mistakes);
    input.ok_or(Refused.into())
}

/// A file that `path` names, which stands in the same folder.
pub(crate) fn read_beside(path: &Path, name: &str) -> Result<String, String> {
    let beside = path.parent().unwrap_or(Path::new("")).join(name);
    fs::read_to_string(beside).map_err(|error| format!("cannot read {name}: {error}"))
}

fn text(input: &RfabricInput, plan: &RfabricPlan, plan_seconds: f64) -> String {
    format!(
        "{}{}\n{}\n{}",
        heading(input),
        phase_table(plan),
        transition_table(plan),
        summary(plan, plan_seconds),
    )
}

/// What the fabric is, in a line.
pub(crate) fn heading(input: &RfabricInput) -> String {
    let spec = input.fabric.spec();
    format!(
        "{}: {} leaves of {} GPUs, {} optical ports each on {} switches, {} a circuit\n\n",
        input.name,
        spec.leaves,
        spec.gpus_per_leaf,
        input.fabric.optical_ports(),
        input.fabric.switches(),
        spec.circuit_rate,
    )
}

fn phase_table(plan: &RfabricPlan) -> Table {
    let mut table = Table::new([
        "phase", "topology", "circuits", "bytes", "time", "lambda/s", "bound/s", "gap",
    ]);
    for phase in &plan.phases {
        table.row([
            phase.name.clone(),
            phase.topology.clone(),
            phase.circuits.len().to_string(),
            phase.demand_bytes.to_string(),
            rounded(phase.time_ps),
            format!("{:.4}", phase.lambda),
            format!("{:.4}", phase.lambda_upper_bound),
            format!("{:.1} %", 100.0 * phase.gap),
        ]);
    }
    table
}

fn transition_table(plan: &RfabricPlan) -> String {
    if plan.transitions.is_empty() {
        return "No transitions: one topology serves all phases.\n".into();
    }
    let mut table = Table::new([
        "from", "to", "stages", "kept", "removed", "added", "dark", "exposed", "floor",
    ]);
    for change in &plan.transitions {
        let removed: usize = change.stages.iter().map(|stage| stage.remove.len()).sum();
        let added: usize = change.stages.iter().map(|stage| stage.add.len()).sum();
        table.row([
            change.from.clone(),
            change.to.clone(),
            change.stages.len().to_string(),
            change.circuits_kept.to_string(),
            removed.to_string(),
            added.to_string(),
            rounded(change.dark_time_ps),
            rounded(change.exposed_ps),
            format!("{:.0} %", 100.0 * change.floor),
        ]);
    }
    table.to_string()
}

fn summary(plan: &RfabricPlan, plan_seconds: f64) -> String {
    format!(
        "A step communicates for {}; with one topology for all phases {}.\n\
         Optical ports are dark for {:.3} % of the step's communication and slack.\n\
         Planned in {plan_seconds:.2} s.\n",
        rounded(plan.step_time_ps),
        rounded(plan.static_step_time_ps),
        100.0 * plan.dark_port_time_share,
    )
}

/// A time in seconds or milliseconds, to four digits.
pub(crate) fn rounded(time: Picoseconds) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 1.0 { format!("{seconds:.3} s") } else { format!("{:.3} ms", seconds * 1e3) }
}
