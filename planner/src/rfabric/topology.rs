// SPDX-License-Identifier: Apache-2.0
//! Circuits between leaves, counted per pair and not yet placed on switches.

use lightloom_fabric::fat_tree::{LeafPair, ReconfigurableFatTree};
use lightloom_units::id::LeafId;

/// How many circuits join each pair of leaves. A circuit carries both directions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Topology {
    leaves: usize,
    /// Both triangles are kept, so a row is one leaf's circuits.
    circuits: Vec<u32>,
}

impl Topology {
    /// No circuits among `leaves` leaves.
    #[must_use]
    pub fn dark(leaves: usize) -> Self {
        Self { leaves, circuits: vec![0; leaves * leaves] }
    }

    /// The same share of ports to every peer, as evenly as whole circuits allow: ring distance 1,
    /// 2, 3, … in turn until the ports are spent.
    #[must_use]
    pub fn uniform_mesh(fabric: &ReconfigurableFatTree) -> Self {
        let leaves = fabric.leaves();
        let mut mesh = Self::dark(leaves);
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

    /// Number of leaves.
    #[must_use]
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// Circuits that join two leaves, by index.
    #[must_use]
    pub fn between(&self, first: usize, second: usize) -> u32 {
        self.circuits[first * self.leaves + second]
    }

    /// Circuits of one leaf to each other leaf.
    #[must_use]
    pub fn row(&self, leaf: usize) -> &[u32] {
        &self.circuits[leaf * self.leaves..(leaf + 1) * self.leaves]
    }

    /// Ports in use at one leaf.
    #[must_use]
    pub fn degree(&self, leaf: usize) -> u32 {
        self.row(leaf).iter().sum()
    }

    /// Number of circuits.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.circuits.iter().map(|count| u64::from(*count)).sum::<u64>() / 2
    }

    /// Adds one circuit.
    pub fn add(&mut self, first: usize, second: usize) {
        self.add_many(first, second, 1);
    }

    /// Adds `count` circuits between one pair.
    pub fn add_many(&mut self, first: usize, second: usize, count: u32) {
        assert_ne!(first, second, "a circuit joins two leaves");
        self.circuits[first * self.leaves + second] += count;
        self.circuits[second * self.leaves + first] += count;
    }

    /// Removes one circuit.
    ///
    /// # Panics
    /// If there is none.
    pub fn remove(&mut self, first: usize, second: usize) {
        assert!(self.between(first, second) > 0, "only a circuit that exists is removed");
        self.circuits[first * self.leaves + second] -= 1;
        self.circuits[second * self.leaves + first] -= 1;
    }

    /// Pairs with circuits and their number, the smaller leaf first, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (LeafPair, u32)> + '_ {
        (0..self.leaves).flat_map(move |a| {
            self.row(a).iter().enumerate().skip(a + 1).filter(|(_, count)| **count > 0).map(
                move |(b, count)| {
                    (LeafPair { a: LeafId::from_index(a), b: LeafId::from_index(b) }, *count)
                },
            )
        })
    }

    /// Circuits that are in both.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        let circuits =
            self.circuits.iter().zip(&other.circuits).map(|(mine, theirs)| *mine.min(theirs));
        Self { leaves: self.leaves, circuits: circuits.collect() }
    }
}

/// Ports still free at each leaf while a topology is being built.
#[derive(Debug)]
pub struct Ports<'a> {
    fabric: &'a ReconfigurableFatTree,
    /// Free ports by leaf.
    pub(crate) free: Vec<u32>,
}

impl<'a> Ports<'a> {
    /// What `topology` leaves free.
    #[must_use]
    pub fn new(fabric: &'a ReconfigurableFatTree, topology: &Topology) -> Self {
        let free = (0..fabric.leaves())
            .map(|leaf| fabric.free_ports(LeafId::from_index(leaf)) - topology.degree(leaf))
            .collect();
        Self { fabric, free }
    }

    /// Whether one more circuit may join the leaves.
    #[must_use]
    pub fn allow(&self, first: usize, second: usize) -> bool {
        self.free[first] > 0
            && self.free[second] > 0
            && LeafPair::new(LeafId::from_index(first), LeafId::from_index(second))
                .is_some_and(|pair| self.fabric.permits(pair))
    }

    /// Adds a circuit if it is allowed; says whether it did.
    pub fn join(&mut self, topology: &mut Topology, first: usize, second: usize) -> bool {
        let allowed = self.allow(first, second);
        if allowed {
            topology.add(first, second);
            self.free[first] -= 1;
            self.free[second] -= 1;
        }
        allowed
    }
}
