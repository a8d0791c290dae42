// SPDX-License-Identifier: Apache-2.0
//! Collects readings of the links in use, as input to the [diagnosis](crate::diagnosis).
//!
//! Polls do not read the registers with bit errors and the power per lane. Uncertain evidence is
//! omitted: light that was missing in too few reads, and modules that may still reply to a hello.

use std::collections::BTreeSet;

use super::{Sighting, Sightings};
use crate::diagnosis::{End, Link, Loose, PortReading};
use crate::drive::Site;
use crate::ledger::Ledger;
use crate::state::{DeviceName, FibreEnd, Now, Observation, Position, Slot, at};

/// Increase in 1/1000 dB that resets the usual power, because the fibre was cleaned or replaced.
const BRIGHTER: i32 = 1_000;

#[derive(Clone, Copy)]
pub struct Links<'a> {
    pub sightings: &'a Sightings,
    pub ledger: &'a Ledger,
    pub now: &'a Now,
}

impl Sighting {
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

impl Links<'_> {
    #[must_use]
    pub fn all(&self) -> (Vec<Link>, Vec<Loose>) {
        let fibres = self.sightings.inventory.fibres.iter();
        self.of(fibres.map(|(one, other)| (one.min(other), one.max(other))).collect())
    }

    #[must_use]
    pub fn near(&self, nodes: &BTreeSet<&str>) -> (Vec<Link>, Vec<Loose>) {
        let modules = nodes.iter().flat_map(|node| {
            let first = DeviceName::from(format!("{node}/").as_str());
            let (from, first) = (self.sightings.inventory.devices.range(first.clone()..), first);
            from.map(|(name, _)| name)
                .take_while(move |name| name.as_str().starts_with(first.as_str()))
        });
        let fibres = modules.flat_map(|module| {
            let first = (module.clone(), Slot(0), Position(0));
            let from = self.sightings.inventory.fibres.range(first..);
            from.take_while(move |((device, ..), _)| device == module)
        });
        let fibres = fibres.map(|(one, other)| (one.min(other), one.max(other))).collect();
        let (links, mut loose) = self.of(fibres);
        loose.retain(|module| nodes.contains(module.node.as_str()));
        (links, loose)
    }

    fn of(&self, fibres: BTreeSet<(&FibreEnd, &FibreEnd)>) -> (Vec<Link>, Vec<Loose>) {
        let Self { sightings, ledger, .. } = self;
        let looks = |end: &FibreEnd| {
            let rests = ledger.is_moving(&end.0) || sightings.has_restarted(&end.0);
            ledger.owns(end) && !rests && !sightings.is_shut(end)
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
            answers: !sightings.is_silent(self.now, module),
        });
        let link = |(one, other): &(&FibreEnd, &FibreEnd)| Link {
            ends: [self.end(one, other), self.end(other, one)],
            over: None,
        };
        (linked.into_iter().map(link).collect(), loose.collect())
    }

    fn end(&self, end: &FibreEnd, far: &FibreEnd) -> End {
        let (device, slot, to) = end;
        let seen = &self.sightings.devices[device];
        let least = self.sightings.inventory.limits(device).power_min_mdbm;
        let usual = seen.usual.get(&(*slot, *to)).copied().unwrap_or(least);
        let reading =
            |answers, stands, tap| PortReading { answers, stands, tap, ..PortReading::default() };
        let stands = |read: &Observation| at(&read.positions, *slot) == *to;
        let stands = !seen.up || seen.observed.as_ref().is_none_or(stands);
        let tap = self.certain_tap(seen, end, far);
        End {
            node: node_of(device),
            module: device.clone(),
            now: reading(!self.sightings.is_silent(self.now, device), stands, tap),
            usual: reading(true, true, Some(usual)),
        }
    }

    fn certain_tap(&self, seen: &Sighting, end: &FibreEnd, far: &FibreEnd) -> Option<i32> {
        let (device, slot, to) = end;
        let limits = self.sightings.inventory.limits(device);
        let tap = seen.tap(*slot, *to).filter(|_| seen.up)?;
        let far_is_up = self.sightings.devices.get(&far.0).is_some_and(|far| far.up);
        let dark = seen.dark.get(slot);
        let counts = dark.is_some_and(|dark| dark.reads >= limits.power_samples || !far_is_up);
        (tap >= limits.power_min_mdbm || counts).then_some(tap)
    }
}

fn node_of(module: &DeviceName) -> String {
    module.as_str().split('/').next().unwrap_or_default().to_owned()
}
