// SPDX-License-Identifier: Apache-2.0
//! What devices report of their light unasked, and a node that is found dead by it.
//!
//! ```text
//!   near end    light lost ──▶ read near end, far end, its node's other modules, and their far ends, all at once
//!   the node    no module of it answers a plain status in time
//!   near end    is asked once more, answers promptly, and sees no light
//!               ──▶ the node is given up, without a hello on a fresh connection
//! ```
//!
//! A report moves nothing and proves nothing: it says where to look now. What is dead is known from reads, and from
//! those that are not answered. A late answer alone is no death:
//!
//! * It counts where nothing but a status was asked for, *after* light was lost: what was lost before says nothing of
//!   now. In time is twice what the module promises of a status and what its reads took lately, the time of its line in
//!   it: a module that is slow is slow before its light is lost, too. Five times the promise and the time of its line
//!   are enough, where twice what its reads took is not longer than that.
//! * Two modules of the node at least have to be silent, or two far ends to report; a module that was out of reach
//!   before is no witness of its own silence. One alone is dead after three questions, each of which the far end and
//!   the others of its node answer promptly, and if nothing at all is heard of it: where its fibre is cut it reports
//!   that, too.
//! * A host or a bus that is busy delays all answers. So the near end is asked again after the node is late: that it
//!   answers promptly shows that the others could have.
//!
//! What was asked for before light was lost says nothing of now and is not waited for: a module that promises to report
//! lost light is asked for its status at once, over the same line. Pace is not taken from reads that so many were asked
//! together with that their answers wait for the daemon.
//!
//! All else is found by a hello on a fresh connection. A module of the node that sends light to nobody has only lost
//! one answer: it is gone around and only suspected.

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, Controller, Seen};
use crate::drive::Site;
use crate::state::{DeviceName, FibreEnd, Micros, Neighbours, Now, Op, Position, Slot, at};

/// What a device reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// No light arrives at this slot any more, which stands there.
    LightLost(Slot, Position),
    /// It does again.
    LightBack(Slot),
    /// It stands elsewhere than it was brought to, or has restarted.
    Changed,
    /// It says something, if only the answer to a question that is not waited for any more.
    Alive,
}

/// What is known of a device whose status is missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missed {
    /// It may be busy, as others are.
    Unclear,
    /// It alone does not answer: one answer may be lost.
    AskAgain,
    /// It is dead, alone or with its node.
    Dead,
}

/// So many statuses in a row are missed of a module that is dead while others of its node answer.
const ASKED_ALONE: u32 = 3;

/// So many reports of a device are heard at once,
const SIGNALS_BURST: u64 = 16;
/// and one in this time in the long run: a device that reports without end costs no more reads than that.
const SIGNAL_EVERY: Micros = Micros::from_millis(100);

/// What a device reported, and what follows for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Signalled {
    /// Slots whose light it reported lost, and when; until it is back or a read sees it.
    lost: BTreeMap<Slot, Micros>,
    /// A far end lost the light of its node then, and it has not answered since.
    suspected: Option<Micros>,
    /// So many statuses in a row were missed since.
    missed: u32,
    /// Since when its status is missing, where it was given up for that.
    pub(super) silent_since: Option<Micros>,
    /// When it last said something that was not an answer that counts.
    heard_at: Micros,
    /// It is to be read at once: a read that was asked for before says nothing.
    wanted_at: Micros,
    /// It was given up with all of its node: its light is gone, too.
    pub(super) is_found_dead: bool,
    /// The same, and nobody is there who would miss its light.
    pub(super) is_silent_beside: bool,
    paid_until: Micros,
    /// It was read since it can be talked to.
    is_read: bool,
}

/// So many reads say how fast a device answers.
const PACE_READS: usize = 8;

/// What the last reads of a device took, from the question to the answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    took: [Micros; PACE_READS],
    next: usize,
    last: Micros,
}

/// So many reads are asked for within [`CROWD_WITHIN`] where their answers wait for the daemon, and not for devices.
const CROWD: usize = 16;
const CROWD_WITHIN: Micros = Micros::from_millis(1);

/// When devices were asked last.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowd {
    asked: [Option<Micros>; CROWD],
    next: usize,
}

impl Crowd {
    /// Whether what is asked now is one of so many.
    pub(super) fn joined(&mut self, now: Micros) -> bool {
        let oldest = self.asked[self.next].replace(now);
        self.next = (self.next + 1) % CROWD;
        oldest.is_some_and(|oldest| oldest + CROWD_WITHIN >= now)
    }
}

impl Pace {
    pub(super) fn answered(&mut self, took: Micros) {
        self.took[self.next % PACE_READS] = took;
        self.next = self.next.wrapping_add(1);
        self.last = took;
    }

    pub(super) fn answered_in_a_crowd(&mut self, took: Micros) {
        self.last = took;
    }

    /// The slowest of them but one: one that was slow alone met a busy host.
    fn slow(&self) -> Micros {
        let mut took = self.took;
        took.sort_unstable();
        took[PACE_READS - 2]
    }
}

impl Signalled {
    /// A far end lost the light of its node, and it has not answered since.
    pub(super) fn is_suspected(&self) -> bool {
        self.suspected.is_some()
    }

    /// It can be talked to again, or a read of it was answered that was asked for at this time.
    pub(super) fn answered(&mut self, asked: Micros) {
        self.suspected.take_if(|suspected| *suspected <= asked);
        self.missed = 0;
        (self.is_found_dead, self.is_silent_beside) = (false, false);
    }

    /// It says something.
    pub(super) fn is_heard(&mut self, now: &Now) {
        (self.heard_at, self.missed) = (now.mono, 0);
    }

    /// A read that was asked for at this time sees light at this slot.
    pub(super) fn sees_light(&mut self, slot: Slot, asked: Micros) {
        if self.lost.get(&slot).is_some_and(|lost| *lost <= asked) {
            self.lost.remove(&slot);
        }
    }

    /// It was read. Whether it was before, since it can be talked to: light that was lost before is never reported.
    pub(super) fn was_read(&mut self) -> bool {
        std::mem::replace(&mut self.is_read, true)
    }

    /// A first reading sees no light at this slot: that is a report.
    pub(super) fn never_saw(&mut self, slot: Slot, asked: Micros) {
        self.lost.insert(slot, asked);
    }

    /// Whether it is to be read anew after a read that was asked for at this time.
    pub(super) fn wants_read_after(&self, asked: Micros) -> bool {
        self.wanted_at > asked
    }

    /// Its line is new: what it said over the old one is over.
    pub(super) fn reset(&mut self) {
        *self = Self { paid_until: self.paid_until, ..Self::default() };
    }
}

impl Controller {
    pub(super) fn signalled(&mut self, now: &Now, device: &DeviceName, signal: Signal) {
        let Some(seen) = self.devices.get_mut(device).filter(|seen| seen.up) else { return };
        let signalled = &mut seen.signalled;
        signalled.is_heard(now);
        if signal == Signal::Alive {
            return;
        }
        let burst = Micros(SIGNAL_EVERY.0 * (SIGNALS_BURST - 1));
        if signalled.paid_until > now.mono + burst {
            return;
        }
        signalled.paid_until = signalled.paid_until.max(now.mono) + SIGNAL_EVERY;
        match signal {
            Signal::LightLost(slot, _) => _ = signalled.lost.insert(slot, now.mono),
            Signal::LightBack(slot) => _ = signalled.lost.remove(&slot),
            Signal::Changed | Signal::Alive => {}
        }
        self.read_now(now, device);
        if let Signal::LightLost(slot, to) = signal {
            self.suspect(now, device, (slot, to));
        }
    }

    fn read_now(&mut self, now: &Now, device: &DeviceName) {
        if let Some(seen) = self.devices.get_mut(device) {
            (seen.next_poll, seen.signalled.wanted_at) = (Micros(0), now.mono);
        }
    }

    /// Every device in reach is read at once.
    pub fn ask_all(&mut self, now: &Now) {
        let in_reach = self.devices.values_mut().filter(|seen| seen.up);
        in_reach
            .for_each(|seen| (seen.next_poll, seen.signalled.wanted_at) = (Micros(0), now.mono));
    }

    /// Light is lost that should arrive: the node that should send it may be dead.
    pub(super) fn suspect(&mut self, now: &Now, device: &DeviceName, (slot, to): (Slot, Position)) {
        let Some(far) = self.inventory.far_end(device, slot, to).cloned() else { return };
        let stands = |device: &DeviceName, slot: Slot, to: Position| {
            self.ledger.owned.get(device).is_some_and(|owned| at(owned, slot) == to)
        };
        let intended = !self.is_at_rest(device) || !self.is_at_rest(&far.0);
        if intended || !stands(device, slot, to) || !stands(&far.0, far.1, far.2) {
            return;
        }
        let mut node = self.of_same_node(&far.0);
        node.push(far.0.clone());
        for module in node {
            if let Some(seen) = self.devices.get_mut(&module) {
                // A second report, of another fibre of the node, makes what was asked since the first no older.
                seen.signalled.suspected.get_or_insert(now.mono);
            }
            self.read_now(now, &module);
        }
        self.look_around(&far.0);
    }

    /// Whether a device in reach is asked nothing now, or what was asked before the light of its node was lost.
    pub(super) fn may_be_asked(&self, device: &DeviceName, seen: &Seen) -> bool {
        let promises = || self.inventory.limits(device).probe_within > Micros(0);
        seen.up
            && seen.in_flight.as_ref().is_none_or(|flight| {
                let is_read = !flight.drives && !flight.moves && !seen.occupied;
                let lost = seen.signalled.suspected;
                is_read && lost.is_some_and(|lost| flight.asked < lost) && promises()
            })
    }

    /// How long a status of this device may take before it is missed, where it promises to report lost light.
    fn status_within(&self, device: &DeviceName, seen: &Seen) -> Option<Micros> {
        let longest = self.prompt_within(device, seen)?;
        let slow = seen.pace.slow();
        let answers = self.inventory.devices.get(device)?.answers.filter(|_| slow > Micros(0));
        Some(answers.map_or(longest, |answers| Micros(2 * (answers + slow).0).min(longest)))
    }

    /// How long a status of a witness may take to show that others could have answered. Those were asked before it, so
    /// they are silent for longer by then.
    fn prompt_within(&self, device: &DeviceName, seen: &Seen) -> Option<Micros> {
        let limits = &self.inventory.devices.get(device)?.limits;
        let within = limits.probe_within.max(Micros(2 * seen.pace.slow().0));
        (limits.probe_within.0 > 0 && within < limits.read_within).then_some(within)
    }

    /// When the status that a device of a suspected node was asked for is missed.
    pub(super) fn missed_at(&self, device: &DeviceName, seen: &Seen) -> Option<Micros> {
        let flight = seen.in_flight.as_ref().filter(|flight| flight.is_probe)?;
        let suspected = seen.signalled.suspected.filter(|suspected| *suspected <= flight.asked)?;
        let asked = flight.asked.max(suspected).max(seen.free_since);
        Some(asked + self.status_within(device, seen)?)
    }

    /// Asks whoever should see light of this node once more, and its other modules: that they answer shows that this
    /// one could have.
    pub(super) fn ask_witnesses(&mut self, now: &Now, device: &DeviceName) {
        let mut node = self.of_same_node(device);
        let beside = node.clone();
        node.push(device.clone());
        let witnesses: Vec<_> = node.iter().flat_map(|module| self.opposite(module)).collect();
        for witness in witnesses.into_iter().chain(beside) {
            self.read_now(now, &witness);
        }
    }

    /// Whether a device alone of its node misses a status: nothing was heard of it since its light is gone, and a far
    /// end that reported so and the other modules of its node have answered promptly since it was asked.
    fn is_silent_alone(&self, device: &DeviceName) -> bool {
        let Some(seen) = self.devices.get(device) else { return false };
        let Some(since) = seen.in_flight.as_ref().map(|flight| flight.asked) else { return false };
        let Signalled { suspected, heard_at, lost, .. } = &seen.signalled;
        let is_heard = !lost.is_empty() || suspected.is_none_or(|suspected| *heard_at > suspected);
        let answered = |beside: &DeviceName| {
            self.devices.get(beside).is_some_and(|seen| {
                let within = self.prompt_within(beside, seen);
                let promptly = within.is_some_and(|within| seen.pace.last <= within);
                seen.up && promptly && seen.read_at >= since
            })
        };
        let beside = self.of_same_node(device);
        !is_heard
            && self.is_light_gone(device) == Some(true)
            && self.who_reports_lost(device, since).next().is_some()
            && !beside.is_empty()
            && beside.iter().all(answered)
    }

    /// What is known of a device whose status is missed.
    pub(super) fn missed(&self, device: &DeviceName) -> Missed {
        let asked = self.devices.get(device).map_or(0, |seen| seen.signalled.missed);
        match (self.is_node_dead(device), self.is_silent_alone(device)) {
            (true, _) => Missed::Dead,
            (false, true) if asked + 1 >= ASKED_ALONE => Missed::Dead,
            (false, true) => Missed::AskAgain,
            (false, false) => Missed::Unclear,
        }
    }

    /// It is asked for its status once more.
    pub(super) fn ask_again(&mut self, now: &Now, device: &DeviceName, actions: &mut Vec<Action>) {
        let Some(seen) = self.devices.get_mut(device) else { return };
        seen.in_flight = None;
        seen.signalled.missed += 1;
        let op = Op::Observe { power: Vec::new(), neighbours: Neighbours::Never };
        self.send(now, device, op, false, actions);
        self.ask_witnesses(now, device);
    }

    /// Whether the node of this device is found dead: no module of it that was in reach answers a status, whoever
    /// should see light of them was read since and sees none, and a far end that reported so has answered promptly
    /// since they are silent; two far ends where only one module was in reach.
    pub(super) fn is_node_dead(&self, device: &DeviceName) -> bool {
        let mut node = self.of_same_node(device);
        node.push(device.clone());
        let is_up = |module: &&DeviceName| self.devices.get(*module).is_some_and(|seen| seen.up);
        let in_reach: Vec<&DeviceName> = node.iter().filter(is_up).collect();
        let missed =
            |module: &&DeviceName| self.devices.get(*module)?.in_flight.as_ref()?.unanswered;
        let silent: Option<Vec<Micros>> = in_reach.iter().map(missed).collect();
        let Some(since) = silent.and_then(|silent| silent.into_iter().max()) else { return false };
        let report: BTreeSet<&DeviceName> =
            node.iter().flat_map(|module| self.who_reports_lost(module, since)).collect();
        in_reach.len().max(report.len()) > 1
            && !report.is_empty()
            && in_reach.iter().all(|module| self.is_light_gone(module) != Some(false))
    }

    /// Marks a device that is given up with all of its node.
    pub(super) fn found_dead(&mut self, device: &DeviceName) {
        let gone = self.is_light_gone(device) == Some(true);
        if let Some(seen) = self.devices.get_mut(device) {
            (seen.signalled.is_found_dead, seen.signalled.is_silent_beside) = (gone, !gone);
            let unanswered = seen.in_flight.as_ref().and_then(|flight| flight.unanswered);
            seen.signalled.silent_since = unanswered;
        }
    }

    /// Whether the light of a device is gone wherever it should arrive, by reads since it is suspected; `None` if it
    /// should arrive nowhere.
    fn is_light_gone(&self, device: &DeviceName) -> Option<bool> {
        let seen = self.devices.get(device)?;
        let since = seen.signalled.suspected.unwrap_or(seen.down_since);
        let lit = self.ledger.owned.get(device).into_iter().flatten();
        let far = lit.filter_map(|(&slot, &to)| self.inventory.far_end(device, slot, to));
        let read = far.filter_map(|(near, slot, to)| {
            let looks = self.ledger.owned.get(near).is_some_and(|owned| at(owned, *slot) == *to);
            let near = self.devices.get(near).filter(|near| near.up && looks)?;
            Some(near.read_at >= since && near.dark.contains_key(slot))
        });
        read.reduce(|one, other| one && other)
    }

    /// Whether a device fell silent with all of its node, sends light to nobody, and may still answer a hello: its
    /// silence is one lost answer and no more.
    #[must_use]
    pub fn is_silent_beside(&self, device: &DeviceName, now: &Now) -> bool {
        let silent_within = self.inventory.limits(device).silent_within;
        self.devices.get(device).is_some_and(|seen| {
            let tries = now.mono < seen.down_since + silent_within;
            !seen.up && seen.signalled.is_silent_beside && tries
        })
    }

    /// The far ends that reported that the light of this device is gone, where a read since `since` agrees that was
    /// answered as soon as a status is.
    fn who_reports_lost<'a>(
        &'a self,
        device: &DeviceName,
        since: Micros,
    ) -> impl Iterator<Item = &'a DeviceName> {
        let lit = self.ledger.owned.get(device).into_iter().flatten();
        let far = lit.filter_map(|(&slot, &to)| self.inventory.far_end(device, slot, to));
        let reports = move |(near, slot, _): &&FibreEnd| {
            let seen = self.devices.get(near).filter(|seen| seen.up && seen.confirms_lost(*slot));
            seen.is_some_and(|seen| {
                let within = self.prompt_within(near, seen);
                seen.read_at >= since && within.is_some_and(|within| seen.pace.last <= within)
            })
        };
        far.filter(reports).map(|(near, ..)| near)
    }
}

impl Seen {
    /// Whether it reported that the light of a slot is gone, and a read since agrees.
    pub(super) fn confirms_lost(&self, slot: Slot) -> bool {
        let lost = self.signalled.lost.get(&slot);
        lost.is_some_and(|lost| *lost <= self.read_at) && self.dark.contains_key(&slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand devices are read at once: their answers wait for the daemon, and none of them is slow for it.
    #[test]
    fn a_reading_in_a_crowd_is_no_pace_of_the_device() {
        let mut crowd = Crowd::default();
        let asked = |at: u64, crowd: &mut Crowd| crowd.joined(Micros(at));
        let at_once = (0..1_000).filter(|_| asked(5_000, &mut crowd)).count();
        assert_eq!(at_once, 1_000 - CROWD);
        let apart = (1..1_000).filter(|n| asked(1_000_000 + n * 100, &mut crowd)).count();
        assert_eq!(apart, 0);
        let mut pace = Pace::default();
        (0..PACE_READS).for_each(|_| pace.answered(Micros(400)));
        (0..PACE_READS).for_each(|_| pace.answered_in_a_crowd(Micros(20_000)));
        assert_eq!((pace.slow(), pace.last), (Micros(400), Micros(20_000)));
    }
}
