// SPDX-License-Identifier: Apache-2.0
//! The audit log: an append-only, hash-chained file that records all requests, including refused ones. Clients cannot
//! fill the disk with it, because lines have a maximum length and refusals above a rate limit are only counted. The
//! daemon logs a change before it responds, and refuses changes while the log cannot be written.

pub mod key;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::file_storage::FileStorage;
use crate::journal::{Journal, JournalError};
use crate::rate::{Allowance, CLIENTS_MAX, OTHERS, Rates};
use lightloom_control::state::Now;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub unix_ms: u64,
    pub actor: String,
    pub verb: String,
    pub request: String,
    pub digest: String,
    pub result: String,
}

const NAME_BYTES_MAX: usize = 128;
const RESULT_BYTES_MAX: usize = 512;
const REFUSALS_OF_EACH: Allowance = Allowance { burst: 60, per_second: 1 };
/// At 1.5 KB per line this is less than 0.7 MB per minute.
const REFUSALS_OF_ALL: Allowance = Allowance { burst: 200, per_second: 4 };
const NOT_LISTED: &str = "not-listed";

impl Entry {
    fn short(&self) -> Self {
        Self {
            unix_ms: self.unix_ms,
            actor: short(&self.actor, NAME_BYTES_MAX),
            verb: short(&self.verb, NAME_BYTES_MAX),
            request: short(&self.request, NAME_BYTES_MAX),
            digest: short(&self.digest, NAME_BYTES_MAX),
            result: short(&self.result, RESULT_BYTES_MAX),
        }
    }
}

fn short(text: &str, most: usize) -> String {
    match text.len() <= most {
        true => text.to_owned(),
        false => {
            let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            format!("{}… ({} bytes in total)", &text[..end], text.len())
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct NotListed {
    count: u64,
    since_ms: u64,
    until_ms: u64,
}

#[derive(Clone)]
pub struct Audit(Arc<Mutex<Lines>>);

struct Lines {
    journal: Journal<Entry, FileStorage>,
    rates: Rates,
    not_listed: BTreeMap<String, NotListed>,
}

impl Audit {
    pub fn new(journal: Journal<Entry, FileStorage>) -> Self {
        let rates = Rates::new(REFUSALS_OF_EACH, REFUSALS_OF_ALL);
        Self(Arc::new(Mutex::new(Lines { journal, rates, not_listed: BTreeMap::new() })))
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self, entry: &Entry) -> Result<(), JournalError> {
        self.lines().journal.append([&entry.short()]).map(|_| ())
    }

    pub fn write_refusal(&self, now: &Now, entry: &Entry) {
        let mut lines = self.lines();
        // When the disk is full, only changes may use the reserved space.
        let listed = lines.journal.short_of_space().is_none()
            && lines.rates.take(&entry.actor, now.mono)
            && lines.journal.append([&entry.short()]).is_ok();
        if !listed {
            lines.count(entry);
        }
    }

    pub fn write_counts(&self, now: &Now) {
        let mut lines = self.lines();
        let entries: Vec<Entry> =
            lines.not_listed.iter().map(|(actor, counted)| counted.entry(actor, now)).collect();
        let full = lines.journal.short_of_space().is_some();
        if !full && !entries.is_empty() && lines.journal.append(&entries).is_ok() {
            lines.not_listed.clear();
        }
    }

    pub fn mend(&self) {
        let mut lines = self.lines();
        if lines.journal.failure().is_some() && lines.journal.reopen().is_ok() {
            tracing::info!("the audit log accepts entries again");
        }
        if lines.journal.short_of_space().is_some() {
            let _still_full = lines.journal.set_aside();
        }
    }

    pub fn short_of_space(&self) -> Option<String> {
        self.lines().journal.short_of_space()
    }

    pub fn failure(&self) -> Option<String> {
        self.lines().journal.failure().map(str::to_owned)
    }
}

impl Lines {
    fn count(&mut self, entry: &Entry) {
        let actor = short(&entry.actor, NAME_BYTES_MAX);
        let known = self.not_listed.contains_key(&actor);
        let by_name = known || self.not_listed.len() < CLIENTS_MAX;
        let actor = if by_name { actor } else { OTHERS.into() };
        let (since_ms, until_ms) = (entry.unix_ms, entry.unix_ms);
        let first = NotListed { count: 0, since_ms, until_ms };
        let counted = self.not_listed.entry(actor).or_insert(first);
        counted.count = counted.count.saturating_add(1);
        counted.until_ms = until_ms;
    }
}

impl NotListed {
    fn entry(&self, actor: &str, now: &Now) -> Entry {
        let Self { count, since_ms, until_ms } = self;
        Entry {
            unix_ms: now.wall_ms,
            actor: actor.to_owned(),
            verb: NOT_LISTED.into(),
            result: format!(
                "{count} refused requests between {since_ms} and {until_ms} ms Unix time were not \
                    logged individually"
            ),
            ..Entry::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::read_all;
    use lightloom_control::state::Micros;

    fn audit(folder: &std::path::Path) -> Audit {
        let storage = FileStorage::open(&folder.join("audit.log")).unwrap();
        Audit::new(Journal::open(storage).unwrap().0)
    }

    fn lines(folder: &std::path::Path) -> (usize, Vec<Entry>) {
        let bytes = std::fs::read(folder.join("audit.log")).unwrap();
        let (entries, _, damage) = read_all::<Entry>(&bytes);
        assert!(damage.is_none());
        (bytes.len(), entries)
    }

    fn refused(actor: &str, result: String) -> Entry {
        Entry { actor: actor.into(), verb: "apply".into(), result, ..Entry::default() }
    }

    fn at(seconds: u64) -> Now {
        let (mono, wall_ms) = (Micros::from_secs(seconds), seconds * 1000);
        Now { mono, wall_ms, boot: String::new() }
    }

    #[test]
    fn request_of_40_mb_leaves_an_audit_line_below_2_kib() {
        let folder = tempfile::tempdir().unwrap();
        let audit = audit(folder.path());
        let long = "ä".repeat(20_000_000);
        let (actor, request) = (long.clone(), long.clone());
        let entry = Entry { actor, request, result: long, ..Entry::default() };
        audit.write(&entry).unwrap();
        let (bytes, entries) = lines(folder.path());
        assert!(bytes < 2048, "{bytes}");
        assert!(
            entries[0].result.ends_with("… (40000000 bytes in total)"),
            "{}",
            entries[0].result
        );
    }

    #[test]
    fn counts_a_long_client_name_among_many_clients() {
        let folder = tempfile::tempdir().unwrap();
        let audit = audit(folder.path());
        let long = "x".repeat(200);
        for _ in 0..5 {
            audit.lines().count(&refused(&long, String::new()));
            for client in 0..CLIENTS_MAX {
                audit.lines().count(&refused(&format!("client {client}"), String::new()));
            }
        }
        let counted =
            audit.lines().not_listed.get(&short(&long, NAME_BYTES_MAX)).map(|of| of.count);
        assert_eq!(counted, Some(5));
    }

    #[test]
    fn endless_refusals_stay_below_a_megabyte_a_minute_and_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let audit = audit(folder.path());
        let mut asked = 0_u64;
        for second in 0..60 {
            for client in 0..6 {
                for _ in 0..200 {
                    asked += 1;
                    let long = "x".repeat(5000);
                    audit.write_refusal(&at(second), &refused(&format!("client {client}"), long));
                }
            }
            if second % 10 == 0 {
                audit.write_counts(&at(second));
            }
        }
        audit.write_counts(&at(60));
        let (bytes, entries) = lines(folder.path());
        assert!(bytes < 1 << 20, "{bytes}");
        let count = |entry: &Entry| match entry.verb.as_str() {
            NOT_LISTED => entry.result.split(' ').next().unwrap().parse::<u64>().unwrap(),
            _ => 1,
        };
        assert_eq!(entries.iter().map(count).sum::<u64>(), asked);
        let listed = entries.iter().filter(|entry| entry.verb == "apply").count();
        assert!(listed >= 200, "{listed}");
    }
}
