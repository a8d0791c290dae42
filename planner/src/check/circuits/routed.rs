// SPDX-License-Identifier: Apache-2.0
//! Checks the load on each hop of a phase whose traffic passes through other leaves.

use std::collections::BTreeMap;

use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::plan::{PhasePlan, RoutePlan};
use lightloom_units::id::LeafId;

use super::{Asked, RATE_TOLERANCE};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Passed {
    Circuits(u32, u32),
    Up(u32),
    Down(u32),
}

fn leaves(route: &RoutePlan) -> Vec<u32> {
    let via = route.via.iter().map(|leaf| leaf.0);
    std::iter::once(route.from.0).chain(via).chain([route.to.0]).collect()
}

fn passed(route: &RoutePlan) -> Vec<Passed> {
    let leaves = leaves(route);
    let hops = (0..).zip(leaves.windows(2));
    hops.flat_map(|(number, hop)| match route.core_hop == Some(number) {
        true => vec![Passed::Up(hop[0]), Passed::Down(hop[1])],
        false => vec![Passed::Circuits(hop[0], hop[1])],
    })
    .collect()
}

pub(super) fn seconds(
    network: &ReconfigurableFatTree,
    asked: &Asked,
    circuits: &BTreeMap<(u32, u32), f64>,
    phase: &PhasePlan,
) -> Result<f64, String> {
    let name = &phase.name;
    let mut carried: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    let mut loads: BTreeMap<Passed, f64> = BTreeMap::new();
    for route in &phase.routes {
        let pair = (route.from.0, route.to.0);
        let hops = leaves(route).len() - 1;
        let is_hop = route.core_hop.is_none_or(|hop| (hop as usize) < hops);
        let is_sent = asked.flows.contains_key(&pair) && route.weight > 0.0;
        if !is_hop || !is_sent || leaves(route).iter().any(|leaf| *leaf >= network.spec().leaves) {
            return Err(format!(
                "phase {name}: a route from {} to {} is not connected",
                pair.0, pair.1
            ));
        }
        *carried.entry(pair).or_default() += route.weight;
        for passed in passed(route) {
            *loads.entry(passed).or_default() += route.weight * asked.flows[&pair] * 8.0;
        }
    }
    for (from, to) in asked.flows.keys() {
        let share = carried.get(&(*from, *to)).copied().unwrap_or(0.0);
        if (share - 1.0).abs() > RATE_TOLERANCE {
            return Err(format!(
                "phase {name}: routes from {from} to {to} carry {share} of the traffic"
            ));
        }
    }
    let rate = |passed: &Passed| match *passed {
        Passed::Circuits(a, b) => circuits.get(&(a, b)).copied().unwrap_or(0.0),
        Passed::Up(leaf) | Passed::Down(leaf) => network.electrical_rate_of(LeafId(leaf)),
    };
    let longest = loads.iter().map(|(passed, bits)| bits / rate(passed)).fold(0.0, f64::max);
    Ok(longest.max(asked.interface_seconds).max(host_seconds(network, asked)))
}

pub(super) fn host_seconds(network: &ReconfigurableFatTree, asked: &Asked) -> f64 {
    let mut bits: BTreeMap<(bool, u32), f64> = BTreeMap::new();
    for ((from, to), bytes) in &asked.flows {
        *bits.entry((true, *from)).or_default() += 8.0 * bytes;
        *bits.entry((false, *to)).or_default() += 8.0 * bytes;
    }
    let spec = network.spec();
    let hosts = f64::from(spec.gpus_per_leaf) * spec.gpu_rate.0 as f64;
    bits.values().fold(0.0, |most: f64, bits| most.max(bits / hosts))
}
