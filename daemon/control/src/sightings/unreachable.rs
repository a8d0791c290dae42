// SPDX-License-Identifier: Apache-2.0
//! Distinguishes overdue replies from unreachable devices. The words are those of the
//! [crate's front page](crate).
//!
//! An overdue reply is weak evidence, because the host may be busy or a byte may be lost. The daemon
//! therefore waits for `reply_within`, unless a far end of the device is dark or another module of
//! the node is unreachable and dark. The device is then unreachable, and
//! [stays](Sightings::stays_unreachable) so unless it replies to a hello on a fresh connection.
//!
//! While a node is checked, its devices can be unreachable without that hello:
//!
//! * Only a status requested *after* the check began is considered. It is overdue after twice the sum
//!   of the promised time and the duration of recent reads, but no later than five times the promise
//!   plus the line time.
//! * All reachable modules of the node must be overdue: at least two, or one with two dark far ends.
//!   A module of a node that replies otherwise must be overdue three times.
//! * A busy host delays all replies. A far end must therefore have reported and read that it is dark,
//!   and have replied promptly since the status was overdue.
//!
//! A module that no far end faces is *overdue with its node*. It is bypassed if another module of its
//! node has failed.

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
    /// The host may be busy, because other devices do not reply promptly either.
    Wait,
    /// Only this device is overdue, and a single request or reply may have been lost.
    AskAgain,
    Abandon,
    /// Far ends confirm that the device, or its whole node, does not work.
    AbandonWithoutHello,
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
        if !seen.signalled.take(now, signal) {
            return;
        }
        self.read_now(now, device);
        if let Signal::LightLost(slot, to) = signal {
            self.check_node(now, &(device.clone(), slot, to), ledger);
        }
    }

    pub(super) fn read_now(&mut self, now: &Now, device: &DeviceName) {
        if let Some(seen) = self.get_mut(device) {
            seen.want_read(now);
        }
    }

    pub(crate) fn read_all(&mut self, now: &Now) {
        self.index.changed.extend(self.devices.keys().cloned());
        let in_reach = self.devices.values_mut().filter(|seen| seen.reachable);
        in_reach.for_each(|seen| seen.want_read(now));
    }

    /// Checks the node at the other end of a fibre, because this end is dark: its devices are read next.
    pub(super) fn check_node(&mut self, now: &Now, receiver: &FibreEnd, ledger: &Ledger) {
        let Some(sender) = self.far_end(receiver).cloned() else { return };
        let intended = !ledger.is_at_rest(&receiver.0) || !ledger.is_at_rest(&sender.0);
        if intended || !ledger.owns(receiver) || !ledger.owns(&sender) {
            return;
        }
        for device in self.node_of(&sender.0) {
            if let Some(seen) = self.get_mut(&device) {
                seen.signalled.checked_since.get_or_insert(now.mono);
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
                    && seen.signalled.checked_since.is_some_and(|since| flight.asked < since)
                    && self.inventory.limits(device).status_within > Micros(0)
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

    fn status_limit(&self, device: &DeviceName, seen: &Sighting) -> Option<Micros> {
        let longest = self.prompt_limit(device, seen)?;
        let slow = seen.pace.slow();
        let replies = self.inventory.devices.get(device)?.reply_time.filter(|_| slow > Micros(0));
        Some(replies.map_or(longest, |reply| Micros(2 * (reply + slow).0).min(longest)))
    }

    fn prompt_limit(&self, device: &DeviceName, seen: &Sighting) -> Option<Micros> {
        let limits = &self.inventory.devices.get(device)?.limits;
        let within = limits.status_within.max(Micros(2 * seen.pace.slow().0));
        (limits.status_within.0 > 0 && within < limits.read_within).then_some(within)
    }

    fn status_overdue_at(&self, device: &DeviceName, seen: &Sighting) -> Option<Micros> {
        let flight = seen.in_flight.as_ref().filter(|flight| flight.is_status)?;
        seen.signalled.checked_since.filter(|since| *since <= flight.asked)?;
        let asked = flight.asked.max(seen.free_since);
        Some(asked + self.status_limit(device, seen)?)
    }

    fn read_related_now(&mut self, now: &Now, device: &DeviceName, ledger: &Ledger) {
        for device in self.related(device, ledger) {
            self.read_now(now, &device);
        }
    }

    fn replied_promptly(&self, device: &DeviceName, seen: &Sighting, since: Micros) -> bool {
        let within = self.prompt_limit(device, seen);
        self.is_read_since(device, since) && within.is_some_and(|within| seen.pace.last <= within)
    }

    /// Returns whether only this device is overdue: it has sent nothing since the check began, while
    /// a dark far end and the node's other devices replied promptly.
    fn is_only_one_overdue(&self, device: &DeviceName, ledger: &Ledger) -> bool {
        let Some(seen) = self.devices.get(device) else { return false };
        let Some(since) = seen.in_flight.as_ref().map(|flight| flight.asked) else { return false };
        let node = self.node_of(device);
        let mut others = node.iter().filter(|other| *other != device);
        !seen.signalled.has_sent_since_check()
            && self.is_dark_at_all_far_ends(device, ledger) == Some(true)
            && self.prompt_dark_far_ends(device, since, ledger).next().is_some()
            && node.len() > 1
            && others.all(|other| self.replied_promptly(other, &self.devices[other], since))
    }

    fn decide_overdue(&self, device: &DeviceName, ledger: &Ledger) -> Overdue {
        let asked = self.devices.get(device).map_or(0, |seen| seen.signalled.asked_again);
        if self.is_node_overdue(device, ledger) {
            return Overdue::AbandonWithoutHello;
        }
        match self.is_only_one_overdue(device, ledger) {
            true if asked + 1 >= ASKED_ALONE => Overdue::AbandonWithoutHello,
            true => Overdue::AskAgain,
            false => Overdue::Wait,
        }
    }

    pub(crate) fn ask_again(&mut self, now: &Now, device: &DeviceName, ledger: &Ledger) {
        if let Some(seen) = self.get_mut(device) {
            seen.in_flight = None;
            seen.signalled.asked_again += 1;
        }
        self.read_related_now(now, device, ledger);
    }

    /// Returns whether all reachable modules of the device's node are overdue, and all their far ends
    /// dark. Since then, a far end must have replied promptly, or two if only one module was reachable.
    fn is_node_overdue(&self, device: &DeviceName, ledger: &Ledger) -> bool {
        let node = self.node_of(device);
        let reachable: Vec<_> = node.iter().filter(|device| self.is_reachable(device)).collect();
        let replies = reachable.iter().map(|device| self.devices[*device].in_flight.as_ref());
        let overdue: Option<Vec<Micros>> =
            replies.map(|flight| flight?.status_overdue_since).collect();
        let Some(since) = overdue.and_then(|all| all.into_iter().max()) else { return false };
        let dark: BTreeSet<&DeviceName> = node
            .iter()
            .flat_map(|device| self.prompt_dark_far_ends(device, since, ledger))
            .collect();
        reachable.len().max(dark.len()) > 1
            && !dark.is_empty()
            && reachable
                .iter()
                .all(|device| self.is_dark_at_all_far_ends(device, ledger) != Some(false))
    }

    pub(crate) fn skip_hello(&mut self, device: &DeviceName, ledger: &Ledger) {
        let is_dark = self.is_dark_at_all_far_ends(device, ledger) == Some(true);
        if let Some(seen) = self.get_mut(device) {
            let since = seen.in_flight.as_ref().and_then(|flight| flight.status_overdue_since);
            seen.signalled.skip_hello(is_dark, since);
        }
    }

    /// A reading counts if it was requested after the check began. `None` if no reachable far end
    /// should receive light from the device.
    fn is_dark_at_all_far_ends(&self, device: &DeviceName, ledger: &Ledger) -> Option<bool> {
        let seen = self.devices.get(device)?;
        let since = seen.signalled.checked_since.unwrap_or(seen.unreachable_since);
        let read = self.far_ends(device, ledger).filter_map(|far| {
            let seen =
                self.devices.get(&far.0).filter(|seen| seen.reachable && ledger.owns(far))?;
            Some(seen.read_at >= since && seen.dark.contains_key(&far.1))
        });
        read.reduce(|one, other| one && other)
    }

    pub(crate) fn skips_hello_with_node(&self, device: &DeviceName, now: &Now) -> bool {
        let reconnect_within = self.inventory.limits(device).reconnect_within;
        self.devices.get(device).is_some_and(|seen| {
            let tries = now.mono < seen.unreachable_since + reconnect_within;
            !seen.reachable && seen.signalled.skips_hello_with_node && tries
        })
    }

    fn prompt_dark_far_ends<'a>(
        &'a self,
        device: &DeviceName,
        since: Micros,
        ledger: &'a Ledger,
    ) -> impl Iterator<Item = &'a DeviceName> {
        self.far_ends(device, ledger).filter_map(move |(far, slot, _)| {
            let seen = self.devices.get(far).filter(|seen| seen.confirms_dark(*slot))?;
            self.replied_promptly(far, seen, since).then_some(far)
        })
    }

    fn times_out_at(
        &self,
        device: &DeviceName,
        seen: &Sighting,
        ledger: &Ledger,
    ) -> Option<Micros> {
        let flight = seen.in_flight.as_ref().filter(|_| !seen.occupied)?;
        let limit = match flight.is_overdue && !self.is_needless(device, seen, ledger) {
            true => flight.deadline,
            false => flight.overdue_at.min(flight.deadline),
        };
        let status = match flight.status_overdue_since {
            None => self.status_overdue_at(device, seen),
            Some(since) => (self.decide_overdue(device, ledger) != Overdue::Wait).then_some(since),
        };
        Some(status.map_or(limit, |status| status.min(limit)))
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
        let status = flight.status_overdue_since.map(|_| self.decide_overdue(device, ledger));
        let needless = flight.is_overdue && self.is_needless(device, seen, ledger);
        let overdue = match status {
            Some(Overdue::AbandonWithoutHello) => Overdue::AbandonWithoutHello,
            _ if flight.deadline <= now.mono || needless => Overdue::Abandon,
            status => status.unwrap_or(Overdue::Wait),
        };
        Some((flight.ticket, overdue))
    }

    pub(crate) fn note_overdue(&mut self, now: &Now, device: &DeviceName, ledger: &Ledger) {
        let at = self.devices.get(device).and_then(|seen| self.status_overdue_at(device, seen));
        let is_status_overdue = at.is_some_and(|at| at <= now.mono);
        let flight = self.get_mut(device).and_then(|seen| seen.in_flight.as_mut());
        let Some(flight) = flight else { return };
        flight.is_overdue |= flight.overdue_at <= now.mono;
        if is_status_overdue && flight.status_overdue_since.is_none() {
            flight.status_overdue_since = Some(now.mono);
            self.read_related_now(now, device, ledger);
        }
        self.read_related_soon(device, ledger);
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
            (flight.overdue_at, flight.deadline) =
                (flight.overdue_at + waited, flight.deadline + waited);
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
        let flight = seen.in_flight.as_ref().filter(|flight| !flight.moves);
        // No far end faces a module in loopback, but far ends of other modules may be dark.
        flight.is_some_and(|flight| seen.signalled.wants_read_after(flight.asked))
            || self.node_of(device).iter().any(|other| {
                (other == device || !self.is_reachable(other))
                    && self.is_dark_at_any_far_end(other, ledger)
            })
    }

    fn is_dark_at_any_far_end(&self, device: &DeviceName, ledger: &Ledger) -> bool {
        self.far_ends(device, ledger).any(|(far, slot, _)| {
            let samples = self.inventory.devices.get(far).map_or(1, |d| d.limits.power_samples);
            let seen = self.devices.get(far).filter(|seen| seen.reachable);
            seen.and_then(|seen| seen.dark.get(slot)).is_some_and(|dark| dark.reads >= samples)
        })
    }

    fn hello_within(&self, device: &DeviceName) -> Micros {
        self.inventory.limits(device).reconnect_within.max(HELLO_WITHIN)
    }

    /// Returns whether the device may still reply to a read or a hello, so that it is not yet known
    /// whether it has failed together with a module that is unreachable since `since`.
    pub(crate) fn is_undecided(
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
                tries && !seen.signalled.skips_hello_for_light && !self.is_lit(device, ledger)
            }
        })
    }

    pub fn stays_unreachable(&self, now: &Now, device: &DeviceName) -> bool {
        let Some(seen) = self.devices.get(device) else { return false };
        let since = seen.unreachable_since.max(seen.unread_since);
        !seen.reachable
            && (seen.signalled.skips_hello() || now.mono >= since + self.hello_within(device))
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
    fn confirms_dark(&self, slot: Slot) -> bool {
        self.signalled.reported_dark.get(&slot).is_some_and(|at| *at <= self.read_at)
            && self.dark.contains_key(&slot)
    }

    fn want_read(&mut self, now: &Now) {
        self.next_poll = Micros(0);
        self.signalled.wanted_at = now.mono;
    }

    pub(super) fn unreachable_from(&self, hello_within: Micros) -> Micros {
        match self.was_reachable {
            true => self.unreachable_since + hello_within,
            false => self.unread_since + FIRST_HELLO_WITHIN,
        }
    }

    pub(crate) fn is_overdue(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|f| f.is_overdue || f.status_overdue_since.is_some())
    }
}
