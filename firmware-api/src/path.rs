// SPDX-License-Identifier: Apache-2.0
//! Paths of switch groups, and outcomes of switching operations.
//!
//! A *group* is the set of lanes that one switch element switches together; an OCSTrx has one group. A *path*
//! determines the destination of a group's light: dark, an external fibre, or loopback into the module. Codes
//! match page B0h (docs/firmware-api.md).

use core::fmt;

use crate::wire::{coded, codes, fields};

/// Maximum number of switch groups: one per lane of a bank.
pub const GROUPS_MAX: usize = 8;

/// Maximum number of external paths: one per power tap of page B0h.
pub const EXTERNAL_PATHS_MAX: u8 = 8;

/// The path of one group.
///
/// ```
/// use lightloom_firmware_api::path::Path;
/// assert_eq!(Path::external(1).map(Path::code), Some(1));
/// assert_eq!(Path::from_code(15), Some(Path::LOOPBACK));
/// assert_eq!(Path::from_code(16), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(u8);

impl Path {
    /// The dark path: light does not leave the module.
    pub const DARK: Self = Self(0);
    /// The loopback path: light returns to the same module.
    pub const LOOPBACK: Self = Self(15);

    /// Path to external fibre `number`, 1 to [`EXTERNAL_PATHS_MAX`].
    pub const fn external(number: u8) -> Option<Self> {
        if number >= 1 && number <= EXTERNAL_PATHS_MAX { Some(Self(number)) } else { None }
    }

    /// Returns `None` for an undefined code.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 | 15 => Some(Self(code)),
            _ => Self::external(code),
        }
    }

    /// Returns 0 for dark, 1 to 8 for external, 15 for loopback.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the number of the external fibre, or `None` for other paths.
    pub const fn external_number(self) -> Option<u8> {
        if self.0 >= 1 && self.0 <= EXTERNAL_PATHS_MAX { Some(self.0) } else { None }
    }
}

coded!(Path);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::DARK => f.write_str("dark"),
            Self::LOOPBACK => f.write_str("loopback"),
            Self(number) => write!(f, "external-{number}"),
        }
    }
}

/// One path per group; [`Path::DARK`] for groups that do not exist.
pub type Paths = [Path; GROUPS_MAX];

/// A set of groups; bit n is group n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Groups(pub u8);

fields!(Groups { 0 });

impl Groups {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The first `count` groups.
    pub const fn first(count: u8) -> Self {
        if count >= 8 { Self(0xff) } else { Self((1 << count) - 1) }
    }

    /// Returns whether the set contains `group`.
    pub const fn contains(self, group: usize) -> bool {
        group < GROUPS_MAX && self.0 >> group & 1 == 1
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the set without `group`.
    #[must_use]
    pub const fn without(self, group: usize) -> Self {
        Self(self.0 & !(1 << group))
    }

    /// Returns the set with `group` added.
    #[must_use]
    pub const fn with(self, group: usize) -> Self {
        Self(self.0 | 1 << group)
    }

    /// Returns the group numbers, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..GROUPS_MAX).filter(move |&group| self.contains(group))
    }
}

codes! {
    /// Required data-path state when a group is switched, as in B0h:216.
    #[derive(Default)]
    DataPathPolicy {
        /// Every data path must be Deactivated, so that hosts without support for paths see a normal
        /// re-initialisation. This policy is the default.
        #[default]
        RequireDeactivated = 0,
        /// The module mutes its transmitters while it switches.
        MuteTransmit = 1,
        /// The transmitters stay on while the module switches.
        Hot = 2,
    }
}

codes! {
    /// Outcome for a group. Codes 0 to 6 match CMIS page 6Dh; codes from 128 are defined by this project.
    #[derive(Default)]
    GroupOutcome {
        /// The group was not part of the request.
        #[default]
        None = 0,
        /// The group is armed, or on the target path.
        Success = 1,
        /// The group is switching.
        InProgress = 2,
        /// The request was rejected for now: the dwell time has not passed, or the module is not ready.
        Rejected = 3,
        /// The target path does not exist.
        Invalid = 4,
        /// The policy forbids switching while a data path is active.
        InconsistentWithDataPath = 5,
        /// The required order of switches is not supported.
        OrderingUnsupported = 6,
        /// The light is not on the target path.
        HardwareFault = 128,
        /// The light did not settle within the maximum commit time.
        SettleTimeout = 129,
        /// The light is on the target path, but its power is below the threshold.
        PowerLow = 130,
    }
}

/// One outcome per group.
pub type Outcomes = [GroupOutcome; GROUPS_MAX];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_round_trips_or_is_undefined() {
        for code in 0..=255 {
            assert!(Path::from_code(code).is_none_or(|path| path.code() == code));
            assert!(GroupOutcome::from_code(code).is_none_or(|outcome| outcome.code() == code));
            assert!(DataPathPolicy::from_code(code).is_none_or(|policy| policy.code() == code));
        }
        assert_eq!((0..=255).filter(|&code| Path::from_code(code).is_some()).count(), 10);
        assert_eq!((0..=255).filter(|&code| GroupOutcome::from_code(code).is_some()).count(), 10);
    }

    #[test]
    fn groups_are_a_set() {
        let groups = Groups::NONE.with(0).with(3);
        assert!(groups.contains(3) && !groups.contains(1) && !groups.contains(8));
        assert!(groups.iter().eq([0, 3]));
        assert!(groups.without(0).without(3).is_empty());
        assert_eq!(Groups::first(8), Groups(0xff));
        assert_eq!(Groups::first(1), Groups(1));
    }
}
