// SPDX-License-Identifier: Apache-2.0
//! A canonical description of an island in local numbers: everything that its simulation depends on.
//!
//! Islands with equal descriptions have equal runs, because the engine is built only from the description.
//!
//! At each vertex, local link numbers preserve the global order of links, because the engine breaks ties between a
//! vertex's links by number. Otherwise links are numbered in the order in which traffic reaches them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lightloom_units::Picoseconds;
use rustc_hash::FxHashMap;

use crate::engine::{
    FlowGate, FlowId, FlowSpec, LinkChange, LinkId, LinkSpec, Network, NetworkBuilder, VertexId,
    VertexRole,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum IslandChange {
    Flow(FlowSpec),
    Gate(FlowId, FlowGate),
    Cancel(FlowId),
    Change(LinkId, LinkChange),
    Reroute(FlowId, Vec<LinkId>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Description {
    pub(super) roles: Vec<VertexRole>,
    pub(super) cables: Vec<CableLinks>,
    /// Times, including flow starts, are relative to the island's start.
    pub(super) acts: Vec<(u64, IslandChange)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CableLinks {
    ends: (VertexId, VertexId),
    there: LinkSpec,
    back: LinkSpec,
    kinds: [u8; 2],
}

#[derive(Clone, Debug, Default)]
pub(super) struct GlobalNames {
    pub(super) links: Vec<LinkId>,
    pub(super) vertices: Vec<VertexId>,
}

impl GlobalNames {
    pub(super) fn of(network: &Network, links: &[LinkId]) -> Self {
        let mut names = Self::default();
        let mut places: FxHashMap<VertexId, ()> = FxHashMap::default();
        for cable in ordered(network, links) {
            names.links.extend([links[cable], links[cable].reverse()]);
            for vertex in ends(network, links[cable]) {
                if places.insert(vertex, ()).is_none() {
                    names.vertices.push(vertex);
                }
            }
        }
        names
    }

    pub(super) fn describe(
        &self,
        network: &Network,
        kind: impl Fn(LinkId) -> u8,
    ) -> (Vec<VertexRole>, Vec<CableLinks>) {
        let places: FxHashMap<VertexId, VertexId> = match self.vertices.len() {
            // With few vertices, a linear search is cheaper than a table.
            0..=8 => FxHashMap::default(),
            _ => (0u32..).zip(&self.vertices).map(|(i, v)| (*v, VertexId(i))).collect(),
        };
        let cables = self.links.iter().step_by(2).map(|link| {
            let (there, back) = (network.link(*link), network.link(link.reverse()));
            let [from, to] = [there.from, there.to].map(|vertex| {
                places.get(&vertex).copied().unwrap_or_else(|| {
                    let index = self.vertices.iter().position(|other| *other == vertex);
                    VertexId::from_index(index.expect("links of the island end at its vertices"))
                })
            });
            let kinds = [kind(*link), kind(link.reverse())];
            CableLinks { ends: (from, to), there: there.spec, back: back.spec, kinds }
        });
        let roles = self.vertices.iter().map(|vertex| network.role(*vertex));
        (roles.collect(), cables.collect())
    }
}

fn ends(network: &Network, link: LinkId) -> [VertexId; 2] {
    let ends = network.link(link);
    [ends.from, ends.to]
}

/// Returns an order close to `links` that agrees with the cable numbers at each vertex.
fn ordered(network: &Network, links: &[LinkId]) -> Vec<usize> {
    let mut at: FxHashMap<VertexId, Vec<usize>> = FxHashMap::default();
    for (place, link) in links.iter().enumerate() {
        for vertex in ends(network, *link) {
            at.entry(vertex).or_default().push(place);
        }
    }
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); links.len()];
    let mut before = vec![0_u32; links.len()];
    for places in at.values_mut() {
        places.sort_unstable_by_key(|place| links[*place]);
        for pair in places.windows(2) {
            after[pair[0]].push(pair[1]);
            before[pair[1]] += 1;
        }
    }
    let free = (0..links.len()).filter(|place| before[*place] == 0);
    let mut free: BinaryHeap<Reverse<usize>> = free.map(Reverse).collect();
    let mut order = Vec::with_capacity(links.len());
    while let Some(Reverse(place)) = free.pop() {
        order.push(place);
        for next in &after[place] {
            before[*next] -= 1;
            if before[*next] == 0 {
                free.push(Reverse(*next));
            }
        }
    }
    order
}

impl Description {
    /// Batches are reported after the shortest delay, so an island without a cable of this delay gets an unused one.
    pub(super) fn network(&self, shortest: Picoseconds) -> Network {
        let mut builder = NetworkBuilder::new();
        for role in &self.roles {
            builder.add(*role);
        }
        for CableLinks { ends: (a, b), there, back, .. } in &self.cables {
            builder.connect_unequal(*a, *b, *there, *back);
        }
        let own = self.cables.iter().flat_map(|cable| [cable.there, cable.back]);
        if own.clone().all(|spec| spec.delay > shortest) {
            let spec = self.cables.first().expect("an island has cables").there;
            let [a, b] = [VertexRole::Host, VertexRole::Host].map(|role| builder.add(role));
            builder.connect(a, b, LinkSpec { delay: shortest, ..spec });
        }
        builder.build().expect("the links belong to a valid network")
    }
}
