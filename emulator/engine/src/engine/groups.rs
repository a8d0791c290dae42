// SPDX-License-Identifier: Apache-2.0
//! Routes between groups of vertices, as on a dragonfly.

use std::collections::BTreeMap;

use rand::Rng;

use super::network::{LinkId, Network, VertexId};
use super::route::FlowEnds;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VertexGroups {
    of: Vec<u32>,
    count: u32,
    between: BTreeMap<(u32, u32), Vec<LinkId>>,
}

/// How flows travel between groups (Kim, Dally, Scott, Abts, ISCA 2008).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Crossing {
    Minimal,
    /// Over a third group, drawn for each path (Valiant, SIAM Journal on Computing 11, 1982).
    Valiant,
}

impl VertexGroups {
    #[must_use]
    pub fn new(network: &Network, group_of: impl Fn(VertexId) -> u32) -> Self {
        let vertices = (0..network.vertex_count()).map(VertexId::from_index);
        let of: Vec<u32> = vertices.map(group_of).collect();
        let mut between = BTreeMap::<(u32, u32), Vec<LinkId>>::new();
        for (index, link) in network.links().iter().enumerate() {
            let pair = (of[link.from.index()], of[link.to.index()]);
            if pair.0 != pair.1 {
                between.entry(pair).or_default().push(LinkId::from_index(index));
            }
        }
        let count = of.iter().max().map_or(0, |last| last + 1);
        Self { of, count, between }
    }

    pub(super) fn way(&self, ends: FlowEnds, crossing: Crossing, draws: &mut impl Rng) -> Vec<u32> {
        let (first, last) = (self.of[ends.from.index()], self.of[ends.to.index()]);
        if first == last {
            return vec![first];
        }
        let thirds: Vec<u32> =
            (0..self.count).filter(|group| *group != first && *group != last).collect();
        match crossing {
            Crossing::Valiant if !thirds.is_empty() => {
                vec![first, thirds[(draws.next_u64() % thirds.len() as u64) as usize], last]
            }
            _ => vec![first, last],
        }
    }

    pub(super) fn between(&self, from: u32, to: u32) -> &[LinkId] {
        self.between.get(&(from, to)).map_or(&[], Vec::as_slice)
    }
}
