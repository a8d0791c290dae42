// SPDX-License-Identifier: Apache-2.0
//! Enumerates and draws the shortest paths to one vertex.

use std::borrow::Cow;

use lightloom_units::seed::Stream;
use rand::Rng;

use super::hops::{FAR, HopMap, NextStep, Row};
use super::paths::Paths;
use crate::engine::network::{LinkId, Network, Plane, VertexId};

#[derive(Clone, Copy)]
pub(super) struct UsableLinks<'n> {
    pub(super) network: &'n Network,
    pub(super) up: &'n [bool],
    pub(super) plane: Option<Plane>,
}

impl UsableLinks<'_> {
    pub(super) fn from(&self, at: VertexId, wanted: impl Fn(VertexId) -> bool) -> Vec<LinkId> {
        let links = self.network.outgoing(at).iter().copied();
        links.filter(|link| self.allows(*link) && wanted(self.network.link(*link).to)).collect()
    }

    pub(super) fn lead(&self, from: VertexId, to: VertexId) -> bool {
        let mut links = self.network.outgoing(from).iter();
        links.any(|link| self.network.link(*link).to == to && self.allows(*link))
    }

    fn allows(&self, link: LinkId) -> bool {
        let plane = self.network.link(link).spec.plane;
        self.up[link.index()] && self.plane.is_none_or(|wanted| plane == wanted)
    }

    pub(super) fn before(&self, to: VertexId) -> Vec<VertexId> {
        let entering = self.network.outgoing(to).iter().map(|link| link.reverse());
        entering
            .filter(|link| self.allows(*link))
            .map(|link| self.network.link(link).from)
            .filter(|from| self.network.role(*from).forwards())
            .collect()
    }

    /// The vertex whose distances apply to `to`: its only forwarding neighbour, or else `to` itself.
    pub(super) fn root_of(&self, to: VertexId) -> VertexId {
        match &self.before(to)[..] {
            [first, rest @ ..] if rest.iter().all(|vertex| vertex == first) => *first,
            _ => to,
        }
    }
}

pub(super) struct Towards<'n> {
    links: UsableLinks<'n>,
    map: &'n HopMap,
    row: Row<'n>,
    to: VertexId,
    root: VertexId,
    /// At this distance, the last links follow. The root may be a host, and hosts are not in the map.
    last_hops: u16,
    last: Vec<LinkId>,
}

/// A path that is being drawn, and the vertex that it has reached.
struct Walk {
    draws: Stream,
    at: u32,
}

/// `None` if there is nothing to choose from.
pub(super) fn pick<T: Copy>(draws: &mut Stream, all: &[T]) -> Option<T> {
    let drawn = match all.len() {
        0 => return None,
        count if count.is_power_of_two() => draws.next_u64() as usize & (count - 1),
        count => (draws.next_u64() % count as u64) as usize,
    };
    Some(all[drawn])
}

impl<'n> Towards<'n> {
    pub(super) fn new(
        links: UsableLinks<'n>,
        map: &'n HopMap,
        root: VertexId,
        to: VertexId,
    ) -> Self {
        let entering = links.network.outgoing(to).iter().map(|link| link.reverse());
        let last = entering.filter(|link| links.network.link(*link).from == root);
        let last = last.filter(|link| links.allows(*link)).collect();
        let last_hops = u16::from(map.number(root).is_none());
        Self { links, map, row: map.row(root), to, root, last_hops, last }
    }

    pub(super) fn leading_on(&self, at: VertexId) -> Vec<LinkId> {
        if at == self.root {
            return self.last.clone();
        }
        if let Some(number) = self.map.number(at) {
            if let Some(last) = self.last_links(number) {
                return last.into_owned();
            }
            return self.steps(number).iter().map(|step| step.link).collect();
        }
        let beside = self.nearest(at);
        self.links.from(at, |next| beside != FAR && self.beyond(next) == beside)
    }

    pub(super) fn hops(&self, at: VertexId) -> u16 {
        if at == self.root || self.map.number(at).is_some() {
            return self.beyond(at);
        }
        self.nearest(at).saturating_add(1)
    }

    fn beyond(&self, at: VertexId) -> u16 {
        match self.map.number(at) {
            _ if at == self.root => 0,
            Some(number) => self.row.at(number).hops,
            None => FAR,
        }
    }

    fn nearest(&self, at: VertexId) -> u16 {
        let beside = self.links.from(at, |_| true).into_iter();
        let beside = beside.map(|link| self.beyond(self.links.network.link(link).to));
        beside.min().unwrap_or(FAR)
    }

    pub(super) fn hops_to_end(&self, from: VertexId) -> Option<u32> {
        if !self.links.from(from, |next| next == self.to).is_empty() {
            return Some(1);
        }
        let hops = self.hops(from);
        (hops != FAR).then(|| u32::from(hops) + u32::from(self.root != self.to))
    }

    #[inline]
    fn steps(&self, number: u32) -> &'n [NextStep] {
        self.map.next_steps(number, self.row.at(number))
    }

    /// `None` unless the vertex is next to the destination or to a root that is a host.
    #[inline(always)]
    fn last_links(&self, number: u32) -> Option<Cow<'_, [LinkId]>> {
        (self.row.at(number).hops <= self.last_hops).then(|| match self.last_hops {
            0 => Cow::Borrowed(&self.last[..]),
            _ => Cow::Owned(self.links.from(self.map.vertex(number), |next| next == self.root)),
        })
    }

    pub(super) fn begin(&self, from: VertexId) -> Vec<LinkId> {
        let direct = self.links.from(from, |next| next == self.to);
        if direct.is_empty() { self.leading_on(from) } else { direct }
    }

    /// The number of links of the shortest paths from `at`, which has to forward packets or be the destination.
    fn links_from(&self, at: VertexId) -> Option<usize> {
        if at == self.to {
            return Some(0);
        }
        let hops = self.row.at(self.map.number(at)?).hops;
        (hops != FAR).then(|| usize::from(hops) + usize::from(self.root != self.to))
    }

    /// Draws a path for each of `draws`: `before`, then one of the `first` links. All paths advance together, because
    /// reads for different paths do not wait for each other. `None` if there is no path.
    pub(super) fn draw(
        &self,
        before: &[LinkId],
        first: &[LinkId],
        draws: impl ExactSizeIterator<Item = Stream>,
    ) -> Option<Paths> {
        let network = self.links.network;
        let begin = before.len() + 1;
        let hops = begin + self.links_from(network.link(*first.first()?).to)?;
        // A last link that all paths share need not be drawn.
        let shared = if let [only] = self.last[..] { Some(only) } else { None };
        let mut links = vec![shared.unwrap_or_default(); draws.len() * hops];
        let mut walks = Vec::with_capacity(draws.len());
        for (mut draws, links) in draws.zip(links.chunks_mut(hops)) {
            links[..before.len()].copy_from_slice(before);
            links[before.len()] = pick(&mut draws, first)?;
            // The destination has no number, but then the paths end here.
            let at = self.map.number(network.link(links[before.len()]).to).unwrap_or_default();
            walks.push(Walk { draws, at });
        }
        for place in begin..hops - usize::from(shared.is_some()) {
            for (walk, links) in walks.iter_mut().zip(links.chunks_mut(hops)) {
                links[place] = self.advance(walk)?;
            }
        }
        Some(Paths::of_equal_length(links, hops))
    }

    #[inline]
    fn advance(&self, walk: &mut Walk) -> Option<LinkId> {
        if let Some(last) = self.last_links(walk.at) {
            return pick(&mut walk.draws, &last);
        }
        let step = pick(&mut walk.draws, self.steps(walk.at))?;
        walk.at = step.to;
        Some(step.link)
    }

    /// All shortest paths over the `first` link. `None` if there are more than `most`, or none.
    pub(super) fn all(&self, first: LinkId, most: usize) -> Option<Paths> {
        let at = self.links.network.link(first).to;
        let to = self.map.number(at).unwrap_or_default();
        // The steps of all paths, each with the index of the step before it.
        let mut levels = vec![vec![(0, NextStep { link: first, to })]];
        for level in 0..self.links_from(at)? {
            let mut next = Vec::new();
            for (before, &(_, NextStep { to, .. })) in levels[level].iter().enumerate() {
                match self.last_links(to) {
                    Some(last) => {
                        let last = last.iter().rev();
                        next.extend(last.map(|link| (before, NextStep { link: *link, to })));
                    }
                    None => next.extend(self.steps(to).iter().rev().map(|step| (before, *step))),
                }
                // Every step is part of at least one path.
                if next.len() > most {
                    return None;
                }
            }
            levels.push(next);
        }
        let hops = levels.len();
        let mut links = vec![LinkId(0); levels[hops - 1].len() * hops];
        for (mut place, links) in links.chunks_mut(hops).enumerate() {
            for (link, level) in links.iter_mut().zip(&levels).rev() {
                let (before, step) = level[place];
                (*link, place) = (step.link, before);
            }
        }
        Some(Paths::of_equal_length(links, hops))
    }
}
