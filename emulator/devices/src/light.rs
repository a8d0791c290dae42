// SPDX-License-Identifier: Apache-2.0
//! Tracks which fibres carry light in both directions. A receiver does not lock while the far end receives no light.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_units::SimTime;

use super::rack::{AnyDevice, Rack, RackSlot};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LightChange {
    pub bundle: String,
    /// Bundle at the far end. `None` if either end is dark or in loopback.
    pub far: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct LightWatchers {
    pub(super) called: BTreeSet<RackSlot>,
    joined: BTreeMap<RackSlot, Option<RackSlot>>,
}

impl Rack {
    pub fn watch_light(&mut self) {
        let called = (0..self.devices().count()).map(RackSlot).collect();
        self.watched = Some(LightWatchers { called, joined: BTreeMap::new() });
    }

    /// Returns the transceivers whose far end changed since the last call. Requires [`Rack::watch_light`].
    pub fn light_changes(&mut self, now: SimTime) -> Vec<LightChange> {
        let Some(watched) = &mut self.watched else { return Vec::new() };
        let called = std::mem::take(&mut watched.called);
        let fibres = called.iter().flat_map(|slot| (1..=2).map(move |number| (*slot, number)));
        let far = fibres.filter_map(|port| self.fibres.get(&port).map(|(slot, _)| *slot));
        let asked: BTreeSet<RackSlot> = called.iter().copied().chain(far).collect();
        let asked = asked.into_iter().filter(|slot| self.device(*slot).1.kind() == "transceiver");
        let now_joined: Vec<_> = asked.map(|slot| (slot, self.joined_with(now, slot))).collect();
        let Some(watched) = &mut self.watched else { return Vec::new() };
        let changed: Vec<_> = now_joined
            .into_iter()
            .filter(|(slot, far)| watched.joined.insert(*slot, *far) != Some(*far))
            .collect();
        changed
            .into_iter()
            .map(|(slot, far)| LightChange {
                bundle: self.device(slot).0.to_owned(),
                far: far.map(|far| self.device(far).0.to_owned()),
            })
            .collect()
    }

    pub fn joined_with(&self, now: SimTime, slot: RackSlot) -> Option<RackSlot> {
        let AnyDevice::Transceiver(near) = self.device(slot).1 else { return None };
        let number = (1..=2).find(|number| near.device().sends(now, *number))?;
        let &(far, far_number) = self.fibres.get(&(slot, number))?;
        let AnyDevice::Transceiver(other) = self.device(far).1 else { return None };
        other.device().sends(now, far_number).then_some(far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Output;

    const FABRIC: &str =
        "kind: fabric\nversion: 2\nname: r\nhbd: {khop: {nodes: 8, gpus_per_node: 4, k: 2}}\n";

    fn rack() -> Rack {
        let list = "seed: 1\nfabric: r.yaml\ntransceivers:\n  - {names: \"n{0..7}/b{0..1}\", powered_for: 2s}\n";
        let mut read = |_: &str| Ok(FABRIC.to_owned());
        crate::load_beside("d.yaml", list.as_bytes(), &mut read).0.unwrap().rack
    }

    #[test]
    fn looped_back_modules_are_connected_to_nothing() {
        let mut rack = rack();
        assert_eq!(rack.light_changes(SimTime::START), []);
        rack.watch_light();
        let first = rack.light_changes(SimTime::START);
        assert_eq!(first.len(), 16);
        assert!(first.iter().all(|change| change.far.is_none()), "{first:?}");
        assert_eq!(rack.light_changes(SimTime::START), [], "no change since then");
    }

    #[test]
    fn fault_without_light_changes_nothing() {
        let mut rack = rack();
        rack.watch_light();
        rack.light_changes(SimTime::START);
        let (slot, mut out) = (rack.slot("n3/b0").unwrap(), Vec::<Output>::new());
        rack.apply(SimTime::START, slot, "dead".parse().unwrap(), &mut out);
        assert_eq!(rack.light_changes(SimTime::START), []);
    }
}
