// SPDX-License-Identifier: Apache-2.0
//! Exports the CONFIG_DB of every optical circuit switch with SONiC for one phase.
//!
//! The tables OCS_PORT and OCS_CROSS_CONNECT follow the SONiC OCS high-level design (in review) and
//! SAI's proposal for optical circuit switches. Light enters at an A side and leaves at a B side,
//! so a duplex circuit is two cross-connects, and a one-way circuit is one.

use lightloom_fabric::fat_tree::device_ports::{DevicePorts, OneWay};
use lightloom_units::id::OcsId;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Export, ExportError, ExportFormat, ExportedFile, FatTreePlan};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "sonic-ocs",
    about: "SONiC CONFIG_DB JSON of every optical switch: ports and cross-connects of a phase",
    ring: Err(
        "the format describes optical switches, but this fabric contains none (in k-hop rings, `lightloom ctl apply` sets the transceivers)",
    ),
    fat_tree: Ok(export),
};

pub(super) const COMMANDS: ExportFormat = ExportFormat {
    name: "sonic-ocs-cli",
    about: "SONiC commands for every optical switch: the cross-connects of a phase",
    ring: FORMAT.ring,
    fat_tree: Ok(commands),
};

/// `update` adds and replaces cross-connects, and leaves unlisted ones unchanged.
fn commands(plan: &FatTreePlan<'_>) -> Result<Export, ExportError> {
    let files = plan.switches().map(|ocs| {
        let names: Vec<String> = connections(plan, ocs).into_iter().map(|(name, _)| name).collect();
        let mut text = format!("# {ocs}: phase {}\n", plan.one_phase().name);
        if !names.is_empty() {
            text.push_str(&format!("config ocs cross-connect add {} update\n", names.join(",")));
        }
        ExportedFile { name: format!("{ocs}.sh"), text }
    });
    let mut lost = plan.lost_beside_one_phase();
    lost.push("cross-connects to be removed: the current ones are unknown".to_owned());
    lost.push("when to run them: a leaf must be drained before its circuits change".to_owned());
    Ok(Export { files: files.collect(), lost })
}

/// The daemon's driver numbers ports the same way.
const PORTS: DevicePorts = DevicePorts::Sides;

#[derive(Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
struct ConfigDb {
    device_metadata: Value,
    ocs_port: InNumericOrder,
    ocs_cross_connect: InNumericOrder,
}

/// Sorts `2A` before `10A`.
struct InNumericOrder(Vec<(String, Value)>);

impl Serialize for InNumericOrder {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

fn export(plan: &FatTreePlan<'_>) -> Result<Export, ExportError> {
    let files = plan.switches().map(|ocs| {
        let mut text = serde_json::to_string_pretty(&config(plan, ocs)).expect("strings are JSON");
        text.push('\n');
        ExportedFile { name: format!("{ocs}.json"), text }
    });
    let mut lost = plan.lost_beside_one_phase();
    lost.push("when to load it: a leaf must be drained before its circuits change".to_owned());
    Ok(Export { files: files.collect(), lost })
}

fn config(plan: &FatTreePlan<'_>, ocs: OcsId) -> ConfigDb {
    let hostname = ocs.to_string();
    ConfigDb {
        device_metadata: json!({ "localhost": { "hostname": hostname, "switch_type": "ocs" } }),
        ocs_port: InNumericOrder(ports(plan, ocs)),
        ocs_cross_connect: InNumericOrder(connections(plan, ocs)),
    }
}

fn ports(plan: &FatTreePlan<'_>, ocs: OcsId) -> Vec<(String, Value)> {
    let per_leaf = plan.network.ports_per_leaf(ocs);
    let wired = plan.leaves().flat_map(|leaf| {
        (0..per_leaf)
            .filter_map(move |slot| Some((plan.network.switch_port(ocs, leaf, slot)?, leaf, slot)))
    });
    wired
        .flat_map(|(port, leaf, slot)| {
            ['A', 'B'].map(|side| {
                let label = format!("{} port {slot}", plan.leaf_name(leaf));
                (
                    format!("{}{side}", PORTS.input(port)),
                    json!({ "label": label, "state": "normal" }),
                )
            })
        })
        .collect()
}

/// A new configuration must not cut the circuits of other jobs.
fn connections(plan: &FatTreePlan<'_>, ocs: OcsId) -> Vec<(String, Value)> {
    let circuits = plan.one_phase().circuits.iter().chain(plan.held());
    let of_switch = circuits.filter(|circuit| circuit.ocs == ocs);
    let directions = if plan.network.is_one_way() { 1 } else { 2 };
    let ways = of_switch.flat_map(|circuit| PORTS.ways(circuit).into_iter().take(directions));
    let mut ways: Vec<OneWay> = ways.collect();
    ways.sort_unstable();
    ways.into_iter()
        .map(|OneWay { input, output }| {
            let (a_side, b_side) = (format!("{input}A"), format!("{output}B"));
            (format!("{a_side}-{b_side}"), json!({ "a_side": a_side, "b_side": b_side }))
        })
        .collect()
}
