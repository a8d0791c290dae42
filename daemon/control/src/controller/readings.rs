// SPDX-License-Identifier: Apache-2.0
//! Collects readings of the links in use, as input to the [diagnosis](crate::diagnosis).
//!
//! Polls do not read the registers with bit errors and the power per lane. Uncertain evidence is
//! omitted: light that was missing in too few reads, and modules that may still reply to a hello.

use std::collections::BTreeSet;

use super::{Controller, Seen};
use crate::diagnosis::{End, Link, Loose, PortReading};
use crate::drive::Site;
use crate::state::{DeviceName, FibreEnd, Now, Observation, Position, Slot, at};

/// Increase in 1/1000 dB that resets the usual power, because the fibre was cleaned or replaced.
const BRIGHTER: i32 = 1_000;

impl Seen {
    pub(super) fn note_usual(&mut self, read: &Observation, least: i32) {
        for (&slot, &power) in read.power_mdbm.iter().filter(|(_, power)| **power >= least) {
            let place = (slot, at(&read.positions, slot));
            let usual = self.usual.entry(place).or_insert(power);
            if power > *usual + BRIGHTER {
                *usual = power;
            }
        }
    }

    fn tap(&self, slot: Slot, to: Position) -> Option<i32> {
        let read = self.observed.as_ref().filter(|read| at(&read.positions, slot) == to)?;
        read.power_mdbm.get(&slot).copied().filter(|_| !read.tuning.contains(&slot))
    }
}

impl Controller {
    #[must_use]
    pub fn links(&self, now: &Now) -> (Vec<Link>, Vec<Loose>) {
        let fibres = self.inventory.fibres.iter();
        self.links_of(now, fibres.map(|(one, other)| (one.min(other), one.max(other))).collect())
    }

    #[must_use]
    pub fn links_near(&self, now: &Now, nodes: &BTreeSet<&str>) -> (Vec<Link>, Vec<Loose>) {
        let modules = nodes.iter().flat_map(|node| {
            let first = DeviceName::from(format!("{node}/").as_str());
            let (from, first) = (self.inventory.devices.range(first.clone()..), first);
            from.map(|(name, _)| name)
                .take_while(move |name| name.as_str().starts_with(first.as_str()))
        });
        let fibres = modules.flat_map(|module| {
            let first = (module.clone(), Slot(0), Position(0));
            let from = self.inventory.fibres.range(first..);
            from.take_while(move |((device, ..), _)| device == module)
        });
        let fibres = fibres.map(|(one, other)| (one.min(other), one.max(other))).collect();
        let (links, mut loose) = self.links_of(now, fibres);
        loose.retain(|module| nodes.contains(module.node.as_str()));
        (links, loose)
    }

    fn links_of(
        &self,
        now: &Now,
        fibres: BTreeSet<(&FibreEnd, &FibreEnd)>,
    ) -> (Vec<Link>, Vec<Loose>) {
        let looks = |(device, slot, to): &FibreEnd| {
            let owned = self.ledger.owned.get(device).is_some_and(|owned| at(owned, *slot) == *to);
            let rests = self.is_moving(device) || self.has_restarted(device);
            owned && !rests && !self.is_shut(device, *slot)
        };
        let is_link = |(one, other): &&(&FibreEnd, &FibreEnd)| looks(one) && looks(other);
        let linked: Vec<&(&FibreEnd, &FibreEnd)> = fibres.iter().filter(is_link).collect();
        let leads_to: BTreeSet<&DeviceName> =
            linked.iter().flat_map(|(one, other)| [&one.0, &other.0]).collect();
        let cabled: BTreeSet<&DeviceName> =
            fibres.iter().flat_map(|(one, other)| [&one.0, &other.0]).collect();
        let loose = cabled.difference(&leads_to).map(|module| Loose {
            node: node_of(module),
            module: (*module).clone(),
            answers: !self.is_silent(now, module),
        });
        let link = |(one, other): &(&FibreEnd, &FibreEnd)| Link {
            ends: [self.end_of_link(now, one, other), self.end_of_link(now, other, one)],
            over: None,
        };
        (linked.into_iter().map(link).collect(), loose.collect())
    }

    fn end_of_link(&self, now: &Now, end: &FibreEnd, far: &FibreEnd) -> End {
        let (device, slot, to) = end;
        let seen = &self.devices[device];
        let least = self.inventory.limits(device).power_min_mdbm;
        let usual = seen.usual.get(&(*slot, *to)).copied().unwrap_or(least);
        let reading =
            |answers, stands, tap| PortReading { answers, stands, tap, ..PortReading::default() };
        let stands = |read: &Observation| at(&read.positions, *slot) == *to;
        let stands = !seen.up || seen.observed.as_ref().is_none_or(stands);
        let tap = self.certain_tap(seen, end, far);
        End {
            node: node_of(device),
            module: device.clone(),
            now: reading(!self.is_silent(now, device), stands, tap),
            usual: reading(true, true, Some(usual)),
        }
    }

    fn certain_tap(&self, seen: &Seen, end: &FibreEnd, far: &FibreEnd) -> Option<i32> {
        let (device, slot, to) = end;
        let limits = self.inventory.limits(device);
        let tap = seen.tap(*slot, *to).filter(|_| seen.up)?;
        let far_is_up = self.devices.get(&far.0).is_some_and(|far| far.up);
        let dark = seen.dark.get(slot);
        let counts = dark.is_some_and(|dark| dark.reads >= limits.power_samples || !far_is_up);
        (tap >= limits.power_min_mdbm || counts).then_some(tap)
    }

    #[must_use]
    pub fn is_silent(&self, now: &Now, device: &DeviceName) -> bool {
        let Some(seen) = self.devices.get(device) else { return false };
        let since = seen.down_since.max(seen.silent_since);
        let is_dead = seen.signalled.is_found_dead || seen.signalled.is_silent_beside;
        !seen.up && (is_dead || now.mono >= since + self.hello_within(device))
    }
}

fn node_of(module: &DeviceName) -> String {
    module.as_str().split('/').next().unwrap_or_default().to_owned()
}
