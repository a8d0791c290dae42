// SPDX-License-Identifier: Apache-2.0
//! Stragglers on mixed hardware (QSync): the gradients stay the same, but their time changes.
//!
//! The ring starts when the slowest rank is ready. Waiting ranks leave their ports idle, which
//! gives slack for free changes of circuits. The straggler itself has none.

use lightloom_units::Picoseconds;

/// The time when the gradients of each rank are ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrivals(pub Vec<Picoseconds>);

impl Arrivals {
    /// Returns the time when the exchange can start.
    #[must_use]
    pub fn start(&self) -> Picoseconds {
        self.0.iter().copied().max().unwrap_or_default()
    }

    /// Returns the time that the network waits for the slowest rank after the first was ready.
    #[must_use]
    pub fn slack(&self) -> Picoseconds {
        self.start() - self.0.iter().copied().min().unwrap_or_default()
    }
}

/// Returns `compute` divided by each rank's speed and its gain from low precision.
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
    fn low_precision_on_the_slow_half_shortens_the_wait() {
        let compute = Picoseconds::from_millis(100);
        let mixed = arrivals(compute, &[1.0, 0.5], &[1.0, 1.0]);
        assert_eq!(mixed.slack(), Picoseconds::from_millis(100));
        let helped = arrivals(compute, &[1.0, 0.5], &[1.0, 1.6]);
        assert_eq!(helped.start(), Picoseconds::from_millis(125));
        assert_eq!(helped.slack(), Picoseconds::from_millis(25));
    }
}
