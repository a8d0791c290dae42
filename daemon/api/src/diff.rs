// SPDX-License-Identifier: Apache-2.0
//! Preview of a change: all moves, and the bytes sent to each device.

use serde::{Deserialize, Serialize};

use crate::circuit::CircuitCounts;
use crate::device::CrossedEnd;
use crate::status::BrokenPart;

/// The effect of an apply or rollback, computed without executing it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Diff {
    /// Version of the state that the preview is based on.
    pub version: u64,
    /// Text that confirms mode overwrite.
    pub confirmation: String,
    /// Transactions that a rollback undoes, newest first. Otherwise empty.
    pub undoes: Vec<OtherChange>,
    /// Transactions that had been undone and take effect again.
    pub restores: Vec<OtherChange>,
    /// Digest of the plan in force afterwards; empty if none remains.
    pub plan_sha256: String,
    /// Whether a plan is in force now, but will not be afterwards.
    pub no_plan_after: bool,
    /// Number of circuits that are up before and after the change, if the daemon knows the cabling.
    pub circuits: Option<CircuitCounts>,
    /// Ends of the moving devices that receive light from the wrong port (crossed cables).
    pub crossed: Vec<CrossedEnd>,
    /// The moves.
    pub moves: Vec<MoveView>,
    /// Number of waves.
    pub waves: usize,
    /// The phase, for a plan with phases whose stages determine the waves; otherwise empty.
    pub phase: String,
    /// Largest number of links that are dark at the same time.
    pub dark_links_max: usize,
    /// Known faults after the change, which the plan bypasses.
    pub broken: Vec<BrokenPart>,
    /// Known faults that are treated as repaired after the change.
    pub forgets: Vec<BrokenPart>,
    /// The exact bytes per device in order, escaped as text.
    pub bytes: Vec<DeviceBytes>,
}

/// An earlier transaction that a rollback affects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct OtherChange {
    /// Transaction number.
    pub txn: u32,
    /// Client that requested it.
    pub actor: String,
    /// Description of the effect, such as the applied plan or the bypassed parts.
    pub summary: String,
}

/// The change of one slot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct MoveView {
    /// Device name.
    pub device: String,
    /// Slot number.
    pub slot: u32,
    /// Current position, 0 for dark.
    pub from: u32,
    /// New position.
    pub to: u32,
    /// Number of the wave, from 1.
    pub wave: usize,
    /// Failure domain that limits the number of links that are dark at the same time.
    pub domain: String,
    /// The two ends of the circuit that this move interrupts. `None` if there is no circuit, for
    /// example if a transceiver is in loopback.
    pub goes_dark: Option<String>,
    /// Whether that circuit carries light now, as far as the daemon knows.
    pub cuts_light: bool,
    /// The circuit that this move completes together with the move at the other end.
    pub comes_up: Option<String>,
    /// Time limit for the reply to each command, in ps.
    pub answer_within_ps: u64,
}

/// Bytes that a device would receive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DeviceBytes {
    /// Device name.
    pub device: String,
    /// The requests in order, as text if printable, otherwise in hex.
    pub requests: Vec<String>,
    /// Why the bytes cannot be determined.
    pub trouble: Option<String>,
}
