// SPDX-License-Identifier: Apache-2.0
//! Collects readings of the links in use, as input to the [diagnosis](crate::diagnosis).
//!
//! Polls do not read the registers with bit errors and the power per lane. Uncertain evidence is
//! omitted: ends that were dark in too few reads, and modules that may still reply to a hello.

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
    pub fn all(&self) -> (Vec<Link>, Vec<Loose>) {
        let fibres = self.sightings.inventory.fibres.iter();
        self.of(fibres.map(|(one, other)| (one.min(other), one.max(other))).collect())
    }

    pub fn near(&self, nodes: &BTreeSet<&str>) -> (Vec<Link>, Vec<Loose>) {
        let modules = nodes.iter().flat_map(|node| {
            let first = DeviceName::from(format!("{node}/").as_str());
            let (from, first) = (self.sightings.inventory.devices.range(first.clone()..), first);
            from.map(|(device, _)| device)
                .take_while(move |device| device.as_str().starts_with(first.as_str()))
        });
        let ends = modules.flat_map(|device| {
            let first = (device.clone(), Slot(0), Position(0));
            let from = self.sightings.inventory.fibres.range(first..);
            from.take_while(move |((from, ..), _)| from == device)
        });
        let fibres = ends.map(|(one, other)| (one.min(other), one.max(other)));
        let (links, mut loose) = self.of(fibres.collect());
        loose.retain(|loose| nodes.contains(loose.node.as_str()));
        (links, loose)
    }

    fn of(&self, fibres: BTreeSet<(&FibreEnd, &FibreEnd)>) -> (Vec<Link>, Vec<Loose>) {
        let (mut links, mut linked, mut cabled) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for (one, other) in fibres {
            let devices = [&one.0, &other.0];
            cabled.extend(devices);
            if self.is_in_use(one) && self.is_in_use(other) {
                linked.extend(devices);
                links.push(Link { ends: [self.end(one, other), self.end(other, one)], over: None });
            }
        }
        let loose = cabled.difference(&linked).map(|&device| Loose {
            node: node_of(device),
            device: device.clone(),
            reachable: !self.sightings.stays_unreachable(self.now, device),
        });
        (links, loose.collect())
    }

    fn is_in_use(&self, end: &FibreEnd) -> bool {
        let rests = self.ledger.is_moving(&end.0) || self.sightings.has_restarted(&end.0);
        self.ledger.owns(end) && !rests && !self.sightings.is_shut(end)
    }

    fn end(&self, end: &FibreEnd, far: &FibreEnd) -> End {
        let (device, slot, to) = end;
        let seen = &self.sightings.devices[device];
        let least = self.sightings.inventory.limits(device).power_min_mdbm;
        let usual = seen.usual.get(&(*slot, *to)).copied().unwrap_or(least);
        let now = PortReading {
            reachable: !self.sightings.stays_unreachable(self.now, device),
            stands: !seen.reachable
                || seen.observed.as_ref().is_none_or(|read| at(&read.positions, *slot) == *to),
            tap: self.certain_tap(seen, end, far),
            ..PortReading::default()
        };
        let tap = Some(usual);
        let usual = PortReading { reachable: true, stands: true, tap, ..PortReading::default() };
        End { node: node_of(device), device: device.clone(), now, usual }
    }

    fn certain_tap(&self, seen: &Sighting, end: &FibreEnd, far: &FibreEnd) -> Option<i32> {
        let (device, slot, to) = end;
        let limits = self.sightings.inventory.limits(device);
        let tap = seen.tap(*slot, *to).filter(|_| seen.reachable)?;
        let far_is_reachable = self.sightings.is_reachable(&far.0);
        let dark = seen.dark.get(slot);
        let counts =
            dark.is_some_and(|dark| dark.reads >= limits.power_samples || !far_is_reachable);
        (tap >= limits.power_min_mdbm || counts).then_some(tap)
    }
}

fn node_of(device: &DeviceName) -> String {
    device.as_str().split('/').next().unwrap_or_default().to_owned()
}
