// SPDX-License-Identifier: Apache-2.0
//! The network of a reconfigurable fat-tree in one of its phases: hosts under leaves, leaves joined by the circuits
//! that are planned for the phase, and the packet core above.
//!
//! ```text
//!   h0 ── leaf0 ── circuits ── leaf1 ── h1        hN stands for all GPUs of a leaf, with their joint rate
//!            └───── core ───────┘
//! ```

use std::path::Path;

use lightloom_engine::LinkSpec;
use lightloom_fabric::document::Check;
use lightloom_planner::rfabric::{self, RfabricPlan, file::RfabricInput};
use lightloom_units::{BitsPerSecond, Picoseconds};

use super::codes;
use super::neighbours::NamedFiles;
use super::network::DirectConnectFile;
use crate::substrate::CableGraph;

/// The graph; nothing after a mistake has been reported.
pub(super) fn lower(
    raw: &DirectConnectFile,
    delay: Picoseconds,
    check: &mut Check<'_>,
    beside: &mut NamedFiles<'_, '_>,
) -> Option<CableGraph> {
    let input = read(&raw.rfabric, check, beside)?;
    let names: Vec<&str> = input.phases.iter().map(|phase| phase.name.as_str()).collect();
    let Some(phase) = names.iter().position(|name| *name == raw.phase) else {
        let message = format!("the step of {} has no phase `{}`", raw.rfabric, raw.phase);
        check
            .error(codes::NO_SUCH_THING, "/on/direct_connect/phase", message)
            .help(format!("write one of: {}", names.join(", ")));
        return None;
    };
    match rfabric::plan(&input.fabric, &input.phases, &[], input.options) {
        Ok(plan) => Some(graph(&input, &plan, phase, delay)),
        Err(error) => {
            let message = format!("{} cannot be planned: {error}", raw.rfabric);
            check.error(codes::BAD_NETWORK, "/on/direct_connect/rfabric", message);
            None
        }
    }
}

fn read(
    name: &str,
    check: &mut Check<'_>,
    beside: &mut NamedFiles<'_, '_>,
) -> Option<RfabricInput> {
    let path = "/on/direct_connect/rfabric";
    let file = beside.read(name, path, check)?;
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    let mut matrix = |matrix: &str| {
        let there = folder.join(matrix).display().to_string();
        let bytes = (beside.read)(&there)?.bytes;
        String::from_utf8(bytes).map_err(|_| format!("{there} is no text"))
    };
    let (input, mistakes) = rfabric::file::load(&file.name, &file.bytes, &mut matrix);
    if input.is_none() {
        let message = format!("{} has mistakes, which are listed too", file.name);
        check.error(codes::BAD_NEIGHBOUR, path, message);
    }
    beside.mistakes.extend(mistakes);
    input
}

fn graph(input: &RfabricInput, plan: &RfabricPlan, phase: usize, delay: Picoseconds) -> CableGraph {
    let fabric = &input.fabric;
    let leaves = fabric.leaves();
    let cable = |rate: f64| LinkSpec::new(BitsPerSecond(rate as u64), delay);
    let leaf = |index: usize| leaves + index;
    let below = cable(fabric.host_rate());
    let mut cables: Vec<_> = (0..leaves).map(|host| (host, leaf(host), below)).collect();
    let mut switches: Vec<String> = (0..leaves).map(|leaf| format!("leaf{leaf}")).collect();
    if fabric.electrical_rate() > 0.0 {
        switches.push("core".to_owned());
        let above = cable(fabric.electrical_rate());
        cables.extend((0..leaves).map(|index| (leaf(index), 2 * leaves, above)));
    }
    let lit = cable(fabric.spec().circuit_rate.0 as f64);
    let mut circuits = vec![Vec::new(); fabric.switches()];
    for circuit in &plan.phases[phase].circuits {
        circuits[circuit.ocs.index()].push(cables.len());
        cables.push((leaf(circuit.a.index()), leaf(circuit.b.index()), lit));
    }
    let hosts = (0..leaves).map(|host| format!("h{host}")).collect();
    CableGraph { hosts, switches, cables, circuits }
}
