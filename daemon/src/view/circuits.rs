// SPDX-License-Identifier: Apache-2.0
//! The circuits of the plan: which stand, which do not though nothing explains it, and that there are none.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fault::Part;
use lightloom_fabric::khop::Port;
use lightloom_units::id::BundleId;

use super::attention::again;
use crate::runtime::Runtime;
use lightloom_control::bypass::is_inside;
use lightloom_control::controller::Seen;
use lightloom_control::state::{DeviceName, Move, Position, Slot, at};
use lightloom_daemon_api::circuit::{CircuitCounts, CircuitView, DarkCircuits, NoPlan};

/// The circuits of the plan; without one, those that what we set and adopted makes.
pub(super) fn all(runtime: &Runtime) -> Vec<CircuitView> {
    let of = |(a, b): (Port, Port)| CircuitView {
        a: a.to_string(),
        b: b.to_string(),
        stands: [a, b].into_iter().all(|port| stands(runtime, port) == Some(true)),
    };
    match runtime.control.plan() {
        Some(plan) => plan.circuits.iter().map(|c| of((c.a, c.b))).collect(),
        None => unplanned(runtime).into_iter().map(of).collect(),
    }
}

/// Whether the device of this end looks into its fibre; nothing where that is not known.
fn stands(runtime: &Runtime, port: Port) -> Option<bool> {
    let device = runtime.config.bundles.get(&port.bundle)?;
    let seen = runtime.control.controller().devices().get(device)?;
    let observed = seen.observed.as_ref().filter(|_| seen.up)?;
    Some(at(&observed.positions, Slot(0)) == Position(u32::from(port.path)))
}

/// What these moves make of the circuits that stand; nothing where the cabling is not known.
pub(super) fn counted(
    runtime: &Runtime,
    changes: &BTreeMap<DeviceName, Vec<Move>>,
) -> Option<CircuitCounts> {
    let installed = runtime.control.installed().filter(|fabric| fabric.hbd.ring().is_some())?;
    let stood = |port: &Port| stands(runtime, *port) == Some(true);
    let will_stand = |port: &Port| {
        let moves = runtime.config.bundles.get(&port.bundle).and_then(|d| changes.get(d));
        let goes = moves.into_iter().flatten().find(|m| m.slot == Slot(0));
        let read = stands(runtime, *port);
        goes.map_or(read, |m| read.map(|_| m.to == Position(u32::from(port.path)))) == Some(true)
    };
    let count = |looks: &dyn Fn(&Port) -> bool| {
        let fibres = installed.hbd.fibres().map(|fibre| installed.hbd.ports(fibre));
        fibres.filter(|(a, b)| looks(a) && looks(b)).count()
    };
    Some(CircuitCounts { before: count(&stood), after: count(&will_stand) })
}

/// Fibres that both ends should look into, each once.
fn unplanned(runtime: &Runtime) -> Vec<(Port, Port)> {
    let Some(installed) = runtime.control.installed() else { return Vec::new() };
    let owned = &runtime.control.controller().ledger().owned;
    let looks = |port: &Port| {
        let device = runtime.config.bundles.get(&port.bundle);
        let owned = device.and_then(|device| owned.get(device));
        owned.is_some_and(|owned| at(owned, Slot(0)) == Position(u32::from(port.path)))
    };
    let ports = installed.hbd.fibres().map(|fibre| installed.hbd.ports(fibre));
    ports.filter(|(a, b)| looks(a) && looks(b)).collect()
}

/// Ends of the plan's circuits that stand elsewhere though their devices are as the ledger has them: they
/// were adopted so, or moved one by one.
pub(super) fn dark(runtime: &Runtime, circuits: &[CircuitView]) -> Option<DarkCircuits> {
    let (plan, ledger) = (runtime.control.plan()?, runtime.control.controller().ledger());
    let standing = circuits.iter().filter(|circuit| circuit.stands).count();
    if standing == circuits.len() || runtime.damage.is_some() || ledger.open.is_some() {
        return None;
    }
    let broken = runtime.control.broken();
    let explained = |port: &Port| {
        let drifts = |device: &DeviceName| {
            let seen = runtime.control.controller().devices().get(device);
            seen.is_none_or(|seen| !seen.drift.is_empty()) || ledger.attention.contains_key(device)
        };
        let device = runtime.config.bundles.get(&port.bundle);
        device.is_none_or(drifts) || broken.keys().any(|part| is_inside(&port.to_string(), part))
    };
    let ends = plan.circuits.iter().flat_map(|circuit| [circuit.a, circuit.b]);
    let ends = ends.filter(|port| stands(runtime, *port) == Some(false) && !explained(port));
    let ends: BTreeSet<Port> = ends.collect();
    (!ends.is_empty()).then(|| DarkCircuits {
        standing,
        circuits: circuits.len(),
        next: light_again(runtime, &ends),
        ends: ends.iter().map(ToString::to_string).collect(),
    })
}

/// What lights them again: the plan once more, or where that is refused now what comes first.
fn light_again(runtime: &Runtime, ends: &BTreeSet<Port>) -> String {
    if let Some(pending) = &runtime.control.controller().ledger().pending {
        let txn = pending.txn;
        return format!(
            "decide first: lightloom ctl confirm {txn}, or lightloom ctl rollback {txn}"
        );
    }
    if let Some(command) = again(runtime) {
        return format!("light them again: {command}");
    }
    let bundles: BTreeSet<BundleId> = ends.iter().map(|port| port.bundle).collect();
    let parts: Vec<(Part, String)> =
        bundles.iter().map(|bundle| (Part::Bundle(*bundle), String::new())).collect();
    let around = runtime.control.way_around(&runtime.clock.now(), &parts, &[]).ok();
    match around.is_some_and(|(apply, _)| runtime.control.controller().preview(&apply).is_ok()) {
        true => {
            let names: Vec<String> = bundles.iter().map(ToString::to_string).collect();
            format!("go around them: lightloom ctl fault {}", names.join(" "))
        }
        false => {
            "see why the plan would be refused now: lightloom ctl apply --again --dry-run".into()
        }
    }
}

/// That no plan is applied, as far as every device was read: nothing that breaks is bypassed then.
pub(super) fn no_plan(runtime: &Runtime, circuits: &[CircuitView]) -> Option<NoPlan> {
    let ledger = runtime.control.controller().ledger();
    let idle = ledger.open.is_none() && runtime.damage.is_none();
    // Where no module is driven, or no fabric is known, nothing could be bypassed with a plan either.
    let is_bypassed = runtime.control.installed().is_some() && !runtime.config.bundles.is_empty();
    if !idle || !ledger.plan_sha256.is_empty() || !(circuits.is_empty() || is_bypassed) {
        return None;
    }
    let devices = runtime.control.controller().devices().iter();
    let mut devices = devices.filter(|(name, _)| !is_lever(runtime, name)).peekable();
    devices.peek()?;
    let adopt = match ledger.version {
        0 => "take what stands as ours: lightloom ctl adopt all; then ",
        _ => "",
    };
    let is_said = !circuits.is_empty() || devices.all(|(name, seen)| is_dark(name, seen));
    // What was reported broken is taken to work again by a plan that uses it only where that is said.
    let mode = if runtime.control.broken().is_empty() { "" } else { " --mode update" };
    is_said.then(|| NoPlan {
        lit: circuits.len(),
        next: match &ledger.pending {
            Some(pending) => format!(
                "decide first: lightloom ctl confirm {0}, or lightloom ctl rollback {0}",
                pending.txn
            ),
            None => format!("{adopt}apply one: lightloom ctl apply PLAN{mode}"),
        },
    })
}

/// What to do about a plan that was made from another fabric file than the one which the daemon has read.
pub(super) fn other_fabric(runtime: &Runtime) -> Option<String> {
    let (plan, installed) = (runtime.control.plan()?, runtime.control.installed()?);
    let file = runtime.config.file.fabric.as_ref();
    let file = file.map_or_else(|| "FABRIC".into(), |file| file.display().to_string());
    (plan.fabric_sha256 != installed.sha256).then(|| {
        format!(
            "plan it again: lightloom plan {file} -o plan.json, then lightloom ctl apply plan.json; or put the \
             file back as it was and restart lightloomd"
        )
    })
}

fn is_lever(runtime: &Runtime, device: &DeviceName) -> bool {
    let inventory = runtime.control.controller().inventory();
    inventory.devices.get(device).is_some_and(|device| device.is_lever)
}

/// Whether a device was read and sends no light to another.
fn is_dark(device: &DeviceName, seen: &Seen) -> bool {
    let module = device.as_str().parse::<BundleId>().is_ok();
    seen.observed.as_ref().filter(|_| seen.up).is_some_and(|read| {
        read.positions.values().all(|p| p.is_dark() || (module && *p == Position::LOOPBACK))
    })
}
