//! Ring collectives: every rank passes pieces on to its neighbour.
//!
//! ```text
//!   reduce-scatter and all-gather: N-1 steps; all-reduce: both, 2(N-1) steps (Patarasuk, Yuan:
//!   "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009, section 3)
//!
//!      ┌─▶ r0 ──▶ r1 ──▶ r2 ─┐    one flow per rank and direction; its message k (the piece of
//!      └──────── r3 ◀────────┘    step k) goes when message k-1 has come from the neighbour behind
//! ```
//! With both directions each carries half, at the same time.

use lightloom_units::{Bytes, Picoseconds, SimTime};

use super::{Collective, CollectiveError, Kind, part_of};
use lightloom_engine::steady::Stage;
use lightloom_engine::{BatchId, FlowId, FlowSpec, Gate, Route, VertexId};
use lightloom_engine::{message_time, wire_time};

/// Which ways round the ring is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Directions {
    /// From each member to the next.
    One,
    /// Both, half of the data each way.
    #[default]
    Both,
}

impl Directions {
    const fn count(self) -> u64 {
        match self {
            Self::One => 1,
            Self::Both => 2,
        }
    }
}

/// A collective around a ring.
#[derive(Clone, Debug)]
pub struct RingCollective {
    /// What it computes.
    pub kind: Kind,
    /// The ranks in ring order.
    pub members: Vec<VertexId>,
    /// See [`super`].
    pub size: Bytes,
    /// Which ways round.
    pub directions: Directions,
    /// How flows between neighbours find their way.
    pub route: Route,
    /// Their priority at switches with real queues.
    pub priority: u8,
    /// Not before this.
    pub start: SimTime,
}

impl RingCollective {
    /// Messages that each rank sends each way.
    fn steps(&self) -> u32 {
        let once = self.members.len() as u32 - 1;
        if self.kind == Kind::AllReduce { 2 * once } else { once }
    }
    /// The piece of one step, one way.
    fn piece(&self) -> Bytes {
        part_of(self.size, self.members.len() as u64 * self.directions.count())
    }

    /// Adds the collective's flows to `engine`.
    ///
    /// # Errors
    /// Fewer than two members, or flows that the engine refuses.
    pub fn start<S: Stage>(&self, engine: &mut S) -> Result<Collective, CollectiveError> {
        let batch = engine.add_batch();
        let waits = vec![Vec::new(); self.members.len()];
        let laid = self.lay_out(engine, batch, &waits)?;
        Ok(Collective {
            kind: self.kind,
            ranks: self.members.len(),
            size: self.size,
            start: self.start,
            ideal: laid.ideal,
            batch,
            flows: laid.flows,
        })
    }

    /// Adds the flows; those of rank `r` wait for all of `waits[r]`.
    pub(super) fn lay_out<S: Stage>(
        &self,
        engine: &mut S,
        batch: BatchId,
        waits: &[Vec<FlowId>],
    ) -> Result<Laid, CollectiveError> {
        let ranks = self.members.len();
        if ranks < 2 {
            return Err(CollectiveError::TooFewRanks { ranks });
        }
        let mut laid =
            Laid { ideal: Picoseconds::ZERO, flows: Vec::new(), into: vec![Vec::new(); ranks] };
        for direction in 0..self.directions.count() {
            let step = if direction == 0 { 1 } else { ranks - 1 };
            let next = |rank: usize| (rank + step) % ranks;
            let first = laid.flows.len();
            for (rank, waits) in waits.iter().enumerate() {
                let flow = FlowSpec {
                    messages: self.steps(),
                    priority: self.priority,
                    batch: Some(batch),
                    gates: waits.iter().map(|flow| Gate::after(*flow)).collect(),
                    ..FlowSpec::new(self.members[rank], self.members[next(rank)], self.piece())
                        .at(self.start)
                        .over(self.route.clone())
                };
                let flow = engine.add_flow(flow)?;
                laid.flows.push(flow);
                laid.into[next(rank)].push(flow);
            }
            for rank in 0..ranks {
                let behind = laid.flows[first + rank];
                engine.add_gate(laid.flows[first + next(rank)], Gate { flow: behind, ahead: 1 })?;
            }
            laid.ideal = laid.ideal.max(self.ideal(engine, &laid.flows[first..], next));
        }
        Ok(laid)
    }

    /// The longest of: a piece passed on step by step from any rank; all pieces over any one edge.
    fn ideal<S: Stage>(
        &self,
        engine: &S,
        flows: &[FlowId],
        next: impl Fn(usize) -> usize,
    ) -> Picoseconds {
        let (network, settings) = (engine.network(), engine.settings());
        let edge = |flow: &FlowId| {
            let path = engine.path(*flow);
            let time = message_time(network, settings, path, self.piece());
            (time, wire_time(network, &settings.transport, path, self.piece()))
        };
        let edges: Vec<_> = flows.iter().map(edge).collect();
        let steps = self.steps() as usize;
        let (rounds, rest) = (steps / edges.len(), steps % edges.len());
        let around: Picoseconds = edges.iter().map(|(time, _)| *time).sum();
        let from = |start: usize| {
            let places = std::iter::successors(Some(start), |place| Some(next(*place))).take(rest);
            around * rounds as u64 + places.map(|place| edges[place].0).sum()
        };
        let chains = (0..edges.len()).map(from);
        let single = edges.iter().map(|(time, wire)| *time + *wire * (steps as u64 - 1));
        chains.chain(single).max().unwrap_or_default()
    }
}

/// Flows of a ring.
pub(super) struct Laid {
    pub(super) ideal: Picoseconds,
    pub(super) flows: Vec<FlowId>,
    /// By rank: the flows that end there.
    pub(super) into: Vec<Vec<FlowId>>,
}
