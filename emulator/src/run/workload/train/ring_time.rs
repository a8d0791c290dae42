// SPDX-License-Identifier: Apache-2.0
//! What a collective takes on a ring that nothing else uses: run once, packet by packet, on a copy of the ring alone, and
//! used again for every ring built alike.
//!
//! That is exact: the rings of a fabric share no link, nor do groups on the switch of an island; a collective that starts
//! on an idle ring takes the same time whenever it starts, and the news of its end travels one shortest delay of the
//! whole network either way.

use std::collections::BTreeMap;

use lightloom_collective::{Directions, Kind, Ring};
use lightloom_engine::collective::{Placement, StartError};
use lightloom_engine::steady::Stage;
use lightloom_engine::{
    Engine, LinkId, LinkSpec, Network, NetworkBuilder, NetworkError, Queueing, Role, Route,
    Settings, VertexId,
};
use lightloom_units::{Bytes, Picoseconds, SimTime};

use super::super::super::RunError;
use super::super::super::context::Context;
use super::super::groups::ring_links;
use crate::substrate::Members;

/// Links of a ring in order, by how they are built, and what runs on it.
type Key = (Vec<(u64, u64)>, &'static str, u64);

/// Times of collectives by ring, kind and size.
#[derive(Default)]
pub(super) struct RingTimes {
    known: BTreeMap<Key, Picoseconds>,
    reused: u64,
}

impl RingTimes {
    /// How often a time was used that had been found before.
    pub(super) fn reused(&self) -> u64 {
        self.reused
    }

    /// What a collective takes on the ring of `members`. `None` if the ring is not all light and nothing but ranks.
    pub(super) fn time_of(
        &mut self,
        context: &Context<'_>,
        members: &Members,
        (kind, bytes): (Kind, Bytes),
    ) -> Result<Option<Picoseconds>, RunError> {
        let has_ring = members.ring.len() > 1 && members.is_closed;
        if !has_ring || members.ring.len() != members.light.len() {
            return Ok(None);
        }
        let Some(links) = ring_links(context, members) else { return Ok(None) };
        let network = &context.substrate.network;
        let specs: Vec<LinkSpec> = links.iter().map(|link| network.link(*link).spec).collect();
        let built = specs.iter().map(|spec| (spec.rate.0, spec.delay.0)).collect();
        let key = (built, kind.name(), bytes.0);
        if let Some(known) = self.known.get(&key) {
            self.reused += 1;
            return Ok(Some(*known));
        }
        let settings = context.engine.settings();
        let is_switched = links.len() > members.ring.len();
        let shares = |queueing: Queueing| queueing.buffer.is_some() || queueing.pause.is_some();
        // The groups of an island meet in the buffer of its switch.
        if is_switched && settings.queueing.is_some_and(shares) {
            return Ok(None);
        }
        let alone = if is_switched { switched_island } else { ring_of };
        let took = run_alone(alone(&specs)?, settings, (kind, bytes))?;
        self.known.insert(key, took);
        Ok(Some(took))
    }
}

/// A network with the hosts of a ring, in its order.
type Alone = (Network, Vec<VertexId>);

/// Hosts joined one to the next by these links.
fn ring_of(specs: &[LinkSpec]) -> Result<Alone, NetworkError> {
    let mut builder = NetworkBuilder::new();
    let hosts: Vec<_> = specs.iter().map(|_| builder.add(Role::ForwardingHost)).collect();
    let count = hosts.len();
    for (at, spec) in specs.iter().enumerate() {
        builder.connect(hosts[at], hosts[(at + 1) % count], *spec);
    }
    Ok((builder.build()?, hosts))
}

/// Hosts on one switch, by the links up from each and down to the next.
fn switched_island(specs: &[LinkSpec]) -> Result<Alone, NetworkError> {
    let mut builder = NetworkBuilder::new();
    let count = specs.len() / 2;
    let hosts: Vec<_> = (0..count).map(|_| builder.add(Role::ForwardingHost)).collect();
    let switch = builder.add(Role::Switch);
    for (at, host) in hosts.iter().enumerate() {
        let before = (at + count - 1) % count;
        builder.connect_unequal(*host, switch, specs[2 * at], specs[2 * before + 1]);
    }
    Ok((builder.build()?, hosts))
}

/// Runs a collective on a ring and nothing else.
fn run_alone(
    (network, hosts): Alone,
    settings: &Settings,
    (kind, size): (Kind, Bytes),
) -> Result<Picoseconds, RunError> {
    let settings = Settings { threads: 1, ..*settings };
    let plane = network.link(LinkId(0)).spec.plane;
    let mut engine = Engine::new(network, settings).map_err(StartError::Flow)?;
    let ring = Ring { kind, ranks: hosts.len(), size, directions: Directions::Both };
    let schedule = ring.schedule().map_err(StartError::from)?;
    let started = Placement::new(hosts, Route::Within(plane)).start(&schedule, &mut engine)?;
    while engine.next_event(SimTime(u64::MAX)).is_some() {}
    Ok(started.end(&engine).unwrap_or_default().since(SimTime::START))
}
