// SPDX-License-Identifier: Apache-2.0
//! State of the circuits and ports of optical switches.
//!
//! A circuit needs a working mirror and driver at both ports. The controller does not know that a
//! circuit has failed and leaves it connected, so the circuit has light again after the repair.

use std::collections::{BTreeMap, BTreeSet};

use crate::scenario::Effect;
use crate::substrate::OpticalPort as Port;
use lightloom_fabric::fat_tree::{CircuitState, CrossConnect};
use lightloom_planner::rfabric::transition::Stage;

pub(super) fn ends(circuit: &CrossConnect) -> [Port; 2] {
    [(circuit.ocs, circuit.a_port), (circuit.ocs, circuit.b_port)]
}

#[derive(Clone, Debug, Default)]
pub(super) struct OpticalSwitches {
    states: BTreeMap<CrossConnect, CircuitState>,
    dead: BTreeMap<Port, u32>,
    /// The circuits that stuck ports keep. A port has several if circuits are one-way.
    stuck: BTreeMap<Port, BTreeSet<CrossConnect>>,
    unfit: BTreeSet<Port>,
}

impl OpticalSwitches {
    pub(super) fn holding(circuits: &[CrossConnect]) -> Self {
        let states = circuits.iter().map(|circuit| (*circuit, CircuitState::Up)).collect();
        Self { states, ..Self::default() }
    }

    pub(super) fn commanded(&self) -> Vec<CrossConnect> {
        self.states.keys().copied().collect()
    }

    pub(super) fn up(&self) -> impl Iterator<Item = &CrossConnect> {
        self.states.iter().filter(|(_, state)| **state == CircuitState::Up).map(|(c, _)| c)
    }

    pub(super) fn state(&self, circuit: &CrossConnect) -> CircuitState {
        self.states.get(circuit).copied().unwrap_or(CircuitState::Dark)
    }

    pub(super) fn drain(&mut self, stage: &Stage) {
        for circuit in &stage.remove {
            if let Some(state) = self.states.get_mut(circuit).filter(|s| **s == CircuitState::Up) {
                *state = CircuitState::Drained;
            }
        }
    }

    pub(super) fn begin_moving(&mut self, stage: &Stage) {
        for circuit in &stage.remove {
            self.states.remove(circuit);
        }
        for circuit in &stage.add {
            self.states.insert(*circuit, CircuitState::Switching);
        }
    }

    pub(super) fn end_moving(&mut self, stage: &Stage) {
        for circuit in &stage.add {
            let state =
                if self.is_lit(circuit) { CircuitState::Training } else { CircuitState::Dark };
            self.states.insert(*circuit, state);
        }
    }

    pub(super) fn qualify(&mut self, circuits: &[CrossConnect]) -> Vec<CrossConnect> {
        let mut passed = Vec::new();
        for circuit in circuits {
            if self.state(circuit) != CircuitState::Training {
                continue;
            }
            let fit = !ends(circuit).iter().any(|port| self.unfit.contains(port));
            let state = if fit { CircuitState::Up } else { CircuitState::Drained };
            self.states.insert(*circuit, state);
            if fit {
                passed.push(*circuit);
            }
        }
        passed
    }

    fn is_lit(&self, circuit: &CrossConnect) -> bool {
        ends(circuit).iter().all(|port| {
            !self.dead.contains_key(port)
                && self.stuck.get(port).is_none_or(|held| held.contains(circuit))
        })
    }

    pub(super) fn break_ports(&mut self, effect: Effect, ports: &[Port]) -> Vec<CrossConnect> {
        match effect {
            Effect::Down => {
                for port in ports {
                    *self.dead.entry(*port).or_default() += 1;
                }
                return self.darken();
            }
            Effect::Stuck => {
                for port in ports {
                    let held = self.states.keys().filter(|circuit| ends(circuit).contains(port));
                    self.stuck.insert(*port, held.copied().collect());
                }
            }
            Effect::FailsTest => self.unfit.extend(ports),
            _ => {}
        }
        Vec::new()
    }

    fn darken(&mut self) -> Vec<CrossConnect> {
        let mut lost: Vec<CrossConnect> =
            self.states.keys().filter(|circuit| !self.is_lit(circuit)).copied().collect();
        lost.retain(|circuit| {
            matches!(
                self.state(circuit),
                CircuitState::Up | CircuitState::Training | CircuitState::Drained
            )
        });
        for circuit in &lost {
            self.states.insert(*circuit, CircuitState::Dark);
        }
        lost
    }

    pub(super) fn mend_ports(&mut self, effect: Effect, ports: &[Port]) -> Vec<CrossConnect> {
        for port in ports {
            match effect {
                Effect::Down => {
                    if let Some(times) = self.dead.get_mut(port) {
                        *times -= 1;
                    }
                    self.dead.retain(|_, times| *times > 0);
                }
                Effect::Stuck => drop(self.stuck.remove(port)),
                Effect::FailsTest => drop(self.unfit.remove(port)),
                _ => {}
            }
        }
        self.relight()
    }

    fn relight(&mut self) -> Vec<CrossConnect> {
        let back = self.states.keys().filter(|circuit| match self.state(circuit) {
            CircuitState::Dark => self.is_lit(circuit),
            CircuitState::Drained => !ends(circuit).iter().any(|port| self.unfit.contains(port)),
            _ => false,
        });
        let back: Vec<CrossConnect> = back.copied().collect();
        for circuit in &back {
            self.states.insert(*circuit, CircuitState::Training);
        }
        back
    }
}

#[cfg(test)]
mod tests {
    use lightloom_units::id::{LeafId, OcsId};

    use super::*;

    fn circuit(a: u32, b: u32) -> CrossConnect {
        CrossConnect { ocs: OcsId(0), a_port: 2 * a, b_port: 2 * b, a: LeafId(a), b: LeafId(b) }
    }

    fn change(switches: &mut OpticalSwitches, remove: &[CrossConnect], add: &[CrossConnect]) {
        let stage = Stage { remove: remove.to_vec(), add: add.to_vec() };
        switches.drain(&stage);
        switches.begin_moving(&stage);
        switches.end_moving(&stage);
        switches.qualify(add);
    }

    #[test]
    fn circuit_goes_through_every_state() {
        let (old, new) = (circuit(0, 1), circuit(0, 2));
        let mut switches = OpticalSwitches::holding(&[old]);
        let stage = Stage { remove: vec![old], add: vec![new] };
        switches.drain(&stage);
        assert_eq!(switches.state(&old), CircuitState::Drained);
        switches.begin_moving(&stage);
        assert_eq!(switches.state(&old), CircuitState::Dark);
        assert_eq!(switches.state(&new), CircuitState::Switching);
        switches.end_moving(&stage);
        assert_eq!(switches.state(&new), CircuitState::Training);
        assert_eq!(switches.qualify(&stage.add), [new]);
        assert_eq!(switches.up().collect::<Vec<_>>(), [&new]);
    }

    #[test]
    fn driver_board_fault_removes_circuits_and_repair_restores_them() {
        let circuits = [circuit(0, 1), circuit(2, 3), circuit(4, 5)];
        let mut switches = OpticalSwitches::holding(&circuits);
        let board: Vec<Port> = (0..8).map(|port| (OcsId(0), port)).collect();
        assert_eq!(switches.break_ports(Effect::Down, &board), circuits[..2]);
        assert_eq!(switches.up().count(), 1);
        assert_eq!(switches.mend_ports(Effect::Down, &board), circuits[..2]);
        assert_eq!(switches.qualify(&circuits), circuits[..2]);
    }

    #[test]
    fn stuck_mirror_keeps_its_circuit_and_refuses_others() {
        let (old, new) = (circuit(0, 1), circuit(0, 2));
        let mut switches = OpticalSwitches::holding(&[old]);
        switches.break_ports(Effect::Stuck, &[(OcsId(0), 0)]);
        assert_eq!(switches.state(&old), CircuitState::Up);
        change(&mut switches, &[old], &[new]);
        assert_eq!(switches.state(&new), CircuitState::Dark);
        change(&mut switches, &[new], &[old]);
        assert_eq!(switches.state(&old), CircuitState::Up);
    }

    #[test]
    fn link_that_fails_its_test_stays_drained_until_repair() {
        let new = circuit(0, 2);
        let mut switches = OpticalSwitches::default();
        let bad = [(OcsId(0), 4)];
        switches.break_ports(Effect::FailsTest, &bad);
        change(&mut switches, &[], &[new]);
        assert_eq!(switches.state(&new), CircuitState::Drained);
        assert_eq!(switches.mend_ports(Effect::FailsTest, &bad), [new]);
        assert_eq!(switches.qualify(&[new]), [new]);
    }
}
