// SPDX-License-Identifier: Apache-2.0
//! One-way circuits, seen as circuits between halves of leaves.
//!
//! A one-way circuit leads from a transmitter of one leaf to a receiver of another. If leaf i of n leaves is split into
//! half i, which sends, and half n + i, which receives, every circuit joins two halves, and each half has as many ports
//! as its leaf. Code for two-way circuits therefore also applies to the network of halves.

use super::{CrossConnect, LeafLoss, LeafPair, Reaches, ReconfigurableFatTree};
use lightloom_units::id::{LeafId, OcsPortId};

/// Returns whether a circuit may connect two of `halves` halves.
pub(super) fn may_join(pair: LeafPair, halves: usize) -> bool {
    let leaves = halves / 2;
    pair.a.index() < leaves && pair.b.index() >= leaves && pair.b.index() - leaves != pair.a.index()
}

impl ReconfigurableFatTree {
    /// Returns whether circuits carry traffic in one direction only.
    pub fn is_one_way(&self) -> bool {
        self.spec.banks[0].one_way
    }

    /// Returns whether the leaves are halves of leaves.
    pub fn has_halves(&self) -> bool {
        self.reaches.are_between_halves
    }

    /// Returns the number of ends that circuits may have: leaves, or halves if circuits are one-way.
    pub fn ends(&self) -> usize {
        if self.is_one_way() { 2 * self.leaves() } else { self.leaves() }
    }

    /// Returns the [ends](Self::ends) of a circuit.
    pub fn ends_of(&self, circuit: &CrossConnect) -> [usize; 2] {
        [circuit.a.index(), circuit.b.index() + self.ends() - self.leaves()]
    }

    /// Returns the network with two-way circuits on the same ports.
    pub fn with_two_way_circuits(&self) -> Self {
        let mut two_way = self.clone();
        two_way.spec.banks.iter_mut().for_each(|bank| bank.one_way = false);
        two_way
    }

    /// Returns the network between the halves of the leaves.
    pub fn halves(&self) -> Self {
        let mut spec = self.spec.clone();
        spec.leaves *= 2;
        for bank in &mut spec.banks {
            (bank.one_way, bank.ports_per_switch) = (false, 2 * bank.ports_per_switch);
            if let Some(leaves) = &mut bank.leaves {
                leaves.extend(leaves.clone().into_iter().map(|leaf| self.receiving(leaf)));
            }
        }
        let rates = &mut spec.electrical.other_rates;
        rates.extend(rates.clone().into_iter().map(|(leaf, rate)| (self.receiving(leaf), rate)));
        let extra = &mut spec.loss.extra_db;
        extra.extend(
            extra.clone().into_iter().map(|own| LeafLoss { leaf: self.receiving(own.leaf), ..own }),
        );
        let pairs = spec.forbidden.iter();
        spec.forbidden =
            pairs.flat_map(|&(a, b)| [(a, self.receiving(b)), (b, self.receiving(a))]).collect();
        let dead = self
            .dead
            .iter()
            .map(|dead| OcsPortId { port: dead.port + self.wired_ports(dead.ocs), ..*dead });
        let fewer = self.fewer_uplinks.iter().map(|(leaf, count)| (self.receiving(*leaf), *count));
        Self {
            reaches: Reaches::of(&spec, true),
            dead: dead.chain(self.dead.clone()).collect(),
            fewer_uplinks: fewer.chain(self.fewer_uplinks.clone()).collect(),
            spec,
        }
    }

    fn receiving(&self, leaf: LeafId) -> LeafId {
        LeafId(leaf.0 + self.spec.leaves)
    }

    /// Returns a one-way circuit as a circuit of the network of [halves](Self::halves).
    pub fn half(&self, CrossConnect { ocs, a_port, b_port, a, b }: CrossConnect) -> CrossConnect {
        let b = LeafId(b.0 + self.spec.leaves);
        CrossConnect { ocs, a_port, b_port: b_port + self.wired_ports(ocs), a, b }
    }

    /// Reverses [`half`](Self::half).
    pub fn whole(&self, CrossConnect { ocs, a_port, b_port, a, b }: CrossConnect) -> CrossConnect {
        let b = LeafId(b.0 - self.spec.leaves);
        CrossConnect { ocs, a_port, b_port: b_port - self.wired_ports(ocs), a, b }
    }
}
