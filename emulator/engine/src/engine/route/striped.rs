// SPDX-License-Identifier: Apache-2.0
//! Paths by every interface of the sending host.

use super::{FAR, FlowName, Network, Plane, Route, RouteError, Router};
use crate::engine::network::{LinkId, VertexId};

/// A first link, and the plane in which the paths behind it are looked for.
type First = (LinkId, Option<Plane>);

impl Router {
    /// Paths for the flow of this name by every interface from which a shortest path leads to its end; those of one
    /// interface stand together. `count` is divided over the interfaces, one each at least.
    pub(crate) fn find_all(
        &mut self,
        network: &Network,
        name: FlowName,
        route: &Route,
        count: u16,
    ) -> Result<Vec<Vec<LinkId>>, RouteError> {
        let firsts = match route.plane() {
            Some(plane) => self.first_links(network, name.ends, plane),
            None => Vec::new(),
        };
        if firsts.len() < 2 {
            return self.find(network, name, route, count);
        }
        let share = (usize::from(count) / firsts.len()).max(1) as u16;
        let mut paths = Vec::new();
        for (place, (first, plane)) in (0..).zip(firsts) {
            let named = (name, plane);
            match self.all_shortest(network, named, first, share) {
                Some(all) => paths.extend(all),
                None => {
                    for draw in 0..share {
                        paths.push(self.beyond(network, named, first, place * share + draw)?);
                    }
                }
            }
        }
        Ok(paths)
    }

    /// A shortest path that begins with `first`.
    fn beyond(
        &mut self,
        network: &Network,
        (name, plane): (FlowName, Option<Plane>),
        first: LinkId,
        draw: u16,
    ) -> Result<Vec<LinkId>, RouteError> {
        let (at, to) = (network.link(first).to, name.ends.1);
        let mut path = vec![first];
        if at != to {
            let mut draws = self.draws(name, "interface", draw);
            path.extend(self.leg(network, (at, to), plane, &mut draws)?);
        }
        Ok(path)
    }

    /// The links with which shortest paths begin. Where every interface is in a plane of its own, paths are looked for
    /// plane by plane: the distances to a leaf of a plane then serve for all its hosts.
    fn first_links(
        &mut self,
        network: &Network,
        (from, to): (VertexId, VertexId),
        plane: Option<Plane>,
    ) -> Vec<First> {
        let own = self.usable(network, from, plane, |_| true);
        let mut planes: Vec<Plane> =
            own.iter().map(|link| network.link(*link).spec.plane).collect();
        planes.sort_unstable();
        let apart = planes.windows(2).all(|two| two[0] != two[1]);
        if !apart || plane.is_some() {
            return self.leading_first(network, (from, to), plane);
        }
        let measured: Vec<(u32, First)> = own
            .into_iter()
            .filter_map(|link| {
                let plane = Some(network.link(link).spec.plane);
                Some((self.distance(network, (from, to), plane)?, (link, plane)))
            })
            .collect();
        let least = measured.iter().map(|(distance, _)| *distance).min();
        let nearest = measured.into_iter().filter(|(distance, _)| Some(*distance) == least);
        nearest.map(|(_, first)| first).collect()
    }

    /// The links of one host with which shortest paths begin.
    fn leading_first(
        &mut self,
        network: &Network,
        (from, to): (VertexId, VertexId),
        plane: Option<Plane>,
    ) -> Vec<First> {
        let direct = self.usable(network, from, plane, |next| next == to);
        let links = if direct.is_empty() {
            let root = self.root_of(network, to, plane);
            self.measure(network, root, plane);
            let reached = self.distances[&(root, plane)][from.index()] != FAR;
            let links = self.leading_on(network, from, (root, to), plane);
            if reached { links } else { Vec::new() }
        } else {
            direct
        };
        links.into_iter().map(|link| (link, plane)).collect()
    }

    /// Links from one vertex to another within a plane. `None` if there is no way.
    fn distance(
        &mut self,
        network: &Network,
        (from, to): (VertexId, VertexId),
        plane: Option<Plane>,
    ) -> Option<u32> {
        if !self.usable(network, from, plane, |next| next == to).is_empty() {
            return Some(1);
        }
        let root = self.root_of(network, to, plane);
        self.measure(network, root, plane);
        let links = self.distances[&(root, plane)][from.index()];
        (links != FAR).then_some(u32::from(links) + u32::from(root != to))
    }
}
