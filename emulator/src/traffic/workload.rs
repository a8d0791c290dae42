//! What is sent: collectives and patterns of flows, laid out in an engine when their turn comes.

use std::sync::Arc;

use lightloom_collective::{
    AllToAll, CollectiveError, Directions, Exchange, HalvingDoubling, Hierarchical, Kind, Ring,
    Schedule, TorusAllReduce, Tree, TreeOperation,
};
use lightloom_engine::collective::{Collective, Placement, StartError, start_bag};
use lightloom_engine::topology::Grid;
use lightloom_engine::{Engine, FlowSpec, Probe, Route, VertexId};
use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Picoseconds};
use rand::RngExt;

use super::flow_file::ListedFlow;
use super::flow_sizes::FlowSizes;
use super::jobs::Ground;

/// Something that hosts do.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name in reports.
    pub name: String,
    /// What it is.
    pub run: Run,
    /// Who takes part, in order of rank.
    pub hosts: Vec<VertexId>,
    /// Its size; of a collective by the convention of NCCL's tests, of a pattern of flows that of each.
    pub bytes: Bytes,
    /// Which ways round its ring, if it goes around one.
    pub directions: Directions,
    /// Its priority at switches with real queues.
    pub priority: u8,
    /// It begins so long after the start of the run, or after what it waits for.
    pub delay: Picoseconds,
    /// Places of the workloads it waits for.
    pub after: Vec<usize>,
    /// How often, one after the other.
    pub repeat: u32,
}

/// What a workload is.
#[derive(Clone, Debug, PartialEq)]
pub enum Run {
    /// Every host sends to one and receives from one: a seeded cycle through all, or the host so many
    /// places further.
    Permutation {
        /// How many places further.
        by: Option<u32>,
    },
    /// Every other host sends to one.
    Incast {
        /// The one.
        into: VertexId,
    },
    /// Everybody has a piece for everybody.
    AllToAll(Exchange),
    /// Everybody ends with the sum.
    AllReduce(AllReduceWay),
    /// Everybody ends with its part of the sum, on a ring.
    ReduceScatter,
    /// Everybody ends with all parts, on a ring.
    AllGather,
    /// From the host in the middle to everybody, down a binary tree.
    Broadcast {
        /// In how many pieces.
        pieces: u32,
    },
    /// All-to-all by binary exchange, circuits switched between steps.
    CircuitExchange,
    /// Flows of a table.
    Flows(Arc<[ListedFlow]>),
    /// Flows at random.
    Random {
        /// How large.
        sizes: FlowSizes,
        /// Share of a host's first cable that they use.
        load: f64,
        /// For how long new ones begin.
        lasts: Picoseconds,
    },
    /// Nothing is sent for so long.
    Compute(Picoseconds),
}

/// How an all-reduce goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllReduceWay {
    /// Around the hosts in order of rank, both ways.
    Ring,
    /// Up and down a binary tree.
    Tree,
    /// Two trees at once.
    DoubleTree,
    /// Recursive halving and doubling.
    HalvingDoubling,
    /// Along all dimensions of a torus at once.
    Torus,
    /// Inside groups of so many hosts, then between equal ranks of all groups, then inside again.
    Hierarchical {
        /// Hosts of a group.
        of: u32,
    },
}

/// Pieces that go through a tree.
const TREE_PIECES: u32 = 16;

impl Run {
    /// How it is called in results.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Permutation { .. } => "permutation",
            Self::Incast { .. } => "incast",
            Self::AllToAll(_) => Kind::AllToAll.name(),
            Self::AllReduce(_) => Kind::AllReduce.name(),
            Self::ReduceScatter => Kind::ReduceScatter.name(),
            Self::AllGather => Kind::AllGather.name(),
            Self::Broadcast { .. } => Kind::Broadcast.name(),
            Self::CircuitExchange => "circuit-exchange",
            Self::Flows(_) | Self::Random { .. } => Kind::Flows.name(),
            Self::Compute(_) => "compute",
        }
    }

    /// NCCL's factor from algorithm to bus bandwidth over so many ranks.
    #[must_use]
    pub fn bus_factor(&self, ranks: usize) -> f64 {
        let kind = match self {
            Self::AllToAll(_) | Self::CircuitExchange => Kind::AllToAll,
            Self::AllReduce(_) => Kind::AllReduce,
            Self::ReduceScatter => Kind::ReduceScatter,
            Self::AllGather => Kind::AllGather,
            _ => return 1.0,
        };
        kind.bus_factor(ranks)
    }

    /// Whether it needs to be told a size.
    #[must_use]
    pub fn has_size(&self) -> bool {
        !matches!(self, Self::Flows(_) | Self::Random { .. } | Self::Compute(_))
    }
}

impl Workload {
    /// Whether it goes around one ring.
    #[must_use]
    pub const fn is_ring(run: &Run) -> bool {
        matches!(run, Run::ReduceScatter | Run::AllGather | Run::AllReduce(AllReduceWay::Ring))
    }

    /// The priorities that its flows have.
    #[must_use]
    pub fn priorities(&self) -> Vec<u8> {
        match &self.run {
            Run::Compute(_) => Vec::new(),
            Run::Flows(rows) => {
                rows.iter().map(|row| row.priority.unwrap_or(self.priority)).collect()
            }
            _ => vec![self.priority],
        }
    }

    /// Adds its flows to `engine`, to begin now. `round` counts its repetitions.
    ///
    /// # Errors
    /// What a collective or the engine refuses.
    ///
    /// # Panics
    /// For what is no bundle of flows: a computation, an exchange over circuits.
    pub(super) fn start<P: Probe>(
        &self,
        engine: &mut Engine<P>,
        seed: Seed,
        ground: &Ground<'_>,
    ) -> Result<Collective, StartError> {
        if let Some(schedule) = self.schedule(ground)? {
            let placement = Placement::new(self.hosts_of(ground), ground.route.clone())
                .at(engine.now())
                .in_priority(self.priority);
            return placement.start(&schedule, engine);
        }
        let over = |flow: FlowSpec| flow.over(ground.route.clone());
        let flows = self.flows(engine, seed, &ground.route).into_iter().map(over).collect();
        start_bag(engine, flows)
    }

    /// What its ranks send, where it is a collective.
    fn schedule(&self, ground: &Ground<'_>) -> Result<Option<Schedule>, CollectiveError> {
        let (ranks, size, directions) = (self.hosts.len(), self.bytes, self.directions);
        let ring = |kind| Ring { kind, ranks, size, directions }.schedule();
        let tree = |operation, pieces| Tree { operation, ranks, size, pieces }.schedule();
        match &self.run {
            Run::AllToAll(exchange) => AllToAll { ranks, size, exchange: *exchange }.schedule(),
            Run::AllReduce(AllReduceWay::Ring) => ring(Kind::AllReduce),
            Run::ReduceScatter => ring(Kind::ReduceScatter),
            Run::AllGather => ring(Kind::AllGather),
            Run::AllReduce(AllReduceWay::Tree) => tree(TreeOperation::AllReduce, TREE_PIECES),
            Run::AllReduce(AllReduceWay::DoubleTree) => {
                tree(TreeOperation::DoubleAllReduce, TREE_PIECES)
            }
            Run::Broadcast { pieces } => tree(TreeOperation::Broadcast, *pieces),
            Run::AllReduce(AllReduceWay::HalvingDoubling) => {
                HalvingDoubling { ranks, size }.schedule()
            }
            Run::AllReduce(AllReduceWay::Hierarchical { of }) => {
                let groups = self.hosts.chunks(*of as usize).map(<[VertexId]>::len).collect();
                Hierarchical { groups, size }.schedule()
            }
            Run::AllReduce(AllReduceWay::Torus) => {
                let rings = ground.grid.map_or_else(Vec::new, rings_of);
                TorusAllReduce { rings, size }.schedule()
            }
            _ => return Ok(None),
        }
        .map(Some)
    }

    /// By rank: its host. On a grid, ranks are its places.
    fn hosts_of(&self, ground: &Ground<'_>) -> Vec<VertexId> {
        match (&self.run, ground.grid) {
            (Run::AllReduce(AllReduceWay::Torus), Some(grid)) => grid.hosts.clone(),
            _ => self.hosts.clone(),
        }
    }

    /// The flows of a pattern.
    fn flows<P: Probe>(&self, engine: &Engine<P>, seed: Seed, route: &Route) -> Vec<FlowSpec> {
        let now = engine.now();
        let pair = |source: VertexId, destination: VertexId| FlowSpec {
            priority: self.priority,
            ..FlowSpec::new(source, destination, self.bytes).at(now)
        };
        match &self.run {
            Run::Permutation { by } => {
                let to = by.map_or_else(|| cycle(self.hosts.len(), seed), |by| self.further(by));
                self.hosts.iter().zip(to).map(|(host, to)| pair(*host, self.hosts[to])).collect()
            }
            Run::Incast { into } => {
                let others = self.hosts.iter().filter(|host| *host != into);
                others.map(|host| pair(*host, *into)).collect()
            }
            Run::Flows(rows) => {
                let flow = |row: &ListedFlow| FlowSpec {
                    priority: row.priority.unwrap_or(self.priority),
                    ..FlowSpec::new(row.source, row.destination, row.bytes).at(now + row.start)
                };
                rows.iter().map(flow).collect()
            }
            Run::Random { sizes, load, lasts } => {
                let network = engine.network();
                let cables =
                    network.outgoing(self.hosts[0]).iter().map(|at| network.link(*at).spec);
                let mut usable = cables.filter(|spec| match route {
                    Route::Within(plane) => spec.plane == *plane,
                    _ => true,
                });
                let rate = usable.next().expect("hosts have cables").rate;
                let mut flows = sizes.flows((seed, &self.hosts), (*load, rate), (now, *lasts));
                flows.iter_mut().for_each(|flow| flow.priority = self.priority);
                flows
            }
            _ => unreachable!("collectives and computations are no patterns of flows"),
        }
    }

    fn further(&self, by: u32) -> Vec<usize> {
        let count = self.hosts.len();
        (0..count).map(|place| (place + by as usize) % count).collect()
    }
}

/// A seeded cycle through all places (Sattolo: "An algorithm to generate a random cyclic permutation",
/// Information Processing Letters 22, 1986).
fn cycle(count: usize, seed: Seed) -> Vec<usize> {
    let mut draws = seed.stream("permutation", 0);
    let mut to: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        let other: f64 = draws.random();
        to.swap(last, (other * last as f64) as usize);
    }
    to
}

/// By dimension with more than one host: its rings, of places.
fn rings_of(grid: &Grid) -> Vec<Vec<Vec<usize>>> {
    let long = (0..grid.sides.len()).filter(|dimension| grid.sides[*dimension] > 1);
    long.map(|dimension| grid.rings(dimension)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_visits_everybody_once() {
        for count in [2, 3, 8, 100] {
            let to = cycle(count, Seed(count as u64));
            let mut at = 0;
            for _ in 1..count {
                at = to[at];
                assert_ne!(at, 0, "the cycle closes too early");
            }
            assert_eq!(to[at], 0);
        }
    }
}
