//! A collective while it is laid out: adds flows in an order in which each comes after those it waits
//! for, and then tells the longest chain of waiting.

use lightloom_units::{Bytes, Picoseconds, SimTime};
use rustc_hash::FxHashMap;

use super::{Collective, CollectiveError, Kind};
use lightloom_engine::{BatchId, Engine, FlowId, FlowSpec, Gate, Probe, Route, VertexId};
use lightloom_engine::{message_time, wire_time};

pub(super) struct Draft<'a, P> {
    engine: &'a mut Engine<P>,
    members: &'a [VertexId],
    route: &'a Route,
    priority: u8,
    start: SimTime,
    batch: BatchId,
    flows: Vec<Drawn>,
}

struct Drawn {
    flow: FlowId,
    message: Bytes,
    messages: u32,
    gates: Vec<Gate>,
}

impl<'a, P: Probe> Draft<'a, P> {
    pub(super) fn new(
        engine: &'a mut Engine<P>,
        members: &'a [VertexId],
        (route, priority): (&'a Route, u8),
        start: SimTime,
    ) -> Result<Self, CollectiveError> {
        if members.len() < 2 {
            return Err(CollectiveError::TooFewRanks { ranks: members.len() });
        }
        let batch = engine.add_batch();
        Ok(Self { engine, members, route, priority, start, batch, flows: Vec::new() })
    }

    /// Adds `messages` messages of `message` from one rank to another.
    pub(super) fn flow(
        &mut self,
        (from, to): (usize, usize),
        (message, messages): (Bytes, u32),
        gates: Vec<Gate>,
    ) -> Result<FlowId, CollectiveError> {
        let flow = self.engine.add_flow(FlowSpec {
            messages,
            priority: self.priority,
            gates: gates.clone(),
            batch: Some(self.batch),
            ..FlowSpec::new(self.members[from], self.members[to], message)
                .at(self.start)
                .over(self.route.clone())
        })?;
        self.flows.push(Drawn { flow, message, messages, gates });
        Ok(flow)
    }

    pub(super) fn finish(self, kind: Kind, size: Bytes) -> Collective {
        Collective {
            kind,
            ranks: self.members.len(),
            size,
            start: self.start,
            ideal: self.longest_chain(),
            batch: self.batch,
            flows: self.flows.iter().map(|drawn| drawn.flow).collect(),
        }
    }

    /// When the last message would arrive if messages met nobody but those of their own flow:
    /// message `k` arrives at the later of (what it waits for) + its time over the path, and (message
    /// `k-1` of the flow) + its time on the slowest link.
    fn longest_chain(&self) -> Picoseconds {
        let (network, settings) = (self.engine.network(), self.engine.settings());
        let times: Vec<_> = self
            .flows
            .iter()
            .map(|drawn| {
                let path = self.engine.path(drawn.flow);
                let alone = message_time(network, settings, path, drawn.message);
                (alone, wire_time(network, &settings.transport, path, drawn.message))
            })
            .collect();
        let places: FxHashMap<FlowId, usize> =
            self.flows.iter().enumerate().map(|(place, drawn)| (drawn.flow, place)).collect();
        let mut arrivals: Vec<Vec<Picoseconds>> = vec![Vec::new(); self.flows.len()];
        let rounds = self.flows.iter().map(|drawn| drawn.messages).max().unwrap_or(0);
        for k in 0..rounds {
            for (place, drawn) in self.flows.iter().enumerate().filter(|(_, d)| k < d.messages) {
                let ready = drawn.gates.iter().map(|gate| {
                    let awaited = &arrivals[places[&gate.flow]];
                    let needed =
                        (i64::from(k) - i64::from(gate.ahead)).min(awaited.len() as i64 - 1);
                    usize::try_from(needed).map_or(Picoseconds::ZERO, |needed| awaited[needed])
                });
                let (alone, wire) = times[place];
                let after_gates = ready.max().unwrap_or_default() + alone;
                let after_last = arrivals[place].last().map_or(Picoseconds::ZERO, |at| *at + wire);
                arrivals[place].push(after_gates.max(after_last));
            }
        }
        arrivals.iter().filter_map(|flow| flow.last()).copied().max().unwrap_or_default()
    }
}
