// SPDX-License-Identifier: Apache-2.0
//! Forms groups within islands, whose GPUs are all connected to one another.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::hbd::Grouping;
use lightloom_fabric::khop::Position;

use super::{Chain, RingGroup, Survey};

pub(super) fn groups(survey: &Survey<'_>, free: &[bool], m: usize, island: u32) -> Vec<Chain> {
    let nodes = survey.hbd().nodes();
    (0..nodes)
        .step_by(island.max(1) as usize)
        .flat_map(|first| {
            let end = first.saturating_add(island).min(nodes);
            let here = (first..end).map(Position).filter(|at| survey.is_usable(*at, free));
            let here: Vec<Position> = here.collect();
            here.chunks_exact(m.max(1)).map(<[Position]>::to_vec).collect::<Vec<_>>()
        })
        .collect()
}

/// Moves the ranks of failed nodes to idle nodes of the same island. `None` if too few are idle.
pub(super) fn rebuild(
    fabric: &Fabric,
    survey: &Survey<'_>,
    idle: &[bool],
    old: &RingGroup,
) -> Option<RingGroup> {
    let island = match fabric.hbd.grouping() {
        Grouping::Island { nodes } => nodes,
        Grouping::Line | Grouping::Anywhere => fabric.hbd.nodes(),
    };
    let first = old.nodes.first()?.0 / island * island;
    let mut replacements = (first..first.saturating_add(island).min(fabric.hbd.nodes()))
        .map(Position)
        .filter(|position| survey.is_usable(*position, idle))
        .map(|position| fabric.hbd.node_at(position))
        .filter(|node| !old.nodes.contains(node));
    let mut new = old.clone();
    for place in 0..old.ranks.len() {
        let broken = old.ranks[place];
        if survey.is_whole(fabric.hbd.position_of(broken)) {
            continue;
        }
        let replacement = replacements.next()?;
        new.ranks[place] = replacement;
        for node in new.nodes.iter_mut().filter(|node| **node == broken) {
            *node = replacement;
        }
    }
    Some(new)
}
