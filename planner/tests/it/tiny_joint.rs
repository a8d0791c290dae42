// SPDX-License-Identifier: Apache-2.0
//! Joint plans of tiny fabrics compared with an optimum over all groups, rank orders, circuits and routes. The judge computes
//! traffic from the textbook and solves each phase as an integer program; it shares no code with the planner.

use std::collections::BTreeMap;

use crate::flow_judge::{Hops, best};
use crate::joint_fabric::{fabric, faults};
use lightloom_fabric::fabric::Fabric;
use lightloom_planner::check::check;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::{Options, plan};
use lightloom_testkit::cases;
use lightloom_units::Bytes;
use lightloom_units::id::LeafId;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

const NODES_PER_LEAF: u32 = 2;
const MICRO_BATCHES: u32 = 64;

#[derive(Clone, Debug)]
struct Tiny {
    leaves: u32,
    nodes_per_group: u32,
    pp: u32,
    dp: u32,
    core: u32,
    ports: u32,
    failed: Option<u32>,
}

impl Tiny {
    fn drawn(draws: &mut Stream) -> Self {
        loop {
            let tiny = Self {
                leaves: draws.random_range(3..=4),
                nodes_per_group: draws.random_range(1..=2),
                pp: draws.random_range(1..=2),
                dp: draws.random_range(2..=3),
                core: [0, 100, 400, 800][draws.random_range(0..4_usize)],
                ports: draws.random_range(1..=3),
                failed: (draws.random_range(0..2) == 0).then(|| draws.random_range(0..6)),
            };
            if tiny.needed() <= tiny.nodes() - u32::from(tiny.failed.is_some()) {
                return tiny;
            }
        }
    }

    fn nodes(&self) -> u32 {
        self.leaves * NODES_PER_LEAF
    }

    fn needed(&self) -> u32 {
        self.pp * self.dp * self.nodes_per_group
    }

    fn fabric(&self) -> Fabric {
        let Self { leaves, nodes_per_group, pp, dp, core, ports, .. } = self;
        fabric(&format!(
            "kind: fabric\nversion: 2\nname: tiny\nhbd: {{khop: {{nodes: {}, gpus_per_node: 4, k: 2}}}}\ndcn:\n  \
             reconfigurable_fat_tree:\n    leaves: {leaves}\n    gpus_per_leaf: 8\n    circuit_rate: 400Gbps\n    \
             electrical: {{rate_per_leaf: {core}Gbps, oversubscription: 1}}\n    banks: [{{name: b, switches: 1, \
             ports_per_switch: {}, ports_per_leaf: {ports}}}]\n    timing: {{control: 1ms, switching: 10ms}}\njobs: [{{name: j, \
             gpus: {}, tp: {}, step: {{training: {{model: llama-3.1-8b, pp: {pp}, dp: {dp}, micro_batches: {MICRO_BATCHES}, \
             tokens: 4096, gradient_slack: 100s, micro_batch_slack: 100s}}}}}}]\n",
            self.nodes(),
            leaves * ports,
            4 * self.needed(),
            4 * nodes_per_group,
        ))
    }

    /// Returns the bits per GPU and message edge of micro-batches and gradients, with the documented shares of a link.
    fn bits(&self) -> [f64; 2] {
        let [tp, pp, dp] = [4 * self.nodes_per_group, self.pp, self.dp].map(f64::from);
        let stage = 4096.0 * 4096.0 * 2.0 * f64::from(MICRO_BATCHES) / tp;
        let gradients = 2.0 * (dp - 1.0) / dp * 8_030_261_248.0 * 2.0 / (tp * pp);
        [stage * 8.0 / 0.85, gradients * 8.0 / 0.96]
    }

    /// Returns the node of each quarter-rank of every possible group, in both directions.
    fn groups(&self) -> Vec<Vec<u32>> {
        let works = |node: &u32| Some(*node) != self.failed;
        let nodes: Vec<u32> = (0..self.nodes()).filter(works).collect();
        if self.nodes_per_group == 1 {
            return nodes.into_iter().map(|node| vec![node]).collect();
        }
        let line = self.fabric().hbd;
        let place = |node: u32| line.position_of(lightloom_units::id::NodeId(node)).0;
        let apart = |a: u32, b: u32| place(a).abs_diff(place(b));
        let is_near = |a: u32, b: u32| apart(a, b).min(self.nodes() - apart(a, b)) <= 2;
        let pairs = nodes.iter().flat_map(|a| nodes.iter().map(move |b| vec![*a, *b]));
        pairs.filter(|pair| pair[0] != pair[1] && is_near(pair[0], pair[1])).collect()
    }

    /// Returns the edges between leaves of micro-batches and gradients.
    fn edges(&self, chosen: &[&Vec<u32>]) -> [Vec<u8>; 2] {
        let leaves = self.leaves as usize;
        let mut counts = [vec![0_u8; leaves * leaves], vec![0_u8; leaves * leaves]];
        let mut add = |phase: usize, from: u32, to: u32| {
            for (from, to) in chosen[from as usize].iter().zip(chosen[to as usize]) {
                let [from, to] = [from, to].map(|node| (node / NODES_PER_LEAF) as usize);
                counts[phase][from * leaves + to] += u8::from(from != to);
            }
        };
        for stage in 0..self.pp {
            for replica in 0..self.dp {
                let own = stage * self.dp + replica;
                add(1, own, stage * self.dp + (replica + 1) % self.dp);
                if stage + 1 < self.pp {
                    add(0, own, own + self.dp);
                    add(0, own + self.dp, own);
                }
            }
        }
        counts
    }

    fn canonical(&self, edges: &[Vec<u8>; 2]) -> [Vec<u8>; 2] {
        let leaves = self.leaves as usize;
        let renamed = |names: &Vec<usize>| {
            [0, 1].map(|phase: usize| {
                let at = |place: usize| names[place / leaves] * leaves + names[place % leaves];
                (0..leaves * leaves).map(|place| edges[phase][at(place)]).collect::<Vec<u8>>()
            })
        };
        permutations(leaves).iter().map(renamed).min().expect("a permutation")
    }

    /// Returns the seconds of the best step, over all placements.
    fn optimum(&self, fabric: &Fabric) -> f64 {
        let groups = self.groups();
        let mut placements = BTreeMap::new();
        let mut open: Vec<Vec<&Vec<u32>>> = vec![Vec::new()];
        while let Some(chosen) = open.pop() {
            if chosen.len() as u32 == self.pp * self.dp {
                let edges = self.edges(&chosen);
                let least = self.least(&edges);
                placements.insert(self.canonical(&edges), least);
                continue;
            }
            let is_free = |group: &&Vec<u32>| {
                chosen.iter().all(|other| other.iter().all(|node| !group.contains(node)))
            };
            open.extend(groups.iter().filter(is_free).map(|group| {
                let mut longer = chosen.clone();
                longer.push(group);
                longer
            }));
        }
        let mut placements: Vec<([Vec<u8>; 2], f64)> = placements.into_iter().collect();
        placements.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (mut step, mut known) = (f64::INFINITY, BTreeMap::new());
        for (edges, least) in placements {
            if least >= step {
                break;
            }
            let seconds = |phase: usize| {
                let key = (phase, edges[phase].clone());
                *known.entry(key).or_insert_with(|| self.seconds(fabric, phase, &edges[phase]))
            };
            let [a, b] = [0, 1].map(seconds);
            step = step.min(a + b);
        }
        step
    }

    fn interface(&self, phase: usize) -> f64 {
        if phase == 0 && self.pp == 1 { 0.0 } else { self.bits()[phase] / 400e9 }
    }

    fn least(&self, edges: &[Vec<u8>; 2]) -> f64 {
        let leaves = self.leaves as usize;
        let rate = f64::from(self.core + 400 * self.ports) * 1e9;
        let phase = |phase: usize| {
            let bits = |place: usize| f64::from(edges[phase][place]) * 4.0 * self.bits()[phase];
            let sent = |leaf: usize| (0..leaves).map(|peer| bits(leaf * leaves + peer)).sum();
            let received = |leaf: usize| (0..leaves).map(|peer| bits(peer * leaves + leaf)).sum();
            let most = (0..leaves).flat_map(|leaf| [sent(leaf), received(leaf)]);
            (most.fold(0.0, f64::max) / rate).max(self.interface(phase))
        };
        phase(0) + phase(1)
    }

    fn seconds(&self, fabric: &Fabric, phase: usize, edges: &[u8]) -> f64 {
        let leaves = self.leaves as usize;
        let mut demand = Demand::none(leaves);
        for (place, count) in edges.iter().enumerate().filter(|(_, count)| **count > 0) {
            let bytes = f64::from(*count) * 4.0 * self.bits()[phase] / 8.0;
            let [from, to] = [place / leaves, place % leaves].map(LeafId::from_index);
            demand.add(from, to, Bytes(bytes as u64));
        }
        if demand.total() == Bytes::ZERO {
            return self.interface(phase);
        }
        let rate = best(fabric.dcn.circuits().expect("circuits"), &demand, Hops::Any);
        if rate < 1e-6 { f64::INFINITY } else { (1.0 / rate).max(self.interface(phase)) }
    }
}

fn permutations(count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..count {
        let longer = |names: &Vec<usize>| {
            let names = names.clone();
            (0..count)
                .filter(|name| !names.contains(name))
                .map(|name| [names.clone(), vec![name]].concat())
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

#[test]
fn tiny_joint_plans_are_optimal() {
    let mut draws = Seed(7150).stream("tiny joint", 0);
    let (mut tried, mut optimal, mut worst) = (0, 0, 1.0_f64);
    while tried < cases(40, 150) {
        let tiny = Tiny::drawn(&mut draws);
        let fabric = tiny.fabric();
        let names: Vec<String> = tiny.failed.iter().map(|node| format!("n{node}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let faults = faults(&fabric, &names);
        let optimum = tiny.optimum(&fabric);
        let Ok(plan) = plan(&fabric, &faults, Options::default()) else {
            assert!(optimum.is_infinite(), "{tiny:?} is refused, and {optimum} s are possible");
            continue;
        };
        check(&fabric, &faults, &plan).expect("a sound plan");
        let step = plan.metrics.step_time_ps.expect("a job trains").as_secs_f64();
        let over = step / optimum;
        assert!(over > 0.999, "{tiny:?}: {step} s beats the optimum of {optimum} s");
        if over > 1.001 {
            println!("{tiny:?}: {over:.4} times the optimum of {optimum:.4} s");
        }
        (tried, optimal, worst) = (tried + 1, optimal + u32::from(over <= 1.001), worst.max(over));
    }
    println!("{optimal} of {tried} are optimal, worst {worst:.4}");
    assert!(optimal * 75 >= tried * 74 && worst <= 1.05, "{optimal} of {tried}, worst {worst}");
}
