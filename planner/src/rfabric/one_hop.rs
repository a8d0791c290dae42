// SPDX-License-Identifier: Apache-2.0
//! Finds the fastest circuits for one-hop traffic; the electrical core carries the rest.
//!
//! This default planner bisects lambda. `cover` tries to reach each value greedily, and `search`
//! improves the best topology by exchanging circuits. Every plan includes an upper bound over all
//! topologies, so its gap is known without a solver.
//!
//! The method is our own; RFabric's algorithms are not published.

mod cover;
mod search;

use lightloom_fabric::fat_tree::ReconfigurableFatTree;

use super::demand::Demand;
use super::evaluate::Evaluator;
use super::topology::{Ports, Topology};

/// Search limits, counted in steps instead of seconds, so that plans do not depend on the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Bisection steps.
    pub bisections: u32,
    /// Maximum number of exchanges in the local search.
    pub exchanges: u32,
    /// Acceptable gap to the upper bound.
    pub gap: f64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { bisections: 12, exchanges: 20_000, gap: 1e-4 }
    }
}

/// A topology for one demand, with its rate and bound.
#[derive(Clone, Debug, PartialEq)]
pub struct OneHopPlan {
    /// The circuits.
    pub topology: Topology,
    /// How many times per second the demand is served.
    pub lambda: f64,
    /// Upper bound on `lambda` over all topologies.
    pub lambda_upper_bound: f64,
}

impl OneHopPlan {
    /// Returns the gap to the bound, as a fraction of the bound.
    pub fn gap(&self) -> f64 {
        gap(self.lambda, self.lambda_upper_bound)
    }
}

/// Returns the gap between `lambda` and a bound, as a fraction of the bound.
pub fn gap(lambda: f64, upper_bound: f64) -> f64 {
    if upper_bound > 0.0 { (1.0 - lambda / upper_bound).max(0.0) } else { 0.0 }
}

/// Plans the circuits for `demand`.
pub fn plan(fabric: &ReconfigurableFatTree, demand: &Demand, effort: Effort) -> OneHopPlan {
    let evaluator = Evaluator::new(fabric, demand);
    let upper_bound = evaluator.upper_bound(fabric);
    let (mut topology, mut lambda) = bisect(fabric, &evaluator, upper_bound, effort);
    if gap(lambda, upper_bound) > effort.gap {
        let target = upper_bound * (1.0 - effort.gap);
        search::improve(fabric, &evaluator, &mut topology, effort.exchanges, target);
        lambda = evaluator.lambda(&topology);
    }
    OneHopPlan { topology, lambda, lambda_upper_bound: upper_bound }
}

/// A cover that misses its trial rate can still be the best.
fn bisect(
    fabric: &ReconfigurableFatTree,
    evaluator: &Evaluator,
    upper_bound: f64,
    effort: Effort,
) -> (Topology, f64) {
    let mut best = Topology::bare(fabric);
    let mut best_lambda = evaluator.lambda(&best);
    let (mut low, mut high) = (best_lambda, upper_bound);
    let mut trial = upper_bound * (1.0 - 1e-9);
    for _ in 0..effort.bisections {
        let (mut candidate, covered) = cover::cover(fabric, evaluator, trial);
        fill(fabric, evaluator, &mut candidate);
        let lambda = evaluator.lambda(&candidate);
        if lambda > best_lambda {
            (best, best_lambda) = (candidate, lambda);
        }
        if covered {
            low = trial;
        } else {
            high = trial;
        }
        low = low.max(best_lambda);
        if low >= high * (1.0 - effort.gap) {
            break;
        }
        trial = f64::midpoint(low, high);
    }
    (best, best_lambda)
}

fn fill(fabric: &ReconfigurableFatTree, evaluator: &Evaluator, topology: &mut Topology) {
    let mut ports = Ports::new(fabric, topology);
    for leaf in 0..fabric.leaves() {
        while ports.free_at(leaf) > 0 {
            let hungriest = [2 * leaf, 2 * leaf + 1]
                .iter()
                .flat_map(|line| evaluator.traffic(*line))
                .filter(|(peer, _)| ports.allow(leaf, *peer))
                .map(|&(peer, bits)| (bits / f64::from(topology.between(leaf, peer) + 1), peer))
                .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
            let Some((_, peer)) = hungriest else { break };
            ports.join(topology, leaf, peer);
        }
    }
}
