// SPDX-License-Identifier: Apache-2.0
//! Places faults: the daemon crashes, a device reports a wrong outcome, management is lost, another
//! daemon takes over, or etcd does not respond.

use std::sync::Arc;

use lightloom_control::controller::{Action, Controller, Event, Ticket};
use lightloom_control::ledger::Ledger;
use lightloom_control::record::Record;
use lightloom_control::state::{DeviceName, Micros, Op, Outcome, Txn};

use super::explorer::{Explorer, Mutant, State, pass, word};

const DEAD_FOR: Micros = Micros::from_secs(20);
/// Time from the loss of the leader until another daemon leads.
const LEASE: Micros = Micros::from_secs(2);

/// A command that is still in flight after its daemon stopped waiting for the reply.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    pub device: DeviceName,
    pub op: Op,
    pub epoch: u32,
    ticket: Ticket,
    /// Latest time of arrival; `None` if the command may arrive at any later moment.
    until: Option<Micros>,
}

/// A former leader that continues to run. It sends commands only if a rule is violated.
#[derive(Clone, Debug)]
pub(crate) struct Deposed {
    controller: Controller,
    epoch: u32,
}

fn moving(state: &State) -> Vec<(DeviceName, Ticket, Op)> {
    let moving = state.flights.iter().filter(|(_, (_, op))| matches!(op, Op::Switch { .. }));
    moving.map(|(device, (ticket, op))| (device.clone(), *ticket, op.clone())).collect()
}

impl Explorer {
    /// Crashes the daemon, with unsynced records kept or lost and commands in flight executed or
    /// not.
    pub(super) fn crash(&mut self, before: &State) {
        let moving = moving(before);
        let ways = if self.scenario.faults.late { 3_usize } else { 2 };
        let count = ways.pow(u32::try_from(moving.len()).unwrap_or(0));
        for kept in [false, true] {
            if kept && before.soft.is_empty() {
                continue;
            }
            for fates in 0..count {
                let mut state = before.clone();
                state.faults -= 1;
                let mut left = fates;
                for (device, ticket, op) in &moving {
                    match left % ways {
                        0 => {}
                        1 => drop(state.execute(device, op)),
                        _ => state.later(device, *ticket, op),
                    }
                    left /= ways;
                }
                let soft = std::mem::take(&mut state.soft);
                Arc::make_mut(&mut state.durable).extend(soft.into_iter().filter(|_| kept));
                state.say(|| format!("CRASH, unsynced kept {kept}, fates {fates}"));
                self.restart(state);
            }
        }
    }

    fn restart(&mut self, mut state: State) {
        pass(&mut state, Micros::from_millis(200));
        let mut actions = self.begin_life(&mut state);
        for name in state.models.keys().cloned().collect::<Vec<_>>() {
            let event = match state.dead.contains_key(&name) {
                true => Event::Unreachable(name, "no answer to a hello".into()),
                false => Event::Reachable(name),
            };
            actions.extend(state.controller.handle(&state.now, event));
        }
        self.perform(state, actions);
    }

    fn begin_life(&mut self, state: &mut State) -> Vec<Action> {
        self.seen.crashes += 1;
        state.flights.clear();
        state.down.clear();
        state.moved.clear();
        state.unread.clear();
        let ledger = Ledger::fold(&*state.durable);
        state.ended =
            ledger.history.iter().filter(|p| p.txn > Txn(1)).map(|p| (p.txn, p.result)).collect();
        let inventory = self.scenario.inventory.clone();
        let (controller, actions) = Controller::start(inventory, ledger, &state.now);
        state.controller = controller;
        actions
    }

    /// Ends the leader's lease, whether it continues or not; another daemon starts with the records
    /// and the next epoch. Each command in flight may still arrive within the settle time, or later
    /// on devices without one. `rest` contains the first daemon's next actions.
    pub(super) fn take_over(&mut self, before: &State, rest: &[Action]) {
        if before.deposed.is_some() {
            return;
        }
        let mut state = before.clone();
        state.faults -= 1;
        let old = state.epoch;
        state.epoch = if self.mutant == Mutant::EpochGoesBack { old - 1 } else { old + 1 };
        // Records that etcd accepted without an acknowledgement.
        let taken = state.failed.take().unwrap_or_default();
        Arc::make_mut(&mut state.durable).extend(taken);
        for (device, ticket, op) in moving(before) {
            let within = self.settles_within(&device);
            let at_any = state.models[&device].knows.is_some() || within == Micros(0);
            let until = (!at_any).then(|| state.now.mono + LEASE + within);
            state.late.push(Late { device, op, epoch: old, ticket, until });
        }
        let epoch = state.epoch;
        state.say(|| format!("TAKEN OVER in epoch {epoch}"));
        pass(&mut state, LEASE);
        if matches!(self.mutant, Mutant::SendsWithoutFence | Mutant::JournalTakesAll) {
            let controller = before.controller.clone();
            state.deposed = Some(Box::new(Deposed { controller, epoch: old }));
            self.goes_on_deposed(&mut state, rest.to_vec());
        }
        let actions = self.begin_life(&mut state);
        state.connecting = state.models.keys().cloned().collect();
        self.perform(state, actions);
    }

    fn settles_within(&self, device: &DeviceName) -> Micros {
        match self.mutant {
            // Commands take as long to arrive, but the daemon does not wait for them.
            Mutant::NoSettleTime => Micros::from_secs(1),
            _ => self.scenario.inventory.devices[device].limits.late_within,
        }
    }

    fn goes_on_deposed(&mut self, state: &mut State, actions: Vec<Action>) {
        let Some(mut deposed) = state.deposed.take() else { return };
        let epoch = deposed.epoch;
        for action in actions {
            match action {
                Action::Append(records) if self.mutant == Mutant::JournalTakesAll => {
                    let what =
                        format!("E1: {} records of epoch {epoch} behind another", records.len());
                    self.violated(state, what);
                    Arc::make_mut(&mut state.durable).extend(records);
                }
                Action::Append(_) => {
                    deposed.controller.only_read(Ledger::fold(&*state.durable));
                    break;
                }
                Action::Send(device, ticket, op)
                    if self.mutant == Mutant::SendsWithoutFence
                        || !matches!(op, Op::Switch { .. }) =>
                {
                    let until = Some(state.now.mono + Micros::from_secs(3));
                    state.late.push(Late { device, op, epoch, ticket, until });
                }
                _ => {}
            }
        }
        if !state.late.is_empty() {
            state.deposed = Some(deposed);
        }
    }

    pub(super) fn arrives_late(&mut self, state: &State) {
        for at in 0..state.late.len() {
            let mut later = state.clone();
            let Late { device, op, epoch, ticket, until } = later.late.remove(at);
            let model = later.models.get_mut(&device).expect("it is one");
            // A read in time detects a late command; otherwise the next poll does.
            later.late_came |= until.is_none() && !self.scenario.fences.contains(&device);
            let outcome = model.execute(epoch, &op);
            later.say(|| format!("LATE {device} {} of epoch {epoch}", word(&op)));
            if let Some(deposed) = &mut later.deposed {
                let reply = Event::Reply { device, ticket, outcome };
                let actions = deposed.controller.handle(&later.now, reply);
                self.goes_on_deposed(&mut later, actions);
            }
            if later.late.is_empty() {
                later.deposed = None;
            }
            self.push(later);
        }
    }

    pub(super) fn connects(&mut self, state: &State) {
        for device in &state.connecting {
            if state.flights.contains_key(device) {
                continue;
            }
            let mut state = state.clone();
            state.connecting.remove(device);
            if state.dead.contains_key(device) {
                state.down.insert(device.clone());
                let down = Event::Unreachable(device.clone(), "no answer to a hello".into());
                self.handle(state, down);
                continue;
            }
            state.say(|| format!("{device} is reached"));
            let epoch = state.epoch;
            state.models.get_mut(device).expect("it is one").connected(epoch);
            self.handle(state, Event::Reachable(device.clone()));
        }
    }

    /// Leaves a record without an acknowledgement, whether or not etcd has stored it.
    pub(super) fn leave_unanswered(&mut self, before: &State, records: &[Record], rest: &[Action]) {
        for taken in [false, true] {
            let mut state = before.clone();
            state.faults -= 1;
            state.say(|| format!("ETCD SILENT, record taken {taken}"));
            if self.mutant == Mutant::TakesTimeoutForYes {
                let kept = records.iter().filter(|_| taken).cloned();
                Arc::make_mut(&mut state.durable).extend(kept);
                self.perform(state, rest.to_vec());
                continue;
            }
            state.controller.only_read(Ledger::fold(&*state.durable));
            state.controller.not_sent(rest);
            state.failed = Some(records.iter().filter(|_| taken).cloned().collect());
            self.push(state);
        }
    }

    /// Makes etcd respond again without a loss of leadership. Unacknowledged records are lost,
    /// because the daemon rewrites the journal.
    pub(super) fn goes_on(&mut self, mut state: State) {
        state.failed = None;
        state.say(|| "etcd answers".into());
        let ledger = Ledger::fold(&*state.durable);
        let actions = state.controller.go_on(ledger, &state.now);
        self.perform(state, actions);
    }

    pub(super) fn deaths(&mut self, state: &State) {
        for device in state.models.keys() {
            let mut dead = state.clone();
            dead.faults -= 1;
            dead.flights.remove(device);
            dead.dead.insert(device.clone(), dead.now.mono + DEAD_FOR);
            dead.say(|| format!("{device} DIES"));
            self.push(dead);
        }
    }

    /// Explores the loss of management for each set of devices.
    pub(super) fn losses(&mut self, state: &State) {
        let names: Vec<DeviceName> = state.models.keys().cloned().collect();
        for set in 1_u32..1 << names.len() {
            for arrives in [false, true] {
                let mut lost = state.clone();
                lost.faults -= 1;
                let of_set = names.iter().enumerate().filter(|(index, _)| set >> index & 1 == 1);
                for (_, device) in of_set {
                    if let Some((_, op)) = lost.flights.remove(device).filter(|_| arrives) {
                        drop(lost.execute(device, &op));
                    }
                    lost.dead.insert(device.clone(), lost.now.mono + DEAD_FOR);
                }
                let fate = if arrives { "arrives" } else { "is lost" };
                lost.say(|| format!("MANAGEMENT of {set:b} LOST, what was asked {fate}"));
                self.push(lost);
            }
        }
    }

    pub(super) fn faulty_answers(&mut self, state: &State, device: &DeviceName) {
        let Some((ticket, op)) = state.flights.get(device).cloned() else { return };
        let moves = matches!(op, Op::Switch { .. });
        let base = |what: &str| {
            let mut state = state.clone();
            state.faults -= 1;
            state.flights.remove(device);
            state.say(|| format!("FAULT {device} {}: {what}", word(&op)));
            state
        };
        let reply = |outcome| Event::Reply { device: device.clone(), ticket, outcome };
        self.push(base("request lost"));
        if matches!(op, Op::Arm { .. } | Op::Switch { .. }) {
            self.handle(base("refused"), reply(Outcome::Refused("no".into())));
        }
        if moves {
            let mut lost = base("answer lost");
            drop(lost.execute(device, &op));
            self.push(lost);
            self.handle(base("lie"), reply(Outcome::Done(None)));
            if self.scenario.faults.late {
                let mut late = base("late");
                late.later(device, ticket, &op);
                self.push(late);
            }
        }
    }
}

impl State {
    fn later(&mut self, device: &DeviceName, ticket: Ticket, op: &Op) {
        let (device, op, epoch) = (device.clone(), op.clone(), self.epoch);
        self.late.push(Late { device, op, epoch, ticket, until: None });
    }

    pub(super) fn drop_late(&mut self) {
        let now = self.now.mono;
        self.late.retain(|late| late.until.is_none_or(|until| now < until));
        if self.late.is_empty() {
            self.deposed = None;
        }
    }
}
