// SPDX-License-Identifier: Apache-2.0
//! What everybody in a run shares: the engine, timers, links, what is broken, and news.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use lightloom_engine::capture::Watch;
use lightloom_engine::collective::CollectiveStartError;
use lightloom_engine::steady::{IslandEngine, Stage};
use lightloom_engine::{BatchId, EngineError, FlowId, LinkId};
use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_units::{Picoseconds, SimTime};

use super::light::Links;
use super::log::{FaultLog, RunLog};
use crate::scenario::{Effect, FaultEvent, Prior};
use crate::substrate::{Members, Substrate};

/// Whom a timer or a batch belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Parts that break and are repaired.
    Faults,
    /// A control plane, by place.
    Control(usize),
    /// A workload, by place.
    Workload(usize),
}

/// What a new plan means for one group.
#[derive(Clone, Debug)]
pub(crate) struct GroupMove {
    pub(crate) group: usize,
    /// Who is in it from now on. `None` if it is lost.
    pub(crate) members: Option<Members>,
    /// It takes up work that it does not do yet.
    pub(crate) is_formed: bool,
    /// When every transceiver of it has light.
    pub(crate) resumes: SimTime,
}

/// What one part of a run has changed and others may act on.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    /// A new plan moves groups.
    Groups(Vec<GroupMove>),
    /// Flows that had no way may have one now.
    Routes,
    /// A phase of a step begins.
    PhaseBegan { step: u32, phase: usize },
    /// Circuits that carry traffic came or went, or may have.
    Circuits,
    /// A change of circuits is under way.
    ChangeBegan,
    /// It is over.
    ChangeEnded { began: SimTime, ended: SimTime },
    /// A change was missed: there was no control plane to command it.
    ChangeMissed,
    /// A program that sends asks for more.
    Called,
    /// Something is done that others may wait for.
    Done(Prior),
}

/// What everybody in a run shares.
pub(crate) struct Context<'a> {
    pub(crate) substrate: &'a Substrate,
    pub(crate) events: &'a [FaultEvent],
    pub(crate) engine: IslandEngine<Watch>,
    /// By fault.
    pub(crate) faults: Vec<FaultLog>,
    /// By fault: whether it is there now.
    pub(crate) active: Vec<bool>,
    pub(super) links: Links,
    /// The circuits that carry traffic now.
    pub(crate) circuits_up: Vec<CrossConnect>,
    /// Faults that have the control plane down now.
    pub(super) control_down: u32,
    /// Whether a fault has ever begun.
    pub(super) is_disturbed: bool,
    acts: Vec<(Owner, u64)>,
    /// Timers that have not run out.
    open_acts: usize,
    owners: BTreeMap<BatchId, Owner>,
    notices: VecDeque<Notice>,
    /// Flows that find their own way, in stretches.
    free_flows: Vec<Range<u32>>,
    /// Flows of workloads on ways that they were given.
    pub(crate) has_fixed_flows: bool,
    /// By host: since when all of its cables are dark.
    pub(super) out_since: Vec<Option<SimTime>>,
    /// Times in which some host was out of service.
    pub(super) out_of_service: Vec<(SimTime, SimTime)>,
}

impl<'a> Context<'a> {
    pub(super) fn new(
        substrate: &'a Substrate,
        events: &'a [FaultEvent],
        engine: IslandEngine<Watch>,
    ) -> Self {
        Self {
            faults: events.iter().map(FaultLog::new).collect(),
            active: vec![false; events.len()],
            links: Links::default(),
            circuits_up: Vec::new(),
            control_down: 0,
            is_disturbed: false,
            acts: Vec::new(),
            open_acts: 0,
            owners: BTreeMap::new(),
            notices: VecDeque::new(),
            free_flows: Vec::new(),
            has_fixed_flows: false,
            out_since: vec![None; substrate.hosts.len()],
            out_of_service: Vec::new(),
            substrate,
            events,
            engine,
        }
    }

    /// Simulated time.
    pub(crate) fn now(&self) -> SimTime {
        self.engine.now()
    }

    /// Wakes `owner` at `time` with `act`, a number of its own.
    pub(crate) fn at(&mut self, time: SimTime, owner: Owner, act: u64) {
        self.acts.push((owner, act));
        self.open_acts += 1;
        self.engine.set_timer(time, self.acts.len() as u64 - 1);
    }

    pub(super) fn take_act(&mut self, token: u64) -> (Owner, u64) {
        self.open_acts -= 1;
        self.acts[usize::try_from(token).expect("tokens are indices")]
    }

    pub(super) fn has_acts(&self) -> bool {
        self.open_acts > 0
    }

    /// Lets everybody hear of something.
    pub(crate) fn post(&mut self, notice: Notice) {
        self.notices.push_back(notice);
    }

    pub(super) fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// The end of a batch is a matter of `owner`.
    pub(crate) fn own(&mut self, batch: BatchId, owner: Owner) {
        self.owners.insert(batch, owner);
    }

    /// A batch that no workload waits for any more.
    pub(crate) fn disown(&mut self, batch: BatchId) {
        self.owners.remove(&batch);
    }

    pub(super) fn owner_of(&mut self, batch: BatchId) -> Option<Owner> {
        self.owners.remove(&batch)
    }

    /// What `start` adds to the engine, and its flows. `None` if a host has no way: its flows are cancelled.
    pub(crate) fn add<T>(
        &mut self,
        start: impl FnOnce(&mut IslandEngine<Watch>) -> Result<T, CollectiveStartError>,
    ) -> Result<Option<(T, Range<u32>)>, CollectiveStartError> {
        let first = self.engine.flow_count() as u32;
        let started = start(&mut self.engine);
        let flows = first..self.engine.flow_count() as u32;
        match started {
            Err(CollectiveStartError::Flow(EngineError::Route(_))) => {
                flows.for_each(|flow| self.engine.cancel_flow(FlowId(flow)));
                Ok(None)
            }
            started => started.map(|started| Some((started, flows))),
        }
    }

    /// Flows of workloads between hosts, in order of creation.
    pub(crate) fn note_flows(&mut self, flows: Range<u32>) {
        match self.free_flows.last_mut() {
            Some(last) if last.end == flows.start => last.end = flows.end,
            _ => self.free_flows.push(flows),
        }
    }

    /// Flows of workloads between hosts, in order of creation.
    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.free_flows.iter().cloned().flatten().map(FlowId)
    }

    /// Flows of workloads between hosts that are under way and cross one of `links` or its other direction.
    pub(super) fn flows_on(&self, links: &[LinkId]) -> Vec<FlowId> {
        if self.free_flows.is_empty() {
            return Vec::new();
        }
        let mut on = vec![false; self.engine.network().links().len()];
        links.iter().for_each(|link| on[link.index()] = true);
        let crosses = |link: &LinkId| on[link.index()] || on[link.reverse().index()];
        let is_hit = |flow: &FlowId| {
            let is_on = match self.engine.engine() {
                Some(engine) => engine.paths(*flow).links().iter().any(crosses),
                None => self.engine.path(*flow).iter().any(crosses),
            };
            let is_open = || {
                let record = self.engine.record(*flow);
                record.end.is_none() && !record.cancelled
            };
            is_on && is_open()
        };
        self.flows().filter(is_hit).collect()
    }

    /// Whether no fault has ever begun.
    pub(crate) fn is_calm(&self) -> bool {
        !self.is_disturbed
    }

    /// Whether the control plane is gone.
    pub(crate) fn control_is_gone(&self) -> bool {
        self.control_down > 0
    }

    /// How many times as long the control plane takes now.
    pub(crate) fn slowness(&self) -> u64 {
        let slower = |(event, active): (&FaultEvent, &bool)| match event.effect {
            Effect::Slower(times) if *active => Some(u64::from(times)),
            _ => None,
        };
        self.events.iter().zip(&self.active).filter_map(slower).product()
    }

    /// What the control plane takes for something now that takes it `delay` when nothing is wrong.
    pub(crate) fn slowed(&self, delay: Picoseconds) -> Picoseconds {
        Picoseconds(delay.get() * self.slowness())
    }

    /// Whether something that is broken now will be repaired, or is being repaired at this instant.
    pub(crate) fn repairs_come(&self) -> bool {
        let now = self.now();
        self.events.iter().any(|event| {
            let began = event.at().is_some_and(|at| at <= now);
            // Links are up a moment after they were repaired.
            began && event.repaired_at().is_some_and(|repaired| repaired >= now)
        })
    }

    pub(super) fn finish(self, mut log: RunLog) -> RunLog {
        let open = self.out_since.into_iter().flatten();
        log.out_of_service = self.out_of_service;
        log.out_of_service.extend(open.map(|since| (since, SimTime(u64::MAX))));
        log.faults = self.faults;
        log.engine = Some(self.engine);
        log
    }
}
