// SPDX-License-Identifier: Apache-2.0
//! Enumerates and draws the shortest paths to one vertex.

use std::borrow::Cow;

use lightloom_units::seed::Stream;
use rand::Rng;

use super::hops::{FAR, HopMap, NextStep, Onward};
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
    row: &'n [Onward],
    to: VertexId,
    root: VertexId,
    /// At this distance, the last links follow. The root may be a host, and hosts are not in the map.
    last_hops: u16,
    last: Vec<LinkId>,
}

#[derive(Debug)]
pub(super) struct NoPath;

/// Room for the links of most paths.
const HOPS: usize = 8;

/// A path that has not reached the destination yet, unless `at` is `None`.
struct Walk {
    draws: Stream,
    links: Vec<LinkId>,
    at: Option<u32>,
}

fn pick(draws: &mut Stream, count: usize) -> Result<usize, NoPath> {
    match count {
        0 => Err(NoPath),
        _ if count.is_power_of_two() => Ok(draws.next_u64() as usize & (count - 1)),
        _ => Ok((draws.next_u64() % count as u64) as usize),
    }
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
            Some(number) => self.row[number as usize].hops,
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
        self.map.next_steps(number, self.row[number as usize])
    }

    /// `None` unless the vertex is next to the destination or to a root that is a host.
    #[inline(always)]
    fn last_links(&self, number: u32) -> Option<Cow<'_, [LinkId]>> {
        (self.row[number as usize].hops <= self.last_hops).then(|| match self.last_hops {
            0 => Cow::Borrowed(&self.last[..]),
            _ => Cow::Owned(self.links.from(self.map.vertex(number), |next| next == self.root)),
        })
    }

    pub(super) fn begin(&self, from: VertexId) -> Vec<LinkId> {
        let direct = self.links.from(from, |next| next == self.to);
        if direct.is_empty() { self.leading_on(from) } else { direct }
    }

    /// Draws a path for each of `draws`: `before`, then one of the `first` links. All paths advance together, because
    /// reads for different paths do not wait for each other.
    pub(super) fn draw(
        &self,
        before: &[LinkId],
        first: &[LinkId],
        draws: impl Iterator<Item = Stream>,
    ) -> Result<Paths, NoPath> {
        let mut walks = Vec::with_capacity(draws.size_hint().0);
        for mut draws in draws {
            let link = first[pick(&mut draws, first.len())?];
            let to = self.links.network.link(link).to;
            let at = if to == self.to { None } else { Some(self.map.number(to).ok_or(NoPath)?) };
            let mut links = Vec::with_capacity(HOPS);
            links.extend_from_slice(before);
            links.push(link);
            walks.push(Walk { draws, links, at });
        }
        while walks.iter().any(|walk| walk.at.is_some()) {
            for walk in &mut walks {
                self.advance(walk)?;
            }
        }
        let longest = walks.iter().map(|walk| walk.links.len()).max().unwrap_or_default();
        let mut paths = Paths::with_room(walks.len(), longest);
        walks.iter().for_each(|walk| paths.push(&walk.links));
        Ok(paths)
    }

    #[inline]
    fn advance(&self, walk: &mut Walk) -> Result<(), NoPath> {
        let Some(number) = walk.at else { return Ok(()) };
        if let Some(last) = self.last_links(number) {
            walk.links.push(last[pick(&mut walk.draws, last.len())?]);
            walk.at = None;
            return Ok(());
        }
        let steps = self.steps(number);
        let step = steps[pick(&mut walk.draws, steps.len())?];
        walk.links.push(step.link);
        let has_ended = self.root == self.to && self.row[step.to as usize].hops == 0;
        walk.at = (!has_ended).then_some(step.to);
        Ok(())
    }

    /// Counts level by level, which finds many paths before any of them ends.
    fn has_more_paths(&self, number: u32, most: usize) -> bool {
        let (mut level, mut ended) = (vec![number], 0);
        while !level.is_empty() {
            let mut next = Vec::new();
            for number in level {
                if let Some(last) = self.last_links(number) {
                    // Empty at a root that is the destination.
                    ended += last.len().max(1);
                } else {
                    next.extend(self.steps(number).iter().map(|step| step.to));
                }
                if ended + next.len() > most {
                    return true;
                }
            }
            level = next;
        }
        false
    }

    /// `None` if there are more paths than `most`.
    pub(super) fn all(&self, first: LinkId, most: usize) -> Option<Paths> {
        let mut all = Paths::default();
        let mut path = vec![first];
        let at = self.links.network.link(first).to;
        if at == self.to {
            all.push(&path);
            return Some(all);
        }
        let number = self.map.number(at)?;
        if self.has_more_paths(number, most) {
            return None;
        }
        let mut open = vec![(number, first, 0)];
        while let Some((number, link, depth)) = open.pop() {
            path.truncate(depth);
            path.push(link);
            if self.root == self.to && self.row[number as usize].hops == 0 {
                all.push(&path);
            } else if let Some(last) = self.last_links(number) {
                for link in last.iter().rev() {
                    path.push(*link);
                    all.push(&path);
                    path.pop();
                }
            } else {
                let steps = self.steps(number).iter();
                open.extend(steps.map(|step| (step.to, step.link, depth + 1)));
            }
        }
        Some(all)
    }
}
