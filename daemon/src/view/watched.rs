// SPDX-License-Identifier: Apache-2.0

use super::{broken_parts, circuits_dark};
use crate::metrics::Watched;
use crate::runtime::Runtime;
use lightloom_control::controller::OWN_CHANGES_MAX;

pub fn watched(runtime: &Runtime) -> Watched {
    let (controller, now) = (runtime.control.controller(), runtime.clock.now());
    let ledger = controller.ledger();
    let read = controller.sightings().devices().iter().filter(|(_, seen)| seen.is_reachable());
    let read = read.filter_map(|(device, seen)| Some((device, seen.observed()?)));
    let power_dbm = read.flat_map(|(device, read)| {
        let power = read.power_mdbm.iter();
        power.map(move |(slot, mdbm)| {
            (device.to_string(), slot.0.to_string(), f64::from(*mdbm) / 1000.0)
        })
    });
    let (bypassed, not_bypassed): (Vec<_>, Vec<_>) =
        broken_parts(&runtime.into()).into_iter().partition(|part| part.bypassed);
    Watched {
        dark_circuits: circuits_dark(runtime),
        own_changes_left: OWN_CHANGES_MAX.saturating_sub(controller.budget().spent(&now)),
        power_dbm: power_dbm.collect(),
        attention: ledger.attention.keys().map(ToString::to_string).collect(),
        bypassed: bypassed.len(),
        not_bypassed: not_bypassed.len(),
        phase: runtime.control.phase_in_force().map(str::to_owned),
    }
}
