// SPDX-License-Identifier: Apache-2.0
//! Distinguishes late replies from unreachable devices.
//!
//! A late reply is weak evidence, because the host may be busy or a byte may be lost. The daemon
//! therefore waits for `reply_within` while neighbours receive the device's light. It stops waiting
//! if the light is missing, or if another module of the node is unreachable and dark. The device
//! has then failed unless it replies to a hello on a fresh connection.
//!
//! After an unsolicited report of lost light, a whole node can be found failed without that hello.
//!
//! A report alone decides nothing. With a reading that confirms it, the far end is a witness:
//!
//! * Only a status requested *after* the loss of light is considered. Its reply counts as missing
//!   after twice the sum of the promised time and the duration of recent reads, but no later than
//!   five times the promise plus the line time.
//! * At least two modules of the node must miss their reply, or two far ends must report the loss. A
//!   single module has failed if it misses three requests while its neighbours reply promptly.
//! * A busy host delays all replies, so the witness must then reply promptly again.
//!
//! If no other module receives a module's light, the missing reply is the only evidence, and the
//! module is a suspect: it is bypassed if another module of its node has failed.

use std::collections::BTreeSet;

use super::signals::Signal;
use super::{Sighting, Sightings, Ticket};
use crate::drive::Site;
use crate::ledger::Ledger;
use crate::mover::ANSWER;
use crate::state::{DeviceName, FibreEnd, Micros, Now, Slot};

/// Time limit for the reply to a hello on a fresh connection, for devices without promised times.
const HELLO_WITHIN: Micros = Micros::from_millis(50);
const FIRST_HELLO_WITHIN: Micros = Micros(2 * ANSWER.0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    Failed,
    TimedOut,
    /// Only this device does not reply, and the one missing reply may have been lost.
    AskedAgain,
    /// The first limit has passed, or the host may be busy, because other devices do not reply promptly either.
    Late,
}

const ASKED_ALONE: u32 = 3;

impl Sightings {
    pub(crate) fn signalled(
        &mut self,
        now: &Now,
        device: &DeviceName,
        signal: Signal,
        ledger: &Ledger,
    ) {
        let Some(seen) = self.get_mut(device).filter(|seen| seen.reachable) else { return };
        if !seen.signalled.takes(now, signal) {
            return;
        }
        self.read_now(now, device);
        if let Signal::LightLost(slot, to) = signal {
            self.check_node(now, &(device.clone(), slot, to), ledger);
        }
    }

    pub(super) fn read_now(&mut self, now: &Now, device: &DeviceName) {
        if let Some(seen) = self.get_mut(device) {
            seen.wants_read(now);
        }
    }

    pub(crate) fn read_all(&mut self, now: &Now) {
        self.index.changed.extend(self.devices.keys().cloned());
        let in_reach = self.devices.values_mut().filter(|seen| seen.reachable);
        in_reach.for_each(|seen| seen.wants_read(now));
    }

    /// Reads the node at the other end of a fibre next, because this end receives no light.
    pub(super) fn check_node(&mut self, now: &Now, receiver: &FibreEnd, ledger: &Ledger) {
        let Some(sender) = self.far_end(receiver).cloned() else { return };
        let intended = !ledger.is_at_rest(&receiver.0) || !ledger.is_at_rest(&sender.0);
        if intended || !ledger.owns(receiver) || !ledger.owns(&sender) {
            return;
        }
        for device in self.node_of(&sender.0) {
            if let Some(seen) = self.get_mut(&device) {
                seen.signalled.node_dark_since.get_or_insert(now.mono);
            }
            self.read_now(now, &device);
        }
        self.read_related_soon(&sender.0, ledger);
    }

    pub(super) fn may_be_asked(&self, device: &DeviceName, seen: &Sighting) -> bool {
        seen.reachable
            && seen.in_flight.as_ref().is_none_or(|flight| {
                let is_read = !flight.drives && !flight.moves && !seen.occupied;
                is_read
                    && seen.signalled.node_went_dark_after(flight.asked)
                    && self.inventory.limits(device).probe_within > Micros(0)
            })
    }

    pub(crate) fn due_at(
        &self,
        device: &DeviceName,
        seen: &Sighting,
        ledger: &Ledger,
    ) -> Option<Micros> {
        let poll = self.may_be_asked(device, seen).then_some(seen.next_poll);
        self.times_out_at(device, seen, ledger).into_iter().chain(poll).min()
    }

    fn status_within(&self, device: &DeviceName, seen: &Sighting) -> Option<Micros> {
        let longest = self.prompt_within(device, seen)?;
        let slow = seen.pace.slow();
        let replies = self.inventory.devices.get(device)?.reply_time.filter(|_| slow > Micros(0));
        Some(replies.map_or(longest, |reply| Micros(2 * (reply + slow).0).min(longest)))
    }

    fn prompt_within(&self, device: &DeviceName, seen: &Sighting) -> Option<Micros> {
        let limits = &self.inventory.devices.get(device)?.limits;
        let within = limits.probe_within.max(Micros(2 * seen.pace.slow().0));
        (limits.probe_within.0 > 0 && within < limits.read_within).then_some(within)
    }

    fn missing_at(&self, device: &DeviceName, seen: &Sighting) -> Option<Micros> {
        let flight = seen.in_flight.as_ref().filter(|flight| flight.is_probe)?;
        let dark_since = seen.signalled.node_dark_since.filter(|at| *at <= flight.asked)?;
        let asked = flight.asked.max(dark_since).max(seen.free_since);
        Some(asked + self.status_within(device, seen)?)
    }

    fn read_related_now(&mut self, now: &Now, device: &DeviceName, ledger: &Ledger) {
        for device in self.related(device, ledger) {
            self.read_now(now, &device);
        }
    }

    fn replied_promptly(&self, device: &DeviceName, seen: &Sighting, since: Micros) -> bool {
        let within = self.prompt_within(device, seen);
        self.is_read_since(device, since) && within.is_some_and(|within| seen.pace.last <= within)
    }

    /// Returns whether only this device misses its reply: it has sent nothing since
    /// its light was lost, while a reporting far end and the node's other devices replied promptly.
    fn is_only_one_missing(&self, device: &DeviceName, ledger: &Ledger) -> bool {
        let Some(seen) = self.devices.get(device) else { return false };
        let Some(since) = seen.in_flight.as_ref().map(|flight| flight.asked) else { return false };
        let node = self.node_of(device);
        let mut others = node.iter().filter(|other| *other != device);
        !seen.signalled.is_heard_since_loss()
            && self.is_light_gone(device, ledger) == Some(true)
            && self.witnesses(device, since, ledger).next().is_some()
            && node.len() > 1
            && others.all(|other| self.replied_promptly(other, &self.devices[other], since))
    }

    fn missing_reply(&self, device: &DeviceName, ledger: &Ledger) -> Overdue {
        let asked = self.devices.get(device).map_or(0, |seen| seen.signalled.missing_replies);
        if self.has_node_failed(device, ledger) {
            return Overdue::Failed;
        }
        match self.is_only_one_missing(device, ledger) {
            true if asked + 1 >= ASKED_ALONE => Overdue::Failed,
            true => Overdue::AskedAgain,
            false => Overdue::Late,
        }
    }

    pub(crate) fn ask_again(&mut self, now: &Now, device: &DeviceName, ledger: &Ledger) {
        if let Some(seen) = self.get_mut(device) {
            seen.in_flight = None;
            seen.signalled.missing_replies += 1;
        }
        self.read_related_now(now, device, ledger);
    }

    /// Returns whether the node of this device has failed: no reachable module of the node replies,
    /// and later reads of the far ends show no light. Since the last missing reply, at least one reporting
    /// far end must have replied promptly, or two if only one module was reachable.
    fn has_node_failed(&self, device: &DeviceName, ledger: &Ledger) -> bool {
        let node = self.node_of(device);
        let reachable: Vec<_> = node.iter().filter(|device| self.is_reachable(device)).collect();
        let replies = reachable.iter().map(|device| self.devices[*device].in_flight.as_ref());
        let missing: Option<Vec<Micros>> = replies.map(|flight| flight?.missing_since).collect();
        let Some(since) = missing.and_then(|all| all.into_iter().max()) else { return false };
        let witnesses: BTreeSet<&DeviceName> =
            node.iter().flat_map(|device| self.witnesses(device, since, ledger)).collect();
        reachable.len().max(witnesses.len()) > 1
            && !witnesses.is_empty()
            && reachable.iter().all(|device| self.is_light_gone(device, ledger) != Some(false))
    }

    pub(crate) fn found_failed(&mut self, device: &DeviceName, ledger: &Ledger) {
        let gone = self.is_light_gone(device, ledger) == Some(true);
        if let Some(seen) = self.get_mut(device) {
            let missing_since = seen.in_flight.as_ref().and_then(|flight| flight.missing_since);
            seen.signalled.found_failed(gone, missing_since);
        }
    }

    /// A far end shows no light only if it was read after the loss. `None` if no reachable far end should receive its light.
    fn is_light_gone(&self, device: &DeviceName, ledger: &Ledger) -> Option<bool> {
        let seen = self.devices.get(device)?;
        let since = seen.signalled.node_dark_since.unwrap_or(seen.unreachable_since);
        let read = self.far_ends(device, ledger).filter_map(|far| {
            let seen =
                self.devices.get(&far.0).filter(|seen| seen.reachable && ledger.owns(far))?;
            Some(seen.read_at >= since && seen.dark.contains_key(&far.1))
        });
        read.reduce(|one, other| one && other)
    }

    pub(crate) fn is_unwitnessed(&self, device: &DeviceName, now: &Now) -> bool {
        let reconnect_within = self.inventory.limits(device).reconnect_within;
        self.devices.get(device).is_some_and(|seen| {
            let tries = now.mono < seen.unreachable_since + reconnect_within;
            !seen.reachable && seen.signalled.is_unwitnessed && tries
        })
    }

    fn witnesses<'a>(
        &'a self,
        device: &DeviceName,
        since: Micros,
        ledger: &'a Ledger,
    ) -> impl Iterator<Item = &'a DeviceName> {
        self.far_ends(device, ledger).filter_map(move |(witness, slot, _)| {
            let seen = self.devices.get(witness).filter(|seen| seen.confirms_lost(*slot))?;
            self.replied_promptly(witness, seen, since).then_some(witness)
        })
    }

    fn times_out_at(
        &self,
        device: &DeviceName,
        seen: &Sighting,
        ledger: &Ledger,
    ) -> Option<Micros> {
        let flight = seen.in_flight.as_ref().filter(|_| !seen.occupied)?;
        let late = match flight.is_late && !self.is_needless(device, seen, ledger) {
            true => flight.deadline,
            false => flight.late_at.min(flight.deadline),
        };
        let missed = match flight.missing_since {
            None => self.missing_at(device, seen),
            Some(since) => (self.missing_reply(device, ledger) != Overdue::Late).then_some(since),
        };
        Some(missed.map_or(late, |missed| missed.min(late)))
    }

    pub(crate) fn overdue(
        &self,
        now: &Now,
        device: &DeviceName,
        ledger: &Ledger,
    ) -> Option<(Ticket, Overdue)> {
        let seen = self.devices.get(device)?;
        let at = self.times_out_at(device, seen, ledger)?;
        let flight = seen.in_flight.as_ref().filter(|_| at <= now.mono)?;
        let missed = flight.missing_since.map(|_| self.missing_reply(device, ledger));
        let needless = flight.is_late && self.is_needless(device, seen, ledger);
        let overdue = match missed {
            Some(Overdue::Failed) => Overdue::Failed,
            _ if flight.deadline <= now.mono || needless => Overdue::TimedOut,
            missed => missed.unwrap_or(Overdue::Late),
        };
        Some((flight.ticket, overdue))
    }

    pub(crate) fn note_late(&mut self, now: &Now, device: &DeviceName, ledger: &Ledger) {
        let missing_at = self.devices.get(device).and_then(|seen| self.missing_at(device, seen));
        let is_missing = missing_at.is_some_and(|at| at <= now.mono);
        let flight = self.get_mut(device).and_then(|seen| seen.in_flight.as_mut());
        let Some(flight) = flight else { return };
        flight.is_late |= flight.late_at <= now.mono;
        let is_new = is_missing && flight.missing_since.is_none();
        if is_new {
            flight.missing_since = Some(now.mono);
        }
        self.read_related_soon(device, ledger);
        if is_new {
            self.read_related_now(now, device, ledger);
        }
    }

    pub(crate) fn occupied(&mut self, now: &Now, device: &DeviceName, occupied: bool) {
        let Some(seen) = self.get_mut(device) else { return };
        seen.occupied = occupied;
        if occupied {
            return;
        }
        seen.free_since = now.mono;
        if let Some(flight) = &mut seen.in_flight {
            let waited = now.mono - flight.asked;
            (flight.late_at, flight.deadline) = (flight.late_at + waited, flight.deadline + waited);
        }
    }

    /// Returns all modules of the node, or only the device if it is not a module.
    fn node_of(&self, device: &DeviceName) -> Vec<DeviceName> {
        let Some((node, _)) = device.as_str().split_once('/') else { return vec![device.clone()] };
        let first = format!("{node}/");
        let from = self.devices.range(DeviceName::from(first.as_str())..).map(|(device, _)| device);
        from.take_while(|device| device.as_str().starts_with(&first)).cloned().collect()
    }

    /// Returns the other devices of the node, the far ends of all, and the node's switches.
    fn related(&self, device: &DeviceName, ledger: &Ledger) -> Vec<DeviceName> {
        let node = self.node_of(device);
        let far = node.iter().flat_map(|device| self.far_ends(device, ledger));
        let hosts = device.bundle().and_then(|bundle| self.inventory.hosts.get(&bundle.node));
        let others = node.iter().filter(|other| *other != device);
        let all = far.map(|(far, ..)| far).chain(hosts.into_iter().flatten()).chain(others);
        all.cloned().collect()
    }

    pub(super) fn read_related_soon(&mut self, device: &DeviceName, ledger: &Ledger) {
        for device in self.related(device, ledger) {
            self.look_within(&device, Micros(0));
        }
    }

    fn is_needless(&self, device: &DeviceName, seen: &Sighting, ledger: &Ledger) -> bool {
        let is_old = seen
            .in_flight
            .as_ref()
            .is_some_and(|flight| !flight.moves && seen.signalled.wants_read_after(flight.asked));
        is_old || self.is_light_missing(device, ledger)
    }

    /// Returns whether light of the device, or of an unreachable module on the same node, is
    /// missing. Other modules cannot see the light of a module in loopback.
    fn is_light_missing(&self, device: &DeviceName, ledger: &Ledger) -> bool {
        self.node_of(device).iter().any(|other| {
            (other == device || !self.is_reachable(other)) && self.is_dark_at_far_end(other, ledger)
        })
    }

    fn is_dark_at_far_end(&self, device: &DeviceName, ledger: &Ledger) -> bool {
        self.far_ends(device, ledger).any(|(far, slot, _)| {
            let samples = self.inventory.devices.get(far).map_or(1, |d| d.limits.power_samples);
            let seen = self.devices.get(far).filter(|seen| seen.reachable);
            seen.and_then(|seen| seen.dark.get(slot)).is_some_and(|dark| dark.reads >= samples)
        })
    }

    fn hello_within(&self, device: &DeviceName) -> Micros {
        self.inventory.limits(device).reconnect_within.max(HELLO_WITHIN)
    }

    pub(crate) fn may_be_unreachable(
        &self,
        device: &DeviceName,
        since: Micros,
        now: &Now,
        ledger: &Ledger,
    ) -> bool {
        let hello_within = self.hello_within(device);
        self.devices.get(device).is_some_and(|seen| match seen.reachable {
            true => seen.read_at < since,
            false => {
                let tries = now.mono < seen.unreachable_from(hello_within);
                tries && !seen.signalled.is_found_failed && !self.sends_light(device, ledger)
            }
        })
    }

    pub fn stays_unreachable(&self, now: &Now, device: &DeviceName) -> bool {
        let Some(seen) = self.devices.get(device) else { return false };
        let since = seen.unreachable_since.max(seen.unread_since);
        !seen.reachable
            && (seen.signalled.is_given_up() || now.mono >= since + self.hello_within(device))
    }

    pub(crate) fn long_unread(&self, now: &Now) -> BTreeSet<DeviceName> {
        let devices = self.devices.iter().filter(|(device, seen)| {
            let patience = self.inventory.limits(device).patience();
            !seen.is_read() && seen.unread_since + patience <= now.mono
        });
        devices.map(|(device, _)| device.clone()).collect()
    }
}

impl Sighting {
    fn confirms_lost(&self, slot: Slot) -> bool {
        self.signalled.lost_at(slot).is_some_and(|lost| lost <= self.read_at)
            && self.dark.contains_key(&slot)
    }

    fn wants_read(&mut self, now: &Now) {
        self.next_poll = Micros(0);
        self.signalled.wanted_at = now.mono;
    }

    pub(super) fn unreachable_from(&self, hello_within: Micros) -> Micros {
        match self.was_reachable {
            true => self.unreachable_since + hello_within,
            false => self.unread_since + FIRST_HELLO_WITHIN,
        }
    }

    pub(crate) fn is_entangled(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|f| f.is_late || f.missing_since.is_some())
    }
}
