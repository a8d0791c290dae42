// SPDX-License-Identifier: Apache-2.0
//! The deferred change of a device that was unreachable during an undo. When the device responds
//! and is at one of the change's two positions, the daemon moves it to the correct one.

use serde::{Deserialize, Serialize};

use crate::record::{Cause, Intent};
use crate::state::{DeviceName, Positions, SwitchState, Txn, at};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferred {
    pub txn: Txn,
    pub to: Positions,
    pub or: Positions,
}

fn slots_of(side: &SwitchState, device: &DeviceName) -> Positions {
    side.get(device).cloned().unwrap_or_default()
}

impl Deferred {
    /// Returns the deferred change of a device that was unreachable during `intent`: the reversal
    /// of `intent` if it `turned`, or the undo of another change. `None` for a forward change.
    pub fn after(intent: &Intent, turned: bool, device: &DeviceName) -> Option<Self> {
        if !intent.goal.contains_key(device) {
            // Plans do not record drain controls, so they have no deferred change.
            return None;
        }
        let undoes = intent.cause.undoes();
        let txn = match intent.cause {
            Cause::Deferred(txn) => txn,
            _ => intent.txn,
        };
        match (undoes, turned) {
            (true, false) => Some(Self {
                txn,
                to: slots_of(&intent.goal, device),
                or: slots_of(&intent.before, device),
            }),
            (_, true) => {
                let mut to = slots_of(&intent.owned_before, device);
                to.extend(slots_of(&intent.before, device));
                Some(Self { txn, to, or: slots_of(&intent.after, device) })
            }
            (false, false) => None,
        }
    }

    pub(crate) fn explains(&self, read: &Positions, owned: &Positions) -> bool {
        let mut slots = self.to.keys().chain(self.or.keys()).chain(owned.keys()).chain(read.keys());
        slots.all(|&slot| {
            let or = self.or.get(&slot).copied();
            let stands = at(read, slot);
            stands == at(&self.to, slot) || stands == at(owned, slot) || Some(stands) == or
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Position, Slot};

    #[test]
    fn deferred_change_explains_only_its_two_positions() {
        let stands = |position: u32| Positions::from([(Slot(0), Position(position))]);
        let deferred = Deferred { txn: Txn(5), to: stands(1), or: stands(15) };
        assert!(
            deferred.explains(&stands(1), &stands(15))
                && deferred.explains(&stands(15), &stands(15))
        );
        assert!(!deferred.explains(&stands(2), &stands(15)), "somebody else's move");
        assert!(!deferred.explains(&Positions::new(), &stands(15)), "it lost its light");
        let more = Positions::from([(Slot(0), Position(1)), (Slot(3), Position(2))]);
        assert!(!deferred.explains(&more, &stands(15)), "a foreign circuit");
    }
}
