// SPDX-License-Identifier: Apache-2.0

use std::fmt::Write as _;

use lightloom_fabric::fat_tree::{FatTreeSpec, ReconfigurableFatTree, SwitchTiming};
use lightloom_fabric::plan::{MethodTimes, Plan, SyncChoice};
use lightloom_planner::rfabric::exact::Limits;
use lightloom_planner::rfabric::phases::Phase;
use lightloom_planner::rfabric::{self, Options};
use lightloom_units::Picoseconds;

use crate::table::{TextTable, rounded};

pub const SOLVER_LIMITS: Limits = Limits { gap: 1e-3, seconds: 20.0 };

pub fn text(plan: &Plan) -> String {
    let changes = match plan.phases.iter().any(|phase| !phase.circuits.is_empty()) {
        true => transition_table(plan),
        false => String::new(),
    };
    format!("{}{}\n{changes}", phase_table(plan), solver_lines(plan))
}

fn solver_lines(plan: &Plan) -> String {
    let mut lines = String::new();
    for phase in &plan.phases {
        let Some(solver) = &phase.solver else { continue };
        let found = solver.lambda.map_or("nothing".to_owned(), |lambda| format!("{lambda:.4}/s"));
        let ended = if solver.hit_time_limit {
            format!("stopped after {} s with {found}", SOLVER_LIMITS.seconds)
        } else {
            format!("proves {found} within {} %", 100.0 * SOLVER_LIMITS.gap)
        };
        let of = if solver.is_one_hop { "bound of one hop" } else { "bound" };
        let _ = writeln!(
            lines,
            "{}: the solver {ended}, {of} {:.4}/s",
            phase.name, solver.lambda_upper_bound
        );
    }
    lines
}

fn phase_table(plan: &Plan) -> TextTable {
    TextTable::of(&plan.phases)
        .column("phase", |phase| phase.name.clone())
        .column("circuits", |phase| phase.circuits.len())
        .column("on rings", |phase| phase.ring_bytes)
        .column("below leaves", |phase| phase.leaf_bytes)
        .column("between leaves", |phase| phase.demand_bytes)
        .column("time", |phase| rounded(phase.duration_ps))
        .column("lambda/s", |phase| format!("{:.4}", phase.lambda))
        .column("bound/s", |phase| format!("{:.4}", phase.lambda_upper_bound))
        .column("gap", |phase| format!("{:.1} %", 100.0 * phase.gap))
        .column("planned for", |phase| phase.topology.clone())
        .table()
}

fn is_of_several_jobs(plan: &Plan) -> bool {
    plan.phases.iter().any(|phase| phase.job.is_some())
}

fn transition_table(plan: &Plan) -> String {
    if is_of_several_jobs(plan) {
        return "No transitions: jobs are not synchronised, so one topology serves all phases. Times assume that no other \
            job uses the same leaves.\n"
            .into();
    }
    if plan.transitions.is_empty() {
        return "No transitions: one topology serves all phases.\n".into();
    }
    let mut table = TextTable::new([
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

pub fn summary(plan: &Plan) -> String {
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
    format!("{of} communicates for {}{fixed}.\n{dark}", rounded(step))
}

/// If no circuit change pays off, returns the longest switching time at which one would. To find
/// it, replans with a switching time of zero and divides the gain by the number of changes.
pub fn break_even(
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
        return "Circuit changes would not pay off even at zero switching time.\n".to_owned();
    };
    let step = plan.metrics.step_time_ps.unwrap_or_default();
    let time = best.step_time_ps.unwrap_or_default();
    let gain = step.saturating_sub(time);
    format!(
        "Circuit changes do not pay off: at zero switching time a step would communicate for {}. The {changes} changes per step \
            break even if each delays traffic by {}.\n",
        rounded(time),
        rounded(Picoseconds(gain.0 / changes)),
    )
}

pub fn weight_sync(choices: &[SyncChoice]) -> String {
    choices.iter().map(choice_text).collect()
}

fn served(time: Option<Picoseconds>) -> String {
    time.map_or("not served".to_owned(), rounded)
}

fn paying_share(share: Option<f64>) -> String {
    match share {
        None => "never".to_owned(),
        Some(0.0) => "any share".to_owned(),
        Some(share) => format!("{:.2} % of bytes", 100.0 * share),
    }
}

fn choice_text(choice: &SyncChoice) -> String {
    let table = TextTable::of(&choice.methods)
        .column("weight sync", |method| method.method)
        .column("on rings", |method| method.ring_bytes)
        .column("below leaves", |method| method.leaf_bytes)
        .column("between leaves", |method| method.demand_bytes)
        .column("from trainer", |method| method.trainer_bytes)
        .column("planned", |method| served(method.planned_ps))
        .column("packets alone", |method| served(method.packets_ps))
        .column("change pays from", |method| paying_share(method.change_pays_from))
        .column("without slack", |method| paying_share(method.change_pays_from_without_slack))
        .table();
    let heading = format!(
        "\n{}: new weights, {:.3} of the bytes; method in the file: {}.\n",
        choice.job, choice.delta_share, choice.written
    );
    let planned = best_text(choice, "as planned", |method| method.planned_ps);
    let packets = best_text(choice, "over the packet network only", |method| method.packets_ps);
    let rings = match choice.methods.iter().any(|method| method.ring_bytes.0 > 0) {
        true => "",
        false => {
            "No weights are sent over rings: trainer and replicas use separate rings, or the fabric has none.\n"
        }
    };
    let change = choice.switching_ps.map_or(String::new(), |switching| {
        format!(
            "A circuit change takes {}; the slack before the phase is {}.\n",
            rounded(switching),
            rounded(choice.slack_ps)
        )
    });
    let assumed: String =
        choice.assumptions.iter().map(|assumed| format!("  assumed: {assumed}\n")).collect();
    format!("{heading}{table}{planned}{packets}{rings}{change}{assumed}\n")
}

fn best_text(
    choice: &SyncChoice,
    over: &str,
    time: fn(&MethodTimes) -> Option<Picoseconds>,
) -> String {
    let served = choice.methods.iter().filter_map(|method| Some((time(method)?, method.method)));
    let mut by_time: Vec<_> = served.collect();
    by_time.sort_by_key(|(time, _)| *time);
    let Some((least, _)) = by_time.first().copied() else { return String::new() };
    let ratios = by_time
        .iter()
        .map(|(time, method)| (time.as_secs_f64() / least.as_secs_f64(), method.to_string()));
    let (best, others): (Vec<_>, Vec<_>) = ratios.partition(|(ratio, _)| *ratio < ALIKE);
    let best: Vec<&str> = best.iter().map(|(_, method)| &**method).collect();
    let others =
        others.iter().map(|(ratio, method)| format!("; {method} takes {ratio:.2} times as long"));
    format!("Best {over}: {}{}.\n", best.join(", "), others.collect::<String>())
}

const ALIKE: f64 = 1.005;
