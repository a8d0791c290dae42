// SPDX-License-Identifier: Apache-2.0
//! N + 1 rings (`spare_per_ring: 1`) consist of N ranked nodes and one pass-through node.
//!
//! docs/khop.md describes their fibres and a bypass.
//!
//! On an open line, starting each run as early as possible maximises the number of runs. A closed
//! line is cut at every relevant place, so the result is also the true maximum.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::khop::{Hop, Position, Shape, hops_are_compatible};
use lightloom_units::id::NodeId;

use super::{Chain, RingGroup, Survey};

pub(super) fn are_wanted(fabric: &Fabric) -> bool {
    fabric.spare_per_ring > 0
}

pub(super) fn rings(
    fabric: &Fabric,
    survey: &Survey<'_>,
    free: &[bool],
    nodes: usize,
) -> Vec<RingGroup> {
    most(survey, free, nodes + 1).iter().map(|chain| ring(fabric, chain)).collect()
}

fn ring(fabric: &Fabric, chain: &[Position]) -> RingGroup {
    let mut group = RingGroup::chain(&fabric.hbd, chain);
    group.passing = group.ranks.pop();
    group
}

pub(super) fn runs(survey: &Survey<'_>, free: &[bool], length: usize) -> Vec<usize> {
    let hbd = survey.hbd();
    let nodes = hbd.nodes() as usize;
    let closed = hbd.shape() == Shape::Ring;
    let runs = (0..nodes).map(|first| {
        let run = (first..first + length).take_while(|place| {
            let is_there = (closed || *place < nodes) && place - first < nodes;
            is_there
                && survey.is_usable(position(place % nodes), free)
                && [1, 2].into_iter().all(|hop: Hop| {
                    let back = usize::from(hop.unsigned_abs());
                    *place < first + back || survey.has_fibre(position((place - back) % nodes), hop)
                })
        });
        run.count()
    });
    runs.collect()
}

pub(super) fn all(survey: &Survey<'_>, free: &[bool], length: usize) -> Vec<Chain> {
    let nodes = survey.hbd().nodes() as usize;
    let runs = runs(survey, free, length).into_iter().enumerate();
    runs.filter(|(_, run)| *run >= length).map(|(first, _)| chain(first, length, nodes)).collect()
}

pub(super) fn most(survey: &Survey<'_>, free: &[bool], length: usize) -> Vec<Chain> {
    let nodes = survey.hbd().nodes() as usize;
    let runs = runs(survey, free, length);
    let cuts = match survey.hbd().shape() {
        Shape::Ring => length.min(nodes),
        Shape::Line => 1,
    };
    let mut best: Vec<usize> = Vec::new();
    for cut in 0..cuts {
        let mut firsts = Vec::new();
        let mut place = cut;
        while place + length <= cut + nodes {
            if runs[place % nodes] >= length {
                firsts.push(place);
                place += length;
            } else {
                place += 1;
            }
        }
        if firsts.len() > best.len() {
            best = firsts;
        }
    }
    best.into_iter().map(|first| chain(first, length, nodes)).collect()
}

fn position(place: usize) -> Position {
    Position(u32::try_from(place).expect("a position fits"))
}

fn chain(first: usize, length: usize, nodes: usize) -> Chain {
    (first..first + length).map(|place| position(place % nodes)).collect()
}

/// Returns `old` without its failed node or one end of its failed fibre. The spare takes over the ranks.
/// `None` if `old` has no spare or the remaining nodes cannot be connected.
pub(super) fn bridged(fabric: &Fabric, survey: &Survey<'_>, old: &RingGroup) -> Option<RingGroup> {
    let passing = old.passing?;
    let broken = old.nodes.iter().copied();
    let broken: Vec<NodeId> =
        broken.filter(|node| !survey.is_whole(fabric.hbd.position_of(*node))).collect();
    let candidates = match broken.len() {
        // After a fibre fault, drop the spare rather than a ranked node.
        0 => {
            let mut nodes = old.nodes.clone();
            nodes.sort_by_key(|node| *node != passing);
            nodes
        }
        1 => broken,
        _ => return None,
    };
    candidates.into_iter().find_map(|gone| left_out(fabric, survey, old, gone))
}

fn left_out(
    fabric: &Fabric,
    survey: &Survey<'_>,
    old: &RingGroup,
    gone: NodeId,
) -> Option<RingGroup> {
    let hbd = &fabric.hbd;
    let passing = old.passing?;
    let place = old.nodes.iter().position(|node| *node == gone)?;
    let mut group = RingGroup { passing: None, ..old.clone() };
    group.nodes.remove(place);
    match place {
        0 => drop(group.hops.remove(0)),
        last if last == old.hops.len() => drop(group.hops.pop()),
        between => group.hops[between - 1] += group.hops.remove(between),
    }
    for node in group.ranks.iter_mut().filter(|node| **node == gone) {
        *node = passing;
    }
    let joined = group.nodes.iter().zip(&group.hops);
    let works = joined.into_iter().all(|(node, hop)| {
        *hop <= Hop::try_from(hbd.k()).unwrap_or(Hop::MAX)
            && survey.has_fibre(hbd.position_of(*node), *hop)
    });
    let fits = group.hops.windows(2).all(|pair| hops_are_compatible(hbd.k(), -pair[0], pair[1]));
    (works && fits && group.nodes.iter().all(|node| survey.is_whole(hbd.position_of(*node))))
        .then_some(group)
}

/// Whether the ring's spare can replace any other node, which requires every bypass fibre to work.
pub(super) fn stands_in_for_all(fabric: &Fabric, survey: &Survey<'_>, group: &RingGroup) -> bool {
    let mut threes = group.nodes.windows(3);
    group.passing.is_some()
        && threes.all(|three| survey.has_fibre(fabric.hbd.position_of(three[0]), 2))
}

/// Returns `old` without its spare. A working spare takes over the ranks of one failed node.
pub(super) fn given_up(fabric: &Fabric, survey: &Survey<'_>, old: &RingGroup) -> RingGroup {
    let Some(passing) = old.passing else { return old.clone() };
    let hbd = &fabric.hbd;
    let mut left = RingGroup { passing: None, ..old.clone() };
    let broken = left.ranks.iter().position(|node| !survey.is_whole(hbd.position_of(*node)));
    let gone = match broken.filter(|_| survey.is_whole(hbd.position_of(passing))) {
        Some(rank) => std::mem::replace(&mut left.ranks[rank], passing),
        None => passing,
    };
    left.nodes.retain(|node| *node != gone);
    left
}

/// `None` if no idle node fits next to or between the nodes, or if there already is a spare.
pub(super) fn regained(
    fabric: &Fabric,
    survey: &Survey<'_>,
    idle: &[bool],
    old: &RingGroup,
) -> Option<RingGroup> {
    let hbd = &fabric.hbd;
    if !are_wanted(fabric) || old.passing.is_some() || old.segment.is_some() {
        return None;
    }
    let own: Vec<Position> = old.nodes.iter().map(|node| hbd.position_of(*node)).collect();
    let nodes = hbd.nodes() as usize;
    let length = own.len() + 1;
    let first = own.first()?.index();
    let mut free = idle.to_vec();
    for at in &own {
        free[at.index()] = true;
    }
    for first in [Some(first), (first + nodes).checked_sub(1).filter(|_| length <= nodes)] {
        let chain = chain(first?, length, nodes);
        let added = chain.iter().filter(|position| !own.contains(position)).count();
        if added != 1 || !is_run(survey, &free, &chain) {
            continue;
        }
        let mut group = RingGroup::chain(hbd, &chain);
        group.passing = group.nodes.iter().copied().find(|node| !old.nodes.contains(node));
        return Some(RingGroup { id: old.id, job: old.job, ranks: old.ranks.clone(), ..group });
    }
    None
}

fn is_run(survey: &Survey<'_>, free: &[bool], chain: &[Position]) -> bool {
    let closed = survey.hbd().shape() == Shape::Ring;
    let rises = chain.windows(2).all(|pair| closed || pair[0] < pair[1]);
    let is_joined = [1, 2].into_iter().all(|hop: Hop| {
        let apart = usize::from(hop.unsigned_abs());
        chain.windows(apart + 1).all(|part| survey.has_fibre(part[0], hop))
    });
    rises && is_joined && chain.iter().all(|position| survey.is_usable(*position, free))
}
