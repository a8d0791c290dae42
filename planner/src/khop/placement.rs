//! Which chains a job gets, so that equal ranks of neighbouring groups share a ToR.
//!
//! With the sub-line deployment, slot i of every ToR forms sub-line i. Where the same ToRs are used
//! in every sub-line, the g-th chain of all p sub-lines is an *aligned set*: equal ranks sit under
//! one ToR, and the inner data-parallel ring never leaves it. Constraints are imposed one by one, as
//! many as leave the job enough GPUs (found by bisection):
//!
//! 1. *step*: the p chains of a set begin at the same ToR, and each leads around its own broken nodes.
//!    Ranks are then dealt by ToR, so that a broken node costs one misplaced rank and not a shift of
//!    all that follow;
//! 2. *alignment*: a ToR with a node that cannot be used is used in no sub-line, so that the chains of a
//!    set use the same ToRs throughout;
//! 3. *border* of an aggregation domain: no group crosses it.
//!
//! Step and alignment are imposed ToR by ToR from the last to the first, so that ToRs without them stay
//! one stretch of the line. Nodes of ToRs without any constraint are grouped along the line as they
//! come; nodes left over stay free (they are what a later bypass draws on).

use lightloom_fabric::dcn::{Dcn, Order};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::khop::Position;
use lightloom_units::id::{NodeId, TorId};

use super::grouping::{Track, chains_on_line};
use super::layout::{Greedy, RingGroup, Segment};
use super::{Chain, Survey};

/// What a job needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// m: nodes of one group.
    pub nodes_per_group: usize,
    /// Groups wanted; nothing for as many as possible.
    pub groups: Option<usize>,
}

/// The chains found, best ones first, and the constraints they keep.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placement {
    pub(crate) chains: Vec<Chain>,
    pub(crate) constraints_kept: u32,
    pub(crate) constraints_total: u32,
    pub(crate) greedy: Greedy,
}

impl Placement {
    pub(crate) fn unconstrained() -> Self {
        Self::default()
    }
}

/// Places a job on the `free` nodes under as many constraints as leave it enough groups.
///
/// Capacity is taken to fall as constraints are added, as published; flooring can break that by
/// a group, in which case fewer constraints than possible may be kept, never too few groups.
pub(super) fn orchestrate(
    fabric: &Fabric,
    survey: &Survey<'_>,
    free: &[bool],
    demand: Demand,
) -> Placement {
    let m = demand.nodes_per_group;
    let greedy = Greedy::new(survey, free, m);
    let plain = chains_on_line(survey, free, m);
    if fabric.order != Order::SubLines || fabric.dcn.nodes_per_tor() < 2 {
        return Placement { chains: plain, greedy, ..Placement::default() };
    }
    let racks = Racks::new(fabric, survey, free);
    let total = 2 * racks.tors() + racks.domains;
    let enough = demand.groups.unwrap_or(plain.len());
    let mut best = plain;
    let (mut low, mut high) = (0, total);
    while low < high {
        let kept = (low + high).div_ceil(2);
        let chains = racks.place(kept, m);
        if chains.len() >= enough {
            (low, best) = (kept, chains);
        } else {
            high = kept - 1;
        }
    }
    Placement { chains: best, constraints_kept: low, constraints_total: total, greedy }
}

/// The nodes seen by ToR.
struct Racks<'a> {
    fabric: &'a Fabric,
    survey: &'a Survey<'a>,
    free: &'a [bool],
    domains: u32,
    /// By ToR: all its nodes are there and usable.
    complete: Vec<bool>,
}

impl<'a> Racks<'a> {
    fn new(fabric: &'a Fabric, survey: &'a Survey<'a>, free: &'a [bool]) -> Self {
        let dcn = &fabric.dcn;
        let tors = dcn.tors(fabric.hbd.nodes());
        let domains = tors.div_ceil(dcn.tors_per_domain());
        let mut racks = Self { fabric, survey, free, domains, complete: Vec::new() };
        let nodes_of = |tor: u32| tor * dcn.nodes_per_tor()..(tor + 1) * dcn.nodes_per_tor();
        racks.complete =
            (0..tors).map(|tor| nodes_of(tor).all(|node| racks.is_usable(node))).collect();
        racks
    }

    fn tors(&self) -> u32 {
        u32::try_from(self.complete.len()).expect("bounded by the nodes")
    }

    /// Under the first `constraints` constraints: the first ToR in step, and the first aligned one.
    fn stretches(&self, constraints: u32) -> (u32, u32) {
        let tors = self.tors();
        (tors.saturating_sub(constraints), (2 * tors).saturating_sub(constraints).min(tors))
    }

    fn position(&self, tor: u64, slot: u32) -> Position {
        let tor = u32::try_from(tor).expect("a ToR index");
        self.fabric.hbd.position_of(NodeId(tor * self.fabric.dcn.nodes_per_tor() + slot))
    }

    /// The chains under the first `constraints` constraints: aligned sets, then the rest.
    fn place(&self, constraints: u32, m: usize) -> Vec<Chain> {
        let mut chains = Vec::new();
        for run in self.aligned_runs(constraints) {
            for tors in self.tor_chains(run, m) {
                chains.extend(self.aligned_set(&tors));
            }
        }
        let (in_step, aligned) = self.stretches(constraints);
        chains.extend(self.sets_in_step(in_step..aligned, m));
        chains.extend(chains_on_line(self.survey, &self.free_below(in_step), m));
        chains
    }

    /// By position: free, and under a ToR below `end`.
    fn free_below(&self, end: u32) -> Vec<bool> {
        let mut free = self.free.to_vec();
        for node in (end * self.fabric.dcn.nodes_per_tor()..self.fabric.hbd.nodes()).map(NodeId) {
            free[self.fabric.hbd.position_of(node).index()] = false;
        }
        free
    }

    /// Sets of chains under `tors`, the chains of a set beginning at the same ToR.
    fn sets_in_step(&self, tors: std::ops::Range<u32>, m: usize) -> Vec<Chain> {
        let mut chains = Vec::new();
        let (mut start, end) = (tors.start, tors.end);
        let slots = 0..self.fabric.dcn.nodes_per_tor();
        while let Some(set) = slots
            .clone()
            .map(|slot| self.first_chain(slot, start..end, m))
            .collect::<Option<Vec<_>>>()
        {
            let last = set.iter().filter_map(|tors| tors.last()).max();
            start = last.expect("a chain has a node") + 1;
            for (slot, tors) in slots.clone().zip(set) {
                chains.push(
                    tors.into_iter().map(|tor| self.position(u64::from(tor), slot)).collect(),
                );
            }
        }
        chains
    }

    /// The first chain of `m` usable nodes in one slot of the ToRs in `tors`.
    fn first_chain(&self, slot: u32, tors: std::ops::Range<u32>, m: usize) -> Option<Vec<u32>> {
        let mut chain: Vec<u32> = Vec::with_capacity(m);
        for tor in tors.filter(|tor| self.is_usable(tor * self.fabric.dcn.nodes_per_tor() + slot)) {
            if !self.goes_on(slot, &chain, tor) {
                chain.clear();
            }
            chain.push(tor);
            if chain.len() == m {
                return Some(chain);
            }
        }
        None
    }

    /// Whether a chain in `slot` can be led on to `tor`.
    fn goes_on(&self, slot: u32, chain: &[u32], tor: u32) -> bool {
        let Some(&last) = chain.last() else { return true };
        let k = u32::from(self.fabric.hbd.k());
        let before = chain.len().checked_sub(2).map(|place| last - chain[place]);
        let excluded = k % 2 == 1 && tor - last == k && before == Some(k);
        tor - last <= k
            && !excluded
            && self.survey.has_fibre(
                self.position(u64::from(last), slot),
                i8::try_from(tor - last).expect("at most K"),
            )
    }

    fn is_usable(&self, node: u32) -> bool {
        node < self.fabric.hbd.nodes() && {
            let position = self.fabric.hbd.position_of(NodeId(node));
            self.free[position.index()] && self.survey.is_whole(position)
        }
    }

    /// Ranges of ToRs in which chains are aligned: from the first aligned one, cut at the borders of
    /// as many domains as constraints are left over for.
    fn aligned_runs(&self, constraints: u32) -> Vec<std::ops::Range<u64>> {
        let bordered = constraints.saturating_sub(2 * self.tors());
        let size = self.fabric.dcn.tors_per_domain();
        let cuts = (1..=bordered)
            .map(|domain| domain.saturating_mul(size))
            .filter(|tor| *tor < self.tors());
        let ends = cuts.chain([self.tors()]).map(u64::from);
        let mut start = u64::from(self.stretches(constraints).1);
        let run = |end| std::mem::replace(&mut start, end)..end;
        ends.map(run).collect()
    }

    /// Chains of complete ToRs joined by working fibres in every sub-line.
    fn tor_chains(&self, run: std::ops::Range<u64>, m: usize) -> Vec<Vec<u64>> {
        let slots = self.fabric.dcn.nodes_per_tor();
        let every = |tor: u64, up: u8| {
            (0..slots).all(|slot| self.survey.has_fibre(self.position(tor, slot), up.cast_signed()))
        };
        let perfect = |_: u64, _: u8| true;
        let joined: &dyn Fn(u64, u8) -> bool =
            if self.survey.all_fibres_work() { &perfect } else { &every };
        let places = run.filter(|tor| self.complete[*tor as usize]).collect();
        Track { places, reach: self.fabric.hbd.k(), joined }.chains(m)
    }

    fn aligned_set(&self, tors: &[u64]) -> impl Iterator<Item = Chain> {
        let slots = 0..self.fabric.dcn.nodes_per_tor();
        slots.map(move |slot| tors.iter().map(|tor| self.position(*tor, slot)).collect())
    }
}

/// Deals the ranks of neighbouring groups so that equal ranks sit under one ToR wherever the groups
/// have nodes there: each group follows the first of its set, and what is left over fills the gaps.
pub(super) fn deal_ranks(dcn: &Dcn, groups: &mut [RingGroup]) {
    for set in groups.chunks_mut(dcn.nodes_per_tor() as usize) {
        let Some((first, others)) = set.split_first_mut() else { continue };
        let wanted: Vec<TorId> = first.ranks.iter().map(|node| dcn.tor_of(*node)).collect();
        for group in others {
            let mut left = group.nodes.clone();
            let mut take = |tor: TorId| {
                let place = left.iter().position(|node| dcn.tor_of(*node) == tor)?;
                Some(left.remove(place))
            };
            let dealt: Vec<Option<NodeId>> = wanted.iter().map(|tor| take(*tor)).collect();
            let mut left = left.into_iter();
            let fill = |rank: Option<NodeId>| rank.or_else(|| left.next());
            group.ranks = dealt.into_iter().filter_map(fill).collect();
        }
    }
}

/// Groups of `tp` GPUs, fewer than a node has: runs of the node's GPU ring that no broken bundle
/// interrupts. Nodes are taken rack by rack, so that neighbouring groups share a ToR.
pub(super) fn inside_nodes(
    fabric: &Fabric,
    survey: &Survey<'_>,
    free: &[bool],
    tp: u32,
) -> Vec<RingGroup> {
    let hbd = &fabric.hbd;
    let gpus = u8::try_from(tp).expect("fewer than a node's GPUs");
    let mut groups = Vec::new();
    for node in (0..hbd.nodes()).map(NodeId) {
        let position = hbd.position_of(node);
        if !free[position.index()] {
            continue;
        }
        for (first, length) in
            arcs(hbd.gpus_per_node(), survey.broken_bundles(position).map(|b| hbd.ring_edge(b)))
        {
            let firsts = (0..length / gpus).map(|i| (first + i * gpus) % hbd.gpus_per_node());
            groups.extend(firsts.map(|first| RingGroup::inside(node, Segment { first, gpus })));
        }
    }
    groups
}

/// The pieces of a node's GPU ring between its open edges, as (first GPU, GPUs).
fn arcs(gpus: u8, open_edges: impl Iterator<Item = u8>) -> Vec<(u8, u8)> {
    let mut edges: Vec<u8> = open_edges.collect();
    edges.sort_unstable();
    let Some(&first) = edges.first() else { return vec![(0, gpus)] };
    let nexts = edges.iter().skip(1).copied().chain([first + gpus]);
    edges.iter().zip(nexts).map(|(edge, next)| ((edge + 1) % gpus, next - edge)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_bundle_opens_the_ring_of_its_node_there() {
        assert_eq!(arcs(4, [].into_iter()), [(0, 4)]);
        assert_eq!(arcs(4, [0].into_iter()), [(1, 4)]);
        assert_eq!(arcs(4, [2, 0].into_iter()), [(1, 2), (3, 2)]);
    }
}
