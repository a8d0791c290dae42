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
use lightloom_units::{Bytes, Picoseconds, SimTime};
use rustc_hash::FxHashMap;

use crate::engine::{
    BatchId, EngineError, FlowGate, FlowId, FlowSpec, LinkId, Route, VertexId, message_time,
    share_of, soonest, wire_time,
};
use crate::steady::Stage;

pub use bag::{BagWait, start_bag, start_ordered};

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
    #[must_use]
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
    #[must_use]
    pub fn algorithm_bandwidth(&self, took: Picoseconds) -> f64 {
        self.size.0 as f64 / took.as_secs_f64()
    }
    /// Algorithm bandwidth times [`CollectiveKind::bus_factor`] in bytes/s, comparable across numbers of ranks.
    #[must_use]
    pub fn bus_bandwidth(&self, took: Picoseconds) -> f64 {
        self.algorithm_bandwidth(took) * self.kind.bus_factor(self.ranks)
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
    /// Routes of individual host pairs, which override `inside` and `between`.
    pub ways: BTreeMap<(VertexId, VertexId), Route>,
}

impl Placement {
    #[must_use]
    pub fn new(members: Vec<VertexId>, route: Route) -> Self {
        let (inside, between) = (route.clone(), route);
        let ways = BTreeMap::new();
        Self { members, inside, between, priority: 0, start: SimTime::START, ways }
    }

    #[must_use]
    pub fn along(mut self, ways: BTreeMap<(VertexId, VertexId), Route>) -> Self {
        self.ways = ways;
        self
    }

    #[must_use]
    pub fn at(mut self, start: SimTime) -> Self {
        self.start = start;
        self
    }

    #[must_use]
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
        let mut flows = Vec::with_capacity(schedule.sendings.len());
        for sending in &schedule.sendings {
            let earlier = sending.awaits.iter().filter(|awaits| awaits.sending < flows.len());
            let gates = earlier.map(|awaits| gate(&flows, awaits)).collect();
            let flow = stage.add_flow(self.flow(sending, gates, batch))?;
            flows.push(flow);
        }
        for (place, sending) in schedule.sendings.iter().enumerate() {
            for awaits in sending.awaits.iter().filter(|awaits| awaits.sending >= place) {
                stage.add_gate(flows[place], gate(&flows, awaits))?;
            }
        }
        let ideal = schedule.ideal(&times(stage, &flows, &schedule.sendings));
        let interface = busiest_end(stage, &flows, &schedule.sendings);
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

    fn flow(&self, sending: &Sending, gates: Vec<FlowGate>, batch: BatchId) -> FlowSpec {
        let ends = (self.members[sending.from], self.members[sending.to]);
        let route = self.ways.get(&ends).unwrap_or(match sending.level {
            NetworkLevel::Inside => &self.inside,
            NetworkLevel::Between => &self.between,
        });
        FlowSpec {
            messages: sending.messages,
            priority: self.priority,
            gates,
            batch: Some(batch),
            ..FlowSpec::new(ends.0, ends.1, sending.message).at(self.start).over(route.clone())
        }
    }
}

fn gate(flows: &[FlowId], awaits: &Await) -> FlowGate {
    FlowGate { flow: flows[awaits.sending], ahead: awaits.ahead }
}

/// Counts only single-path flows: around one switch, both directions of a ring leave a host over the same link.
fn busiest_end<S: Stage>(stage: &S, flows: &[FlowId], sendings: &[Sending]) -> Picoseconds {
    let (network, transport) = (stage.network(), &stage.settings().transport);
    let mut busy: FxHashMap<LinkId, Picoseconds> = FxHashMap::default();
    for (flow, sending) in
        flows.iter().zip(sendings).filter(|(flow, _)| stage.takes_one_path(**flow))
    {
        let path = stage.path(*flow);
        let mut ends: Vec<LinkId> = path.first().into_iter().chain(path.last()).copied().collect();
        ends.dedup();
        for end in ends {
            let once = wire_time(network, transport, &[end], sending.message);
            *busy.entry(end).or_default() += once * u64::from(sending.messages);
        }
    }
    busy.into_values().max().unwrap_or_default()
}

fn times<S: Stage>(stage: &S, flows: &[FlowId], sendings: &[Sending]) -> Vec<MessageTime> {
    let (network, settings) = (stage.network(), stage.settings());
    let times = flows.iter().zip(sendings).map(|(flow, sending)| {
        let (ways, transport) = (stage.ways(*flow), &settings.transport);
        // Packets sprayed over several paths share only the first link.
        let one_path = stage.takes_one_path(*flow);
        let wires = ways.iter().map(|way| {
            let in_common = if one_path { way.len() } else { 1 };
            wire_time(network, transport, &way[..in_common], sending.message)
        });
        MessageTime {
            arrives: alone(stage, *flow, sending.message),
            occupies: wires.min().unwrap_or_default(),
            ways: ways.len() as u32,
        }
    });
    times.collect()
}

fn alone<S: Stage>(stage: &S, flow: FlowId, message: Bytes) -> Picoseconds {
    let (network, settings) = (stage.network(), stage.settings());
    if stage.takes_one_path(flow) {
        return message_time(network, settings, stage.path(flow), message);
    }
    let share = share_of(network, &settings.transport, &stage.ways(flow), message);
    soonest(network, settings, &stage.paths(flow), share)
}
