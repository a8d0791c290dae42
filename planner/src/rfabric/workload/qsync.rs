// SPDX-License-Identifier: Apache-2.0
//! Stragglers of mixed hardware (QSync): the gradients stay the same, their time changes.
//!
//! The ring begins when the slowest rank is ready. Ranks that wait leave their ports idle: slack in which
//! circuits may be changed for nothing. The straggler itself has none.

use lightloom_units::Picoseconds;

/// When each rank has its gradients ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrivals(pub Vec<Picoseconds>);

impl Arrivals {
    /// When the exchange can begin.
    #[must_use]
    pub fn start(&self) -> Picoseconds {
        self.0.iter().copied().max().unwrap_or_default()
    }

    /// How long the network waits for the slowest after the first was ready.
    #[must_use]
    pub fn slack(&self) -> Picoseconds {
        self.start() - self.0.iter().copied().min().unwrap_or_default()
    }
}

/// Computation of every rank: `compute` at full precision, divided by the rank's speed, where a rank
/// of low precision gains `low_precision_gain`.
#[must_use]
pub fn arrivals(compute: Picoseconds, speeds: &[f64], low_precision_gain: &[f64]) -> Arrivals {
    let ready = speeds.iter().zip(low_precision_gain);
    let at = ready.map(|(speed, gain)| Picoseconds((compute.0 as f64 / (speed * gain)) as u64));
    Arrivals(at.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_precision_on_the_weak_half_shrinks_the_wait() {
        let compute = Picoseconds::from_millis(100);
        let mixed = arrivals(compute, &[1.0, 0.5], &[1.0, 1.0]);
        assert_eq!(mixed.slack(), Picoseconds::from_millis(100));
        let helped = arrivals(compute, &[1.0, 0.5], &[1.0, 1.6]);
        assert_eq!(helped.start(), Picoseconds::from_millis(125));
        assert_eq!(helped.slack(), Picoseconds::from_millis(25));
    }
}
