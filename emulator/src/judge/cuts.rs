// SPDX-License-Identifier: Apache-2.0
//! Cuts of a network: sets of vertices with the rates of the links that enter and leave each set.
//!
//! Every set yields a lower bound, because traffic between its hosts and other hosts crosses these
//! links on any route. `emulator/tests/it/bounds.rs` compares the chosen sets (components below a
//! tier, switches with their hosts, and halves) with the maximum flow through every set of hosts.

use std::collections::BTreeSet;

use lightloom_engine::{LinkId, Route, VertexId};

use crate::substrate::Substrate;

pub(super) struct Cut {
    pub(super) name: String,
    pub(super) hosts: usize,
    /// Total outgoing and incoming rates, in bits per second.
    pub(super) rates: [u128; 2],
}

pub(super) struct Cuts {
    pub(super) all: Vec<Cut>,
    pub(super) around: Vec<Vec<u32>>,
}

impl Cuts {
    pub(super) fn of(substrate: &Substrate) -> Self {
        let usable = Usable::of(substrate);
        let mut sets: BTreeSet<Vec<VertexId>> = BTreeSet::new();
        sets.extend(substrate.hosts.iter().map(|host| vec![*host]));
        sets.extend(usable.below_tiers());
        sets.extend(usable.around_switches());
        sets.extend(halves(substrate, &usable));
        let mut cuts =
            Self { all: Vec::new(), around: vec![Vec::new(); substrate.network.vertex_count()] };
        for set in sets {
            cuts.add(&usable, &set);
        }
        cuts
    }

    fn add(&mut self, usable: &Usable<'_>, set: &[VertexId]) {
        let substrate = usable.substrate;
        let mut places: Vec<u32> =
            set.iter().filter_map(|vertex| substrate.place_of(*vertex)).collect();
        if places.is_empty() || places.len() == substrate.hosts.len() {
            return;
        }
        places.sort_unstable();
        let mut rates = [0; 2];
        for link in set.iter().flat_map(|vertex| usable.links_from(*vertex)) {
            if set.binary_search(&substrate.network.link(link).to).is_err() {
                for (rate, link) in rates.iter_mut().zip([link, link.reverse()]) {
                    *rate += u128::from(substrate.network.link(link).spec.rate.0);
                }
            }
        }
        let number = self.all.len() as u32;
        set.iter().for_each(|vertex| self.around[vertex.index()].push(number));
        self.all.push(Cut { name: name(substrate, &places), hosts: places.len(), rates });
    }
}

fn name(substrate: &Substrate, places: &[u32]) -> String {
    let (first, last) = (places[0], places[places.len() - 1]);
    let [from, to] = [first, last].map(|place| substrate.name(substrate.hosts[place as usize]));
    match places.len() {
        1 => from.to_owned(),
        count if (last - first) as usize + 1 == count => format!("{from}..{to}"),
        count => format!("{from} to {to}, {count} hosts,"),
    }
}

struct Usable<'a> {
    substrate: &'a Substrate,
    tiers: Vec<u32>,
}

impl<'a> Usable<'a> {
    fn of(substrate: &'a Substrate) -> Self {
        let mut usable = Self { substrate, tiers: Vec::new() };
        let mut tiers = vec![u32::MAX; substrate.network.vertex_count()];
        let mut front: Vec<VertexId> = substrate.hosts.clone();
        front.iter().for_each(|host| tiers[host.index()] = 0);
        let mut tier = 0;
        while !front.is_empty() {
            tier += 1;
            let reached: Vec<VertexId> = front
                .iter()
                .flat_map(|vertex| usable.links_from(*vertex))
                .map(|link| substrate.network.link(link).to)
                .collect();
            front.clear();
            for vertex in reached {
                if tiers[vertex.index()] == u32::MAX {
                    tiers[vertex.index()] = tier;
                    front.push(vertex);
                }
            }
        }
        usable.tiers = tiers;
        usable
    }

    fn links_from(&self, vertex: VertexId) -> impl Iterator<Item = LinkId> + use<'a> {
        let Substrate { network, route, .. } = self.substrate;
        network.outgoing(vertex).iter().copied().filter(move |link| match route {
            Route::Within(plane) => network.link(*link).spec.plane == *plane,
            _ => true,
        })
    }

    fn vertices(&self) -> impl Iterator<Item = VertexId> + use<> {
        (0..self.tiers.len()).map(VertexId::from_index)
    }

    fn below_tiers(&self) -> Vec<Vec<VertexId>> {
        let highest = self.tiers.iter().filter(|tier| **tier != u32::MAX).max().copied();
        let tiers = 0..highest.unwrap_or(0);
        tiers.flat_map(|tier| self.together(move |at: u32| at <= tier)).collect()
    }

    fn together(&self, is_in: impl Fn(u32) -> bool) -> Vec<Vec<VertexId>> {
        let mut seen = vec![false; self.tiers.len()];
        let mut sets = Vec::new();
        for first in self.vertices() {
            if seen[first.index()] || !is_in(self.tiers[first.index()]) {
                continue;
            }
            seen[first.index()] = true;
            let (mut set, mut next) = (vec![first], 0);
            while next < set.len() {
                for link in self.links_from(set[next]) {
                    let to = self.substrate.network.link(link).to;
                    if is_in(self.tiers[to.index()]) && !seen[to.index()] {
                        seen[to.index()] = true;
                        set.push(to);
                    }
                }
                next += 1;
            }
            set.sort_unstable();
            sets.push(set);
        }
        sets
    }

    fn around_switches(&self) -> Vec<Vec<VertexId>> {
        let switches = self.vertices().filter(|vertex| self.tiers[vertex.index()] == 1);
        let around = switches.map(|switch| {
            let ends = self.links_from(switch).map(|link| self.substrate.network.link(link).to);
            let hosts = ends.filter(|end| self.tiers[end.index()] == 0);
            let mut set: Vec<VertexId> = hosts.chain([switch]).collect();
            set.sort_unstable();
            set.dedup();
            set
        });
        around.collect()
    }
}

fn halves(substrate: &Substrate, usable: &Usable<'_>) -> Vec<Vec<VertexId>> {
    if let Some(grid) = &substrate.grid {
        let halves = (0..grid.sides.len()).map(|dimension| {
            let rings = grid.rings(dimension);
            let first = rings.iter().flat_map(|ring| &ring[..ring.len() / 2]);
            let mut half: Vec<VertexId> = first.map(|place| grid.hosts[*place]).collect();
            half.sort_unstable();
            half
        });
        return halves.collect();
    }
    if usable.tiers.iter().any(|tier| *tier != 0 && *tier != u32::MAX) {
        return Vec::new();
    }
    let mut half = substrate.hosts[..substrate.hosts.len() / 2].to_vec();
    half.sort_unstable();
    vec![half]
}
