// SPDX-License-Identifier: Apache-2.0
//! Tracks free ports per switch, and moves circuits to make room for others.

use std::collections::BTreeSet;

use lightloom_fabric::fat_tree::{CrossConnect, LeafPair, ReconfigurableFatTree};
use lightloom_units::id::{LeafId, OcsId};

pub(super) const MOST_MOVED: u32 = 3;

/// The first circuit in order.
const LEAST: CrossConnect =
    CrossConnect { ocs: OcsId(0), a_port: 0, b_port: 0, a: LeafId(0), b: LeafId(0) };

pub(super) struct Room<'a> {
    books: Vec<PortBook<'a>>,
    pub(super) circuits: BTreeSet<CrossConnect>,
}

impl<'a> Room<'a> {
    pub(super) fn new(fabric: &'a ReconfigurableFatTree, circuits: &[CrossConnect]) -> Self {
        let circuits: BTreeSet<CrossConnect> = circuits.iter().copied().collect();
        Self { books: PortBook::all(fabric, &circuits), circuits }
    }

    fn put(&mut self, circuit: CrossConnect) {
        self.books[circuit.ocs.index()].occupy(circuit);
        self.circuits.insert(circuit);
    }

    fn take(&mut self, circuit: CrossConnect) {
        self.books[circuit.ocs.index()].release(circuit);
        self.circuits.remove(&circuit);
    }

    /// Moves at most `moves` other circuits. If this fails, returns false and leaves the circuits unchanged.
    pub(super) fn place(&mut self, a: usize, b: usize, moves: u32) -> bool {
        if let Some(circuit) = self.books.iter_mut().find_map(|book| book.connect(a, b)) {
            self.circuits.insert(circuit);
            return true;
        }
        moves > 0 && (0..self.books.len()).any(|at| self.place_for_another(at, a, b, moves))
    }

    fn place_for_another(&mut self, at: usize, a: usize, b: usize, moves: u32) -> bool {
        let leaves = [a, b].map(LeafId::from_index);
        let full = match leaves.map(|leaf| self.books[at].lowest_free(leaf)) {
            [Some(_), None] => leaves[1],
            [None, Some(_)] => leaves[0],
            _ => return false,
        };
        let [first, end] =
            [at, at + 1].map(|at| CrossConnect { ocs: OcsId::from_index(at), ..LEAST });
        let on_it = self.circuits.range(first..end);
        let others: Vec<CrossConnect> =
            on_it.filter(|one| one.a == full || one.b == full).copied().collect();
        others.into_iter().any(|other| {
            self.take(other);
            let Some(here) = self.books[at].connect(a, b) else {
                self.put(other);
                return false;
            };
            self.circuits.insert(here);
            let is_placed = self.place(other.a.index(), other.b.index(), moves - 1);
            if !is_placed {
                self.take(here);
                self.put(other);
            }
            is_placed
        })
    }
}

pub(in crate::rfabric) struct PortBook<'a> {
    fabric: &'a ReconfigurableFatTree,
    ocs: OcsId,
    taken: BTreeSet<u32>,
}

impl<'a> PortBook<'a> {
    pub(in crate::rfabric) fn new(fabric: &'a ReconfigurableFatTree, ocs: OcsId) -> Self {
        let mut book = Self { fabric, ocs, taken: fabric.dead_ports(ocs).collect() };
        for circuit in fabric.spec().held.iter().filter(|circuit| circuit.ocs == ocs) {
            book.occupy(*circuit);
        }
        book
    }

    /// Returns the ports of all switches with these circuits.
    pub(in crate::rfabric) fn all<'c>(
        fabric: &'a ReconfigurableFatTree,
        circuits: impl IntoIterator<Item = &'c CrossConnect>,
    ) -> Vec<Self> {
        let switches = (0..fabric.switches()).map(OcsId::from_index);
        let mut books: Vec<Self> = switches.map(|ocs| Self::new(fabric, ocs)).collect();
        for circuit in circuits {
            books[circuit.ocs.index()].occupy(*circuit);
        }
        books
    }

    pub(in crate::rfabric) fn occupy(&mut self, circuit: CrossConnect) {
        self.taken.extend([circuit.a_port, circuit.b_port]);
    }

    pub(in crate::rfabric) fn release(&mut self, circuit: CrossConnect) {
        self.taken.remove(&circuit.a_port);
        self.taken.remove(&circuit.b_port);
    }

    pub(in crate::rfabric) fn connect(&mut self, a: usize, b: usize) -> Option<CrossConnect> {
        let (a, b) = (LeafId::from_index(a), LeafId::from_index(b));
        let reach = self.fabric.reach_of(self.ocs);
        LeafPair::new(a, b).filter(|pair| self.fabric.permits_within(reach, *pair))?;
        let (a_port, b_port) = (self.lowest_free(a)?, self.lowest_free(b)?);
        let circuit = CrossConnect { ocs: self.ocs, a_port, b_port, a, b };
        self.occupy(circuit);
        Some(circuit)
    }

    fn lowest_free(&self, leaf: LeafId) -> Option<u32> {
        (0..self.fabric.ports_per_leaf(self.ocs))
            .filter_map(|slot| self.fabric.switch_port(self.ocs, leaf, slot))
            .find(|port| !self.taken.contains(port))
    }
}
