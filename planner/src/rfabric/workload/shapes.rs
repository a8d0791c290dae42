// SPDX-License-Identifier: Apache-2.0
//! Synthetic traffic for comparing planners.
//!
//! Sizes are relative, because the quality of a plan does not depend on scale.

use lightloom_units::Bytes;
use lightloom_units::id::LeafId;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

use super::super::demand::Demand;

const PAIR_BYTES: f64 = 1e9;

/// Returns a skewed all-to-all within groups of 8 leaves plus a light ring over all leaves. The matrix is symmetric,
/// because the combine is the transpose of the dispatch (MixNet, arXiv 2501.03905, section 3).
pub fn moe(leaves: usize, seed: Seed) -> Demand {
    moe_spread(leaves, seed, GATE_SPREAD)
}

/// Spread of [`moe`], as the standard deviation of the logarithm of a pair's traffic.
pub const GATE_SPREAD: f64 = 0.6;

/// Returns [`moe`] with the given spread.
pub fn moe_spread(leaves: usize, seed: Seed, spread: f64) -> Demand {
    let mut stream = seed.stream("shape.moe", leaves as u64);
    let mut demand = Demand::none(leaves);
    for from in 0..leaves {
        for to in from + 1..leaves.min(from / 8 * 8 + 8) {
            let weight = log_normal(&mut stream, spread);
            add(&mut demand, from, to, weight);
            add(&mut demand, to, from, weight);
        }
    }
    ring(&mut demand, 0..leaves, 0.2);
    demand
}

/// Returns the traffic of a weight synchronisation from one half of the leaves to the other.
pub fn weight_sync(leaves: usize, seed: Seed) -> Demand {
    let mut stream = seed.stream("shape.weight_sync", leaves as u64);
    let mut demand = Demand::none(leaves);
    let half = leaves / 2;
    for from in 0..half {
        for copy in 0..4 {
            let to = half + (from + copy * (half / 4).max(1)) % (leaves - half);
            add(&mut demand, from, to, log_normal(&mut stream, 0.5));
        }
    }
    ring(&mut demand, 0..half, 1.0);
    demand
}

/// Returns log-normally distributed traffic between all leaves.
pub fn dense(leaves: usize, seed: Seed) -> Demand {
    let mut stream = seed.stream("shape.dense", leaves as u64);
    let mut demand = Demand::none(leaves);
    for from in 0..leaves {
        for to in (0..leaves).filter(|to| *to != from) {
            add(&mut demand, from, to, log_normal(&mut stream, 1.0));
        }
    }
    demand
}

fn ring(demand: &mut Demand, members: std::ops::Range<usize>, weight: f64) {
    let count = members.len();
    for at in 0..count {
        add(demand, members.start + at, members.start + (at + 1) % count, weight);
    }
}

fn add(demand: &mut Demand, from: usize, to: usize, weight: f64) {
    let size = Bytes((weight * PAIR_BYTES) as u64);
    demand.add(LeafId::from_index(from), LeafId::from_index(to), size);
}

pub(crate) fn log_normal(stream: &mut Stream, sigma: f64) -> f64 {
    let radius = (-2.0 * (1.0 - stream.random::<f64>()).ln()).sqrt();
    let angle = std::f64::consts::TAU * stream.random::<f64>();
    (sigma * radius * angle.cos()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_their_expected_structure() {
        let peers =
            |demand: &Demand, leaf| demand.flows().filter(|(from, ..)| from.0 == leaf).count();
        assert_eq!(peers(&moe(32, Seed(1)), 9), 7);
        assert_eq!(
            peers(&moe(32, Seed(1)), 15),
            8,
            "the last leaf of a group also sends to the ring"
        );
        assert_eq!(peers(&weight_sync(32, Seed(1)), 3), 5);
        assert_eq!(peers(&weight_sync(32, Seed(1)), 20), 0, "receivers send nothing");
        assert_eq!(peers(&dense(16, Seed(1)), 3), 15);
    }
}
