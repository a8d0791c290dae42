// SPDX-License-Identifier: Apache-2.0
//! Treats an all-reduce as flexible demand that can run on any rings that match the circuits.
//!
//! Every stride coprime to n forms a ring of the ranks 0 … n−1; strides s and n−s use the same
//! pairs in opposite directions. Splitting an all-reduce over several strides spreads it over more
//! pairs (TotientPerms in TopoOpt, NSDI 2023).

use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_units::id::LeafId;
use lightloom_units::{Bytes, gcd};

use super::demand::Demand;
use super::one_hop::{self, Effort, OneHopPlan};
use super::workload::collective::all_reduce;

/// Returns the strides up to n/2 (and always 1) whose rings visit all of `members`.
pub fn strides(members: usize) -> Vec<usize> {
    let strides = 1..=(members / 2).max(1);
    strides.filter(|stride| gcd(members as u64, *stride as u64) == 1).collect()
}

/// Returns the traffic of an all-reduce of `size`, split evenly over rings with these strides.
pub fn demand(leaves: usize, members: &[LeafId], size: Bytes, strides: &[usize]) -> Demand {
    let mut demand = Demand::none(leaves);
    for stride in strides {
        let ring: Vec<LeafId> =
            (0..members.len()).map(|step| members[step * stride % members.len()]).collect();
        all_reduce(&mut demand, &ring, Bytes(size.0 / strides.len() as u64));
    }
    demand
}

/// Returns the strides with the fastest circuits for this and `other` traffic, and the plan. Adds a
/// stride only if that is more than 0.1 % faster.
pub fn plan(
    fabric: &ReconfigurableFatTree,
    other: &Demand,
    members: &[LeafId],
    size: Bytes,
    effort: Effort,
) -> (Vec<usize>, OneHopPlan) {
    let all = strides(members.len());
    (1..=all.len().min(8))
        .map(|rings| {
            let mut demand = demand(fabric.leaves(), members, size, &all[..rings]);
            demand.add_all(other);
            (all[..rings].to_vec(), one_hop::plan(fabric, &demand, effort))
        })
        .reduce(|best, next| if next.1.lambda > best.1.lambda * 1.001 { next } else { best })
        .expect("stride 1 always visits all members")
}

#[cfg(test)]
mod tests {
    use super::super::testkit::fabric;
    use super::*;

    #[test]
    fn strides_are_coprime_and_their_rings_visit_every_leaf() {
        assert_eq!(strides(12), [1, 5]);
        assert_eq!(strides(7), [1, 2, 3]);
        let members: Vec<LeafId> = (0..7).map(LeafId).collect();
        for stride in strides(7) {
            let demand = demand(7, &members, Bytes(700), &[stride]);
            assert_eq!(demand.flows().count(), 7);
            assert_eq!(demand.total(), Bytes(7 * 1_200));
        }
    }

    #[test]
    fn ring_avoids_ports_that_other_traffic_needs() {
        let fabric = fabric(8, 4);
        let members: Vec<LeafId> = (0..8).map(LeafId).collect();
        let (chosen, plan) =
            super::plan(&fabric, &Demand::none(8), &members, Bytes(1 << 30), Effort::default());
        assert!(!chosen.is_empty() && plan.lambda > 0.0);
        let single = demand(8, &members, Bytes(1 << 30), &[1]);
        let single = one_hop::plan(&fabric, &single, Effort::default());
        assert!(plan.lambda >= single.lambda * (1.0 - 1e-9));
    }
}
