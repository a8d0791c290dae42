// SPDX-License-Identifier: Apache-2.0
//! Tracks rings under the shipped control plane: devices light the links, and plans place the groups.

use std::collections::BTreeMap;

use lightloom_engine::LinkId;
use lightloom_engine::steady::Stage;
use lightloom_fabric::fault::{FaultSet, Part as PlannedPart};
use lightloom_fabric::khop::{Path, Port};
use lightloom_planner::khop::{Change, GroupChange, Layout};
use lightloom_units::id::{BundleId, NodeId};
use lightloom_units::{Picoseconds, SimTime};

use super::super::super::Context;
use super::super::replan::Replanner;
use crate::substrate::{HBD, Members};

pub(super) struct ShippedRings<'a> {
    pub(super) inner: Replanner<'a>,
    dark_since: BTreeMap<BundleId, SimTime>,
    pub(super) locked_at: SimTime,
}

impl<'a> ShippedRings<'a> {
    pub(super) fn new(inner: Replanner<'a>) -> Self {
        Self { inner, dark_since: BTreeMap::new(), locked_at: SimTime::START }
    }

    /// Returns the bundle's dark time, and when each link that starts locking will carry packets.
    pub(super) fn light(
        &mut self,
        context: &mut Context<'_>,
        bundle: BundleId,
        path: Option<Path>,
    ) -> (Option<Picoseconds>, Vec<(SimTime, LinkId)>) {
        let now = context.now();
        self.inner.held.insert(bundle, path);
        let dark = match path {
            None => {
                self.dark_since.insert(bundle, now);
                None
            }
            Some(_) => self.dark_since.remove(&bundle).map(|since| now.since(since)),
        };
        let mut locking = Vec::new();
        for link in self.inner.rings.all_links_of(bundle) {
            match (self.inner.selects(link), context.is_lit(link)) {
                (false, true) => context.light(link, false),
                (true, false) => {
                    let usable_at = now + self.inner.fabric.transceiver.relock;
                    self.locked_at = self.locked_at.max(usable_at);
                    locking.push((usable_at, link));
                }
                _ => {}
            }
        }
        (dark, locking)
    }

    pub(super) fn locked(&self, context: &mut Context<'_>, link: LinkId) {
        if self.inner.selects(link) && !context.is_lit(link) {
            context.light(link, true);
        }
    }

    pub(super) fn meets(&self, broken: PlannedPart, found: PlannedPart) -> bool {
        match (broken, found) {
            (PlannedPart::Fibre(one), PlannedPart::Fibre(other)) => {
                self.ends(one).iter().any(|end| self.ends(other).contains(end))
            }
            (PlannedPart::Fibre(port), PlannedPart::Bundle(bundle))
            | (PlannedPart::Bundle(bundle), PlannedPart::Fibre(port)) => {
                self.ends(port).iter().flatten().any(|end| end.bundle == bundle)
            }
            (PlannedPart::Node(node), PlannedPart::Fibre(port)) => {
                self.ends(port).iter().flatten().any(|end| end.bundle.node == node)
            }
            (PlannedPart::Bundle(one), PlannedPart::Bundle(other)) => one == other,
            (broken, found) => broken.node().is_some() && broken.node() == found.node(),
        }
    }

    fn ends(&self, port: Port) -> [Option<Port>; 2] {
        [Some(port), self.inner.fabric.hbd.peer(port)]
    }

    pub(super) fn first_packet(&self, context: &Context<'_>, fault: usize) -> Option<Picoseconds> {
        let groups = context.faults[fault].groups.iter();
        let mut alive = groups.filter(|group| !self.inner.groups[**group].is_lost);
        let light = self.inner.members_of(*alive.next()?).light;
        let network = &context.substrate.network;
        let (from, to) = (*light.first()?, *light.get(1)?);
        let mut hops = network.outgoing(from).iter().map(|link| network.link(*link));
        let spec = hops.find(|hop| hop.to == to && hop.spec.plane == HBD)?.spec;
        let packet = context.engine.settings().transport.packet();
        Some(spec.rate.time_for(packet) + spec.delay)
    }

    pub(super) fn follow(
        &mut self,
        context: &mut Context<'_>,
        fault: Option<usize>,
        layout: Layout,
        known: FaultSet,
        goes_on: SimTime,
    ) {
        let before: Vec<Vec<NodeId>> =
            self.inner.layout.groups.iter().map(|group| group.ranks.clone()).collect();
        let members: Vec<Option<Members>> = (0..self.inner.groups.len())
            .map(|group| (!self.inner.groups[group].is_lost).then(|| self.inner.members_of(group)))
            .collect();
        let old = std::mem::replace(&mut self.inner.layout, layout);
        (self.inner.respected, self.inner.known) = (known.clone(), known);
        let groups = self.changes(&old, &members);
        let nodes = (0..self.inner.fabric.hbd.nodes()).map(NodeId);
        let bundles = nodes.map(|node| (BundleId { node, bundle: 0 }, goes_on));
        let change = Change { groups, ..Change::default() };
        self.inner.move_groups(context, fault, &before, &change, &bundles.collect());
        if let Some(fault) = fault {
            let log = &mut context.faults[fault];
            log.restored = log.restored.map(|at| at.max(goes_on));
        }
    }

    fn changes(&self, old: &Layout, members: &[Option<Members>]) -> Vec<GroupChange> {
        let mut free = self.inner.layout.groups.clone();
        free.retain(|group| group.job.is_some());
        let mut moved = Vec::new();
        for (group, placed) in self.inner.groups.iter().enumerate() {
            if placed.is_lost {
                continue;
            }
            let own = free
                .iter()
                .position(|new| new.job == Some(placed.job) && new.ranks == placed.nodes);
            match own {
                Some(at) => {
                    free.remove(at);
                    if members[group].as_ref() != Some(&self.inner.members_of(group)) {
                        moved.push((placed, Some(placed.nodes.clone())));
                    }
                }
                None => moved.push((placed, None)),
            }
        }
        let mut changes = Vec::new();
        for (placed, to) in moved {
            let Some(group) = old.groups.iter().position(|group| group.ranks == placed.nodes)
            else {
                continue;
            };
            let like = (0..free.len()).filter(|at| free[*at].job == Some(placed.job));
            let best = like.max_by_key(|at| {
                let ranks = free[*at].ranks.iter();
                (ranks.filter(|node| placed.nodes.contains(node)).count(), usize::MAX - at)
            });
            let to = to.or_else(|| best.map(|at| free.remove(at).ranks));
            let from = placed.nodes.clone();
            changes.push(match to {
                Some(to) => GroupChange::Moved { group, from, to },
                None => GroupChange::Lost { job: Some(placed.job), group, from },
            });
        }
        changes.extend(
            free.into_iter().map(|new| GroupChange::Formed { job: new.job, to: new.ranks }),
        );
        changes
    }
}
