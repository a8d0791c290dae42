// SPDX-License-Identifier: Apache-2.0
//! `lightloom replan`: computes the next plan after a fault or a repair with minimal changes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::{self as plan_document, ChangeStage, Plan};
use lightloom_fabric::provenance::{Input, Inputs, VERSION};
use lightloom_planner::Options;
use lightloom_planner::check::check_stages;
use lightloom_planner::joint::{self, Bounds, MoveLimit, MoveReason, Replanned};
use lightloom_planner::khop::{self, Change, GroupChange, MovedForOthers};
use lightloom_units::id::NodeId;
use serde_json::json;

use crate::output::{self, VerbOutcome};
use crate::result::ResultFormat;
use crate::table::TextTable;
use crate::{files, kinds, plan};

const SCHEMA: &str = "lightloom.replan/v1";

/// Compute the next plan after faults and repairs with minimal moves
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("change").args(["fault", "repair", "heal"]).required(true).multiple(true)))]
#[command(after_help = "Examples:
  lightloom replan plan.json --fabric topologies/ring-2880.yaml --fault n17 -o next.json
  lightloom replan next.json --fabric topologies/ring-2880.yaml --repair n17
  lightloom replan next.json --fabric topologies/ring-2880.yaml --heal --moves 8")]
pub struct Arguments {
    /// Plan in force
    plan: PathBuf,
    /// Fabric file that the plan was made from
    #[arg(long, value_name = "FILE")]
    fabric: PathBuf,
    /// New faults: nodes `n17`, bundles `n17/b0`, fibres `n17/b0.2`
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    fault: Vec<Part>,
    /// Repaired parts
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    repair: Vec<Part>,
    /// Move groups back towards a plan from scratch, by default up to 8
    #[arg(long)]
    heal: bool,
    /// Groups that may move: `least`, a number, or `cold` for the placement of a plan from scratch [default: groups
    /// with a fault + 2, or `least` above 2,048 nodes]
    #[arg(long, value_name = "LIMIT", value_parser = moves)]
    moves: Option<MoveLimit>,
    /// Also plan from scratch and show the difference; takes as long as `plan`. Up to 1,024 nodes, this is always done
    #[arg(long)]
    against_cold: bool,
    /// File to write the next plan to
    #[arg(short, long, value_name = "FILE", value_parser = files::destination)]
    output: Option<PathBuf>,
    /// Output format; the rows of `csv` and `markdown` are the bundles that switch
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: ResultFormat,
}

fn moves(text: &str) -> Result<MoveLimit, String> {
    match text {
        "least" => Ok(MoveLimit::Least),
        "cold" => Ok(MoveLimit::Cold),
        _ => text
            .parse()
            .map(MoveLimit::Total)
            .map_err(|_| "use `least`, `cold` or a number of groups".to_owned()),
    }
}

fn limit(arguments: &Arguments) -> MoveLimit {
    match (arguments.moves, arguments.heal) {
        (Some(MoveLimit::Total(most)), true) => MoveLimit::Heal(most),
        (Some(limit), _) => limit,
        (None, true) => MoveLimit::Heal(MOVES_TO_HEAL),
        (None, false) => MoveLimit::BeyondHit(MOVES_BEYOND_HIT),
    }
}

const MOVES_TO_HEAL: usize = 8;
const MOVES_BEYOND_HIT: usize = 2;

/// On larger fabrics, a plan from scratch takes longer than the replan.
const MOST_NODES_COMPARED: u32 = 1_024;

pub fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let fabric = crate::fabric::read(&arguments.fabric)?;
    let mut inputs = Inputs::new();
    inputs.insert("fabric".to_owned(), plan::fabric_input(&arguments.fabric, &fabric));
    let before = read_plan(&arguments.plan, &mut inputs)?;
    let (_, mut faults) = khop::from_document(&fabric, &before)
        .with_context(|| arguments.plan.display().to_string())?;
    plan::prove(&fabric, &faults, &before).context("the plan to start from")?;
    for note in change_faults(&fabric, &mut faults, arguments)? {
        output::note(&note);
    }
    let start = Instant::now();
    let is_repair = arguments.heal || !arguments.repair.is_empty();
    let options = Options { compare: false, ..Options::default() };
    let bounds = Bounds { limit: limit(arguments), ..Bounds::default() };
    // `replan_within` may then make a plan from scratch, too.
    let reaches_cold = is_repair || bounds.limit == MoveLimit::Cold;
    let is_compared = arguments.against_cold || fabric.hbd.nodes() <= MOST_NODES_COMPARED;
    // A job that had to shrink does not fit in a plan from scratch, so there may be none.
    let planned_cold = || lightloom_planner::plan(&fabric, &faults, options).ok();
    let (next, cold) = rayon::join(
        || {
            let next = joint::replan_within(&fabric, &before, &faults, is_repair, &bounds, options);
            (next, start.elapsed())
        },
        || {
            let is_missing = is_compared && !reaches_cold;
            is_missing.then(planned_cold).flatten()
        },
    );
    let (next, planned) = next;
    let mut replanned = next?;
    let cold = match replanned.cold.take() {
        None if is_compared && reaches_cold => planned_cold(),
        made => made.filter(|_| is_compared).or(cold),
    };
    let proving = Instant::now();
    let (verdict, stages) = rayon::join(
        || plan::prove(&fabric, &faults, &replanned.plan),
        || proven_stages(&fabric, &faults, &before, &replanned.plan),
    );
    let (verdict, stages) = (verdict?, stages?);
    let took = plan::Took { planned, proven: Some(proving.elapsed()) };
    replanned.plan = replanned.plan.sealed(inputs.clone());
    let Replanned { plan: next, change, .. } = &replanned;
    plan::write(arguments.output.as_deref(), next)?;
    match arguments.format {
        ResultFormat::Json => {
            output::note(&took.to_string());
            let mut result = result_document(&inputs, &before, &replanned, cold.as_ref());
            result["stages"] = json!(stages);
            output::print_json(&result)?;
        }
        ResultFormat::Csv | ResultFormat::Markdown => {
            arguments.format.print(&document(&before, change), "bundles", String::new)?;
        }
        ResultFormat::Text => {
            output::print(&changes(arguments, &fabric, &before, &replanned))?;
            output::print(&stages_table(&stages))?;
            output::print(&given_up(&before, next))?;
            output::print(&plan::describe(&fabric, next, &verdict, took))?;
            output::print(&cold.map_or(String::new(), |cold| beside_cold(next, &cold)))?;
        }
    }
    Ok(VerbOutcome::Good)
}

fn proven_stages(
    fabric: &Fabric,
    faults: &FaultSet,
    before: &Plan,
    next: &Plan,
) -> anyhow::Result<Vec<ChangeStage>> {
    let stages = joint::stages(fabric, faults, before, next)?;
    let proven = check_stages(fabric, faults, before, next, &stages);
    proven.map(|()| stages).map_err(|found| plan::not_valid(&found))
}

fn figures(plan: &Plan) -> serde_json::Value {
    json!({
        "gpus_used": plan.metrics.gpus_used,
        "waste_ratio": plan.metrics.waste_ratio,
        "cross_tor_share": plan.metrics.cross_tor_share,
        "step_time_ps": plan.metrics.step_time_ps,
    })
}

fn result_document(
    inputs: &Inputs,
    before: &Plan,
    replanned: &Replanned,
    cold: Option<&Plan>,
) -> serde_json::Value {
    let Replanned { plan: next, change, ranks_changed, circuits_made, circuits_removed, .. } =
        replanned;
    json!({
        "schema": SCHEMA,
        "version": VERSION,
        "inputs": inputs,
        "plan": next,
        "change": document(before, change),
        "ranks_changed": ranks_changed.as_ref().map_or(0, |changed| changed.groups),
        "circuits": {"made": circuits_made, "removed": circuits_removed},
        "plan_before": figures(before),
        "moves": moves_document(replanned),
        "cold_plan": cold.map(figures),
        "step_over_cold": cold.and_then(|cold| joint::step_over_cold(next, cold)),
    })
}

fn stages_table(stages: &[ChangeStage]) -> String {
    let mut table = TextTable::new(["stage", "changes", "stays up", "capacity"]);
    for (at, stage) in (1..).zip(stages) {
        let ChangeStage { phases, bundles, circuits, circuits_up, capacity } = stage;
        let changes = match phases.as_slice() {
            [] => format!("{} bundles", bundles.len()),
            phases => format!(
                "{} cross-connects removed, {} made ({})",
                circuits.remove.len(),
                circuits.add.len(),
                phases.join(", ")
            ),
        };
        table.row([
            format!("{at}"),
            changes,
            format!("{circuits_up} circuits"),
            plan::percent(*capacity),
        ]);
    }
    if stages.is_empty() { String::new() } else { format!("{table}\n") }
}

fn changes(arguments: &Arguments, fabric: &Fabric, before: &Plan, replanned: &Replanned) -> String {
    let Replanned { plan, change, ranks_changed, circuits_made, circuits_removed, .. } = replanned;
    let mut text = describe(before, replanned, fabric.hbd.k());
    if change.is_cold && arguments.moves != Some(MoveLimit::Cold) {
        text += "the groups moved to the placement of a plan from scratch";
        let is_repair = arguments.heal || !arguments.repair.is_empty();
        text += if is_repair { "\n\n" } else { ": the search for fewer moves found none\n\n" };
    }
    if change.moved != MovedForOthers::default() {
        text += &format!("{}\n\n", change.moved);
    }
    text += &one_more_move(replanned);
    if plan.phases.iter().any(|phase| !phase.circuits.is_empty()) {
        text += &format!("cross-connects: {circuits_made} made, {circuits_removed} removed\n");
    }
    if let Some(changed) = ranks_changed {
        text += &format!(
            "{} groups change ranks; with their previous ranks, communication would take {} per step\n",
            changed.groups, changed.step_time_kept_ps
        );
    }
    text
}

fn change_faults(
    fabric: &Fabric,
    faults: &mut FaultSet,
    arguments: &Arguments,
) -> anyhow::Result<Vec<String>> {
    let Arguments { fault, repair, .. } = arguments;
    // Check that all parts exist before changing any.
    plan::fault_set(fabric, fault.iter().chain(repair).copied())?;
    let both: Vec<String> =
        fault.iter().filter(|part| repair.contains(part)).map(ToString::to_string).collect();
    anyhow::ensure!(
        both.is_empty(),
        "in both --fault and --repair: {}; help: name failed parts only in --fault, working parts only in --repair",
        both.join(", ")
    );
    let mut notes = Vec::new();
    for part in fault {
        if !faults.insert(fabric, *part)? {
            notes.push(format!("{part} had already failed"));
        }
    }
    for part in repair {
        if !faults.remove(fabric, *part)? {
            notes.push(format!("{part} had not failed"));
        }
    }
    Ok(notes)
}

pub fn read_plan(path: &std::path::Path, inputs: &mut Inputs) -> anyhow::Result<Plan> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    inputs.insert("plan".to_owned(), Input::of(files::name(path), &bytes));
    plan_document::read(&bytes).or_else(|error| {
        let first = "give the plan in force first, and the fabric file with --fabric";
        kinds::expect(path, &bytes, "a plan", first)?;
        Err(anyhow::Error::new(error).context(format!("{} is not a plan", path.display())))
    })
}

fn given_up(before: &Plan, next: &Plan) -> String {
    let new = next.given_up.iter().skip(before.given_up.len());
    let lines = new.map(|lost| {
        format!("given up: job {} has {} fewer GPUs: {}\n", lost.job, lost.gpus, lost.why)
    });
    let slower = match (before.metrics.step_time_ps, next.metrics.step_time_ps) {
        (Some(was), Some(is)) if is > was => {
            format!("given up: a step communicates for {is} instead of {was}\n")
        }
        _ => String::new(),
    };
    let text: String = lines.chain([slower]).collect();
    if text.is_empty() { text } else { format!("{text}\n") }
}

fn beside_cold(next: &Plan, cold: &Plan) -> String {
    let (next, fresh) = (&next.metrics, &cold.metrics);
    let mut gains = Vec::new();
    if let Some(more) = fresh.gpus_used.checked_sub(next.gpus_used).filter(|more| *more > 0) {
        gains.push(format!("{more} more GPUs"));
    }
    if let (Some(next), Some(fresh)) = (next.step_time_ps, fresh.step_time_ps)
        && fresh < next
    {
        let [fresh, next] = [fresh, next].map(|time| format!("{:.3} ms", time.as_secs_f64() * 1e3));
        gains.push(format!("{fresh} of communication per step instead of {next}"));
    }
    if fresh.cross_tor_share < next.cross_tor_share {
        let [fresh, next] = [fresh, next].map(|metrics| plan::percent(metrics.cross_tor_share));
        gains.push(format!("a cross-ToR share of {fresh} instead of {next}"));
    }
    match gains.split_last() {
        None => "as good as a plan from scratch\n".to_owned(),
        Some((last, [])) => {
            format!("a plan from scratch would have {last}, but would move running groups\n")
        }
        Some((last, before)) => format!(
            "a plan from scratch would have {} and {last}, but would move running groups\n",
            before.join(", ")
        ),
    }
}

fn summary(
    before: &Plan,
    change: &GroupChange,
) -> (&'static str, String, Vec<NodeId>, Vec<NodeId>) {
    let name = |place: &usize| before.groups[*place].id.to_string();
    match change {
        GroupChange::Bypassed { group, out, into } => {
            ("bypassed", name(group), out.clone(), into.clone())
        }
        GroupChange::Moved { group, from, to } => ("moved", name(group), from.clone(), to.clone()),
        GroupChange::Lost { job: Some(_), group, from } => {
            ("lost", name(group), from.clone(), Vec::new())
        }
        GroupChange::Lost { job: None, group, from } => {
            ("spare lost", name(group), from.clone(), Vec::new())
        }
        GroupChange::Formed { job: Some(job), to } => {
            ("formed", format!("job {job}"), Vec::new(), to.clone())
        }
        GroupChange::Formed { job: None, to } => {
            ("spare formed", "-".into(), Vec::new(), to.clone())
        }
    }
}

fn document(before: &Plan, change: &Change) -> serde_json::Value {
    let bundles = change
        .bundles
        .iter()
        .map(|(bundle, from, to)| json!({"bundle": bundle, "from": from, "to": to}));
    let groups = change.groups.iter().map(|change| {
        let (what, group, out, into) = summary(before, change);
        json!({"what": what, "group": group, "out": out, "in": into})
    });
    let MovedForOthers { rings, circuits, at_least } = change.moved;
    let healthy = json!({"rings": rings, "circuits": circuits, "rings_at_least": at_least});
    let (bundles, groups) = (bundles.collect::<Vec<_>>(), groups.collect::<Vec<_>>());
    json!({"bundles": bundles, "groups": groups, "healthy_moved": healthy, "cold_placement": change.is_cold})
}

fn one_more_move(replanned: &Replanned) -> String {
    let Replanned { plan, moves, curve, .. } = replanned;
    let Some(step) = plan.metrics.step_time_ps else { return String::new() };
    let better = curve.iter().find(|point| {
        point.moves > moves.len() && point.step_time_ps.as_secs_f64() < 0.99 * step.as_secs_f64()
    });
    better.map_or_else(String::new, |point| {
        let (more, shorter) = (point.moves - moves.len(), point.step_time_ps);
        format!("with --moves {}, {more} more groups would move for a step of about {shorter} instead of {step}\n\n", point.moves)
    })
}

fn moves_document(replanned: &Replanned) -> serde_json::Value {
    let Replanned { moves, groups_hit, curve, .. } = replanned;
    let groups: Vec<_> = moves
        .iter()
        .map(|moved| json!({"group": moved.group, "why": moved.why.to_string()}))
        .collect();
    let curve: Vec<_> = curve
        .iter()
        .map(|point| json!({"moves": point.moves, "step_time_ps": point.step_time_ps}))
        .collect();
    json!({"groups_hit": groups_hit, "groups": groups, "curve": curve})
}

fn describe(before: &Plan, replanned: &Replanned, k: u8) -> String {
    let change = &replanned.change;
    if change.bundles.is_empty() && change.groups.is_empty() {
        return "no moves: the plan in force already covers these faults\n\n".to_owned();
    }
    let whys: BTreeMap<String, MoveReason> =
        replanned.moves.iter().map(|moved| (moved.group.to_string(), moved.why)).collect();
    let mut groups = TextTable::new(["group", "what", "why", "nodes out", "nodes in"]);
    for (what, group, out, into) in change.groups.iter().map(|change| summary(before, change)) {
        let why = whys.get(&group).map_or_else(|| "-".to_owned(), ToString::to_string);
        let [out, into] = [out, into].map(|nodes| match nodes.is_empty() {
            true => "-".to_owned(),
            false => nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        });
        groups.row([group, what.to_owned(), why, out, into]);
    }
    let mut bundles = TextTable::new(["bundle", "from", "to"]);
    for (bundle, from, to) in &change.bundles {
        bundles.row([bundle.to_string(), from.to_string(), to.to_string()]);
    }
    format!("{groups}\n{bundles}\n{} bundles switch (2k = {})\n\n", change.bundles.len(), 2 * k)
}
