// SPDX-License-Identifier: Apache-2.0
//! Constants of collectives inside a domain, fitted to 1,263 nccl-tests results of A100, H200 and GB200.
//!
//! Every row of `constants.csv` except the first is from a fit without one generation, with which
//! docs/validation-collectives.md tests the model. Two values are from other measurements: the latency of two dies
//! without Blackwell is that of DeepEP's low-latency kernels with one token, and the filling of NVLS without Hopper is
//! that of all-reduces on B200.

use std::sync::LazyLock;

use serde::Deserialize;

use super::Generation;

/// Latencies are those of Hopper. Shares are relative to the lane rate.
#[derive(Debug, Deserialize)]
pub(crate) struct DomainFit {
    left_out: Option<Generation>,
    /// Latency of a GPU of two dies, relative to one die.
    pub(crate) two_dies: f64,
    /// Start and end of a ring's kernel.
    pub(super) kernel_us: f64,
    ll_us: f64,
    ll128_us: f64,
    simple_us: f64,
    ll_share: f64,
    ll128_share: f64,
    simple_share: f64,
    /// Duration of the last receive of a ring, relative to a step.
    pub(super) last: f64,
    /// Additional time of an in-switch collective that uses all channels.
    pub(super) fill_us: f64,
    /// Start and end of an all-to-all's kernel.
    pub(super) pair_us: f64,
    /// Additional time of an all-to-all with large parts, and the part for half of it.
    pub(super) pair_ramp_us: f64,
    pub(super) pair_ramp_bytes: f64,
    pub(super) pair_share: f64,
    /// Time to copy a rank's own part of an all-to-all, relative to sending it.
    pub(super) pair_own: f64,
    /// Maximum rate of the channels of an all-to-all, which also copy the rank's own part, in GB/s.
    pub(super) pair_gigabytes: f64,
}

static FITS: LazyLock<Vec<DomainFit>> = LazyLock::new(|| rows(include_str!("constants.csv")));

/// Returns the rows of a shipped CSV table.
pub fn rows<Row: for<'r> Deserialize<'r>>(table: &str) -> Vec<Row> {
    let rows = csv::Reader::from_reader(table.as_bytes()).into_deserialize();
    rows.map(|row| row.expect("a row of a shipped table")).collect()
}

impl DomainFit {
    pub(crate) fn without(generation: Option<Generation>) -> &'static Self {
        FITS.iter().find(|fit| fit.left_out == generation).expect("one row per generation")
    }

    /// Seconds of a ring step, and the share of the lane rate.
    pub(super) fn step(&self, protocol: super::Protocol) -> (f64, f64) {
        let steps = [self.ll_us, self.ll128_us, self.simple_us];
        let shares = [self.ll_share, self.ll128_share, self.simple_share];
        (1e-6 * steps[protocol as usize], shares[protocol as usize])
    }
}
