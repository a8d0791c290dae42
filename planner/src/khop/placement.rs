// SPDX-License-Identifier: Apache-2.0
//! Selects the chains of jobs so that equal ranks of neighbouring groups share a ToR.
//!
//! In a sub-line deployment, sub-line i consists of slot i of every ToR. The groups of a job form
//! sets of p, with one group per sub-line. If all groups of a set use a ToR, the inner
//! data-parallel rings of the ranks there do not leave the ToR.

use std::collections::BTreeMap;

use lightloom_fabric::dcn::Dcn;
use lightloom_fabric::fabric::Fabric;
use lightloom_units::id::{NodeId, TorId};

use super::columns::Columns;
use super::layout::{RingGroup, Segment};
use super::packing::{Need, pack};
use super::sliding::{Found, Wanted};
use super::{Chain, Survey, spare};

/// Returns chains of `free` nodes in rank order for each need, or fewer if they do not all fit.
pub(super) fn orchestrate(
    fabric: &Fabric,
    survey: &Survey<'_>,
    free: &[bool],
    needs: &[Need],
) -> Vec<Vec<Chain>> {
    let longest = needs.iter().map(|need| need.0).max().unwrap_or(1);
    let Some(columns) = Columns::new(fabric, survey, free, longest) else {
        return pack(fabric, survey, free, needs);
    };
    let per_set = fabric.dcn.nodes_per_tor() as usize;
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|need| std::cmp::Reverse(needs[*need].0));
    let wanted: Vec<Wanted> = order
        .iter()
        .map(|need| needs[*need])
        .map(|(length, groups)| {
            let (sets, rest) = (groups / per_set, groups % per_set);
            Wanted { length, sets, rest, passes: spare::are_wanted(fabric) }
        })
        .collect();
    let aligned = columns.aligned_sets(&wanted);
    let columns = if aligned.is_none() { columns.turned(free) } else { columns };
    let found = aligned.unwrap_or_else(|| columns.sets(&wanted));
    let work = Keeping { survey, columns: &columns, free, needs, order: &order, found: &found };
    if found.iter().all(|found| found.complete) {
        return work.first(usize::MAX).chains;
    }
    let most = found.iter().map(|found| found.sets.len()).sum();
    let (mut low, mut high): (usize, usize) = (0, most);
    let mut best = None;
    while low < high {
        let keep = (low + high).div_ceil(2);
        match work.completed(fabric, keep) {
            Some(chains) => (low, best) = (keep, Some(chains)),
            None => high = keep - 1,
        }
    }
    let best = best.or_else(|| work.completed(fabric, 0));
    best.unwrap_or_else(|| pack(fabric, survey, free, needs))
}

struct Keeping<'a> {
    survey: &'a Survey<'a>,
    columns: &'a Columns<'a>,
    free: &'a [bool],
    needs: &'a [Need],
    order: &'a [usize],
    found: &'a [Found],
}

struct Kept {
    chains: Vec<Vec<Chain>>,
    free: Vec<bool>,
}

impl Keeping<'_> {
    fn first(&self, mut keep: usize) -> Kept {
        let mut kept =
            Kept { chains: vec![Vec::new(); self.needs.len()], free: self.free.to_vec() };
        for (need, found) in self.order.iter().zip(self.found) {
            for set in found.sets.iter().take(keep) {
                kept.chains[*need].extend(self.columns.chains(set));
            }
            keep = keep.saturating_sub(found.sets.len());
        }
        for position in kept.chains.iter().flatten().flatten() {
            kept.free[position.index()] = false;
        }
        kept
    }

    fn completed(&self, fabric: &Fabric, keep: usize) -> Option<Vec<Vec<Chain>>> {
        let Kept { mut chains, free } = self.first(keep);
        let missing: Vec<Need> = self
            .needs
            .iter()
            .zip(&chains)
            .map(|(need, chains)| (need.0, need.1.saturating_sub(chains.len())))
            .collect();
        let packed = pack(fabric, self.survey, &free, &missing);
        for ((chains, mut more), missing) in chains.iter_mut().zip(packed).zip(&missing) {
            if more.len() < missing.1 {
                return None;
            }
            // Chains that start under nearby ToRs should form a set.
            more.sort_by_key(|chain: &Chain| {
                chain.first().map(|first| fabric.dcn.tor_of(fabric.hbd.node_at(*first)))
            });
            chains.extend(more);
        }
        Some(chains)
    }
}

pub(super) fn deal(fabric: &Fabric, groups: &mut [RingGroup]) {
    if spare::are_wanted(fabric) {
        choose_passing(&fabric.dcn, groups);
    }
    deal_ranks(&fabric.dcn, groups);
}

fn choose_passing(dcn: &Dcn, groups: &mut [RingGroup]) {
    for set in groups.chunks_mut(dcn.nodes_per_tor() as usize) {
        let mut used: BTreeMap<TorId, usize> = BTreeMap::new();
        for node in set.iter().flat_map(|group| &group.nodes) {
            *used.entry(dcn.tor_of(*node)).or_default() += 1;
        }
        for group in set {
            let nodes = group.nodes.iter().rev();
            let least_shared = nodes.min_by_key(|node| used[&dcn.tor_of(**node)]);
            let Some(&passing) = least_shared else { continue };
            *used.get_mut(&dcn.tor_of(passing)).expect("it was counted") -= 1;
            group.ranks.retain(|node| *node != passing);
            group.passing = Some(passing);
        }
    }
}

/// Tries several groups as the reference. A node preferably takes the rank of a reference node under its ToR.
fn deal_ranks(dcn: &Dcn, groups: &mut [RingGroup]) {
    for set in groups.chunks_mut(dcn.nodes_per_tor() as usize) {
        let origins = 0..set.len().min(MOST_ORIGINS);
        let dealt = origins.map(|origin| dealt_from(dcn, set, origin));
        let best = dealt
            .min_by_key(|ranks| super::cross_tor(dcn, ranks.iter().map(Vec::as_slice)).crossing);
        for (group, ranks) in set.iter_mut().zip(best.into_iter().flatten()) {
            group.ranks = ranks;
        }
    }
}

const MOST_ORIGINS: usize = 8;

pub(super) fn tors_of(dcn: &Dcn, nodes: &[NodeId]) -> Vec<TorId> {
    nodes.iter().map(|node| dcn.tor_of(*node)).collect()
}

fn dealt_from(dcn: &Dcn, set: &[RingGroup], origin: usize) -> Vec<Vec<NodeId>> {
    let mut dealt: Vec<Vec<NodeId>> = vec![Vec::new(); set.len()];
    dealt[origin].clone_from(&set[origin].ranks);
    let first = tors_of(dcn, &dealt[origin]);
    let mut before = first.clone();
    for place in (1..set.len()).map(|step| (origin + step) % set.len()) {
        let mut left = set[place].ranks.clone();
        let mut ranks: Vec<Option<NodeId>> = vec![None; left.len()];
        for wanted in [&before, &first] {
            for (rank, tor) in ranks.iter_mut().zip(wanted).filter(|(rank, _)| rank.is_none()) {
                let node = left.iter().position(|node| dcn.tor_of(*node) == *tor);
                *rank = node.map(|node| left.remove(node));
            }
        }
        let mut left = left.into_iter();
        dealt[place] = ranks.into_iter().filter_map(|rank| rank.or_else(|| left.next())).collect();
        before = tors_of(dcn, &dealt[place]);
    }
    dealt
}

/// Groups are runs of `tp` GPUs without failed bundles in between. Racks are filled in order.
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

/// Returns the segments between the open edges of a node's GPU ring as (first GPU, GPUs).
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
    fn failed_bundle_opens_the_ring_at_its_edge() {
        assert_eq!(arcs(4, [].into_iter()), [(0, 4)]);
        assert_eq!(arcs(4, [0].into_iter()), [(1, 4)]);
        assert_eq!(arcs(4, [2, 0].into_iter()), [(1, 2), (3, 2)]);
    }
}
