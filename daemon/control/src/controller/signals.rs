// SPDX-License-Identifier: Apache-2.0
//! Detects failed nodes from unsolicited reports of loss of light.
//!
//! ```text
//!   near end    light lost ──▶ read near end, far end, its node's other modules, and their far ends, all at once
//!   the node    no module of it answers a plain status in time
//!   near end    is asked once more, answers promptly, and sees no light
//!               ──▶ the node is given up, without a hello on a fresh connection
//! ```
//!
//! Reports only trigger reads. The daemon decides from readings and missing replies:
//!
//! * Only a status requested *after* the loss of light is considered. Its reply counts as missing
//!   after twice the sum of the promised time and the duration of recent reads, but no later than
//!   five times the promise plus the line time.
//! * At least two modules of the node must be unresponsive, or two far ends must report the loss. A
//!   single module has failed if it misses three requests while its neighbours reply promptly.
//! * A busy host delays all replies, so the near end must then reply promptly again.
//!
//! If no other module receives a module's light, the missing reply is the only evidence, and the
//! module is bypassed as a suspect. All other failures are detected by a hello on a fresh
//! connection.

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, Controller, Seen};
use crate::drive::Site;
use crate::state::{DeviceName, FibreEnd, Micros, Neighbours, Now, Op, Position, Slot, at};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    LightLost(Slot, Position),
    LightBack(Slot),
    Changed,
    Alive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missed {
    /// The host may be busy, because other devices do not reply promptly either.
    Unclear,
    /// Only this device does not reply, and the one missing reply may have been lost.
    AskAgain,
    Dead,
}

const ASKED_ALONE: u32 = 3;

const SIGNALS_BURST: u64 = 16;
/// Minimum interval between reads caused by reports of the same device.
const SIGNAL_EVERY: Micros = Micros::from_millis(100);

#[derive(Clone, Debug, Default)]
pub(super) struct Signalled {
    lost: BTreeMap<Slot, Micros>,
    suspected: Option<Micros>,
    missed: u32,
    /// Request time of the status whose missing reply led to giving up the device.
    pub(super) silent_since: Option<Micros>,
    heard_at: Micros,
    wanted_at: Micros,
    pub(super) is_found_dead: bool,
    /// The whole node has failed, but no far end receives light from this module.
    pub(super) is_silent_beside: bool,
    paid_until: Micros,
    is_read: bool,
}

const PACE_READS: usize = 8;

#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    took: [Micros; PACE_READS],
    next: usize,
    last: Micros,
}

/// With this many requests within [`CROWD_WITHIN`], the daemon itself delays the replies.
const CROWD: usize = 16;
const CROWD_WITHIN: Micros = Micros::from_millis(1);

#[derive(Clone, Debug, Default)]
pub(super) struct Crowd {
    asked: [Option<Micros>; CROWD],
    next: usize,
}

impl Crowd {
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

    /// Returns the second-slowest read, because a busy host may have delayed the slowest one.
    fn slow(&self) -> Micros {
        let mut took = self.took;
        took.sort_unstable();
        took[PACE_READS - 2]
    }
}

impl Signalled {
    pub(super) fn is_suspected(&self) -> bool {
        self.suspected.is_some()
    }

    pub(super) fn answered(&mut self, asked: Micros) {
        self.suspected.take_if(|suspected| *suspected <= asked);
        self.missed = 0;
        (self.is_found_dead, self.is_silent_beside) = (false, false);
    }

    pub(super) fn is_heard(&mut self, now: &Now) {
        (self.heard_at, self.missed) = (now.mono, 0);
    }

    pub(super) fn sees_light(&mut self, slot: Slot, asked: Micros) {
        if self.lost.get(&slot).is_some_and(|lost| *lost <= asked) {
            self.lost.remove(&slot);
        }
    }

    pub(super) fn was_read(&mut self) -> bool {
        std::mem::replace(&mut self.is_read, true)
    }

    pub(super) fn never_saw(&mut self, slot: Slot, asked: Micros) {
        self.lost.insert(slot, asked);
    }

    pub(super) fn wants_read_after(&self, asked: Micros) -> bool {
        self.wanted_at > asked
    }

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

    pub fn ask_all(&mut self, now: &Now) {
        let in_reach = self.devices.values_mut().filter(|seen| seen.up);
        in_reach
            .for_each(|seen| (seen.next_poll, seen.signalled.wanted_at) = (Micros(0), now.mono));
    }

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
                seen.signalled.suspected.get_or_insert(now.mono);
            }
            self.read_now(now, &module);
        }
        self.look_around(&far.0);
    }

    pub(super) fn may_be_asked(&self, device: &DeviceName, seen: &Seen) -> bool {
        let promises = || self.inventory.limits(device).probe_within > Micros(0);
        seen.up
            && seen.in_flight.as_ref().is_none_or(|flight| {
                let is_read = !flight.drives && !flight.moves && !seen.occupied;
                let lost = seen.signalled.suspected;
                is_read && lost.is_some_and(|lost| flight.asked < lost) && promises()
            })
    }

    fn status_within(&self, device: &DeviceName, seen: &Seen) -> Option<Micros> {
        let longest = self.prompt_within(device, seen)?;
        let slow = seen.pace.slow();
        let answers = self.inventory.devices.get(device)?.answers.filter(|_| slow > Micros(0));
        Some(answers.map_or(longest, |answers| Micros(2 * (answers + slow).0).min(longest)))
    }

    fn prompt_within(&self, device: &DeviceName, seen: &Seen) -> Option<Micros> {
        let limits = &self.inventory.devices.get(device)?.limits;
        let within = limits.probe_within.max(Micros(2 * seen.pace.slow().0));
        (limits.probe_within.0 > 0 && within < limits.read_within).then_some(within)
    }

    pub(super) fn missed_at(&self, device: &DeviceName, seen: &Seen) -> Option<Micros> {
        let flight = seen.in_flight.as_ref().filter(|flight| flight.is_probe)?;
        let suspected = seen.signalled.suspected.filter(|suspected| *suspected <= flight.asked)?;
        let asked = flight.asked.max(suspected).max(seen.free_since);
        Some(asked + self.status_within(device, seen)?)
    }

    pub(super) fn ask_witnesses(&mut self, now: &Now, device: &DeviceName) {
        let mut node = self.of_same_node(device);
        let beside = node.clone();
        node.push(device.clone());
        let witnesses: Vec<_> = node.iter().flat_map(|module| self.opposite(module)).collect();
        for witness in witnesses.into_iter().chain(beside) {
            self.read_now(now, &witness);
        }
    }

    /// Returns whether this device is the only one that did not reply: it has sent nothing since
    /// its light was lost, while a reporting far end and the node's other modules replied promptly.
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

    pub(super) fn missed(&self, device: &DeviceName) -> Missed {
        let asked = self.devices.get(device).map_or(0, |seen| seen.signalled.missed);
        match (self.is_node_dead(device), self.is_silent_alone(device)) {
            (true, _) => Missed::Dead,
            (false, true) if asked + 1 >= ASKED_ALONE => Missed::Dead,
            (false, true) => Missed::AskAgain,
            (false, false) => Missed::Unclear,
        }
    }

    pub(super) fn ask_again(&mut self, now: &Now, device: &DeviceName, actions: &mut Vec<Action>) {
        let Some(seen) = self.devices.get_mut(device) else { return };
        seen.in_flight = None;
        seen.signalled.missed += 1;
        let op = Op::Observe { power: Vec::new(), neighbours: Neighbours::Never };
        self.send(now, device, op, false, actions);
        self.ask_witnesses(now, device);
    }

    /// Returns whether the node of this device has failed: no reachable module of the node replies,
    /// and later reads of the far ends show no light. Since the loss, at least one reporting far
    /// end must have replied promptly, or two if only one module was reachable.
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

    pub(super) fn found_dead(&mut self, device: &DeviceName) {
        let gone = self.is_light_gone(device) == Some(true);
        if let Some(seen) = self.devices.get_mut(device) {
            (seen.signalled.is_found_dead, seen.signalled.is_silent_beside) = (gone, !gone);
            let unanswered = seen.in_flight.as_ref().and_then(|flight| flight.unanswered);
            seen.signalled.silent_since = unanswered;
        }
    }

    /// Uses only reads after the suspicion. `None` if no far end should receive its light.
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

    #[must_use]
    pub fn is_silent_beside(&self, device: &DeviceName, now: &Now) -> bool {
        let silent_within = self.inventory.limits(device).silent_within;
        self.devices.get(device).is_some_and(|seen| {
            let tries = now.mono < seen.down_since + silent_within;
            !seen.up && seen.signalled.is_silent_beside && tries
        })
    }

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
    pub(super) fn confirms_lost(&self, slot: Slot) -> bool {
        let lost = self.signalled.lost.get(&slot);
        lost.is_some_and(|lost| *lost <= self.read_at) && self.dark.contains_key(&slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowded_reads_do_not_affect_measured_response_time() {
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
