// SPDX-License-Identifier: Apache-2.0

use std::fmt;

use serde::{Deserialize, Serialize};

use super::waves::{Way, legs};
use super::{Moves, at};
use crate::state::SwitchState;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    pub name: String,
    pub ways: Vec<(String, Way)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseChange {
    pub name: String,
    pub order: PhaseOrder,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseOrder {
    NothingMoves,
    Stages {
        from: String,
        count: usize,
    },
    /// The current circuits are not a phase of the plan. Removals come first if ports conflict.
    NoStages,
}

impl fmt::Display for PhaseChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, order } = self;
        match order {
            PhaseOrder::NothingMoves => write!(f, "phase {name}, which is already lit"),
            PhaseOrder::Stages { from, count } => {
                let s = if *count == 1 { "" } else { "s" };
                write!(f, "phase {name} in the plan's {count} stage{s} from {from}")
            }
            PhaseOrder::NoStages => write!(
                f,
                "phase {name} without stages: the plan has no stages that start from the lit \
                 circuits, so removals precede additions on the same ports"
            ),
        }
    }
}

impl Phase {
    pub fn order(&self, changes: &Moves) -> (PhaseChange, Vec<SwitchState>) {
        let ways = self.ways.iter().map(|(_, way)| way);
        let (order, stages) = match legs(changes, ways) {
            _ if changes.is_empty() => (PhaseOrder::NothingMoves, Vec::new()),
            None => (PhaseOrder::NoStages, Vec::new()),
            Some((way, stages)) => {
                let from = self.ways[way].0.clone();
                (PhaseOrder::Stages { from, count: stages.len() }, stages)
            }
        };
        (PhaseChange { name: self.name.clone(), order }, stages)
    }
}

pub fn stages_back(before: &SwitchState, stages: &[SwitchState]) -> Vec<SwitchState> {
    let mut stand = before.clone();
    let mut back: Vec<SwitchState> = Vec::new();
    for stage in stages {
        let mut undone = stage.clone();
        for (device, slots) in &mut undone {
            let stand = stand.entry(device.clone()).or_default();
            for (&slot, position) in slots {
                let stood = at(stand, slot);
                stand.insert(slot, std::mem::replace(position, stood));
            }
        }
        back.push(undone);
    }
    back.reverse();
    back
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Position, Slot};

    #[test]
    fn rollback_reverses_the_stages() {
        let fabric = |slots: &[(u32, u32)]| {
            let slots = slots.iter().map(|&(s, p)| (Slot(s), Position(p))).collect();
            SwitchState::from([("o".into(), slots)])
        };
        let before = fabric(&[(1, 11), (2, 12), (3, 0)]);
        let stages = [fabric(&[(1, 0), (3, 11)]), fabric(&[(1, 13), (2, 0)])];
        let back = stages_back(&before, &stages);
        assert_eq!(back, [fabric(&[(1, 0), (2, 12)]), fabric(&[(1, 11), (3, 0)])]);
    }
}
