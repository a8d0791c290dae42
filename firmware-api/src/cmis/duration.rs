// SPDX-License-Identifier: Apache-2.0
//! Duration codes, which are upper bounds of transition times, one nibble each.

use super::field::Coded;
use crate::time::Micros;

/// Bounds for codes 0 to 12, in milliseconds.
const BOUNDS_MS: [u64; 13] =
    [1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 60_000, 300_000, 600_000, 3_000_000];

/// A duration code. Codes 0 to 12 are upper bounds; 13 means "50 minutes or more".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(u8);

impl Duration {
    /// Returns the smallest bound of at least `span`.
    pub fn holding(span: Micros) -> Self {
        let code = BOUNDS_MS.iter().position(|&bound| span <= Micros::from_millis(bound));
        Self(code.unwrap_or(BOUNDS_MS.len()) as u8)
    }

    /// Returns `None` for "50 minutes or more".
    pub fn bound(self) -> Option<Micros> {
        BOUNDS_MS.get(usize::from(self.0)).map(|&bound| Micros::from_millis(bound))
    }
}

impl Coded for Duration {
    fn from_code(code: u8) -> Option<Self> {
        (code <= 13).then_some(Self(code))
    }
    fn code(self) -> u8 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_give_the_published_bounds() {
        let bound = |code| Duration::from_code(code).and_then(Duration::bound);
        assert_eq!(bound(0), Some(Micros::from_millis(1)));
        assert_eq!(bound(3), Some(Micros::from_millis(50)));
        assert_eq!(bound(7), Some(Micros::from_millis(5_000)));
        assert_eq!(bound(9), Some(Micros::from_millis(60_000)));
        assert_eq!(bound(12), Some(Micros::from_millis(50 * 60_000)));
        assert_eq!(bound(13), None);
        assert_eq!(Duration::from_code(14), None);
        assert_eq!(Duration::from_code(15), None);
    }

    #[test]
    fn advertises_the_smallest_sufficient_bound() {
        for (micros, code) in [(0, 0), (1_000, 0), (1_001, 1), (80_000, 4), (u64::MAX, 13)] {
            assert_eq!(Duration::holding(Micros(micros)).code(), code);
        }
    }
}
