// SPDX-License-Identifier: Apache-2.0
//! Number of circuits per pair of leaves, before placement on switches.
//!
//! Banks may differ in loss, so one bank may connect pairs that another cannot. Each circuit
//! then has a *reach*, which determines the pairs that it can connect and the ports that it uses.
//!
//! If circuits are one-way, the leaves of a topology are halves of leaves.

use lightloom_fabric::fat_tree::{CrossConnect, LeafPair, ReconfigurableFatTree};
use lightloom_units::id::LeafId;

/// The circuits between each pair of leaves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Topology {
    leaves: usize,
    /// Circuits in units of [`circuit_unit`](ReconfigurableFatTree::circuit_unit). The matrix is symmetric, so each row
    /// lists the circuits of one leaf.
    circuits: Vec<u32>,
    narrower: Vec<Vec<u32>>,
    /// Units of a circuit of each reach. Empty if each circuit is one unit.
    units: Vec<u32>,
    /// Units of circuits that stay in every phase. Empty without such circuits.
    staying: Vec<u32>,
}

impl Topology {
    /// Creates a topology without circuits. Each circuit is one unit.
    pub fn dark(leaves: usize) -> Self {
        let circuits = vec![0; leaves * leaves];
        Self { leaves, circuits, narrower: vec![], units: vec![], staying: vec![] }
    }

    /// Creates a topology with only the circuits that stay in every phase.
    pub fn bare(fabric: &ReconfigurableFatTree) -> Self {
        let mut topology = Self::dark(fabric.leaves());
        fabric.staying().for_each(|circuit| topology.light(fabric, circuit));
        if fabric.staying().next().is_some() {
            topology.staying.clone_from(&topology.circuits);
        }
        let units: Vec<u32> = (0..fabric.reaches()).map(|of| fabric.units_within(of)).collect();
        if units.iter().any(|units| *units > 1) {
            topology.units = units;
        }
        topology
    }

    /// Adds the units of a circuit, whatever its reach.
    pub fn light(&mut self, fabric: &ReconfigurableFatTree, circuit: &CrossConnect) {
        let [a, b] = fabric.ends_of(circuit);
        self.add_many(a, b, fabric.units_of(circuit.ocs));
    }

    /// Removes the units of a circuit that was [lit](Self::light).
    pub fn darken(&mut self, fabric: &ReconfigurableFatTree, circuit: &CrossConnect) {
        let [a, b] = fabric.ends_of(circuit);
        for at in [a * self.leaves + b, b * self.leaves + a] {
            self.circuits[at] -= fabric.units_of(circuit.ocs);
        }
    }

    /// Assigns ports to ring distances 1, 2, 3, … until they are used up.
    pub fn uniform_mesh(fabric: &ReconfigurableFatTree) -> Self {
        let leaves = fabric.leaves();
        let mut mesh = Self::bare(fabric);
        let mut ports = Ports::new(fabric, &mesh);
        let mut placed = true;
        while placed {
            placed = false;
            for distance in 1..=leaves / 2 {
                for first in 0..leaves {
                    let second = (first + distance) % leaves;
                    if distance * 2 == leaves && second < first {
                        continue;
                    }
                    placed |= ports.join(&mut mesh, first, second);
                }
            }
        }
        mesh
    }

    /// Returns the number of leaves.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// Returns the circuits between two leaves, in units.
    pub fn between(&self, first: usize, second: usize) -> u32 {
        self.circuits[first * self.leaves + second]
    }

    /// Returns the circuits from one leaf to all leaves, in units.
    pub fn row(&self, leaf: usize) -> &[u32] {
        &self.circuits[leaf * self.leaves..(leaf + 1) * self.leaves]
    }

    /// Returns the circuits of one leaf, in units.
    pub fn degree(&self, leaf: usize) -> u32 {
        self.row(leaf).iter().sum()
    }

    /// Returns all circuits, in units.
    pub fn count(&self) -> u64 {
        self.circuits.iter().map(|count| u64::from(*count)).sum::<u64>() / 2
    }

    /// Returns whether every circuit is one unit of the first reach and may be removed.
    fn is_plain(&self) -> bool {
        self.narrower.is_empty() && self.units.is_empty() && self.staying.is_empty()
    }

    fn units_of(&self, reach: usize) -> u32 {
        self.units.get(reach).copied().unwrap_or(1)
    }

    /// Returns the number of circuits of one reach between two leaves, without those that stay.
    pub fn between_within(&self, reach: usize, first: usize, second: usize) -> u32 {
        let at = first * self.leaves + second;
        if reach == 0 && self.is_plain() {
            return self.circuits[at];
        }
        if reach > 0 {
            return self.narrower.get(reach - 1).map_or(0, |own| own[at]);
        }
        let narrower = self.narrower.iter().zip(1..).map(|(own, of)| own[at] * self.units_of(of));
        let other = narrower.sum::<u32>() + self.staying.get(at).copied().unwrap_or(0);
        (self.circuits[at] - other) / self.units_of(0)
    }

    /// Returns the number of ports of one reach at one leaf that are used by circuits that do not stay.
    pub fn degree_within(&self, reach: usize, leaf: usize) -> u32 {
        match reach == 0 && self.is_plain() {
            true => self.degree(leaf),
            false => (0..self.leaves).map(|peer| self.between_within(reach, leaf, peer)).sum(),
        }
    }

    /// Returns the number of circuits of one reach, without those that stay.
    pub fn within(&self, reach: usize) -> Self {
        let mut own = Self::dark(self.leaves);
        for a in 0..self.leaves {
            for b in 0..self.leaves {
                own.circuits[a * self.leaves + b] = self.between_within(reach, a, b);
            }
        }
        own
    }

    /// Adds a circuit of the first reach.
    pub fn add(&mut self, first: usize, second: usize) {
        self.add_many(first, second, 1);
    }

    /// Adds `count` circuits of the first reach.
    pub fn add_many(&mut self, first: usize, second: usize, count: u32) {
        self.add_within(0, first, second, count);
    }

    /// Adds `count` circuits of one reach.
    pub fn add_within(&mut self, reach: usize, first: usize, second: usize, count: u32) {
        assert_ne!(first, second, "a circuit connects two leaves");
        let units = count * self.units_of(reach);
        if count > 0 {
            let size = self.circuits.len();
            let most = self.narrower.len().max(reach);
            self.narrower.resize_with(most, || vec![0; size]);
        }
        for at in [first * self.leaves + second, second * self.leaves + first] {
            self.circuits[at] += units;
            if reach > 0 && count > 0 {
                self.narrower[reach - 1][at] += count;
            }
        }
    }

    /// Removes a circuit of one reach.
    ///
    /// # Panics
    /// Panics if there is no such circuit.
    pub fn remove(&mut self, reach: usize, first: usize, second: usize) {
        assert!(
            self.between_within(reach, first, second) > 0,
            "only existing circuits are removed"
        );
        let units = self.units_of(reach);
        for at in [first * self.leaves + second, second * self.leaves + first] {
            self.circuits[at] -= units;
            if reach > 0 {
                self.narrower[reach - 1][at] -= 1;
            }
        }
    }

    /// Iterates over pairs with circuits (smaller leaf first) and their units, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (LeafPair, u32)> + '_ {
        (0..self.leaves).flat_map(move |a| {
            self.row(a).iter().enumerate().skip(a + 1).filter(|(_, count)| **count > 0).map(
                move |(b, count)| {
                    (LeafPair { a: LeafId::from_index(a), b: LeafId::from_index(b) }, *count)
                },
            )
        })
    }

    /// Returns the units of circuits present in both topologies, whatever their reach.
    pub fn common(&self, other: &Self) -> Self {
        let circuits =
            self.circuits.iter().zip(&other.circuits).map(|(mine, theirs)| *mine.min(theirs));
        Self { circuits: circuits.collect(), ..Self::dark(self.leaves) }
    }
}

/// Free ports per leaf while a topology is built.
#[derive(Debug)]
pub struct Ports<'a> {
    fabric: &'a ReconfigurableFatTree,
    free: Vec<Vec<u32>>,
}

impl<'a> Ports<'a> {
    /// Counts the ports not used by `topology`.
    pub fn new(fabric: &'a ReconfigurableFatTree, topology: &Topology) -> Self {
        let mut free = vec![Vec::new(); fabric.reaches()];
        for (reach, free) in free.iter_mut().enumerate() {
            for leaf in 0..fabric.leaves() {
                let all = fabric.free_ports_within(reach, LeafId::from_index(leaf));
                free.push(all - topology.degree_within(reach, leaf));
            }
        }
        Self { fabric, free }
    }

    pub(crate) fn free_at(&self, leaf: usize) -> u32 {
        self.free.iter().map(|free| free[leaf]).sum()
    }

    pub(crate) fn free_within(&self, reach: usize, leaf: usize) -> u32 {
        self.free[reach][leaf]
    }

    pub(crate) fn release(&mut self, reach: usize, leaves: [usize; 2]) {
        for leaf in leaves {
            self.free[reach][leaf] += 1;
        }
    }

    pub(crate) fn take(&mut self, reach: usize, leaves: [usize; 2]) {
        for leaf in leaves {
            self.free[reach][leaf] -= 1;
        }
    }

    /// Returns the permitted reaches, shortest first, so that longer-reach ports remain for other pairs, and faster
    /// circuits before slower ones.
    pub(crate) fn permitted(
        &self,
        first: usize,
        second: usize,
    ) -> impl Iterator<Item = usize> + 'a {
        let pair = LeafPair::new(LeafId::from_index(first), LeafId::from_index(second));
        let fabric = self.fabric;
        let reaches = (0..fabric.reaches()).rev();
        reaches.filter(move |reach| pair.is_some_and(|pair| fabric.permits_within(*reach, pair)))
    }

    /// Returns whether another circuit can connect the leaves.
    pub fn allow(&self, first: usize, second: usize) -> bool {
        self.reach_for(first, second).is_some()
    }

    /// Returns the units of the circuit that [`join`](Self::join) would add.
    pub(crate) fn units_for(&self, first: usize, second: usize) -> Option<u32> {
        self.reach_for(first, second).map(|reach| self.fabric.units_within(reach))
    }

    fn reach_for(&self, first: usize, second: usize) -> Option<usize> {
        self.permitted(first, second)
            .find(|reach| self.free[*reach][first] > 0 && self.free[*reach][second] > 0)
    }

    /// Adds a circuit if permitted, and returns whether it did.
    pub fn join(&mut self, topology: &mut Topology, first: usize, second: usize) -> bool {
        let reach = self.reach_for(first, second);
        reach.is_some_and(|reach| self.join_within(reach, topology, first, second))
    }

    pub(crate) fn join_within(
        &mut self,
        reach: usize,
        topology: &mut Topology,
        first: usize,
        second: usize,
    ) -> bool {
        let is_free = self.free[reach][first] > 0 && self.free[reach][second] > 0;
        let allowed = is_free && self.permitted(first, second).any(|own| own == reach);
        if allowed {
            topology.add_within(reach, first, second, 1);
            self.take(reach, [first, second]);
        }
        allowed
    }
}
