// SPDX-License-Identifier: Apache-2.0
//! The write-ahead journal: a readable, append-only text file, compacted to the complete state.
//!
//! ```text
//!   <seq> <sha256 of the line before and this line's body> <body as JSON>\n
//! ```
//!
//! A `+` before the number means that all earlier lines were durable before this line was added, so
//! a missing line was lost later. With a key, the hash is an HMAC-SHA-256. A torn tail is removed
//! and reported. After any other damage, the journal refuses records.

mod chain;
mod storage;

use std::io;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use chain::Chain;
pub use chain::{Key, hex};
pub use storage::Storage;

/// Limits the time to read a damaged file.
pub const BODY_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub struct Proof(());

#[derive(Debug)]
pub struct Stored<T>(T);

impl<T> Stored<T> {
    pub fn by(_: &Proof, answer: T) -> Self {
        Self(answer)
    }

    pub fn into_inner(self) -> T {
        self.0
    }
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("the journal's storage: {0}")]
    Storage(#[from] io::Error),
    #[error("the journal failed earlier ({0}) and accepts no records until it is rewritten")]
    Poisoned(String),
    #[error("the disk is full ({0})")]
    Full(io::Error),
    #[error("{0}")]
    Lost(Damage),
    #[error("a record of {0} bytes exceeds the maximum length of a journal line")]
    TooLong(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("journal line {line}: {reason}; earlier lines are intact")]
pub struct Damage {
    /// Line number of the damage, from 1. Earlier lines are readable.
    pub line: usize,
    pub byte: usize,
    pub reason: String,
    pub is_newer: bool,
}

#[derive(Debug)]
pub struct Opened<R> {
    pub records: Vec<R>,
    pub torn_bytes: usize,
    /// Damage other than a torn tail. The records end before it, and new records are refused.
    pub damage: Option<Damage>,
    /// `None` without damage, because the first write then produces a proof.
    pub proof: Option<Proof>,
}

#[derive(Debug)]
pub struct Journal<R, S> {
    storage: S,
    chain: Chain,
    good: usize,
    /// `None` until the first sync, because a killed daemon may leave unsynced lines.
    durable: Option<(Chain, usize)>,
    damaged: bool,
    poisoned: Option<String>,
    kind: PhantomData<fn(R)>,
}

impl<R: Serialize + DeserializeOwned, S: Storage> Journal<R, S> {
    pub fn open(storage: S) -> Result<(Self, Opened<R>), JournalError> {
        Self::open_keyed(storage, None)
    }

    pub fn open_unread(storage: S) -> Self {
        let (chain, poisoned) = (Chain::new(None), Some("it was not read".into()));
        let (good, durable, damaged, kind) = (0, None, true, PhantomData);
        Self { storage, chain, good, durable, damaged, poisoned, kind }
    }

    pub fn open_keyed(mut storage: S, key: Option<Key>) -> Result<(Self, Opened<R>), JournalError> {
        let bytes = storage.load()?;
        let mut chain = Chain::new(key);
        let (records, good, mut damage) = read(&bytes, &mut chain);
        let missing = storage.missing().map(|reason| (records.len() + 1, reason));
        damage = damage.or(missing.map(|(line, reason)| Damage {
            line,
            byte: good,
            reason,
            is_newer: false,
        }));
        // Zeros at the end are reserved space that was never written.
        let written = good + without_zeros(&bytes[good..]).len();
        let torn_bytes = if damage.is_none() { written - good } else { 0 };
        if damage.is_none() && bytes.len() > good {
            storage.truncate(good as u64)?;
        }
        let poisoned = damage.as_ref().map(ToString::to_string);
        let damaged = damage.is_some();
        let (durable, kind) = (None, PhantomData);
        let journal = Self { storage, chain, good, durable, damaged, poisoned, kind };
        let proof = damaged.then_some(Proof(()));
        Ok((journal, Opened { records, torn_bytes, damage, proof }))
    }

    pub fn length(&self) -> u64 {
        self.chain.seq
    }

    pub fn keyed_from(&self) -> Option<u64> {
        self.chain.keyed_from
    }

    pub fn distrust(&mut self, reason: String) {
        (self.poisoned, self.damaged) = (Some(reason), true);
    }

    pub fn head(&self) -> &str {
        &self.chain.hash
    }

    pub fn restart<'a>(
        &mut self,
        first: impl IntoIterator<Item = &'a R>,
    ) -> Result<(), JournalError>
    where
        R: 'a,
    {
        if let Some(why) = &self.poisoned {
            return Err(JournalError::Poisoned(why.clone()));
        }
        let mut chain = Chain::new(self.chain.key.clone());
        let lines = encode(&mut chain, first, false)?;
        self.storage.replace(lines.as_bytes())?;
        (self.chain, self.good) = (chain, lines.len());
        self.mark_durable();
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        self.good
    }

    pub fn read_back(&mut self) -> Result<(Vec<R>, Proof), JournalError> {
        if self.durable.is_none() {
            let why = "records found at startup may not be durable";
            return Err(JournalError::Storage(io::Error::other(why)));
        }
        let bytes = self.storage.load()?;
        Ok((self.durable_of(&bytes)?.0, Proof(())))
    }

    /// Continues after a failure, and makes all records durable that can still be read. Unsynced
    /// records that are lost were never acknowledged.
    ///
    /// Fails with [`JournalError::Lost`] if durable lines have changed. A journal that was damaged
    /// when opened stays closed.
    pub fn reopen(&mut self) -> Result<(Vec<R>, Proof), JournalError> {
        if let Some(why) = self.poisoned.as_ref().filter(|_| self.damaged) {
            return Err(JournalError::Poisoned(why.clone()));
        }
        let bytes = self.storage.load()?;
        let (mut records, mut chain, durable) = self.durable_of(&bytes)?;
        let rest = &bytes[durable..self.good.clamp(durable, bytes.len())];
        let (later, more, damage) = read(rest, &mut chain);
        if let Some(damage) = damage.filter(|_| self.durable.is_none()) {
            return Err(JournalError::Lost(damage));
        }
        records.extend(later);
        (self.chain, self.good) = (chain, durable + more);
        let stored = match self.poisoned {
            Some(_) => self.storage.rewrite(&bytes[..self.good]),
            None => self.storage.sync(),
        };
        self.poison_on_error(stored)?;
        self.poisoned = None;
        self.mark_durable();
        Ok((records, Proof(())))
    }

    fn mark_durable(&mut self) {
        self.durable = Some((self.chain.clone(), self.good));
    }

    fn durable_of(&self, bytes: &[u8]) -> Result<(Vec<R>, Chain, usize), JournalError> {
        let mut chain = Chain::new(self.chain.key.clone());
        let Some((until, length)) = &self.durable else { return Ok((Vec::new(), chain, 0)) };
        let (records, byte, damage) = read(&bytes[..bytes.len().min(*length)], &mut chain);
        if byte == *length && chain.hash == until.hash {
            return Ok((records, chain, byte));
        }
        let reason = "durable records cannot be read back".to_owned();
        let line = records.len() + 1;
        Err(JournalError::Lost(damage.unwrap_or(Damage { line, byte, reason, is_newer: false })))
    }

    pub fn short_of_space(&self) -> Option<String> {
        self.storage.short_of_space()
    }

    pub fn set_aside(&mut self) -> Result<(), JournalError> {
        Ok(self.storage.set_aside()?)
    }

    pub fn untroubled(&mut self) -> Result<(), JournalError> {
        let trouble = self.storage.trouble().map_or(Ok(()), |why| Err(io::Error::other(why)));
        self.poison_on_error(trouble)
    }

    pub fn failure(&self) -> Option<&str> {
        self.poisoned.as_deref()
    }

    /// Makes the records durable with one sync. After an error, further records are refused.
    pub fn append<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a R>,
    ) -> Result<Proof, JournalError>
    where
        R: 'a,
    {
        self.append_leaving(records, None)
    }

    /// Appends records that start a change, if the disk has room for them and for `leave` more
    /// bytes to complete the change. On [`JournalError::Full`], the journal is unchanged.
    pub fn begin<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a R>,
        leave: u64,
    ) -> Result<Proof, JournalError>
    where
        R: 'a,
    {
        self.append_leaving(records, Some(leave))
    }

    fn append_leaving<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a R>,
        leave: Option<u64>,
    ) -> Result<Proof, JournalError>
    where
        R: 'a,
    {
        let before = (self.chain.clone(), self.good);
        self.write_leaving(records, leave)?;
        let synced = self.storage.sync();
        match synced {
            Ok(()) => self.mark_durable(),
            Err(_) => (self.chain, self.good) = before,
        }
        self.poison_on_error(synced).map(|()| Proof(()))
    }

    /// Writes records that are not durable until the next [`Journal::append`].
    pub fn write<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a R>,
    ) -> Result<(), JournalError>
    where
        R: 'a,
    {
        self.write_leaving(records, None)
    }

    fn write_leaving<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a R>,
        leave: Option<u64>,
    ) -> Result<(), JournalError>
    where
        R: 'a,
    {
        if let Some(why) = &self.poisoned {
            return Err(JournalError::Poisoned(why.clone()));
        }
        let mut chain = self.chain.clone();
        let synced = self.durable.as_ref().is_some_and(|(_, durable)| *durable == self.good);
        let lines = encode(&mut chain, records, synced)?;
        if let Some(leave) = leave {
            let room = lines.len() as u64 + leave;
            self.storage.make_room(room).map_err(JournalError::Full)?;
        }
        let written = self.storage.append(lines.as_bytes());
        self.poison_on_error(written)?;
        self.chain = chain;
        self.good += lines.len();
        Ok(())
    }

    /// After a failed write or sync, the contents of the disk are unknown.
    fn poison_on_error(&mut self, result: io::Result<()>) -> Result<(), JournalError> {
        result.map_err(|error| {
            self.poisoned = Some(error.to_string());
            error.into()
        })
    }
}

fn encode<'a, R: Serialize + 'a>(
    chain: &mut Chain,
    records: impl IntoIterator<Item = &'a R>,
    synced: bool,
) -> Result<String, JournalError> {
    let mut lines = String::new();
    for record in records {
        let body = serde_json::to_string(record).map_err(io::Error::from)?;
        if body.len() > BODY_BYTES_MAX {
            return Err(JournalError::TooLong(body.len()));
        }
        if synced && lines.is_empty() {
            lines.push('+');
        }
        chain.push(&body, &mut lines);
    }
    Ok(lines)
}

pub fn read_all<R: DeserializeOwned>(bytes: &[u8]) -> (Vec<R>, usize, Option<Damage>) {
    read(bytes, &mut Chain::new(None))
}

#[derive(Debug)]
pub struct ReadBack<R> {
    pub records: Vec<R>,
    pub damage: Option<Damage>,
    pub keyed_from: Option<u64>,
}

pub fn read_keyed<R: DeserializeOwned>(bytes: &[u8], key: Option<Key>) -> ReadBack<R> {
    let mut chain = Chain::new(key);
    let (records, _, damage) = read(bytes, &mut chain);
    ReadBack { records, damage, keyed_from: chain.keyed_from }
}

fn read<R: DeserializeOwned>(bytes: &[u8], chain: &mut Chain) -> (Vec<R>, usize, Option<Damage>) {
    let mut records = Vec::new();
    let mut good = 0;
    let bytes = without_zeros(bytes);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let before = chain.clone();
        let ended = line.strip_suffix(b"\n");
        let parsed = chain.check(ended.unwrap_or(line)).and_then(|body| {
            serde_json::from_slice(body).map_err(|error| error.to_string()).map_err(not_a_record)
        });
        match parsed {
            Ok(record) if ended.is_some() => {
                records.push(record);
                good += line.len();
                continue;
            }
            Ok(_) => *chain = before,
            Err(reason) => {
                *chain = before.clone();
                if !torn(&bytes[good..], before) {
                    let (line, is_newer) = (records.len() + 1, reason.starts_with(NEWER));
                    return (records, good, Some(Damage { line, byte: good, reason, is_newer }));
                }
            }
        }
        break;
    }
    (records, good, None)
}

const NEWER: &str = "needs a newer version of lightloomd: ";

fn not_a_record(error: String) -> String {
    match error.split_once(", expected") {
        Some((unknown, _)) if error.starts_with("unknown ") => format!("{NEWER}{unknown}"),
        _ => format!("is not a record: {error}"),
    }
}

/// Lines do not end in a zero byte, so trailing zeros were never written.
fn without_zeros(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

/// Returns whether a crash during a write explains the bytes after the last valid line: they start
/// with the number of the next line and are truncated, or missing sectors read as zeros. Everything
/// else is damage, such as a complete line with a wrong hash, or lines missing before a `+`.
fn torn(tail: &[u8], mut chain: Chain) -> bool {
    const HOLE_BYTES_MIN: usize = 8;
    if tail.windows(2).any(|bytes| bytes == b"\n+") {
        return false;
    }
    if tail.first() == Some(&0) {
        return true;
    }
    if !chain.begins(tail) {
        return false;
    }
    if tail.windows(HOLE_BYTES_MIN).any(|bytes| bytes == [0; HOLE_BYTES_MIN]) {
        return true;
    }
    let Some((_, but_last)) = tail.split_last() else { return true };
    !tail.contains(&b'\n') && chain.check(but_last).is_err()
}

#[cfg(test)]
mod tests;
