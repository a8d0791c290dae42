// SPDX-License-Identifier: Apache-2.0
//! `lightloom plan` on a reconfigurable fat-tree: the phase table and the changes between phases.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context;
use lightloom_fabric::document;
use lightloom_fabric::fat_tree::{FatTreeSpec, ReconfigurableFatTree, SwitchTiming};
use lightloom_fabric::plan::Plan;
use lightloom_fabric::provenance::{Input, Inputs};
use lightloom_planner::rfabric::exact::Limits;
use lightloom_planner::rfabric::file::{self, RfabricInput};
use lightloom_planner::rfabric::phases::Phase;
use lightloom_planner::rfabric::{self, Options};
use lightloom_study::architecture::NicRate;
use lightloom_study::cost::PriceList;
use lightloom_study::rfabric::baselines::{OcsPrice, Parts};
use lightloom_study::rfabric::claims::{self, Comparison};
use lightloom_units::Picoseconds;

use crate::files;
use crate::output::{self, Refused};
use crate::table::Table;

/// Whether the file describes a reconfigurable fat-tree.
pub(crate) fn is_kind(bytes: &[u8]) -> bool {
    file::is_kind(&document::top_keys(bytes))
}

/// Solvers stop here, phase by phase.
pub(crate) const SOLVER_LIMITS: Limits = Limits { gap: 1e-3, seconds: 20.0 };

/// What the network costs for one GPU at mean prices, its card included. `None` where the price file lacks a part
/// of the GPUs' rate.
pub(crate) fn cost_per_gpu(network: &ReconfigurableFatTree, prices: &PriceList) -> Option<f64> {
    let gbps = network.spec().gpu_rate.0 / 1_000_000_000;
    let nic = NicRate::ALL.into_iter().find(|nic| u64::from(nic.gbps()) == gbps)?;
    Parts::of(network).dollars(prices, nic, OcsPrice::Mean)
}

/// Performance per cost of a network against every baseline.
///
/// # Errors
/// If the price file lacks a part.
pub(crate) fn compare(
    network: &ReconfigurableFatTree,
    phases: &[Phase],
    prices: &PriceList,
) -> anyhow::Result<Vec<Comparison>> {
    claims::sensitivity(network, phases, prices)
        .context("the price file lacks a network card, switch port, module or `ocs-port`")
}

/// Reads the file and shows what is wrong with it; notes it and the files it names among the inputs of the result.
///
/// # Errors
/// If anything is.
pub(crate) fn load(path: &Path, bytes: &[u8], inputs: &mut Inputs) -> anyhow::Result<RfabricInput> {
    inputs.insert("fabric".to_owned(), Input::of(files::name(path), bytes));
    let mut read = |matrix: &str| {
        let text = read_beside(path, matrix)?;
        files::note_input(inputs, "matrix", matrix, text.as_bytes());
        Ok(text)
    };
    let (input, mistakes) = file::load(&path.display().to_string(), bytes, &mut read);
    output::diagnostics(&mistakes);
    input.ok_or(Refused.into())
}

/// A file that `path` names, which stands in the same folder.
pub(crate) fn read_beside(path: &Path, name: &str) -> Result<String, String> {
    let beside = path.parent().unwrap_or(Path::new("")).join(name);
    fs::read_to_string(beside).map_err(|error| format!("cannot read {name}: {error}"))
}

/// The phases and the changes between them, for people.
pub(crate) fn text(plan: &Plan) -> String {
    let changes = match plan.phases.iter().any(|phase| !phase.circuits.is_empty()) {
        true => transition_table(plan),
        false => String::new(),
    };
    format!("{}{}\n{changes}", phase_table(plan), solver_lines(plan))
}

/// What a solver said of each phase, where one was asked.
fn solver_lines(plan: &Plan) -> String {
    let mut lines = String::new();
    for phase in &plan.phases {
        let Some(solver) = &phase.solver else { continue };
        let found = solver.lambda.map_or("nothing".to_owned(), |lambda| format!("{lambda:.4}/s"));
        let ended = if solver.hit_time_limit {
            format!("stopped at its limit of {} s with {found}", SOLVER_LIMITS.seconds)
        } else {
            format!("proves {found} within {} %", 100.0 * SOLVER_LIMITS.gap)
        };
        let routed = solver.lambda_multi_hop.map_or(String::new(), |lambda| {
            format!("; {lambda:.4}/s with routes over several circuits")
        });
        let _ = writeln!(
            lines,
            "{}: the solver {ended}, bound {:.4}/s{routed}",
            phase.name, solver.lambda_upper_bound
        );
    }
    lines
}

/// Performance per cost: a row for each baseline and core, shares of communication in columns.
pub(crate) fn sensitivity_text(rows: &[Comparison]) -> String {
    let mut table = Table::new([
        "baseline",
        "core",
        "100G",
        "200G",
        "400G",
        "800G",
        "400G, cheap OCS",
        "400G, dear OCS",
        "400G, half",
        "400G, a fifth",
    ]);
    for first in rows.iter().filter(|row| {
        row.nic_gbps == 100 && row.ocs_price == OcsPrice::Mean && row.communication_share > 0.99
    }) {
        let cell = |gbps: u32, price: OcsPrice, share: f64| {
            rows.iter()
                .find(|row| {
                    row.baseline == first.baseline
                        && (row.core_oversubscription - first.core_oversubscription).abs() < 1e-9
                        && row.nic_gbps == gbps
                        && row.ocs_price == price
                        && (row.communication_share - share).abs() < 1e-9
                })
                .map_or("-".to_owned(), |row| format!("{:.2}", row.performance_per_cost))
        };
        let mean = OcsPrice::Mean;
        table.row([
            first.baseline.to_owned(),
            format!("{}:1", first.core_oversubscription),
            cell(100, mean, 1.0),
            cell(200, mean, 1.0),
            cell(400, mean, 1.0),
            cell(800, mean, 1.0),
            cell(400, OcsPrice::Low, 1.0),
            cell(400, OcsPrice::High, 1.0),
            cell(400, mean, 0.5),
            cell(400, mean, 0.2),
        ]);
    }
    format!(
        "\nPerformance per cost, this fabric ÷ baseline, for a step that is all communication (half, a fifth \
         of it); `core` is the oversubscription of this fabric's packet core:\n\n{table}"
    )
}

fn phase_table(plan: &Plan) -> Table {
    let mut table = Table::new([
        "phase",
        "circuits",
        "on rings",
        "below leaves",
        "between leaves",
        "time",
        "lambda/s",
        "bound/s",
        "gap",
        "planned for",
    ]);
    for phase in &plan.phases {
        table.row([
            phase.name.clone(),
            phase.circuits.len().to_string(),
            phase.ring_bytes.to_string(),
            phase.leaf_bytes.to_string(),
            phase.demand_bytes.to_string(),
            rounded(phase.duration_ps),
            format!("{:.4}", phase.lambda),
            format!("{:.4}", phase.lambda_upper_bound),
            format!("{:.1} %", 100.0 * phase.gap),
            phase.topology.clone(),
        ]);
    }
    table
}

/// Whether several jobs have a step.
fn is_of_several_jobs(plan: &Plan) -> bool {
    plan.phases.iter().any(|phase| phase.job.is_some())
}

fn transition_table(plan: &Plan) -> String {
    if is_of_several_jobs(plan) {
        return "No transitions: nothing keeps jobs in step, so one topology serves all phases. Times are those of a phase \
                while no other job sends over its leaves.\n"
            .into();
    }
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

/// What a step communicates between leaves, with changes of circuits and without.
pub(crate) fn summary(plan: &Plan) -> String {
    let metrics = &plan.metrics;
    let Some(step) = metrics.step_time_ps else { return String::new() };
    let fixed = metrics.static_step_time_ps.map(rounded);
    let fixed = match (metrics.dark_port_time_share, fixed) {
        (None, _) => String::new(),
        (Some(_), None) => "; no single topology serves all phases".to_owned(),
        (Some(_), Some(fixed)) => format!("; with one topology for all phases {fixed}"),
    };
    let dark = metrics.dark_port_time_share.map_or(String::new(), |share| {
        format!(
            "Optical ports are dark for {:.3} % of the step's communication and slack.\n",
            100.0 * share
        )
    });
    let of = if is_of_several_jobs(plan) { "The longest step" } else { "A step" };
    format!("{of} communicates between leaves for {}{fixed}.\n{dark}", rounded(step))
}

/// Where no change of circuits pays: up to which time of one it would. Planned again with changes that take
/// none, whose gain is shared out over them.
pub(crate) fn break_even(
    network: &ReconfigurableFatTree,
    phases: &[Phase],
    plan: &Plan,
    options: Options,
) -> String {
    if !plan.transitions.is_empty() || plan.phases.len() < 2 || is_of_several_jobs(plan) {
        return String::new();
    }
    let none = Picoseconds::ZERO;
    let timing = SwitchTiming { control: none, switching: none, bring_up: none };
    let spec = FatTreeSpec { timing, ..network.spec().clone() };
    let at_once = ReconfigurableFatTree::new(spec).ok();
    let options = Options { exact: None, ..options };
    let at_once = at_once.and_then(|fabric| rfabric::plan(&fabric, phases, &[], options).ok());
    let changes = at_once.as_ref().map_or(0, |plan| plan.transitions.len() as u64);
    let Some(best) = at_once.filter(|_| changes > 0) else {
        return "Even changes that took no time would not pay.\n".to_owned();
    };
    let step = plan.metrics.step_time_ps.unwrap_or_default();
    let gain = step.saturating_sub(best.step_time_ps);
    format!(
        "Changing circuits does not pay: with changes that took no time a step would communicate for {}. The {changes} changes of a step break \
         even when each keeps traffic waiting for {}.\n",
        rounded(best.step_time_ps),
        rounded(Picoseconds(gain.0 / changes)),
    )
}

/// A time in seconds or milliseconds, to four digits.
pub(crate) fn rounded(time: Picoseconds) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 1.0 { format!("{seconds:.3} s") } else { format!("{:.3} ms", seconds * 1e3) }
}
