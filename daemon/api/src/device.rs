// SPDX-License-Identifier: Apache-2.0
//! One device as it was last read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// How a device is.
    DeviceState {
        /// It cannot be talked to, or has not been read since it can.
        Unseen,
        /// A transaction under way names it.
        Moving,
        /// Its light settles.
        Tuning,
        /// An operator has to look at it.
        Attention,
        /// It differs from the journal.
        Drifted,
        /// An end of it is lit by another than the fabric says.
        Crossed,
        /// It is as the journal says.
        AsWanted,
    }
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DeviceStatus {
    /// Its name.
    pub name: String,
    /// Who it says it is.
    pub identity: String,
    /// Whether it can be talked to.
    pub up: bool,
    /// Why not.
    pub trouble: Option<String>,
    /// Whether its light is on a transaction's way, settling, as wanted, or lost sight of.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub state: DeviceState,
    /// Slot to position, as last read. Lit slots only.
    pub slots: BTreeMap<String, u32>,
    /// Output power in dBm by slot, where measured.
    pub power_dbm: BTreeMap<String, f64>,
    /// Who sends the light that arrives, by slot, where the device can tell: `n17/b0.2`.
    pub neighbours: BTreeMap<String, String>,
    /// Slots that stand elsewhere than the ledger says.
    pub drift: Vec<DriftedSlot>,
    /// Slots that a probe lit: they carry no circuit.
    pub probed: Vec<u32>,
}

/// A slot in three columns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DriftedSlot {
    /// The device.
    pub device: String,
    /// The slot.
    pub slot: u32,
    /// Where the ledger says it stands, 0 dark.
    pub ledger: u32,
    /// Where it was read.
    pub device_says: u32,
}

/// An end that is lit by another than the fabric says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct CrossedEnd {
    /// Who sees it, such as `n17/b0.2`.
    pub end: String,
    /// Whose light arrives.
    pub lit_by: String,
    /// Whose light should.
    pub should_be: String,
}
