// SPDX-License-Identifier: Apache-2.0
//! A device that does what it is asked, at once, and refuses double use as a real one does.

use lightloom_control::inventory::Device;
use lightloom_control::state::{Observation, Op, Outcome, Position, Positions, Sharing, Slot, at};

/// Where traffic is let through.
pub(crate) const IN_USE: Position = Position(1);

#[derive(Clone, Debug)]
pub(crate) struct Model {
    sharing: Sharing,
    pub positions: Positions,
    generation: u32,
}

impl Model {
    /// Dark; traffic is on where it takes traffic off.
    pub(crate) fn new(device: &Device) -> Self {
        let in_use = device.is_lever.then_some((Slot(0), IN_USE));
        Self { sharing: device.sharing, positions: in_use.into_iter().collect(), generation: 0 }
    }

    pub(crate) fn execute(&mut self, op: &Op) -> Outcome {
        let Op::Switch { moves, .. } = op else {
            return match op {
                Op::Disarm { .. } => Outcome::Done(None),
                _ => Outcome::Done(Some(self.read())),
            };
        };
        let exclusive = self.sharing == Sharing::Exclusive;
        for m in moves {
            if m.to.is_dark() {
                self.positions.remove(&m.slot);
                continue;
            }
            let held = self.positions.iter().any(|(slot, to)| *to == m.to && *slot != m.slot);
            let used = self.positions.contains_key(&m.slot) && at(&self.positions, m.slot) != m.to;
            if exclusive && (held || used) {
                return Outcome::Failed("in use".into());
            }
            self.positions.insert(m.slot, m.to);
        }
        self.generation += 1;
        Outcome::Done(None)
    }

    fn read(&self) -> Observation {
        Observation {
            positions: self.positions.clone(),
            generation: Some(self.generation),
            power_mdbm: self.positions.keys().map(|slot| (*slot, -5_000)).collect(),
            ..Observation::default()
        }
    }
}

impl Model {
    pub(crate) fn is_exclusive(&self) -> bool {
        self.sharing == Sharing::Exclusive
    }
}
