// SPDX-License-Identifier: Apache-2.0
//! The reconfigurable fat-tree consists of leaves connected by an always-on electrical core and by
//! banks of optical circuit switches that are reconfigured for each phase.
//!
//! ```text
//!   leaf i ── uplinks ─────────────── electrical core (thin, always up)
//!        └── r ports on every switch of a bank ─ ocs0 … ocsK-1
//! ```
//!
//! This file contains the *wiring* from leaf ports to switch ports, which changes only when fibres are moved.
//! [`CrossConnect`]s are set in the switches, and form *circuits* between leaves with a [`CircuitState`].
//!
//! Each leaf of a bank has the same number of ports on every switch of the bank. If this number is even, *any* set of
//! circuits within each leaf's port count can be realised (Petersen; an Euler tour halves each degree and Kőnig's
//! theorem splits the rest). If it is odd, or if ports are occupied or have failed, some sets cannot, and the planner
//! drops the circuits that do not fit.

pub mod device_ports;
mod halves;
mod problems;
mod reach;
mod spec;

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::FaultSet;
use lightloom_units::BitsPerSecond;
use lightloom_units::id::{LeafId, OcsId, OcsPortId};

pub use problems::FatTreeProblem;
use reach::Reaches;
pub use spec::*;

/// A validated reconfigurable fat-tree.
#[derive(Clone, Debug, PartialEq)]
pub struct ReconfigurableFatTree {
    spec: FatTreeSpec,
    reaches: Reaches,
    dead: BTreeSet<OcsPortId>,
    fewer_uplinks: BTreeMap<LeafId, u32>,
}

impl ReconfigurableFatTree {
    /// Validates `spec`.
    pub fn new(spec: FatTreeSpec) -> Result<Self, Vec<FatTreeProblem>> {
        let problems = problems::of(&spec);
        if !problems.is_empty() {
            return Err(problems);
        }
        let reaches = Reaches::of(&spec, false);
        if reaches.join_nothing() {
            return Err(vec![no_path_left(&spec)]);
        }
        let dark = reach::dark_ports(&spec);
        let dead = spec.occupied.iter().copied().chain(dark).collect();
        let fabric = Self { spec, reaches, dead, fewer_uplinks: BTreeMap::new() };
        let unusable = problems::unusable(&fabric);
        if unusable.is_empty() { Ok(fabric) } else { Err(unusable) }
    }

    /// Returns the fabric without its failed parts. A leaf may then have an odd number of ports on
    /// a switch, so that some circuits cannot be realised, which the planner detects.
    pub fn without(&self, faults: &FaultSet) -> Self {
        let mut dead = self.dead.clone();
        for &ocs in &faults.switches {
            let ports = self.wired_ports(ocs);
            dead.extend((0..ports).map(|port| OcsPortId { ocs, port }));
        }
        for port in &faults.ocs_ports {
            dead.insert(*port);
        }
        let mut fewer_uplinks = self.fewer_uplinks.clone();
        for uplink in &faults.uplinks {
            *fewer_uplinks.entry(uplink.leaf).or_default() += 1;
        }
        Self { dead, fewer_uplinks, ..self.clone() }
    }

    /// Returns whether a leaf may have an odd number of usable ports on a switch.
    pub fn has_odd_ports(&self) -> bool {
        if self.has_halves() {
            return false;
        }
        let are_taken = !self.dead.is_empty() || !self.spec.held.is_empty();
        are_taken || self.spec.banks.iter().any(|bank| bank.ports_per_leaf % 2 == 1)
    }

    /// Returns the number of ports of `ocs` that are wired to leaves, which are its first ports.
    pub fn wired_ports(&self, ocs: OcsId) -> u32 {
        let bank = self.bank(ocs);
        bank.count_of(self.spec.leaves) * bank.ports_per_leaf
    }

    /// Returns the unusable ports of `ocs`.
    pub fn dead_ports(&self, ocs: OcsId) -> impl Iterator<Item = u32> + '_ {
        let all = OcsPortId { ocs, port: 0 }..=OcsPortId { ocs, port: u32::MAX };
        self.dead.range(all).map(|dead| dead.port)
    }

    /// Returns the number of ports of `leaf` on `ocs` that are unusable or held.
    pub fn taken_ports_of(&self, ocs: OcsId, leaf: LeafId) -> u32 {
        let held = self.spec.held.iter().filter(|held| held.ocs == ocs && self.holds(held, leaf));
        self.dead_ports_of(ocs, leaf) + u32::try_from(held.count()).unwrap_or(u32::MAX)
    }

    /// Returns whether `held` uses a port of `leaf` that has not failed.
    fn holds(&self, held: &CrossConnect, leaf: LeafId) -> bool {
        held.a == leaf && self.works(held.ocs, held.a_port)
            || held.b == leaf && self.works(held.ocs, held.b_port)
    }

    fn works(&self, ocs: OcsId, port: u32) -> bool {
        !self.dead.contains(&OcsPortId { ocs, port })
    }

    /// Returns the number of unusable ports that `leaf` has on `ocs`.
    pub fn dead_ports_of(&self, ocs: OcsId, leaf: LeafId) -> u32 {
        let bank = self.bank(ocs);
        let Some(place) = bank.place_of(leaf) else { return 0 };
        let first = OcsPortId { ocs, port: place * bank.ports_per_leaf };
        let end = OcsPortId { ocs, port: first.port + bank.ports_per_leaf };
        let own = self.dead.range(first..end);
        u32::try_from(own.count()).unwrap_or(u32::MAX)
    }

    /// Returns the parameters from which the fabric was built.
    pub fn spec(&self) -> &FatTreeSpec {
        &self.spec
    }

    /// Returns the number of leaves.
    pub fn leaves(&self) -> usize {
        self.spec.leaves as usize
    }

    /// Returns the number of optical switches in all banks. Ids are consecutive from 0.
    pub fn switches(&self) -> usize {
        self.spec.banks.iter().map(|bank| bank.switches as usize).sum()
    }

    /// Returns the ports per leaf of the bank on switch `ocs`. Panics on an unknown switch.
    pub fn ports_per_leaf(&self, ocs: OcsId) -> u32 {
        self.bank(ocs).ports_per_leaf
    }

    /// Returns the bank of `ocs`. Panics if the switch does not exist.
    pub fn bank(&self, ocs: OcsId) -> &OcsBank {
        self.spec.bank(ocs).expect("switch ids are below the number of switches")
    }

    /// Returns the largest number of optical ports of a leaf on all switches together.
    pub fn optical_ports(&self) -> u32 {
        let of_leaves = (0..self.spec.leaves).map(|leaf| {
            self.banks_of(LeafId(leaf)).map(|bank| bank.switches * bank.ports_per_leaf).sum()
        });
        of_leaves.max().unwrap_or(0)
    }

    fn banks_of(&self, leaf: LeafId) -> impl Iterator<Item = &OcsBank> {
        self.spec.banks.iter().filter(move |bank| bank.place_of(leaf).is_some())
    }

    /// Returns the largest rate of a leaf over all its optical ports in bit/s, including ports in use and failed ones.
    pub fn installed_optical_rate(&self) -> f64 {
        let of_leaves = (0..self.spec.leaves).map(|leaf| {
            let rates = self.banks_of(LeafId(leaf)).map(|bank| {
                let ports = f64::from(bank.switches * bank.ports_per_leaf);
                ports * self.spec.circuit_rate_over(bank).0 as f64
            });
            rates.sum()
        });
        of_leaves.fold(0.0, f64::max)
    }

    /// Returns the rate of a circuit through `ocs` per direction. Panics on an unknown switch.
    pub fn circuit_rate_of(&self, ocs: OcsId) -> BitsPerSecond {
        self.spec.circuit_rate_over(self.bank(ocs))
    }

    /// Returns the rates of circuits over any bank, in increasing order.
    pub fn circuit_rates(&self) -> BTreeSet<BitsPerSecond> {
        self.spec.banks.iter().map(|bank| self.spec.circuit_rate_over(bank)).collect()
    }

    /// Returns the unit of circuit rates. The rate of each circuit is a whole number of units.
    pub fn circuit_unit(&self) -> BitsPerSecond {
        self.reaches.unit
    }

    /// Returns the rate of a circuit of one reach, in [units](Self::circuit_unit).
    pub fn units_within(&self, reach: usize) -> u32 {
        self.reaches.units(reach)
    }

    /// Returns the rate of a circuit through `ocs`, in [units](Self::circuit_unit).
    pub fn units_of(&self, ocs: OcsId) -> u32 {
        match self.reaches.are_equal {
            true => 1,
            false => reach::units(self.circuit_rate_of(ocs), self.reaches.unit),
        }
    }

    /// Returns the circuits that stay in every phase and may carry traffic, without those on failed ports.
    pub fn staying(&self) -> impl Iterator<Item = &CrossConnect> {
        let usable = self.spec.usable.iter();
        usable.filter(|own| self.works(own.ocs, own.a_port) && self.works(own.ocs, own.b_port))
    }

    /// Returns the number of different sets of leaf pairs and rates that banks can connect.
    pub fn reaches(&self) -> usize {
        self.reaches.count()
    }

    /// Returns a switch's index among the [`reaches`](Self::reaches). Panics on an unknown switch.
    pub fn reach_of(&self, ocs: OcsId) -> usize {
        let mut first = 0;
        let bank = self.spec.banks.iter().position(|bank| {
            first += bank.switches;
            ocs.0 < first
        });
        self.reaches.of_bank(bank.expect("switch ids are below the number of switches"))
    }

    /// Returns the number of optical ports of `leaf` that are free for circuits.
    pub fn free_ports(&self, leaf: LeafId) -> u32 {
        (0..self.reaches()).map(|reach| self.free_ports_within(reach, leaf)).sum()
    }

    /// Returns the [`free_ports`](Self::free_ports) on switches of one reach.
    pub fn free_ports_within(&self, reach: usize, leaf: LeafId) -> u32 {
        if !self.reaches.joins(reach, leaf) {
            return 0;
        }
        let (mut first, mut free) = (0, 0);
        for (at, bank) in self.spec.banks.iter().enumerate() {
            let own = first..first + bank.switches;
            first = own.end;
            if self.reaches.of_bank(at) != reach || bank.place_of(leaf).is_none() {
                continue;
            }
            free += bank.switches * bank.ports_per_leaf;
            if !self.dead.is_empty() {
                free -= own.clone().map(|ocs| self.dead_ports_of(OcsId(ocs), leaf)).sum::<u32>();
            }
            let held = self.spec.held.iter().filter(|held| own.contains(&held.ocs.0));
            let held = held.filter(|held| self.holds(held, leaf)).count();
            free -= u32::try_from(held).unwrap_or(u32::MAX);
        }
        free
    }

    /// Returns the optical ports of `leaf` over which traffic can flow on switches of one reach: free ports, and those
    /// of circuits that [stay](Self::staying).
    pub fn ports_within(&self, reach: usize, leaf: LeafId) -> u32 {
        let staying = self.staying().filter(|own| own.a == leaf || own.b == leaf);
        let staying = staying.filter(|own| self.reach_of(own.ocs) == reach).count();
        self.free_ports_within(reach, leaf) + u32::try_from(staying).unwrap_or(u32::MAX)
    }

    /// Returns the rate of `leaf` over its usable [ports](Self::ports_within) of all reaches, in bit/s.
    pub fn optical_rate_of(&self, leaf: LeafId) -> f64 {
        let units: u32 = (0..self.reaches())
            .map(|reach| self.ports_within(reach, leaf) * self.units_within(reach))
            .sum();
        f64::from(units) * self.circuit_unit().0 as f64
    }

    /// Returns the uplinks of `leaf` to the core, each at the rate of a GPU's network card.
    pub fn uplinks_of(&self, leaf: LeafId) -> u32 {
        let rate = self.spec.electrical.rate_of(leaf);
        u32::try_from(rate.0.div_ceil(self.spec.gpu_rate.0.max(1))).unwrap_or(u32::MAX)
    }

    /// Returns the rate of `leaf` through the core over its remaining uplinks, in bit/s.
    pub fn electrical_rate_of(&self, leaf: LeafId) -> f64 {
        let electrical = &self.spec.electrical;
        let whole = electrical.rate_of(leaf).0 as f64 / electrical.oversubscription;
        let Some(&fewer) = self.fewer_uplinks.get(&leaf) else { return whole };
        let uplinks = self.uplinks_of(leaf).max(1);
        whole * f64::from(uplinks.saturating_sub(fewer)) / f64::from(uplinks)
    }

    /// Returns the rate of a leaf with the usual uplinks through the core, in bit/s.
    pub fn electrical_rate(&self) -> f64 {
        self.spec.electrical.rate_per_leaf.0 as f64 / self.spec.electrical.oversubscription
    }

    /// Returns the combined send (and receive) rate of the GPUs under one leaf, in bit/s.
    pub fn host_rate(&self) -> f64 {
        f64::from(self.spec.gpus_per_leaf) * self.spec.gpu_rate.0 as f64
    }

    /// Returns whether a circuit in some bank may connect the pair.
    pub fn permits(&self, pair: LeafPair) -> bool {
        (0..self.reaches()).any(|reach| self.permits_within(reach, pair))
    }

    /// Returns whether a circuit over switches with this reach may connect the pair.
    pub fn permits_within(&self, reach: usize, pair: LeafPair) -> bool {
        self.reaches.permits(reach, pair)
    }

    /// Returns the pair's lowest loss over any bank, in dB, or `None` if the pair is forbidden.
    pub fn least_loss_db(&self, pair: LeafPair) -> Option<f64> {
        let wired = self.banks_of(pair.a).filter(|bank| bank.place_of(pair.b).is_some());
        let least = wired.map(|bank| bank.insertion_loss_db).reduce(f64::min)?;
        let common = least + self.spec.loss.path_db;
        self.reaches.extra_db(pair).map(|extra| common + extra)
    }

    /// Returns the lowest loss over a bank, in dB, or `None` if all pairs are forbidden.
    pub fn least_loss_over(&self, bank: usize) -> Option<f64> {
        let common = self.spec.banks[bank].insertion_loss_db + self.spec.loss.path_db;
        let all = (0..self.spec.leaves).map(LeafId);
        let pairs = all.clone().flat_map(|a| all.clone().filter_map(move |b| LeafPair::new(a, b)));
        let extra = pairs.filter_map(|pair| self.reaches.extra_db(pair));
        extra.reduce(f64::min).map(|extra| common + extra)
    }

    /// Returns the banks that cannot connect any leaves, because all paths exceed the budget.
    pub fn banks_without_circuits(&self) -> Vec<usize> {
        (0..self.spec.banks.len()).filter(|bank| self.reaches.is_dark(*bank)).collect()
    }

    /// Returns the leaves that cannot be connected to any other leaf by a circuit.
    pub fn leaves_without_circuits(&self) -> Vec<LeafId> {
        let leaves = (0..self.leaves()).map(LeafId::from_index);
        leaves
            .filter(|leaf| !(0..self.reaches()).any(|reach| self.reaches.joins(reach, *leaf)))
            .collect()
    }

    /// Returns the failure domain of a switch.
    pub fn failure_domain(&self, ocs: OcsId) -> u32 {
        let switches = self.switches() as u64;
        (u64::from(ocs.0) * u64::from(self.spec.failure_domains) / switches) as u32
    }

    /// Returns all cross-connects between permitted pairs, used or not.
    pub fn possible_circuits(&self) -> impl Iterator<Item = CrossConnect> + '_ {
        let switches = (0..self.switches()).map(OcsId::from_index);
        switches.flat_map(move |ocs| {
            let (leaves, slots) = (self.leaves() as u32, self.ports_per_leaf(ocs));
            let reach = self.reach_of(ocs);
            let pairs =
                (0..leaves).flat_map(move |a| (a + 1..leaves).map(move |b| (LeafId(a), LeafId(b))));
            let permitted = pairs.filter(move |(a, b)| {
                LeafPair::new(*a, *b).is_some_and(|pair| self.permits_within(reach, pair))
            });
            permitted.flat_map(move |(a, b)| {
                let ports = (0..slots).flat_map(move |i| (0..slots).map(move |j| (i, j)));
                ports.filter_map(move |(i, j)| {
                    let [a_port, b_port] =
                        [self.switch_port(ocs, a, i)?, self.switch_port(ocs, b, j)?];
                    Some(CrossConnect { ocs, a_port, b_port, a, b })
                })
            })
        })
    }

    /// Returns the switch port wired to slot `slot` of `leaf`, or `None` if the bank is not wired to the leaf.
    pub fn switch_port(&self, ocs: OcsId, leaf: LeafId, slot: u32) -> Option<u32> {
        let bank = self.bank(ocs);
        bank.place_of(leaf).map(|place| place * bank.ports_per_leaf + slot)
    }
}

fn no_path_left(spec: &FatTreeSpec) -> FatTreeProblem {
    let least_db = spec.banks.iter().map(|bank| bank.insertion_loss_db);
    let least_db = least_db.fold(f64::INFINITY, f64::min) + spec.loss.path_db;
    FatTreeProblem {
        field: "loss.budget_db".into(),
        problem: format!(
            "no two leaves can be connected: a path loses at least {least_db:.1} dB, but {:.1} dB \
                are allowed, or all pairs are forbidden",
            spec.loss.budget_db
        ),
        fix: format!("use optics with a budget above {least_db:.1} dB or a switch with less loss"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightloom_units::{BitsPerSecond, Picoseconds};

    pub(super) fn spec() -> FatTreeSpec {
        FatTreeSpec {
            leaves: 8,
            gpus_per_leaf: 8,
            gpu_rate: BitsPerSecond::from_gbps(400),
            circuit_rate: BitsPerSecond::from_gbps(400),
            electrical: ElectricalCore {
                rate_per_leaf: BitsPerSecond::from_gbps(800),
                other_rates: BTreeMap::new(),
                oversubscription: 4.0,
            },
            banks: vec![OcsBank {
                name: "core".into(),
                model: None,
                switches: 4,
                ports_per_switch: 64,
                ports_per_leaf: 2,
                insertion_loss_db: 1.5,
                circuit_rate: None,
                leaves: None,
                one_way: false,
            }],
            timing: SwitchTiming {
                control: Picoseconds::from_millis(5),
                switching: Picoseconds::from_millis(10),
                bring_up: Picoseconds::ZERO,
            },
            loss: LossBudget::default(),
            forbidden: vec![],
            held: vec![],
            usable: vec![],
            occupied: vec![],
            failure_domains: 2,
        }
    }

    pub(super) fn problems(change: impl FnOnce(&mut FatTreeSpec)) -> String {
        let mut changed = spec();
        change(&mut changed);
        let problems = ReconfigurableFatTree::new(changed).unwrap_err();
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn valid_fabric_counts_its_ports_and_domains() {
        let fabric = ReconfigurableFatTree::new(spec()).unwrap();
        assert_eq!(fabric.optical_ports(), 8);
        assert_eq!(fabric.failure_domain(OcsId(1)), 0);
        assert_eq!(fabric.failure_domain(OcsId(2)), 1);
        assert_eq!(fabric.switch_port(OcsId(0), LeafId(3), 1), Some(7));
        assert!((fabric.electrical_rate() - 200e9).abs() < 1.0);
    }

    #[test]
    fn names_a_leaf_with_excessive_loss_to_all_others() {
        let mut far = spec();
        far.loss.extra_db = vec![LeafLoss { leaf: LeafId(3), db: 1.6 }];
        let fabric = ReconfigurableFatTree::new(far).unwrap();
        assert_eq!(fabric.leaves_without_circuits(), [LeafId(3)]);
        let best = fabric.least_loss_db(LeafPair::new(LeafId(3), LeafId(5)).unwrap());
        assert!((best.unwrap() - (1.5 + 1.0 + 1.6)).abs() < 1e-9, "{best:?}");
        assert_eq!(ReconfigurableFatTree::new(spec()).unwrap().leaves_without_circuits(), []);
    }

    #[test]
    fn loss_budget_excludes_pairs_and_must_leave_some() {
        let text = problems(|spec| spec.loss.budget_db = 2.0);
        assert!(text.contains("at least 2.5 dB"), "{text}");
        let mut far = spec();
        far.loss.extra_db = [0, 1].map(|leaf| LeafLoss { leaf: LeafId(leaf), db: 1.0 }).to_vec();
        let fabric = ReconfigurableFatTree::new(far).unwrap();
        let pair = |a, b| LeafPair::new(LeafId(a), LeafId(b)).unwrap();
        assert!(!fabric.permits(pair(0, 1)));
        assert!(fabric.permits(pair(0, 2)));
        let mut two = spec();
        two.leaves = 2;
        two.loss.extra_db = [0, 1].map(|leaf| LeafLoss { leaf: LeafId(leaf), db: 0.7 }).to_vec();
        let two = ReconfigurableFatTree::new(two).unwrap();
        assert!((two.least_loss_over(0).unwrap() - 3.9).abs() < 1e-9);
    }

    #[test]
    fn halves_of_one_way_circuits_keep_their_ports() {
        let mut one_way = spec();
        one_way.banks[0].one_way = true;
        one_way.occupied = vec![OcsPortId { ocs: OcsId(0), port: 7 }];
        one_way.forbidden = vec![(LeafId(0), LeafId(2))];
        let fabric = ReconfigurableFatTree::new(one_way.clone()).unwrap();
        let halves = fabric.halves();
        assert_eq!(halves.free_ports(LeafId(3)) + halves.free_ports(LeafId(11)), 14);
        let may_join = |a, b| halves.permits(LeafPair { a: LeafId(a), b: LeafId(b) });
        let joined = [(0, 9), (1, 8), (0, 8), (0, 1), (0, 10), (2, 8)].map(|(a, b)| may_join(a, b));
        assert_eq!(joined, [true, true, false, false, false, false]);
        for circuit in fabric.possible_circuits() {
            let CrossConnect { ocs, a_port, b_port, a, b } = circuit;
            for circuit in
                [circuit, CrossConnect { ocs, a_port: b_port, b_port: a_port, a: b, b: a }]
            {
                assert_eq!(fabric.whole(fabric.half(circuit)), circuit);
            }
        }
        let held = CrossConnect { ocs: OcsId(0), a_port: 2, b_port: 0, a: LeafId(1), b: LeafId(0) };
        let text = problems(|spec| *spec = FatTreeSpec { held: vec![held], ..one_way.clone() });
        assert!(text.contains("one-way circuits that stay"), "{text}");
        let text = problems(|spec| {
            spec.banks.push(OcsBank { one_way: true, ..spec.banks[0].clone() });
        });
        assert!(text.contains("of one-way and of two-way circuits"), "{text}");
    }

    #[test]
    fn held_circuits_must_use_their_leaf_ports_once() {
        let held = CrossConnect { ocs: OcsId(0), a_port: 0, b_port: 2, a: LeafId(0), b: LeafId(1) };
        let text = problems(|spec| spec.held = vec![held, held]);
        assert!(text.contains("used twice"), "{text}");
        let text = problems(|spec| spec.held = vec![CrossConnect { b_port: 5, ..held }]);
        assert!(text.contains("leaf1 is wired to ports 2 to 3"), "{text}");
        let mut sound = spec();
        sound.held = vec![held];
        let fabric = ReconfigurableFatTree::new(sound).unwrap();
        assert_eq!(fabric.free_ports(LeafId(1)), 7);
        assert_eq!(fabric.free_ports(LeafId(2)), 8);
    }
}
