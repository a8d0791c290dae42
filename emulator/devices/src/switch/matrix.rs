// SPDX-License-Identifier: Apache-2.0
//! Matrix of an optical circuit switch with Polatis port numbers: ingress ports 1 to N, egress ports N+1 to N+M.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_units::seed::{Seed, Stream};
use lightloom_units::{Picoseconds, SimTime};
use rand::RngExt;

use super::super::fault::LightFaults;

pub(crate) const DARK_DBM: f64 = -60.0;

pub(crate) type Pair = (u16, u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatrixRefusal {
    NoSuchPort(u16),
    InUse(u16),
    Disabled(u16),
    Hardware(u16),
    NotConnected(u16),
}

/// Progress of a list of changes. Lists are not atomic on any vendor's switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) done: Vec<Pair>,
    pub(crate) refusal: Option<MatrixRefusal>,
}

#[derive(Clone, Copy, Debug)]
struct MatrixCircuit {
    egress: u16,
    lit_at: SimTime,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassedLight {
    pub pairs: Vec<(u16, u16)>,
    pub more_at: Option<SimTime>,
}

#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    pub(crate) ingress: u16,
    pub(crate) egress: u16,
    switching: Picoseconds,
    seed: Seed,
    draws: Stream,
    circuits: BTreeMap<u16, MatrixCircuit>,
    disabled: BTreeSet<u16>,
    inputs_dbm: BTreeMap<u16, f64>,
    settled_at: SimTime,
    pub(crate) faults: LightFaults,
}

impl Matrix {
    pub(crate) fn new(ingress: u16, egress: u16, switching: Picoseconds, seed: Seed) -> Self {
        Self {
            ingress,
            egress,
            switching,
            seed,
            draws: seed.stream("switching time", 0),
            circuits: BTreeMap::new(),
            disabled: BTreeSet::new(),
            inputs_dbm: BTreeMap::new(),
            settled_at: SimTime::START,
            faults: LightFaults::default(),
        }
    }

    pub(crate) const fn settled_at(&self) -> SimTime {
        self.settled_at
    }

    pub(crate) fn pairs(&self) -> Vec<Pair> {
        self.circuits.iter().map(|(&ingress, circuit)| (ingress, circuit.egress)).collect()
    }

    pub(crate) fn peer(&self, port: u16) -> Option<u16> {
        let to = self.circuits.get(&port).map(|circuit| circuit.egress);
        to.or_else(|| self.ingress_of(port))
    }

    fn ingress_of(&self, egress: u16) -> Option<u16> {
        self.circuits.iter().find(|(_, circuit)| circuit.egress == egress).map(|(&from, _)| from)
    }

    pub(crate) const fn is_ingress(&self, port: u16) -> bool {
        port >= 1 && port <= self.ingress
    }

    pub(crate) const fn is_egress(&self, port: u16) -> bool {
        port > self.ingress && port - self.ingress <= self.egress
    }

    pub(crate) const fn is_port(&self, port: u16) -> bool {
        self.is_ingress(port) || self.is_egress(port)
    }

    pub(crate) fn connect(&mut self, now: SimTime, pairs: &[Pair]) -> Progress {
        let mut progress = Progress::default();
        for &pair in pairs {
            match self.connect_one(now, pair) {
                Ok(()) => progress.done.push(pair),
                Err(refusal) => {
                    progress.refusal = Some(refusal);
                    break;
                }
            }
        }
        progress
    }

    fn connect_one(&mut self, now: SimTime, (ingress, egress): Pair) -> Result<(), MatrixRefusal> {
        if !self.is_ingress(ingress) {
            return Err(MatrixRefusal::NoSuchPort(ingress));
        }
        if !self.is_egress(egress) {
            return Err(MatrixRefusal::NoSuchPort(egress));
        }
        for port in [ingress, egress] {
            if self.disabled.contains(&port) {
                return Err(MatrixRefusal::Disabled(port));
            }
            if self.faults.is_stuck(port) {
                return Err(MatrixRefusal::Hardware(port));
            }
        }
        match (self.peer(ingress), self.ingress_of(egress)) {
            (Some(peer), _) if peer == egress => return Ok(()),
            (Some(_), _) => return Err(MatrixRefusal::InUse(ingress)),
            (None, Some(_)) => return Err(MatrixRefusal::InUse(egress)),
            (None, None) => {}
        }
        if self.faults.lies {
            return Ok(());
        }
        let egress = if self.faults.misdirects { self.another(egress) } else { egress };
        let lit_at = self.begin_motion(now);
        self.circuits.insert(ingress, MatrixCircuit { egress, lit_at });
        Ok(())
    }

    fn another(&self, egress: u16) -> u16 {
        let first = self.ingress + 1;
        (1..self.egress)
            .map(|step| first + (egress - first + step) % self.egress)
            .find(|&port| self.ingress_of(port).is_none())
            .unwrap_or(egress)
    }

    /// Stops at the first refusal. An egress of `None` matches any port.
    pub(crate) fn disconnect(&mut self, now: SimTime, pairs: &[(u16, Option<u16>)]) -> Progress {
        let mut progress = Progress::default();
        for &(ingress, egress) in pairs {
            match self.disconnect_one(now, ingress, egress) {
                Ok(pair) => progress.done.push(pair),
                Err(refusal) => {
                    progress.refusal = Some(refusal);
                    break;
                }
            }
        }
        progress
    }

    fn disconnect_one(
        &mut self,
        now: SimTime,
        ingress: u16,
        egress: Option<u16>,
    ) -> Result<Pair, MatrixRefusal> {
        if !self.is_ingress(ingress) {
            return Err(MatrixRefusal::NoSuchPort(ingress));
        }
        let connected = self.circuits.get(&ingress).map(|circuit| circuit.egress);
        let connected = connected.ok_or(MatrixRefusal::NotConnected(ingress))?;
        if egress.is_some_and(|egress| egress != connected) {
            return Err(MatrixRefusal::NotConnected(ingress));
        }
        if self.faults.is_stuck(ingress) || self.faults.is_stuck(connected) {
            return Err(MatrixRefusal::Hardware(ingress));
        }
        if !self.faults.lies {
            self.circuits.remove(&ingress);
            self.begin_motion(now);
        }
        Ok((ingress, connected))
    }

    pub(crate) fn disconnect_all(&mut self, now: SimTime) -> Progress {
        let all: Vec<_> = self.circuits.keys().map(|&ingress| (ingress, None)).collect();
        self.disconnect(now, &all)
    }

    pub(crate) fn free(&mut self, now: SimTime, pairs: &[Pair]) {
        let mut held = self.pairs();
        held.retain(|held| {
            pairs.iter().any(|pair| pair != held && (pair.0 == held.0 || pair.1 == held.1))
        });
        let held: Vec<_> = held.into_iter().map(|held| (held.0, None)).collect();
        self.disconnect(now, &held);
    }

    pub(crate) fn darken(&mut self) {
        self.circuits.clear();
    }

    pub(crate) fn light(&self, now: SimTime) -> PassedLight {
        let lit = self.circuits.iter().filter(|(_, circuit)| circuit.lit_at <= now);
        let pairs = lit.map(|(&ingress, circuit)| (ingress, circuit.egress)).collect();
        let times = self.circuits.values().map(|circuit| circuit.lit_at);
        PassedLight { pairs, more_at: times.filter(|lit_at| *lit_at > now).min() }
    }

    pub(crate) fn is_lit(&self, now: SimTime, ingress: u16) -> bool {
        self.circuits.get(&ingress).is_some_and(|circuit| circuit.lit_at <= now)
    }

    /// Reverts the later half of the changes since `before`, like a restart during a list.
    pub(crate) fn keep_half(&mut self, before: &[Pair]) {
        let after = self.pairs();
        let parted = before.iter().filter(|pair| !after.contains(pair)).map(|&pair| (pair, false));
        let joined = after.iter().filter(|pair| !before.contains(pair)).map(|&pair| (pair, true));
        let changes: Vec<(Pair, bool)> = parted.chain(joined).collect();
        for &((ingress, egress), was_joined) in changes[changes.len().div_ceil(2)..].iter().rev() {
            if was_joined {
                self.circuits.remove(&ingress);
            } else {
                self.circuits.insert(ingress, MatrixCircuit { egress, lit_at: SimTime::START });
            }
        }
    }

    fn begin_motion(&mut self, now: SimTime) -> SimTime {
        let share: u64 = self.draws.random_range(90..=110);
        let takes = Picoseconds(self.switching.get() / 100 * share);
        let at = now + self.faults.stretch(takes);
        self.settled_at = self.settled_at.max(at);
        at
    }

    pub(crate) fn set_enabled(&mut self, port: u16, enabled: bool) -> Result<(), MatrixRefusal> {
        if !self.is_port(port) {
            return Err(MatrixRefusal::NoSuchPort(port));
        }
        if enabled {
            self.disabled.remove(&port);
        } else {
            self.disabled.insert(port);
        }
        Ok(())
    }

    pub(crate) fn is_enabled(&self, port: u16) -> bool {
        !self.disabled.contains(&port)
    }

    pub(crate) fn set_input_dbm(&mut self, port: u16, dbm: f64) {
        self.inputs_dbm.insert(port, dbm);
    }

    pub(crate) fn power_dbm(&self, now: SimTime, port: u16) -> f64 {
        if self.is_ingress(port) {
            return self.input_dbm(port);
        }
        let lit = self.ingress_of(port).filter(|ingress| self.circuits[ingress].lit_at <= now);
        match lit {
            Some(ingress) if self.is_enabled(port) && self.is_enabled(ingress) => {
                (self.input_dbm(ingress) - self.loss_db(ingress, port)).max(DARK_DBM)
            }
            _ => DARK_DBM,
        }
    }

    /// −4 to −2 dBm minus the fault's loss, unless set explicitly.
    fn input_dbm(&self, ingress: u16) -> f64 {
        let input = self.inputs_dbm.get(&ingress).copied().unwrap_or_else(|| {
            self.seed.stream("input power", u64::from(ingress)).random_range(-4.0..-2.0)
        });
        (input - f64::from(self.faults.droop) / 100.0).max(DARK_DBM)
    }

    fn loss_db(&self, ingress: u16, egress: u16) -> f64 {
        let pair = u64::from(ingress) << 16 | u64::from(egress);
        self.seed.stream("insertion loss", pair).random_range(0.5..1.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Matrix {
        Matrix::new(4, 4, Picoseconds::from_millis(20), Seed(1))
    }

    const NOW: SimTime = SimTime::START;

    #[test]
    fn list_is_applied_up_to_the_first_refusal() {
        let mut matrix = matrix();
        let progress = matrix.connect(NOW, &[(1, 5), (2, 9), (3, 7)]);
        assert_eq!(progress.done, [(1, 5)]);
        assert_eq!(progress.refusal, Some(MatrixRefusal::NoSuchPort(9)));
        assert_eq!(matrix.pairs(), [(1, 5)]);
    }

    #[test]
    fn no_port_is_used_twice() {
        let mut matrix = matrix();
        matrix.connect(NOW, &[(1, 5)]);
        assert_eq!(matrix.connect(NOW, &[(1, 6)]).refusal, Some(MatrixRefusal::InUse(1)));
        assert_eq!(matrix.connect(NOW, &[(2, 5)]).refusal, Some(MatrixRefusal::InUse(5)));
        assert_eq!(
            matrix.connect(NOW, &[(1, 5)]).done,
            [(1, 5)],
            "an existing connection may be requested again"
        );
    }

    #[test]
    fn light_arrives_when_the_mirrors_settle() {
        let mut matrix = matrix();
        matrix.connect(NOW, &[(2, 8)]);
        let settled = matrix.settled_at();
        assert!((18..=22).contains(&(settled.0 / 1_000_000_000)), "{settled}");
        assert!(matrix.power_dbm(NOW, 8) <= DARK_DBM);
        let (input, output) = (matrix.power_dbm(settled, 2), matrix.power_dbm(settled, 8));
        assert!((0.5..1.5).contains(&(input - output)), "{input} {output}");
        matrix.disconnect(settled, &[(2, None)]);
        assert!(matrix.power_dbm(settled, 8) <= DARK_DBM);
    }

    #[test]
    fn misdirected_connection_never_shares_a_port() {
        let mut matrix = matrix();
        matrix.faults.misdirects = true;
        for ingress in 1..=4 {
            matrix.connect(NOW, &[(ingress, 4 + ingress)]);
            let mut egress: Vec<_> = matrix.pairs().iter().map(|pair| pair.1).collect();
            egress.sort_unstable();
            egress.dedup();
            assert_eq!(egress.len(), matrix.pairs().len());
        }
    }
}
