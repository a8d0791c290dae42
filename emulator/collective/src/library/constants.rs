// SPDX-License-Identifier: Apache-2.0
//! Constants of collectives inside a domain, fitted to 1,263 nccl-tests results of A100, H200 and GB200.
//!
//! [`Constants::without`] returns those of a fit without one generation, with which docs/validation-collectives.md
//! tests the model. Two values of these are from other measurements: the latency of two dies without Blackwell is that
//! of DeepEP's low-latency kernels with one token, and the filling of NVLS without Hopper is that of all-reduces on B200.

use super::Generation;

#[derive(Debug)]
pub(super) struct Constants {
    /// Latency of a GPU of two dies, relative to one die.
    pub(super) two_dies: f64,
    /// Start and end of a ring's kernel on Hopper, in seconds.
    pub(super) kernel_seconds: f64,
    /// Ring step on Hopper with LL, LL128 and Simple, in seconds.
    pub(super) step_seconds: [f64; 3],
    /// Shares of the lane rate with LL, LL128 and Simple.
    pub(super) shares: [f64; 3],
    /// Duration of the last receive of a ring, relative to a step.
    pub(super) last: f64,
    /// Additional time of an in-switch collective that uses all channels, in seconds.
    pub(super) fill_seconds: f64,
    /// Start and end of an all-to-all's kernel on Hopper, in seconds.
    pub(super) pair_seconds: f64,
    /// Additional time of an all-to-all with large parts on Hopper, and the part for half of it in bytes.
    pub(super) pair_ramp_seconds: f64,
    pub(super) pair_ramp_bytes: f64,
    /// Share of the lane rate in an all-to-all.
    pub(super) pair_share: f64,
    /// Time to copy a rank's own part of an all-to-all, relative to sending it.
    pub(super) pair_own: f64,
    /// Maximum rate of the channels of an all-to-all, which also copy the rank's own part, in bytes per second.
    pub(super) pair_rate: f64,
}

impl Constants {
    pub(super) const fn without(generation: Option<Generation>) -> &'static Self {
        match generation {
            None => &ALL,
            Some(Generation::Ampere) => &WITHOUT_AMPERE,
            Some(Generation::Hopper) => &WITHOUT_HOPPER,
            Some(Generation::Blackwell) => &WITHOUT_BLACKWELL,
        }
    }
}

const ALL: Constants = Constants {
    two_dies: 1.443,
    kernel_seconds: 5.116e-6,
    step_seconds: [0.836e-6, 2.209e-6, 5.567e-6],
    shares: [0.466, 0.906, 1.037],
    last: 0.656,
    fill_seconds: 46e-6,
    pair_seconds: 7.566e-6,
    pair_ramp_seconds: 5.443e-6,
    pair_ramp_bytes: 27_352.0,
    pair_share: 0.82,
    pair_own: 0.116,
    pair_rate: 692e9,
};

const WITHOUT_AMPERE: Constants = Constants {
    two_dies: 1.498,
    kernel_seconds: 4.69e-6,
    step_seconds: [0.889e-6, 2.161e-6, 5.205e-6],
    shares: [0.475, 0.922, 1.051],
    last: 0.687,
    fill_seconds: 46e-6,
    pair_seconds: 7.06e-6,
    pair_ramp_seconds: 5.427e-6,
    pair_ramp_bytes: 21_426.0,
    pair_share: 0.82,
    pair_own: 0.057,
    pair_rate: 686e9,
};

const WITHOUT_HOPPER: Constants = Constants {
    two_dies: 1.293,
    kernel_seconds: 6.392e-6,
    step_seconds: [0.723e-6, 1.535e-6, 6.071e-6],
    shares: [0.429, 0.695, 1.019],
    last: 0.656,
    fill_seconds: 40e-6,
    pair_seconds: 8.115e-6,
    pair_ramp_seconds: 5.744e-6,
    pair_ramp_bytes: 35_784.0,
    pair_share: 0.811,
    pair_own: 0.25,
    pair_rate: 692e9,
};

const WITHOUT_BLACKWELL: Constants = Constants {
    two_dies: 1.391,
    kernel_seconds: 4.866e-6,
    step_seconds: [0.858e-6, 2.248e-6, 5.937e-6],
    shares: [0.476, 0.903, 1.035],
    last: 0.632,
    fill_seconds: 46e-6,
    pair_seconds: 8.213e-6,
    pair_ramp_seconds: 6.42e-6,
    pair_ramp_bytes: 51_362.0,
    pair_share: 0.828,
    pair_own: 0.11,
    pair_rate: 762e9,
};
