// SPDX-License-Identifier: Apache-2.0
//! What is seen of a device that does not answer, by those who do: its light at the far ends of its circuits.
//!
//! Silence says nothing of a device: its line may be lost, or the daemon's own. A reading that arrives does.

use super::Controller;
use crate::drive::Site;
use crate::state::{DeviceName, FibreEnd, at};

/// What the far end of a circuit reads of a device that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// No light, long enough to be no settling, and this in 1/1000 dBm.
    Dark(i32),
    /// Light, by a reading since the device fell silent.
    Lit,
    /// Nothing that counts: it does not answer either, is being moved, or was not read often enough.
    Nothing,
}

/// A circuit of a device that does not answer, from its far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Testimony {
    /// The far end, which should see the device.
    pub witness: FibreEnd,
    /// What it sees.
    pub sight: Sight,
}

impl Controller {
    /// What the far ends of the circuits of this device see of it. A circuit is what both ends are to look into.
    #[must_use]
    pub fn testimonies(&self, device: &DeviceName) -> Vec<Testimony> {
        let owned = self.ledger.owned.get(device).into_iter().flatten();
        let far = owned.filter_map(|(&slot, &to)| self.inventory.far_end(device, slot, to));
        let looks = |(far, slot, to): &&FibreEnd| {
            self.ledger.owned.get(far).is_some_and(|owned| at(owned, *slot) == *to)
        };
        let of = |witness: &FibreEnd| Testimony {
            sight: self.sight(device, witness),
            witness: witness.clone(),
        };
        far.filter(looks).map(of).collect()
    }

    fn sight(&self, device: &DeviceName, (witness, slot, to): &FibreEnd) -> Sight {
        if let Some(dark) = self.dark_fibre(witness, *slot).filter(|dark| dark.far.0 == *device) {
            return Sight::Dark(dark.power_mdbm);
        }
        let Some(down_since) = self.devices.get(device).map(|seen| seen.down_since) else {
            return Sight::Nothing;
        };
        let least = self.inventory.limits(witness).power_min_mdbm;
        let seen = self.devices.get(witness).filter(|seen| seen.up && seen.read_at >= down_since);
        let is_lit = seen.and_then(|seen| seen.observed.as_ref()).is_some_and(|read| {
            at(&read.positions, *slot) == *to
                && read.power_mdbm.get(slot).is_some_and(|power| *power >= least)
        });
        if is_lit { Sight::Lit } else { Sight::Nothing }
    }

    /// Whether a device that is out of reach sends light all the same: a far end was read since, and sees it.
    #[must_use]
    pub fn sends_light(&self, device: &DeviceName) -> bool {
        let owned = self.ledger.owned.get(device).into_iter().flatten();
        let mut far = owned.filter_map(|(&slot, &to)| self.inventory.far_end(device, slot, to));
        far.any(|witness| self.sight(device, witness) == Sight::Lit)
    }
}
