// SPDX-License-Identifier: Apache-2.0
//! An emulated optical circuit switch that supports the OCP model over gNMI on HTTP/2.
//!
//! ```text
//!  TCP ─▶ line with faults ─▶ Connection (HTTP/2, gRPC) ─▶ Shared ─▶ State: Config ─▶ Matrix
//!                                                                      └─▶ tree ─▶ Feeds ─▶ subscribers
//! ```
//!
//! The switch replies to a Set immediately, as the model specifies; `status` shows when the light has settled.

mod arbitration;
mod config;
mod feed;
pub(crate) mod file;
mod misbehave;
mod state;
mod target;
mod tree;
mod view;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use lightloom_gnmi::model::{ColdStartRecovery, VERSION};
use lightloom_gnmi::server::Connection;
use lightloom_gnmi::wire::{Tasks, locked};
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};

use super::fault::DeviceFault;
use super::{EmulatedDevice, Line, Output, Port};
use crate::switch::PassedLight;
use crate::switch::matrix::Matrix;
use state::State;
use target::SharedSwitch;

const CLIENTS_MAX: usize = 256;

#[derive(Clone, Debug)]
pub struct GnmiSpec {
    pub ingress: u16,
    pub egress: u16,
    pub switching: Picoseconds,
    pub command: Picoseconds,
    pub boot: Picoseconds,
    pub has_power_monitors: bool,
    /// Whether all ports are bidirectional, in groups `a` and `b` instead of `in` and `out`.
    pub any_direction: bool,
    pub recovery: ColdStartRecovery,
    /// Whether ports in use are detected only during execution, so that the connection becomes INVALID.
    pub checks_late: bool,
    pub model_version: String,
    /// Whether a Set without an election id is rejected once a master is elected.
    pub needs_election: bool,
    pub login: Option<(String, String)>,
    pub epoch_seconds: u64,
}

impl Default for GnmiSpec {
    fn default() -> Self {
        Self {
            ingress: 24,
            egress: 24,
            switching: Picoseconds::from_millis(20),
            command: Picoseconds::from_micros(500),
            boot: Picoseconds::from_millis(2_000),
            has_power_monitors: true,
            any_direction: false,
            recovery: ColdStartRecovery::Restore,
            checks_late: false,
            model_version: VERSION.into(),
            needs_election: false,
            login: None,
            epoch_seconds: 1_767_225_600,
        }
    }
}

impl GnmiSpec {
    pub const fn groups(&self) -> [&'static str; 2] {
        if self.any_direction { ["a", "b"] } else { ["in", "out"] }
    }

    /// Returns a port's name, such as `in-1`. `out` ports are numbered after all `in` ports.
    pub fn port_name(&self, number: u16) -> String {
        let [first, second] = self.groups();
        let group = if number <= self.ingress { first } else { second };
        format!("{group}-{}", self.index(number))
    }

    const fn index(&self, number: u16) -> u16 {
        if number <= self.ingress { number } else { number - self.ingress }
    }

    pub(crate) fn port(&self, name: &str) -> Option<u16> {
        let (group, index) = name.rsplit_once('-')?;
        let index: u16 = index.parse().ok().filter(|index| *index >= 1)?;
        let [first, second] = self.groups();
        let number = match group {
            _ if group == first && index <= self.ingress => index,
            _ if group == second && index <= self.egress => self.ingress + index,
            _ => return None,
        };
        (self.port_name(number) == name).then_some(number)
    }
}

#[derive(Debug)]
pub struct GnmiSwitch {
    shared: SharedSwitch,
    clients: BTreeMap<Line, Connection>,
    pollers: Tasks,
}

impl GnmiSwitch {
    pub fn new(spec: GnmiSpec, seed: Seed, index: u64) -> Self {
        use rand::RngExt;
        let seed = Seed(seed.stream("gNMI switch", index).random());
        let matrix = Matrix::new(spec.ingress, spec.egress, spec.switching, seed);
        let pollers = Tasks::default();
        let state = State::new(spec, matrix, pollers.spawner());
        Self {
            shared: SharedSwitch(Arc::new(Mutex::new(state))),
            clients: BTreeMap::new(),
            pollers,
        }
    }

    pub fn true_pairs(&self) -> Vec<(u16, u16)> {
        locked(&self.shared.0).matrix.pairs()
    }

    pub fn light(&self, now: SimTime) -> PassedLight {
        locked(&self.shared.0).matrix.light(now)
    }

    pub fn connect_by_hand(&mut self, now: SimTime, ingress: u16, egress: u16) {
        let mut state = locked(&self.shared.0);
        state.on_time(now);
        state.connect_by_hand(ingress, egress);
    }

    pub fn set_input_dbm(&mut self, ingress: u16, dbm: f64) {
        locked(&self.shared.0).matrix.set_input_dbm(ingress, dbm);
    }

    fn run(&mut self, now: SimTime, out: &mut Vec<Output>) {
        loop {
            locked(&self.shared.0).on_time(now);
            let mut went_on = self.pollers.are_woken();
            self.pollers.run();
            let mut over = Vec::new();
            for (line, client) in &mut self.clients {
                if !client.is_woken() {
                    continue;
                }
                went_on = true;
                let bytes = client.run();
                if !bytes.is_empty() {
                    out.push(Output::Bytes(*line, bytes));
                }
                if client.has_ended() {
                    over.push(*line);
                }
            }
            let hangs_up = std::mem::take(&mut locked(&self.shared.0).hangs_up);
            if hangs_up {
                over = self.clients.keys().copied().collect();
            }
            for line in over {
                self.clients.remove(&line);
                out.push(Output::Close(line));
            }
            if !went_on && !hangs_up {
                return;
            }
        }
    }
}

impl EmulatedDevice for GnmiSwitch {
    fn apply(&mut self, now: SimTime, fault: DeviceFault, out: &mut Vec<Output>) {
        self.run(now, out);
        {
            let mut state = locked(&self.shared.0);
            state.matrix.faults.apply(fault);
            state.feeds.are_stale = true;
            match fault {
                DeviceFault::Reboot => state.restart(),
                DeviceFault::WarmRestart => state.warm_restart(),
                _ => {}
            }
        }
        self.run(now, out);
    }

    fn open(&mut self, now: SimTime, line: Line, port: Port, out: &mut Vec<Output>) {
        self.run(now, out);
        let starts = now < locked(&self.shared.0).starts_until;
        if port != Port::Gnmi || starts || self.clients.len() >= CLIENTS_MAX {
            out.push(Output::Close(line));
            return;
        }
        self.clients.insert(line, Connection::new(Arc::new(self.shared.clone())));
        self.run(now, out);
    }

    fn on_bytes(&mut self, now: SimTime, line: Line, input: &[u8], out: &mut Vec<Output>) {
        if let Some(client) = self.clients.get_mut(&line) {
            client.receive(input);
        }
        self.run(now, out);
    }

    fn close(&mut self, now: SimTime, line: Line) {
        self.clients.remove(&line);
        locked(&self.shared.0).on_time(now);
    }

    fn on_time(&mut self, now: SimTime, out: &mut Vec<Output>) {
        self.run(now, out);
    }

    fn next_wakeup(&self) -> Option<SimTime> {
        locked(&self.shared.0).next_wakeup()
    }
}
