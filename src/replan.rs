//! `lightloom replan`: the next plan after a fault or a repair, with the least change.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use lightloom_fabric::fault::Part;
use lightloom_fabric::id::NodeId;
use lightloom_fabric::plan::Plan;
use lightloom_planner::khop::{self, Change, GroupChange, Survey};
use serde_json::json;

use crate::cli::{Format, FormatArgument};
use crate::output::{self, Outcome};
use crate::table::Table;
use crate::{files, plan};

/// Makes the next plan after faults and repairs, and prints what moves.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom replan plan.json --fabric topologies/ring-2880.yaml --fault n17 -o next.json
  lightloom replan next.json --fabric topologies/ring-2880.yaml --repair n17")]
pub(crate) struct Arguments {
    /// The plan in force.
    plan: PathBuf,
    /// The fabric file it was made from.
    #[arg(long, value_name = "FILE")]
    fabric: PathBuf,
    /// What broke: nodes `n17`, bundles `n17/b0`, fibres `n17/b0.2`.
    #[arg(long, value_name = "PARTS", value_delimiter = ',', required_unless_present = "repair")]
    fault: Vec<Part>,
    /// What works again.
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    repair: Vec<Part>,
    /// Where to write the next plan.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgument,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let fabric = files::read_fabric(&arguments.fabric)?;
    let before = read_plan(&arguments.plan)?;
    let (mut layout, mut faults) = khop::from_document(&fabric, &before)
        .with_context(|| arguments.plan.display().to_string())?;
    plan::prove(&fabric, &faults, &before).context("the plan to start from")?;
    for part in &arguments.fault {
        faults.insert(&fabric.hbd, *part)?;
    }
    for part in &arguments.repair {
        faults.remove(&fabric.hbd, *part)?;
    }
    let start = Instant::now();
    let change = khop::replan(&fabric, &Survey::new(&fabric.hbd, &faults), &mut layout);
    let seconds = start.elapsed().as_secs_f64();
    let mut next = khop::to_document(&fabric, &faults, before.seed, &layout);
    next.metrics.plan_seconds = seconds;
    let verdict = plan::prove(&fabric, &faults, &next)?;
    plan::write(arguments.output.as_deref(), &next)?;
    match arguments.format.format {
        Format::Json => output::print_json(&json!({ "plan": next, "change": document(&change) }))?,
        Format::Text => {
            output::print(&describe(&change, fabric.hbd.k()))?;
            output::print(&plan::describe(&fabric, &next, &verdict))?;
        }
    }
    Ok(Outcome::Good)
}

fn read_plan(path: &std::path::Path) -> anyhow::Result<Plan> {
    let name = || format!("{} is not a plan", path.display());
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(name)
}

/// What happened to a group, from where and to where.
fn told(change: &GroupChange) -> (&'static str, String, Vec<NodeId>, Vec<NodeId>) {
    match change {
        GroupChange::Bypassed { group, out, into } => {
            ("bypassed", format!("g{group}"), out.clone(), into.clone())
        }
        GroupChange::Moved { group, from, to } => {
            ("moved", format!("g{group}"), from.clone(), to.clone())
        }
        GroupChange::Lost { job: Some(_), group, from } => {
            ("lost", format!("g{group}"), from.clone(), Vec::new())
        }
        GroupChange::Lost { job: None, from, .. } => {
            ("spare lost", "-".into(), from.clone(), Vec::new())
        }
        GroupChange::Formed { job, to } => ("formed", format!("job {job}"), Vec::new(), to.clone()),
    }
}

fn document(change: &Change) -> serde_json::Value {
    let bundles = change
        .bundles
        .iter()
        .map(|(bundle, from, to)| json!({"bundle": bundle, "from": from, "to": to}));
    let groups = change.groups.iter().map(|change| {
        let (what, group, out, into) = told(change);
        json!({"what": what, "group": group, "out": out, "in": into})
    });
    json!({"bundles": bundles.collect::<Vec<_>>(), "groups": groups.collect::<Vec<_>>()})
}

fn describe(change: &Change, k: u8) -> String {
    if change.bundles.is_empty() && change.groups.is_empty() {
        return "nothing moves: the plan in force is right for these faults\n\n".to_owned();
    }
    let mut groups = Table::new(["group", "what", "nodes out", "nodes in"]);
    let list = |nodes: Vec<NodeId>| {
        let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        if names.is_empty() { "-".to_owned() } else { names.join(" ") }
    };
    for (what, group, out, into) in change.groups.iter().map(told) {
        groups.row([group, what.to_owned(), list(out), list(into)]);
    }
    let mut bundles = Table::new(["bundle", "from", "to"]);
    for (bundle, from, to) in &change.bundles {
        bundles.row([bundle.to_string(), from.to_string(), to.to_string()]);
    }
    format!("{groups}\n{bundles}\n{} bundles switch (2k = {})\n\n", change.bundles.len(), 2 * k)
}
