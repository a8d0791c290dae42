// SPDX-License-Identifier: Apache-2.0
//! Runs a task graph packet by packet.
//!
//! Every ring of the high-bandwidth domain has cables of its own, so nothing outside can disturb a collective
//! on it, and one that starts on an idle ring takes the same time whenever it starts. With
//! [`Reuse::IdleRings`] each kind and size is therefore run packet by packet once for all rings that are
//! built alike, and its time is reused. What makes this exact is checked, not assumed: a collective
//! that would start on a busy ring is refused, and tests compare both ways to the picosecond. What runs over
//! the data-centre network contends and is never reused.

use std::collections::BTreeMap;

use lightloom_collective::{Directions, Kind, Ring};
use lightloom_engine::collective::{Placement, StartError};
use lightloom_engine::{
    BatchId, Engine, EngineError, Event, FlowSpec, NetworkError, Plane, Route, Settings, VertexId,
};
use lightloom_training::graph::{Schedule, Task, TaskGraph, TaskId, Work};
use lightloom_training::machine::{Domain, Machine};
use lightloom_units::{Bytes, Picoseconds, SimTime};

use super::network::{self, ACROSS, DOMAIN};

/// Whether times are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Every packet of every task runs.
    Never,
    /// A collective on an idle ring runs once for each kind and size.
    IdleRings,
    /// The same, but the second, fourth, eighth … use of a time runs packet by packet nevertheless, and must take it.
    Checked,
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
    Collective(#[from] StartError),
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
    /// A collective that was run again took another time than the first.
    #[error("task `{task}` took {now} on an idle ring, where its like took {first}")]
    Changed {
        /// The task.
        task: String,
        /// What it took when it first ran.
        first: Picoseconds,
        /// What it took now.
        now: Picoseconds,
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
    /// Collectives that ran again to check the time that is reused.
    pub checked: u64,
}

/// Runs `graph` on `machine`; `seen` hears of each task that ends.
///
/// # Errors
/// If the graph names what the machine lacks, or reuse would not be exact.
pub fn replay_watched(
    graph: &TaskGraph,
    machine: &Machine,
    reuse: Reuse,
    seen: &mut dyn FnMut(TaskId),
) -> Result<Timeline, ReplayError> {
    let mut run = Run::new(graph, machine, reuse)?;
    run.begin_ready()?;
    while let Some(event) = run.engine.next_event(SimTime(u64::MAX)) {
        let task = match event {
            Event::Timer { token, .. } => TaskId(token as u32),
            Event::BatchDone { batch, at } => {
                let task = run.batches[&batch.0];
                run.spans[task.index()].1 = at;
                run.remember(task, at)?;
                task
            }
        };
        run.finish(task);
        seen(task);
        run.begin_ready()?;
    }
    let end = run.spans.iter().map(|span| span.1).max().unwrap_or(SimTime::START);
    let packet_hops = run.engine.packets().hops;
    let Run { spans, reused, checked, .. } = run;
    Ok(Timeline { spans, end, packet_hops, reused, checked })
}

/// Runs `graph` on `machine`.
///
/// # Errors
/// If the graph names what the machine lacks, or reuse would not be exact.
pub fn replay(graph: &TaskGraph, machine: &Machine, reuse: Reuse) -> Result<Timeline, ReplayError> {
    replay_watched(graph, machine, reuse, &mut |_| ())
}

/// How long the collectives of one kind take on rings of one length.
#[derive(Clone, Copy)]
struct Known {
    took: Picoseconds,
    uses: u64,
}

struct Run<'g> {
    graph: &'g TaskGraph,
    machine: &'g Machine,
    reuse: Reuse,
    engine: Engine,
    hosts: Vec<VertexId>,
    schedule: Schedule,
    ready: Vec<TaskId>,
    spans: Vec<(SimTime, SimTime)>,
    batches: BTreeMap<u32, TaskId>,
    busy: Vec<bool>,
    /// By rank: its ring and the switch of its domain.
    ring_of: Vec<Option<u32>>,
    domain_of: Vec<Option<u32>>,
    /// By ranks of the ring, kind and size: how long it took on an idle ring.
    known: BTreeMap<(usize, &'static str, u64), Known>,
    /// News of an end travels one shortest link delay, reused or not.
    news: Picoseconds,
    reused: u64,
    checked: u64,
}

impl<'g> Run<'g> {
    fn new(graph: &'g TaskGraph, machine: &'g Machine, reuse: Reuse) -> Result<Self, ReplayError> {
        let (network, hosts) = network::network(machine)?;
        let news = network.shortest_delay();
        let schedule = Schedule::of(graph);
        Ok(Self {
            graph,
            machine,
            reuse,
            engine: Engine::new(network, Settings::default())?,
            hosts,
            ready: schedule.ready(),
            schedule,
            spans: vec![(SimTime::START, SimTime::START); graph.tasks().len()],
            batches: BTreeMap::new(),
            busy: vec![false; machine.rings.len()],
            ring_of: machine.ring_of(),
            domain_of: machine.domain_of(),
            known: BTreeMap::new(),
            news,
            reused: 0,
            checked: 0,
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
                self.begin_across(id, task, *kind, ranks, *bytes)?
            }
            Work::Transfer { from, to, bytes } => {
                let ends = (self.host(task, *from)?, self.host(task, *to)?);
                // Two ranks under one switch of the domain meet there; neighbours in a ring of cables may not.
                let domain = |rank: &u32| self.domain_of.get(*rank as usize).copied().flatten();
                let is_inside = domain(from).is_some() && domain(from) == domain(to);
                let plane = if is_inside { DOMAIN } else { ACROSS };
                let batch = self.engine.add_batch();
                let flow = FlowSpec::new(ends.0, ends.1, *bytes).at(now).in_batch(batch);
                self.engine.add_flow(flow.over(Route::Within(plane)))?;
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
        self.occupy(task, ring)?;
        let key = (ranks.len(), kind.name(), bytes.0);
        if let Some(known) = self.known.get_mut(&key).filter(|_| self.reuse != Reuse::Never) {
            known.uses += 1;
            if self.reuse == Reuse::IdleRings || !known.uses.is_power_of_two() {
                let end = self.engine.now() + known.took;
                self.spans[id.index()].1 = end;
                self.engine.set_timer(end + self.news, id.0.into());
                self.reused += 1;
                return Ok(());
            }
        }
        let members = ranks.iter().map(|rank| self.hosts[*rank as usize]).collect();
        // A ring of two is one cable: both ways round are the same way. Behind a switch one way fills the cables.
        let is_wired = self.machine.domain == Domain::Cables && ranks.len() > 2;
        let directions = if is_wired { Directions::Both } else { Directions::One };
        self.start_ring(id, kind, members, bytes, DOMAIN, directions)
    }

    /// What is reused must be alone on its ring.
    fn occupy(&mut self, task: &Task, ring: u32) -> Result<(), ReplayError> {
        if self.reuse != Reuse::Never && self.busy[ring as usize] {
            return Err(ReplayError::BusyRing { task: task.name.clone(), ring });
        }
        self.busy[ring as usize] = true;
        Ok(())
    }

    fn begin_across(
        &mut self,
        id: TaskId,
        task: &Task,
        kind: Kind,
        ranks: &[u32],
        bytes: Bytes,
    ) -> Result<(), ReplayError> {
        let members: Vec<VertexId> =
            ranks.iter().map(|rank| self.host(task, *rank)).collect::<Result<_, _>>()?;
        let domain = |rank: &u32| self.domain_of[*rank as usize];
        let is_inside = domain(&ranks[0]).is_some_and(|first| {
            kind != Kind::AllToAll && ranks.iter().all(|rank| domain(rank) == Some(first))
        });
        for ring in self.rings_inside(ranks) {
            self.occupy(task, ring)?;
        }
        if kind == Kind::AllToAll {
            return self.start_all_to_all(id, ranks, bytes);
        }
        let plane = if is_inside { DOMAIN } else { ACROSS };
        self.start_ring(id, kind, members, bytes, plane, Directions::One)
    }

    /// The rings of those of `ranks` that share a switched domain with another of them.
    fn rings_inside(&self, ranks: &[u32]) -> Vec<u32> {
        let domain = |rank: &u32| self.domain_of[*rank as usize];
        let mut rings: Vec<u32> = ranks
            .iter()
            .filter(|rank| domain(rank).is_some())
            .filter(|rank| {
                ranks.iter().any(|other| other != *rank && domain(other) == domain(rank))
            })
            .filter_map(|rank| self.ring_of[*rank as usize])
            .collect();
        rings.sort_unstable();
        rings.dedup();
        rings
    }

    /// Every piece at once, each over the domain's switch where both ends share one.
    fn start_all_to_all(
        &mut self,
        id: TaskId,
        ranks: &[u32],
        size: Bytes,
    ) -> Result<(), ReplayError> {
        let (batch, now, count) = (self.engine.add_batch(), self.engine.now(), ranks.len());
        let even = size.0 as f64 / count as f64;
        let extra = even * self.machine.expert_imbalance;
        for (place, from) in ranks.iter().enumerate() {
            for step in 1..count {
                let other = (place + step) % count;
                let to = ranks[other];
                let piece = match other {
                    0 => even + extra,
                    _ => even - extra / (count as f64 - 1.0),
                };
                let domain = |rank: u32| self.domain_of[rank as usize];
                let is_inside = domain(*from).is_some() && domain(*from) == domain(to);
                let plane = if is_inside { DOMAIN } else { ACROSS };
                let ends = (self.hosts[*from as usize], self.hosts[to as usize]);
                let flow = FlowSpec::new(ends.0, ends.1, Bytes(piece.max(1.0) as u64)).at(now);
                self.engine.add_flow(flow.in_batch(batch).over(Route::Within(plane)))?;
            }
        }
        self.watch(batch, id);
        Ok(())
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
        let ring = Ring { kind, ranks: members.len(), size, directions };
        let schedule = ring.schedule().map_err(StartError::from)?;
        let placement = Placement::new(members, Route::Within(plane)).at(self.engine.now());
        let running = placement.start(&schedule, &mut self.engine)?;
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

    /// Keeps the time of a collective that ran on a ring, or checks the one that is kept.
    fn remember(&mut self, id: TaskId, at: SimTime) -> Result<(), ReplayError> {
        let task = &self.graph.tasks()[id.index()];
        let Work::Ring { kind, ring, bytes } = &task.work else { return Ok(()) };
        let ranks = self.machine.rings[*ring as usize].len();
        let now = at.since(self.spans[id.index()].0);
        let first = Known { took: now, uses: 1 };
        let known = self.known.entry((ranks, kind.name(), bytes.0)).or_insert(first);
        if self.reuse != Reuse::Never && known.took != now {
            let (task, first) = (task.name.clone(), known.took);
            return Err(ReplayError::Changed { task, first, now });
        }
        self.checked += u64::from(self.reuse == Reuse::Checked && known.uses > 1);
        Ok(())
    }

    fn finish(&mut self, id: TaskId) {
        match &self.graph.tasks()[id.index()].work {
            Work::Ring { ring, .. } => self.busy[*ring as usize] = false,
            Work::Across { ranks, .. } => {
                for ring in self.rings_inside(ranks) {
                    self.busy[ring as usize] = false;
                }
            }
            Work::Compute { .. } | Work::Transfer { .. } => {}
        }
        self.ready.extend(self.schedule.finish(id));
    }
}
