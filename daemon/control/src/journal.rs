// SPDX-License-Identifier: Apache-2.0
//! The write-ahead journal: a text file that a person can read and that only grows, until it is long
//! and begins anew with one record that says all that went before.
//!
//! ```text
//!   <seq> <sha256 of the line before and this line's body> <body as JSON>\n
//! ```
//!
//! With a key the hash is an HMAC-SHA-256: then nobody without the key can write a line, and lines from before
//! there was a key are known as such. Each line's hash covers the hash before it, so a line can be neither changed, removed nor put
//! in elsewhere. A tail that a crash tore off is cut and reported; any other damage is found and
//! the journal refuses to grow until a person decides (docs/decisions/journal.md says why text and
//! not a database).

use std::fmt;
use std::io;
use std::marker::PhantomData;

use hmac::{Hmac, Mac};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

/// The longest body of a record in bytes: bounds what a reader of a damaged file may be asked to do.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// Where the bytes go. Tests put a disk here that tears, lies and fills up.
pub trait Storage {
    /// Everything there is.
    ///
    /// # Errors
    /// The device's.
    fn load(&mut self) -> io::Result<Vec<u8>>;
    /// Adds bytes at the end; durable only after [`Storage::sync`].
    ///
    /// # Errors
    /// The device's; some of the bytes may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Returns when everything appended is durable.
    ///
    /// # Errors
    /// The device's; nothing may be assumed about what is durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Puts `bytes` in the place of everything there is, durably and at once or not at all.
    ///
    /// # Errors
    /// The device's; then what was there is there still.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file to `length` bytes, durably.
    ///
    /// # Errors
    /// The device's.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
    /// Writes all of it again after a failure, where what is there may not be durable.
    ///
    /// # Errors
    /// The device's.
    fn rewrite(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.replace(bytes)
    }
    /// That the disk is full and only what was set aside for that is left, if so.
    fn short_of_space(&self) -> Option<String> {
        None
    }
    /// Sets space aside again for when the disk is full.
    ///
    /// # Errors
    /// The device's: it is full still.
    fn set_aside(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: Storage + ?Sized> Storage for Box<S> {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        (**self).load()
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        (**self).append(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        (**self).sync()
    }
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        (**self).replace(bytes)
    }
    fn truncate(&mut self, length: u64) -> io::Result<()> {
        (**self).truncate(length)
    }
    fn rewrite(&mut self, bytes: &[u8]) -> io::Result<()> {
        (**self).rewrite(bytes)
    }
    fn short_of_space(&self) -> Option<String> {
        (**self).short_of_space()
    }
    fn set_aside(&mut self) -> io::Result<()> {
        (**self).set_aside()
    }
}

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The storage failed.
    #[error("the journal's storage: {0}")]
    Storage(#[from] io::Error),
    /// A write or sync failed earlier: what is on the disk is not known until it is
    /// [read back](Journal::reopen).
    #[error(
        "the journal has failed before ({0}) and takes no more records until it is written anew"
    )]
    Poisoned(String),
    /// A record larger than the bound.
    #[error("a record of {0} bytes is longer than a journal line may be")]
    TooLong(usize),
}

/// Where a journal is damaged. What is before it is good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("journal line {line}: {reason}. What is before it is good; {}", Self::WHAT_TO_DO)]
pub struct Damage {
    /// The line, from 1: those before it can be read.
    pub line: usize,
    /// The byte at which that line begins.
    pub byte: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl Damage {
    /// What a person can do about it.
    pub const WHAT_TO_DO: &str = "stop the daemon, move the file away and keep it, start again and `adopt` what is lit, or \
         restore it from a copy";
}

/// What reading the journal at start found.
#[derive(Debug)]
pub struct Opened<R> {
    /// The records, oldest first.
    pub records: Vec<R>,
    /// Bytes of a torn tail that were cut off.
    pub torn_bytes: usize,
    /// Damage that is not a torn tail: the records are those before it, and nothing may be added.
    pub damage: Option<Damage>,
}

/// An open journal of records `R`.
#[derive(Debug)]
pub struct Journal<R, S> {
    storage: S,
    /// As it is after the last line that was written without an error.
    chain: Chain,
    /// How many bytes end there.
    good: usize,
    damaged: bool,
    poisoned: Option<String>,
    kind: PhantomData<fn(R)>,
}

/// A secret without which no line of a chain can be written.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// Of these bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// As it is kept in a file: 64 hex digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// From 64 hex digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Clone, Debug)]
struct Chain {
    seq: u64,
    hash: String,
    key: Option<Key>,
    /// The first line that is keyed.
    keyed_from: Option<u64>,
}

impl Chain {
    fn new(key: Option<Key>) -> Self {
        Self { seq: 0, hash: "0".repeat(64), key, keyed_from: None }
    }

    fn hash(&self, body: &[u8]) -> String {
        match &self.key {
            Some(key) => self.keyed_hash(key, body),
            None => self.plain_hash(body),
        }
    }

    fn plain_hash(&self, body: &[u8]) -> String {
        let mut hasher = Sha256::new();
        hasher.update(&self.hash);
        hasher.update((self.seq + 1).to_string());
        hasher.update(body);
        hex(&hasher.finalize())
    }

    fn keyed_hash(&self, key: &Key, body: &[u8]) -> String {
        let hasher = <Hmac<Sha256> as Mac>::new_from_slice(&key.0);
        let mut hasher = hasher.expect("HMAC takes keys of any length");
        hasher.update(self.hash.as_bytes());
        hasher.update((self.seq + 1).to_string().as_bytes());
        hasher.update(body);
        hex(&hasher.finalize().into_bytes())
    }

    fn note_keyed(&mut self) {
        if self.key.is_some() {
            self.keyed_from.get_or_insert(self.seq);
        }
    }

    /// The line for `body`; the chain then ends at it.
    fn push(&mut self, body: &str) -> String {
        let hash = self.hash(body.as_bytes());
        self.seq += 1;
        self.note_keyed();
        let line = format!("{} {hash} {body}\n", self.seq);
        self.hash = hash;
        line
    }

    /// The body of `line` (without its end), if it is the next of the chain.
    fn check<'a>(&mut self, line: &'a [u8]) -> Result<&'a [u8], String> {
        let mut parts = line.splitn(3, |byte| *byte == b' ');
        let (Some(seq), Some(hash), Some(body)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("is not `seq hash body`".into());
        };
        if seq != (self.seq + 1).to_string().as_bytes() {
            return Err(format!("should be number {}", self.seq + 1));
        }
        let expected = self.hash(body);
        if hash == expected.as_bytes() {
            self.seq += 1;
            self.note_keyed();
            self.hash = expected;
            return Ok(body);
        }
        // Lines from before there was a key.
        let plain = self.plain_hash(body);
        match (hash == plain.as_bytes(), self.keyed_from) {
            (false, _) => return Err("does not match its hash".into()),
            (true, Some(_)) => return Err("was written without the key".into()),
            (true, None) => {}
        }
        self.seq += 1;
        self.hash = plain;
        Ok(body)
    }
}

impl<R: Serialize + DeserializeOwned, S: Storage> Journal<R, S> {
    /// Reads everything, cuts a torn tail, and is ready to grow.
    ///
    /// # Errors
    /// When the storage cannot be read or the torn tail cannot be cut.
    pub fn open(storage: S) -> Result<(Self, Opened<R>), JournalError> {
        Self::open_keyed(storage, None)
    }

    /// The same with a key: what is added is keyed. Lines without the key are taken only before the first keyed
    /// one.
    ///
    /// # Errors
    /// As for [`Journal::open`].
    pub fn open_keyed(mut storage: S, key: Option<Key>) -> Result<(Self, Opened<R>), JournalError> {
        let bytes = storage.load()?;
        let mut chain = Chain::new(key);
        let (records, good, damage) = read(&bytes, &mut chain);
        let torn_bytes = if damage.is_none() { bytes.len() - good } else { 0 };
        if torn_bytes > 0 {
            storage.truncate(good as u64)?;
        }
        let poisoned = damage.as_ref().map(ToString::to_string);
        let damaged = damage.is_some();
        let journal = Self { storage, chain, good, damaged, poisoned, kind: PhantomData };
        Ok((journal, Opened { records, torn_bytes, damage }))
    }

    /// How many records it holds.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.chain.seq
    }

    /// The first line that is keyed, from 1.
    #[must_use]
    pub fn keyed_from(&self) -> Option<u64> {
        self.chain.keyed_from
    }

    /// Takes no more records, for this reason.
    pub fn distrust(&mut self, reason: String) {
        (self.poisoned, self.damaged) = (Some(reason), true);
    }

    /// The hash of its last line.
    #[must_use]
    pub fn head(&self) -> &str {
        &self.chain.hash
    }

    /// Begins anew with one record that says all that those before it said.
    ///
    /// # Errors
    /// When the storage cannot; the journal is as it was then and goes on.
    pub fn restart(&mut self, first: &R) -> Result<(), JournalError> {
        if let Some(why) = &self.poisoned {
            return Err(JournalError::Poisoned(why.clone()));
        }
        let body = serde_json::to_string(first).map_err(io::Error::from)?;
        if body.len() > BODY_BYTES_MAX {
            return Err(JournalError::TooLong(body.len()));
        }
        let mut chain = Chain::new(self.chain.key.clone());
        let line = chain.push(&body);
        self.storage.replace(line.as_bytes())?;
        (self.chain, self.good) = (chain, line.len());
        Ok(())
    }

    /// The records that were written without an error, read back and proven. Writes nothing.
    ///
    /// # Errors
    /// A storage that cannot be read, or has lost some of them.
    pub fn read_back(&mut self) -> Result<Vec<R>, JournalError> {
        self.proven().map(|(records, _)| records)
    }

    /// Goes on after a failure: what was written without an error is read back, proven and written anew, and
    /// what was not is gone, as it was never promised.
    ///
    /// # Errors
    /// When that cannot be done yet, and never where the journal was found damaged.
    pub fn reopen(&mut self) -> Result<Vec<R>, JournalError> {
        if let Some(why) = self.poisoned.as_ref().filter(|_| self.damaged) {
            return Err(JournalError::Poisoned(why.clone()));
        }
        let (records, bytes) = self.proven()?;
        self.storage.rewrite(&bytes)?;
        self.poisoned = None;
        Ok(records)
    }

    fn proven(&mut self) -> Result<(Vec<R>, Vec<u8>), JournalError> {
        let mut bytes = self.storage.load()?;
        bytes.truncate(self.good);
        let mut chain = Chain::new(self.chain.key.clone());
        let (records, good, damage) = read(&bytes, &mut chain);
        if damage.is_some() || good != self.good || chain.hash != self.chain.hash {
            let lost = "lines that were written before cannot be read back";
            return Err(JournalError::Storage(io::Error::other(lost)));
        }
        Ok((records, bytes))
    }

    /// That the disk is full and only what was set aside for that is left, if so.
    #[must_use]
    pub fn short_of_space(&self) -> Option<String> {
        self.storage.short_of_space()
    }

    /// Sets space aside again for when the disk is full.
    ///
    /// # Errors
    /// A disk that is full still.
    pub fn set_aside(&mut self) -> Result<(), JournalError> {
        Ok(self.storage.set_aside()?)
    }

    /// Why it takes no more records, if so.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.poisoned.as_deref()
    }

    /// Writes records and returns when they are durable. One sync for all of them.
    ///
    /// # Errors
    /// When that cannot be promised; from then on nothing is taken any more.
    pub fn append<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a R>,
    ) -> Result<(), JournalError>
    where
        R: 'a,
    {
        let before = (self.chain.clone(), self.good);
        self.write(records)?;
        let synced = self.storage.sync();
        if synced.is_err() {
            (self.chain, self.good) = before;
        }
        self.poison_on_error(synced)
    }

    /// Appends records that become durable with the next [`Journal::append`]: a crash of the
    /// machine before that can lose them.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn write<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a R>,
    ) -> Result<(), JournalError>
    where
        R: 'a,
    {
        if let Some(why) = &self.poisoned {
            return Err(JournalError::Poisoned(why.clone()));
        }
        let mut chain = self.chain.clone();
        let mut lines = String::new();
        for record in records {
            let body = serde_json::to_string(record).map_err(io::Error::from)?;
            if body.len() > BODY_BYTES_MAX {
                return Err(JournalError::TooLong(body.len()));
            }
            lines.push_str(&chain.push(&body));
        }
        let written = self.storage.append(lines.as_bytes());
        self.poison_on_error(written)?;
        self.chain = chain;
        self.good += lines.len();
        Ok(())
    }

    /// What a failed write or sync has left on the disk is anybody's guess.
    fn poison_on_error(&mut self, result: io::Result<()>) -> Result<(), JournalError> {
        result.map_err(|error| {
            self.poisoned = Some(error.to_string());
            error.into()
        })
    }
}

/// The records of `bytes`, how many bytes they are, and damage other than a torn tail.
pub fn read_all<R: DeserializeOwned>(bytes: &[u8]) -> (Vec<R>, usize, Option<Damage>) {
    read(bytes, &mut Chain::new(None))
}

/// What a chain of lines holds.
#[derive(Debug)]
pub struct ReadBack<R> {
    /// The records, oldest first.
    pub records: Vec<R>,
    /// Damage other than a torn tail.
    pub damage: Option<Damage>,
    /// The first line that is keyed, from 1.
    pub keyed_from: Option<u64>,
}

/// The records of `bytes`, where their chain may have a key.
pub fn read_keyed<R: DeserializeOwned>(bytes: &[u8], key: Option<Key>) -> ReadBack<R> {
    let mut chain = Chain::new(key);
    let (records, _, damage) = read(bytes, &mut chain);
    ReadBack { records, damage, keyed_from: chain.keyed_from }
}

fn read<R: DeserializeOwned>(bytes: &[u8], chain: &mut Chain) -> (Vec<R>, usize, Option<Damage>) {
    let mut records = Vec::new();
    let mut good = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let before = chain.clone();
        let ended = line.strip_suffix(b"\n");
        let parsed = chain.check(ended.unwrap_or(line)).and_then(|body| {
            serde_json::from_slice(body).map_err(|error| format!("is not a record: {error}"))
        });
        match parsed {
            Ok(record) if ended.is_some() => {
                records.push(record);
                good += line.len();
                continue;
            }
            // Whole but for its end: it was never acknowledged.
            Ok(_) => *chain = before,
            Err(reason) => {
                *chain = before.clone();
                if !torn(&bytes[good..], before) {
                    let line = records.len() + 1;
                    return (records, good, Some(Damage { line, byte: good, reason }));
                }
            }
        }
        break;
    }
    (records, good, None)
}

/// Whether what follows the last good line is what a crash leaves of writes that were under way:
/// cut short, or with sectors that never arrived and read as zeros. A whole line that does not
/// match its hash is neither, nor is one whose only fault is its last byte.
fn torn(tail: &[u8], mut chain: Chain) -> bool {
    const HOLE_BYTES_MIN: usize = 8;
    if tail.windows(HOLE_BYTES_MIN).any(|bytes| bytes == [0; HOLE_BYTES_MIN]) {
        return true;
    }
    let Some((_, but_last)) = tail.split_last() else { return true };
    !tail.contains(&b'\n') && chain.check(but_last).is_err()
}

#[cfg(test)]
mod tests;
