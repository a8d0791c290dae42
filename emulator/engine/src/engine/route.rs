// SPDX-License-Identifier: Apache-2.0
//! Routes: equal-cost shortest paths or routes between groups, selected per flow by a seeded hash.
//!
//! Distances are computed when first needed and cached until a link changes. Hosts behind one switch share them.

mod hops;
mod paths;
mod striped;
mod towards;

use std::collections::VecDeque;

use lightloom_units::seed::{Seed, Stream};
use rand::Rng;
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use self::hops::HopMap;
pub use self::paths::Paths;
use self::towards::{Towards, UsableLinks};
use super::marking::mix;
use super::network::{LinkId, Network, Plane, VertexId};
use super::packet::MOST_CURSORS;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Route {
    #[default]
    Shortest,
    Within(Plane),
    /// Exactly these links, in order, even if they are down.
    Links(Vec<LinkId>),
}

impl Route {
    pub(crate) fn plane(&self) -> Option<Option<Plane>> {
        match self {
            Self::Shortest => Some(None),
            Self::Within(plane) => Some(Some(*plane)),
            Self::Links(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    #[error("no path from vertex {} to vertex {} over links that are up", from.0, to.0)]
    Unreachable { from: VertexId, to: VertexId },
    #[error("link {} does not continue the path at vertex {}", link.0, at.0)]
    Broken { link: LinkId, at: VertexId },
    #[error(
        "the paths of all flows take {words} words of the route table, but it holds only \
         {MOST_CURSORS}: use fewer paths per flow"
    )]
    TableFull { words: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FlowEnds {
    pub(crate) from: VertexId,
    pub(crate) to: VertexId,
}

impl FlowEnds {
    fn unreachable(self) -> RouteError {
        RouteError::Unreachable { from: self.from, to: self.to }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowName {
    pub(crate) ends: FlowEnds,
    number: u32,
}

impl FlowName {
    pub(crate) fn back(self) -> Self {
        Self { ends: FlowEnds { from: self.ends.to, to: self.ends.from }, ..self }
    }

    pub(crate) fn salt(self) -> u64 {
        let ends = u64::from(self.ends.from.0) << 32 | u64::from(self.ends.to.0);
        mix(mix(ends).wrapping_add(u64::from(self.number)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub at: VertexId,
    pub links: Vec<LinkId>,
    pub salt: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedPaths {
    /// If there are no more shortest paths than this and they are not hashed, all are used.
    pub(crate) count: u16,
    /// Whether to draw each path at random from all shortest paths, as per-switch ECMP hashing would.
    pub(crate) hashed: bool,
}

impl WantedPaths {
    pub(crate) const ONE: Self = Self { count: 1, hashed: false };
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Router {
    seed: Seed,
    up: Vec<bool>,
    flows_between: FxHashMap<FlowEnds, u32>,
    maps: FxHashMap<Option<Plane>, HopMap>,
    no_map: HopMap,
    ahead: VecDeque<(FlowName, Result<Paths, RouteError>)>,
}

impl Router {
    pub(crate) fn new(seed: Seed, links: usize) -> Self {
        Self { seed, up: vec![true; links], ..Self::default() }
    }

    pub(crate) fn is_up(&self, link: LinkId) -> bool {
        self.up[link.index()]
    }

    pub(crate) fn set_up(&mut self, link: LinkId, up: bool) {
        if self.up[link.index()] != up {
            self.up[link.index()] = up;
            self.maps.clear();
            self.ahead.clear();
        }
    }

    /// The next flows are others than those whose paths were found ahead.
    pub(crate) fn forget_paths_ahead(&mut self) {
        self.ahead.clear();
    }

    pub(crate) fn name_flow(&mut self, ends: FlowEnds) -> FlowName {
        let before = self.flows_between.entry(ends).or_default();
        let name = FlowName { ends, number: *before };
        *before += 1;
        name
    }

    /// Returns paths that share their first link. If there are no more shortest paths than wanted and they are not
    /// hashed, returns all of them in random order; otherwise draws the wanted number with repetition.
    pub(crate) fn find(
        &mut self,
        network: &Network,
        name: FlowName,
        route: &Route,
        wanted: WantedPaths,
    ) -> Result<Paths, RouteError> {
        if self.ahead.front().is_some_and(|(ahead, _)| *ahead == name)
            && let Some((_, paths)) = self.ahead.pop_front()
        {
            return paths;
        }
        if let Some(plane) = route.plane() {
            self.measure(network, name.ends, plane);
        }
        self.find_measured(network, name, route, wanted)
    }

    /// Finds the paths of the next flows, in this order, on several threads. [`find`](Self::find) then returns them.
    pub(crate) fn find_ahead(
        &mut self,
        network: &Network,
        flows: &[(FlowEnds, &Route)],
        wanted: WantedPaths,
    ) {
        let mut between: FxHashMap<FlowEnds, u32> = FxHashMap::default();
        let mut named = Vec::with_capacity(flows.len());
        for &(ends, route) in flows {
            if let Some(plane) = route.plane() {
                self.measure(network, ends, plane);
            }
            let earlier = self.flows_between.get(&ends).copied().unwrap_or_default();
            let number = between.entry(ends).or_insert(earlier);
            named.push((FlowName { ends, number: *number }, route));
            *number += 1;
        }
        let find = |(name, route)| (name, self.find_measured(network, name, route, wanted));
        self.ahead = named.into_par_iter().map(find).collect();
    }

    fn find_measured(
        &self,
        network: &Network,
        name: FlowName,
        route: &Route,
        wanted: WantedPaths,
    ) -> Result<Paths, RouteError> {
        if let Route::Links(links) = route {
            return Ok(Paths::one(follow(network, name.ends, links)?));
        }
        let draws = self.flow_draws(name);
        let towards = self.measured(network, name.ends, route.plane().flatten());
        draws.find(&towards, name.ends.from, wanted).ok_or(name.ends.unreachable())
    }

    fn flow_draws(&self, name: FlowName) -> FlowDraws {
        let ends = u64::from(name.ends.from.0) << 32 | u64::from(name.ends.to.0);
        FlowDraws { seed: Seed(self.seed.stream("ecmp", ends).next_u64()), number: name.number }
    }

    fn towards<'r>(
        &'r mut self,
        network: &'r Network,
        ends: FlowEnds,
        plane: Option<Plane>,
    ) -> Towards<'r> {
        self.measure(network, ends, plane);
        self.measured(network, ends, plane)
    }

    fn measure(
        &mut self,
        network: &Network,
        FlowEnds { from, to }: FlowEnds,
        plane: Option<Plane>,
    ) {
        let up = &self.up[..];
        let links = UsableLinks { network, up, plane };
        if !links.lead(from, to) {
            let map = self.maps.entry(plane).or_insert_with(|| HopMap::new(network, plane, up));
            map.measure(network, links.root_of(to), || links.before(to));
        }
    }

    fn measured<'r>(
        &'r self,
        network: &'r Network,
        FlowEnds { from, to }: FlowEnds,
        plane: Option<Plane>,
    ) -> Towards<'r> {
        let links = UsableLinks { network, up: &self.up, plane };
        if links.lead(from, to) {
            return Towards::new(links, &self.no_map, to, to);
        }
        Towards::new(links, &self.maps[&plane], links.root_of(to), to)
    }

    /// Returns the vertices on shortest paths behind the `first` link at which a flow's packets may choose between
    /// links, with their next links, in breadth-first order. Empty if there is no choice.
    pub(crate) fn choices(
        &mut self,
        network: &Network,
        name: FlowName,
        route: &Route,
        first: LinkId,
    ) -> Vec<Choice> {
        let Some(plane) = route.plane() else { return Vec::new() };
        let to = name.ends.to;
        let mut draw = self.flow_draws(name).all("choices");
        let towards = self.towards(network, name.ends, plane);
        let mut choices: Vec<Choice> = Vec::new();
        let mut next = VecDeque::from([network.link(first).to]);
        while let Some(at) = next.pop_front() {
            if at == to || choices.iter().any(|choice| choice.at == at) {
                continue;
            }
            let links = towards.leading_on(at);
            next.extend(links.iter().map(|link| network.link(*link).to));
            choices.push(Choice { at, links, salt: (draw.next_u64() >> 32) as u32 });
        }
        choices
    }
}

#[derive(Clone, Copy)]
struct FlowDraws {
    seed: Seed,
    number: u32,
}

impl FlowDraws {
    fn of(self, what: &str, draw: u16) -> Stream {
        self.seed.stream(what, u64::from(self.number) << 16 | u64::from(draw))
    }

    fn all(self, what: &str) -> Stream {
        self.seed.stream(what, self.number.into())
    }

    fn find(
        self,
        towards: &Towards<'_>,
        from: VertexId,
        WantedPaths { count, hashed }: WantedPaths,
    ) -> Option<Paths> {
        let first = towards.begin(from);
        if count == 1 {
            return towards.draw(&[], &first, [self.of("flow", 0)].into_iter());
        }
        // The host has selected the interface; switches hash over the remaining hops.
        let first = towards::pick(&mut self.of("flow", 0), &first)?;
        let all = if hashed { None } else { towards.all(first, count.into()) };
        if let Some(all) = all {
            return Some(self.in_drawn_order(&all));
        }
        towards.draw(&[], &[first], (0..count).map(|draw| self.of("flow", draw)))
    }

    fn in_drawn_order(self, paths: &Paths) -> Paths {
        let mut order: Vec<usize> = (0..paths.len()).collect();
        let mut draw = self.of("order", 0);
        for last in (1..order.len()).rev() {
            order.swap(last, (draw.next_u64() % (last as u64 + 1)) as usize);
        }
        let mut ordered = Paths::with_room(paths.len(), paths.links().len() / paths.len().max(1));
        order.iter().for_each(|place| ordered.push(&paths[*place]));
        ordered
    }
}

fn follow<'l>(
    network: &Network,
    ends: FlowEnds,
    links: &'l [LinkId],
) -> Result<&'l [LinkId], RouteError> {
    let mut at = ends.from;
    for &link in links {
        if network.link(link).from != at {
            return Err(RouteError::Broken { link, at });
        }
        at = network.link(link).to;
    }
    if at == ends.to && !links.is_empty() { Ok(links) } else { Err(ends.unreachable()) }
}

#[cfg(test)]
mod tests {
    use lightloom_units::{BitsPerSecond, Picoseconds};

    use super::*;
    use crate::engine::network::{LinkSpec, NetworkBuilder, VertexRole};
    use crate::topology::FatTree;

    /// Regression test: with 131,072 GPUs on rings, distances to every GPU took 24 GB.
    #[test]
    fn routes_to_neighbours_need_no_distance_maps() {
        let spec = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1));
        let mut builder = NetworkBuilder::new();
        let ring: Vec<VertexId> = (0..9).map(|_| builder.add(VertexRole::ForwardingHost)).collect();
        for place in 0..ring.len() {
            builder.connect(ring[place], ring[(place + 1) % ring.len()], spec);
        }
        let network = builder.build().unwrap();
        let mut router = Router::new(Seed(1), network.links().len());
        for two in ring.windows(2) {
            let name = router.name_flow(FlowEnds { from: two[0], to: two[1] });
            for count in [1, 4] {
                let wanted = WantedPaths { count, hashed: false };
                let paths = router.find(&network, name, &Route::Shortest, wanted).unwrap();
                assert_eq!((paths.len(), paths[0].len()), (1, 1));
            }
        }
        assert!(router.maps.is_empty());
        let name = router.name_flow(FlowEnds { from: ring[0], to: ring[2] });
        let one = router.find(&network, name, &Route::Shortest, WantedPaths::ONE).unwrap();
        assert_eq!(one[0].len(), 2);
        assert_eq!(router.maps.len(), 1);
    }

    /// Paths drawn over the other interface used to be dropped, so a flow got fewer paths than wanted.
    #[test]
    fn flow_of_a_host_with_two_interfaces_gets_all_wanted_paths() {
        let spec = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1));
        let mut builder = NetworkBuilder::new();
        let [from, to] = [0; 2].map(|_| builder.add(VertexRole::Host));
        let [left, right, last] = [0; 3].map(|_| builder.add(VertexRole::Switch));
        for leaf in [left, right] {
            builder.connect(from, leaf, spec);
        }
        for _ in 0..4 {
            let spine = builder.add(VertexRole::Switch);
            for leaf in [left, right, last] {
                builder.connect(leaf, spine, spec);
            }
        }
        builder.connect(last, to, spec);
        let network = builder.build().unwrap();
        let mut router = Router::new(Seed(1), network.links().len());
        for _ in 0..20 {
            let name = router.name_flow(FlowEnds { from, to });
            let wanted = WantedPaths { count: 3, hashed: false };
            let paths = router.find(&network, name, &Route::Shortest, wanted).unwrap();
            assert_eq!(paths.len(), 3);
            assert!(paths.iter().all(|path| path[0] == paths[0][0]));
        }
    }

    #[test]
    fn finding_paths_ahead_does_not_change_them() {
        let spec = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1));
        let mut builder = NetworkBuilder::new();
        let hosts = FatTree::full(4, spec).build_into(&mut builder);
        let network = builder.build().unwrap();
        let new = || Router::new(Seed(1), network.links().len());
        let (mut ahead, mut alone) = (new(), new());
        let wanted = WantedPaths { count: 3, hashed: true };
        let uplink = network.outgoing(hosts[0])[0];
        for round in 0..4 {
            let ends = |to: usize| FlowEnds { from: hosts[0], to: hosts[to] };
            let flows = [2, 9, 9, 1].map(|to| (ends(to), &Route::Shortest));
            ahead.find_ahead(&network, &flows, wanted);
            // Paths found before a link fails are not used after it.
            let is_up = round != 2;
            ahead.set_up(uplink, is_up);
            alone.set_up(uplink, is_up);
            for (ends, route) in flows {
                let [found, expected] = [&mut ahead, &mut alone].map(|router| {
                    let name = router.name_flow(ends);
                    router.find(&network, name, route, wanted)
                });
                assert_eq!(found, expected);
                assert_eq!(found.is_ok(), is_up);
            }
        }
    }
}
