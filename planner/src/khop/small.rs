// SPDX-License-Identifier: Apache-2.0
//! Searches exactly, for small numbers of nodes, for the rings of a job with the fewest hops
//! between ToRs, and for the maximum number of rings.
//!
//! The search enumerates all rings and the costs of all sets of rings. It then branches on the
//! nodes in ascending order. Each node either stays free or joins one of the rings or sets. The
//! lowest cost for each set of remaining nodes is memoised. The number of steps is limited, so the
//! result does not depend on the speed of the machine.

use std::collections::BTreeMap;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::khop::Position;
use lightloom_units::id::TorId;
use rustc_hash::FxHashMap;

use super::grouping::chains_on_line;
use super::{RingGroup, Survey, exact, placement, spare};

const MOST_NODES: u32 = 40;

const MOST_SETS: usize = 60_000;

const MOST_PATHS: usize = 10_000;

const MOST_STEPS: usize = 30_000;

/// Returns groups of one job in rank order with fewer crossing hops than `known`. `length` includes the spare.
/// `None` if there are no such groups or the search is too large.
pub(super) fn fewer_crossing(
    fabric: &Fabric,
    survey: &Survey<'_>,
    free: &[bool],
    length: usize,
    known: &[RingGroup],
) -> Option<Vec<RingGroup>> {
    let rings = rings_to_search(fabric, survey, free, length, known)?;
    let mut picked = fewest(&mut Sets::new(fabric, &rings), free, known).0?;
    picked.sort_by_key(|item| (item.kind, item.nodes.trailing_zeros()));
    let groups = picked.into_iter().flat_map(|item| item.rings).map(|ring| rings[ring].clone());
    let mut groups: Vec<RingGroup> = groups.collect();
    placement::deal(fabric, &mut groups);
    Some(groups)
}

/// Returns a lower bound on the crossing hops of as many groups as `known`, on any working nodes. `None` if the search is too
/// large.
pub(super) fn least_crossing(
    fabric: &Fabric,
    survey: &Survey<'_>,
    length: usize,
    known: &[RingGroup],
) -> Option<u64> {
    let rings = rings_to_search(fabric, survey, survey.alive(), length, known)?;
    let mut sets = Sets { is_bound: true, ..Sets::new(fabric, &rings) };
    Some(fewest(&mut sets, survey.alive(), known).1)
}

/// Returns the first sets found, and a lower bound on the cost of all of them.
fn fewest(sets: &mut Sets<'_>, free: &[bool], known: &[RingGroup]) -> (Option<Vec<Item>>, u64) {
    let fabric = sets.fabric;
    let per_set = fabric.dcn.nodes_per_tor() as usize;
    let crossing = crossing(fabric, known);
    let (whole, rest) = (known.len() / per_set, known.len() % per_set);
    let nodes = (0..).zip(free).filter(|(_, free)| **free);
    let nodes = nodes.fold(0, |all, (at, _)| all | 1 << fabric.hbd.node_at(Position(at)).0);
    // Start with low limits, which only a few sets satisfy.
    let limits = (0..).map(|step| 1_u64 << step).take_while(|limit| *limit < crossing);
    let sizes = [if whole > 0 { per_set } else { 0 }, rest];
    let needs = [whole, usize::from(rest > 0)];
    let mut proven = 0;
    for limit in limits.chain([crossing]) {
        let Some(items) = sets.below(limit, sizes) else { break };
        let Search { best, below, steps, .. } = cheapest(&items, nodes, needs, limit);
        if steps < MOST_STEPS {
            proven = below;
        }
        if let Some(best) = best {
            return (Some(best.into_iter().map(|item| items[item].clone()).collect()), proven);
        }
    }
    (None, proven)
}

pub(super) fn more_rings(
    survey: &Survey<'_>,
    free: &[bool],
    length: usize,
    known: usize,
) -> Option<Vec<RingGroup>> {
    if known >= exact::by_counting(survey, free, length) {
        return None;
    }
    let mut scanned: BTreeMap<usize, Vec<RingGroup>> = BTreeMap::new();
    let pieces = exact::pieces(survey, free);
    let mut piece_of = vec![0; free.len()];
    for (number, piece) in pieces.iter().enumerate() {
        piece.iter().for_each(|position| piece_of[position.index()] = number);
    }
    for chain in chains_on_line(survey, free, length) {
        let group = RingGroup::chain(survey.hbd(), &chain);
        scanned.entry(piece_of[chain[0].index()]).or_default().push(group);
    }
    let mut rings = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        let here = scanned.remove(&number).unwrap_or_default();
        rings.extend(most_of_piece(survey, piece, length, here.len()).unwrap_or(here));
    }
    (rings.len() > known).then_some(rings)
}

fn most_of_piece(
    survey: &Survey<'_>,
    piece: &[Position],
    length: usize,
    known: usize,
) -> Option<Vec<RingGroup>> {
    let at_most = piece.len() / length;
    if known >= at_most || piece.len() > 64 {
        return None;
    }
    let mut free = vec![false; survey.alive().len()];
    piece.iter().for_each(|position| free[position.index()] = true);
    let rings = paths(survey, &free, length)?;
    let items = rings.iter().enumerate().map(|(index, ring)| {
        let positions = ring.nodes.iter().map(|node| survey.hbd().position_of(*node));
        let bits = positions.map(|at| 1_u64 << piece.partition_point(|other| *other < at));
        Item { nodes: bits.fold(0, |all, bit| all | bit), cost: 0, kind: 0, rings: vec![index] }
    });
    let items: Vec<Item> = items.collect();
    let all = u64::MAX >> (64 - piece.len());
    let found = (known + 1..=at_most).map_while(|count| cheapest(&items, all, [count, 0], 1).best);
    Some(found.last()?.into_iter().map(|ring| rings[ring].clone()).collect())
}

#[derive(Clone)]
struct Item {
    nodes: u64,
    cost: u64,
    kind: usize,
    rings: Vec<usize>,
}

fn crossing(fabric: &Fabric, groups: &[RingGroup]) -> u64 {
    super::cross_tor(&fabric.dcn, groups.iter().map(|group| group.ranks.as_slice())).crossing
}

fn rings_to_search(
    fabric: &Fabric,
    survey: &Survey<'_>,
    free: &[bool],
    length: usize,
    known: &[RingGroup],
) -> Option<Vec<RingGroup>> {
    let is_small = fabric.dcn.nodes_per_tor() > 1 && fabric.hbd.nodes() <= MOST_NODES;
    if !is_small || crossing(fabric, known) == 0 {
        return None;
    }
    if spare::are_wanted(fabric) {
        let chains = spare::all(survey, free, length).into_iter();
        return Some(chains.map(|chain| RingGroup::chain(&fabric.hbd, &chain)).collect());
    }
    paths(survey, free, length)
}

fn paths(survey: &Survey<'_>, free: &[bool], length: usize) -> Option<Vec<RingGroup>> {
    let mut rings = exact::candidates(survey, free, length, MOST_PATHS).ok()?;
    for ring in rings.iter_mut().filter(|ring| ring.hops.iter().all(|hop| *hop < 0)) {
        // Use ascending order, as the scan does.
        ring.nodes.reverse();
        ring.ranks.reverse();
        ring.hops.reverse();
        ring.hops.iter_mut().for_each(|hop| *hop = -*hop);
    }
    Some(rings)
}

struct Sets<'a> {
    fabric: &'a Fabric,
    rings: &'a [RingGroup],
    most: u64,
    nodes: Vec<u64>,
    /// Rings whose nodes are under the same ToRs are in the same class.
    likeness: Vec<usize>,
    /// Minimum number of crossing hops between rings of two classes, in both directions.
    apart: Vec<Vec<u64>>,
    ways: FxHashMap<Vec<usize>, (Vec<usize>, u64)>,
    items: FxHashMap<(usize, u64), Item>,
    looked_at: usize,
    /// Whether a set costs the lower bound of its furthest pair, and not the hops of dealt ranks.
    is_bound: bool,
}

impl<'a> Sets<'a> {
    fn new(fabric: &'a Fabric, rings: &'a [RingGroup]) -> Self {
        let tors = rings.iter().map(|ring| {
            let mut tors = placement::tors_of(&fabric.dcn, &ring.nodes);
            tors.sort_unstable();
            tors
        });
        let all: Vec<Vec<TorId>> = tors.collect();
        let mut kinds = all.clone();
        kinds.sort_unstable();
        kinds.dedup();
        let passing = usize::from(spare::are_wanted(fabric));
        let apart = kinds.iter().map(|one| {
            let ranks = one.len() - passing;
            let shared = kinds.iter().map(|other| shared(one, other));
            shared.map(|shared| 2 * ranks.saturating_sub(shared) as u64).collect()
        });
        let apart = apart.collect();
        let likeness = all.iter().map(|tors| kinds.partition_point(|kind| kind < tors)).collect();
        let nodes =
            rings.iter().map(|ring| ring.nodes.iter().fold(0, |all, node| all | 1 << node.0));
        let nodes = nodes.collect();
        let (ways, items) = (FxHashMap::default(), FxHashMap::default());
        let (looked_at, is_bound) = (0, false);
        Self { fabric, rings, most: 0, nodes, likeness, apart, ways, items, looked_at, is_bound }
    }

    fn below(&mut self, most: u64, sizes: [usize; 2]) -> Option<Vec<Item>> {
        (self.most, self.looked_at) = (most, 0);
        self.items.clear();
        for (kind, size) in sizes.into_iter().enumerate().filter(|(_, size)| *size > 0) {
            self.add(kind, size, &mut Vec::new())?;
        }
        Some(std::mem::take(&mut self.items).into_values().collect())
    }

    fn add(&mut self, kind: usize, size: usize, chosen: &mut Vec<usize>) -> Option<()> {
        if chosen.len() == size {
            self.looked_at += 1;
            self.keep(kind, chosen);
            return (self.looked_at < MOST_SETS).then_some(());
        }
        let used = chosen.iter().fold(0, |used, ring| used | self.nodes[*ring]);
        let next = chosen.last().map_or(0, |last| last + 1);
        for ring in next..self.rings.len() {
            let apart = &self.apart[self.likeness[ring]];
            let is_near = chosen.iter().all(|other| apart[self.likeness[*other]] < self.most);
            if self.nodes[ring] & used == 0 && is_near {
                chosen.push(ring);
                self.add(kind, size, chosen)?;
                chosen.pop();
            }
        }
        Some(())
    }

    fn keep(&mut self, kind: usize, chosen: &[usize]) {
        let mut rings = chosen.to_vec();
        rings.sort_unstable_by_key(|ring| (self.likeness[*ring], *ring));
        let key: Vec<usize> = rings.iter().map(|ring| self.likeness[*ring]).collect();
        let (order, cost) = match self.ways.get(&key) {
            Some(known) => known.clone(),
            None => {
                let pairs = || key.iter().flat_map(|a| key.iter().map(|b| self.apart[*a][*b]));
                let found = match self.is_bound {
                    true => (Vec::new(), pairs().max().unwrap_or(0)),
                    false => self.cheapest_order(&rings),
                };
                self.ways.insert(key, found.clone());
                found
            }
        };
        if cost < self.most {
            let nodes = rings.iter().fold(0, |all, ring| all | self.nodes[*ring]);
            let rings = order.iter().map(|place| rings[*place]).collect();
            let item = Item { nodes, cost, kind, rings };
            let known = self.items.get(&(kind, nodes));
            if known.is_none_or(|known| cost < known.cost) {
                self.items.insert((kind, nodes), item);
            }
        }
    }

    fn cheapest_order(&self, rings: &[usize]) -> (Vec<usize>, u64) {
        let along: Vec<usize> = (0..rings.len()).collect();
        let mut orders = vec![along];
        if rings.len() == 4 {
            orders.extend([vec![0, 1, 3, 2], vec![0, 2, 1, 3]]);
        }
        let costs = orders.into_iter().map(|order| {
            let groups = order.iter().map(|place| self.rings[rings[*place]].clone());
            let mut groups: Vec<RingGroup> = groups.collect();
            placement::deal(self.fabric, &mut groups);
            (order, crossing(self.fabric, &groups))
        });
        costs.min_by_key(|(_, cost)| *cost).expect("there is an order")
    }
}

fn shared(one: &[TorId], other: &[TorId]) -> usize {
    let (mut shared, mut from) = (0, 0);
    for tor in one {
        from += other[from..].iter().take_while(|other| *other < tor).count();
        if other.get(from) == Some(tor) {
            (shared, from) = (shared + 1, from + 1);
        }
    }
    shared
}

fn cheapest(items: &[Item], free: u64, needs: [usize; 2], below: u64) -> Search<'_> {
    let mut by_lowest = vec![Vec::new(); 64];
    let (mut sizes, mut least) = ([0; 2], [u64::MAX; 2]);
    for (index, item) in items.iter().enumerate() {
        by_lowest[item.nodes.trailing_zeros() as usize].push(index);
        sizes[item.kind] = item.nodes.count_ones() as usize;
        least[item.kind] = least[item.kind].min(item.cost);
    }
    for bucket in &mut by_lowest {
        bucket.sort_by_key(|item| (items[*item].cost, items[*item].nodes));
    }
    let is_possible = (0..2).all(|kind| sizes[kind] > 0 || needs[kind] == 0);
    (0..2).filter(|kind| sizes[*kind] == 0).for_each(|kind| least[kind] = 0);
    let seen = FxHashMap::default();
    let (chosen, best) = (Vec::new(), None);
    let mut search = Search { items, by_lowest, sizes, least, below, seen, steps: 0, chosen, best };
    if is_possible {
        search.go_on(free, needs, 0);
    }
    search
}

struct Search<'a> {
    items: &'a [Item],
    by_lowest: Vec<Vec<usize>>,
    sizes: [usize; 2],
    least: [u64; 2],
    below: u64,
    seen: FxHashMap<(u64, [usize; 2]), u64>,
    steps: usize,
    chosen: Vec<usize>,
    best: Option<Vec<usize>>,
}

impl Search<'_> {
    fn go_on(&mut self, free: u64, needs: [usize; 2], cost: u64) {
        if needs == [0, 0] {
            (self.below, self.best) = (cost, Some(self.chosen.clone()));
            return;
        }
        let nodes = needs[0] * self.sizes[0] + needs[1] * self.sizes[1];
        let at_least = cost + needs[0] as u64 * self.least[0] + needs[1] as u64 * self.least[1];
        let fits = free.count_ones() as usize >= nodes && at_least < self.below;
        if self.steps == MOST_STEPS || !fits {
            return;
        }
        self.steps += 1;
        let known = self.seen.entry((free, needs)).or_insert(u64::MAX);
        if std::mem::replace(known, cost.min(*known)) <= cost {
            return;
        }
        let lowest = free.trailing_zeros() as usize;
        for place in 0..self.by_lowest[lowest].len() {
            let index = self.by_lowest[lowest][place];
            let Item { nodes, cost: more, kind, .. } = self.items[index];
            if nodes & !free == 0 && needs[kind] > 0 && cost + more < self.below {
                let mut left = needs;
                left[kind] -= 1;
                self.chosen.push(index);
                self.go_on(free & !nodes, left, cost + more);
                self.chosen.pop();
            }
        }
        self.go_on(free & (free - 1), needs, cost);
    }
}
