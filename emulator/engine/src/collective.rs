// SPDX-License-Identifier: Apache-2.0
//! Runs collectives on an emulated network.
//!
//! Each [`Sending`] of a [`Schedule`] becomes a flow whose messages wait for the messages that its rank must receive
//! first. The caller adds all flows together; the engine then runs them without further calls.

mod bag;

use std::collections::BTreeMap;

use lightloom_collective::{
    Await, CollectiveError, CollectiveKind, MessageTime, NetworkLevel, Schedule, Sending,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};
use rustc_hash::FxHashMap;

use crate::engine::{
    BatchId, EngineError, FlowGate, FlowId, FlowSpec, LinkId, Route, VertexId, message_time,
    share_of, soonest, wire_time,
};
use crate::steady::Stage;

pub use bag::{BagWait, start_bag, start_ordered};

/// Paths are found for this many flows at a time, which bounds the memory for paths that are not in the route table yet.
const PATHS_AHEAD: usize = 1_024;

#[derive(Clone, Debug)]
pub struct StartedCollective {
    pub kind: CollectiveKind,
    pub ranks: usize,
    pub size: Bytes,
    pub start: SimTime,
    /// Duration if no packet waits for another flow, which is a lower bound for these paths.
    pub ideal: Picoseconds,
    /// Busy time of the most loaded link next to a host, which is sometimes the tighter lower bound.
    pub interface: Picoseconds,
    pub batch: BatchId,
    pub flows: Vec<FlowId>,
}

impl StartedCollective {
    pub fn end<S: Stage>(&self, engine: &S) -> Option<SimTime> {
        self.flows
            .iter()
            .map(|flow| engine.record(*flow).end)
            .try_fold(self.start, |last, end| end.map(|end| last.max(end)))
    }
    pub fn cancel<S: Stage>(&self, engine: &mut S) {
        for flow in &self.flows {
            engine.cancel_flow(*flow);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveStartError {
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    #[error(transparent)]
    Flow(#[from] EngineError),
}

#[derive(Clone, Debug)]
pub struct Placement {
    pub members: Vec<VertexId>,
    pub inside: Route,
    pub between: Route,
    pub priority: u8,
    pub start: SimTime,
    pub ways: HostRoutes,
}

/// Routes of individual host pairs, which override those of a [`Placement`].
pub type HostRoutes = BTreeMap<(VertexId, VertexId), Vec<RouteShare>>;

/// A route of a host pair, which carries `share` of each message.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteShare {
    pub route: Route,
    pub share: f64,
    pub pace: Option<BitsPerSecond>,
}

impl RouteShare {
    pub const fn whole(route: Route) -> Self {
        Self { route, share: 1.0, pace: None }
    }
}

impl Placement {
    pub fn new(members: Vec<VertexId>, route: Route) -> Self {
        let (inside, between) = (route.clone(), route);
        let ways = BTreeMap::new();
        Self { members, inside, between, priority: 0, start: SimTime::START, ways }
    }

    pub fn along(mut self, ways: HostRoutes) -> Self {
        self.ways = ways;
        self
    }

    pub fn at(mut self, start: SimTime) -> Self {
        self.start = start;
        self
    }

    pub fn in_priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Fails if the engine rejects a flow; flows added earlier remain. Panics if there are fewer members than ranks.
    pub fn start<S: Stage>(
        &self,
        schedule: &Schedule,
        stage: &mut S,
    ) -> Result<StartedCollective, CollectiveStartError> {
        let batch = stage.add_batch();
        let mut parts: Vec<Vec<FlowPart>> = Vec::with_capacity(schedule.sendings.len());
        for near in schedule.sendings.chunks(PATHS_AHEAD) {
            let specs: Vec<Vec<FlowSpec>> =
                near.iter().map(|sending| self.flows(sending, batch)).collect();
            stage.find_paths_ahead(&specs.iter().flatten().collect::<Vec<_>>());
            for (sending, specs) in near.iter().zip(specs) {
                let is_there = |awaits: &&Await| awaits.sending < parts.len();
                let earlier = sending.awaits.iter().filter(is_there);
                let gates: Vec<FlowGate> =
                    earlier.flat_map(|awaits| gates(&parts, awaits)).collect();
                let add = |spec: FlowSpec| {
                    let (message, messages) = (spec.message, spec.messages);
                    let spec = FlowSpec { gates: gates.clone(), ..spec };
                    stage.add_flow(spec).map(|flow| FlowPart { flow, message, messages })
                };
                parts.push(specs.into_iter().map(add).collect::<Result<_, _>>()?);
            }
        }
        for (place, sending) in schedule.sendings.iter().enumerate() {
            for awaits in sending.awaits.iter().filter(|awaits| awaits.sending >= place) {
                for part in &parts[place] {
                    gates(&parts, awaits).try_for_each(|gate| stage.add_gate(part.flow, gate))?;
                }
            }
        }
        let ideal = schedule.ideal(&times(stage, &parts));
        let interface = busiest_end(stage, &parts);
        let flows = parts.iter().flatten().map(|part| part.flow).collect();
        let Schedule { kind, ranks, size, .. } = *schedule;
        Ok(StartedCollective {
            kind,
            ranks,
            size,
            start: self.start,
            ideal,
            interface,
            batch,
            flows,
        })
    }

    fn flows(&self, sending: &Sending, batch: BatchId) -> Vec<FlowSpec> {
        let ends = (self.members[sending.from], self.members[sending.to]);
        let whole = || match sending.level {
            NetworkLevel::Inside => vec![RouteShare::whole(self.inside.clone())],
            NetworkLevel::Between => vec![RouteShare::whole(self.between.clone())],
        };
        let flow = FlowSpec {
            messages: sending.messages,
            priority: self.priority,
            batch: Some(batch),
            ..FlowSpec::new(ends.0, ends.1, sending.message).at(self.start)
        };
        divided(&flow, self.ways.get(&ends).cloned().unwrap_or_else(whole))
    }
}

/// Splits a flow over routes, without those whose share of a message is less than a byte.
pub fn divided(flow: &FlowSpec, ways: Vec<RouteShare>) -> Vec<FlowSpec> {
    let (mut until, mut sent) = (0.0, 0);
    let part = |RouteShare { route, share, pace }: RouteShare| {
        until += share;
        let message = Bytes((flow.message.0 as f64 * until).round() as u64 - sent);
        sent += message.0;
        FlowSpec { message, route, pace, ..flow.clone() }
    };
    let mut parts: Vec<FlowSpec> = ways.into_iter().map(part).collect();
    parts.retain(|part| part.message > Bytes::ZERO || flow.message == Bytes::ZERO);
    parts
}

#[derive(Clone, Copy)]
struct FlowPart {
    flow: FlowId,
    message: Bytes,
    messages: u32,
}

fn gates<'p>(
    parts: &'p [Vec<FlowPart>],
    awaits: &Await,
) -> impl Iterator<Item = FlowGate> + use<'p> {
    let ahead = awaits.ahead;
    parts[awaits.sending].iter().map(move |part| FlowGate { flow: part.flow, ahead })
}

/// Counts only single-path flows: around one switch, both directions of a ring leave a host over the same link.
fn busiest_end<S: Stage>(stage: &S, parts: &[Vec<FlowPart>]) -> Picoseconds {
    let (network, transport) = (stage.network(), &stage.settings().transport);
    let mut busy: FxHashMap<LinkId, Picoseconds> = FxHashMap::default();
    for part in parts.iter().flatten().filter(|part| stage.takes_one_path(part.flow)) {
        let path = stage.path(part.flow);
        let mut ends: Vec<LinkId> = path.first().into_iter().chain(path.last()).copied().collect();
        ends.dedup();
        for end in ends {
            let once = wire_time(network, transport, &[end], part.message);
            *busy.entry(end).or_default() += once * u64::from(part.messages);
        }
    }
    busy.into_values().max().unwrap_or_default()
}

fn times<S: Stage>(stage: &S, parts: &[Vec<FlowPart>]) -> Vec<MessageTime> {
    let (network, settings) = (stage.network(), stage.settings());
    let of_part = |part: &FlowPart| {
        let (ways, transport) = (stage.ways(part.flow), &settings.transport);
        // Packets sprayed over several paths share only the first link.
        let one_path = stage.takes_one_path(part.flow);
        let in_common = |way: &&[LinkId]| if one_path { way.len() } else { 1 };
        let wires = ways
            .iter()
            .map(|way| wire_time(network, transport, &way[..in_common(way)], part.message));
        MessageTime {
            arrives: alone(stage, part.flow, part.message),
            occupies: wires.min().unwrap_or_default(),
            ways: ways.len() as u32,
        }
    };
    let slower = |one: MessageTime, other: MessageTime| MessageTime {
        arrives: one.arrives.max(other.arrives),
        occupies: one.occupies.max(other.occupies),
        ways: one.ways.max(other.ways),
    };
    let time = |own: &Vec<FlowPart>| own.iter().map(of_part).reduce(slower);
    parts.iter().map(|own| time(own).expect("a message has a part")).collect()
}

fn alone<S: Stage>(stage: &S, flow: FlowId, message: Bytes) -> Picoseconds {
    let (network, settings) = (stage.network(), stage.settings());
    if stage.takes_one_path(flow) {
        return message_time(network, settings, stage.path(flow), message);
    }
    let ways = stage.ways(flow);
    let share = share_of(network, &settings.transport, &ways, message);
    // Paths over one interface have equal length, so uniform links make them alike.
    if network.is_uniform() {
        soonest(network, settings, ways, share)
    } else {
        soonest(network, settings, stage.paths(flow).iter(), share)
    }
}
