// SPDX-License-Identifier: Apache-2.0
//! The journal's bytes in etcd, in chunks that only the leader of its epoch can add.
//!
//! ```text
//!   PREFIX/head               the generation in force, in decimal
//!   PREFIX/journal/G/N        chunk N of generation G, both sixteen hex digits
//! ```
//!
//! All that is appended is durable at once. A chunk is put on three conditions: the leader's key is of this epoch, the head names
//! this generation, and the chunk before it is the one that was put: on a store that came back with older data nothing is added
//! over a gap. What was put is kept here as well, so that a leader whose put was not answered, or whose store lost some, can write
//! all of it as another generation: its chunks first, and the head last.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::etcd::{Etcd, EtcdError, coded, end_of, is, made_in, put};
use super::fence::Fence;
use crate::journal::Storage;

/// etcd takes requests of 1.5 MiB by default.
const CHUNK_BYTES: usize = 512 << 10;
/// Chunks that are read at a time.
const PAGE: u32 = 32;

/// What was put last, so that whoever renews the lease finds out that etcd has it no more: a store that came back with older
/// data says nothing by itself.
#[derive(Clone, Debug, Default)]
pub struct JournalTail {
    /// The last chunk's key, and the revision in which it was put.
    put: Arc<Mutex<Option<(String, u64)>>>,
    is_gone: Arc<AtomicBool>,
}

impl JournalTail {
    fn set(&self, put: Option<(String, u64)>) {
        *self.put.lock().unwrap_or_else(PoisonError::into_inner) = put;
    }

    /// Looks whether etcd has it.
    ///
    /// # Errors
    /// etcd's.
    pub(super) fn look(&self, etcd: &Etcd) -> Result<(), EtcdError> {
        let put = self.put.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((key, revision)) = put else { return Ok(()) };
        if !etcd.txn(&[made_in(&key, revision)], &[], None)?.succeeded {
            // Unless it was written anew meanwhile; and not again before it is.
            let mut now = self.put.lock().unwrap_or_else(PoisonError::into_inner);
            if *now == Some((key, revision)) {
                *now = None;
                self.is_gone.store(true, Ordering::SeqCst);
            }
        }
        Ok(())
    }
}

/// A journal in etcd.
#[derive(Debug)]
pub struct EtcdStorage {
    etcd: Etcd,
    prefix: String,
    /// The revision in which this leader's key was made.
    epoch: u64,
    fence: Fence,
    generation: u64,
    chunks: u64,
    /// The revision in which the last chunk was put.
    last: u64,
    /// What is in etcd, once it was read.
    held: Option<Vec<u8>>,
    tail: JournalTail,
}

impl EtcdStorage {
    /// # Errors
    /// etcd's, and a journal without its head.
    pub fn open(
        etcd: Etcd,
        prefix: &str,
        epoch: u64,
        fence: Fence,
        tail: JournalTail,
    ) -> io::Result<Self> {
        let prefix = prefix.to_owned();
        let (generation, chunks, last, held) = (0, 0, 0, None);
        let mut storage = Self { etcd, prefix, epoch, fence, generation, chunks, last, held, tail };
        storage.find_generation()?;
        Ok(storage)
    }

    /// # Errors
    /// A head that is missing beside a journal, or is no number.
    fn find_generation(&mut self) -> io::Result<()> {
        let (key, all) = (self.head(), self.all());
        let head = self.etcd.get(&key).map_err(io::Error::other)?;
        let Some(head) = head else {
            let (some, _) = self.etcd.page(&all, &all, 1).map_err(io::Error::other)?;
            let why = format!(
                "`{key}` is missing in etcd beside a journal: which generation is in force is not known; put its number there, or \
                 begin anew (docs: Several daemons, etcd is lost)"
            );
            return if some.is_empty() { Ok(()) } else { Err(damaged(why)) };
        };
        let text = String::from_utf8_lossy(&head.value).into_owned();
        let why = || damaged(format!("`{key}` in etcd says `{text}`, which is no generation"));
        self.generation = text.parse().map_err(|_| why())?;
        Ok(())
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

    /// Does it if this daemon leads in its epoch still and `more` holds; the revision in which it was done.
    fn as_leader(&self, more: Vec<Value>, then: &[Value]) -> io::Result<u64> {
        if let Some(trouble) = self.trouble() {
            return Err(io::Error::other(trouble));
        }
        let leader = super::seat::leader_key(&self.prefix);
        let conditions: Vec<Value> =
            std::iter::once(made_in(&leader, self.epoch)).chain(more).collect();
        match self.etcd.txn(&conditions, then, Some(&leader)) {
            Ok(answer) if answer.succeeded => Ok(answer.revision),
            Ok(answer)
                if answer.found.first().is_some_and(|key| key.create_revision == self.epoch) =>
            {
                Err(io::Error::other(LOST_SOME))
            }
            Ok(_) => Err(io::Error::other("another daemon leads")),
            Err(error @ EtcdError::Silent(_)) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, error))
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Says what was put last.
    fn mark(&self) {
        let last =
            self.chunks.checked_sub(1).map(|at| (self.chunk(self.generation, at), self.last));
        self.tail.set(last);
    }

    /// Puts chunks behind those that are there: how many there are then, and the revision of the last.
    fn put_chunks(
        &self,
        generation: u64,
        (mut at, mut last): (u64, u64),
        bytes: &[u8],
        is_in_force: bool,
    ) -> io::Result<(u64, u64)> {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            let mut more = Vec::new();
            if is_in_force && (generation > 0 || at > 0) {
                more.push(is(&self.head(), generation.to_string().as_bytes()));
            }
            if at > 0 {
                more.push(made_in(&self.chunk(generation, at - 1), last));
            }
            let mut then = vec![put(&self.chunk(generation, at), chunk)];
            if is_in_force && generation == 0 && at == 0 {
                then.push(put(&self.head(), b"0"));
            }
            last = self.as_leader(more, &then)?;
            at += 1;
        }
        Ok((at, last))
    }
}

/// What is said of a store that came back with older data.
const LOST_SOME: &str = "etcd has not the journal that was written: it lost some";

fn damaged(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Storage for EtcdStorage {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        if let Some(held) = &self.held {
            return Ok(held.clone());
        }
        let folder = self.folder(self.generation).into_bytes();
        let (mut bytes, mut from) = (Vec::new(), folder.clone());
        (self.chunks, self.last) = (0, 0);
        loop {
            let (page, more) = self.etcd.page(&from, &folder, PAGE).map_err(io::Error::other)?;
            for chunk in &page {
                let name = String::from_utf8_lossy(&chunk.key[folder.len()..]).into_owned();
                if u64::from_str_radix(&name, 16).ok() != Some(self.chunks) {
                    let missing = self.chunk(self.generation, self.chunks);
                    return Err(damaged(format!(
                        "`{missing}` is missing in etcd, and there are later ones: restore etcd from a copy, or begin anew (docs: \
                         Several daemons)"
                    )));
                }
                (self.chunks, self.last) = (self.chunks + 1, chunk.create_revision);
                bytes.extend_from_slice(&chunk.value);
            }
            let Some(last) = page.last().filter(|_| more) else { break };
            from = last.key.clone();
            from.push(0);
        }
        self.held = Some(bytes.clone());
        self.mark();
        Ok(bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        (self.chunks, self.last) =
            self.put_chunks(self.generation, (self.chunks, self.last), bytes, true)?;
        self.held.get_or_insert_default().extend_from_slice(bytes);
        self.mark();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The generation before is kept until the next one.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tail.set(None);
        let next = self.generation + 1;
        // What an earlier try left there.
        let folder = self.folder(next).into_bytes();
        let forget = |from: &[u8], end: &[u8]| json!({"request_delete_range": {"key": coded(from), "range_end": coded(end)}});
        self.as_leader(Vec::new(), &[forget(&folder, &end_of(&folder))])?;
        let (chunks, last) = self.put_chunks(next, (0, 0), bytes, false)?;
        let before = self.folder(self.generation).into_bytes();
        let turn = [put(&self.head(), next.to_string().as_bytes()), forget(&self.all(), &before)];
        self.as_leader(Vec::new(), &turn)?;
        (self.generation, self.chunks, self.last) = (next, chunks, last);
        self.held = Some(bytes.to_vec());
        self.mark();
        Ok(())
    }

    fn trouble(&self) -> Option<String> {
        if !self.fence.is_open() {
            return Some("etcd does not renew the lease of this daemon".to_owned());
        }
        // Said once: then all of it is written anew.
        self.tail.is_gone.swap(false, Ordering::SeqCst).then(|| LOST_SOME.to_owned())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut bytes = self.load()?;
        bytes.truncate(usize::try_from(length).map_err(io::Error::other)?);
        self.replace(&bytes)
    }
}
