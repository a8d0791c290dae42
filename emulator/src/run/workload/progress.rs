// SPDX-License-Identifier: Apache-2.0

use lightloom_engine::LinkId;
use lightloom_engine::collective::StartedCollective as Flows;
use lightloom_units::{Picoseconds, SimTime};

use crate::substrate::Members;

pub(super) struct Running {
    pub(super) parts: Vec<Flows>,
    pub(super) open: usize,
    pub(super) ideal: Picoseconds,
    pub(super) interface: Picoseconds,
}

impl Running {
    pub(super) fn of(parts: Vec<Flows>) -> Self {
        let ideal = parts.iter().map(|part| part.ideal).max().unwrap_or_default();
        let interface = parts.iter().map(|part| part.interface).max().unwrap_or_default();
        Self { open: parts.len(), parts, ideal, interface }
    }
}

pub(super) struct GroupProgress {
    pub(super) members: Members,
    pub(super) log: GroupLog,
    pub(super) down_since: Option<SimTime>,
    pub(super) running: Option<Running>,
    pub(super) stopped: bool,
    pub(super) links: Vec<LinkId>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct GroupLog {
    pub(crate) job: u32,
    pub(crate) gpus: u32,
    pub(crate) steps: Vec<StepLog>,
    pub(crate) lost: bool,
    pub(crate) down: Picoseconds,
    pub(crate) next: usize,
}

impl GroupLog {
    pub(crate) const fn is_through(&self, program_length: usize) -> bool {
        self.next >= program_length
    }
}

impl GroupProgress {
    pub(super) fn of(members: Members) -> Self {
        let log = GroupLog { job: members.job, gpus: members.gpus, ..GroupLog::default() };
        let (down_since, running, stopped, links) = (None, None, false, Vec::new());
        Self { members, log, down_since, running, stopped, links }
    }

    pub(super) fn goes_down(&mut self, now: SimTime, program_length: usize) {
        if !self.log.is_through(program_length) {
            self.down_since.get_or_insert(now);
        }
    }

    pub(super) fn comes_back(&mut self, now: SimTime) {
        if let Some(since) = self.down_since.take() {
            self.log.down += now.since(since);
        }
    }
}

#[derive(Default)]
pub(super) struct Between {
    pub(super) steps: Vec<StepLog>,
    pub(super) running: Option<Running>,
    pub(super) passed: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepLog {
    pub(crate) place: usize,
    pub(crate) collective: usize,
    pub(crate) start: SimTime,
    pub(crate) end: Option<SimTime>,
    pub(crate) ideal: Picoseconds,
    pub(crate) interface: Picoseconds,
    pub(crate) ranks: u32,
    pub(crate) restarts: u32,
}

pub(super) struct Begun {
    pub(super) place: usize,
    pub(super) collective: usize,
    pub(super) ranks: u32,
    pub(super) now: SimTime,
}

pub(super) fn note_start(steps: &mut Vec<StepLog>, begun: &Begun, running: &Running) {
    match steps.last_mut() {
        Some(step) if step.end.is_none() && step.place == begun.place => step.restarts += 1,
        _ => steps.push(StepLog {
            place: begun.place,
            collective: begun.collective,
            start: begun.now,
            end: None,
            ideal: running.ideal,
            interface: running.interface,
            ranks: begun.ranks,
            restarts: 0,
        }),
    }
}

pub(super) fn finish_step(steps: &mut [StepLog], at: SimTime) {
    steps.last_mut().expect("a completed collective was started").end = Some(at);
}
