// SPDX-License-Identifier: Apache-2.0
//! The records of the journal file.

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// The type of a journal record.
    RecordKind {
        /// The daemon started.
        Started,
        /// The complete state, which replaces older records.
        Snapshot,
        /// A plan that later changes refer to.
        Plan,
        /// An operator reported failed parts.
        Reported,
        /// The audit log has a key from now on.
        AuditKey,
        /// A job acquired or released a lease.
        Leased,
        /// A transaction, written before its first byte is sent.
        Intent,
        /// A wave of a transaction, written before its first byte is sent.
        Fire,
        /// The transaction is being rolled back.
        Turn,
        /// The transaction has ended.
        End,
        /// The change was confirmed.
        Confirmed,
        /// The current positions of devices were adopted.
        Adopted,
        /// An operator drained traffic or restored it.
        Held,
        /// Automatic changes are enabled again.
        Resumed,
    }
}

/// The records of the journal file up to the first damage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Log {
    /// Number of readable records.
    pub readable: u64,
    /// The last entries, oldest first.
    pub records: Vec<LogRecord>,
    /// Position of the damage, if any.
    pub damage: Option<JournalDamage>,
}

/// One record of the journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LogRecord {
    /// Line number, from 1.
    pub line: u64,
    /// Time of the record, Unix time in milliseconds. `None` in older journals without times.
    pub unix_ms: Option<u64>,
    /// Type: started, snapshot, plan, reported, audit-key, leased, intent, fire, turn, end,
    /// confirmed, adopted, held, resumed.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub what: RecordKind,
    /// Transaction that the record belongs to.
    pub txn: Option<u32>,
    /// Client that requested it.
    pub actor: Option<String>,
    /// Reason or result as text.
    pub detail: String,
    /// Devices in the record.
    pub parts: Vec<String>,
}

/// Location of damage in the journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct JournalDamage {
    /// Path of the file.
    pub file: String,
    /// Number of intact records before the damage.
    pub readable: u64,
    /// Line of the damage, from 1.
    pub line: u64,
    /// Byte offset of that line, from 0.
    pub byte: u64,
    /// Description of the damage.
    pub reason: String,
    /// Remedy for the operator.
    pub what_to_do: String,
}
