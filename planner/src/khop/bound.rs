// SPDX-License-Identifier: Apache-2.0
//! A lower bound on the traffic between ToRs.
//!
//! Let p be the number of nodes per ToR and of groups per set. Suppose that d ranks of a set do not
//! sit entirely under one ToR. Each such rank is split into runs of at most p − 1 nodes under one
//! ToR, so its p·d nodes form at least ⌈p·d / (p − 1)⌉ runs, each followed by a crossing hop. A ToR
//! with an unusable node (an incomplete ToR) cannot hold all nodes of a rank, so a chain has at
//! most d nodes under incomplete ToRs. A chain with n such nodes is charged 1/p of ⌈p·n / (p − 1)⌉.
//! What remains is to cut the required number of chains from one line at the lowest total charge. A
//! dynamic program solves this for a given price per chain, and its dual value is a lower bound for
//! every price.
//!
//! The bound is valid if every ring starts after the previous one ends. For p > 2, two interleaved
//! rings could have a lower total charge, because the charge is not linear in n.

use lightloom_fabric::dcn::Order;
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::khop::{Position, Shape};

use super::Survey;
use super::grouping::chains_on_line;

const MOST_STEPS: usize = 400_000_000;

pub(super) fn least_crossing(
    fabric: &Fabric,
    survey: &Survey<'_>,
    length: usize,
    groups: usize,
) -> u64 {
    let per_set = fabric.dcn.nodes_per_tor() as usize;
    let whole_sets = groups / per_set * per_set;
    if per_set < 2 || whole_sets == 0 {
        return 0;
    }
    let line = Line::new(fabric, survey);
    let reach = usize::from(fabric.hbd.k());
    let steps = line.places.len() * length * length * reach * reach;
    if steps > MOST_STEPS {
        return by_counting(&line, length * whole_sets, per_set);
    }
    let ends = line.cheapest_chains(length, reach, |incomplete| {
        (per_set * incomplete).div_ceil(per_set - 1) as u32
    });
    let wanted = whole_sets - usize::from(line.is_closed);
    let charged = dual(&ends, wanted);
    (charged / per_set as f64 - 1e-6).ceil().max(0.0) as u64
}

/// The minimum number of crossing inner hops for rings of `length` ranked nodes and one spare.
///
/// Such a ring consists of adjacent nodes and covers a run of ToRs. If the runs of a set start at
/// most s ToRs apart, two of its rings share all but s ToRs. Between these two rings 2 (s − 1) hops
/// cross, counted in both directions, because each ring can choose one node as its spare. All ToRs
/// shared by a whole set are consecutive complete ToRs. If g consecutive ToRs hold k sets, the
/// rings of a set share at most g − (k − 1) (length + 1) ToRs, because the runs in a sub-line do
/// not overlap. A stretch of complete ToRs therefore holds a limited number of sets without
/// crossing hops; one more set fits only if all of them share fewer ToRs. A set outside such a
/// stretch has the maximum of 2 · length crossing hops.
pub(super) fn least_crossing_with_spares(
    fabric: &Fabric,
    survey: &Survey<'_>,
    length: usize,
    groups: usize,
) -> u64 {
    let (nodes, per_set) = (fabric.hbd.nodes(), fabric.dcn.nodes_per_tor());
    let (tors, run) = ((nodes / per_set.max(1)) as usize, length + 1);
    let along_columns = fabric.order == Order::SubLines && nodes.is_multiple_of(per_set);
    // On a shorter closed line, two runs can be adjacent at both ends.
    if per_set < 2 || !along_columns || tors < 3 * run {
        return 0;
    }
    let mut complete = vec![true; tors];
    for position in (0..nodes).map(Position).filter(|position| !survey.is_whole(*position)) {
        complete[fabric.dcn.tor_of(fabric.hbd.node_at(position)).index()] = false;
    }
    let Some(cut) = complete.iter().position(|complete| !complete) else { return 0 };
    complete.rotate_left(cut);
    let stretches = complete.split(|complete| !complete).map(<[bool]>::len);
    let apart = 2 * length;
    let mut more: Vec<usize> = stretches
        .clone()
        .map(|stretch| (stretch / run + 1) * 2 * length.saturating_sub(stretch % run))
        .map(|narrowed| narrowed.min(apart))
        .collect();
    more.sort_unstable();
    let for_nothing: usize = stretches.map(|stretch| stretch / run).sum();
    let missing = (groups / per_set as usize).saturating_sub(for_nothing);
    more.into_iter().chain(std::iter::repeat(apart)).take(missing).sum::<usize>() as u64
}

fn by_counting(line: &Line, nodes: usize, per_set: usize) -> u64 {
    let complete = line.places.iter().filter(|place| place.1 == 0).count();
    nodes.saturating_sub(complete).div_ceil(per_set - 1) as u64
}

struct Line {
    places: Vec<(u64, usize)>,
    is_closed: bool,
}

impl Line {
    fn new(fabric: &Fabric, survey: &Survey<'_>) -> Self {
        let hbd = &fabric.hbd;
        let usable = chains_on_line(survey, survey.alive(), 1).into_iter().flatten();
        let with_tor = usable.map(|position| {
            (u64::from(position.0), fabric.dcn.tor_of(hbd.node_at(position)).index())
        });
        let usable: Vec<(u64, usize)> = with_tor.collect();
        let per_tor = fabric.dcn.nodes_per_tor();
        let mut missing = vec![per_tor; fabric.dcn.tors(hbd.nodes()) as usize];
        for (_, tor) in &usable {
            missing[*tor] -= 1;
        }
        let first = usable.first().map_or(0, |(place, _)| *place);
        let nodes = u64::from(hbd.nodes());
        let places = usable
            .iter()
            .map(|(place, tor)| ((place + nodes - first) % nodes, usize::from(missing[*tor] > 0)));
        let places: Vec<(u64, usize)> = places.collect();
        let last = places.last().map_or(0, |place| place.0);
        let is_closed = hbd.shape() == Shape::Ring && nodes - last <= u64::from(hbd.k());
        Self { places, is_closed }
    }

    /// Returns the possible chain ends per start node. Each end is cheaper than every nearer end.
    fn cheapest_chains(
        &self,
        length: usize,
        reach: usize,
        charge: impl Fn(usize) -> u32,
    ) -> Vec<Vec<(u32, u32)>> {
        const NEVER: usize = usize::MAX;
        let span = (length - 1) * reach + 1;
        let mut fewest = vec![NEVER; span * length];
        let mut chains = Vec::with_capacity(self.places.len());
        for start in 0..self.places.len() {
            let near = self.places[start..].iter().take(span);
            let near: Vec<(u64, usize)> = near.copied().collect();
            fewest.fill(NEVER);
            fewest[0] = near[0].1;
            let (mut ends, mut best) = (Vec::new(), NEVER);
            for (to, (place, mark)) in near.iter().enumerate().skip(1) {
                for back in 1..=reach.min(to) {
                    if place - near[to - back].0 > reach as u64 {
                        break;
                    }
                    for placed in 1..length {
                        let before = fewest[(to - back) * length + placed - 1];
                        let slot = &mut fewest[to * length + placed];
                        *slot = (*slot).min(before.saturating_add(*mark));
                    }
                }
                let complete = fewest[to * length + length - 1];
                if complete < best {
                    best = complete;
                    ends.push((u32::try_from(start + to + 1).expect("a place"), charge(complete)));
                }
                if best == 0 {
                    break;
                }
            }
            if length == 1 {
                ends.push((u32::try_from(start + 1).expect("a place"), charge(near[0].1)));
            }
            chains.push(ends);
        }
        chains
    }
}

fn dual(ends: &[Vec<(u32, u32)>], wanted: usize) -> f64 {
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    let mut best = 0.0_f64;
    for _ in 0..12 {
        let (bound, count) = relaxed(ends, wanted, high);
        best = best.max(bound);
        if count >= wanted {
            break;
        }
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..16 {
        let price = (low + high) / 2.0;
        let (bound, count) = relaxed(ends, wanted, price);
        best = best.max(bound);
        if count >= wanted { high = price } else { low = price }
    }
    best
}

/// Returns the bound at `price` per chain, and the number of chains that attains it.
fn relaxed(ends: &[Vec<(u32, u32)>], wanted: usize, price: f64) -> (f64, usize) {
    let mut value = vec![(f64::INFINITY, 0_usize); ends.len() + 1];
    value[0] = (0.0, 0);
    for (start, ends) in ends.iter().enumerate() {
        let (cost, count) = value[start];
        if cost < value[start + 1].0 {
            value[start + 1] = (cost, count);
        }
        for (end, charge) in ends {
            let cost = cost + f64::from(*charge) - price;
            if cost < value[*end as usize].0 {
                value[*end as usize] = (cost, count + 1);
            }
        }
    }
    let (cost, count) = value[value.len() - 1];
    (cost + price * wanted as f64, count)
}
