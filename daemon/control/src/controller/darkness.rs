// SPDX-License-Identifier: Apache-2.0
//! Decides when missing light proves a fibre fault.
//!
//! ```text
//!   near end   ....dark────dark────dark────dark     reads without light, near end at its position
//!   far end    faces────────faces───────────faces   reads in which it looks into the fibre
//!                  |<── longer than light takes to settle ──>|   so: a fault
//! ```
//!
//! Darkness is evidence only while *reads* show that both ends face the fibre: from the reply to
//! the first such read until the request of the last one. Otherwise an end may be moving.

use super::{Action, Controller, Seen};
use crate::drive::Site;
use crate::state::{DeviceName, FibreEnd, Micros, Now, Observation, Position, Slot, at};

const QUICK_READS: u32 = 100;

#[derive(Clone, Copy, Debug)]
pub(super) struct Dark {
    pub(super) reads: u32,
    since: Micros,
    power_mdbm: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DarkFibre {
    pub near: FibreEnd,
    pub far: FibreEnd,
    pub far_is_down: bool,
    pub power_mdbm: i32,
    pub far_lit_by: Option<String>,
}

impl Controller {
    pub(super) fn is_moving(&self, device: &DeviceName) -> bool {
        self.ledger.open.as_ref().is_some_and(|open| open.intent.after.contains_key(device))
    }

    pub(super) fn is_at_rest(&self, device: &DeviceName) -> bool {
        !self.is_moving(device) && !self.ledger.attention.contains_key(device)
    }

    /// `asked` is the time of the request, and `now` is the time of the reply.
    pub(super) fn note_read(
        &mut self,
        now: &Now,
        device: &DeviceName,
        (asked, read): (Micros, &Observation),
        actions: &mut Vec<Action>,
    ) {
        let moving = self.is_moving(device);
        let Some(seen) = self.devices.get_mut(device) else { return };
        if moving || seen.stood.as_ref() != Some(&read.positions) {
            seen.stands_since = now.mono;
            seen.stood = Some(read.positions.clone());
        }
        seen.observed = Some(read.clone());
        seen.read_at = asked;
        let least = self.inventory.devices.get(device).map_or(0, |d| d.limits.power_min_mdbm);
        if !moving {
            seen.note_usual(read, least);
        }
        for (slot, _) in read.power_mdbm.iter().filter(|(_, power)| **power >= least) {
            seen.signalled.sees_light(*slot, asked);
        }
        self.note_shut(now, device, read);
        self.note_drift(device, actions);
        self.note_contention(now, device, read, actions);
        self.note_crossed(device, actions);
        self.note_darkness(now, device);
    }

    fn note_darkness(&mut self, now: &Now, device: &DeviceName) {
        let dark = self.dark_slots(device);
        let limits = self.inventory.limits(device);
        let samples = u64::from(limits.power_samples.max(1));
        let [quick, slow] =
            [limits.dark_within, limits.settle_within].map(|w| Micros(w.0 / samples));
        let Some(seen) = self.devices.get_mut(device) else { return };
        seen.dark.retain(|slot, _| dark.iter().any(|(dark, ..)| dark == slot));
        let was_read = seen.signalled.was_read();
        for (slot, power_mdbm, far) in dark {
            let Some(seen) = self.devices.get_mut(device) else { return };
            if !was_read {
                let to = seen.observed.as_ref().map_or(Position::DARK, |o| at(&o.positions, slot));
                seen.signalled.never_saw(slot, seen.read_at);
                self.suspect(now, device, (slot, to));
            }
            let Some(seen) = self.devices.get_mut(device) else { return };
            let since = now.mono;
            let first = Dark { reads: 0, since, power_mdbm };
            let dark = seen.dark.entry(slot).or_insert(first);
            (dark.reads, dark.power_mdbm) = (dark.reads.saturating_add(1), power_mdbm);
            let (is_first, wait) =
                (dark.reads == 1, if dark.reads > QUICK_READS { slow } else { quick });
            if self.looks_back(&far) && self.dark_fibre(device, slot).is_none() {
                // Without a delay, two dark ends would trigger each other's reads forever.
                let wait = wait.max(limits.settle_poll);
                for device in [device, &far.0] {
                    self.look_within(device, wait);
                }
                if is_first {
                    self.look_around(&far.0);
                }
                let sees_somebody = self.sees_somebody(&far);
                if let Some(other) = self.devices.get_mut(&far.0) {
                    other.missed_opposite |= sees_somebody;
                }
            }
        }
    }

    pub(super) fn look_within(&mut self, device: &DeviceName, wait: Micros) {
        if let Some(seen) = self.devices.get_mut(device) {
            seen.next_poll = seen.next_poll.min(seen.read_at + wait);
        }
    }

    fn dark_slots(&self, device: &DeviceName) -> Vec<(Slot, i32, FibreEnd)> {
        let least = self.inventory.limits(device).power_min_mdbm;
        let at_rest = |device: &DeviceName| self.is_at_rest(device);
        let (Some(owned), Some(seen)) =
            (self.ledger.owned.get(device).filter(|_| at_rest(device)), self.devices.get(device))
        else {
            return Vec::new();
        };
        let Some(read) = &seen.observed else { return Vec::new() };
        let dark = owned.iter().filter_map(|(&slot, &to)| {
            let stands = at(&read.positions, slot) == to && !read.tuning.contains(&slot);
            let power = *read.power_mdbm.get(&slot).filter(|_| stands)?;
            let far = self.inventory.far_end(device, slot, to)?;
            let should = self.ledger.owned.get(&far.0).is_some_and(|p| at(p, far.1) == far.2);
            let shut = self.is_shut(device, slot) || self.is_shut(&far.0, far.1);
            let probed = self.is_probed(device, slot) || self.is_probed(&far.0, far.1);
            (should && !shut && !probed && power < least && at_rest(&far.0))
                .then(|| (slot, power, far.clone()))
        });
        dark.collect()
    }

    /// A probe expects some ends to stay dark, so missing light on its slots is not a fault.
    fn is_probed(&self, device: &DeviceName, slot: Slot) -> bool {
        self.ledger.probed.get(device).is_some_and(|slots| slots.contains(&slot))
    }

    fn looks_back(&self, (device, slot, to): &FibreEnd) -> bool {
        let settling =
            |seen: &Seen| seen.observed.as_ref().is_some_and(|o| o.tuning.contains(slot));
        let stood = |seen: &Seen| seen.stood.as_ref().is_none_or(|stood| at(stood, *slot) == *to);
        self.devices.get(device).is_some_and(|seen| stood(seen) && !settling(seen))
    }

    pub(super) fn dark_fibre(&self, device: &DeviceName, slot: Slot) -> Option<DarkFibre> {
        let seen = self.devices.get(device).filter(|seen| seen.up)?;
        let dark = seen.dark.get(&slot)?;
        let to = self.ledger.owned.get(device).map_or(Position::DARK, |p| at(p, slot));
        let far = self.inventory.far_end(device, slot, to)?;
        let other = self.devices.get(&far.0)?;
        let (near_limits, far_limits) =
            (self.inventory.limits(device), self.inventory.limits(&far.0));
        let shut = self.is_shut(device, slot) || self.is_shut(&far.0, far.1);
        let at_rest = self.is_at_rest(device) && self.is_at_rest(&far.0) && !shut;
        let dead = !other.up && other.signalled.is_found_dead;
        if !at_rest
            || (!dead && dark.reads < near_limits.power_samples)
            || (other.up && other.stood.is_none())
            || !self.looks_back(far)
        {
            return None;
        }
        // If the far end receives light from another end, a cable is crossed and the fibre is
        // healthy, so only reads with neighbour names are considered.
        let far_read_at = if self.sees_somebody(far) { other.named_at } else { other.read_at };
        let since = dark.since.max(seen.stands_since).max(other.stands_since);
        let (since, until) = match other.up {
            true => (since, seen.read_at.min(far_read_at)),
            false => (since.max(other.silent_from(far_limits.silent_within)), seen.read_at),
        };
        let dark_within = match other.was_up {
            true => near_limits.dark_within.max(far_limits.dark_within),
            false => near_limits.dark_within,
        };
        (dead || until >= since + dark_within).then(|| DarkFibre {
            near: (device.clone(), slot, to),
            far: far.clone(),
            far_is_down: !other.up,
            power_mdbm: dark.power_mdbm,
            far_lit_by: self.lit_by_another(far),
        })
    }

    fn sees_somebody(&self, (device, slot, _): &FibreEnd) -> bool {
        let least = self.inventory.limits(device).power_min_mdbm;
        let read = self.devices.get(device).filter(|seen| seen.up);
        read.and_then(|seen| seen.observed.as_ref()).is_some_and(|read| {
            let lit = read.power_mdbm.get(slot).is_some_and(|power| *power >= least);
            lit && read.neighbours.contains_key(slot)
        })
    }

    fn lit_by_another(&self, end: &FibreEnd) -> Option<String> {
        let crossed = self.crossed(&end.0);
        crossed.into_iter().find(|crossed| crossed.end == *end).map(|crossed| crossed.lit_by)
    }

    #[must_use]
    pub fn misses_light(&self, device: &DeviceName) -> bool {
        self.devices.get(device).is_some_and(|seen| !seen.dark.is_empty())
    }

    #[must_use]
    pub fn dark_fibres(&self) -> Vec<DarkFibre> {
        let dark = self.devices.dark().flat_map(|(device, seen)| {
            seen.dark.keys().filter_map(move |slot| self.dark_fibre(device, *slot))
        });
        dark.collect()
    }
}
