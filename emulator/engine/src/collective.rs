// SPDX-License-Identifier: Apache-2.0
//! Collectives on a network: the sendings of a schedule become flows that wait for each other.
//!
//! Nothing here runs: a [`Schedule`] is added once, as flows whose messages are gated by the messages
//! that a rank has to receive first, and the engine does the rest.

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

/// A collective whose flows have been added to an engine.
#[derive(Clone, Debug)]
pub struct StartedCollective {
    /// What it computes.
    pub kind: CollectiveKind,
    /// How many ranks take part.
    pub ranks: usize,
    /// Its size, as [`lightloom_collective`] defines it.
    pub size: Bytes,
    /// When it may begin.
    pub start: SimTime,
    /// What it takes when no packet waits for one of another flow, and no acknowledgement takes a
    /// link from data: a lower bound on these paths.
    pub ideal: Picoseconds,
    /// What the link next to a host takes that has the most to carry: a lower bound too, which may be the higher one.
    pub interface: Picoseconds,
    /// Its flows alone are in this batch.
    pub batch: BatchId,
    /// Its flows.
    pub flows: Vec<FlowId>,
}

impl StartedCollective {
    /// When the last byte of its last flow arrived, or nothing yet.
    #[must_use]
    pub fn end<S: Stage>(&self, engine: &S) -> Option<SimTime> {
        self.flows
            .iter()
            .map(|flow| engine.record(*flow).end)
            .try_fold(self.start, |last, end| end.map(|end| last.max(end)))
    }
    /// Stops all its flows.
    pub fn cancel<S: Stage>(&self, engine: &mut S) {
        for flow in &self.flows {
            engine.cancel_flow(*flow);
        }
    }
    /// Size over time: algorithm bandwidth, bytes a second.
    #[must_use]
    pub fn algorithm_bandwidth(&self, took: Picoseconds) -> f64 {
        self.size.0 as f64 / took.as_secs_f64()
    }
    /// Algorithm bandwidth times [`CollectiveKind::bus_factor`]: bytes a second, comparable over ranks.
    #[must_use]
    pub fn bus_bandwidth(&self, took: Picoseconds) -> f64 {
        self.algorithm_bandwidth(took) * self.kind.bus_factor(self.ranks)
    }
}

/// Why a collective cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveStartError {
    /// Ranks that the collective does not allow.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// A flow that the engine refuses.
    #[error(transparent)]
    Flow(#[from] EngineError),
}

/// Where and when a schedule runs.
#[derive(Clone, Debug)]
pub struct Placement {
    /// By rank: its host.
    pub members: Vec<VertexId>,
    /// How flows of [`NetworkLevel::Inside`] find their way.
    pub inside: Route,
    /// How flows of [`NetworkLevel::Between`] find their way.
    pub between: Route,
    /// The priority of all flows at switches with real queues.
    pub priority: u8,
    /// Not before this.
    pub start: SimTime,
    /// By both ends: how flows between them find their way, where it is another.
    pub ways: BTreeMap<(VertexId, VertexId), Route>,
}

impl Placement {
    /// On these hosts over one kind of route, from the beginning of the run, in the lowest priority.
    #[must_use]
    pub fn new(members: Vec<VertexId>, route: Route) -> Self {
        let (inside, between) = (route.clone(), route);
        let ways = BTreeMap::new();
        Self { members, inside, between, priority: 0, start: SimTime::START, ways }
    }

    /// The same with flows between these ends going these ways.
    #[must_use]
    pub fn along(mut self, ways: BTreeMap<(VertexId, VertexId), Route>) -> Self {
        self.ways = ways;
        self
    }

    /// The same, starting at `start`.
    #[must_use]
    pub fn at(mut self, start: SimTime) -> Self {
        self.start = start;
        self
    }

    /// The same in another priority.
    #[must_use]
    pub fn in_priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Adds the flows of `schedule`.
    ///
    /// # Errors
    /// Flows that the engine refuses. Those before are there.
    ///
    /// # Panics
    /// If the schedule has more ranks than there are members.
    pub fn start<S: Stage>(
        &self,
        schedule: &Schedule,
        stage: &mut S,
    ) -> Result<StartedCollective, CollectiveStartError> {
        let batch = stage.add_batch();
        let mut flows = Vec::with_capacity(schedule.sendings.len());
        for sending in &schedule.sendings {
            let is_there = |awaits: &&Await| awaits.sending < flows.len();
            let earlier = sending.awaits.iter().filter(is_there);
            let gates = earlier.map(|awaits| gate(&flows, awaits)).collect();
            let flow = stage.add_flow(self.flow(sending, gates, batch))?;
            flows.push(flow);
        }
        // Gates on a later sending: round a ring, each flow waits for another.
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

/// How long the link next to a host is busy that has the most to carry, of flows with one path. Both ways round a ring leave
/// a host by one link where a switch joins all of them.
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

/// How long one message of each flow takes on its path while that is idle.
fn times<S: Stage>(stage: &S, flows: &[FlowId], sendings: &[Sending]) -> Vec<MessageTime> {
    let (network, settings) = (stage.network(), stage.settings());
    let time = |(flow, sending): (&FlowId, &Sending)| {
        let (ways, transport) = (stage.ways(*flow), &settings.transport);
        // Packets of several paths have the link in common with which they begin, and no other.
        let one_path = stage.takes_one_path(*flow);
        let in_common = |way: &&[LinkId]| if one_path { way.len() } else { 1 };
        let wires = ways
            .iter()
            .map(|way| wire_time(network, transport, &way[..in_common(way)], sending.message));
        MessageTime {
            arrives: alone(stage, *flow, sending.message),
            occupies: wires.min().unwrap_or_default(),
            ways: ways.len() as u32,
        }
    };
    flows.iter().zip(sendings).map(time).collect()
}

/// How long a message of a flow takes at least on an idle network: exact if it has one path.
fn alone<S: Stage>(stage: &S, flow: FlowId, message: Bytes) -> Picoseconds {
    let (network, settings) = (stage.network(), stage.settings());
    if stage.takes_one_path(flow) {
        return message_time(network, settings, stage.path(flow), message);
    }
    let share = share_of(network, &settings.transport, &stage.ways(flow), message);
    soonest(network, settings, &stage.paths(flow), share)
}
