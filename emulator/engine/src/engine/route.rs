// SPDX-License-Identifier: Apache-2.0
//! Ways through the network: equal-cost shortest paths, or ways from group to group, one picked for each flow by a
//! seeded hash.
//!
//! Distances to a destination are computed once, when a flow first needs them, and kept until a
//! link changes state. Hosts behind one switch share the distances of that switch.

mod hops;
mod paths;
mod striped;
mod towards;

use std::collections::VecDeque;
use std::sync::Arc;

use lightloom_units::seed::{Seed, Stream};
use rand::Rng;
use rustc_hash::FxHashMap;

use self::hops::HopMap;
pub use self::paths::Paths;
use self::towards::{NoPath, Towards, UsableLinks};
use super::groups::{Crossing, VertexGroups};
use super::marking::mix;
use super::network::{LinkId, Network, Plane, VertexId};
use super::packet::MOST_CURSORS;

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
    pub(crate) fn plane(&self) -> Option<Option<Plane>> {
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
    /// The route table is too small for the paths of all flows.
    #[error(
        "the paths of all flows take {words} words of the route table, which holds {MOST_CURSORS}: draw fewer paths for each"
    )]
    TableFull {
        /// Required words.
        words: u64,
    },
}

/// What tells a flow's paths from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowName {
    pub(crate) ends: (VertexId, VertexId),
    number: u32,
}

impl FlowName {
    /// The name of what goes the other way.
    pub(crate) fn back(self) -> Self {
        Self { ends: (self.ends.1, self.ends.0), ..self }
    }

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

/// Number and selection of a flow's paths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedPaths {
    /// All shortest paths if there are no more than this and they are not hashed.
    pub(crate) count: u16,
    /// Draws each path from all, like a hash at each switch.
    pub(crate) hashed: bool,
}

impl WantedPaths {
    pub(crate) const ONE: Self = Self { count: 1, hashed: false };
}

/// Ways through groups that are tried before a flow goes by the shortest path: not all lead on when something is
/// down.
const ATTEMPTS: usize = 8;

/// Finds routes over the links that are up.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    seed: Seed,
    up: Vec<bool>,
    flows_between: FxHashMap<(VertexId, VertexId), u32>,
    /// Distances within a plane (or any).
    maps: FxHashMap<Option<Plane>, HopMap>,
    /// For ends that a link joins: nothing has to be known.
    no_map: HopMap,
}

impl Router {
    pub(crate) fn new(seed: Seed, links: usize) -> Self {
        Self {
            seed,
            up: vec![true; links],
            flows_between: FxHashMap::default(),
            maps: FxHashMap::default(),
            no_map: HopMap::default(),
        }
    }

    pub(crate) fn is_up(&self, link: LinkId) -> bool {
        self.up[link.index()]
    }

    pub(crate) fn set_up(&mut self, link: LinkId, up: bool) {
        if self.up[link.index()] != up {
            self.up[link.index()] = up;
            self.maps.clear();
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
    /// flow, if there are no more than wanted and they are not hashed; otherwise so many drawn, possibly with repetitions.
    pub(crate) fn find(
        &mut self,
        network: &Network,
        name: FlowName,
        route: &Route,
        WantedPaths { count, hashed }: WantedPaths,
    ) -> Result<Paths, RouteError> {
        let (from, to) = name.ends;
        let draws = self.flow_draws(name);
        match route {
            Route::Links(links) => Ok(Paths::one(follow(network, from, to, links)?)),
            Route::Across(groups, crossing) => {
                let groups = (&**groups, *crossing);
                drawn(count, |draw, path| self.across(network, name, groups, draw, path))
            }
            Route::Shortest | Route::Within(_) => {
                let towards = self.towards(network, name.ends, route.plane().flatten());
                let first = towards.begin(from);
                let mut steps = Vec::new();
                let mut shortest = |first: &[LinkId], draw, path: &mut Vec<LinkId>| {
                    let mut draws = draws.of("flow", draw);
                    let drawn = towards.draw(first, &mut draws, (path, &mut steps));
                    drawn.map_err(|NoPath| RouteError::Unreachable { from, to })
                };
                let one = drawn(1, |draw, path| shortest(&first, draw, path))?;
                if count == 1 {
                    return Ok(one);
                }
                if hashed {
                    // The host has chosen the interface; switches hash the rest.
                    let first = [one[0][0]];
                    return drawn(count, |draw, path| shortest(&first, draw, path));
                }
                match towards.all(one[0][0], count.into()) {
                    Some(all) => Ok(draws.in_drawn_order(&all)),
                    None => drawn(count, |draw, path| shortest(&first, draw, path)),
                }
            }
        }
    }

    /// What the paths of a flow are drawn from.
    fn flow_draws(&self, name: FlowName) -> FlowDraws {
        let ends = u64::from(name.ends.0.0) << 32 | u64::from(name.ends.1.0);
        FlowDraws { seed: Seed(self.seed.stream("ecmp", ends).next_u64()), number: name.number }
    }

    /// Shortest paths from one vertex to another.
    fn towards<'r>(
        &'r mut self,
        network: &'r Network,
        (from, to): (VertexId, VertexId),
        plane: Option<Plane>,
    ) -> Towards<'r> {
        let up = &self.up[..];
        let links = UsableLinks { network, up, plane };
        if links.lead(from, to) {
            return Towards::new(links, &self.no_map, (to, to));
        }
        let map = self.maps.entry(plane).or_insert_with(|| HopMap::new(network, plane, up));
        let root = links.root_of(to);
        map.measure(network, root, || links.before(to));
        Towards::new(links, map, (root, to))
    }

    /// A path from group to group.
    fn across(
        &mut self,
        network: &Network,
        name: FlowName,
        (groups, crossing): (&VertexGroups, Crossing),
        draw: u16,
        path: &mut Vec<LinkId>,
    ) -> Result<(), RouteError> {
        let (begin, draws) = (path.len(), self.flow_draws(name));
        let mut way = draws.of("across", draw);
        for _ in 0..ATTEMPTS {
            let through = groups.way(name.ends, crossing, &mut way);
            if self.along(network, name.ends, (groups, &through), &mut way, path).is_some() {
                return Ok(());
            }
            path.truncate(begin);
        }
        self.leg(network, name.ends, &mut draws.of("flow", draw), path)
    }

    /// Appends a path through these groups; nothing if one of them cannot be left for the next.
    fn along(
        &mut self,
        network: &Network,
        (from, to): (VertexId, VertexId),
        (groups, way): (&VertexGroups, &[u32]),
        draws: &mut Stream,
        path: &mut Vec<LinkId>,
    ) -> Option<()> {
        let mut at = from;
        for pair in way.windows(2) {
            let cables = groups.between(pair[0], pair[1]).iter().copied();
            let up: Vec<LinkId> = cables.filter(|cable| self.is_up(*cable)).collect();
            let cable = *up.get((draws.next_u64() % up.len().max(1) as u64) as usize)?;
            let ends = network.link(cable);
            if ends.from != at {
                self.leg(network, (at, ends.from), draws, path).ok()?;
            }
            path.push(cable);
            at = ends.to;
        }
        self.leg(network, (at, to), draws, path).ok()
    }

    /// Appends one of the shortest paths between two vertices.
    fn leg(
        &mut self,
        network: &Network,
        (from, to): (VertexId, VertexId),
        draws: &mut Stream,
        path: &mut Vec<LinkId>,
    ) -> Result<(), RouteError> {
        let towards = self.towards(network, (from, to), None);
        let drawn = towards.draw(&towards.begin(from), draws, (path, &mut Vec::new()));
        drawn.map_err(|NoPath| RouteError::Unreachable { from, to })
    }

    /// Where packets of the flow of this name may choose, farthest first: each vertex on a shortest path after
    /// its `first` link, with the links that lead on. Nothing where there is nothing to choose from.
    pub(crate) fn choices(
        &mut self,
        network: &Network,
        name: FlowName,
        (route, first): (&Route, LinkId),
    ) -> Vec<Choice> {
        let Some(plane) = route.plane() else { return Vec::new() };
        let to = name.ends.1;
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

/// What the paths of one flow are drawn from.
#[derive(Clone, Copy)]
struct FlowDraws {
    seed: Seed,
    number: u32,
}

impl FlowDraws {
    /// For the `draw`th path.
    fn of(self, what: &str, draw: u16) -> Stream {
        self.seed.stream(what, u64::from(self.number) << 16 | u64::from(draw))
    }

    /// For the flow as a whole.
    fn all(self, what: &str) -> Stream {
        self.seed.stream(what, self.number.into())
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

/// So many paths, of which those count that begin as the first does.
fn drawn(
    count: u16,
    mut draw: impl FnMut(u16, &mut Vec<LinkId>) -> Result<(), RouteError>,
) -> Result<Paths, RouteError> {
    let mut path = Vec::new();
    draw(0, &mut path)?;
    let mut paths = Paths::with_room(count.into(), path.len());
    paths.push(&path);
    for number in 1..count {
        path.clear();
        draw(number, &mut path)?;
        if path[0] == paths[0][0] {
            paths.push(&path);
        }
    }
    Ok(paths)
}

/// Checks that `links` lead from `from` to `to`.
fn follow<'l>(
    network: &Network,
    from: VertexId,
    to: VertexId,
    links: &'l [LinkId],
) -> Result<&'l [LinkId], RouteError> {
    let mut at = from;
    for &link in links {
        if network.link(link).from != at {
            return Err(RouteError::Broken { link, at });
        }
        at = network.link(link).to;
    }
    if at == to && !links.is_empty() {
        Ok(links)
    } else {
        Err(RouteError::Unreachable { from, to })
    }
}

#[cfg(test)]
mod tests {
    use lightloom_units::{BitsPerSecond, Picoseconds};

    use super::*;
    use crate::engine::network::{LinkSpec, NetworkBuilder, VertexRole};

    /// 131,072 GPUs on rings took 24 GB: distances to each of them, though each sends to the one beside it.
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
            let name = router.name_flow((two[0], two[1]));
            for count in [1, 4] {
                let wanted = WantedPaths { count, hashed: false };
                let paths = router.find(&network, name, &Route::Shortest, wanted).unwrap();
                assert_eq!((paths.len(), paths[0].len()), (1, 1));
            }
        }
        assert!(router.maps.is_empty());
        let name = router.name_flow((ring[0], ring[2]));
        let one = router.find(&network, name, &Route::Shortest, WantedPaths::ONE).unwrap();
        assert_eq!(one[0].len(), 2);
        assert_eq!(router.maps.len(), 1);
    }
}
