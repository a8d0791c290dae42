// SPDX-License-Identifier: Apache-2.0
//! A device as last read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// The state of a device.
    DeviceState {
        /// The device is unreachable, or has not been read since it became reachable.
        Unseen,
        /// The device is part of an open transaction.
        Moving,
        /// The light of the device is settling.
        Tuning,
        /// The device needs an operator.
        Attention,
        /// The device differs from the journal.
        Drifted,
        /// An end of the device receives light from the wrong port.
        Crossed,
        /// The device matches the journal.
        AsWanted,
    }
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DeviceStatus {
    /// Device name.
    pub name: String,
    /// Identity reported by the device.
    pub identity: String,
    /// Whether the daemon can communicate with it.
    pub up: bool,
    /// Why the device is unreachable.
    pub trouble: Option<String>,
    /// State: moving, settling, in its desired state, drifted, unseen and so on.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub state: DeviceState,
    /// Position by slot, as last read. Lit slots only.
    pub slots: BTreeMap<String, u32>,
    /// Output power in dBm by slot, where measured.
    pub power_dbm: BTreeMap<String, f64>,
    /// Sender of the light that each slot receives, such as `n17/b0.2`, if identified by the
    /// device.
    pub neighbours: BTreeMap<String, String>,
    /// Slots that differ from the journal.
    pub drift: Vec<DriftedSlot>,
    /// Slots that were lit by a probe and are not part of a circuit.
    pub probed: Vec<u32>,
}

/// A slot whose position differs from the journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DriftedSlot {
    /// Device name.
    pub device: String,
    /// Slot number.
    pub slot: u32,
    /// Journalled position, 0 for dark.
    pub ledger: u32,
    /// Position read from the device.
    pub device_says: u32,
}

/// An end that receives light from a different port than in the fabric file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct CrossedEnd {
    /// The receiving end, such as `n17/b0.2`.
    pub end: String,
    /// The port whose light arrives.
    pub lit_by: String,
    /// The port whose light should arrive.
    pub should_be: String,
}
