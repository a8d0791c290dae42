// SPDX-License-Identifier: Apache-2.0
//! A brute-force oracle for small fabrics: the minimum number of inner hops across ToRs, and the
//! maximum number of rings. Shares no code with the planner.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::{Position, Shape};

pub(crate) struct CrossingJudge {
    rings: Vec<u64>,
    per_tor: u32,
    passes: bool,
    costs: BTreeMap<Vec<Vec<u32>>, u32>,
    known: BTreeMap<(u64, u32, u32), Option<u32>>,
}

fn bundle(hop: i64, k: i64) -> i64 {
    let pair = (hop.abs() - 1) / 2;
    let is_last_of_odd = k % 2 == 1 && hop.abs() == k;
    2 * pair + i64::from(hop < 0 && !is_last_of_odd)
}

impl CrossingJudge {
    fn new(fabric: &Fabric, rings: BTreeSet<u64>, passes: bool) -> Self {
        let per_tor = fabric.dcn.nodes_per_tor();
        let (costs, known) = (BTreeMap::new(), BTreeMap::new());
        Self { rings: rings.into_iter().collect(), per_tor, passes, costs, known }
    }

    pub(crate) fn of_runs(fabric: &Fabric, faults: &FaultSet, length: u32) -> Self {
        let nodes = fabric.hbd.nodes();
        let closed = fabric.hbd.shape() == Shape::Ring;
        let run = |first: u32| -> Option<u64> {
            let places = (first..first + length).map(|place| {
                let node = fabric.hbd.node_at(Position(place % nodes));
                let is_there = (closed || place < nodes) && !faults.nodes.contains(&node);
                is_there.then_some(1_u64 << node.0)
            });
            places.sum()
        };
        Self::new(fabric, (0..nodes).filter_map(run).collect(), true)
    }

    /// Enumerates rings of `length` nodes along any path, including paths that turn back, except
    /// those with two hops on one bundle of a node.
    pub(crate) fn of_paths(fabric: &Fabric, faults: &FaultSet, length: u32) -> Self {
        let (nodes, k) = (i64::from(fabric.hbd.nodes()), i64::from(fabric.hbd.k()));
        let closed = fabric.hbd.shape() == Shape::Ring;
        let position = |place: i64| Position(u32::try_from(place).unwrap());
        let node = |place: i64| fabric.hbd.node_at(position(place));
        let works = |place: i64| !faults.nodes.contains(&node(place));
        let joined = |place: i64, hop: i64| {
            let fibre = fabric.hbd.fibre(position(place), i8::try_from(hop).unwrap());
            fibre.is_some_and(|fibre| !faults.fibres.contains(&fibre))
        };
        let mut rings = BTreeSet::new();
        let mut paths: Vec<(Vec<i64>, i64)> =
            (0..nodes).filter(|place| works(*place)).map(|place| (vec![place], 0)).collect();
        while let Some((path, before)) = paths.pop() {
            if path.len() as u32 == length {
                rings.insert(path.iter().fold(0, |bits, place| bits | 1_u64 << node(*place).0));
                continue;
            }
            let last = *path.last().unwrap();
            for hop in (-k..=k).filter(|hop| *hop != 0) {
                let next = if closed { (last + hop).rem_euclid(nodes) } else { last + hop };
                let is_there = (0..nodes).contains(&next) && works(next) && !path.contains(&next);
                let fits = before == 0 || bundle(-before, k) != bundle(hop, k);
                if is_there && fits && joined(last, hop) {
                    paths.push(([path.clone(), vec![next]].concat(), hop));
                }
            }
        }
        Self::new(fabric, rings, false)
    }

    pub(crate) fn most_rings(&self) -> u32 {
        fn most(rings: &[u64], free: u64, known: &mut BTreeMap<u64, u32>) -> u32 {
            if free == 0 {
                return 0;
            }
            if let Some(known) = known.get(&free) {
                return *known;
            }
            let lowest = free & free.wrapping_neg();
            let mut best = most(rings, free & !lowest, known);
            for ring in rings.iter().filter(|ring| *ring & lowest != 0 && *ring & !free == 0) {
                best = best.max(1 + most(rings, free & !ring, known));
            }
            known.insert(free, best);
            best
        }
        let all = self.rings.iter().fold(0, |all, ring| all | ring);
        most(&self.rings, all, &mut BTreeMap::new())
    }

    /// Each set has as many groups as a ToR has nodes; the last set has the rest. `None` if the
    /// groups do not fit.
    pub(crate) fn least(&mut self, groups: u32) -> Option<u32> {
        let all = self.rings.iter().fold(0, |all, ring| all | ring);
        let (per_set, rest) = (self.per_tor, groups % self.per_tor);
        let whole = self.sets(per_set, all);
        let partial = self.sets(rest, all);
        self.least_of([&whole, &partial], all, groups / per_set, u32::from(rest > 0))
    }

    fn sets(&mut self, size: u32, all: u64) -> BTreeMap<u32, Vec<(u64, u32)>> {
        let mut chosen: Vec<Vec<u64>> = vec![vec![]];
        for _ in 0..size {
            let longer = |set: &Vec<u64>| {
                let free = set.iter().fold(all, |free, ring| free & !ring);
                let last = set.last().copied().unwrap_or(0);
                let set = set.clone();
                let fits =
                    self.rings.iter().filter(move |ring| *ring & !free == 0 && **ring > last);
                fits.map(move |ring| [set.clone(), vec![*ring]].concat())
            };
            chosen = chosen.iter().flat_map(longer).collect();
        }
        let mut cheapest: BTreeMap<u64, u32> = BTreeMap::new();
        for set in chosen.iter().filter(|set| !set.is_empty()) {
            let nodes = set.iter().fold(0, |all, ring| all | ring);
            let cost = self.crossing(set);
            let known = cheapest.entry(nodes).or_insert(cost);
            *known = cost.min(*known);
        }
        let mut by_lowest: BTreeMap<u32, Vec<(u64, u32)>> = BTreeMap::new();
        for (nodes, cost) in cheapest {
            by_lowest.entry(nodes.trailing_zeros()).or_default().push((nodes, cost));
        }
        by_lowest
    }

    fn least_of(
        &mut self,
        sets: [&BTreeMap<u32, Vec<(u64, u32)>>; 2],
        free: u64,
        whole: u32,
        partial: u32,
    ) -> Option<u32> {
        if whole + partial == 0 {
            return Some(0);
        }
        if free == 0 {
            return None;
        }
        if let Some(known) = self.known.get(&(free, whole, partial)) {
            return *known;
        }
        let lowest = free.trailing_zeros();
        let mut best = self.least_of(sets, free & (free - 1), whole, partial);
        for (kind, left) in [(0, whole), (1, partial)] {
            let here = sets[kind].get(&lowest).filter(|_| left > 0);
            for (nodes, cost) in here.into_iter().flatten().filter(|(nodes, _)| nodes & !free == 0)
            {
                let after = [whole + kind as u32 - 1, partial - kind as u32];
                let rest = self.least_of(sets, free & !nodes, after[0], after[1]);
                best = [best, rest.map(|rest| rest + cost)].into_iter().flatten().min();
            }
        }
        self.known.insert((free, whole, partial), best);
        best
    }

    fn crossing(&mut self, set: &[u64]) -> u32 {
        if set.len() < 2 {
            return 0;
        }
        let tors = |ring: &u64| -> Vec<u32> {
            (0..64).filter(|node| ring >> node & 1 == 1).map(|node| node / self.per_tor).collect()
        };
        let mut groups: Vec<Vec<u32>> = set.iter().map(tors).collect();
        groups.sort_unstable();
        if let Some(known) = self.costs.get(&groups) {
            return *known;
        }
        let ways = |tors: &Vec<u32>| -> BTreeSet<Vec<u32>> {
            let without = |gone: usize| {
                let kept = tors.iter().enumerate().filter(move |(at, _)| *at != gone);
                permutations(&kept.map(|(_, tor)| *tor).collect::<Vec<u32>>())
            };
            match self.passes {
                true => (0..tors.len()).flat_map(without).collect(),
                false => permutations(tors).into_iter().collect(),
            }
        };
        let ways: Vec<BTreeSet<Vec<u32>>> = groups.iter().map(ways).collect();
        let mut best = u32::MAX;
        let others: Vec<usize> = (1..groups.len()).collect();
        for order in permutations(&others) {
            // By symmetry, one order of the first group's ranks suffices.
            for first in ways[0].iter().filter(|ranks| ranks.is_sorted()) {
                let mut ends: BTreeMap<&Vec<u32>, u32> = [(first, 0)].into();
                for next in &order {
                    let reach = |ranks: &Vec<u32>| {
                        ends.iter().map(|(last, cost)| cost + differ(last, ranks)).min().unwrap()
                    };
                    ends = ways[*next].iter().map(|ranks| (ranks, reach(ranks))).collect();
                }
                let closed = ends.iter().map(|(last, cost)| cost + differ(last, first));
                best = best.min(closed.min().unwrap());
            }
        }
        self.costs.insert(groups, best);
        best
    }
}

fn differ(a: &[u32], b: &[u32]) -> u32 {
    a.iter().zip(b).filter(|(a, b)| a != b).count() as u32
}

fn permutations<Item: Copy>(items: &[Item]) -> Vec<Vec<Item>> {
    if items.is_empty() {
        return vec![vec![]];
    }
    let starting = |at: usize| {
        let mut others = items.to_vec();
        let first = others.remove(at);
        permutations(&others).into_iter().map(move |rest| [vec![first], rest].concat())
    };
    (0..items.len()).flat_map(starting).collect()
}
