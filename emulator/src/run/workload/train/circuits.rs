// SPDX-License-Identifier: Apache-2.0
//! Ways of a job's flows where optical switches join leaves, and when it asks for the circuits of its phases.
//!
//! ```text
//!   round begins ──▶ phase `micro-batches` ──change──▶ exchange   last pass ──▶ phase `gradients` ──change──▶ DP exchange
//! ```
//! Computing goes on during a change; what would cross the network waits for its end.

use std::collections::BTreeMap;

use lightloom_collective::CollectiveKind;
use lightloom_engine::steady::Stage;
use lightloom_engine::{LinkId, Route, VertexId};
use lightloom_fabric::dcn::Dcn;
use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_fabric::plan::RoutePlan;
use lightloom_training::graph::{TaskGraph, TaskId, TaskWork};
use lightloom_training::step_graph::TaskPurpose;
use lightloom_units::id::LeafId;
use lightloom_units::{Bytes, Picoseconds};

use super::super::super::RunError;
use super::super::super::context::{Context, Notice};
use super::super::lanes::hops_of;
use super::{TrainTimer, Trainings};
use crate::scenario::CircuitPlan;
use crate::substrate::{DCN, Lane as HopLane, LaneHop, OpticalCircuits, RingCables};

/// Circuits between leaves, as jobs use them.
#[derive(Clone)]
pub(crate) struct Circuits<'a> {
    optical: &'a OpticalCircuits,
    rings: &'a RingCables,
    names: Vec<String>,
    /// By first and last leaf: the routes over several hops that phases of the plan have.
    routes: BTreeMap<(usize, usize), Vec<RoutePlan>>,
    /// By lower and higher leaf: the circuits that carry traffic now.
    up: BTreeMap<(usize, usize), Vec<CrossConnect>>,
    /// Bytes of exchanges under way from a leaf over a circuit, or into the core.
    under_way: BTreeMap<LeafExit, f64>,
    /// By job and task: where its bytes are under way.
    loads: BTreeMap<(usize, TaskId), Vec<(LeafExit, f64)>>,
    is_changing: bool,
}

/// Out of a leaf: over a circuit, or into the core.
type LeafExit = (usize, Option<CrossConnect>);

/// The phases of one job and how far it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Phases {
    /// Phases of the plan: that of the micro-batches, and that of the gradients. `None` if it sends nothing.
    own: [Option<usize>; 2],
    /// By task: whether it comes before the gradients.
    pub(super) is_before: Vec<bool>,
    /// Tasks before the gradients that are not done.
    pub(super) open: usize,
    /// It is at the gradients.
    at_gradients: bool,
    /// It has asked for circuits, and does not know yet whether they change.
    asked: bool,
}

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

    /// Notes which circuits carry traffic now.
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

    /// The way of a flow of so many bytes: over the circuit, the core, or the route of the plan, that is through with what is
    /// under way and with it first. `None` while there is none.
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
        for hop in &hops {
            *self.under_way.entry(lane(hop)).or_default() += bytes;
            self.loads.entry(of).or_default().push((lane(hop), bytes));
        }
        if let [LaneHop { lane: HopLane::Core, .. }] = hops[..] {
            return Some(Route::Within(DCN));
        }
        let [up, down] = [from, to].map(|host| context.substrate.link_to_leaf(host));
        let over = hops.iter().flat_map(|hop| self.optical.links_of(hop));
        let links = std::iter::once(up?).chain(over).chain([down?.reverse()]);
        Some(Route::Links(links.collect()))
    }

    /// One hop from leaf to leaf: over the core, or over the circuit that is through first. `None` while there is none.
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

    /// Seconds until a hop is through with what is under way and with so many bytes more.
    fn seconds(&self, hop: &LaneHop, bytes: f64) -> f64 {
        let network = self.optical.network();
        let rate = match hop.lane {
            HopLane::Circuit(_) | HopLane::Cable(_) => network.spec().circuit_rate.0 as f64,
            HopLane::Core => network.electrical_rate_of(LeafId::from_index(hop.from)),
        };
        (self.under_way.get(&lane(hop)).copied().unwrap_or(0.0) + bytes) / rate
    }

    /// An exchange has ended, or was given up.
    pub(super) fn unload(&mut self, job: usize, task: TaskId) {
        for (lane, bytes) in self.loads.remove(&(job, task)).into_iter().flatten() {
            if let Some(all) = self.under_way.get_mut(&lane) {
                *all -= bytes;
            }
        }
    }

    /// The ways of an exchange between hosts. `None` while some of them has none.
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

/// Where a hop leaves its leaf.
fn lane(hop: &LaneHop) -> LeafExit {
    match hop.lane {
        HopLane::Circuit(circuit) => (hop.from, Some(circuit)),
        HopLane::Core | HopLane::Cable(_) => (hop.from, None),
    }
}

/// The routes of a plan that pass through other leaves.
fn several_hops(plan: &CircuitPlan) -> BTreeMap<(usize, usize), Vec<RoutePlan>> {
    let mut routes: BTreeMap<(usize, usize), Vec<RoutePlan>> = BTreeMap::new();
    let all = plan.plan.phases.iter().flat_map(|phase| &phase.routes);
    for route in all.filter(|route| !route.via.is_empty()) {
        routes.entry((route.from.index(), route.to.index())).or_default().push(route.clone());
    }
    routes
}

impl Phases {
    /// Those of a job with these tasks.
    pub(super) fn of(
        circuits: &Circuits<'_>,
        job: &str,
        (graph, dimensions): (&TaskGraph, &[TaskPurpose]),
    ) -> Self {
        let mut is_before = vec![true; dimensions.len()];
        for (at, task) in graph.tasks().iter().enumerate() {
            let follows = task.after.iter().any(|before| !is_before[before.index()]);
            is_before[at] = !follows && dimensions[at] != TaskPurpose::Data;
        }
        // With sharded weights replicas exchange in every pass: the circuits of the gradients serve them all along.
        let in_passes = |at: &usize| {
            !is_before[*at]
                && matches!(dimensions[*at], TaskPurpose::Tensor | TaskPurpose::Pipeline)
        };
        let own = ["micro-batches", "gradients"].map(|phase| circuits.place(job, phase));
        let own = match (0..dimensions.len()).any(|at| in_passes(&at)) {
            true => [own[1].or(own[0]), None],
            false => own,
        };
        Self { own, is_before, ..Self::default() }
    }

    /// Whether a task waits for the circuits of the gradients, and so for the passes of the whole job.
    pub(super) fn waits_for_all(&self, task: TaskId) -> bool {
        self.own[1].is_some() && !self.is_before[task.index()]
    }
}

impl Trainings<'_> {
    /// Whether an exchange over the network has to wait for circuits.
    pub(super) fn waits_for_circuits(&self, job: usize, task: TaskId) -> bool {
        let Some(circuits) = &self.circuits else { return false };
        let training = &self.jobs[job];
        let work = &training.order.graph.tasks()[task.index()].work;
        let phases = &training.phases;
        matches!(work, TaskWork::Across { .. } | TaskWork::Transfer { .. })
            && (circuits.is_changing
                || phases.asked
                || phases.own[1].is_some()
                    && !phases.is_before[task.index()]
                    && !phases.at_gradients)
    }

    /// Asks for the circuits of the phase that a job is in, if it is in another than before.
    pub(super) fn ask(&mut self, context: &mut Context<'_>, job: usize, is_new: bool) {
        let Some(circuits) = &mut self.circuits else { return };
        let training = &mut self.jobs[job];
        let phases = &mut training.phases;
        let at_gradients = phases.open == 0;
        if circuits.is_changing || (!is_new && at_gradients == phases.at_gradients) {
            return;
        }
        phases.at_gradients = at_gradients;
        let Some(phase) = phases.own[usize::from(at_gradients)] else { return };
        phases.asked = true;
        let step = training.steps.len() as u32 - 1;
        context.post(Notice::PhaseBegan { step, phase });
        // By then everybody has heard whether circuits change for it.
        let soon = context.now() + Picoseconds(1);
        self.plan(context, soon, (TrainTimer::Asked, job, 0, 0));
    }

    /// A job learns whether circuits change for its phase.
    pub(super) fn answered(
        &mut self,
        context: &mut Context<'_>,
        job: usize,
    ) -> Result<(), RunError> {
        self.jobs[job].phases.asked = false;
        self.retry_held(context, job)
    }

    /// A change of circuits began, ended, or they came and went.
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

    /// Exchanges over circuits that went dark begin again over those that are left, and the core.
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
