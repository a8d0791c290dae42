// SPDX-License-Identifier: Apache-2.0
//! Flow paths and circuit requests of a job whose leaves are connected by optical switches or cables. Flows are divided as in phases.
//!
//! The job requests the `micro-batches` circuits at the start of a round and the `gradients` circuits
//! after its last pass; reinforcement learning adds `weight-sync` and `parallelism-switch`. During a
//! change, computation continues and network traffic waits.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use lightloom_collective::CollectiveKind;
use lightloom_engine::collective::{HostRoutes, RouteShare};
use lightloom_engine::steady::Stage;
use lightloom_engine::{FlowId, Route, VertexId};
use lightloom_training::graph::{TaskGraph, TaskId, TaskWork};
use lightloom_training::tasks::TaskPurpose;
use lightloom_units::id::LeafId;
use lightloom_units::{BitsPerSecond, Bytes};

use super::super::super::context::{Context, Notice};
use super::super::lanes::{LaneDivision, LaneShares, Lanes, Leaves, Left};
use crate::scenario::CircuitPlan;
use crate::substrate::{DCN, OPTICAL};

pub(crate) struct Circuits<'a> {
    leaves: Leaves<'a>,
    plan: &'a CircuitPlan,
    lanes: Option<Lanes>,
    /// Planned division of each phase over the lanes that have light now.
    divided: BTreeMap<usize, DividedPhase>,
    is_changing: bool,
}

struct DividedPhase {
    shares: BTreeMap<[usize; 2], LaneShares>,
    /// Bytes between two hosts among those between their leaves. They take the same part of `shares`, so that few flows
    /// are split.
    own: BTreeMap<[VertexId; 2], Range<u64>>,
    /// Until all planned routes have carried their shares. `None` if hosts send to several others, which they do one after
    /// another.
    seconds: Option<f64>,
}

impl DividedPhase {
    fn of(leaves: &Leaves<'_>, lanes: &Lanes, plan: &CircuitPlan, phase: usize) -> Self {
        let demand = &plan.phases[phase].demand;
        let flows = demand.flows();
        let left: BTreeMap<[usize; 2], u64> =
            flows.map(|(from, to, bytes)| ([from, to].map(LeafId::index), bytes.0)).collect();
        let division = lanes.division(leaves, &left, &plan.plan.phases[phase].routes);
        let shares = left.iter().map(|(&[from, to], &own)| {
            ([from, to], lanes.divide(Left { from, to, own, of_leaves: own }, &division))
        });
        let shares: BTreeMap<[usize; 2], LaneShares> = shares.collect();
        let seconds = division.seconds(leaves, shares.values().flatten());
        let mut taken = BTreeMap::<[usize; 2], u64>::new();
        let exchanges = demand.exchanges().into_iter().flatten();
        let own = exchanges.filter_map(|((from, to), Bytes(bytes))| {
            let ends = [leaves.gpu(from)?, leaves.gpu(to)?];
            let taken = taken.entry(ends.map(|end| end.leaf)).or_default();
            *taken += bytes;
            Some((ends.map(|end| end.host), *taken - bytes..*taken))
        });
        let own: BTreeMap<[VertexId; 2], Range<u64>> = own.collect();
        let hosts: BTreeSet<VertexId> = own.keys().map(|[from, _]| *from).collect();
        Self { seconds: seconds.filter(|_| hosts.len() == own.len()), shares, own }
    }
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
    pub(crate) fn new(leaves: Leaves<'a>, plan: &'a CircuitPlan) -> Self {
        Self { leaves, plan, lanes: None, divided: BTreeMap::new(), is_changing: false }
    }

    /// Returns whether circuits change between phases. Cables are fixed.
    pub(super) fn can_change(&self) -> bool {
        self.leaves.circuits.is_some()
    }

    /// Forgets the lanes, because circuits or their light changed.
    pub(super) fn look_again(&mut self) {
        self.lanes = None;
        self.divided.clear();
    }

    /// Returns the planned shares of a pair. Other traffic takes circuits if the pair has any, otherwise the packet core,
    /// otherwise the routes of any phase.
    fn shares(
        &mut self,
        context: &Context<'_>,
        [from, to]: [usize; 2],
        phase: Option<usize>,
    ) -> LaneShares {
        let (leaves, plan) = (&self.leaves, self.plan);
        let lanes = &*self.lanes.get_or_insert_with(|| Lanes::now(leaves, context));
        let divided = phase.map(|phase| {
            &*self
                .divided
                .entry(phase)
                .or_insert_with(|| DividedPhase::of(leaves, lanes, plan, phase))
        });
        let left = Left { from, to, own: 1 << 40, of_leaves: 1 << 40 };
        let planned = divided.and_then(|divided| divided.shares.get(&[from, to]).cloned());
        let shares = planned.unwrap_or_else(|| lanes.divide(left, &LaneDivision::default()));
        if !shares.is_empty() {
            return shares;
        }
        let routes = plan.plan.phases.iter().flat_map(|phase| &phase.routes);
        let routes = routes.filter(|route| lanes.carry(route)).cloned().collect();
        lanes.divide(left, &LaneDivision { routes, ..LaneDivision::default() })
    }

    fn ways_of(
        &mut self,
        context: &Context<'_>,
        ends: [VertexId; 2],
        phase: Option<usize>,
        is_paced: bool,
    ) -> Option<Vec<RouteShare>> {
        let [from, to] = ends.map(|host| Leaves::end(context.substrate, host));
        let (from, to) = (from?, to?);
        if from.leaf == to.leaf {
            return Some(vec![RouteShare::whole(Route::Within(DCN))]);
        }
        let parts = self.shares(context, [from.leaf, to.leaf], phase);
        let sum = parts.iter().map(|(_, size)| size).sum();
        let divided = phase.and_then(|phase| self.divided.get(&phase));
        let own = divided.and_then(|divided| divided.own.get(&ends).cloned());
        let seconds = divided.filter(|_| is_paced && own.is_some()).and_then(|it| it.seconds);
        let own = own.filter(|own| own.end <= sum).unwrap_or(0..sum);
        let mut until = 0;
        let ways = parts.into_iter().filter_map(|(hops, size)| {
            let from_here = until.max(own.start);
            until += size;
            let size = until.min(own.end).checked_sub(from_here).filter(|size| *size > 0)?;
            let route = self.leaves.way(context.substrate, [from, to], &hops);
            let pace = seconds.map(|seconds| BitsPerSecond((8.0 * size as f64 / seconds) as u64));
            Some(RouteShare { route, share: size as f64 / (own.end - own.start) as f64, pace })
        });
        Some(ways.collect()).filter(|ways: &Vec<RouteShare>| !ways.is_empty())
    }

    pub(super) fn ways(
        &mut self,
        context: &Context<'_>,
        kind: Option<CollectiveKind>,
        hosts: &[VertexId],
        phase: Option<usize>,
    ) -> Option<HostRoutes> {
        let pairs = match kind {
            None => vec![(0, 1)],
            Some(kind) => kind.pairs(hosts.len()),
        };
        let ways = pairs.into_iter().map(|(from, to)| {
            let ends = [hosts[from], hosts[to]];
            Some((ends.into(), self.ways_of(context, ends, phase, kind.is_some())?))
        });
        ways.collect()
    }

    /// Takes note of a change of circuits.
    pub(super) fn hear(&mut self, notice: &Notice) {
        self.look_again();
        match notice {
            Notice::ChangeBegan => self.is_changing = true,
            Notice::ChangeEnded { .. } => self.is_changing = false,
            _ => {}
        }
    }

    /// Returns whether a task has to wait until the circuits of its phase are set up.
    pub(super) fn hold(&self, phases: &Phases, task: TaskId, work: &TaskWork) -> bool {
        self.can_change()
            && matches!(
                work,
                TaskWork::Across { .. } | TaskWork::Pairs { .. } | TaskWork::Transfer { .. }
            )
            && (self.is_changing || phases.asked || phases.waits_for(task) > phases.at)
    }

    /// Returns the planned phase whose circuits the job needs next, if it has to request them.
    pub(super) fn next_request(&self, phases: &mut Phases, is_new: bool) -> Option<usize> {
        let at = phases.first_open();
        if !self.can_change() || self.is_changing || (!is_new && at == phases.at) {
            return None;
        }
        phases.at = at;
        phases.asked |= phases.own[at].is_some();
        phases.own[at]
    }

    /// Returns whether a flow still uses a circuit or cable without light.
    pub(super) fn is_dark(&self, context: &Context<'_>, flow: FlowId) -> bool {
        context.engine.record(flow).end.is_none()
            && context.engine.path(flow).iter().any(|link| {
                let is_optical = context.substrate.network.link(*link).spec.plane == OPTICAL;
                (is_optical || !self.can_change()) && !context.carries(*link)
            })
    }

    fn place(&self, job: &str, phase: &str) -> Option<usize> {
        let of_job = format!("{job}/{phase}");
        let mut names = self.plan.phases.iter().map(|phase| &phase.name);
        names.position(|name| *name == phase || *name == of_job)
    }
}

impl Phases {
    pub(super) fn of(
        circuits: &Circuits<'_>,
        job: &str,
        graph: &TaskGraph,
        dimensions: &[TaskPurpose],
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
        let is_in_passes = of_task.iter().zip(dimensions).any(|(phase, purpose)| {
            *phase > 0 && matches!(purpose, TaskPurpose::Tensor | TaskPurpose::Pipeline)
        });
        let mut own = NAMES.map(|names| names.iter().find_map(|phase| circuits.place(job, phase)));
        if is_in_passes {
            [own[0], own[1]] = [own[1].or(own[0]), None];
        }
        let mut count = [0; NAMES.len()];
        of_task.iter().for_each(|phase| count[*phase] += 1);
        Self { own, of_task, count, ..Self::default() }
    }

    pub(super) fn begin(&mut self) {
        self.open = self.count;
    }

    pub(super) fn answered(&mut self) {
        self.asked = false;
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

    pub(super) fn planned(&self, task: TaskId) -> Option<usize> {
        self.own[self.waits_for(task)]
    }

    pub(super) fn is_before(&self, task: TaskId, phase: usize) -> bool {
        self.of_task.get(task.index()).is_some_and(|of| *of < phase)
    }

    pub(super) fn before(&self, phase: usize) -> impl Iterator<Item = TaskId> + '_ {
        let tasks = self.of_task.iter().enumerate();
        tasks.filter(move |(_, of)| **of < phase).map(|(at, _)| TaskId(at as u32))
    }
}
