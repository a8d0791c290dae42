// SPDX-License-Identifier: Apache-2.0
//! An independent oracle for small networks: an integer program for the highest rate, with whole
//! circuits per bank and flows by source. Shares only network and demand with the planner.

use good_lp::{Expression, ProblemVariables, Solution, SolverModel, constraint, variable};
use lightloom_fabric::fat_tree::{
    CrossConnect, FatTreeSpec, LeafLoss, OcsBank, ReconfigurableFatTree,
};
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::testkit;
use lightloom_units::id::{LeafId, OcsId, OcsPortId};
use lightloom_units::seed::{Seed, Stream};
use lightloom_units::{BitsPerSecond, Bytes, Text};
use rand::RngExt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hops {
    One,
    Any,
}

fn admits(spec: &FatTreeSpec, bank: &OcsBank, a: u32, b: u32) -> bool {
    let is = |pair: &(LeafId, LeafId), a, b| pair.0 == LeafId(a) && pair.1 == LeafId(b);
    let own = spec.loss.extra_db.iter().filter(|own| [a, b].contains(&own.leaf.0));
    let is_wired = |leaf| bank.leaves.as_ref().is_none_or(|own| own.contains(&LeafId(leaf)));
    let loss = bank.insertion_loss_db + spec.loss.path_db + own.map(|own| own.db).sum::<f64>();
    let forbidden = spec.forbidden.iter().any(|pair| is(pair, a, b) || is(pair, b, a));
    loss <= spec.loss.budget_db && !forbidden && is_wired(a) && is_wired(b)
}

pub(crate) fn best(network: &ReconfigurableFatTree, demand: &Demand, hops: Hops) -> f64 {
    let spec = network.spec();
    let (leaves, rate) = (spec.leaves as usize, spec.circuit_rate.0 as f64);
    let mut variables = ProblemVariables::new();
    let mut constraints = Vec::new();
    // Rates are in units of one direction of a circuit.
    let bits = |from: usize, to: usize| {
        demand.bits(demand.bytes(LeafId::from_index(from), LeafId::from_index(to)))
    };
    let most = (0..leaves)
        .flat_map(|a| (0..leaves).map(move |b| (a, b)))
        .map(|(a, b)| bits(a, b))
        .fold(0.0, f64::max);
    let lambda = variables.add(variable().min(0.0));
    let mut capacity = vec![vec![Expression::default(); leaves]; leaves];
    let banks = spec.banks.iter().flat_map(|bank| (0..bank.switches).map(move |_| bank));
    for (ocs, bank) in (0..).map(OcsId).zip(banks) {
        let ports = bank.ports_per_leaf;
        let is_one_way = bank.one_way;
        let mut used = vec![Expression::default(); leaves];
        let mut received = used.clone();
        for a in 0..leaves {
            for b in (0..leaves).filter(|b| is_one_way && *b != a || *b > a) {
                if admits(spec, bank, a as u32, b as u32) {
                    let circuits =
                        variables.add(variable().integer().min(0.0).max(f64::from(ports)));
                    used[a] += circuits;
                    if is_one_way {
                        received[b] += circuits
                    } else {
                        used[b] += circuits
                    }
                    let own =
                        bank.circuit_rate.map_or(spec.circuit_rate, |own| own.0).0 as f64 / rate;
                    capacity[a][b] += own * circuits;
                    if !is_one_way {
                        capacity[b][a] += own * circuits;
                    }
                }
            }
        }
        for (leaf, (used, received)) in (0..).map(LeafId).zip(used.into_iter().zip(received)) {
            let place = bank
                .leaves
                .as_ref()
                .map_or(Some(leaf.index()), |own| own.iter().position(|other| *other == leaf));
            let is_own =
                |port: &OcsPortId| port.ocs == ocs && place == Some((port.port / ports) as usize);
            let taken = spec.occupied.iter().filter(|port| is_own(port)).count();
            let ends = spec.held.iter().filter(|held| held.ocs == ocs);
            let held = ends.filter(|held| held.a == leaf || held.b == leaf).count();
            let free = f64::from(ports) - (taken + held) as f64;
            constraints.push(constraint!(used <= free));
            constraints.push(constraint!(received <= free));
        }
        for own in spec.usable.iter().filter(|own| own.ocs == ocs) {
            let units = bank.circuit_rate.map_or(spec.circuit_rate, |own| own.0).0 as f64 / rate;
            capacity[own.a.index()][own.b.index()] += units;
            capacity[own.b.index()][own.a.index()] += units;
        }
    }
    let core = |leaf: usize| {
        let electrical = &spec.electrical;
        let rates = &electrical.other_rates;
        let whole = rates.get(&LeafId::from_index(leaf)).unwrap_or(&electrical.rate_per_leaf);
        whole.0 as f64 / electrical.oversubscription / rate
    };
    let mut load = vec![vec![Expression::default(); leaves + 1]; leaves + 1];
    for source in 0..leaves {
        let arcs = (0..=leaves).flat_map(|a| (0..=leaves).map(move |b| (a, b)));
        let is_arc = |&(a, b): &(usize, usize)| {
            let has_rate = if a == leaves || b == leaves { core(a.min(b)) > 0.0 } else { true };
            a != b && b != source && has_rate
        };
        let mut kept = vec![Expression::default(); leaves + 1];
        for (a, b) in arcs.filter(is_arc) {
            // With one hop, traffic is either direct or over the core.
            if hops == Hops::One && a != source && a != leaves {
                continue;
            }
            let flow = variables.add(variable().min(0.0));
            load[a][b] += flow;
            kept[b] += flow;
            kept[a] -= flow;
        }
        for to in (0..=leaves).filter(|to| *to != source) {
            let wanted = if to < leaves { bits(source, to) / most } else { 0.0 };
            let kept = std::mem::take(&mut kept[to]);
            constraints.push(constraint!(kept == wanted * lambda));
        }
    }
    for a in 0..=leaves {
        for b in 0..=leaves {
            let most = match (a < leaves, b < leaves) {
                (true, true) => std::mem::take(&mut capacity[a][b]),
                _ if a == b => 0.0.into(),
                _ => core(a.min(b)).into(),
            };
            constraints.push(constraint!(load[a][b].clone() <= most));
        }
    }
    let hosts = network.host_rate() / rate;
    for leaf in 0..leaves {
        let sent: f64 = (0..leaves).map(|peer| bits(leaf, peer) / most).sum();
        let received: f64 = (0..leaves).map(|peer| bits(peer, leaf) / most).sum();
        constraints.push(constraint!(sent.max(received) * lambda <= hosts));
    }
    let mut model = variables.maximise(lambda).using(good_lp::solvers::microlp::microlp);
    for constraint in constraints {
        model.add_constraint(constraint);
    }
    let solution = model.solve().expect("doing nothing is feasible");
    solution.value(lambda) * rate / most
}

pub(crate) fn drawn(seed: u64) -> (ReconfigurableFatTree, Demand) {
    let mut stream = Seed(seed).stream("test.banks", 0);
    loop {
        let leaves = stream.random_range(3..=5);
        let mut spec = testkit::spec(leaves, 4);
        spec.gpus_per_leaf = stream.random_range(2..=16);
        let core = [0, 50, 100, 400][stream.random_range(0..4)];
        spec.electrical.rate_per_leaf = BitsPerSecond::from_gbps(core);
        spec.banks[0].name = "near".into();
        spec.banks.push(spec.banks[0].clone());
        spec.banks[1].name = "far".into();
        for bank in &mut spec.banks {
            bank.switches = stream.random_range(1..=2);
            bank.ports_per_switch = 2 * leaves;
        }
        spec.banks[1].insertion_loss_db = f64::from(stream.random_range(1_u32..=8)) / 2.0;
        spec.loss.extra_db = (0..leaves)
            .map(|leaf| {
                let db = f64::from(stream.random_range(0_u32..=3)) / 2.0;
                LeafLoss { leaf: LeafId(leaf), db }
            })
            .collect();
        if stream.random_range(0..2) == 0 {
            spec.banks.reverse();
        }
        spec.failure_domains = 1;
        let demand = drawn_demand(leaves, &mut stream);
        if let Ok(network) = ReconfigurableFatTree::new(spec) {
            return (network, demand);
        }
    }
}

/// Draws a building with banks of different rates. A circuit may stay in every phase.
pub(crate) fn drawn_mixture(seed: u64) -> (ReconfigurableFatTree, Demand) {
    let mut stream = Seed(seed).stream("test.mixture", 0);
    loop {
        let (network, demand) = drawn_building(stream.random_range(0..1_000_000));
        let mut spec = network.spec().clone();
        for bank in &mut spec.banks {
            let rates = [None, Some(Text(BitsPerSecond::from_gbps(800)))];
            bank.circuit_rate = rates[stream.random_range(0..2)];
        }
        let last = network.switches() - 1;
        let possible: Vec<CrossConnect> =
            network.possible_circuits().filter(|circuit| circuit.ocs.index() == last).collect();
        if let Some(one) = possible.get(stream.random_range(0..=possible.len())) {
            spec.held.push(*one);
            spec.usable.extend((stream.random_range(0..3) > 0).then_some(*one));
        }
        if let Ok(network) = ReconfigurableFatTree::new(spec) {
            return (network, demand);
        }
    }
}

/// Draws a building with one-way circuits of different rates.
pub(crate) fn drawn_one_way(seed: u64) -> (ReconfigurableFatTree, Demand) {
    let mut stream = Seed(seed).stream("test.one_way", 0);
    let (network, demand) = drawn_building(stream.random_range(0..1_000_000));
    let mut spec = network.spec().clone();
    for bank in &mut spec.banks {
        let rates = [None, Some(Text(BitsPerSecond::from_gbps(800)))];
        bank.circuit_rate = rates[stream.random_range(0..2)];
        bank.one_way = true;
    }
    (ReconfigurableFatTree::new(spec).unwrap(), demand)
}

/// Draws banks with their own leaves and odd ports, occupied ports and unequal uplinks.
pub(crate) fn drawn_building(seed: u64) -> (ReconfigurableFatTree, Demand) {
    let mut stream = Seed(seed).stream("test.building", 0);
    loop {
        let leaves = stream.random_range(3..=5);
        let mut spec = testkit::spec(leaves, 4);
        let core = [0, 50, 100, 400][stream.random_range(0..4)];
        spec.electrical.rate_per_leaf = BitsPerSecond::from_gbps(core);
        let halved = LeafId(stream.random_range(0..leaves));
        spec.electrical.other_rates.insert(halved, BitsPerSecond::from_gbps(core / 2));
        let first = spec.banks[0].clone();
        spec.banks = (0..stream.random_range(1..=3))
            .map(|_| {
                let own: Vec<LeafId> =
                    (0..leaves).filter(|_| stream.random_range(0..3) > 0).map(LeafId).collect();
                let ports_per_leaf = stream.random_range(1..=3);
                OcsBank {
                    switches: stream.random_range(1..=2),
                    ports_per_leaf,
                    ports_per_switch: ports_per_leaf * leaves,
                    leaves: (own.len() > 1 && stream.random_range(0..2) == 0).then_some(own),
                    ..first.clone()
                }
            })
            .collect();
        for _ in 0..stream.random_range(0..=2) {
            let port = stream.random_range(0..spec.banks[0].ports_per_switch);
            spec.occupied.push(OcsPortId { ocs: OcsId(0), port });
        }
        spec.failure_domains = 1;
        let demand = drawn_demand(leaves, &mut stream);
        if let Ok(network) = ReconfigurableFatTree::new(spec) {
            return (network, demand);
        }
    }
}

fn drawn_demand(leaves: u32, stream: &mut Stream) -> Demand {
    let mut demand = Demand::none(leaves as usize);
    let kind = stream.random_range(0..3);
    for from in 0..leaves {
        for to in (0..leaves).filter(|to| *to != from) {
            let is_sent = match kind {
                // The demand is a ring in one direction, an all-to-all, or random pairs.
                0 => to == (from + 1) % leaves,
                1 => true,
                _ => stream.random_range(0..3) == 0,
            };
            if is_sent {
                let bytes = stream.random_range(1..=20) * 1_000_000_000;
                demand.add(LeafId(from), LeafId(to), Bytes(bytes));
            }
        }
    }
    if demand.total() == Bytes::ZERO {
        demand.add(LeafId(0), LeafId(1), Bytes(1_000_000_000));
    }
    demand
}
