// SPDX-License-Identifier: Apache-2.0
//! The journal's file, record by record.

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// What a record of the journal is.
    RecordKind {
        /// The daemon started.
        Started,
        /// All that was known, so that older records can go.
        Snapshot,
        /// A plan that changes name from here on.
        Plan,
        /// An operator reported broken parts.
        Reported,
        /// The audit log has a key.
        AuditKey,
        /// A job has a lease, or gave it up.
        Leased,
        /// A transaction, before its first byte.
        Intent,
        /// A wave of it, before its first byte.
        Fire,
        /// It goes back.
        Turn,
        /// It is over.
        End,
        /// It stays.
        Confirmed,
        /// What devices have was taken as ours.
        Adopted,
        /// An operator holds traffic off, or lets it back.
        Held,
        /// The daemon changes things without being asked again.
        Resumed,
    }
}

/// The journal's file, record by record, as far as it can be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Log {
    /// How many records can be read.
    pub readable: u64,
    /// The last of them, oldest first.
    pub records: Vec<LogRecord>,
    /// Where the damage begins, if there is any.
    pub damage: Option<JournalDamage>,
}

/// One record of the journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LogRecord {
    /// Its line, from 1.
    pub line: u64,
    /// When, Unix time in milliseconds; nothing in journals that did not write it down.
    pub unix_ms: Option<u64>,
    /// What: started, snapshot, plan, reported, audit-key, leased, intent, fire, turn, end, confirmed, adopted, held,
    /// resumed.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub what: RecordKind,
    /// Of which transaction.
    pub txn: Option<u32>,
    /// Who asked.
    pub actor: Option<String>,
    /// In words: why, or how it ended.
    pub detail: String,
    /// The devices it speaks of.
    pub parts: Vec<String>,
}

/// Where a journal is damaged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct JournalDamage {
    /// The file.
    pub file: String,
    /// Records before the damage, all of them good.
    pub readable: u64,
    /// The line at which it begins, from 1.
    pub line: u64,
    /// The byte at which that line begins, from 0.
    pub byte: u64,
    /// What is wrong there.
    pub reason: String,
    /// What a person can do.
    pub what_to_do: String,
}
