// SPDX-License-Identifier: Apache-2.0

use super::drift::own;
use super::{Action, Controller, Flight, Note, Ticket};
use crate::actor::Policy;
use crate::drive::{Command, Drive, Site};
use crate::inventory::Inventory;
use crate::management::Trouble;
use crate::record::Cause;
use crate::state::{DeviceName, Micros, Neighbours, Now, Op, Outcome};

impl Controller {
    pub(super) fn send(
        &mut self,
        now: &Now,
        device: &DeviceName,
        op: Op,
        drives: bool,
        actions: &mut Vec<Action>,
    ) {
        let limits = self.inventory.limits(device);
        let Some(seen) = self.devices.get_mut(device) else { return };
        if seen.in_flight.is_some() {
            seen.waiting.push_back((op, drives));
            return;
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let asked = now.mono;
        let moves = matches!(op, Op::Switch { .. });
        let (late, given_up) = match moves {
            true => (limits.switch_within, limits.switch_within),
            false => (limits.read_within.min(limits.reply_within), limits.reply_within),
        };
        let (late_at, deadline) = (asked + late, asked + given_up);
        let neighbours = match &op {
            Op::Observe { neighbours, .. } => Some(*neighbours),
            _ => None,
        };
        let names = neighbours == Some(Neighbours::Always);
        let is_probe = neighbours == Some(Neighbours::Never);
        let (is_late, unanswered) = (false, None);
        let in_a_crowd = self.crowd.joined(asked);
        seen.in_flight = Some(Flight {
            ticket,
            asked,
            late_at,
            is_late,
            is_probe,
            unanswered,
            deadline,
            drives,
            names,
            moves,
            in_a_crowd,
        });
        actions.push(Action::Send(device.clone(), ticket, op));
    }

    pub(super) fn reply(
        &mut self,
        now: &Now,
        device: &DeviceName,
        ticket: Ticket,
        outcome: Outcome,
        actions: &mut Vec<Action>,
    ) {
        let Some(seen) = self.devices.get_mut(device) else { return };
        let Some(flight) = seen.in_flight.take_if(|flight| flight.ticket == ticket) else {
            seen.signalled.is_heard(now);
            actions.push(Action::Note(Note::Late(device.clone())));
            return;
        };
        let is_poll = !flight.drives && seen.observed.is_some();
        let wants_read = seen.signalled.wants_read_after(flight.asked);
        let gave_up = flight.moves && matches!(outcome, Outcome::Unknown(_));
        if gave_up {
            self.gave_up(now, device);
        }
        let next_poll = now.mono + self.next_poll_after(device, is_poll);
        let Some(seen) = self.devices.get_mut(device) else { return };
        seen.next_poll = if wants_read { now.mono } else { next_poll };
        match &outcome {
            Outcome::Done(Some(read)) => {
                seen.signalled.answered(flight.asked);
                let took = now.mono - flight.asked.max(seen.free_since);
                match flight.in_a_crowd {
                    _ if flight.moves => {}
                    true => seen.pace.answered_in_a_crowd(took),
                    false => seen.pace.answered(took),
                }
                if flight.names {
                    seen.named_at = flight.asked;
                }
                self.note_read(now, device, (flight.asked, read), actions);
            }
            Outcome::Unknown(why) => {
                if gave_up {
                    seen.late_until = now.mono + self.inventory.limits(device).late_within;
                }
                actions.push(Action::Note(Note::Unknown(device.clone(), why.clone())));
            }
            _ => {}
        }
        if flight.drives {
            self.drive(now, actions, |drive, site| drive.reply(now.mono, site, device, outcome));
        }
        self.send_next(now, device, actions);
    }

    fn drive(
        &mut self,
        now: &Now,
        actions: &mut Vec<Action>,
        step: impl FnOnce(&mut Drive, &Inventory) -> Vec<Command>,
    ) {
        if let Some(drive) = &mut self.drive {
            let commands = step(drive, &self.inventory);
            self.execute(now, commands, actions);
        }
    }

    fn send_next(&mut self, now: &Now, device: &DeviceName, actions: &mut Vec<Action>) {
        let Some(seen) = self.devices.get_mut(device) else { return };
        if seen.in_flight.is_none()
            && let Some((op, drives)) = seen.waiting.pop_front()
        {
            self.send(now, device, op, drives, actions);
        }
    }

    pub(super) fn up(&mut self, now: &Now, device: DeviceName, actions: &mut Vec<Action>) {
        let Some(seen) = self.devices.get_mut(&device) else { return };
        (seen.up, seen.was_up) = (true, true);
        seen.signalled.reset();
        seen.occupied = false;
        (seen.observed, seen.stood, seen.trouble) = (None, None, None);
        if let Some(drive) = &mut self.drive {
            drive.reached(now.mono, &device);
        }
        actions.push(Action::Note(Note::Up(device.clone())));
        if seen.in_flight.is_none() {
            let observe = Op::Observe { power: Vec::new(), neighbours: Neighbours::Usual };
            self.send(now, &device, observe, false, actions);
        }
    }

    pub(super) fn down(
        &mut self,
        now: &Now,
        device: DeviceName,
        trouble: Trouble,
        actions: &mut Vec<Action>,
    ) {
        let reason = trouble.why().to_owned();
        let Some(seen) = self.devices.get_mut(&device) else { return };
        if std::mem::take(&mut seen.up) {
            seen.down_since = seen.signalled.silent_since.take().unwrap_or(now.mono);
        }
        if seen.observed.is_some() {
            seen.silent_since = now.mono;
        }
        seen.trouble = Some(trouble);
        if seen.observed.take().is_some() {
            self.look_around(&device);
        }
        let Some(seen) = self.devices.get_mut(&device) else { return };
        let ticket = seen.in_flight.as_ref().map(|flight| flight.ticket);
        actions.push(Action::Note(Note::Down(device.clone(), reason.clone())));
        if let Some(ticket) = ticket {
            self.reply(now, &device, ticket, Outcome::Unknown(reason), actions);
        }
    }

    pub(super) fn tick(&mut self, now: &Now, actions: &mut Vec<Action>) {
        self.time_out(now, actions);
        self.drive(now, actions, |drive, site| drive.tick(now.mono, site));
        self.poll(now, actions);
        if self.drive.is_none() && !self.only_reads && now.mono >= self.own_not_before {
            self.restore_late(now, actions);
            self.confirm_too_late(now, actions);
            self.restore_drift(now, actions);
            self.settle(now, actions);
        }
    }

    fn poll(&mut self, now: &Now, actions: &mut Vec<Action>) {
        let due = |device: &DeviceName| {
            let seen = self.devices.get(device);
            seen.is_some_and(|seen| self.may_be_asked(device, seen) && seen.next_poll <= now.mono)
        };
        let mut devices = self.all_due(now.mono);
        devices.retain(due);
        for device in devices {
            self.devices.get_mut(&device).and_then(|seen| seen.in_flight.take());
            let lit = self.ledger.owned.get(&device).map(|p| p.keys().copied().collect());
            let power = lit.unwrap_or_default();
            let op = Op::Observe { power, neighbours: self.asks_for_neighbours(&device) };
            self.send(now, &device, op, false, actions);
        }
    }

    fn confirm_too_late(&mut self, now: &Now, actions: &mut Vec<Action>) {
        let Some(pending) = self.ledger.pending.clone() else { return };
        if pending.deadline(now) > now.mono {
            return;
        }
        self.own_not_before = now.mono + Micros::from_secs(1);
        let request = format!("confirm-timeout-{}", pending.txn);
        let asked = own(Policy::ConfirmTimeout, request);
        let cause = Cause::ConfirmTimeout(pending.txn);
        if let Ok(back) = self.led_back(pending.txn, cause) {
            self.undo(now, asked, back, actions);
        }
    }
}
