// SPDX-License-Identifier: Apache-2.0
//! A reconfigurable fat-tree in one phase, as a graph: hosts, leaves, planned circuits and packet core.
//! Host `hN` represents all GPUs of leaf N at their combined rate.

use lightloom_engine::LinkSpec;
use lightloom_fabric::document::Check;
use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree};
use lightloom_planner::Options;
use lightloom_units::{BitsPerSecond, Picoseconds};

use super::codes;
use super::neighbours::NamedFiles;
use super::network::DirectConnectFile;
use crate::substrate::CableGraph;

pub(super) fn lower(
    raw: &DirectConnectFile,
    delay: Picoseconds,
    check: &mut Check<'_>,
    beside: &mut NamedFiles<'_, '_>,
) -> Option<CableGraph> {
    let path = "/on/direct_connect/rfabric";
    let fabric = beside.fabric(&raw.rfabric, path, check)?;
    let Some(network) = fabric.dcn.circuits() else {
        let message = format!("{} has no optical switches between its leaves", raw.rfabric);
        check
            .error(codes::BAD_NETWORK, path, message)
            .help("use a fabric file with `dcn: {reconfigurable_fat_tree: …}`");
        return None;
    };
    if network.is_one_way() {
        let message =
            format!("{} has one-way circuits, but cables carry both directions", raw.rfabric);
        let help = "run the fabric file itself: `on: {fabric: …}`";
        check.error(codes::BAD_NETWORK, path, message).help(help);
        return None;
    }
    let options = Options { compare: false, ..Options::default() };
    let plan = match lightloom_planner::plan(&fabric, &fabric.start, options) {
        Ok(plan) => plan,
        Err(error) => {
            let message = format!("{} cannot be planned: {error}", raw.rfabric);
            check.error(codes::BAD_NETWORK, path, message);
            return None;
        }
    };
    let Some(phase) = plan.phases.iter().find(|phase| phase.name == raw.phase) else {
        let message = format!("the step of {} does not contain phase `{}`", raw.rfabric, raw.phase);
        let names: Vec<&str> = plan.phases.iter().map(|phase| phase.name.as_str()).collect();
        check
            .error(codes::NO_SUCH_THING, "/on/direct_connect/phase", message)
            .help(format!("write one of: {}", names.join(", ")));
        return None;
    };
    Some(graph(network, &phase.circuits, delay))
}

fn graph(
    network: &ReconfigurableFatTree,
    planned: &[CrossConnect],
    delay: Picoseconds,
) -> CableGraph {
    let leaves = network.leaves();
    let below = LinkSpec::new(BitsPerSecond(network.host_rate() as u64), delay);
    let mut cables: Vec<_> = (0..leaves).map(|host| (host, leaves + host, below)).collect();
    let mut switches: Vec<String> = (0..leaves).map(|leaf| format!("leaf{leaf}")).collect();
    if network.electrical_rate() > 0.0 {
        switches.push("core".to_owned());
        let above = LinkSpec::new(BitsPerSecond(network.electrical_rate() as u64), delay);
        cables.extend((0..leaves).map(|index| (leaves + index, 2 * leaves, above)));
    }
    let mut circuits = vec![Vec::new(); network.switches()];
    for circuit in planned {
        circuits[circuit.ocs.index()].push(cables.len());
        let lit = LinkSpec::new(network.circuit_rate_of(circuit.ocs), delay);
        cables.push((leaves + circuit.a.index(), leaves + circuit.b.index(), lit));
    }
    let hosts = (0..leaves).map(|host| format!("h{host}")).collect();
    CableGraph { hosts, switches, cables, circuits }
}
