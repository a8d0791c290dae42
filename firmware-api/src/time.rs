// SPDX-License-Identifier: Apache-2.0
//! Time in microseconds. The caller passes the current time with each call, such as a firmware timer, a
//! daemon's clock or an emulator's virtual time.

use core::ops::Add;

/// An instant since power-on, or a duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// Power-on, or a zero duration.
    pub const ZERO: Self = Self(0);

    /// Converts whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000)
    }

    /// Returns the time since `earlier`, or zero if `earlier` is in the future.
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
