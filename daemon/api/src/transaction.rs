// SPDX-License-Identifier: Apache-2.0
//! Changes: the one under way, and those that are over.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::device::CrossedEnd;
use crate::words::words;

words! {
    /// What kind of change a transaction is.
    Kind {
        /// A plan or circuits.
        Apply,
        /// The next phase of the plan on the devices.
        Phase,
        /// An operator undoes changes.
        Rollback,
        /// A change that was not confirmed in time is undone.
        ConfirmTimeout,
        /// Around what is broken.
        Bypass,
        /// Parts that work again are used again.
        Repair,
        /// What somebody else moved is put back.
        Drift,
        /// A device that answers again gets what it missed.
        Deferred,
        /// Ends without a circuit were lit to see what they are joined with.
        Probe,
    }
}

words! {
    /// How a transaction ended as a whole.
    TransactionResult {
        /// Every device is at the target.
        Committed,
        /// Every device is back where it was.
        RolledBack,
        /// Nothing moved.
        Aborted,
        /// Some devices are elsewhere, and an operator has to look.
        Partial,
        /// A later transaction took it back.
        Undone,
    }
}

words! {
    /// How a transaction ended, and for a committed one whether it stays.
    TransactionState {
        /// Every device is at the target.
        Committed,
        /// The same, and it is undone unless it is confirmed in time.
        ConfirmPending,
        /// The same, and it was confirmed.
        Confirmed,
        /// Every device is back where it was.
        RolledBack,
        /// Nothing moved.
        Aborted,
        /// Some devices are elsewhere, and an operator has to look.
        Partial,
        /// A later transaction took it back.
        Undone,
    }
}

words! {
    /// How one device came out of a transaction.
    DeviceVerdict {
        /// At the target, read back and qualified.
        Applied,
        /// Nothing was sent that moves light.
        Untouched,
        /// The device refused.
        Refused,
        /// It was tried, and the device is elsewhere or its light is not good.
        Failed,
        /// It could not be read: nothing is claimed.
        Unknown,
        /// It was at the target and has been brought back, read back and qualified.
        RolledBack,
    }
}

/// A transaction on its way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct OpenTransaction {
    /// Its number.
    pub txn: u32,
    /// Who asked.
    pub actor: String,
    /// Why: apply, bypass, repair, rollback to before 2.
    pub cause: String,
    /// The same without the transaction that it speaks of.
    pub kind: Kind,
    /// In words: apply of which plan, bypass of what, back to what.
    pub summary: String,
    /// The transaction that it undoes, with everything after that.
    pub undoes: Option<u32>,
    /// Whether it goes back.
    pub going_back: bool,
    /// How many devices it names.
    pub devices: usize,
    /// The devices that do not answer and are waited for, and how much longer at most, in picoseconds.
    pub waits_for_ps: BTreeMap<String, u64>,
}

/// A confirm that is waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct PendingConfirm {
    /// Of which transaction.
    pub txn: u32,
    /// Seconds until it is rolled back.
    pub seconds_left: f64,
    /// The same in whole picoseconds.
    pub left_ps: u64,
    /// When that is, Unix time in milliseconds by the clock as it stands now.
    pub until_unix_ms: u64,
}

/// A transaction that is over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Transaction {
    /// Its number.
    pub txn: u32,
    /// Who asked.
    pub actor: String,
    /// Why: apply, bypass, repair, rollback to before 2.
    pub cause: String,
    /// The same without the transaction that it speaks of.
    pub kind: Kind,
    /// In words: apply of which plan, bypass of what, back to what.
    pub summary: String,
    /// Which plan.
    pub plan_sha256: String,
    /// When it began, Unix time in milliseconds.
    pub unix_ms: u64,
    /// As a whole: committed, rolled-back, aborted, partial; undone when a later one took it back.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub result: TransactionResult,
    /// The same, and for what was committed whether it stays: confirm-pending, confirmed.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub state: TransactionState,
    /// When it is undone unless somebody confirms, Unix time in milliseconds.
    pub confirm_until_unix_ms: Option<u64>,
    /// The transaction that undid it.
    pub undone_by: Option<u32>,
    /// Parts that it goes around and its predecessor did not.
    pub broken: Vec<String>,
    /// Parts that its predecessor went around and it does not.
    pub repaired: Vec<String>,
    /// Of the last one: ends of its devices that are lit by others than the fabric says.
    pub crossed: Vec<CrossedEnd>,
    /// Of the last one, where it was aborted for devices that do not answer: when to ask again.
    pub when_known: Vec<String>,
    /// Device by device, those with something to say first.
    pub devices: Vec<DeviceResult>,
}

/// How one device came out of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DeviceResult {
    /// The device.
    pub device: String,
    /// applied, untouched, refused, failed, unknown, rolled-back.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub verdict: DeviceVerdict,
    /// Why.
    pub detail: String,
    /// It did as it was asked, and the light of another is missing at it.
    pub unlit: bool,
}
