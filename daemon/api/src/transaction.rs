// SPDX-License-Identifier: Apache-2.0
//! Changes in progress and past changes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::device::CrossedEnd;
use crate::words::words;

words! {
    /// The kind of change that a transaction makes.
    Kind {
        /// Apply a plan or circuits.
        Apply,
        /// Switch to another phase of the plan in force.
        Phase,
        /// Roll back earlier changes on an operator's request.
        Rollback,
        /// Roll back a change that was not confirmed in time.
        ConfirmTimeout,
        /// Bypass faults.
        Bypass,
        /// Use repaired parts again.
        Repair,
        /// Restore positions that were changed outside the daemon.
        Drift,
        /// Complete a deferred change of a device that responds again.
        Deferred,
        /// Light unused ends to find out which ports they are connected to.
        Probe,
    }
}

words! {
    /// The result of a transaction.
    TransactionResult {
        /// Every device is at the target.
        Committed,
        /// Every device is back in its previous state.
        RolledBack,
        /// Nothing moved.
        Aborted,
        /// Some devices are in neither state and need an operator.
        Partial,
        /// A later transaction reverted it.
        Undone,
    }
}

words! {
    /// The result of a transaction, including whether a committed one is permanent.
    TransactionState {
        /// Every device is at the target.
        Committed,
        /// Committed, but rolled back unless confirmed in time.
        ConfirmPending,
        /// Committed and confirmed.
        Confirmed,
        /// Every device is back in its previous state.
        RolledBack,
        /// Nothing moved.
        Aborted,
        /// Some devices are in neither state and need an operator.
        Partial,
        /// A later transaction reverted it.
        Undone,
    }
}

words! {
    /// The outcome of a transaction on one device.
    DeviceVerdict {
        /// The device is at the target, read back and qualified.
        Applied,
        /// No switching command was sent.
        Untouched,
        /// The device refused.
        Refused,
        /// The device did not reach the target, or its light does not qualify.
        Failed,
        /// The device could not be read, so its position is unknown.
        Unknown,
        /// The device returned from the target to its previous state, read back and qualified.
        RolledBack,
    }
}

/// An open transaction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct OpenTransaction {
    /// Transaction number.
    pub txn: u32,
    /// Client that requested it.
    pub actor: String,
    /// Cause: apply, bypass, repair, rollback to before 2.
    pub cause: String,
    /// Kind of change.
    pub kind: Kind,
    /// Description of the effect, such as the applied plan, bypassed parts or restored state.
    pub summary: String,
    /// The transaction that it undoes, with all later ones.
    pub undoes: Option<u32>,
    /// Whether it is being rolled back.
    pub going_back: bool,
    /// Number of devices involved.
    pub devices: usize,
    /// Unreachable devices that the transaction waits for, with the remaining time in ps.
    pub waits_for_ps: BTreeMap<String, u64>,
}

/// A pending confirmation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct PendingConfirm {
    /// Transaction number.
    pub txn: u32,
    /// Seconds until it is rolled back.
    pub seconds_left: f64,
    /// The same in ps.
    pub left_ps: u64,
    /// Deadline in Unix milliseconds, by the current system clock.
    pub until_unix_ms: u64,
}

/// A completed transaction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Transaction {
    /// Transaction number.
    pub txn: u32,
    /// Client that requested it.
    pub actor: String,
    /// Cause: apply, bypass, repair, rollback to before 2.
    pub cause: String,
    /// Kind of change.
    pub kind: Kind,
    /// Description of the effect, such as the applied plan, bypassed parts or restored state.
    pub summary: String,
    /// Digest of the plan.
    pub plan_sha256: String,
    /// Start time, Unix time in milliseconds.
    pub unix_ms: u64,
    /// Result: committed, rolled-back, aborted, partial, or undone by a later transaction.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub result: TransactionResult,
    /// The result. For a committed transaction, it shows whether the change is confirmed.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub state: TransactionState,
    /// Deadline for the confirmation, Unix time in milliseconds.
    pub confirm_until_unix_ms: Option<u64>,
    /// The transaction that reverted it.
    pub undone_by: Option<u32>,
    /// Parts that it newly bypasses.
    pub broken: Vec<String>,
    /// Parts that it no longer bypasses.
    pub repaired: Vec<String>,
    /// Ends that receive light from the wrong port. Only for the last transaction.
    pub crossed: Vec<CrossedEnd>,
    /// Devices that must respond before a retry, if they caused the last transaction to abort.
    pub when_known: Vec<String>,
    /// Outcome per device, those with a detail first.
    pub devices: Vec<DeviceResult>,
}

/// The outcome of a transaction on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DeviceResult {
    /// Device name.
    pub device: String,
    /// applied, untouched, refused, failed, unknown, rolled-back.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub verdict: DeviceVerdict,
    /// Reason.
    pub detail: String,
    /// Whether the device executed its commands, but receives no light from another device.
    pub unlit: bool,
}
