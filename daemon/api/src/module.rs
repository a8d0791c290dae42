// SPDX-License-Identifier: Apache-2.0
//! What a transceiver says about itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// The state of a module (CMIS module state machine).
    ModuleState {
        /// It uses little power and sends no light.
        LowPower,
        /// It turns on.
        PowerUp,
        /// It can send light.
        Ready,
        /// It turns off.
        PowerDown,
        /// A fault is latched.
        Fault,
        /// It reports a state that CMIS does not name.
        Unknown,
    }
}

/// What a transceiver says about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ModuleView {
    /// The device.
    pub device: String,
    /// Vendor name.
    pub vendor: String,
    /// Part number.
    pub part: String,
    /// Serial number.
    pub serial: String,
    /// Version of the running firmware.
    pub firmware: String,
    /// Revision of CMIS.
    pub cmis: String,
    /// Layout of page B0h.
    pub layout: String,
    /// low-power, power-up, ready, power-down, fault.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub state: ModuleState,
    /// Temperature in degrees Celsius.
    pub temperature_c: f64,
    /// Supply voltage in volts.
    pub supply_v: f64,
    /// Completed switches since power-on.
    pub generation: u32,
    /// Restarts since manufacture, modulo 65,536.
    pub boots: u16,
    /// Its switch groups.
    pub groups: Vec<GroupView>,
    /// The registers as they were read, hexadecimal, by half, page and first offset.
    pub registers: BTreeMap<String, String>,
}

/// A switch group of a transceiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct GroupView {
    /// Where its light is: external-1, loopback, dark.
    pub lit: String,
    /// Where its light goes when power comes back.
    pub at_power_on: String,
}
