//! Which chains a job gets, so that equal ranks of neighbouring groups share a ToR.
//!
//! With the sub-line deployment, slot i of every ToR forms sub-line i. Where the same ToRs are used
//! in every sub-line, the g-th chain of all p sub-lines is an *aligned set*: equal ranks sit under
//! one ToR, and the inner data-parallel ring never leaves it. Constraints are imposed one by one, as
//! many as leave the job enough GPUs (found by bisection):
//!
//! 1. *alignment* of an aggregation domain: a ToR with an unusable node is used in no sub-line,
//!    domains that lose the fewest nodes by it first;
//! 2. *border* of an aggregation domain: no group crosses it.
//!
//! The nodes of domains without constraints are joined into one line and grouped as they come; nodes
//! that alignment leaves over stay free (they are what a later bypass draws on).

use lightloom_fabric::dcn::Order;
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::id::NodeId;
use lightloom_fabric::khop::Position;

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
    if fabric.order != Order::SubLines || fabric.dcn.nodes_per_tor < 2 {
        return Placement { chains: plain, greedy, ..Placement::default() };
    }
    let racks = Racks::new(fabric, survey, free);
    let total = 2 * racks.domains;
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
    /// Domains, those that alignment costs the fewest nodes first.
    cheapest: Vec<u32>,
}

impl<'a> Racks<'a> {
    fn new(fabric: &'a Fabric, survey: &'a Survey<'a>, free: &'a [bool]) -> Self {
        let (hbd, dcn) = (&fabric.hbd, &fabric.dcn);
        let tors = dcn.tors(hbd.nodes());
        let domains = tors.div_ceil(dcn.tors_per_domain);
        let per_tor = dcn.nodes_per_tor;
        let usable = |node: u32| {
            node < hbd.nodes() && {
                let position = hbd.position_of(NodeId(node));
                free[position.index()] && survey.is_whole(position)
            }
        };
        let count = |tor: u32| (tor * per_tor..(tor + 1) * per_tor).filter(|n| usable(*n)).count();
        let usable_nodes: Vec<usize> = (0..tors).map(count).collect();
        let complete: Vec<bool> = usable_nodes.iter().map(|n| *n == per_tor as usize).collect();
        let mut lost = vec![0; domains as usize];
        for (tor, nodes) in (0..).zip(&usable_nodes) {
            if !complete[tor as usize] {
                lost[(tor / dcn.tors_per_domain) as usize] += nodes;
            }
        }
        let mut cheapest: Vec<u32> = (0..domains).collect();
        cheapest.sort_by_key(|domain| lost[*domain as usize]);
        Self { fabric, survey, free, domains, complete, cheapest }
    }

    fn position(&self, tor: u64, slot: u32) -> Position {
        let tor = u32::try_from(tor).expect("a ToR index");
        self.fabric.hbd.position_of(NodeId(tor * self.fabric.dcn.nodes_per_tor + slot))
    }

    /// The chains under the first `constraints` constraints: aligned sets, then the rest.
    fn place(&self, constraints: u32, m: usize) -> Vec<Chain> {
        let mut chains = Vec::new();
        for run in self.aligned_runs(constraints) {
            for tors in self.tor_chains(run, m) {
                chains.extend(self.aligned_set(&tors));
            }
        }
        chains.extend(chains_on_line(self.survey, &self.unconstrained(constraints), m));
        chains
    }

    /// By position: free, and in a domain that is not aligned.
    fn unconstrained(&self, constraints: u32) -> Vec<bool> {
        let dcn = &self.fabric.dcn;
        let mut free = self.free.to_vec();
        let nodes_per_domain = dcn.tors_per_domain.saturating_mul(dcn.nodes_per_tor);
        for domain in self.cheapest.iter().take(constraints as usize) {
            let first = domain * nodes_per_domain;
            let nodes = first..first.saturating_add(nodes_per_domain).min(self.fabric.hbd.nodes());
            for node in nodes.map(NodeId) {
                free[self.fabric.hbd.position_of(node).index()] = false;
            }
        }
        free
    }

    /// Ranges of ToRs in which chains are aligned: neighbouring aligned domains, cut at borders.
    fn aligned_runs(&self, constraints: u32) -> Vec<std::ops::Range<u64>> {
        let mut aligned = vec![false; self.domains as usize];
        let mut bordered = vec![false; self.domains as usize];
        let borders = constraints.saturating_sub(self.domains) as usize;
        for (rank, domain) in self.cheapest.iter().enumerate().take(constraints as usize) {
            aligned[*domain as usize] = true;
            bordered[*domain as usize] = rank < borders;
        }
        let size = u64::from(self.fabric.dcn.tors_per_domain);
        let tors = self.complete.len() as u64;
        let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
        for domain in (0..aligned.len()).filter(|domain| aligned[*domain]) {
            let range = domain as u64 * size..((domain as u64 + 1) * size).min(tors);
            let open = domain > 0 && !bordered[domain] && !bordered[domain - 1];
            match runs.last_mut() {
                Some(last) if last.end == range.start && open => last.end = range.end,
                _ => runs.push(range),
            }
        }
        runs
    }

    /// Chains of complete ToRs joined by working fibres in every sub-line.
    fn tor_chains(&self, run: std::ops::Range<u64>, m: usize) -> Vec<Vec<u64>> {
        let slots = self.fabric.dcn.nodes_per_tor;
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
        let slots = 0..self.fabric.dcn.nodes_per_tor;
        slots.map(move |slot| tors.iter().map(|tor| self.position(*tor, slot)).collect())
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
