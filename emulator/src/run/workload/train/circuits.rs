// SPDX-License-Identifier: Apache-2.0
//! Flow paths and circuit requests of a job whose leaves are connected by optical switches.
//!
//! The job requests the `micro-batches` circuits at the start of a round and the `gradients` circuits
//! after its last pass; reinforcement learning adds `weight-sync` and `parallelism-switch`. During a
//! change, computation continues and network traffic waits.

use std::collections::BTreeMap;

use lightloom_collective::CollectiveKind;
use lightloom_engine::steady::Stage;
use lightloom_engine::{LinkId, Route, VertexId};
use lightloom_fabric::dcn::Dcn;
use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_fabric::plan::RoutePlan;
use lightloom_training::graph::{TaskGraph, TaskId, TaskWork};
use lightloom_training::tasks::TaskPurpose;
use lightloom_units::id::LeafId;
use lightloom_units::{Bytes, Picoseconds};

use super::super::super::RunError;
use super::super::super::context::{Context, Notice};
use super::super::lanes::hops_of;
use super::{TrainTimer, Trainings};
use crate::scenario::CircuitPlan;
use crate::substrate::{DCN, Lane as HopLane, LaneHop, OpticalCircuits, RingCables};

#[derive(Clone)]
pub(crate) struct Circuits<'a> {
    optical: &'a OpticalCircuits,
    rings: &'a RingCables,
    names: Vec<String>,
    routes: BTreeMap<(usize, usize), Vec<RoutePlan>>,
    up: BTreeMap<(usize, usize), Vec<CrossConnect>>,
    under_way: BTreeMap<LeafPort, f64>,
    loads: BTreeMap<(usize, TaskId), Vec<(LeafPort, f64)>>,
    is_changing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LeafPort {
    Circuit(usize, CrossConnect),
    ToCore(usize),
    FromCore(usize),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Phases {
    own: [Option<usize>; NAMES.len()],
    of_task: Vec<usize>,
    count: [usize; NAMES.len()],
    open: [usize; NAMES.len()],
    at: usize,
    asked: bool,
}

const NAMES: [&[&str]; 4] = [
    &["micro-batches", "train+generate"],
    &["gradients"],
    &["weight-sync"],
    &["parallelism-switch"],
];

impl<'a> Circuits<'a> {
    pub(crate) fn new(
        optical: &'a OpticalCircuits,
        rings: &'a RingCables,
        plan: &CircuitPlan,
    ) -> Self {
        Self {
            names: plan.phases.iter().map(|phase| phase.name.clone()).collect(),
            routes: several_hops(plan),
            up: BTreeMap::new(),
            under_way: BTreeMap::new(),
            loads: BTreeMap::new(),
            is_changing: false,
            optical,
            rings,
        }
    }

    fn look(&mut self, context: &Context<'_>) {
        self.up.clear();
        for circuit in &context.circuits_up {
            let pair = (circuit.a.index(), circuit.b.index());
            self.up.entry(pair).or_default().push(*circuit);
        }
    }

    fn leaf(&self, dcn: &Dcn, host: VertexId) -> Option<usize> {
        self.rings.gpu(host).map(|gpu| dcn.leaf_of(gpu).index())
    }

    fn way(
        &mut self,
        context: &Context<'_>,
        (from, to): (VertexId, VertexId),
        (of, bytes): ((usize, TaskId), f64),
    ) -> Option<Route> {
        let dcn = &self.rings.fabric().dcn;
        let (a, b) = (self.leaf(dcn, from)?, self.leaf(dcn, to)?);
        if a == b {
            return Some(Route::Within(DCN));
        }
        let mut ways: Vec<Vec<LaneHop>> = Vec::new();
        ways.extend(self.hop(context, (a, b, false), bytes).map(|hop| vec![hop]));
        ways.extend(self.hop(context, (a, b, true), bytes).map(|hop| vec![hop]));
        let routes = self.routes.get(&(a, b)).map_or(&[][..], Vec::as_slice);
        ways.extend(routes.iter().filter_map(|route| {
            hops_of(route)
                .map(|hop| self.hop(context, hop, bytes))
                .collect::<Option<Vec<LaneHop>>>()
        }));
        let ends = |hops: &Vec<LaneHop>| {
            hops.iter().map(|hop| self.seconds(hop, bytes)).fold(0.0, f64::max)
        };
        let hops = ways.into_iter().min_by(|x, y| ends(x).total_cmp(&ends(y)))?;
        for port in hops.iter().flat_map(ports) {
            *self.under_way.entry(port).or_default() += bytes;
            self.loads.entry(of).or_default().push((port, bytes));
        }
        if let [LaneHop { lane: HopLane::Core, .. }] = hops[..] {
            return Some(Route::Within(DCN));
        }
        let [up, down] = [from, to].map(|host| context.substrate.link_to_leaf(host));
        let over = hops.iter().flat_map(|hop| self.optical.links_of(hop));
        let links = std::iter::once(up?).chain(over).chain([down?.reverse()]);
        Some(Route::Links(links.collect()))
    }

    fn hop(
        &self,
        context: &Context<'_>,
        (from, to, is_core): (usize, usize, bool),
        bytes: f64,
    ) -> Option<LaneHop> {
        if is_core {
            return self.optical.has_core().then_some(LaneHop { from, to, lane: HopLane::Core });
        }
        let circuits = self.up.get(&(from.min(to), from.max(to)))?;
        let carries =
            |one: &&CrossConnect| self.optical.links(one).iter().all(|link| context.carries(*link));
        let hops = circuits.iter().filter(carries);
        let hops = hops.map(|one| LaneHop { from, to, lane: HopLane::Circuit(*one) });
        hops.min_by(|x, y| self.seconds(x, bytes).total_cmp(&self.seconds(y, bytes)))
    }

    fn seconds(&self, hop: &LaneHop, bytes: f64) -> f64 {
        let network = self.optical.network();
        let of_port = |port: LeafPort| {
            let rate = match port {
                LeafPort::Circuit(..) => network.spec().circuit_rate.0 as f64,
                LeafPort::ToCore(leaf) | LeafPort::FromCore(leaf) => {
                    network.electrical_rate_of(LeafId::from_index(leaf))
                }
            };
            (self.under_way.get(&port).copied().unwrap_or(0.0) + bytes) / rate
        };
        ports(hop).map(of_port).fold(0.0, f64::max)
    }

    pub(super) fn unload(&mut self, job: usize, task: TaskId) {
        for (port, bytes) in self.loads.remove(&(job, task)).into_iter().flatten() {
            if let Some(all) = self.under_way.get_mut(&port) {
                *all -= bytes;
            }
        }
    }

    pub(super) fn ways(
        &mut self,
        context: &Context<'_>,
        of: (usize, TaskId),
        (kind, hosts): (Option<CollectiveKind>, &[VertexId]),
        bytes: Bytes,
    ) -> Option<BTreeMap<(VertexId, VertexId), Route>> {
        let count = hosts.len();
        let pairs: Vec<(usize, usize)> = match kind {
            None => vec![(0, 1)],
            Some(CollectiveKind::AllToAll) => (0..count)
                .flat_map(|from| (0..count).filter(move |to| *to != from).map(move |to| (from, to)))
                .collect(),
            Some(_) => (0..count).map(|from| (from, (from + 1) % count)).collect(),
        };
        let senders = if kind.is_some() { count.max(1) } else { 1 };
        let each = bytes.0 as f64 * senders as f64 / pairs.len().max(1) as f64;
        let way = |(from, to): (usize, usize)| {
            let ends = (hosts[from], hosts[to]);
            Some((ends, self.way(context, ends, (of, each))?))
        };
        pairs.into_iter().map(way).collect()
    }

    fn place(&self, job: &str, phase: &str) -> Option<usize> {
        let of_job = format!("{job}/{phase}");
        self.names.iter().position(|name| *name == phase || *name == of_job)
    }
}

fn ports(hop: &LaneHop) -> impl Iterator<Item = LeafPort> + use<> {
    let (out, into) = match hop.lane {
        HopLane::Circuit(circuit) => (LeafPort::Circuit(hop.from, circuit), None),
        HopLane::Core | HopLane::Cable(_) => {
            (LeafPort::ToCore(hop.from), Some(LeafPort::FromCore(hop.to)))
        }
    };
    std::iter::once(out).chain(into)
}

fn several_hops(plan: &CircuitPlan) -> BTreeMap<(usize, usize), Vec<RoutePlan>> {
    let mut routes: BTreeMap<(usize, usize), Vec<RoutePlan>> = BTreeMap::new();
    let all = plan.plan.phases.iter().flat_map(|phase| &phase.routes);
    for route in all.filter(|route| !route.via.is_empty()) {
        routes.entry((route.from.index(), route.to.index())).or_default().push(route.clone());
    }
    routes
}

impl Phases {
    pub(super) fn of(
        circuits: &Circuits<'_>,
        job: &str,
        (graph, dimensions): (&TaskGraph, &[TaskPurpose]),
    ) -> Self {
        let mut of_task = vec![0; dimensions.len()];
        for (at, task) in graph.tasks().iter().enumerate() {
            let follows = task.after.iter().map(|before| of_task[before.index()]).max();
            let own = match dimensions[at] {
                TaskPurpose::Data => 1,
                TaskPurpose::Weights => 2,
                TaskPurpose::Reshard => 3,
                _ => 0,
            };
            of_task[at] = own.max(follows.unwrap_or(0));
        }
        // With sharded weights, replicas communicate in every pass.
        let in_passes = |at: &usize| {
            of_task[*at] > 0
                && matches!(dimensions[*at], TaskPurpose::Tensor | TaskPurpose::Pipeline)
        };
        let mut own = NAMES.map(|names| names.iter().find_map(|phase| circuits.place(job, phase)));
        if (0..dimensions.len()).any(|at| in_passes(&at)) {
            [own[0], own[1]] = [own[1].or(own[0]), None];
        }
        let mut count = [0; NAMES.len()];
        of_task.iter().for_each(|phase| count[*phase] += 1);
        Self { own, of_task, count, ..Self::default() }
    }

    pub(super) fn begin(&mut self) {
        self.open = self.count;
    }

    pub(super) fn recount(&mut self, is_done: impl Fn(TaskId) -> bool) {
        self.open = [0; NAMES.len()];
        for (at, phase) in self.of_task.iter().enumerate() {
            self.open[*phase] += usize::from(!is_done(TaskId(at as u32)));
        }
    }

    pub(super) fn ends(&mut self, task: TaskId) -> bool {
        let Some(phase) = self.of_task.get(task.index()) else { return false };
        self.open[*phase] -= 1;
        self.open[*phase] == 0
    }

    fn first_open(&self) -> usize {
        let last = (0..NAMES.len()).rev().find(|phase| self.count[*phase] > 0);
        (0..NAMES.len()).find(|phase: &usize| self.open[*phase] > 0).or(last).unwrap_or(0)
    }

    pub(super) fn waits_for(&self, task: TaskId) -> usize {
        let own = self.of_task.get(task.index()).copied().unwrap_or(0);
        (1..=own).rev().find(|phase| self.own[*phase].is_some()).unwrap_or(0)
    }

    pub(super) fn is_before(&self, task: TaskId, phase: usize) -> bool {
        self.of_task.get(task.index()).is_some_and(|of| *of < phase)
    }

    pub(super) fn before(&self, phase: usize) -> impl Iterator<Item = TaskId> + '_ {
        let tasks = self.of_task.iter().enumerate();
        tasks.filter(move |(_, of)| **of < phase).map(|(at, _)| TaskId(at as u32))
    }
}

impl Trainings<'_> {
    pub(super) fn waits_for_circuits(&self, job: usize, task: TaskId) -> bool {
        let Some(circuits) = &self.circuits else { return false };
        let training = &self.jobs[job];
        let work = &training.order.graph.tasks()[task.index()].work;
        let phases = &training.phases;
        matches!(work, TaskWork::Across { .. } | TaskWork::Pairs { .. } | TaskWork::Transfer { .. })
            && (circuits.is_changing || phases.asked || phases.waits_for(task) > phases.at)
    }

    pub(super) fn ask(&mut self, context: &mut Context<'_>, job: usize, is_new: bool) {
        let Some(circuits) = &mut self.circuits else { return };
        let training = &mut self.jobs[job];
        let phases = &mut training.phases;
        let at = phases.first_open();
        if circuits.is_changing || (!is_new && at == phases.at) {
            return;
        }
        phases.at = at;
        let Some(phase) = phases.own[at] else { return };
        phases.asked = true;
        let step = training.steps.len() as u32 - 1;
        context.post(Notice::PhaseBegan { step, phase });
        let soon = context.now() + Picoseconds(1);
        self.plan(context, soon, (TrainTimer::Asked, job, 0, 0));
    }

    pub(super) fn answered(
        &mut self,
        context: &mut Context<'_>,
        job: usize,
    ) -> Result<(), RunError> {
        self.jobs[job].phases.asked = false;
        self.retry_held(context, job)
    }

    pub(super) fn circuits_changed(
        &mut self,
        context: &mut Context<'_>,
        notice: &Notice,
    ) -> Result<(), RunError> {
        let Some(circuits) = &mut self.circuits else { return Ok(()) };
        circuits.look(context);
        match notice {
            Notice::ChangeBegan => circuits.is_changing = true,
            Notice::ChangeEnded { began, ended } => {
                circuits.is_changing = false;
                self.jobs.iter_mut().for_each(|job| job.changes.push((*began, *ended)));
                (0..self.jobs.len()).for_each(|job| self.ask(context, job, false));
                return (0..self.jobs.len()).try_for_each(|job| self.retry_held(context, job));
            }
            _ => {}
        }
        (0..self.jobs.len()).try_for_each(|job| self.leave_dark_circuits(context, job))
    }

    fn leave_dark_circuits(
        &mut self,
        context: &mut Context<'_>,
        job: usize,
    ) -> Result<(), RunError> {
        let training = &mut self.jobs[job];
        let is_dark = |link: &LinkId| {
            let is_optical =
                context.substrate.network.link(*link).spec.plane == crate::substrate::OPTICAL;
            is_optical && !context.carries(*link)
        };
        let is_cut = |flow: &lightloom_engine::FlowId| {
            context.engine.record(*flow).end.is_none()
                && context.engine.path(*flow).iter().any(is_dark)
        };
        let cut = training.sending.iter().filter(|(_, sent)| sent.flows.iter().any(is_cut));
        let cut: Vec<TaskId> = cut.map(|(task, _)| *task).collect();
        for task in &cut {
            training.hold(context, *task);
        }
        if cut.is_empty() { Ok(()) } else { self.retry_held(context, job) }
    }
}
