// SPDX-License-Identifier: Apache-2.0
//! Breakdown of the time of forward and backward passes.

use crate::schedule::StageTime;

/// Seconds of one pass over one layer: computing, and the exposed communication of TP, CP and EP.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PassSeconds {
    pub(super) compute: f64,
    pub(super) tensor: f64,
    pub(super) context: f64,
    pub(super) expert: f64,
}

impl PassSeconds {
    pub(super) fn total(&self) -> f64 {
        self.compute + self.tensor + self.context + self.expert
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        self.plus_times(other, 1.0)
    }

    pub(super) fn plus_times(&self, other: &Self, times: f64) -> Self {
        Self {
            compute: self.compute + other.compute * times,
            tensor: self.tensor + other.tensor * times,
            context: self.context + other.context * times,
            expert: self.expert + other.expert * times,
        }
    }

    /// Extends the pass to at least the time to launch its kernels.
    pub(super) fn at_least(mut self, seconds: f64) -> Self {
        self.compute += (seconds - self.total()).max(0.0);
        self
    }
}

/// Forward and backward pass of a layer or of the output layer. A zero-bubble schedule can move
/// `weight_gradient`, which is part of the backward pass.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passes {
    pub(super) forward: PassSeconds,
    pub(super) backward: PassSeconds,
    pub(super) weight_gradient: f64,
}

impl Passes {
    pub(super) fn times(&self, times: f64) -> Self {
        let none = PassSeconds::default();
        Self {
            forward: none.plus_times(&self.forward, times),
            backward: none.plus_times(&self.backward, times),
            weight_gradient: self.weight_gradient * times,
        }
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        Self {
            forward: self.forward.plus(&other.forward),
            backward: self.backward.plus(&other.backward),
            weight_gradient: self.weight_gradient + other.weight_gradient,
        }
    }

    pub(super) fn total(&self) -> f64 {
        self.forward.total() + self.backward.total()
    }

    pub(super) fn stage_time(&self) -> StageTime {
        StageTime {
            forward_seconds: self.forward.total(),
            input_gradient_seconds: self.backward.total() - self.weight_gradient,
            weight_gradient_seconds: self.weight_gradient,
        }
    }
}
