// SPDX-License-Identifier: Apache-2.0
//! Time as a module knows it: microseconds since its power came on.
//!
//! A module has no calendar and no picosecond timer; whoever drives it (a firmware timer, a
//! daemon's clock, an emulator's virtual time) hands the instant in with each call.

use core::ops::Add;

/// Microseconds: an instant since power-on, or a span between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// Power-on, or no time at all.
    pub const ZERO: Self = Self(0);

    /// Whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000)
    }

    /// The span since `earlier`, or zero where `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Micros {
    type Output = Self;
    fn add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}
