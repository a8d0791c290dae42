// SPDX-License-Identifier: Apache-2.0
//! Reduces an MFU by the losses due to faults.
//!
//! goodput = MFU × ETTR × (1 − waste) × (1 − straggler loss). ETTR is the share of wall time with
//! progress that is kept, and waste is the share of healthy but unused GPUs. The factors are
//! reported separately because their remedies differ.

use serde::Serialize;

const DAY_SECONDS: f64 = 86_400.0;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FaultCosts {
    pub nodes: f64,
    pub faults_per_node_day: f64,
    pub detect_seconds: f64,
    pub replan_seconds: f64,
    pub restart_seconds: f64,
    pub checkpoint_write_seconds: f64,
    /// `None` for Young's optimum.
    pub checkpoint_interval_seconds: Option<f64>,
    pub straggler_loss: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goodput {
    pub mfu: f64,
    pub ettr: f64,
    pub waste_ratio: f64,
    pub straggler_loss: f64,
    pub goodput: f64,
    pub mttf_seconds: f64,
    pub checkpoint_interval_seconds: f64,
}

impl FaultCosts {
    #[must_use]
    pub fn mttf_seconds(&self) -> f64 {
        DAY_SECONDS / (self.nodes * self.faults_per_node_day)
    }

    #[must_use]
    pub fn recovery_seconds(&self) -> f64 {
        self.detect_seconds + self.replan_seconds + self.restart_seconds
    }

    /// The given interval, or `√(2·write·MTTF)` (Young 1974), at least a second.
    #[must_use]
    pub fn interval_seconds(&self) -> f64 {
        self.checkpoint_interval_seconds.unwrap_or_else(|| {
            (2.0 * self.checkpoint_write_seconds * self.mttf_seconds()).sqrt().max(1.0)
        })
    }

    /// Exact for exponentially distributed times between interruptions.
    ///
    /// A segment of useful work `Δ` with its checkpoint `w` takes `M·e^(R/M)·(e^((Δ+w)/M) − 1)` on
    /// average, where the recovery `R` may itself be interrupted (Daly 2006).
    #[must_use]
    pub fn ettr(&self) -> f64 {
        let (mttf, interval) = (self.mttf_seconds(), self.interval_seconds());
        let attempt = interval + self.checkpoint_write_seconds;
        let expected = mttf * (self.recovery_seconds() / mttf).exp() * (attempt / mttf).exp_m1();
        if expected.is_finite() { interval / expected } else { 0.0 }
    }

    #[must_use]
    pub fn goodput(&self, mfu: f64, waste_ratio: f64) -> Goodput {
        let ettr = self.ettr();
        Goodput {
            mfu,
            ettr,
            waste_ratio,
            straggler_loss: self.straggler_loss,
            goodput: mfu * ettr * (1.0 - waste_ratio) * (1.0 - self.straggler_loss),
            mttf_seconds: self.mttf_seconds(),
            checkpoint_interval_seconds: self.interval_seconds(),
        }
    }
}

#[cfg(test)]
mod tests {
    use lightloom_units::seed::Seed;

    use super::*;
    use rand::RngExt;

    const META: FaultCosts = FaultCosts {
        nodes: 2048.0,
        faults_per_node_day: 6.5e-3,
        detect_seconds: 0.0,
        replan_seconds: 0.0,
        restart_seconds: 300.0,
        checkpoint_write_seconds: 0.0,
        checkpoint_interval_seconds: Some(900.0),
        straggler_loss: 0.0,
    };

    #[test]
    fn reproduces_the_example_of_meta() {
        // 16,384 GPUs, 6.5 faults per 1,000 node-days, restart 5 min, checkpoint every 15 min.
        assert!((META.mttf_seconds() / 3600.0 - 1.80).abs() < 0.01);
        let closed = 1.0 - (300.0 + 450.0) / META.mttf_seconds();
        assert!((META.ettr() - closed).abs() < 0.01, "{} {closed}", META.ettr());
        assert!((META.ettr() - 0.88).abs() < 0.015);
    }

    #[test]
    fn closed_form_matches_simulated_faults() {
        let operation = FaultCosts { nodes: 16_384.0, checkpoint_write_seconds: 20.0, ..META };
        let mut random = Seed(7).stream("faults of a job", 0);
        let mttf = operation.mttf_seconds();
        let mut draw = || -mttf * (1.0 - random.random::<f64>()).ln();
        let (mut clock, mut kept, mut fault) = (0.0, 0.0, draw());
        let attempt = operation.interval_seconds() + operation.checkpoint_write_seconds;
        for _ in 0..200_000 {
            while clock + attempt > fault {
                clock = fault + operation.recovery_seconds();
                fault += draw();
                while clock > fault {
                    clock = fault + operation.recovery_seconds();
                    fault += draw();
                }
            }
            clock += attempt;
            kept += operation.interval_seconds();
        }
        let played = kept / clock;
        assert!((played / operation.ettr() - 1.0).abs() < 0.01, "{played} {}", operation.ettr());
    }

    #[test]
    fn youngs_interval_is_near_the_optimum() {
        let operation = FaultCosts {
            checkpoint_write_seconds: 30.0,
            checkpoint_interval_seconds: None,
            ..META
        };
        let best = (1..200)
            .map(|i| FaultCosts {
                checkpoint_interval_seconds: Some(20.0 * f64::from(i)),
                ..operation
            })
            .map(|other| other.ettr())
            .fold(0.0, f64::max);
        assert!(operation.ettr() > best - 0.002, "{} {best}", operation.ettr());
    }
}
