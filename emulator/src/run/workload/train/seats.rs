// SPDX-License-Identifier: Apache-2.0

use lightloom_collective::Directions;
use lightloom_engine::LinkId;
use lightloom_units::{Picoseconds, SimTime};

use super::super::super::context::Context;
use super::super::groups::ring_links;
use crate::substrate::{DCN, Members};

#[derive(Default)]
pub(super) struct Seat {
    pub(super) members: Members,
    pub(super) ring_links: Vec<LinkId>,
    pub(super) links: Vec<LinkId>,
    pub(super) is_stopped: bool,
    pub(super) is_lost: bool,
    pub(super) is_dead: bool,
    pub(super) slowed_by: u32,
    pub(super) down_since: Option<SimTime>,
    down: Picoseconds,
}

impl Seat {
    pub(super) fn of(members: Members) -> Self {
        Self { members, ..Self::default() }
    }

    pub(super) fn find_links(&mut self, context: &Context<'_>) {
        let network = &context.substrate.network;
        let interfaces = self.members.ranks.iter().flat_map(|rank| network.outgoing(*rank));
        let interfaces = interfaces.filter(|link| network.link(**link).spec.plane == DCN).copied();
        let ring = match self.has_ring() {
            true => ring_links(context, &self.members).unwrap_or_default(),
            false => Vec::new(),
        };
        self.links = both_directions(ring.iter().copied().chain(interfaces));
        self.ring_links = both_directions(ring.into_iter());
    }

    pub(super) fn directions(&self, context: &Context<'_>) -> Directions {
        let is_switched = context.substrate.domain_of(self.members.ranks[0]).is_some();
        if is_switched { Directions::One } else { Directions::Both }
    }

    pub(super) fn has_ring(&self) -> bool {
        self.members.ring.len() > 1
    }

    pub(super) fn has_light(&self, context: &Context<'_>) -> bool {
        context.is_calm() || !self.has_ring() || ring_links(context, &self.members).is_some()
    }

    pub(super) fn can_work(&self) -> bool {
        !self.is_lost && !self.is_stopped && !self.is_dead
    }

    pub(super) fn goes_down(&mut self, now: SimTime) {
        self.down_since.get_or_insert(now);
    }

    pub(super) fn comes_back(&mut self, now: SimTime) {
        if let Some(since) = self.down_since.take() {
            self.down += Picoseconds(now.0.saturating_sub(since.0));
        }
    }

    pub(super) fn down(&self) -> Picoseconds {
        self.down
    }
}

fn both_directions(links: impl Iterator<Item = LinkId>) -> Vec<LinkId> {
    let mut links: Vec<LinkId> = links.flat_map(|link| [link, link.reverse()]).collect();
    links.sort_unstable();
    links
}
