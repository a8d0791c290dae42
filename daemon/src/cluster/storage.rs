// SPDX-License-Identifier: Apache-2.0
//! Journal storage in etcd, split into chunks that only the current leader can add.
//!
//! ```text
//!   PREFIX/head         the generation in force, in decimal
//!   PREFIX/journal/G/N  chunk N of generation G, both sixteen hex digits
//!   PREFIX/journal/end  generation, chunks, bytes, and `EPOCH.WRITE` of its last write
//! ```
//!
//! A write also updates `end`. It succeeds only if the leader's key belongs to this epoch and `end`
//! has not changed since the previous write, so delayed requests have no effect. The leader keeps
//! the whole journal in memory, and rewrites it as a new generation after a lost request or chunk.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::etcd::{Etcd, EtcdError, delete, end_of, is, made_in, newest_under, put, put_in};
use crate::fence::Fence;
use crate::journal::Storage;

/// etcd's default request limit is 1.5 MiB.
const CHUNK_BYTES: usize = 512 << 10;
const PAGE: u32 = 32;

/// The expected state of the journal, checked whenever the lease is renewed. The check detects a
/// restored backup and records that another client changed or deleted.
#[derive(Clone, Debug, Default)]
pub struct JournalTail {
    put: Arc<Mutex<Option<Put>>>,
    is_gone: Arc<AtomicBool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Put {
    folder: String,
    chunks: u64,
    last: u64,
    head: (String, String),
    end: (String, u64),
}

impl JournalTail {
    fn known(&self) -> MutexGuard<'_, Option<Put>> {
        self.put.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn look(&self, etcd: &Etcd) -> Result<(), EtcdError> {
        let Some(put) = self.known().clone() else { return Ok(()) };
        let as_put = [is(&put.head.0, put.head.1.as_bytes()), put_in(&put.end.0, put.end.1)];
        let answer = etcd.txn(&as_put, &[newest_under(&put.folder)], None)?;
        let newest = answer.found.first().map(|chunk| chunk.mod_revision);
        if !answer.succeeded || answer.count != put.chunks || newest != Some(put.last) {
            let mut now = self.known();
            if now.as_ref() == Some(&put) {
                *now = None;
                self.is_gone.store(true, Ordering::SeqCst);
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct End {
    generation: u64,
    chunks: u64,
    bytes: u64,
}

impl End {
    fn read(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut numbers = text.split(' ').map_while(|word| word.parse().ok());
        let (generation, chunks, bytes) = (numbers.next()?, numbers.next()?, numbers.next()?);
        Some(Self { generation, chunks, bytes })
    }
}

#[derive(Debug)]
pub struct EtcdStorage {
    etcd: Etcd,
    prefix: String,
    epoch: u64,
    fence: Fence,
    generation: u64,
    chunks: u64,
    last: u64,
    held: Option<Vec<u8>>,
    tail: JournalTail,
    end: Option<End>,
    end_put: Option<u64>,
    writes: u64,
    /// Abandoned generations are never reused, because their requests may still arrive.
    begun: u64,
    missing: Option<String>,
}

impl EtcdStorage {
    pub fn open(
        etcd: Etcd,
        prefix: &str,
        epoch: u64,
        fence: Fence,
        tail: JournalTail,
    ) -> io::Result<Self> {
        let mut storage = Self {
            etcd,
            prefix: prefix.to_owned(),
            epoch,
            fence,
            generation: 0,
            chunks: 0,
            last: 0,
            held: None,
            tail,
            end: None,
            end_put: None,
            writes: 0,
            begun: 0,
            missing: None,
        };
        storage.find_generation().map_err(io::Error::other)?;
        Ok(storage)
    }

    fn find_generation(&mut self) -> Result<(), EtcdError> {
        // Read the end before the chunks, because the leader may add more chunks in between.
        let end = self.etcd.get(&self.end_key())?;
        self.end_put = Some(end.as_ref().map_or(0, |end| end.mod_revision));
        self.end = end.and_then(|end| End::read(&end.value));
        let (end, key, all) = (self.end, self.head(), self.all());
        let head = self.etcd.get(&key)?;
        let head = head.map(|head| String::from_utf8_lossy(&head.value).into_owned());
        let (mut last, mut from) = (None, all.clone());
        while let Some(next) = self.etcd.page(&from, &all, 1)?.0.pop() {
            let name = String::from_utf8_lossy(&next.key[all.len()..]).into_owned();
            let number = name.get(..16).and_then(|name| u64::from_str_radix(name, 16).ok());
            let Some(number) = number else { break };
            let is_named = head.as_ref().is_some_and(|head| *head == number.to_string());
            let ends_later = end.is_some_and(|end| end.generation > number);
            if is_named && !ends_later {
                (self.generation, self.begun) = (number, number);
                return Ok(());
            }
            last = Some(number);
            from = end_of(self.folder(number).as_bytes());
        }
        let named = head.as_ref().and_then(|head| head.parse().ok());
        self.generation = end.map(|end| end.generation).or(last).or(named).unwrap_or_default();
        self.begun = self.generation;
        if last.is_none() {
            return Ok(());
        }
        let says = head.map_or("is missing".into(), |head| format!("contains `{head}`"));
        self.missing = Some(format!(
            "`{key}` in etcd {says}, but a journal of generation {} exists, which may or may not \
                be current",
            self.generation
        ));
        Ok(())
    }

    fn end_key(&self) -> String {
        format!("{}/journal/end", self.prefix)
    }

    fn in_force(&self) -> End {
        let bytes = self.held.as_ref().map_or(0, Vec::len) as u64;
        End { generation: self.generation, chunks: self.chunks, bytes }
    }

    fn head(&self) -> String {
        format!("{}/head", self.prefix)
    }

    fn all(&self) -> Vec<u8> {
        format!("{}/journal/", self.prefix).into_bytes()
    }

    fn folder(&self, generation: u64) -> String {
        format!("{}/journal/{generation:016x}/", self.prefix)
    }

    fn chunk(&self, generation: u64, at: u64) -> String {
        format!("{}{at:016x}", self.folder(generation))
    }

    fn as_leader(&mut self, more: Vec<Value>, then: &[Value], end: End) -> io::Result<u64> {
        if !self.fence.is_open() {
            return Err(io::Error::other(NOT_RENEWED));
        }
        *self.tail.known() = None;
        let (leader, key) = (super::seat::leader_key(&self.prefix), self.end_key());
        let before = match self.end_put.take() {
            Some(revision) => revision,
            None => self.etcd.get(&key).map_err(failed)?.map_or(0, |end| end.mod_revision),
        };
        self.writes += 1;
        let End { generation, chunks, bytes } = end;
        let value = format!("{generation} {chunks} {bytes} {}.{}", self.epoch, self.writes);
        let mut conditions = vec![made_in(&leader, self.epoch), put_in(&key, before)];
        conditions.extend(more);
        let then = [then, &[put(&key, value.as_bytes())]].concat();
        let answer = self.etcd.txn(&conditions, &then, Some(&key)).map_err(failed)?;
        let found = answer.found.first();
        if answer.succeeded {
            self.end_put = Some(answer.revision);
            return Ok(answer.revision);
        }
        self.end_put = Some(found.map_or(0, |end| end.mod_revision));
        if let Some(end) = found.filter(|end| end.value == value.as_bytes()) {
            return Ok(end.mod_revision);
        }
        let leader = self.etcd.get(&leader).map_err(failed)?;
        let leads = leader.is_some_and(|leader| leader.create_revision == self.epoch);
        Err(io::Error::other(if leads { LOST_SOME } else { "another daemon leads" }))
    }

    fn mark(&self) {
        let end = (self.end_key(), self.end_put.unwrap_or_default());
        let (folder, head) = (self.folder(self.generation), self.head());
        let (chunks, last, head) = (self.chunks, self.last, (head, self.generation.to_string()));
        let put = Put { folder, chunks, last, head, end };
        *self.tail.known() = (chunks > 0).then_some(put);
    }

    fn put_chunks(&mut self, next: Option<u64>, bytes: &[u8]) -> io::Result<(u64, u64)> {
        let mut end = self.in_force();
        let generation = next.unwrap_or(end.generation);
        let (mut at, mut last) = if next.is_some() { (0, 0) } else { (self.chunks, self.last) };
        for chunk in bytes.chunks(CHUNK_BYTES) {
            let mut more = Vec::new();
            if next.is_none() && (generation > 0 || at > 0) {
                more.push(is(&self.head(), generation.to_string().as_bytes()));
            }
            if at > 0 {
                more.push(made_in(&self.chunk(generation, at - 1), last));
            }
            let mut then = vec![put(&self.chunk(generation, at), chunk)];
            if next.is_none() && generation == 0 && at == 0 {
                then.push(put(&self.head(), b"0"));
            }
            at += 1;
            if next.is_none() {
                end = End { generation, chunks: at, bytes: end.bytes + chunk.len() as u64 };
            }
            last = self.as_leader(more, &then, end)?;
        }
        Ok((at, last))
    }
}

const LOST_SOME: &str =
    "another client deleted or changed records in etcd, or an older copy was restored";
const NOT_RENEWED: &str = "etcd is not renewing the lease of this daemon";

fn failed(error: EtcdError) -> io::Error {
    match error {
        EtcdError::Unreachable(_) => io::Error::new(io::ErrorKind::TimedOut, error),
        _ => io::Error::other(error),
    }
}

impl Storage for EtcdStorage {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        if let Some(held) = &self.held {
            return Ok(held.clone());
        }
        let folder = self.folder(self.generation).into_bytes();
        let (mut bytes, mut from) = (Vec::new(), folder.clone());
        (self.chunks, self.last) = (0, 0);
        'pages: loop {
            let (page, more) = self.etcd.page(&from, &folder, PAGE).map_err(io::Error::other)?;
            for chunk in &page {
                let name = String::from_utf8_lossy(&chunk.key[folder.len()..]).into_owned();
                if u64::from_str_radix(&name, 16).ok() != Some(self.chunks) {
                    let missing = self.chunk(self.generation, self.chunks);
                    let why =
                        format!("`{missing}` is missing in etcd, although later chunks exist");
                    self.missing.get_or_insert(why);
                    break 'pages;
                }
                (self.chunks, self.last) = (self.chunks + 1, chunk.create_revision);
                bytes.extend_from_slice(&chunk.value);
            }
            let Some(last) = page.last().filter(|_| more) else { break };
            from = last.key.clone();
            from.push(0);
        }
        let end = self.end.filter(|end| end.generation == self.generation);
        if let Some(end) = end
            && (self.chunks, bytes.len() as u64) < (end.chunks, end.bytes)
        {
            self.missing.get_or_insert(format!(
                "etcd has {} chunks with {} bytes, but {} chunks with {} bytes were written; the \
                    last chunks are missing",
                self.chunks,
                bytes.len(),
                end.chunks,
                end.bytes
            ));
        }
        self.held = Some(bytes.clone());
        self.mark();
        Ok(bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.chunks > 0 && self.tail.known().is_none() {
            return Err(io::Error::other(LOST_SOME));
        }
        (self.chunks, self.last) = self.put_chunks(None, bytes)?;
        self.held.get_or_insert_default().extend_from_slice(bytes);
        self.mark();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.begun += 1;
        let next = self.begun;
        let folder = self.folder(next).into_bytes();
        self.as_leader(Vec::new(), &[delete(&folder, &end_of(&folder))], self.in_force())?;
        let (chunks, last) = self.put_chunks(Some(next), bytes)?;
        let before = self.folder(self.generation).into_bytes();
        let turn = [put(&self.head(), next.to_string().as_bytes()), delete(&self.all(), &before)];
        let end = End { generation: next, chunks, bytes: bytes.len() as u64 };
        self.as_leader(Vec::new(), &turn, end)?;
        (self.generation, self.chunks, self.last) = (next, chunks, last);
        self.held = Some(bytes.to_vec());
        self.mark();
        Ok(())
    }

    fn trouble(&self) -> Option<String> {
        if !self.fence.is_open() {
            return Some(NOT_RENEWED.to_owned());
        }
        self.tail.is_gone.swap(false, Ordering::SeqCst).then(|| LOST_SOME.to_owned())
    }

    fn missing(&self) -> Option<String> {
        self.missing.clone()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut bytes = self.load()?;
        bytes.truncate(usize::try_from(length).map_err(io::Error::other)?);
        self.replace(&bytes)
    }
}
