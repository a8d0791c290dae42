// SPDX-License-Identifier: Apache-2.0
//! Elastic jobs on loaned servers (Aryl/Lyra): a data-parallel job adds ranks and gives them back.
//!
//! Every new rank receives params·b once from an existing rank. Afterwards the gradient ring has
//! more members. The formula is our own.

use lightloom_units::id::LeafId;

use super::super::demand::Demand;
use super::card::ModelCard;
use super::collective::all_reduce;

/// Returns the transfer of weights to the joining ranks.
#[must_use]
pub fn join(leaves: usize, card: &ModelCard, members: &[LeafId], joining: &[LeafId]) -> Demand {
    let mut demand = Demand::none(leaves);
    for (at, to) in joining.iter().enumerate() {
        demand.add(members[at % members.len()], *to, card.weight_bytes());
    }
    demand
}

/// Returns the gradient traffic of one step with these members.
#[must_use]
pub fn gradients(leaves: usize, card: &ModelCard, members: &[LeafId]) -> Demand {
    let mut demand = Demand::none(leaves);
    all_reduce(&mut demand, members, card.weight_bytes());
    demand
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rfabric::testing::dense_card;

    #[test]
    fn joining_costs_one_copy_per_rank_and_changes_the_ring() {
        let card = dense_card();
        let (old, new) = ([LeafId(0), LeafId(1)], [LeafId(2), LeafId(3)]);
        let demand = join(4, &card, &old, &new);
        assert_eq!(demand.bytes(LeafId(1), LeafId(3)), card.weight_bytes());
        assert_eq!(demand.total(), card.weight_bytes() * 2);
        let before = gradients(4, &card, &old);
        let after = gradients(4, &card, &[old, new].concat());
        assert_eq!(before.bytes(LeafId(1), LeafId(2)).0, 0);
        let one_and_a_half = card.weight_bytes().0 * 2 * 3 / 4;
        assert_eq!(after.bytes(LeafId(1), LeafId(2)).0, one_and_a_half, "2(g−1)/g with g = 4");
    }
}
