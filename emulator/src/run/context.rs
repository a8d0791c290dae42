// SPDX-License-Identifier: Apache-2.0
//! State shared by all parts of a run: engine, timers, links, active faults and notices.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Faults,
    Control(usize),
    Workload(usize),
}

#[derive(Clone, Debug)]
pub(crate) struct GroupMove {
    pub(crate) group: usize,
    pub(crate) members: Option<Members>,
    pub(crate) is_formed: bool,
    pub(crate) resumes: SimTime,
}

#[derive(Clone, Debug)]
pub(crate) enum Notice {
    Groups(Vec<GroupMove>),
    Routes,
    PhaseBegan { step: u32, phase: usize },
    Circuits,
    ChangeBegan,
    ChangeEnded { began: SimTime, ended: SimTime },
    ChangeMissed,
    Called,
    Done(Prior),
}

pub(crate) struct Context<'a> {
    pub(crate) substrate: &'a Substrate,
    pub(crate) events: &'a [FaultEvent],
    pub(crate) engine: IslandEngine<Watch>,
    pub(crate) faults: Vec<FaultLog>,
    pub(crate) active: Vec<bool>,
    pub(super) links: Links,
    pub(crate) circuits_up: Vec<CrossConnect>,
    pub(super) control_down: u32,
    pub(super) is_disturbed: bool,
    acts: Vec<(Owner, u64)>,
    open_acts: usize,
    owners: BTreeMap<BatchId, Owner>,
    notices: VecDeque<Notice>,
    free_flows: Vec<Range<u32>>,
    pub(crate) has_fixed_flows: bool,
    pub(super) out_since: Vec<Option<SimTime>>,
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

    pub(crate) fn now(&self) -> SimTime {
        self.engine.now()
    }

    pub(crate) fn at(&mut self, time: SimTime, owner: Owner, act: u64) {
        self.acts.push((owner, act));
        self.open_acts += 1;
        self.engine.set_timer(time, self.acts.len() as u64 - 1);
    }

    pub(super) fn take_act(&mut self, token: u64) -> (Owner, u64) {
        self.open_acts -= 1;
        self.acts[usize::try_from(token).expect("the token is an index")]
    }

    pub(super) fn has_acts(&self) -> bool {
        self.open_acts > 0
    }

    pub(crate) fn post(&mut self, notice: Notice) {
        self.notices.push_back(notice);
    }

    pub(super) fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    pub(crate) fn own(&mut self, batch: BatchId, owner: Owner) {
        self.owners.insert(batch, owner);
    }

    pub(crate) fn disown(&mut self, batch: BatchId) {
        self.owners.remove(&batch);
    }

    pub(super) fn owner_of(&mut self, batch: BatchId) -> Option<Owner> {
        self.owners.remove(&batch)
    }

    /// If a host has no path, cancels the added flows and returns `None`.
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

    pub(crate) fn note_flows(&mut self, flows: Range<u32>) {
        match self.free_flows.last_mut() {
            Some(last) if last.end == flows.start => last.end = flows.end,
            _ => self.free_flows.push(flows),
        }
    }

    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.free_flows.iter().cloned().flatten().map(FlowId)
    }

    pub(super) fn flows_on(&self, links: &[LinkId]) -> Vec<FlowId> {
        if self.free_flows.is_empty() {
            return Vec::new();
        }
        let mut on = vec![false; self.engine.network().links().len()];
        links.iter().for_each(|link| on[link.index()] = true);
        let hit = self.flows().filter(|flow| {
            self.crosses(*flow, |link| on[link.index()] || on[link.reverse().index()])
                && self.is_open(*flow)
        });
        hit.collect()
    }

    /// Returns whether a path of the flow has such a link.
    pub(super) fn crosses(&self, flow: FlowId, is_it: impl Fn(&LinkId) -> bool) -> bool {
        match self.engine.engine() {
            Some(engine) => engine.paths(flow).links().iter().any(is_it),
            None => self.engine.path(flow).iter().any(is_it),
        }
    }

    pub(super) fn is_open(&self, flow: FlowId) -> bool {
        let record = self.engine.record(flow);
        record.end.is_none() && !record.cancelled
    }

    pub(crate) fn is_calm(&self) -> bool {
        !self.is_disturbed
    }

    pub(crate) fn control_is_gone(&self) -> bool {
        self.control_down > 0
    }

    pub(crate) fn slowness(&self) -> u64 {
        let events = self.events.iter().zip(&self.active);
        let slower = events.filter_map(|(event, active)| match event.effect {
            Effect::Slower(times) if *active => Some(u64::from(times)),
            _ => None,
        });
        slower.product()
    }

    pub(crate) fn slowed(&self, delay: Picoseconds) -> Picoseconds {
        Picoseconds(delay.get() * self.slowness())
    }

    pub(crate) fn repairs_come(&self) -> bool {
        let now = self.now();
        self.events.iter().any(|event| {
            let began = event.at().is_some_and(|at| at <= now);
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
