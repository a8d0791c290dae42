// SPDX-License-Identifier: Apache-2.0
//! Checks whether the far ends receive light from an unresponsive device.
//!
//! Missing light is evidence about the device itself. A missing reply may also be caused by the
//! device's management line or by the daemon's.

use super::Controller;
use crate::drive::Site;
use crate::state::{DeviceName, FibreEnd, at};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    Dark(i32),
    Lit,
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Testimony {
    pub witness: FibreEnd,
    pub sight: Sight,
}

impl Controller {
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

    #[must_use]
    pub fn sends_light(&self, device: &DeviceName) -> bool {
        let owned = self.ledger.owned.get(device).into_iter().flatten();
        let mut far = owned.filter_map(|(&slot, &to)| self.inventory.far_end(device, slot, to));
        far.any(|witness| self.sight(device, witness) == Sight::Lit)
    }
}
