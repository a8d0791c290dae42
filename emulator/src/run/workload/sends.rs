// SPDX-License-Identifier: Apache-2.0
//! The traffic that a task sends between its hosts: one flow, a collective around their ring, or
//! all pieces simultaneously.

use std::collections::BTreeMap;

use lightloom_collective::{AllToAll, CollectiveKind, Directions, Exchange, Ring};
use lightloom_engine::collective::{CollectiveStartError, Placement, StartedCollective, start_bag};
use lightloom_engine::steady::Stage;
use lightloom_engine::{FlowSpec, Route, VertexId};
use lightloom_training::exchange::PairBytes;
use lightloom_units::Bytes;

use super::ring_time::RingExchange;

pub(super) struct Sends {
    /// The collective. `None` means one flow from the first host to the second.
    pub(super) kind: Option<CollectiveKind>,
    pub(super) hosts: Vec<VertexId>,
    pub(super) bytes: Bytes,
    pub(super) directions: Directions,
    /// The route of flows that are not in `ways`.
    pub(super) route: Route,
    /// The routes of host pairs that do not use `route`.
    pub(super) ways: BTreeMap<(VertexId, VertexId), Route>,
    /// Priority at switches with priority queues.
    pub(super) priority: u8,
    /// The fraction by which the first host in an all-to-all receives more than its share (0.2 means 20 %).
    pub(super) imbalance: f64,
    /// Bytes between each two hosts of an all-to-all, if they differ.
    pub(super) pairs: Option<PairBytes>,
}

impl Sends {
    /// Creates traffic in one direction around the ring of `hosts`, with the same route for all
    /// flows.
    pub(super) fn over(
        route: Route,
        kind: Option<CollectiveKind>,
        (hosts, bytes): (Vec<VertexId>, Bytes),
    ) -> Self {
        let (ways, directions) = (BTreeMap::new(), Directions::One);
        Self {
            kind,
            hosts,
            bytes,
            directions,
            route,
            ways,
            priority: 0,
            imbalance: 0.0,
            pairs: None,
        }
    }

    /// Returns the collective around a ring, or `None` for a single flow.
    pub(super) fn around(&self) -> Option<RingExchange> {
        Some((self.kind?, self.bytes, self.directions))
    }

    /// Adds the flows, which start immediately.
    ///
    /// # Errors
    /// Returns errors from the collective or the engine.
    pub(super) fn start<S: Stage>(
        self,
        stage: &mut S,
    ) -> Result<StartedCollective, CollectiveStartError> {
        let Self { kind, hosts, bytes: size, priority, route, mut ways, .. } = self;
        let (now, ranks) = (stage.now(), hosts.len());
        let Some(kind) = kind else {
            let (from, to) = (hosts[0], hosts[1]);
            let way = ways.remove(&(from, to)).unwrap_or(route);
            let flow = FlowSpec { priority, ..FlowSpec::new(from, to, size).at(now).over(way) };
            return start_bag(stage, vec![flow]);
        };
        let schedule = if kind == CollectiveKind::AllToAll {
            let mut schedule = AllToAll { ranks, size, exchange: Exchange::AtOnce }.schedule()?;
            if let Some(pairs) = self.pairs {
                for sending in &mut schedule.sendings {
                    sending.message = Bytes(pairs[sending.from * ranks + sending.to].max(1));
                }
            } else if self.imbalance > 0.0 {
                let even = size.0 as f64 / ranks as f64;
                let extra = even * self.imbalance;
                let [most, least] = [even + extra, even - extra / (ranks as f64 - 1.0)];
                for sending in &mut schedule.sendings {
                    let piece = if sending.to == 0 { most } else { least };
                    sending.message = Bytes(piece.max(1.0) as u64);
                }
            }
            schedule
        } else {
            Ring { kind, ranks, size, directions: self.directions }.schedule()?
        };
        let placement = Placement::new(hosts, route).at(now).in_priority(priority).along(ways);
        placement.start(&schedule, stage)
    }
}
