//! From a plan document to where every device shall stand.
//!
//! Two kinds of plan come in: the k-hop plan of [`lightloom_fabric::plan`], which names a path for
//! every bundle, and the phases of a reconfigurable fat-tree, which name circuits by switch and port.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric as Installed;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::Path;
use lightloom_fabric::plan::Plan;
use lightloom_planner::check;
use lightloom_units::id::OcsId;
use serde::Deserialize;
use serde_json::Value;

use crate::config::Config;
use crate::state::{DeviceName, Fabric, Position, Slot};

/// The phases of a reconfigurable fat-tree, as far as circuits go.
#[derive(Debug, Deserialize)]
struct Phases {
    phases: Vec<Phase>,
}

#[derive(Debug, Deserialize)]
struct Phase {
    name: String,
    circuits: Vec<Circuit>,
}

#[derive(Debug, Deserialize)]
struct Circuit {
    ocs: OcsId,
    a_port: u32,
    b_port: u32,
}

/// The most violations and missing devices that are listed.
const REASONS_MAX: usize = 20;
/// The most switches that are named.
const SWITCHES_NAMED: usize = 6;

/// Where every device shall stand for this plan, or every reason why not. No device is asked.
///
/// # Errors
/// A document that is no plan, a plan for another fabric, a plan whose check fails, parts without a
/// device.
pub fn target(
    document: &Value,
    phase: Option<&str>,
    installed: Option<&Installed>,
    config: &Config,
) -> Result<Fabric, Vec<String>> {
    if document.get("phases").is_some() {
        return circuits(document, phase, config);
    }
    if document.get("hbd").is_some() || document.get("reconfigurable").is_some() {
        return Err(vec![
            "this is a fabric file, not a plan: make one with `lightloom plan FABRIC -o plan.json`"
                .into(),
        ]);
    }
    let plan: Plan = serde_json::from_value(document.clone())
        .map_err(|error| vec![format!("no plan: {error}")])?;
    let Some(installed) = installed else {
        return Err(vec![
            "the daemon's file names no fabric, so this plan cannot be checked: add `fabric:`"
                .into(),
        ]);
    };
    prove(&plan, installed)?;
    paths(&plan, config)
}

fn prove(plan: &Plan, installed: &Installed) -> Result<(), Vec<String>> {
    if plan.fabric_sha256 != installed.sha256 {
        return Err(vec![other_fabric(plan, installed)]);
    }
    let faults = FaultSet::of(&installed.hbd, plan.faults.iter().copied())
        .map_err(|error| vec![error.to_string()])?;
    check::check(installed, &faults, plan).map(|_| ()).map_err(|violations| {
        let more = violations.len().saturating_sub(REASONS_MAX);
        let mut reasons: Vec<String> =
            violations.iter().take(REASONS_MAX).map(ToString::to_string).collect();
        if more > 0 {
            reasons.push(format!("and {more} more"));
        }
        reasons
    })
}

/// What is known of the fabric that a plan is for, beside the one that is installed.
fn other_fabric(plan: &Plan, installed: &Installed) -> String {
    let bundles = || plan.transceivers.iter().map(|transceiver| transceiver.bundle);
    let short = |sha256: &str| sha256.get(..12).unwrap_or(sha256).to_owned();
    let theirs = (
        bundles().map(|bundle| bundle.node.0 + 1).max().unwrap_or(0),
        bundles().map(|bundle| bundle.bundle + 1).max().unwrap_or(0),
        plan.metrics.gpus_total,
    );
    let hbd = &installed.hbd;
    let ours = (hbd.nodes(), hbd.k(), u64::from(hbd.nodes()) * u64::from(hbd.gpus_per_node()));
    let facts = |(nodes, bundles, gpus): (u32, u8, u64)| {
        format!("{nodes} nodes, {bundles} bundles a node, {gpus} GPUs")
    };
    let hint = if theirs == ours {
        ": the file was changed since, or it is another one of the same size"
    } else {
        ""
    };
    format!(
        "the plan is for another fabric: one of {} (file {}), and this daemon drives `{}`: {} (file {}){hint}; make a \
         plan for it with `lightloom plan`",
        facts(theirs),
        short(&plan.fabric_sha256),
        installed.name,
        facts(ours),
        short(&installed.sha256),
    )
}

/// Where the bundles of a plan that has been proven shall stand.
///
/// # Errors
/// Bundles of the plan that no device is configured for.
pub fn paths(plan: &Plan, config: &Config) -> Result<Fabric, Vec<String>> {
    let mut target = Fabric::new();
    let mut missing = Vec::new();
    for transceiver in &plan.transceivers {
        match config.bundles.get(&transceiver.bundle) {
            Some(device) => {
                let position = position(transceiver.path);
                target.entry(device.clone()).or_default().insert(Slot(0), position);
            }
            None => missing.push(format!("{}: no device is configured for it", transceiver.bundle)),
        }
    }
    missing.truncate(REASONS_MAX);
    if missing.is_empty() { Ok(target) } else { Err(missing) }
}

/// The path code of a module (docs/firmware-api.md).
#[must_use]
pub fn position(path: Path) -> Position {
    match path {
        Path::External1 => Position(1),
        Path::External2 => Position(2),
        Path::Loopback => Position(15),
    }
}

fn circuits(document: &Value, phase: Option<&str>, config: &Config) -> Result<Fabric, Vec<String>> {
    let phases: Phases = serde_json::from_value(document.clone())
        .map_err(|error| vec![format!("no plan: {error}")])?;
    let names = || phases.phases.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
    let missing = missing_switches(&phases, config);
    if !missing.is_empty() {
        return Err(vec![format!(
            "this is a plan of a reconfigurable fat-tree with the phases {}, for optical switches of which this \
             daemon drives {}; it has no device for {missing}: add them under `devices:`, then apply one phase at \
             a time with `--phase NAME`",
            names(),
            if config.switches.is_empty() { "none".into() } else { some(config.switches.keys()) },
        )]);
    }
    let chosen = match phase {
        Some(name) => phases.phases.iter().find(|p| p.name == name),
        None if phases.phases.len() == 1 => phases.phases.first(),
        None => return Err(vec![format!("name one of its phases with `--phase`: {}", names())]),
    };
    let Some(chosen) = chosen else {
        return Err(vec![format!("it has no such phase; it has {}", names())]);
    };
    let mut target: Fabric =
        config.switches.values().map(|d| (d.clone(), BTreeMap::new())).collect();
    let mut reasons = Vec::new();
    for circuit in &chosen.circuits {
        let Some(device) = config.switches.get(&circuit.ocs) else {
            reasons.push(format!("{}: no device is configured for it", circuit.ocs));
            continue;
        };
        let (slot, position) = (Slot(circuit.a_port), Position(circuit.b_port));
        let slots = target.entry(device.clone()).or_default();
        if slots.insert(slot, position).is_some() {
            reasons.push(format!("{device}: port {slot} is in two circuits"));
        }
    }
    reasons.truncate(REASONS_MAX);
    if reasons.is_empty() { Ok(target) } else { Err(reasons) }
}

/// The first of the switches of a plan that no device is configured for, and how many more.
fn missing_switches(phases: &Phases, config: &Config) -> String {
    let circuits = phases.phases.iter().flat_map(|phase| &phase.circuits);
    let switches: BTreeSet<OcsId> = circuits.map(|circuit| circuit.ocs).collect();
    some(switches.iter().filter(|ocs| !config.switches.contains_key(ocs)))
}

/// The first of these by name, and how many more.
fn some<'a>(switches: impl Iterator<Item = &'a OcsId>) -> String {
    let names: Vec<String> = switches.map(ToString::to_string).collect();
    let more = names.len().saturating_sub(SWITCHES_NAMED);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

/// The devices of one node.
#[must_use]
pub fn devices_of_node(config: &Config, node: lightloom_units::id::NodeId) -> Vec<DeviceName> {
    let of_node = config.bundles.iter().filter(|(bundle, _)| bundle.node == node);
    of_node.map(|(_, device)| device.clone()).collect()
}
