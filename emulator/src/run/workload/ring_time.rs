// SPDX-License-Identifier: Apache-2.0
//! Durations of collectives on idle rings. Each kind is simulated once on a separate copy of the
//! ring, and the duration is reused for identical rings.
//!
//! This is exact, because neither the rings of a fabric nor the groups on an island's switch share
//! links. The end of a collective is always reported after the shortest network delay.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use lightloom_collective::{CollectiveKind, Directions, Ring};
use lightloom_engine::collective::{CollectiveStartError, Placement};
use lightloom_engine::steady::Stage;
use lightloom_engine::{
    Engine, EngineSettings, LinkId, LinkSpec, Network, NetworkBuilder, NetworkError, Route,
    VertexId, VertexRole,
};
use lightloom_units::{Bytes, Picoseconds, SimTime};

use super::super::RunError;
use super::super::context::Context;
use super::groups::{ring_links, ways_along};
use crate::substrate::Members;

/// Whether durations on idle rings are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingReuse {
    /// Simulates every packet of every task.
    Never,
    /// Simulates a collective on an idle ring once for each kind and size.
    IdleRings,
}

/// Reasons why durations on idle rings cannot be reused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum ReuseError {
    #[error(
        "task `{task}` starts on ring {ring} while another collective uses it; help: run without reuse"
    )]
    BusyRing { task: String, ring: u32 },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingCounts {
    pub(crate) reused: u64,
    pub(crate) hops: u64,
}

pub(super) type RingExchange = (CollectiveKind, Bytes, Directions);

#[derive(Debug, PartialEq, Eq)]
struct Built {
    /// Links in order: one per hop, or two through a switch.
    specs: Vec<LinkSpec>,
    /// Number of positions around the ring, of which `ranks` are occupied.
    length: usize,
    ranks: Vec<usize>,
    is_one_cable: bool,
}

pub(super) type RingClass = usize;

pub(super) struct RingTimes {
    pub(super) reuse: RingReuse,
    classes: Vec<Built>,
    known: BTreeMap<(RingClass, &'static str, u64, bool), Picoseconds>,
    pub(super) counts: RingCounts,
}

impl RingTimes {
    pub(super) fn new(reuse: RingReuse) -> Self {
        let (classes, known) = (Vec::new(), BTreeMap::new());
        Self { reuse, classes, known, counts: RingCounts::default() }
    }

    pub(super) fn class_of(
        &mut self,
        context: &Context<'_>,
        members: &Members,
    ) -> Option<RingClass> {
        let length = members.light.len();
        if members.ring.len() < 2 || !members.is_closed || self.reuse == RingReuse::Never {
            return None;
        }
        let ranks: Vec<usize> = match members.ring.len() == length {
            true => (0..length).collect(),
            false => {
                let ring = members.ring.iter();
                ring.map(|rank| members.light.iter().position(|other| other == rank))
                    .collect::<Option<_>>()?
            }
        };
        let links = ring_links(context, members)?;
        if !ranks.is_sorted() || ranks.len() < length && links.len() > length {
            return None;
        }
        // Groups of an island share the buffer of one switch.
        let queueing = context.engine.settings().queueing;
        let shares = queueing.is_some_and(|q| q.buffer.is_some() || q.pause.is_some());
        if links.len() > length && shares {
            return None;
        }
        let network = &context.substrate.network;
        let own = network.outgoing(members.ring[0]).iter();
        let cables = own.filter(|link| network.link(**link).to == members.ring[1]).count();
        let built = Built {
            specs: links.iter().map(|link| network.link(*link).spec).collect(),
            is_one_cable: length == 2 && cables == 1,
            length,
            ranks,
        };
        let known = self.classes.iter().position(|class| *class == built);
        Some(known.unwrap_or_else(|| {
            self.classes.push(built);
            self.classes.len() - 1
        }))
    }

    pub(super) fn time_of(
        &mut self,
        settings: &EngineSettings,
        class: RingClass,
        around: RingExchange,
        is_alone: impl FnOnce(Picoseconds) -> bool,
    ) -> Result<Option<Picoseconds>, RunError> {
        let (took, is_new) = match self.known.entry(key(class, around)) {
            Entry::Occupied(known) => (*known.get(), false),
            Entry::Vacant(place) => {
                let (took, hops) = run_alone(self.classes[class].alone()?, settings, around)?;
                self.counts.hops += hops;
                (*place.insert(took), true)
            }
        };
        if !is_alone(took) {
            return Ok(None);
        }
        self.counts.reused += u64::from(!is_new);
        Ok(Some(took))
    }
}

fn key(
    class: RingClass,
    (kind, bytes, directions): RingExchange,
) -> (RingClass, &'static str, u64, bool) {
    (class, kind.name(), bytes.0, directions == Directions::Both)
}

type RingNetwork = (Network, Vec<VertexId>, Vec<usize>);

impl Built {
    fn alone(&self) -> Result<RingNetwork, NetworkError> {
        let mut builder = NetworkBuilder::new();
        let (specs, count) = (&self.specs, self.length);
        let hosts: Vec<_> = (0..count).map(|_| builder.add(VertexRole::ForwardingHost)).collect();
        if specs.len() > count {
            let switch = builder.add(VertexRole::Switch);
            for (at, host) in hosts.iter().enumerate() {
                let before = (at + count - 1) % count;
                let (up, down) = (specs[2 * at], specs[2 * before + 1]);
                builder.connect_unequal(*host, switch, up, down);
            }
        } else {
            let cables = if self.is_one_cable { 1 } else { count };
            for (at, spec) in specs.iter().enumerate().take(cables) {
                builder.connect(hosts[at], hosts[(at + 1) % count], *spec);
            }
        }
        Ok((builder.build()?, hosts, self.ranks.clone()))
    }
}

fn run_alone(
    (network, light, ranks): RingNetwork,
    settings: &EngineSettings,
    (kind, size, directions): RingExchange,
) -> Result<(Picoseconds, u64), RunError> {
    let settings = EngineSettings { threads: 1, ..*settings };
    let plane = network.link(LinkId(0)).spec.plane;
    let ways = ways_along(&light, &ranks, |at| {
        let mut links = network.outgoing(light[at]).iter().copied();
        let next = light[(at + 1) % light.len()];
        links
            .find(|link| network.link(*link).to == next)
            .expect("a cable connects each member to the next")
    });
    let hosts: Vec<VertexId> = ranks.iter().map(|at| light[*at]).collect();
    let mut engine = Engine::new(network, settings).map_err(CollectiveStartError::Flow)?;
    let ring = Ring { kind, ranks: hosts.len(), size, directions };
    let schedule = ring.schedule().map_err(CollectiveStartError::from)?;
    let placement = Placement::new(hosts, Route::Within(plane)).along(ways);
    let started = placement.start(&schedule, &mut engine)?;
    engine.run(SimTime(u64::MAX));
    let took = started.end(&engine).unwrap_or_default().since(SimTime::START);
    Ok((took, engine.hops()))
}
