// SPDX-License-Identifier: Apache-2.0
//! Ways through the network: equal-cost shortest paths, or ways from group to group, one picked for each flow by a
//! seeded hash.
//!
//! Distances to a destination are computed once, when a flow first needs them, and kept until a
//! link changes state. Hosts behind one switch share the distances of that switch.

mod striped;

use std::collections::VecDeque;
use std::sync::Arc;

use lightloom_units::seed::Seed;
use rand::Rng;
use rustc_hash::FxHashMap;

use super::groups::{Crossing, VertexGroups};
use super::marking::mix;
use super::network::{Link, LinkId, Network, Plane, VertexId};

/// How a flow finds its way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Route {
    /// One of the shortest paths, picked by the flow's hash (ECMP per flow).
    #[default]
    Shortest,
    /// One of the shortest paths that stay in one plane.
    Within(Plane),
    /// Exactly these links, in order. They may be down.
    Links(Vec<LinkId>),
    /// From group to group over cables that join them, and over shortest paths inside; the shortest path where
    /// that does not lead on.
    Across(Arc<VertexGroups>, Crossing),
}

impl Route {
    /// The plane of the shortest paths that the flow goes by, `None` for any; nothing if it goes otherwise.
    fn plane(&self) -> Option<Option<Plane>> {
        match self {
            Self::Shortest => Some(None),
            Self::Within(plane) => Some(Some(*plane)),
            Self::Links(_) | Self::Across(..) => None,
        }
    }
}

/// Why a flow has no way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// No path over links that are up.
    #[error("no path from vertex {} to vertex {} over links that are up", from.0, to.0)]
    Unreachable {
        /// Where the flow begins.
        from: VertexId,
        /// Where it should end.
        to: VertexId,
    },
    /// The links given do not lead from source to destination.
    #[error("link {} does not continue the path at vertex {}", link.0, at.0)]
    Broken {
        /// The link that does not fit.
        link: LinkId,
        /// Where the path had come to.
        at: VertexId,
    },
}

/// What tells a flow's paths from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowName {
    pub(crate) ends: (VertexId, VertexId),
    number: u32,
}

impl FlowName {
    /// What the flow's own draws begin with.
    pub(crate) fn salt(self) -> u64 {
        let ends = u64::from(self.ends.0.0) << 32 | u64::from(self.ends.1.0);
        mix(mix(ends).wrapping_add(u64::from(self.number)))
    }
}

/// Where a packet may choose among several links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The vertex that chooses.
    pub at: VertexId,
    /// What it chooses from.
    pub links: Vec<LinkId>,
    /// What draws between equal backlogs begin with.
    pub salt: u32,
}

const FAR: u16 = u16::MAX;

/// Ways through groups that are tried before a flow goes by the shortest path: not all lead on when something is
/// down.
const ATTEMPTS: usize = 8;

/// Finds routes over the links that are up.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    seed: Seed,
    up: Vec<bool>,
    flows_between: FxHashMap<(VertexId, VertexId), u32>,
    /// Hops to a vertex within a plane (or any), by vertex.
    distances: FxHashMap<(VertexId, Option<Plane>), Vec<u16>>,
}

impl Router {
    pub(crate) fn new(seed: Seed, links: usize) -> Self {
        Self {
            seed,
            up: vec![true; links],
            flows_between: FxHashMap::default(),
            distances: FxHashMap::default(),
        }
    }

    pub(crate) fn is_up(&self, link: LinkId) -> bool {
        self.up[link.index()]
    }

    pub(crate) fn set_up(&mut self, link: LinkId, up: bool) {
        if self.up[link.index()] != up {
            self.up[link.index()] = up;
            self.distances.clear();
        }
    }

    /// What a new flow's paths are picked by: its ends and how many flows they had before. So the
    /// flows of others, added or left out, do not move it to another path.
    pub(crate) fn name_flow(&mut self, ends: (VertexId, VertexId)) -> FlowName {
        let before = self.flows_between.entry(ends).or_default();
        let name = FlowName { ends, number: *before };
        *before += 1;
        name
    }

    /// Paths for the flow of this name, all beginning with the same link: all shortest ones, in an order drawn for the
    /// flow, if there are no more than `count`; otherwise so many drawn, possibly with repetitions.
    pub(crate) fn find(
        &mut self,
        network: &Network,
        name: FlowName,
        route: &Route,
        count: u16,
    ) -> Result<Vec<Vec<LinkId>>, RouteError> {
        let (from, to) = name.ends;
        let draw_path = |router: &mut Self, draw| match route {
            Route::Links(links) => follow(network, from, to, links),
            Route::Shortest => router.shortest(network, name, None, draw),
            Route::Within(plane) => router.shortest(network, name, Some(*plane), draw),
            Route::Across(groups, crossing) => {
                router.across(network, name, (groups, *crossing), draw)
            }
        };
        let count = if matches!(route, Route::Links(_)) { 1 } else { count };
        let mut paths = vec![draw_path(self, 0)?];
        if count > 1
            && let Some(plane) = route.plane()
            && let Some(all) = self.all_shortest(network, (name, plane), paths[0][0], count)
        {
            return Ok(all);
        }
        for draw in 1..count {
            let path = draw_path(self, draw)?;
            if path[0] == paths[0][0] {
                paths.push(path);
            }
        }
        Ok(paths)
    }

    fn shortest(
        &mut self,
        network: &Network,
        name: FlowName,
        plane: Option<Plane>,
        draw: u16,
    ) -> Result<Vec<LinkId>, RouteError> {
        let mut draws = self.draws(name, "flow", draw);
        self.leg(network, name.ends, plane, &mut draws)
    }

    /// All shortest paths that begin with `first`, in an order drawn for the flow; nothing if they are more than
    /// `most`.
    fn all_shortest(
        &mut self,
        network: &Network,
        (name, plane): (FlowName, Option<Plane>),
        first: LinkId,
        most: u16,
    ) -> Option<Vec<Vec<LinkId>>> {
        let to = name.ends.1;
        let root = self.root_of(network, to, plane);
        self.measure(network, root, plane);
        let (mut done, mut open) = (Vec::new(), vec![vec![first]]);
        while let Some(path) = open.pop() {
            let at = network.link(path[path.len() - 1]).to;
            if at == to {
                done.push(path);
                continue;
            }
            let links = self.leading_on(network, at, (root, to), plane);
            open.extend(links.iter().map(|link| [&path[..], &[*link]].concat()));
            if done.len() + open.len() > usize::from(most) {
                return None;
            }
        }
        let mut draw = self.draws(name, "order", 0);
        for last in (1..done.len()).rev() {
            done.swap(last, (draw.next_u64() % (last as u64 + 1)) as usize);
        }
        (!done.is_empty()).then_some(done)
    }

    /// What the `draw`th path of a flow is drawn from.
    fn draws(&self, name: FlowName, what: &str, draw: u16) -> impl Rng + use<> {
        let ends = u64::from(name.ends.0.0) << 32 | u64::from(name.ends.1.0);
        Seed(self.seed.stream("ecmp", ends).next_u64())
            .stream(what, u64::from(name.number) << 16 | u64::from(draw))
    }

    /// A path from group to group.
    fn across(
        &mut self,
        network: &Network,
        name: FlowName,
        (groups, crossing): (&VertexGroups, Crossing),
        draw: u16,
    ) -> Result<Vec<LinkId>, RouteError> {
        let mut draws = self.draws(name, "across", draw);
        for _ in 0..ATTEMPTS {
            let way = groups.way(name.ends, crossing, &mut draws);
            if let Some(path) = self.along(network, name.ends, (groups, &way), &mut draws) {
                return Ok(path);
            }
        }
        self.shortest(network, name, None, draw)
    }

    /// A path through these groups; nothing if one of them cannot be left for the next.
    fn along(
        &mut self,
        network: &Network,
        (from, to): (VertexId, VertexId),
        (groups, way): (&VertexGroups, &[u32]),
        draws: &mut impl Rng,
    ) -> Option<Vec<LinkId>> {
        let (mut path, mut at) = (Vec::new(), from);
        for pair in way.windows(2) {
            let cables = groups.between(pair[0], pair[1]).iter().copied();
            let up: Vec<LinkId> = cables.filter(|cable| self.is_up(*cable)).collect();
            let cable = *up.get((draws.next_u64() % up.len().max(1) as u64) as usize)?;
            let ends = network.link(cable);
            if ends.from != at {
                path.extend(self.leg(network, (at, ends.from), None, draws).ok()?);
            }
            path.push(cable);
            at = ends.to;
        }
        path.extend(self.leg(network, (at, to), None, draws).ok()?);
        Some(path)
    }

    /// One of the shortest paths between two vertices.
    fn leg(
        &mut self,
        network: &Network,
        (from, to): (VertexId, VertexId),
        plane: Option<Plane>,
        draw: &mut impl Rng,
    ) -> Result<Vec<LinkId>, RouteError> {
        let unreachable = RouteError::Unreachable { from, to };
        let mut pick = |links: &[LinkId]| links[(draw.next_u64() % links.len() as u64) as usize];
        let direct = self.usable(network, from, plane, |next| next == to);
        if !direct.is_empty() {
            return Ok(vec![pick(&direct)]);
        }
        let root = self.root_of(network, to, plane);
        self.measure(network, root, plane);
        let mut path = Vec::new();
        let mut at = from;
        while at != root {
            let links = self.leading_on(network, at, (root, to), plane);
            if links.is_empty() || self.distances[&(root, plane)][at.index()] == FAR {
                return Err(unreachable);
            }
            path.push(pick(&links));
            at = network.link(path[path.len() - 1]).to;
        }
        if root != to {
            path.push(pick(&self.leading_on(network, root, (root, to), plane)));
        }
        Ok(path)
    }

    /// Where packets of the flow of this name may choose, farthest first: each vertex on a shortest path after
    /// the first link of `path`, with the links that lead on. Nothing where
    /// there is nothing to choose from.
    pub(crate) fn choices(
        &mut self,
        network: &Network,
        name: FlowName,
        (route, path): (&Route, &[LinkId]),
    ) -> Vec<Choice> {
        let plane = match route {
            Route::Links(_) | Route::Across(..) => return Vec::new(),
            Route::Shortest => None,
            Route::Within(plane) => Some(*plane),
        };
        let to = name.ends.1;
        let root = self.root_of(network, to, plane);
        self.measure(network, root, plane);
        let ends = u64::from(name.ends.0.0) << 32 | u64::from(to.0);
        let mut draw = Seed(self.seed.stream("ecmp", ends).next_u64())
            .stream("choices", u64::from(name.number));
        let mut choices: Vec<Choice> = Vec::new();
        let mut next = VecDeque::from([network.link(path[0]).to]);
        while let Some(at) = next.pop_front() {
            if at == to || choices.iter().any(|choice| choice.at == at) {
                continue;
            }
            let links = self.leading_on(network, at, (root, to), plane);
            next.extend(links.iter().map(|link| network.link(*link).to));
            choices.push(Choice { at, links, salt: (draw.next_u64() >> 32) as u32 });
        }
        choices
    }

    /// The links from `at` on shortest paths by way of `root`, whose distances are known.
    fn leading_on(
        &self,
        network: &Network,
        at: VertexId,
        (root, to): (VertexId, VertexId),
        plane: Option<Plane>,
    ) -> Vec<LinkId> {
        if at == root {
            return self.usable(network, at, plane, |next| next == to);
        }
        let distances = &self.distances[&(root, plane)];
        let here = distances[at.index()];
        self.usable(network, at, plane, |next| {
            let there = distances[next.index()];
            there < here
                && (there == 0 || network.role(next).forwards())
                && (here == FAR || there + 1 == here)
        })
    }

    fn usable(
        &self,
        network: &Network,
        at: VertexId,
        plane: Option<Plane>,
        wanted: impl Fn(VertexId) -> bool,
    ) -> Vec<LinkId> {
        let allowed = |link: &LinkId| {
            let Link { to, spec, .. } = network.link(*link);
            self.is_up(*link) && plane.is_none_or(|plane| spec.plane == plane) && wanted(*to)
        };
        network.outgoing(at).iter().copied().filter(allowed).collect()
    }

    /// The vertex whose distances serve for `to`: the only switch before it, if there is one.
    fn root_of(&self, network: &Network, to: VertexId, plane: Option<Plane>) -> VertexId {
        // A host beside it sends straight, and nothing else comes through a host that does not forward.
        let entering = network.outgoing(to).iter().map(|link| link.reverse()).filter(|link| {
            let Link { from, spec, .. } = network.link(*link);
            self.is_up(*link)
                && plane.is_none_or(|plane| spec.plane == plane)
                && network.role(*from).forwards()
        });
        let mut before = entering.map(|link| network.link(link).from);
        let Some(first) = before.next() else { return to };
        if before.all(|vertex| vertex == first) { first } else { to }
    }

    /// Breadth-first search backwards from `root`.
    fn measure(&mut self, network: &Network, root: VertexId, plane: Option<Plane>) {
        if self.distances.contains_key(&(root, plane)) {
            return;
        }
        let mut distances = vec![FAR; network.vertex_count()];
        distances[root.index()] = 0;
        let mut frontier = VecDeque::from([root]);
        while let Some(vertex) = frontier.pop_front() {
            for entering in network.outgoing(vertex).iter().map(|link| link.reverse()) {
                let link = network.link(entering);
                let in_plane = plane.is_none_or(|plane| link.spec.plane == plane);
                if !self.is_up(entering) || !in_plane || distances[link.from.index()] != FAR {
                    continue;
                }
                distances[link.from.index()] = distances[vertex.index()] + 1;
                if network.role(link.from).forwards() {
                    frontier.push_back(link.from);
                }
            }
        }
        self.distances.insert((root, plane), distances);
    }
}

/// Checks that `links` lead from `from` to `to`.
fn follow(
    network: &Network,
    from: VertexId,
    to: VertexId,
    links: &[LinkId],
) -> Result<Vec<LinkId>, RouteError> {
    let mut at = from;
    for &link in links {
        if network.link(link).from != at {
            return Err(RouteError::Broken { link, at });
        }
        at = network.link(link).to;
    }
    if at == to && !links.is_empty() {
        Ok(links.to_vec())
    } else {
        Err(RouteError::Unreachable { from, to })
    }
}
