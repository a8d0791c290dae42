// SPDX-License-Identifier: Apache-2.0
//! Two kinds of devices. Both execute commands immediately and, like real devices, refuse to use a
//! port twice. The second kind also refuses commands of earlier epochs.

use lightloom_control::inventory::Device;
use lightloom_control::state::{Observation, Op, Outcome, Position, Positions, Sharing, Slot, at};

pub(crate) const IN_USE: Position = Position(1);

#[derive(Clone, Debug)]
pub(crate) struct Model {
    sharing: Sharing,
    pub positions: Positions,
    generation: u32,
    /// Largest epoch that the device has received; `None` if it does not check epochs.
    pub knows: Option<u32>,
}

impl Model {
    pub(crate) fn new(device: &Device, fences: bool) -> Self {
        let in_use = device.is_lever.then_some((Slot(0), IN_USE));
        let (sharing, positions) = (device.sharing, in_use.into_iter().collect());
        Self { sharing, positions, generation: 0, knows: fences.then_some(0) }
    }

    pub(crate) fn connected(&mut self, epoch: u32) {
        self.knows = self.knows.map(|known| known.max(epoch));
    }

    pub(crate) fn execute(&mut self, epoch: u32, op: &Op) -> Outcome {
        let Op::Switch { moves, .. } = op else {
            return match op {
                Op::Disarm { .. } => Outcome::Done(None),
                _ => Outcome::Done(Some(self.read())),
            };
        };
        if self.knows.is_some_and(|known| epoch < known) {
            return Outcome::Refused("another daemon leads".into());
        }
        self.connected(epoch);
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

    pub(crate) fn is_exclusive(&self) -> bool {
        self.sharing == Sharing::Exclusive
    }
}
