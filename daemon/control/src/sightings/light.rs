// SPDX-License-Identifier: Apache-2.0
//! Decides when missing light proves a fibre fault, and who receives light from whom.
//!
//! ```text
//!   receiver   ....dark────dark────dark────dark     reads without light, receiver at its position
//!   sender     faces────────faces───────────faces   reads in which it looks into the fibre
//!                  |<── longer than light takes to settle ──>|   so: a fault
//! ```
//!
//! Darkness is evidence only while *reads* show that both ends face the fibre: from the reply to
//! the first such read until the request of the last one. Otherwise an end may be moving.
//!
//! If a module was unreachable without a hello because its far ends were dark, they need no further reads.
//!
//! Ports that were shut down report that they send no light, which is not a fault.

use super::Sightings;
use crate::drive::Site;
use crate::ledger::Ledger;
use crate::state::{DeviceName, FibreEnd, Micros, Now, Observation, Position, Shut, Slot, at};

const QUICK_READS: u32 = 100;

#[derive(Clone, Copy, Debug)]
pub(super) struct Dark {
    pub(super) reads: u32,
    since: Micros,
    power_mdbm: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DarkFibre {
    pub receiver: FibreEnd,
    pub sender: FibreEnd,
    pub sender_is_unreachable: bool,
    pub power_mdbm: i32,
    pub sender_lit_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutEnd {
    pub end: FibreEnd,
    pub receiver: FibreEnd,
    pub why: Shut,
    pub since: Micros,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossed {
    pub end: FibreEnd,
    pub lit_by: String,
    pub should_be: FibreEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The far end is a witness: it has been dark for long enough.
    Dark(i32),
    Lit,
    /// No reading shows light, and the end has not been dark for long enough.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Testimony {
    pub far_end: FibreEnd,
    pub sight: Sight,
}

struct DarkSlot {
    slot: Slot,
    power_mdbm: i32,
    sender: FibreEnd,
}

impl Sightings {
    pub(crate) fn note_darkness(&mut self, now: &Now, device: &DeviceName, ledger: &Ledger) {
        let dark = self.dark_slots(device, ledger);
        let limits = self.inventory.limits(device);
        let samples = u64::from(limits.power_samples.max(1));
        let [quick, slow] =
            [limits.dark_within, limits.settle_within].map(|w| Micros(w.0 / samples));
        let Some(seen) = self.get_mut(device) else { return };
        seen.dark.retain(|slot, _| dark.iter().any(|dark| dark.slot == *slot));
        let was_read = seen.signalled.mark_read();
        for DarkSlot { slot, power_mdbm, sender } in dark {
            let Some(seen) = self.get_mut(device) else { return };
            if !was_read {
                let to = seen.observed.as_ref().map_or(Position::DARK, |o| at(&o.positions, slot));
                seen.signalled.reported_dark.insert(slot, seen.read_at);
                self.check_node(now, &(device.clone(), slot, to), ledger);
            }
            let Some(seen) = self.get_mut(device) else { return };
            let first = Dark { reads: 0, since: now.mono, power_mdbm };
            let dark = seen.dark.entry(slot).or_insert(first);
            (dark.reads, dark.power_mdbm) = (dark.reads.saturating_add(1), power_mdbm);
            let (is_first, wait) =
                (dark.reads == 1, if dark.reads > QUICK_READS { slow } else { quick });
            if self.is_facing(&sender) && self.dark_fibre(device, slot, ledger).is_none() {
                // Without a delay, two dark ends would trigger each other's reads forever.
                let wait = wait.max(limits.settle_poll);
                for device in [device, &sender.0] {
                    self.look_within(device, wait);
                }
                if is_first {
                    self.read_related_soon(&sender.0, ledger);
                }
                let sees_neighbour = self.sees_neighbour(&sender);
                if let Some(seen) = self.get_mut(&sender.0) {
                    seen.requests_neighbours |= sees_neighbour;
                }
            }
        }
    }

    pub(crate) fn look_within(&mut self, device: &DeviceName, wait: Micros) {
        if let Some(seen) = self.get_mut(device) {
            seen.next_poll = seen.next_poll.min(seen.read_at + wait);
        }
    }

    fn dark_slots(&self, device: &DeviceName, ledger: &Ledger) -> Vec<DarkSlot> {
        let least = self.inventory.limits(device).power_min_mdbm;
        let owned = ledger.owned.get(device).filter(|_| ledger.is_at_rest(device));
        let read = self.devices.get(device).and_then(|seen| seen.observed.as_ref());
        let (Some(owned), Some(read)) = (owned, read) else { return Vec::new() };
        let dark = owned.iter().filter_map(|(&slot, &to)| {
            let stands = at(&read.positions, slot) == to && !read.tuning.contains(&slot);
            let power_mdbm = *read.power_mdbm.get(&slot).filter(|_| stands)?;
            let end = (device.clone(), slot, to);
            let sender = self.far_end(&end)?;
            let shut = self.is_shut(&end) || self.is_shut(sender);
            let probed = ledger.is_probed(&end) || ledger.is_probed(sender);
            let is_dark = power_mdbm < least && ledger.is_at_rest(&sender.0);
            (ledger.owns(sender) && !shut && !probed && is_dark).then(|| DarkSlot {
                slot,
                power_mdbm,
                sender: sender.clone(),
            })
        });
        dark.collect()
    }

    fn is_facing(&self, (device, slot, to): &FibreEnd) -> bool {
        let Some(seen) = self.devices.get(device) else { return false };
        let stood = seen.stood.as_ref().is_none_or(|stood| at(stood, *slot) == *to);
        stood && seen.observed.as_ref().is_none_or(|read| !read.tuning.contains(slot))
    }

    fn dark_fibre(&self, device: &DeviceName, slot: Slot, ledger: &Ledger) -> Option<DarkFibre> {
        let seen = self.devices.get(device).filter(|seen| seen.reachable)?;
        let dark = seen.dark.get(&slot)?;
        let to = ledger.owned.get(device).map_or(Position::DARK, |p| at(p, slot));
        let receiver = (device.clone(), slot, to);
        let sender = self.far_end(&receiver)?;
        let sender_seen = self.devices.get(&sender.0)?;
        let (limits, sender_limits) =
            (self.inventory.limits(device), self.inventory.limits(&sender.0));
        let shut = self.is_shut(&receiver) || self.is_shut(sender);
        let at_rest = ledger.is_at_rest(device) && ledger.is_at_rest(&sender.0) && !shut;
        let is_certain = !sender_seen.reachable && sender_seen.signalled.skips_hello_for_light;
        if !at_rest
            || (!is_certain && dark.reads < limits.power_samples)
            || (sender_seen.reachable && sender_seen.stood.is_none())
            || !self.is_facing(sender)
        {
            return None;
        }
        // If the sender receives light from another end, a cable is crossed and the fibre is
        // healthy, so only reads with neighbour names are considered.
        let names = self.sees_neighbour(sender);
        let sender_read_at = if names { sender_seen.named_at } else { sender_seen.read_at };
        let since = dark.since.max(seen.stands_since).max(sender_seen.stands_since);
        let (since, until) = match sender_seen.reachable {
            true => (since, seen.read_at.min(sender_read_at)),
            false => (
                since.max(sender_seen.unreachable_from(sender_limits.reconnect_within)),
                seen.read_at,
            ),
        };
        let dark_within = match sender_seen.was_reachable {
            true => limits.dark_within.max(sender_limits.dark_within),
            false => limits.dark_within,
        };
        (is_certain || until >= since + dark_within).then(|| DarkFibre {
            receiver,
            sender: sender.clone(),
            sender_is_unreachable: !sender_seen.reachable,
            power_mdbm: dark.power_mdbm,
            sender_lit_by: self.lit_by_another(sender, ledger),
        })
    }

    fn sees_neighbour(&self, (device, slot, _): &FibreEnd) -> bool {
        let least = self.inventory.limits(device).power_min_mdbm;
        self.reading(device).is_some_and(|read| {
            let lit = read.power_mdbm.get(slot).is_some_and(|power| *power >= least);
            lit && read.neighbours.contains_key(slot)
        })
    }

    fn lit_by_another(&self, end: &FibreEnd, ledger: &Ledger) -> Option<String> {
        let crossed = self.crossed(&end.0, ledger);
        crossed.into_iter().find(|crossed| crossed.end == *end).map(|crossed| crossed.lit_by)
    }

    pub(crate) fn is_dark_end(&self, device: &DeviceName) -> bool {
        self.devices.get(device).is_some_and(|seen| !seen.dark.is_empty())
    }

    pub fn dark_fibres(&self, ledger: &Ledger) -> Vec<DarkFibre> {
        let dark = self.dark().flat_map(|(device, seen)| {
            seen.dark.keys().filter_map(move |slot| self.dark_fibre(device, *slot, ledger))
        });
        dark.collect()
    }

    /// Returns the ends of a device that receive light from the wrong end. Empty while the device
    /// moves or is unreachable. Each read rechecks wrong names; correct names may be up to
    /// [`crate::state::NEIGHBOURS_EVERY`] reads old.
    pub fn crossed(&self, device: &DeviceName, ledger: &Ledger) -> Vec<Crossed> {
        let read = self.reading(device).filter(|_| !ledger.is_moving(device));
        let Some(read) = read else { return Vec::new() };
        let settled = read.neighbours.iter().filter(|(slot, _)| !read.tuning.contains(slot));
        let crossed = settled.filter_map(|(&slot, lit_by)| {
            let end = (device.clone(), slot, at(&read.positions, slot));
            let should_be = self.far_end(&end)?;
            let crossed = *lit_by != end_name(should_be);
            crossed.then(|| Crossed { end, lit_by: lit_by.clone(), should_be: should_be.clone() })
        });
        crossed.collect()
    }

    pub(crate) fn note_crossed(
        &mut self,
        device: &DeviceName,
        ledger: &Ledger,
    ) -> Option<Vec<Crossed>> {
        let crossed = self.crossed(device, ledger);
        let seen = self.get_mut(device).filter(|_| !ledger.is_moving(device))?;
        (crossed != seen.crossed).then(|| {
            seen.crossed.clone_from(&crossed);
            crossed
        })
    }

    pub(super) fn note_shut(&mut self, now: &Now, device: &DeviceName, read: &Observation) {
        let Some(seen) = self.get_mut(device) else { return };
        let was = std::mem::take(&mut seen.shut);
        let shut = read.shut.iter().map(|(slot, why)| {
            let known = was.get(slot).filter(|(was, _)| was == why);
            (*slot, (*why, known.map_or(now.mono, |(_, since)| *since)))
        });
        seen.shut = shut.collect();
    }

    pub(super) fn is_shut(&self, (device, slot, _): &FibreEnd) -> bool {
        self.devices.get(device).is_some_and(|seen| seen.shut.contains_key(slot))
    }

    pub fn shut_ends(&self, ledger: &Ledger) -> Vec<ShutEnd> {
        let reachable = self.devices.iter().filter(|(_, seen)| seen.reachable);
        let shut = reachable.flat_map(|(device, seen)| {
            let slots = seen.shut.iter();
            slots.map(move |(slot, (why, since))| (device, *slot, *why, *since))
        });
        let ends = shut.filter_map(|(device, slot, why, since)| {
            let end = (device.clone(), slot, *ledger.owned.get(device)?.get(&slot)?);
            let receiver = self.far_end(&end)?.clone();
            Some(ShutEnd { end, receiver, why, since })
        });
        ends.collect()
    }

    pub(crate) fn testimonies(&self, device: &DeviceName, ledger: &Ledger) -> Vec<Testimony> {
        let far_ends = self.far_ends(device, ledger).filter(|far_end| ledger.owns(far_end));
        let testimonies = far_ends.map(|far_end| Testimony {
            sight: self.sight(device, far_end, ledger),
            far_end: far_end.clone(),
        });
        testimonies.collect()
    }

    fn sight(&self, device: &DeviceName, far_end: &FibreEnd, ledger: &Ledger) -> Sight {
        let (far, slot, to) = far_end;
        let dark = self.dark_fibre(far, *slot, ledger);
        if let Some(dark) = dark.filter(|dark| dark.sender.0 == *device) {
            return Sight::Dark(dark.power_mdbm);
        }
        let Some(since) = self.devices.get(device).map(|seen| seen.unreachable_since) else {
            return Sight::Unknown;
        };
        let least = self.inventory.limits(far).power_min_mdbm;
        let is_lit = self.reading_since(far, since).is_some_and(|read| {
            at(&read.positions, *slot) == *to
                && read.power_mdbm.get(slot).is_some_and(|power| *power >= least)
        });
        if is_lit { Sight::Lit } else { Sight::Unknown }
    }

    pub(crate) fn is_lit(&self, device: &DeviceName, ledger: &Ledger) -> bool {
        let mut far_ends = self.far_ends(device, ledger);
        far_ends.any(|far_end| self.sight(device, far_end, ledger) == Sight::Lit)
    }
}

pub fn end_name((device, _, position): &FibreEnd) -> String {
    format!("{device}.{}", position.0)
}
