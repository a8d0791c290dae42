// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::Part;
use lightloom_fabric::khop::{Path, Port};
use lightloom_fabric::plan::Plan;
use lightloom_units::id::{BundleId, NodeId};

use super::{Knowledge, attention};
use lightloom_control::record::Failed;
use lightloom_control::replan::is_inside;
use lightloom_control::sightings::Sighting;
use lightloom_control::state::{DeviceName, Move, Position, Slot, at};
use lightloom_daemon_api::circuit::{
    CircuitCounts, CircuitView, DarkCircuits, LoopbackView, NoPlan,
};

pub(super) fn all(known: &Knowledge<'_>) -> Vec<CircuitView> {
    let ends: Vec<(Port, Port)> = match known.control.plan() {
        Some(plan) => plan.circuits.iter().map(|circuit| (circuit.a, circuit.b)).collect(),
        None => unplanned(known),
    };
    let circuits = ends.into_iter().map(|(a, b)| CircuitView {
        a: a.to_string(),
        b: b.to_string(),
        stands: [a, b].into_iter().all(|port| stands(known, port) == Some(true)),
    });
    circuits.collect()
}

fn stands(known: &Knowledge<'_>, port: Port) -> Option<bool> {
    let device = known.control.setup().modules.get(&port.bundle)?;
    Some(read_at(known, device, Slot(0))? == Position(u32::from(port.path)))
}

pub(super) fn counted(
    known: &Knowledge<'_>,
    changes: &BTreeMap<DeviceName, Vec<Move>>,
) -> Option<CircuitCounts> {
    let installed =
        known.control.facts().installed().filter(|fabric| fabric.hbd.ring().is_some())?;
    let before = circuits_where(installed, |port| stands(known, *port) == Some(true));
    let after = circuits_where(installed, |port| {
        let moves = known.control.setup().modules.get(&port.bundle).and_then(|d| changes.get(d));
        let goes = moves.into_iter().flatten().find(|m| m.slot == Slot(0));
        let read = stands(known, *port);
        goes.map_or(read, |m| read.map(|_| m.to == Position(u32::from(port.path)))) == Some(true)
    });
    Some(CircuitCounts { before: before.count(), after: after.count() })
}

/// Returns the fibres with both ends at ports that satisfy the condition.
fn circuits_where(
    installed: &Fabric,
    holds: impl Fn(&Port) -> bool,
) -> impl Iterator<Item = (Port, Port)> {
    let ports = installed.hbd.fibres().map(|fibre| installed.hbd.ports(fibre));
    ports.filter(move |(a, b)| holds(a) && holds(b))
}

fn unplanned(known: &Knowledge<'_>) -> Vec<(Port, Port)> {
    let Some(installed) = known.control.facts().installed() else { return Vec::new() };
    let owned = &known.control.ledger().owned;
    let circuits = circuits_where(installed, |port| {
        let device = known.control.setup().modules.get(&port.bundle);
        let owned = device.and_then(|device| owned.get(device));
        owned.is_some_and(|owned| at(owned, Slot(0)) == Position(u32::from(port.path)))
    });
    circuits.collect()
}

pub(super) fn loopbacks(known: &Knowledge<'_>) -> Vec<LoopbackView> {
    let Some(plan) = known.control.plan() else { return Vec::new() };
    let modules = &known.control.setup().modules;
    let loopbacks = closing(plan).into_iter().filter_map(|bundle| {
        let stands = read_at(known, modules.get(&bundle)?, Slot(0)) == Some(Position::LOOPBACK);
        Some(LoopbackView { bundle: bundle.to_string(), stands })
    });
    loopbacks.collect()
}

fn closing(plan: &Plan) -> BTreeSet<BundleId> {
    let nodes: BTreeSet<NodeId> =
        plan.groups.iter().flat_map(|group| &group.nodes).copied().collect();
    let closing = plan.transceivers.iter().filter(|t| t.path == Path::Loopback);
    closing.map(|t| t.bundle).filter(|bundle| nodes.contains(&bundle.node)).collect()
}

fn read_at(known: &Knowledge<'_>, device: &DeviceName, slot: Slot) -> Option<Position> {
    let seen = known.control.sightings().devices().get(device)?;
    let observed = seen.observed().filter(|_| seen.is_reachable())?;
    Some(at(&observed.positions, slot))
}

fn is_broken(broken: &BTreeMap<String, Failed>, end: &str) -> bool {
    broken.keys().any(|part| is_inside(end, part))
}

pub(super) fn dark(
    known: &Knowledge<'_>,
    circuits: &[CircuitView],
    loopbacks: &[LoopbackView],
) -> Option<DarkCircuits> {
    let (plan, controller) = (known.control.plan()?, known.control.controller());
    let ledger = controller.ledger();
    if known.is_damaged || ledger.open.is_some() {
        return None;
    }
    let broken = known.control.facts().failed_parts();
    let ends = plan.circuits.iter().flat_map(|circuit| [circuit.a, circuit.b]);
    let ends: BTreeMap<BundleId, Port> = ends.map(|port| (port.bundle, port)).collect();
    let closing = closing(plan);
    let (mut dark, mut elsewhere) = (BTreeMap::new(), Vec::new());
    for (device, seen) in controller.sightings().devices() {
        for (&slot, &wanted) in controller.transactions().planned(device) {
            let Some(read) = read_at(known, device, slot).filter(|read| *read != wanted) else {
                continue;
            };
            let explained = seen.drift().iter().any(|drift| drift.slot == slot);
            if explained
                || is_broken(&broken, device.as_str())
                || attention::needs_action(known, device)
            {
                continue;
            }
            let bundle = device.as_str().parse::<BundleId>().ok();
            let end = bundle.and_then(|bundle| ends.get(&bundle)).map(ToString::to_string);
            let closes = bundle.filter(|bundle| closing.contains(bundle));
            match end.or_else(|| closes.map(|bundle| format!("{bundle} (loopback)"))) {
                Some(end) if is_broken(&broken, &end) => {}
                Some(end) => drop(dark.insert(device.clone(), end)),
                None => {
                    let [at, planned] = [read, wanted].map(|position| device.place(position));
                    let slot = if bundle.is_some() {
                        String::new()
                    } else {
                        format!(" {}", device.slot(slot))
                    };
                    elsewhere.push(format!("{device}{slot} at {at}, planned {planned}"));
                }
            }
        }
    }
    let stands = circuits.iter().map(|circuit| circuit.stands);
    let stands: Vec<bool> = stands.chain(loopbacks.iter().map(|one| one.stands)).collect();
    (!dark.is_empty() || !elsewhere.is_empty()).then(|| DarkCircuits {
        standing: stands.iter().filter(|stands| **stands).count(),
        circuits: stands.len(),
        next: light_again(known, dark.keys()),
        ends: dark.into_values().collect(),
        elsewhere,
    })
}

fn light_again<'a>(known: &Knowledge<'_>, dark: impl Iterator<Item = &'a DeviceName>) -> String {
    if let Some(first) = attention::decide_first(known) {
        return first;
    }
    if let Some(command) = attention::restore(known).or_else(|| attention::again(known)) {
        return format!("light them again: {command}");
    }
    let names: Vec<String> = dark.map(ToString::to_string).collect();
    let parts = names.iter().filter_map(|name| Some((name.parse::<Part>().ok()?, String::new())));
    let bypass = known.control.facts().try_bypass(&known.now, &parts.collect::<Vec<_>>(), &[]).ok();
    match bypass.is_some_and(|(apply, _)| known.control.controller().preview(&apply).is_ok()) {
        true => format!("bypass them: lightloom ctl fault {}", names.join(" ")),
        false => {
            "see why the plan would be refused now: lightloom ctl apply --again --dry-run".into()
        }
    }
}

pub(super) fn no_plan(known: &Knowledge<'_>, circuits: &[CircuitView]) -> Option<NoPlan> {
    let ledger = known.control.ledger();
    let idle = ledger.open.is_none() && !known.is_damaged;
    let bypasses =
        known.control.facts().installed().is_some() && !known.control.setup().modules.is_empty();
    let devices = known.control.sightings().devices().iter();
    let mut devices = devices.filter(|(name, _)| !is_lever(known, name)).peekable();
    devices.peek()?;
    if !idle || !ledger.plan_sha256.is_empty() {
        return None;
    }
    let adopt = match ledger.version {
        0 => "adopt the current light: lightloom ctl adopt all; then ",
        _ => "",
    };
    // Only mode `update` lets a plan use parts that are reported as failed.
    let mode = if known.control.facts().failed_parts().is_empty() { "" } else { " --mode update" };
    let next = attention::decide_first(known)
        .unwrap_or_else(|| format!("{adopt}apply one: lightloom ctl apply PLAN{mode}"));
    (bypasses || devices.all(|(name, seen)| is_dark(name, seen)))
        .then_some(NoPlan { lit: circuits.len(), next })
}

pub(super) fn other_fabric(known: &Knowledge<'_>) -> Option<String> {
    let (plan, installed) = (known.control.plan()?, known.control.facts().installed()?);
    let file = known.fabric.as_deref().unwrap_or("FABRIC");
    (plan.fabric_sha256 != installed.sha256).then(|| {
        format!(
            "plan it again: lightloom plan {file} -o plan.json, then lightloom ctl apply plan.json; or restore the \
             file and restart lightloomd"
        )
    })
}

fn is_lever(known: &Knowledge<'_>, device: &DeviceName) -> bool {
    let inventory = known.control.sightings().inventory();
    inventory.devices.get(device).is_some_and(|device| device.is_lever)
}

fn is_dark(device: &DeviceName, seen: &Sighting) -> bool {
    let read = seen.observed().filter(|_| seen.is_reachable());
    read.is_none_or(|read| read.positions.values().all(|position| !device.leads_out(*position)))
}
