// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_units::SimTime;

use super::optical::ends;
use crate::substrate::OpticalPort as Port;

#[derive(Debug, Default)]
pub(super) struct DarkPorts {
    since: BTreeMap<Port, (SimTime, bool)>,
    pub(super) switching: u128,
    pub(super) broken: u128,
}

impl DarkPorts {
    pub(super) fn begin(&mut self, circuit: &CrossConnect, now: SimTime, is_fault: bool) {
        for port in ends(circuit) {
            self.end_port(port, now);
            self.since.insert(port, (now, is_fault));
        }
    }

    pub(super) fn end(&mut self, circuit: &CrossConnect, now: SimTime) {
        ends(circuit).into_iter().for_each(|port| self.end_port(port, now));
    }

    pub(super) fn end_port(&mut self, port: Port, now: SimTime) {
        if let Some((since, is_fault)) = self.since.remove(&port) {
            let time = u128::from(now.since(since).0);
            *if is_fault { &mut self.broken } else { &mut self.switching } += time;
        }
    }

    pub(super) fn end_moves<T>(&mut self, now: SimTime, training: &BTreeMap<CrossConnect, T>) {
        let over = self.since.iter().filter(|(port, (_, fault))| {
            !fault && !training.keys().any(|circuit| ends(circuit).contains(port))
        });
        let over: Vec<Port> = over.map(|(port, _)| *port).collect();
        over.into_iter().for_each(|port| self.end_port(port, now));
    }

    pub(super) fn end_all(&mut self, now: SimTime) {
        let ports: Vec<Port> = self.since.keys().copied().collect();
        ports.into_iter().for_each(|port| self.end_port(port, now));
    }
}
