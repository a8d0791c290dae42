// SPDX-License-Identifier: Apache-2.0
//! What differs from the journal.

use serde::{Deserialize, Serialize};

use crate::device::{CrossedEnd, DriftedSlot};
use crate::log::JournalDamage;

/// What stands elsewhere than the ledger says, and how much of the fabric that answer speaks of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DriftReport {
    /// Slots that stand elsewhere.
    pub slots: Vec<DriftedSlot>,
    /// Whether every device was seen and the ledger can be trusted: only then no slots mean no drift.
    pub complete: bool,
    /// Ends that are lit by others than the fabric says.
    pub crossed: Vec<CrossedEnd>,
    /// Devices that cannot be spoken of.
    pub unseen: Vec<String>,
    /// Why the ledger cannot be trusted.
    pub journal_damage: Option<JournalDamage>,
}
