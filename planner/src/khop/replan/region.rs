// SPDX-License-Identifier: Apache-2.0
//! Repacks the rings of one section of the line with the least change, by an exact search.
//!
//! Candidates are all chains of nodes that no fixed ring uses. The search decides node by node,
//! lowest first, whether the node's ring keeps it, a new chain takes it, or it stays free. It
//! merges states with the same remaining nodes and keeps the cheapest history, so the effort grows
//! with the number of states at a cut through the line. Costs add up, and the cost of each circuit
//! is final when both of its ends are decided. The result therefore has the least cost within the
//! limit.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Add;
use std::rc::Rc;

use lightloom_fabric::khop::{Hop, Shape, hops_are_compatible};
use lightloom_units::id::{BundleId, NodeId};
use rustc_hash::FxHashMap;

use super::super::document::selected_port;
use super::super::layout::switched_bundles;
use super::super::{Layout, Survey};

pub(super) const MOST_PLACES: usize = 128;

/// The cost of moves. The fields are in descending order of importance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MoveCost {
    /// Rings without a fault whose ranks move to other nodes.
    pub(super) rings: u32,
    /// Circuits of rings without a fault that go dark.
    pub(super) circuits: u32,
    pub(super) nodes: u32,
    pub(super) bundles: u32,
}

impl MoveCost {
    pub(super) fn most() -> Self {
        Self { rings: u32::MAX, ..Self::default() }
    }
}

impl Add for MoveCost {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            rings: self.rings + other.rings,
            circuits: self.circuits + other.circuits,
            nodes: self.nodes + other.nodes,
            bundles: self.bundles + other.bundles,
        }
    }
}

pub(super) struct Old {
    pub(super) place: usize,
    pub(super) class: usize,
    pub(super) is_hit: bool,
    /// The ring's nodes in this section; `ranks` holds those with ranks.
    nodes: u128,
    ranks: u128,
}

pub(super) struct RegionClass {
    pub(super) length: usize,
    pub(super) rings: u32,
}

pub(super) enum Pick {
    Stays { old: usize },
    Chain { nodes: Vec<NodeId>, hops: Vec<Hop>, class: usize, old: Option<usize> },
}

#[derive(Clone, Copy)]
pub(super) struct Limit {
    pub(super) rings: u32,
    pub(super) below: MoveCost,
}

pub(super) enum RegionOutcome {
    Found(MoveCost, Vec<Pick>),
    /// There is no result within the limit. If `is_cut` is set, a higher limit may give one.
    Nothing {
        is_cut: bool,
    },
    OutOfSteps,
}

pub(super) struct Region<'a> {
    survey: &'a Survey<'a>,
    before: &'a Layout,
    /// Places, relative to the start of the section, with their nodes.
    nodes: Vec<(u64, NodeId)>,
    /// Length of the line if the section is an entire closed line, else `None`.
    closed: Option<u64>,
    pub(super) olds: Vec<Old>,
    pub(super) classes: Vec<RegionClass>,
    owner: Vec<Option<usize>>,
    near: Vec<Vec<(usize, Hop)>>,
    /// For each node, the far ends of its lit bundles, and whether a ring without a fault uses the circuit.
    lit: Vec<Vec<(usize, bool)>>,
    lit_to: Vec<u128>,
    /// Number of lit bundles of each node whose far end is outside the search.
    outside: Vec<u32>,
    /// Number of lit bundles of each node whose far end failed.
    widowed: Vec<u32>,
}

struct Chain {
    nodes: u128,
    order: Vec<usize>,
    hops: Vec<Hop>,
    within: (u32, u32),
    /// Far ends of lit circuits that leave the chain, and whether a ring without a fault uses the circuit.
    leaving: Vec<(usize, bool)>,
    /// Rings without a fault with ranks on these nodes; `overlapped` also lists rings with a fault.
    touched: Vec<usize>,
    overlapped: Vec<usize>,
}

/// `left` is the first field so that states sort in the order of decisions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    left: u128,
    /// Nodes of new chains that have a lit circuit to an undecided node.
    taken: u128,
    used: u128,
    /// Number of rings placed in each class, one byte each.
    placed: u64,
}

/// A decision. `of` is the lowest node and the length of a chain, and `index` its index among these.
#[derive(Clone, Copy)]
enum RegionStep {
    Stays { old: usize },
    Chain { of: (usize, usize), index: usize, class: usize, old: Option<usize> },
}

const NO_TRAIL: usize = usize::MAX;

fn bits(mut set: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(at)
    })
}

fn mask(index: &FxHashMap<NodeId, usize>, nodes: &[NodeId]) -> u128 {
    nodes.iter().filter_map(|node| index.get(node)).fold(0, |all, at| all | 1_u128 << at)
}

/// Returns the ring without a fault whose mask contains the node at index `at`.
fn healthy(olds: &[Old], at: usize, mask: fn(&Old) -> u128) -> Option<usize> {
    olds.iter().position(|old| !old.is_hit && mask(old) >> at & 1 == 1)
}

impl<'a> Region<'a> {
    /// `nodes` lists the nodes that no fixed ring uses. `olds` lists the movable rings as (former place,
    /// class, whether the ring lost a part). `places` is at most [`MOST_PLACES`].
    pub(super) fn new(
        survey: &'a Survey<'a>,
        before: &'a Layout,
        places: usize,
        nodes: Vec<(u64, NodeId)>,
        olds: &[(usize, usize, bool)],
        classes: Vec<RegionClass>,
    ) -> Self {
        let hbd = survey.hbd();
        let index: FxHashMap<NodeId, usize> =
            nodes.iter().enumerate().map(|(at, (_, node))| (*node, at)).collect();
        let olds = olds.iter().map(|&(place, class, is_hit)| {
            let group = &before.groups[place];
            let (nodes, ranks) = (mask(&index, &group.nodes), mask(&index, &group.ranks));
            Old { place, class, is_hit, nodes, ranks }
        });
        let olds: Vec<Old> = olds.collect();
        let owner = (0..nodes.len()).map(|at| healthy(&olds, at, |old| old.ranks)).collect();
        let reach = Hop::try_from(hbd.k()).expect("K is at most 64");
        let near = nodes.iter().map(|(_, node)| {
            let position = hbd.position_of(*node);
            let hops = (-reach..=reach).filter(|hop| *hop != 0);
            let joined = hops.filter_map(|hop| {
                let to = *index.get(&hbd.node_at(hbd.neighbour(position, hop)?))?;
                survey.has_fibre(position, hop).then_some((to, hop))
            });
            joined.collect()
        });
        let near = near.collect();
        let none = vec![0; nodes.len()];
        let mut lit = vec![Vec::new(); nodes.len()];
        let (mut outside, mut widowed) = (none.clone(), none);
        for (at, (_, node)) in nodes.iter().enumerate() {
            for bundle in (0..hbd.k()).map(|bundle| BundleId { node: *node, bundle }) {
                let Some(port) = selected_port(bundle, before.path(bundle)) else { continue };
                let Some(far) = survey.working_peer(port) else {
                    widowed[at] += 1;
                    continue;
                };
                match index.get(&far.bundle.node) {
                    _ if before.path(far.bundle) != far.selects() => {}
                    None => outside[at] += 1,
                    Some(to) => {
                        let own = healthy(&olds, at, |old| old.nodes);
                        let is_own = own == healthy(&olds, *to, |old| old.nodes);
                        lit[at].push((*to, own.is_some() && is_own));
                    }
                }
            }
        }
        let is_all = survey.hbd().shape() == Shape::Ring && places == survey.hbd().nodes() as usize;
        let closed = is_all.then_some(places as u64);
        let lit_to = lit.iter().map(|far: &Vec<(usize, bool)>| {
            far.iter().fold(0, |all, (far, _)| all | 1_u128 << far)
        });
        let lit_to = lit_to.collect();
        Self {
            lit_to,
            survey,
            before,
            nodes,
            closed,
            olds,
            classes,
            owner,
            near,
            lit,
            outside,
            widowed,
        }
    }

    pub(super) fn pack(&self, required: &[u32], limit: Limit, steps: &mut u32) -> RegionOutcome {
        let all = u128::MAX
            .checked_shr(u32::try_from(MOST_PLACES - self.nodes.len()).expect("at most 128"));
        let start = State { left: all.unwrap_or(0), taken: 0, used: 0, placed: 0 };
        let (trails, states) =
            (Vec::new(), BTreeMap::from([(start, (MoveCost::default(), NO_TRAIL))]));
        let chains = FxHashMap::default();
        let mut search = Search { region: self, limit, is_cut: false, chains, trails, states };
        let mut best: Option<(MoveCost, usize)> = None;
        while let Some((state, (cost, trail))) = search.states.pop_last() {
            if !self.has_room(&state, required, cost.rings == limit.rings) {
                search.is_cut |= cost.rings == limit.rings;
                continue;
            }
            if state.left == 0 {
                if best.is_none_or(|(least, _)| cost < least) {
                    best = Some((cost, trail));
                }
            } else if search.decide(state, cost, trail, steps).is_none() {
                return RegionOutcome::OutOfSteps;
            }
        }
        match best {
            Some((cost, trail)) => RegionOutcome::Found(cost, search.walk_back(trail)),
            None => RegionOutcome::Nothing { is_cut: search.is_cut },
        }
    }

    /// If `is_spent` is set, no further ring may be broken up.
    fn has_room(&self, state: &State, required: &[u32], is_spent: bool) -> bool {
        let (mut placed, mut open) = (state.placed, state.left);
        let whole = self.olds.iter().filter(|old| !old.is_hit && old.ranks & !state.left == 0);
        for old in whole.filter(|_| is_spent) {
            placed += 1 << (8 * old.class);
            open &= !old.ranks;
        }
        let placed = State { placed, ..*state };
        let missing =
            self.classes.iter().zip(required).enumerate().map(|(class, (of, required))| {
                required.saturating_sub(placed.of(class)) as usize * of.length
            });
        let missing: usize = missing.sum();
        let lengths = self.classes.iter().map(|class| class.length);
        let common = lengths.clone().fold(0, divisor).max(1);
        let shortest = lengths.min().unwrap_or(1);
        let reach = u64::from(self.survey.hbd().k());
        // Add up the room of sections that no fibre joins. On a closed line, the first and the last
        // section may be joined.
        let (mut first, mut size, mut sum, mut last) = (None, 0, 0, None);
        for place in bits(open).map(|at| self.nodes[at].0) {
            if last.is_some_and(|last| place - last > reach) {
                match first {
                    None => first = Some(size),
                    Some(_) => sum += room(size, shortest, common),
                }
                size = 0;
            }
            size += 1;
            last = Some(place);
        }
        let lowest = self.nodes.get(open.trailing_zeros() as usize).map(|(place, _)| *place);
        let ends = lowest.zip(last).zip(self.closed);
        let is_joined = ends.is_some_and(|((low, high), places)| low + places - high <= reach);
        sum += match first {
            Some(first) if is_joined => room(first + size, shortest, common),
            first => room(first.unwrap_or(0), shortest, common) + room(size, shortest, common),
        };
        sum >= missing
    }

    fn touched(&self, at: usize) -> u128 {
        self.owner[at].map_or(0, |old| 1 << old)
    }

    fn is_whole(&self, old: usize, left: u128) -> bool {
        self.olds[old].ranks & !left == 0
    }

    fn is_full(&self, state: &State, class: usize) -> bool {
        state.of(class) == self.classes[class].rings
    }
}

fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Returns how many of `size` joined nodes rings can use, at most.
fn room(size: usize, shortest: usize, common: usize) -> usize {
    if size < shortest { 0 } else { size / common * common }
}

impl State {
    fn with(self, nodes: u128, class: usize) -> Self {
        Self { left: self.left & !nodes, placed: self.placed + (1 << (8 * class)), ..self }
    }

    fn of(&self, class: usize) -> u32 {
        (self.placed >> (8 * class)) as u32 & 0xff
    }
}

struct Search<'a> {
    region: &'a Region<'a>,
    limit: Limit,
    is_cut: bool,
    chains: FxHashMap<(usize, usize), Rc<Vec<Chain>>>,
    trails: Vec<(RegionStep, usize)>,
    states: BTreeMap<State, (MoveCost, usize)>,
}

impl Search<'_> {
    fn decide(
        &mut self,
        state: State,
        cost: MoveCost,
        trail: usize,
        steps: &mut u32,
    ) -> Option<()> {
        let region = self.region;
        let at = state.left.trailing_zeros() as usize;
        let stays = region.olds.iter().position(|old| {
            !old.is_hit && old.nodes >> at & 1 == 1 && old.nodes & !state.left == 0
        });
        if let Some(old) = stays
            && !region.is_full(&state, region.olds[old].class)
        {
            let next = state.with(region.olds[old].nodes, region.olds[old].class);
            self.keep(next, cost, trail, Some(RegionStep::Stays { old }));
        }
        let left = state.left & !(1 << at);
        self.keep(State { left, ..state }, cost + self.left_out(at, &state), trail, None);
        for class in 0..region.classes.len() {
            if region.is_full(&state, class) {
                continue;
            }
            let of = (at, region.classes[class].length);
            let chains = self.candidates(of, steps)?;
            for (index, chain) in chains.iter().enumerate() {
                if chain.nodes & !state.left == 0 {
                    *steps = steps.checked_sub(1)?;
                    let step = RegionStep::Chain { of, index, class, old: None };
                    self.take(chain, step, &state, cost, trail);
                }
            }
        }
        Some(())
    }

    fn left_out(&self, at: usize, state: &State) -> MoveCost {
        let region = self.region;
        let breaks = region.owner[at].is_some_and(|old| region.is_whole(old, state.left));
        let dark = region.lit[at].iter().filter(|(far, _)| state.taken >> far & 1 == 1).count();
        let bundles = region.widowed[at] + u32::try_from(dark).expect("at most K");
        MoveCost { rings: breaks.into(), bundles, ..MoveCost::default() }
    }

    fn take(
        &mut self,
        chain: &Chain,
        step: RegionStep,
        state: &State,
        cost: MoveCost,
        trail: usize,
    ) {
        let RegionStep::Chain { of, index, class, .. } = step else { return };
        let region = self.region;
        let (mut circuits, mut bundles) = chain.within;
        for (far, is_healthy) in &chain.leaving {
            let is_taken = state.taken >> far & 1 == 1;
            circuits += u32::from(*is_healthy && !is_taken);
            bundles += u32::from(!is_taken && state.left >> far & 1 == 0);
        }
        let broken = chain.touched.iter().filter(|old| region.is_whole(**old, state.left)).count();
        let broken = u32::try_from(broken).expect("at most 128");
        let fitting = chain
            .overlapped
            .iter()
            .filter(|old| region.olds[**old].class == class && state.used >> **old & 1 == 0);
        for old in fitting.map(|old| Some(*old)).chain([None]) {
            let ranks = old.map_or(0, |old| region.olds[old].ranks);
            let stays = old.is_some_and(|old| !region.olds[old].is_hit) && ranks == chain.nodes;
            let rings = broken - u32::from(stays);
            let nodes = (chain.nodes & !ranks).count_ones();
            let next = state.with(chain.nodes, class);
            let used = state.used | old.map_or(0, |old| 1 << old);
            let next = State { taken: state.taken | chain.nodes, used, ..next };
            let cost = cost + MoveCost { rings, circuits, nodes, bundles };
            self.keep(next, cost, trail, Some(RegionStep::Chain { of, index, class, old }));
        }
    }

    fn is_within(&mut self, cost: MoveCost) -> bool {
        let is_within = cost.rings <= self.limit.rings && cost < self.limit.below;
        self.is_cut |= !is_within;
        is_within
    }

    /// Stores a state after removing entries that no later decision depends on.
    fn keep(&mut self, state: State, cost: MoveCost, trail: usize, step: Option<RegionStep>) {
        let region = self.region;
        if !self.is_within(cost) {
            return;
        }
        let facing = bits(state.taken).filter(|at| region.lit_to[*at] & state.left != 0);
        let taken = facing.fold(0, |all, at| all | 1 << at);
        let open = bits(state.used).filter(|old| region.olds[*old].ranks & state.left != 0);
        let used = open.fold(0, |all, old| all | 1 << old);
        let entry = self
            .states
            .entry(State { taken, used, ..state })
            .or_insert((self.limit.below, NO_TRAIL));
        if cost < entry.0 {
            let trail = match step {
                None => trail,
                Some(step) => {
                    self.trails.push((step, trail));
                    self.trails.len() - 1
                }
            };
            *entry = (cost, trail);
        }
    }

    fn walk_back(self, mut trail: usize) -> Vec<Pick> {
        let mut picks = Vec::new();
        while trail != NO_TRAIL {
            let (step, before) = self.trails[trail];
            trail = before;
            picks.push(match step {
                RegionStep::Stays { old } => Pick::Stays { old },
                RegionStep::Chain { of, index, class, old } => {
                    let chain = &self.chains[&of][index];
                    let nodes = chain.order.iter().map(|at| self.region.nodes[*at].1).collect();
                    Pick::Chain { nodes, hops: chain.hops.clone(), class, old }
                }
            });
        }
        picks
    }

    fn candidates(&mut self, of: (usize, usize), steps: &mut u32) -> Option<Rc<Vec<Chain>>> {
        if let Some(chains) = self.chains.get(&of) {
            return Some(chains.clone());
        }
        let (first, length) = of;
        let most = self.limit.rings.max(1);
        let (order, hops) = (VecDeque::from([first]), VecDeque::new());
        let (region, found) = (self.region, FxHashMap::default());
        let mut walk =
            RegionWalk { region, first, length, most, order, hops, found, is_cut: false };
        walk.grow(true, region.touched(first), steps)?;
        self.is_cut |= walk.is_cut;
        let mut chains: Vec<Chain> = walk.found.into_values().collect();
        chains.sort_unstable_by_key(|chain| chain.nodes);
        let chains = Rc::new(chains);
        self.chains.insert(of, chains.clone());
        Some(chains)
    }
}

/// A search over chains that grow from their lowest node, first at the end and then at the start.
struct RegionWalk<'a> {
    region: &'a Region<'a>,
    first: usize,
    length: usize,
    most: u32,
    order: VecDeque<usize>,
    hops: VecDeque<Hop>,
    found: FxHashMap<u128, Chain>,
    is_cut: bool,
}

impl RegionWalk<'_> {
    fn grow(&mut self, at_end: bool, touched: u128, steps: &mut u32) -> Option<()> {
        *steps = steps.checked_sub(1)?;
        if self.order.len() == self.length {
            self.keep(touched);
            return Some(());
        }
        let region = self.region;
        let k = region.survey.hbd().k();
        for end in [true, false].into_iter().filter(|end| at_end || !end) {
            let (from, beside) = match end {
                true => (self.order.back(), self.hops.back().map(|hop| -hop)),
                false => (self.order.front(), self.hops.front().copied()),
            };
            for (to, hop) in &region.near[*from.expect("it has a first node")] {
                let fits = beside.is_none_or(|other| hops_are_compatible(k, other, *hop));
                if *to <= self.first || !fits || self.order.contains(to) {
                    continue;
                }
                match end {
                    true => (self.order.push_back(*to), self.hops.push_back(*hop)),
                    false => (self.order.push_front(*to), self.hops.push_front(-hop)),
                };
                let touched = touched | region.touched(*to);
                if touched.count_ones() <= self.most {
                    self.grow(end, touched, steps)?;
                } else {
                    self.is_cut = true;
                }
                match end {
                    true => (self.order.pop_back(), self.hops.pop_back()),
                    false => (self.order.pop_front(), self.hops.pop_front()),
                };
            }
        }
        Some(())
    }

    fn keep(&mut self, touched: u128) {
        let (region, order) = (self.region, &self.order);
        let hbd = region.survey.hbd();
        let nodes = order.iter().fold(0, |all, at| all | 1_u128 << at);
        let (mut unused, mut switched, mut leaving) = (0, 0, Vec::new());
        for (place, at) in order.iter().enumerate() {
            let back = place.checked_sub(1).map(|before| (order[before], -self.hops[before]));
            let forward = self.hops.get(place).map(|hop| (order[place + 1], *hop));
            let hops = [back.map(|(_, hop)| hop), forward.map(|(_, hop)| hop)];
            switched += region.outside[*at];
            switched += switched_bundles(hbd, region.before, region.nodes[*at].1, hops);
            for (far, is_healthy) in &region.lit[*at] {
                let is_used = [back, forward].iter().flatten().any(|(next, _)| next == far);
                if nodes >> far & 1 == 0 {
                    leaving.push((*far, *is_healthy));
                } else if *is_healthy && !is_used && at < far {
                    unused += 1;
                }
            }
        }
        let within = (unused, switched);
        if self.found.get(&nodes).is_some_and(|known| known.within <= within) {
            return;
        }
        let (mut order, mut hops): (Vec<usize>, Vec<Hop>) =
            (order.iter().copied().collect(), self.hops.iter().copied().collect());
        if hops.iter().all(|hop| *hop < 0) {
            // List the chain in ascending order along the line, as the scan does.
            order.reverse();
            hops.reverse();
            hops.iter_mut().for_each(|hop| *hop = -*hop);
        }
        let olds = 0..region.olds.len();
        let overlapped = olds.filter(|old| region.olds[*old].ranks & nodes != 0).collect();
        let touched = bits(touched).collect();
        self.found
            .insert(nodes, Chain { nodes, order, hops, within, leaving, touched, overlapped });
    }
}
