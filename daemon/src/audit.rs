//! Who asked for what: an append-only, hash-chained file of its own, written before the answer goes
//! out. Requests that were refused for want of a role are in it too.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::file_storage::FileStorage;
use crate::journal::{Journal, JournalError};

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Unix time in milliseconds.
    pub unix_ms: u64,
    /// Who.
    pub actor: String,
    /// Which verb.
    pub verb: String,
    /// The client's request id.
    pub request: String,
    /// SHA-256 of what was asked.
    pub digest: String,
    /// What was answered.
    pub result: String,
}

/// The audit log.
#[derive(Clone)]
pub struct Audit(Arc<Mutex<Journal<Entry, FileStorage>>>);

impl Audit {
    /// Over an open journal.
    #[must_use]
    pub fn new(journal: Journal<Entry, FileStorage>) -> Self {
        Self(Arc::new(Mutex::new(journal)))
    }

    /// Adds an entry, durably.
    ///
    /// # Errors
    /// When that cannot be promised.
    pub fn write(&self, entry: &Entry) -> Result<(), JournalError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).append([entry])
    }
}
