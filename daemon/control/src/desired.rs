// SPDX-License-Identifier: Apache-2.0
//! Converts a plan document to the positions of all devices.
//!
//! A plan contains paths by bundle, [`circuits`] by switch and port for each phase, or both.

pub mod circuits;
pub(crate) mod successor;

use std::collections::BTreeMap;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::Path;
use lightloom_fabric::plan::{PhasePlan, Plan};
use lightloom_planner::check;
use lightloom_units::id::BundleId;

use crate::change::Phase;
use crate::state::{DeviceName, Position, Slot, SwitchState};
use circuits::Switches;

pub type Modules = BTreeMap<BundleId, DeviceName>;

const REASONS_MAX: usize = 20;
const NO_FABRIC: &str =
    "the daemon's file has no `fabric:`, so this plan cannot be checked; help: add it";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    pub target: SwitchState,
    pub phase: Option<Box<Phase>>,
}

pub fn wanted(
    plan: &Plan,
    phase: Option<&str>,
    modules: &Modules,
    switches: &Switches,
    owned: &SwitchState,
) -> Result<Wanted, Vec<String>> {
    if let Some(phase) = phase.filter(|_| !circuits::has_circuits(plan)) {
        let reason =
            format!("a plan without circuits has no phase `{phase}`; help: omit `--phase`");
        return Err(vec![reason]);
    }
    let mut wanted = Wanted { target: paths(plan, modules)?, ..Wanted::default() };
    let is_of_modules_alone = switches.is_empty() && phase.is_none() && !wanted.target.is_empty();
    if !circuits::has_circuits(plan) || is_of_modules_alone {
        return Ok(wanted);
    }
    circuits::must_have_devices(switches, &plan.phases)?;
    let chosen = chosen(plan, phase, switches, owned)?;
    if !chosen.circuits.is_empty() {
        wanted.target.extend(circuits::on_switches(switches, &chosen.circuits));
        let (phases, transitions) = (&plan.phases, &plan.transitions);
        let phase = circuits::wanted_phase(switches, phases, transitions, chosen);
        wanted.phase = Some(Box::new(phase));
    }
    Ok(wanted)
}

fn chosen<'a>(
    plan: &'a Plan,
    phase: Option<&str>,
    switches: &Switches,
    owned: &SwitchState,
) -> Result<&'a PhasePlan, Vec<String>> {
    let names = circuits::names(&plan.phases);
    if let Some(name) = phase {
        let found = plan.phases.iter().find(|phase| phase.name == name);
        return found
            .ok_or_else(|| vec![format!("the plan has no such phase; its phases are {names}")]);
    }
    if let Some(lit) = circuits::in_force(switches, &plan.phases, owned) {
        return Ok(lit);
    }
    let mut lit = plan.phases.iter().filter(|phase| !phase.circuits.is_empty());
    match (lit.next(), lit.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(vec![format!("choose a phase with `--phase`: {names}")]),
    }
}

pub fn prove(plan: &Plan, installed: Option<&Fabric>) -> Result<(), Vec<String>> {
    let Some(installed) = installed else { return Err(vec![NO_FABRIC.into()]) };
    if plan.fabric_sha256 != installed.sha256 {
        return Err(vec![other_fabric(plan, installed)]);
    }
    let faults = FaultSet::of(installed, plan.faults.iter().copied())
        .map_err(|error| vec![error.to_string()])?;
    check::check(installed, &faults, plan).map(|_| ()).map_err(|violations| some(&violations))
}

fn some<T: ToString>(all: &[T]) -> Vec<String> {
    let mut reasons: Vec<String> = all.iter().take(REASONS_MAX).map(ToString::to_string).collect();
    let more = all.len().saturating_sub(REASONS_MAX);
    reasons.extend((more > 0).then(|| format!("and {more} more")));
    reasons
}

fn short(sha256: &str) -> &str {
    sha256.get(..12).unwrap_or(sha256)
}

fn other_fabric(plan: &Plan, installed: &Fabric) -> String {
    let (mut nodes, mut bundles) = (0, 0);
    for transceiver in &plan.transceivers {
        nodes = nodes.max(transceiver.bundle.node.0 + 1);
        bundles = bundles.max(transceiver.bundle.bundle + 1);
    }
    let theirs = size_in_words(nodes, bundles, plan.metrics.gpus_total);
    let hbd = &installed.hbd;
    let ours = size_in_words(hbd.nodes(), hbd.k(), installed.gpus());
    let hint = if theirs == ours {
        ": the file was changed afterwards, or the two fabrics have the same size"
    } else {
        ""
    };
    format!(
        "the plan is for a different fabric of {} (file {}), but this daemon drives `{}` of {} \
         (file {}){hint}; help: make a plan for it with `lightloom plan`",
        theirs,
        short(&plan.fabric_sha256),
        installed.name,
        ours,
        short(&installed.sha256),
    )
}

fn size_in_words(nodes: u32, bundles: u8, gpus: u64) -> String {
    match bundles {
        0 => format!("{gpus} GPUs without transceivers"),
        _ => format!("{nodes} nodes, {bundles} bundles per node, {gpus} GPUs"),
    }
}

pub fn paths(plan: &Plan, modules: &Modules) -> Result<SwitchState, Vec<String>> {
    paths_where(plan, modules, |_, _| true)
}

pub fn stated(plan: &Plan, modules: &Modules) -> SwitchState {
    let stated = plan.transceivers.iter().filter_map(|transceiver| {
        let device = modules.get(&transceiver.bundle)?.clone();
        Some((device, [(Slot(0), position(transceiver.path))].into()))
    });
    stated.collect()
}

pub(crate) fn paths_where(
    plan: &Plan,
    modules: &Modules,
    holds: impl Fn(&DeviceName, Position) -> bool,
) -> Result<SwitchState, Vec<String>> {
    let mut target = SwitchState::new();
    let mut missing = Vec::new();
    for transceiver in &plan.transceivers {
        match modules.get(&transceiver.bundle) {
            Some(device) => {
                let position = position(transceiver.path);
                if holds(device, position) {
                    target.entry(device.clone()).or_default().insert(Slot(0), position);
                }
            }
            None => missing.push(format!("{}: no device is configured for it", transceiver.bundle)),
        }
    }
    missing.truncate(REASONS_MAX);
    if missing.is_empty() { Ok(target) } else { Err(missing) }
}

pub fn position(path: Path) -> Position {
    match path {
        Path::External1 => Position(1),
        Path::External2 => Position(2),
        Path::Loopback => Position::LOOPBACK,
    }
}

pub fn devices_of_node(modules: &Modules, node: lightloom_units::id::NodeId) -> Vec<DeviceName> {
    let of_node = modules.iter().filter(|(bundle, _)| bundle.node == node);
    of_node.map(|(_, device)| device.clone()).collect()
}
