// SPDX-License-Identifier: Apache-2.0
//! Differences from the journal.

use serde::{Deserialize, Serialize};

use crate::device::{CrossedEnd, DriftedSlot};
use crate::log::JournalDamage;

/// A report of slots that differ from the journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DriftReport {
    /// The slots that differ.
    pub slots: Vec<DriftedSlot>,
    /// Whether all devices were read and the journal is intact. Otherwise slots may be missing.
    pub complete: bool,
    /// Ends that receive light from the wrong port.
    pub crossed: Vec<CrossedEnd>,
    /// Devices that could not be read.
    pub unseen: Vec<String>,
    /// Damage that makes the journal untrustworthy.
    pub journal_damage: Option<JournalDamage>,
}
