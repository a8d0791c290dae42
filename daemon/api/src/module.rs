// SPDX-License-Identifier: Apache-2.0
//! Identity and readings of a transceiver.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// The state of a module (CMIS module state machine).
    ModuleState {
        /// Low power, no light.
        LowPower,
        /// Powering up.
        PowerUp,
        /// Ready to send light.
        Ready,
        /// Powering down.
        PowerDown,
        /// A fault is latched.
        Fault,
        /// A state that CMIS does not define.
        Unknown,
    }
}

/// Identity and readings of a transceiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ModuleView {
    /// Device name.
    pub device: String,
    /// Vendor name.
    pub vendor: String,
    /// Part number.
    pub part: String,
    /// Serial number.
    pub serial: String,
    /// Version of the running firmware.
    pub firmware: String,
    /// CMIS revision.
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
    /// Number of completed path switches since power-on.
    pub generation: u32,
    /// Number of restarts since manufacture, modulo 65,536.
    pub boots: u16,
    /// Lanes, from 1, whose applied configuration has not been initialised yet (CMIS page 11h, byte 235).
    /// `None` if the module's CMIS revision does not define it.
    pub init_pending_lanes: Option<Vec<u8>>,
    /// Its switch groups.
    pub groups: Vec<GroupView>,
    /// Register contents in hex, by half, page and first offset.
    pub registers: BTreeMap<String, String>,
}

/// A switch group of a transceiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct GroupView {
    /// Current path: external-1, loopback, dark.
    pub lit: String,
    /// Path after power-on.
    pub at_power_on: String,
}
