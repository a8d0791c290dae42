// SPDX-License-Identifier: Apache-2.0

use super::towards::UsableLinks;
use super::{FlowEnds, FlowName, Network, Paths, Plane, Route, RouteError, Router, WantedPaths};
use crate::engine::network::LinkId;

type First = (LinkId, Option<Plane>);

impl Router {
    /// Returns at least one path for each interface on a shortest path, sorted by interface.
    pub(crate) fn find_all(
        &mut self,
        network: &Network,
        name: FlowName,
        route: &Route,
        wanted: WantedPaths,
    ) -> Result<Paths, RouteError> {
        let WantedPaths { count, hashed } = wanted;
        let firsts = match route.plane() {
            Some(plane) => self.first_links(network, name.ends, plane),
            None => Vec::new(),
        };
        if firsts.len() < 2 {
            return self.find(network, name, route, wanted);
        }
        let share = (usize::from(count) / firsts.len()).max(1) as u16;
        let draws = self.flow_draws(name);
        let mut paths = Paths::default();
        for (place, (first, plane)) in (0..).zip(firsts) {
            let towards = self.towards(network, name.ends, plane);
            let all = if hashed { None } else { towards.all(first, share.into()) };
            if let Some(all) = all {
                paths.append(&draws.in_drawn_order(&all));
                continue;
            }
            let at = network.link(first).to;
            if at == name.ends.to {
                (0..share).for_each(|_| paths.push(&[first]));
                continue;
            }
            let streams = (0..share).map(|draw| draws.of("interface", place * share + draw));
            let drawn = towards.draw(&[first], &towards.begin(at), streams);
            paths.append(&drawn.ok_or(name.ends.unreachable())?);
        }
        Ok(paths)
    }

    /// If interfaces are in different planes, a search per plane finds distances for all hosts of a leaf.
    fn first_links(
        &mut self,
        network: &Network,
        ends: FlowEnds,
        plane: Option<Plane>,
    ) -> Vec<First> {
        let from = ends.from;
        let own = UsableLinks { network, up: &self.up, plane }.from(from, |_| true);
        let mut planes: Vec<Plane> =
            own.iter().map(|link| network.link(*link).spec.plane).collect();
        planes.sort_unstable();
        let apart = planes.windows(2).all(|two| two[0] != two[1]);
        if !apart || plane.is_some() {
            let links = self.towards(network, ends, plane).begin(from);
            return links.into_iter().map(|link| (link, plane)).collect();
        }
        let measured: Vec<(u32, First)> = own
            .into_iter()
            .filter_map(|link| {
                let plane = Some(network.link(link).spec.plane);
                let hops = self.towards(network, ends, plane).hops_to_end(from)?;
                Some((hops, (link, plane)))
            })
            .collect();
        let least = measured.iter().map(|(distance, _)| *distance).min();
        let nearest = measured.into_iter().filter(|(distance, _)| Some(*distance) == least);
        nearest.map(|(_, first)| first).collect()
    }
}
