// SPDX-License-Identifier: Apache-2.0
//! Distinguishes late replies from unresponsive devices.
//!
//! A late reply is weak evidence, because the host may be busy or a byte may be lost. The daemon
//! therefore waits for `reply_within` while neighbours receive the device's light. It stops waiting
//! if the light is missing, or if another module of the node is unresponsive and dark. The device
//! has then failed unless it replies to a hello on a fresh connection.

use super::signals::Missed;
use super::{Action, Controller, Seen, Ticket};
use crate::drive::Site;
use crate::mover::ANSWER;
use crate::state::{DeviceName, Micros, Now, Outcome};
use lightloom_units::id::BundleId;

/// Time limit for the reply to a hello on a fresh connection, for devices without promised times.
const HELLO_WITHIN: Micros = Micros::from_millis(50);
/// Time limit for the first hello after the daemon starts: twice the promised time for a status.
const FIRST_HELLO_WITHIN: Micros = Micros(2 * ANSWER.0);

impl Controller {
    pub(super) fn due_at(&self, device: &DeviceName, seen: &Seen) -> Option<Micros> {
        let flight = seen.in_flight.as_ref().filter(|_| !seen.occupied)?;
        let late = match flight.is_late && !self.is_needless(device, seen) {
            true => flight.deadline,
            false => flight.late_at.min(flight.deadline),
        };
        let missed = match flight.unanswered {
            None => self.missed_at(device, seen),
            Some(since) => (self.missed(device) != Missed::Unclear).then_some(since),
        };
        Some(missed.map_or(late, |missed| missed.min(late)))
    }

    pub(super) fn time_out(&mut self, now: &Now, actions: &mut Vec<Action>) {
        let due = |device: &DeviceName| {
            let seen = self.devices.get(device)?;
            let at = self.due_at(device, seen)?;
            let flight = seen.in_flight.as_ref().filter(|_| at <= now.mono)?;
            let missed = flight.unanswered.map(|_| self.missed(device));
            let needless = flight.is_late && self.is_needless(device, seen);
            let over = flight.deadline <= now.mono || needless;
            Some((device.clone(), flight.ticket, (over, missed)))
        };
        let due: Vec<(DeviceName, Ticket, (bool, Option<Missed>))> =
            self.all_due(now.mono).iter().filter_map(due).collect();
        for (device, ticket, (over, missed)) in due {
            match (over, missed) {
                (_, Some(Missed::Dead)) => self.found_dead(&device),
                (true, _) => {}
                (false, Some(Missed::AskAgain)) => {
                    self.ask_again(now, &device, actions);
                    continue;
                }
                (false, _) => {
                    self.note_late(now, &device);
                    continue;
                }
            }
            actions.push(Action::Abandon(device.clone(), ticket));
            let outcome = Outcome::Unknown("no answer in time".into());
            self.reply(now, &device, ticket, outcome, actions);
        }
    }

    fn note_late(&mut self, now: &Now, device: &DeviceName) {
        let missed = self.devices.get(device).and_then(|seen| self.missed_at(device, seen));
        let missed = missed.filter(|missed| *missed <= now.mono);
        let flight = self.devices.get_mut(device).and_then(|seen| seen.in_flight.as_mut());
        let Some(flight) = flight else { return };
        flight.is_late |= flight.late_at <= now.mono;
        let is_new = missed.is_some() && flight.unanswered.is_none();
        if is_new {
            flight.unanswered = Some(now.mono);
        }
        self.look_around(device);
        if is_new {
            self.ask_witnesses(now, device);
        }
    }

    pub(super) fn occupied(&mut self, now: &Now, device: &DeviceName, occupied: bool) {
        let Some(seen) = self.devices.get_mut(device) else { return };
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

    pub(super) fn opposite(&self, device: &DeviceName) -> Vec<DeviceName> {
        let lit = self.ledger.owned.get(device).into_iter().flatten();
        let far = lit.filter_map(|(&slot, &to)| self.inventory.far_end(device, slot, to));
        let node = device.as_str().parse().ok().map(|bundle: BundleId| bundle.node);
        let switches = node.and_then(|node| self.inventory.hosts.get(&node)).into_iter().flatten();
        far.map(|(far, ..)| far).chain(switches).cloned().collect()
    }

    pub(super) fn of_same_node(&self, device: &DeviceName) -> Vec<DeviceName> {
        let Some((node, _)) = device.as_str().split_once('/') else { return Vec::new() };
        let first = format!("{node}/");
        let from = self.devices.range(DeviceName::from(first.as_str())..).map(|(name, _)| name);
        let of_node = from.take_while(|name| name.as_str().starts_with(&first));
        of_node.filter(|name| *name != device).cloned().collect()
    }

    pub(super) fn look_around(&mut self, device: &DeviceName) {
        let mut around = self.of_same_node(device);
        let opposite = around.iter().chain([device]).flat_map(|device| self.opposite(device));
        let opposite: Vec<DeviceName> = opposite.collect();
        around.extend(opposite);
        for device in around {
            self.look_within(&device, Micros(0));
        }
    }

    fn is_needless(&self, device: &DeviceName, seen: &Seen) -> bool {
        let is_old = seen
            .in_flight
            .as_ref()
            .is_some_and(|flight| !flight.moves && seen.signalled.wants_read_after(flight.asked));
        is_old || self.is_witnessed(device)
    }

    /// Returns whether light of the device, or of an unreachable module on the same node, is
    /// missing. Other modules cannot see the light of a module in loopback.
    fn is_witnessed(&self, device: &DeviceName) -> bool {
        let is_down = |name: &DeviceName| self.devices.get(name).is_some_and(|seen| !seen.up);
        let mut of_node = self.of_same_node(device).into_iter();
        self.is_missed(device) || of_node.any(|name| is_down(&name) && self.is_missed(&name))
    }

    fn is_missed(&self, device: &DeviceName) -> bool {
        let lit = self.ledger.owned.get(device).into_iter().flatten();
        let mut far = lit.filter_map(|(&slot, &to)| self.inventory.far_end(device, slot, to));
        far.any(|(near, slot, _)| {
            let samples = self.inventory.devices.get(near).map_or(1, |d| d.limits.power_samples);
            let dark = self.devices.get(near).filter(|seen| seen.up);
            dark.and_then(|seen| seen.dark.get(slot)).is_some_and(|dark| dark.reads >= samples)
        })
    }

    pub(super) fn hello_within(&self, device: &DeviceName) -> Micros {
        self.inventory.limits(device).silent_within.max(HELLO_WITHIN)
    }

    #[must_use]
    pub fn may_be_silent(&self, device: &DeviceName, since: Micros, now: &Now) -> bool {
        let hello_within = self.hello_within(device);
        self.devices.get(device).is_some_and(|seen| match seen.up {
            true => seen.read_at < since,
            false => {
                let tries = now.mono < seen.silent_from(hello_within);
                tries && !seen.signalled.is_found_dead && !self.sends_light(device)
            }
        })
    }
}

impl Seen {
    pub(super) fn silent_from(&self, hello_within: Micros) -> Micros {
        match self.was_up {
            true => self.down_since + hello_within,
            false => self.silent_since + FIRST_HELLO_WITHIN,
        }
    }
}
