// SPDX-License-Identifier: Apache-2.0
//! What a change would do: every move, and the bytes.

use serde::{Deserialize, Serialize};

use crate::circuit::CircuitCounts;
use crate::device::CrossedEnd;
use crate::status::BrokenPart;

/// What an apply would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Diff {
    /// The version to apply it against.
    pub version: u64,
    /// What to type to confirm mode overwrite.
    pub confirmation: String,
    /// The transactions that it undoes, newest first; empty but for a rollback.
    pub undoes: Vec<OtherChange>,
    /// Those that had been undone and stand again after it.
    pub restores: Vec<OtherChange>,
    /// The plan that is on the devices once it is done; empty where none remains.
    pub plan_sha256: String,
    /// A plan is on the devices now and none once it is done.
    pub no_plan_after: bool,
    /// How many circuits stand before and after it, where the cabling is known.
    pub circuits: Option<CircuitCounts>,
    /// Ends of devices that move and are lit by others than the fabric says: crossed cables.
    pub crossed: Vec<CrossedEnd>,
    /// What moves.
    pub moves: Vec<MoveView>,
    /// In how many waves.
    pub waves: usize,
    /// The phase of a plan with phases, and whether its stages order the waves; else empty.
    pub phase: String,
    /// The most links dark at a time.
    pub dark_links_max: usize,
    /// What is known to be broken once it is done: the plan goes around it.
    pub broken: Vec<BrokenPart>,
    /// What is known to be broken now, and taken to work again once it is done.
    pub forgets: Vec<BrokenPart>,
    /// The very bytes, device by device in order, as text with escapes.
    pub bytes: Vec<DeviceBytes>,
}

/// A past transaction that a rollback speaks of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct OtherChange {
    /// Its number.
    pub txn: u32,
    /// Who asked.
    pub actor: String,
    /// In words: apply of which plan, bypass of what.
    pub summary: String,
}

/// One slot's change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct MoveView {
    /// The device.
    pub device: String,
    /// The slot.
    pub slot: u32,
    /// Where it stands, 0 dark.
    pub from: u32,
    /// Where it goes.
    pub to: u32,
    /// In which wave, from 1.
    pub wave: usize,
    /// Links of one failure domain are darkened together only so far.
    pub domain: String,
    /// The circuit that goes dark with it, by its two ends; none where nothing is lit between two
    /// devices, as for a transceiver that looks at itself.
    pub goes_dark: Option<String>,
    /// That circuit carries light now, for all that is known.
    pub cuts_light: bool,
    /// The circuit it becomes an end of.
    pub comes_up: Option<String>,
    /// Within how many picoseconds the device has to answer each command.
    pub answer_within_ps: u64,
}

/// What a device would be sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DeviceBytes {
    /// The device.
    pub device: String,
    /// Request after request; text where it is text, else hex.
    pub requests: Vec<String>,
    /// Why it cannot be said.
    pub trouble: Option<String>,
}
