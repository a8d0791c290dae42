// SPDX-License-Identifier: Apache-2.0
//! Checks that routes on direct networks use working cables and carry all traffic, and that the
//! busiest cable determines the time of the phase.

use std::collections::BTreeMap;

use lightloom_fabric::direct::{DirectNetwork, LeafCable};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::{PhasePlan, Plan};
use lightloom_units::id::LeafId;

use super::Violation;
use super::circuits::{Asked, check_silent};

const TOLERANCE: f64 = 1e-6;

pub(super) fn check(
    network: &DirectNetwork,
    faults: &FaultSet,
    plan: &Plan,
    asked: &[Asked],
    found: &mut Vec<Violation>,
) {
    let working = network.working(faults);
    for (phase, asked) in plan.phases.iter().zip(asked) {
        check_phase(network, &working, phase, asked, found);
    }
}

fn check_phase(
    network: &DirectNetwork,
    working: &BTreeMap<LeafCable, u32>,
    phase: &PhasePlan,
    asked: &Asked,
    found: &mut Vec<Violation>,
) {
    let mut refuse =
        |text: String| found.push(Violation::Network(format!("{}: {text}", phase.name)));
    let Asked { flows, interface_seconds } = asked;
    if flows.is_empty() {
        check_silent(phase, *interface_seconds).into_iter().for_each(refuse);
        return;
    }
    let mut weights: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    let mut loads: BTreeMap<(LeafId, LeafId), f64> = BTreeMap::new();
    for route in &phase.routes {
        let pair = (route.from.0, route.to.0);
        *weights.entry(pair).or_default() += route.weight;
        let bits = flows.get(&pair).copied().unwrap_or(0.0) * 8.0 * route.weight;
        let path: Vec<LeafId> = std::iter::once(route.from)
            .chain(route.via.iter().copied())
            .chain([route.to])
            .collect();
        if !(0.0..=1.0).contains(&route.weight) || bits <= 0.0 {
            refuse(format!("the route from {} to {} has no traffic", route.from, route.to));
        }
        for step in path.windows(2) {
            *loads.entry((step[0], step[1])).or_default() += bits;
        }
    }
    for (from, to) in flows.keys() {
        let weight = weights.get(&(*from, *to)).copied().unwrap_or(0.0);
        if (weight - 1.0).abs() > TOLERANCE {
            refuse(format!("routes from l{from} to l{to} carry {weight} of the traffic"));
        }
    }
    let mut seconds: f64 = *interface_seconds;
    for ((from, to), bits) in &loads {
        let cable = LeafCable { a: *from.min(to), b: *from.max(to) };
        match working.get(&cable) {
            Some(count) => {
                seconds = seconds.max(bits / (f64::from(*count) * network.leaf.link_rate.0 as f64));
            }
            None => refuse(format!(
                "a route goes from {from} to {to}, but no working cable connects them"
            )),
        }
    }
    let (through_interfaces, through_cables) = leaf_seconds(network, working, flows);
    let least = interface_seconds.max(through_cables);
    let seconds = seconds.max(through_interfaces);
    if (seconds - phase.duration_ps.as_secs_f64()).abs() > TOLERANCE * seconds.max(1e-6) {
        refuse(format!("its duration is {}, but its routes need {seconds} s", phase.duration_ps));
    }
    // The stated bound may be tighter than the recomputed one, but not below the achieved rate.
    let bound = phase.lambda_upper_bound;
    if least > 0.0
        && (bound > (1.0 + TOLERANCE) / least || bound < phase.lambda * (1.0 - TOLERANCE))
    {
        refuse(format!("the bound of {bound} phases per second is not valid"));
    }
}

fn leaf_seconds(
    network: &DirectNetwork,
    working: &BTreeMap<LeafCable, u32>,
    flows: &BTreeMap<(u32, u32), f64>,
) -> (f64, f64) {
    let mut ends: BTreeMap<(bool, u32), f64> = BTreeMap::new();
    for ((from, to), bytes) in flows {
        *ends.entry((true, *from)).or_default() += bytes * 8.0;
        *ends.entry((false, *to)).or_default() += bytes * 8.0;
    }
    let mut own: BTreeMap<u32, f64> = BTreeMap::new();
    for (cable, count) in working {
        for leaf in [cable.a.0, cable.b.0] {
            *own.entry(leaf).or_default() += f64::from(*count) * network.leaf.link_rate.0 as f64;
        }
    }
    ends.iter().fold((0.0_f64, 0.0_f64), |(interface, cables), ((_, leaf), bits)| {
        let own = own.get(leaf).copied().unwrap_or(0.0);
        (interface.max(bits / network.interface_rate()), cables.max(bits / own))
    })
}
