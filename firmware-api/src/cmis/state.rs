// SPDX-License-Identifier: Apache-2.0
//! States and results with register codes.

use crate::wire::codes;

codes! {
    /// Module state: LowPower → PowerUp → Ready → PowerDown → LowPower; Fault can follow any state.
    ModuleState {
        /// Only the management interface is active.
        LowPower = 1,
        /// The module is changing to full power.
        PowerUp = 2,
        /// The module has full power, and data paths can start.
        Ready = 3,
        /// The module is changing to low power.
        PowerDown = 4,
        /// Only a reset leaves this state.
        Fault = 5,
    }
}

codes! {
    /// State of a data path, shown for each lane.
    DataPathState {
        /// The data path is unused and can be configured.
        Deactivated = 1,
        /// The data path is starting.
        Init = 2,
        /// The data path is stopping.
        Deinit = 3,
        /// The data path carries traffic.
        Activated = 4,
        /// Transmitters are turning on.
        TxTurnOn = 5,
        /// Transmitters are turning off.
        TxTurnOff = 6,
        /// The data path is initialised, but its transmitters are off.
        Initialized = 7,
    }
}

codes! {
    /// Result of applying a staged configuration, per lane.
    ConfigStatus {
        /// No configuration has been applied yet.
        Undefined = 0,
        /// The configuration was accepted.
        Success = 1,
        /// The configuration was rejected without a specific reason.
        Rejected = 2,
        /// The application does not exist.
        BadAppSel = 3,
        /// The data path does not fit the application.
        BadDataPath = 4,
        /// The signal integrity settings are invalid.
        BadSignalIntegrity = 5,
        /// The lane is active, but the configuration would change it.
        LaneInUse = 6,
        /// The configuration was applied to only some lanes of a data path.
        PartialDataPath = 7,
        /// The configuration is being checked.
        InProgress = 12,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_codes_unchanged() {
        let data_paths = (0..16).filter_map(DataPathState::from_code);
        assert!(data_paths.map(DataPathState::code).eq(1..=7));
        assert!((0..16).filter_map(ModuleState::from_code).map(ModuleState::code).eq(1..=5));
        let configs = (0..16).filter_map(ConfigStatus::from_code).map(ConfigStatus::code);
        assert!(configs.eq([0, 1, 2, 3, 4, 5, 6, 7, 12]));
    }
}
