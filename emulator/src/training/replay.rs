//! Runs a task graph packet by packet.
//!
//! Every ring of the high-bandwidth domain has cables of its own, so nothing outside can disturb a collective
//! on it, and one that starts on an idle ring takes the same time whenever it starts. With
//! [`Reuse::IdleRings`] each kind and size is therefore run packet by packet once for all rings that are
//! built alike, and its time is reused. What makes this exact is checked, not assumed: a collective
//! that would start on a busy ring is refused, and tests compare both ways to the picosecond. What runs over
//! the data-centre network contends and is never reused.

use std::collections::BTreeMap;

use lightloom_fabric::units::{Bytes, Picoseconds, SimTime};

use super::graph::{Task, TaskGraph, TaskId, Work};
use crate::collective::{CollectiveError, Directions, Kind, RingCollective};
use crate::engine::{
    BatchId, Engine, EngineError, Event, FlowSpec, LinkSpec, NetworkBuilder, NetworkError, Plane,
    Role, Route, Settings, VertexId,
};
use crate::topology::{Ring, RingShape};

/// The plane of the high-bandwidth domain.
const DOMAIN: Plane = Plane(0);
/// The plane of the data-centre network.
const ACROSS: Plane = Plane(1);

/// Ranks in rings, and a switch that joins ranks.
#[derive(Clone, Debug)]
pub struct Machine {
    /// How many ranks there are.
    pub ranks: u32,
    /// The ranks of each ring of the high-bandwidth domain, in order; each rank in at most one.
    pub rings: Vec<Vec<u32>>,
    /// A cable of a ring.
    pub ring_link: LinkSpec,
    /// Sets of ranks under one switch of the data-centre network each (rails).
    pub rails: Vec<Vec<u32>>,
    /// A cable to that switch.
    pub rail_link: LinkSpec,
}

/// Whether times are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Every packet of every task runs.
    Never,
    /// A collective on an idle ring runs once for each kind and size.
    IdleRings,
}

/// Why a graph cannot be run on a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The machine's parts do not make a network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A flow that the engine refuses.
    #[error(transparent)]
    Flow(#[from] EngineError),
    /// A collective that cannot be laid out.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// The graph names a rank or ring that the machine lacks.
    #[error("task `{task}` names {what} {index}, and there are {count}")]
    Absent {
        /// The task.
        task: String,
        /// A rank or a ring.
        what: &'static str,
        /// Which.
        index: u32,
        /// How many there are.
        count: usize,
    },
    /// Times on a shared ring cannot be reused.
    #[error(
        "task `{task}` starts on ring {ring} while another collective is on it: run without reuse"
    )]
    BusyRing {
        /// The task.
        task: String,
        /// The ring.
        ring: u32,
    },
}

/// When each task began and ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Beginning and end, by task.
    pub spans: Vec<(SimTime, SimTime)>,
    /// The end of the last task.
    pub end: SimTime,
    /// Packets put on wires.
    pub packet_hops: u64,
    /// Collectives whose time was reused.
    pub reused: u64,
}

/// Runs `graph` on `machine`.
///
/// # Errors
/// If the graph names what the machine lacks, or reuse would not be exact.
pub fn replay(graph: &TaskGraph, machine: &Machine, reuse: Reuse) -> Result<Timeline, ReplayError> {
    let mut run = Run::new(graph, machine, reuse)?;
    run.begin_ready()?;
    while let Some(event) = run.engine.next_event(SimTime(u64::MAX)) {
        match event {
            Event::Timer { token, .. } => run.finish(TaskId(token as u32)),
            Event::BatchDone { batch, at } => {
                let task = run.batches[&batch.0];
                run.spans[task.index()].1 = at;
                run.remember(task, at);
                run.finish(task);
            }
        }
        run.begin_ready()?;
    }
    let end = run.spans.iter().map(|span| span.1).max().unwrap_or(SimTime::START);
    let packet_hops = run.engine.packets().hops;
    Ok(Timeline { spans: run.spans, end, packet_hops, reused: run.reused })
}

struct Run<'g> {
    graph: &'g TaskGraph,
    machine: &'g Machine,
    reuse: Reuse,
    engine: Engine,
    hosts: Vec<VertexId>,
    waiting: Vec<usize>,
    dependents: Vec<Vec<TaskId>>,
    ready: Vec<TaskId>,
    spans: Vec<(SimTime, SimTime)>,
    batches: BTreeMap<u32, TaskId>,
    busy: Vec<bool>,
    /// By ranks of the ring, kind and size: how long it took on an idle ring.
    known: BTreeMap<(usize, &'static str, u64), Picoseconds>,
    /// News of an end travels one shortest link delay, reused or not.
    news: Picoseconds,
    reused: u64,
}

impl<'g> Run<'g> {
    fn new(graph: &'g TaskGraph, machine: &'g Machine, reuse: Reuse) -> Result<Self, ReplayError> {
        let mut builder = NetworkBuilder::new();
        let hosts: Vec<VertexId> = (0..machine.ranks).map(|_| builder.add(Role::Host)).collect();
        let host = |rank: &u32| hosts[*rank as usize];
        for ring in &machine.rings {
            let members: Vec<VertexId> = ring.iter().map(host).collect();
            let shape = if ring.len() > 2 { RingShape::Ring } else { RingShape::Line };
            Ring::build_into(&mut builder, &members, shape, |_| machine.ring_link.in_plane(DOMAIN));
        }
        for rail in &machine.rails {
            let switch = builder.add(Role::Switch);
            for rank in rail {
                builder.connect(host(rank), switch, machine.rail_link.in_plane(ACROSS));
            }
        }
        let network = builder.build()?;
        let news = network.shortest_delay();
        let waiting = graph.waits();
        let ready = (0..waiting.len())
            .filter(|task| waiting[*task] == 0)
            .map(|task| TaskId(task as u32))
            .collect();
        Ok(Self {
            graph,
            machine,
            reuse,
            engine: Engine::new(network, Settings::default())?,
            hosts,
            waiting,
            dependents: graph.dependents(),
            ready,
            spans: vec![(SimTime::START, SimTime::START); graph.tasks().len()],
            batches: BTreeMap::new(),
            busy: vec![false; machine.rings.len()],
            known: BTreeMap::new(),
            news,
            reused: 0,
        })
    }

    fn begin_ready(&mut self) -> Result<(), ReplayError> {
        while let Some(task) = self.ready.pop() {
            self.begin(task)?;
        }
        Ok(())
    }

    fn begin(&mut self, id: TaskId) -> Result<(), ReplayError> {
        let now = self.engine.now();
        self.spans[id.index()] = (now, now);
        let task = &self.graph.tasks()[id.index()];
        match &task.work {
            Work::Compute { took, .. } => {
                self.spans[id.index()].1 = now + *took;
                self.engine.set_timer(now + *took, id.0.into());
            }
            Work::Ring { kind, ring, bytes } => self.begin_ring(id, task, *kind, *ring, *bytes)?,
            Work::Across { kind, ranks, bytes } => {
                let members =
                    ranks.iter().map(|rank| self.host(task, *rank)).collect::<Result<_, _>>()?;
                self.start_ring(id, *kind, members, *bytes, ACROSS, Directions::One)?;
            }
            Work::Transfer { from, to, bytes } => {
                let ends = (self.host(task, *from)?, self.host(task, *to)?);
                let batch = self.engine.add_batch();
                let flow = FlowSpec::new(ends.0, ends.1, *bytes).at(now).in_batch(batch);
                self.engine.add_flow(flow.over(Route::Within(ACROSS)))?;
                self.watch(batch, id);
            }
        }
        Ok(())
    }

    fn begin_ring(
        &mut self,
        id: TaskId,
        task: &Task,
        kind: Kind,
        ring: u32,
        bytes: Bytes,
    ) -> Result<(), ReplayError> {
        let count = self.machine.rings.len();
        let ranks = self.machine.rings.get(ring as usize).ok_or_else(|| ReplayError::Absent {
            task: task.name.clone(),
            what: "ring",
            index: ring,
            count,
        })?;
        if self.reuse == Reuse::IdleRings && self.busy[ring as usize] {
            return Err(ReplayError::BusyRing { task: task.name.clone(), ring });
        }
        self.busy[ring as usize] = true;
        let known = self.known.get(&(ranks.len(), kind.name(), bytes.0)).copied();
        if let Some(took) = known.filter(|_| self.reuse == Reuse::IdleRings) {
            let end = self.engine.now() + took;
            self.spans[id.index()].1 = end;
            self.engine.set_timer(end + self.news, id.0.into());
            self.reused += 1;
            return Ok(());
        }
        let members = ranks.iter().map(|rank| self.hosts[*rank as usize]).collect();
        // A ring of two is one cable: both ways round are the same way.
        let directions = if ranks.len() > 2 { Directions::Both } else { Directions::One };
        self.start_ring(id, kind, members, bytes, DOMAIN, directions)
    }

    fn start_ring(
        &mut self,
        id: TaskId,
        kind: Kind,
        members: Vec<VertexId>,
        size: Bytes,
        plane: Plane,
        directions: Directions,
    ) -> Result<(), ReplayError> {
        let (route, start) = (Route::Within(plane), self.engine.now());
        let ring = RingCollective { kind, members, size, directions, route, start };
        let running = ring.start(&mut self.engine)?;
        self.watch(running.batch, id);
        Ok(())
    }

    fn watch(&mut self, batch: BatchId, task: TaskId) {
        self.batches.insert(batch.0, task);
    }

    fn host(&self, task: &Task, rank: u32) -> Result<VertexId, ReplayError> {
        self.hosts.get(rank as usize).copied().ok_or_else(|| ReplayError::Absent {
            task: task.name.clone(),
            what: "rank",
            index: rank,
            count: self.hosts.len(),
        })
    }

    /// Keeps the time of a collective that ran on a ring.
    fn remember(&mut self, id: TaskId, at: SimTime) {
        if let Work::Ring { kind, ring, bytes } = &self.graph.tasks()[id.index()].work {
            let ranks = self.machine.rings[*ring as usize].len();
            let took = at.since(self.spans[id.index()].0);
            self.known.insert((ranks, kind.name(), bytes.0), took);
        }
    }

    fn finish(&mut self, id: TaskId) {
        if let Work::Ring { ring, .. } = self.graph.tasks()[id.index()].work {
            self.busy[ring as usize] = false;
        }
        for next in &self.dependents[id.index()] {
            self.waiting[next.index()] -= 1;
            if self.waiting[next.index()] == 0 {
                self.ready.push(*next);
            }
        }
    }
}
