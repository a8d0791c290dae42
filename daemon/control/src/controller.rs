// SPDX-License-Identifier: Apache-2.0
//! The controller: a state machine from events to actions, without clocks, sockets or threads.
//!
//! The caller executes the actions in order. A record with [`Record::is_waited_for`] must be
//! durable before any later action.

use crate::actor::Policy;
pub use crate::budget::{Budget, OWN_CHANGES_MAX, OWN_CHANGES_WINDOW};
use crate::drive::Command;
use crate::inventory::{Inventory, OnDrift};
use crate::ledger::Ledger;
use crate::management::Trouble;
use crate::messages::Outbox;
pub use crate::messages::{Action, Adopt, Answer, Apply, Event, Note, ReplyTo, Request, Rollback};
use crate::record::{Cause, Record, TxnResult};
use crate::schedule::Schedule;
pub use crate::sightings::{
    Contended, Crossed, DarkFibre, Foreign, QUIET, RESTORES_MAX, Signal, Ticket, end_name,
};
use crate::sightings::{Flight, Overdue, Sightings};
use crate::state::{DeviceName, Micros, Neighbours, Now, Observation, Op, Outcome};
use crate::strays::{Strays, undoes_all_late};
use crate::transactions::{Context, Decision, DriveEnd, Ended, Transactions, own};
pub use crate::transactions::{Planned, Preview, Remedy};

#[derive(Clone, Debug)]
pub struct Controller {
    sightings: Sightings,
    transactions: Transactions,
    strays: Strays,
    budget: Budget,
    schedule: Schedule,
    out: Outbox,
}

impl Controller {
    pub fn start(inventory: Inventory, ledger: Ledger, now: &Now) -> (Self, Vec<Action>) {
        let (sightings, transactions) = (Sightings::new(inventory, now), Transactions::new(ledger));
        let (strays, budget, schedule, out) = Default::default();
        let mut controller = Self { sightings, transactions, strays, budget, schedule, out };
        let actions = controller.started(now);
        (controller, actions)
    }

    fn started(&mut self, now: &Now) -> Vec<Action> {
        let daemon = env!("CARGO_PKG_VERSION").to_owned();
        self.budget.recall(self.transactions.ledger(), now);
        self.append(Record::Started { daemon, wall_ms: now.wall_ms });
        let ledger = self.transactions.ledger();
        self.sightings.recall_restores(now, ledger);
        self.strays.recall(now, ledger, self.sightings.inventory());
        self.recover(now);
        self.out.take()
    }

    fn recover(&mut self, now: &Now) {
        let inventory = self.sightings.inventory();
        let Some(unfinished) = self.transactions.unfinished(now, inventory) else { return };
        // A bypass need not wait for late commands of the previous daemon, which are undone.
        let hurries = unfinished.forward && unfinished.interrupted;
        self.strays.wait_for(now, &unfinished.intent, inventory, |limits| {
            !hurries || !undoes_all_late(limits)
        });
        let cx = &mut Context::new(now, &self.sightings, &self.strays, &mut self.out);
        let commands = self.transactions.recover(cx, &unfinished);
        self.execute(now, commands);
        self.strays.wait_for(now, &unfinished.intent, self.sightings.inventory(), |_| true);
    }

    pub fn only_read(&mut self, ledger: Ledger) {
        self.transactions.only_read(ledger);
        self.sightings.stop_driving();
    }

    pub fn not_sent(&mut self, actions: &[Action]) {
        for action in actions {
            if let Action::Send(device, ticket, _) = action {
                self.sightings.not_sent(device, *ticket);
            }
        }
    }

    pub fn go_on(&mut self, ledger: Ledger, now: &Now) -> Vec<Action> {
        self.only_read(ledger);
        self.transactions.write_again();
        self.started(now)
    }

    pub fn sightings(&self) -> &Sightings {
        &self.sightings
    }
    pub fn transactions(&self) -> &Transactions {
        &self.transactions
    }
    pub fn budget(&self) -> &Budget {
        &self.budget
    }
    pub fn ledger(&self) -> &Ledger {
        self.transactions.ledger()
    }

    pub fn preview(&self, apply: &Apply) -> Result<Preview, Vec<String>> {
        self.transactions.preview(apply, &self.sightings)
    }
    pub fn way_home(&self) -> Result<Apply, Vec<String>> {
        self.transactions.way_home(&self.sightings)
    }

    pub fn deadline(&self, now: &Now) -> Option<Micros> {
        let reads = self.schedule.first_due(&self.sightings, self.ledger());
        if self.transactions.only_reads() {
            return reads;
        }
        let drive = self.transactions.drive_deadline();
        let pending = self.ledger().pending.as_ref().filter(|_| !self.transactions.is_busy());
        let deferred = self.transactions.deferred_at(&self.sightings);
        let automatic = pending.map(|pending| pending.deadline(now)).into_iter().chain(deferred);
        let not_before = automatic.map(|at| at.max(self.budget.not_before()));
        reads.into_iter().chain(drive).chain(not_before).min()
    }

    pub fn handle(&mut self, now: &Now, event: Event) -> Vec<Action> {
        match event {
            Event::Request { asked, request, reply_to } => {
                let cx = &mut Context::new(now, &self.sightings, &self.strays, &mut self.out);
                let decision = self.transactions.request(cx, asked, request);
                let answer = self.follow(now, decision);
                self.out.push(Action::Answer(reply_to, answer));
            }
            Event::Reply { device, ticket, outcome } => {
                self.reply(now, &device, ticket, outcome);
            }
            Event::Promised(device, promise) => {
                if promise.refuses_late {
                    self.strays.expect_none(&device);
                }
                self.sightings.promised(&device, &promise);
            }
            Event::Reachable(device) => self.became_reachable(now, device),
            Event::Unreachable(device, trouble) => self.became_unreachable(now, device, trouble),
            Event::Foreign(device, what) => {
                if self.sightings.foreign(now, &device, what) {
                    self.note_contended(now, &device);
                }
            }
            Event::Signalled(device, signal) => {
                self.sightings.signalled(now, &device, signal, self.transactions.ledger());
            }
            Event::Occupied(device, occupied) => self.sightings.occupied(now, &device, occupied),
            Event::Tick => self.tick(now),
        }
        self.schedule.update(&mut self.sightings, self.transactions.ledger());
        self.out.take()
    }

    pub(crate) fn record(&mut self, record: Record) -> Vec<Action> {
        self.append(record);
        self.out.take()
    }

    fn append(&mut self, record: Record) {
        self.transactions.append(record, &mut self.out);
    }

    pub fn plans(&mut self, planned: Planned) {
        self.transactions.plans(planned);
    }

    pub fn read_all(&mut self, now: &Now) {
        self.sightings.read_all(now);
    }

    pub(crate) fn lead_back_to(&mut self, txn: crate::state::Txn, back: Apply) {
        self.transactions.lead_back_to(txn, back);
    }

    fn follow(&mut self, now: &Now, decision: Decision) -> Answer {
        match decision {
            Decision::Answered(answer) => answer,
            Decision::Begun(txn, commands) => {
                self.execute(now, commands);
                Answer::Accepted { txn }
            }
            Decision::Adopted(answer, devices) => {
                self.forget_contention(now, devices.iter());
                for device in &devices {
                    self.note_drift(device);
                }
                answer
            }
            Decision::Held(operations) => {
                for (device, op) in operations {
                    self.send(now, &device, op, false);
                }
                Answer::Done
            }
            Decision::Resumed => {
                self.budget.forget();
                Answer::Done
            }
        }
    }

    fn execute(&mut self, now: &Now, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Send(device, op) => {
                    let drives = !matches!(op, Op::Disarm { .. });
                    self.send(now, &device, op, drives);
                }
                Command::Fire(wave) => self.transactions.fired(now, wave, &mut self.out),
                Command::End(ends) => {
                    let cx = &mut Context::new(now, &self.sightings, &self.strays, &mut self.out);
                    match self.transactions.drive_ended(cx, ends) {
                        Some(DriveEnd::GoesBack(commands)) => self.execute(now, commands),
                        Some(DriveEnd::Ended(ended)) => self.ended(now, &ended),
                        None => {}
                    }
                }
            }
        }
    }

    fn ended(&mut self, now: &Now, ended: &Ended) {
        let Ended { open, result, devices } = ended;
        let intent = &open.intent;
        self.budget.ended(now, intent, *result, devices);
        if !intent.asked.actor.is_policy() {
            self.forget_contention(now, intent.goal.keys());
        } else if intent.cause == Cause::Drift {
            self.sightings.count_restore(now, open);
        }
        self.strays.ended(open);
        if *result != TxnResult::Committed {
            // After an undo, light that was missing before the change may still be missing.
            for device in intent.after.keys() {
                self.sightings.look_within(device, Micros(0));
            }
        }
        for device in devices {
            self.note_drift(device);
        }
    }

    fn send(&mut self, now: &Now, device: &DeviceName, op: Op, drives: bool) {
        if let Some((ticket, op)) = self.sightings.asked(now, device, op, drives) {
            self.out.push(Action::Send(device.clone(), ticket, op));
        }
    }

    fn reply(&mut self, now: &Now, device: &DeviceName, ticket: Ticket, outcome: Outcome) {
        if !self.sightings.devices().contains_key(device) {
            return;
        }
        let Some(flight) = self.sightings.replied(now, device, ticket) else {
            self.out.note(Note::Late(device.clone()));
            return;
        };
        let inventory = self.sightings.inventory();
        if flight.moves && matches!(outcome, Outcome::Unknown(_)) {
            self.strays.gave_up(now, device, self.transactions.ledger(), inventory);
        }
        let every = self.strays.poll_every(device, inventory);
        self.sightings.polls_again(now, device, &flight, every);
        match &outcome {
            Outcome::Done(Some(read)) => self.note_read(now, device, &flight, read),
            Outcome::Unknown(why) => {
                self.out.note(Note::Unknown(device.clone(), why.clone()));
            }
            _ => {}
        }
        if flight.drives {
            let site = self.sightings.inventory();
            let commands = self.transactions.reply(now, device, outcome, site);
            self.execute(now, commands);
        }
        if let Some((op, drives)) = self.sightings.take_waiting(device) {
            self.send(now, device, op, drives);
        }
    }

    fn note_read(&mut self, now: &Now, device: &DeviceName, flight: &Flight, read: &Observation) {
        self.sightings.note_read(now, device, flight, read, self.transactions.ledger());
        self.note_drift(device);
        let ledger = self.transactions.ledger();
        if self.sightings.note_contention(now, device, read, ledger) {
            self.note_contended(now, device);
        }
        let ledger = self.transactions.ledger();
        if let Some(crossed) = self.sightings.note_crossed(device, ledger) {
            self.out.note(Note::Crossed(device.clone(), crossed));
        }
        self.sightings.note_darkness(now, device, ledger);
    }

    fn note_drift(&mut self, device: &DeviceName) {
        if self.sightings.inventory().is_lever(device) || self.ledger().is_moving(device) {
            return;
        }
        self.transactions.take_planned(device, &self.sightings, &mut self.out);
        let (ledger, planned) = (self.transactions.ledger(), self.transactions.planned(device));
        if let Some(drift) = self.sightings.note_drift(device, ledger, planned) {
            self.out.note(Note::Drift(device.clone(), drift));
        }
    }

    fn note_contended(&mut self, now: &Now, device: &DeviceName) {
        let contended = self.sightings.contended(device, now);
        self.out.note(Note::Contended(device.clone(), contended));
    }

    fn forget_contention<'a>(&mut self, now: &Now, devices: impl Iterator<Item = &'a DeviceName>) {
        for device in devices {
            if self.sightings.forget_contention(device) {
                self.note_contended(now, device);
            }
        }
    }

    fn became_reachable(&mut self, now: &Now, device: DeviceName) {
        let Some(is_free) = self.sightings.became_reachable(&device) else { return };
        self.transactions.reached(now, &device);
        self.out.note(Note::Reachable(device.clone()));
        if is_free {
            let observe = Op::Observe { power: Vec::new(), neighbours: Neighbours::Usual };
            self.send(now, &device, observe, false);
        }
    }

    fn became_unreachable(&mut self, now: &Now, device: DeviceName, trouble: Trouble) {
        if !self.sightings.devices().contains_key(&device) {
            return;
        }
        let reason = trouble.why().to_owned();
        let ticket =
            self.sightings.became_unreachable(now, &device, trouble, self.transactions.ledger());
        self.out.note(Note::Unreachable(device.clone(), reason.clone()));
        if let Some(ticket) = ticket {
            self.reply(now, &device, ticket, Outcome::Unknown(reason));
        }
    }

    fn tick(&mut self, now: &Now) {
        self.time_out(now);
        let commands = self.transactions.tick(now, self.sightings.inventory());
        self.execute(now, commands);
        self.poll(now);
        if !self.transactions.is_busy()
            && !self.transactions.only_reads()
            && now.mono >= self.budget.not_before()
        {
            self.restore_late(now);
            self.confirm_too_late(now);
            self.restore_drift(now);
            let cx = &mut Context::new(now, &self.sightings, &self.strays, &mut self.out);
            if let Some(decision) = self.transactions.complete_deferred(cx) {
                self.follow(now, decision);
            }
        }
    }

    fn time_out(&mut self, now: &Now) {
        let due = self.schedule.all_due(now.mono, &self.sightings, self.ledger());
        let overdue = due.into_iter().filter_map(|device| {
            let (ticket, overdue) = self.sightings.overdue(now, &device, self.ledger())?;
            Some((device, ticket, overdue))
        });
        for (device, ticket, overdue) in overdue.collect::<Vec<_>>() {
            let ledger = self.transactions.ledger();
            match overdue {
                Overdue::Wait => {
                    self.sightings.note_overdue(now, &device, ledger);
                    continue;
                }
                Overdue::AskAgain => {
                    self.sightings.ask_again(now, &device, ledger);
                    let op = Op::Observe { power: Vec::new(), neighbours: Neighbours::Never };
                    self.send(now, &device, op, false);
                    continue;
                }
                Overdue::AbandonWithoutHello => self.sightings.skip_hello(&device, ledger),
                Overdue::Abandon => {}
            }
            self.out.push(Action::Abandon(device.clone(), ticket));
            let outcome = Outcome::Unknown("no answer in time".into());
            self.reply(now, &device, ticket, outcome);
        }
    }

    fn poll(&mut self, now: &Now) {
        for device in self.schedule.all_due(now.mono, &self.sightings, self.ledger()) {
            let Some(neighbours) = self.sightings.polled(now, &device) else { continue };
            let lit = self.ledger().owned.get(&device).map(|p| p.keys().copied().collect());
            let power = lit.unwrap_or_default();
            self.send(now, &device, Op::Observe { power, neighbours }, false);
        }
    }

    fn restore_late(&mut self, now: &Now) {
        let undo = self.strays.undo(now, &self.sightings, self.transactions.ledger());
        let Some(apply) = undo else { return };
        self.budget.begins(now);
        let answer = self.apply_own(now, Policy::Late, "late", apply);
        if let Answer::Refused { reasons } = answer {
            debug_assert!(reasons.is_empty(), "drift of a device that was read: {reasons:?}");
        }
    }

    fn confirm_too_late(&mut self, now: &Now) {
        let pending = self.ledger().pending.as_ref();
        if pending.is_none_or(|pending| pending.deadline(now) > now.mono) {
            return;
        }
        self.budget.begins(now);
        let cx = &mut Context::new(now, &self.sightings, &self.strays, &mut self.out);
        if let Some(decision) = self.transactions.confirm_too_late(cx) {
            self.follow(now, decision);
        }
    }

    fn restore_drift(&mut self, now: &Now) {
        let off = self.sightings.inventory().on_drift == OnDrift::Report;
        if off || !self.transactions.is_free() || !self.budget.is_left(now) {
            return;
        }
        let target = self.sightings.drifted(now, self.ledger());
        if !target.is_empty() {
            self.budget.begins(now);
            let apply = self.transactions.put_back(target);
            self.apply_own(now, Policy::Drift, "drift", apply);
        }
    }

    fn apply_own(&mut self, now: &Now, policy: Policy, name: &str, apply: Apply) -> Answer {
        let asked = own(policy, format!("{name}-{}", self.ledger().last_txn.0 + 1));
        let cx = &mut Context::new(now, &self.sightings, &self.strays, &mut self.out);
        let decision = self.transactions.apply(cx, asked, apply);
        self.follow(now, decision)
    }
}

#[cfg(test)]
mod tests;
