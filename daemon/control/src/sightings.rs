// SPDX-License-Identifier: Apache-2.0
//! What the daemon knows about its devices: evidence in, questions out.
//!
//! Requests, replies, overdue replies and unsolicited reports are evidence about one device, and
//! are kept in its [`Sighting`]. Only this module writes them. A question that depends on the
//! positions that devices should have takes the [`Ledger`].

mod contention;
mod light;
mod links;
mod signals;
mod unreachable;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

pub use contention::{Contended, Foreign, QUIET, RESTORES_MAX};
use contention::{Contention, restores};
use light::Dark;
pub use light::{Crossed, DarkFibre, ShutEnd, Sight, Testimony, end_name};
pub use links::Links;
pub use signals::Signal;
use signals::{Crowd, Pace, Signalled};
pub(crate) use unreachable::Overdue;

use crate::drive::Site;
use crate::inventory::Inventory;
use crate::ledger::{Ledger, Open};
use crate::management::Trouble;
use crate::mover::Promise;
use crate::state::{
    DeviceName, Drift, FibreEnd, Micros, Neighbours, Now, Observation, Op, Position, Positions,
    Shut, Slot, SwitchState, at,
};

/// Identifies an operation sent to a device. Replies with an old ticket are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

#[derive(Clone, Debug)]
pub struct Sightings {
    inventory: Inventory,
    devices: BTreeMap<DeviceName, Sighting>,
    crowd: Crowd,
    tickets: u64,
    index: Index,
}

/// Devices in a certain state, which avoids a scan of all devices after each event.
#[derive(Clone, Default)]
struct Index {
    changed: BTreeSet<DeviceName>,
    dark: BTreeSet<DeviceName>,
    unreachable: BTreeSet<DeviceName>,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Index")
    }
}

#[derive(Clone, Debug, Default)]
pub struct Sighting {
    reachable: bool,
    was_reachable: bool,
    observed: Option<Observation>,
    read_at: Micros,
    unreachable_since: Micros,
    unread_since: Micros,
    trouble: Option<Trouble>,
    drift: Vec<Drift>,
    crossed: Vec<Crossed>,
    named_at: Micros,
    requests_neighbours: bool,
    stood: Option<Positions>,
    stands_since: Micros,
    dark: BTreeMap<Slot, Dark>,
    shut: BTreeMap<Slot, (Shut, Micros)>,
    usual: BTreeMap<(Slot, Position), i32>,
    signalled: Signalled,
    in_flight: Option<Flight>,
    pace: Pace,
    occupied: bool,
    free_since: Micros,
    waiting: VecDeque<(Op, bool)>,
    next_poll: Micros,
    contention: Contention,
}

#[derive(Clone, Debug)]
pub(crate) struct Flight {
    ticket: Ticket,
    pub(crate) asked: Micros,
    overdue_at: Micros,
    is_overdue: bool,
    is_status: bool,
    status_overdue_since: Option<Micros>,
    pub(crate) deadline: Micros,
    pub(crate) drives: bool,
    names: bool,
    pub(crate) moves: bool,
    in_a_crowd: bool,
}

impl Sighting {
    pub fn is_reachable(&self) -> bool {
        self.reachable
    }

    pub fn observed(&self) -> Option<&Observation> {
        self.observed.as_ref()
    }

    pub fn is_read(&self) -> bool {
        self.reachable && self.observed.is_some()
    }

    pub fn read_at(&self) -> Micros {
        self.read_at
    }

    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    pub fn drift(&self) -> &[Drift] {
        &self.drift
    }

    pub(crate) fn in_flight(&self) -> Option<&Flight> {
        self.in_flight.as_ref()
    }

    pub(crate) fn lost_circuit(&self) -> bool {
        self.reachable && self.drift.iter().any(|drift| !drift.wanted.is_dark())
    }
}

impl Sightings {
    pub(crate) fn new(inventory: Inventory, now: &Now) -> Self {
        let (unreachable_since, unread_since) = (now.mono, now.mono);
        let unseen = Sighting { unreachable_since, unread_since, ..Sighting::default() };
        let devices: BTreeMap<DeviceName, Sighting> =
            inventory.devices.keys().map(|device| (device.clone(), unseen.clone())).collect();
        let index = Index { changed: devices.keys().cloned().collect(), ..Index::default() };
        Self { inventory, devices, crowd: Crowd::default(), tickets: 0, index }
    }

    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    pub fn devices(&self) -> &BTreeMap<DeviceName, Sighting> {
        &self.devices
    }

    pub fn is_reachable(&self, device: &DeviceName) -> bool {
        self.devices.get(device).is_some_and(|seen| seen.reachable)
    }

    /// `None` if the device is reachable. Starts with the daemon if it has never been reachable.
    pub fn unreachable_since(&self, device: &DeviceName) -> Option<Micros> {
        self.devices.get(device).filter(|seen| !seen.reachable).map(|seen| seen.unreachable_since)
    }

    pub(crate) fn is_read_since(&self, device: &DeviceName, since: Micros) -> bool {
        self.devices.get(device).is_some_and(|seen| seen.reachable && seen.read_at >= since)
    }

    pub fn is_read(&self, device: &DeviceName) -> bool {
        self.devices.get(device).is_some_and(Sighting::is_read)
    }

    pub fn reading(&self, device: &DeviceName) -> Option<&Observation> {
        self.devices.get(device).filter(|seen| seen.reachable)?.observed.as_ref()
    }

    pub(crate) fn reading_since(&self, device: &DeviceName, since: Micros) -> Option<&Observation> {
        self.reading(device).filter(|_| self.is_read_since(device, since))
    }

    fn get_mut(&mut self, device: &DeviceName) -> Option<&mut Sighting> {
        let seen = self.devices.get_mut(device)?;
        if !self.index.changed.contains(device) {
            self.index.changed.insert(device.clone());
        }
        Some(seen)
    }

    pub(crate) fn with_changed<'a>(
        &'a self,
        known: &'a BTreeSet<DeviceName>,
    ) -> impl Iterator<Item = (&'a DeviceName, &'a Sighting)> {
        known.union(&self.index.changed).filter_map(|device| self.devices.get_key_value(device))
    }

    pub(crate) fn dark(&self) -> impl Iterator<Item = (&DeviceName, &Sighting)> {
        self.with_changed(&self.index.dark).filter(|(_, seen)| !seen.dark.is_empty())
    }

    pub fn unreachable(&self) -> impl Iterator<Item = (&DeviceName, &Sighting)> {
        self.with_changed(&self.index.unreachable).filter(|(_, seen)| !seen.reachable)
    }

    pub(crate) fn is_changed(&self, device: &DeviceName) -> bool {
        self.index.changed.contains(device)
    }

    pub(crate) fn take_changed(&mut self) -> BTreeSet<DeviceName> {
        let changed = std::mem::take(&mut self.index.changed);
        for device in &changed {
            let Some(seen) = self.devices.get(device) else { continue };
            let Index { dark, unreachable, .. } = &mut self.index;
            for (set, is_in) in [(dark, !seen.dark.is_empty()), (unreachable, !seen.reachable)] {
                match is_in {
                    true if !set.contains(device) => _ = set.insert(device.clone()),
                    true => {}
                    false => _ = set.remove(device),
                }
            }
        }
        changed
    }

    pub(crate) fn far_end(&self, (device, slot, to): &FibreEnd) -> Option<&FibreEnd> {
        self.inventory.far_end(device, *slot, *to)
    }

    fn far_ends<'a>(
        &'a self,
        device: &DeviceName,
        ledger: &'a Ledger,
    ) -> impl Iterator<Item = &'a FibreEnd> + use<'a> {
        let owned = ledger.owned.get(device).into_iter().flatten();
        let device = device.clone();
        owned.filter_map(move |(&slot, &to)| self.inventory.far_end(&device, slot, to))
    }

    pub(crate) fn promised(&mut self, device: &DeviceName, promise: &Promise) {
        self.inventory.promised(device, promise);
        self.get_mut(device);
    }

    /// Takes up a request to a device. `None` if it must wait for the reply to another one.
    pub(crate) fn asked(
        &mut self,
        now: &Now,
        device: &DeviceName,
        op: Op,
        drives: bool,
    ) -> Option<(Ticket, Op)> {
        let limits = self.inventory.limits(device);
        let seen = self.get_mut(device)?;
        if seen.in_flight.is_some() {
            seen.waiting.push_back((op, drives));
            return None;
        }
        let asked = now.mono;
        let moves = matches!(op, Op::Switch { .. });
        let (promised, patience) = match moves {
            true => (limits.switch_within, limits.switch_within),
            false => (limits.read_within.min(limits.reply_within), limits.reply_within),
        };
        let neighbours = match &op {
            Op::Observe { neighbours, .. } => Some(*neighbours),
            _ => None,
        };
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let flight = Flight {
            ticket,
            asked,
            overdue_at: asked + promised,
            is_overdue: false,
            is_status: neighbours == Some(Neighbours::Never),
            status_overdue_since: None,
            deadline: asked + patience,
            drives,
            names: neighbours == Some(Neighbours::Always),
            moves,
            in_a_crowd: self.crowd.joined(asked),
        };
        self.get_mut(device)?.in_flight = Some(flight);
        Some((ticket, op))
    }

    pub(crate) fn take_waiting(&mut self, device: &DeviceName) -> Option<(Op, bool)> {
        self.get_mut(device).filter(|seen| seen.in_flight.is_none())?.waiting.pop_front()
    }

    pub(crate) fn not_sent(&mut self, device: &DeviceName, ticket: Ticket) {
        if let Some(seen) = self.get_mut(device) {
            seen.in_flight.take_if(|flight| flight.ticket == ticket);
        }
    }

    /// Forgets all operations of the transaction, because the daemon only reads from now on.
    pub(crate) fn stop_driving(&mut self) {
        self.index.changed.extend(self.devices.keys().cloned());
        for seen in self.devices.values_mut() {
            seen.waiting.clear();
            if let Some(flight) = &mut seen.in_flight {
                flight.drives = false;
            }
        }
    }

    pub(crate) fn replied(
        &mut self,
        now: &Now,
        device: &DeviceName,
        ticket: Ticket,
    ) -> Option<Flight> {
        let seen = self.get_mut(device)?;
        let flight = seen.in_flight.take_if(|flight| flight.ticket == ticket);
        if flight.is_none() {
            seen.signalled.note_sent(now);
        }
        flight
    }

    pub(crate) fn polls_again(
        &mut self,
        now: &Now,
        device: &DeviceName,
        flight: &Flight,
        every: Micros,
    ) {
        let first = self.inventory.first_poll_after(device, every);
        let Some(seen) = self.get_mut(device) else { return };
        let is_poll = !flight.drives && seen.observed.is_some();
        seen.next_poll = match seen.signalled.wants_read_after(flight.asked) {
            true => now.mono,
            false => now.mono + if is_poll { every } else { first },
        };
    }

    pub(crate) fn note_read(
        &mut self,
        now: &Now,
        device: &DeviceName,
        flight: &Flight,
        read: &Observation,
        ledger: &Ledger,
    ) {
        let moving = ledger.is_moving(device);
        let least = self.inventory.devices.get(device).map_or(0, |d| d.limits.power_min_mdbm);
        let Some(seen) = self.get_mut(device) else { return };
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
        if moving || seen.stood.as_ref() != Some(&read.positions) {
            seen.stands_since = now.mono;
            seen.stood = Some(read.positions.clone());
        }
        seen.observed = Some(read.clone());
        seen.read_at = flight.asked;
        if !moving {
            seen.note_usual(read, least);
        }
        for (slot, _) in read.power_mdbm.iter().filter(|(_, power)| **power >= least) {
            seen.signalled.note_light(*slot, flight.asked);
        }
        self.note_shut(now, device, read);
    }

    pub(crate) fn note_drift(
        &mut self,
        device: &DeviceName,
        ledger: &Ledger,
        planned: &Positions,
    ) -> Option<Vec<Drift>> {
        let nothing = Positions::new();
        let owned = ledger.owned.get(device).unwrap_or(&nothing);
        let mut drift = drift(owned, &self.reading(device)?.positions);
        drift.retain(|drift| {
            // The default path of a module is loopback, where it does not light any other module.
            let rests =
                ledger.version > 0 && drift.wanted.is_dark() && !device.leads_out(drift.observed);
            planned.get(&drift.slot) != Some(&drift.observed) && !rests
        });
        let seen = self.get_mut(device)?;
        (drift != seen.drift).then(|| {
            seen.drift.clone_from(&drift);
            drift
        })
    }

    pub fn has_restarted(&self, device: &DeviceName) -> bool {
        let seen = self.devices.get(device).filter(|seen| seen.lost_circuit());
        seen.and_then(|seen| seen.observed.as_ref()?.generation) == Some(0)
    }

    pub(crate) fn drifted(&self, now: &Now, ledger: &Ledger) -> SwitchState {
        let drifted = self.devices.iter().filter(|(device, seen)| {
            let attended = ledger.attention.contains_key(*device);
            seen.lost_circuit() && !attended && seen.contention.may_restore(now)
        });
        drifted
            .filter_map(|(device, _)| Some((device.clone(), ledger.owned.get(device)?.clone())))
            .collect()
    }

    /// Drops an earlier read if a poll is due, and returns whether to request the neighbours. The
    /// poll does so after a wrong neighbour, to notice the repair early, and if a far end is dark.
    /// While the node is checked, it requests only the status, which has the shortest promised reply
    /// time.
    pub(crate) fn polled(&mut self, now: &Now, device: &DeviceName) -> Option<Neighbours> {
        let seen = self.devices.get(device)?;
        if !self.may_be_asked(device, seen) || seen.next_poll > now.mono {
            return None;
        }
        let seen = self.get_mut(device)?;
        seen.in_flight = None;
        Some(match seen.signalled.checked_since {
            Some(_) => Neighbours::Never,
            None if std::mem::take(&mut seen.requests_neighbours) => Neighbours::Always,
            None if !seen.crossed.is_empty() => Neighbours::Always,
            None => Neighbours::Usual,
        })
    }

    pub(crate) fn became_reachable(&mut self, device: &DeviceName) -> Option<bool> {
        let seen = self.get_mut(device)?;
        (seen.reachable, seen.was_reachable) = (true, true);
        seen.signalled.reset();
        seen.occupied = false;
        (seen.observed, seen.stood, seen.trouble) = (None, None, None);
        Some(seen.in_flight.is_none())
    }

    pub(crate) fn became_unreachable(
        &mut self,
        now: &Now,
        device: &DeviceName,
        trouble: Trouble,
        ledger: &Ledger,
    ) -> Option<Ticket> {
        let seen = self.get_mut(device)?;
        if std::mem::take(&mut seen.reachable) {
            seen.unreachable_since = seen.signalled.overdue_since.take().unwrap_or(now.mono);
        }
        seen.trouble = Some(trouble);
        let ticket = seen.in_flight.as_ref().map(|flight| flight.ticket);
        if seen.observed.take().is_some() {
            seen.unread_since = now.mono;
            self.read_related_soon(device, ledger);
        }
        ticket
    }

    pub fn contended(&self, device: &DeviceName, now: &Now) -> Option<Contended> {
        self.devices.get(device)?.contention.contended(now)
    }

    pub(crate) fn foreign(&mut self, now: &Now, device: &DeviceName, what: Foreign) -> bool {
        const REREAD: Micros = Micros::from_millis(50);
        let Some(seen) = self.get_mut(device) else { return false };
        match what {
            Foreign::Changed(text) => {
                seen.contention.reported(now, text);
                seen.next_poll = seen.next_poll.min(now.mono.max(seen.read_at + REREAD));
                false
            }
            Foreign::Claimed(by) => seen.contention.claimed(by),
        }
    }

    pub(crate) fn note_contention(
        &mut self,
        now: &Now,
        device: &DeviceName,
        read: &Observation,
        ledger: &Ledger,
    ) -> bool {
        let every = self.inventory.poll_every;
        let seen = self.get_mut(device).filter(|_| !ledger.is_moving(device));
        seen.is_some_and(|seen| seen.contention.drifts(now, read, &seen.drift, every))
    }

    pub(crate) fn count_restore(&mut self, now: &Now, open: &Open) {
        let fired = open.intent.after.iter().filter(|(device, _)| open.fired.contains(*device));
        for (device, slots) in fired {
            let Some(seen) = self.get_mut(device) else { continue };
            let stood = seen.observed.as_ref().map(|read| read.positions.clone());
            let restored = slots.keys().copied().collect();
            seen.contention.restored(now, restored, stood.unwrap_or_default());
        }
    }

    pub(crate) fn forget_contention(&mut self, device: &DeviceName) -> bool {
        self.get_mut(device).is_some_and(|seen| seen.contention.forget())
    }

    pub(crate) fn recall_restores(&mut self, now: &Now, ledger: &Ledger) {
        for (device, known) in restores(ledger, now) {
            if let Some(seen) = self.get_mut(&device) {
                seen.contention = known;
            }
        }
    }
}

pub(crate) fn drift(wanted: &Positions, observed: &Positions) -> Vec<Drift> {
    let slots: BTreeSet<Slot> = wanted.keys().chain(observed.keys()).copied().collect();
    slots
        .into_iter()
        .map(|slot| Drift { slot, wanted: at(wanted, slot), observed: at(observed, slot) })
        .filter(|d| d.wanted != d.observed)
        .collect()
}
