// SPDX-License-Identifier: Apache-2.0
//! States and results that registers show as codes.

use super::field::Coded;
use crate::path::{DataPathPolicy, GroupOutcome, Path};

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $code:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }
        impl Coded for $name {
            fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)+
                    _ => None,
                }
            }
            fn code(self) -> u8 {
                match self {
                    $(Self::$variant => $code,)+
                }
            }
        }
    };
}

codes! {
    /// The module state machine: LowPower → PowerUp → Ready → PowerDown → LowPower; Fault from any.
    ModuleState {
        /// Management only.
        LowPower = 1,
        /// On the way to full power.
        PowerUp = 2,
        /// Full power; data paths may start.
        Ready = 3,
        /// On the way to low power.
        PowerDown = 4,
        /// Only a reset leaves it.
        Fault = 5,
    }
}

codes! {
    /// The state machine of one data path, shown for each of its lanes.
    DataPathState {
        /// Not in use; may be configured.
        Deactivated = 1,
        /// Starting.
        Init = 2,
        /// Stopping.
        Deinit = 3,
        /// Carries traffic.
        Activated = 4,
        /// Transmitters turning on.
        TxTurnOn = 5,
        /// Transmitters turning off.
        TxTurnOff = 6,
        /// Started, transmitters off.
        Initialized = 7,
    }
}

codes! {
    /// What became of a staged configuration, for each lane.
    ConfigStatus {
        /// Nothing was applied yet.
        Undefined = 0,
        /// Accepted.
        Success = 1,
        /// Refused, no reason given.
        Rejected = 2,
        /// The application does not exist.
        BadAppSel = 3,
        /// The data path does not fit the application.
        BadDataPath = 4,
        /// The signal integrity settings do not fit.
        BadSignalIntegrity = 5,
        /// The lane is active and would have to change.
        LaneInUse = 6,
        /// Only some lanes of a data path were applied.
        PartialDataPath = 7,
        /// Being checked.
        InProgress = 12,
    }
}

/// A path as a half-byte or byte of a register.
pub type PathCode = Path;

impl Coded for Path {
    fn from_code(code: u8) -> Option<Self> {
        Self::from_code(code)
    }
    fn code(self) -> u8 {
        Self::code(self)
    }
}

impl Coded for GroupOutcome {
    fn from_code(code: u8) -> Option<Self> {
        Self::from_code(code)
    }
    fn code(self) -> u8 {
        Self::code(self)
    }
}

impl Coded for DataPathPolicy {
    fn from_code(code: u8) -> Option<Self> {
        Self::from_code(code)
    }
    fn code(self) -> u8 {
        Self::code(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_unchanged() {
        let data_paths = (0..16).filter_map(DataPathState::from_code);
        assert!(data_paths.map(Coded::code).eq(1..=7));
        assert!((0..16).filter_map(ModuleState::from_code).map(Coded::code).eq(1..=5));
        let configs = (0..16).filter_map(ConfigStatus::from_code).map(Coded::code);
        assert!(configs.eq([0, 1, 2, 3, 4, 5, 6, 7, 12]));
    }
}
