// SPDX-License-Identifier: Apache-2.0
//! The journal's bytes in etcd, in chunks that only the leader of its epoch can add.
//!
//! ```text
//!   PREFIX/head               the generation in force, in decimal
//!   PREFIX/journal/G/N        chunk N of generation G, both sixteen hex digits
//! ```
//!
//! A journal that begins anew is another generation: its chunks are put first, and the head is turned to it last.

use std::io;

use serde_json::{Value, json};

use super::etcd::{Etcd, EtcdError, coded, end_of, made_in, put};
use super::fence::Fence;
use crate::journal::Storage;

/// etcd takes requests of 1.5 MiB by default.
const CHUNK_BYTES: usize = 512 << 10;
/// Chunks that are read at a time.
const PAGE: u32 = 32;

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
    /// Appended and not yet durable.
    pending: Vec<u8>,
}

impl EtcdStorage {
    /// # Errors
    /// etcd's.
    pub fn open(etcd: Etcd, prefix: &str, epoch: u64, fence: Fence) -> io::Result<Self> {
        let prefix = prefix.to_owned();
        let mut storage =
            Self { etcd, prefix, epoch, fence, generation: 0, chunks: 0, pending: Vec::new() };
        storage.find_generation()?;
        Ok(storage)
    }

    fn find_generation(&mut self) -> io::Result<()> {
        let head = self.etcd.get(&self.head()).map_err(io::Error::other)?;
        let text = head.map(|head| String::from_utf8_lossy(&head.value).into_owned());
        self.generation = match text {
            None => 0,
            Some(text) => text.parse().map_err(|_| {
                io::Error::other(format!(
                    "{} in etcd says `{text}`, which is no generation",
                    self.head()
                ))
            })?,
        };
        Ok(())
    }

    fn head(&self) -> String {
        format!("{}/head", self.prefix)
    }

    fn folder(&self, generation: u64) -> String {
        format!("{}/journal/{generation:016x}/", self.prefix)
    }

    /// Does it if this daemon is the leader of its epoch still.
    fn as_leader(&self, then: &[Value]) -> io::Result<()> {
        if let Some(trouble) = self.trouble() {
            return Err(io::Error::other(trouble));
        }
        let leader = super::seat::leader_key(&self.prefix);
        let answer = self.etcd.txn(&[made_in(&leader, self.epoch)], then, None);
        match answer {
            Ok(answer) if answer.succeeded => Ok(()),
            Ok(_) => Err(io::Error::other("another daemon is the leader")),
            Err(error @ EtcdError::Silent(_)) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, error))
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn put_chunks(&self, generation: u64, first: u64, bytes: &[u8]) -> io::Result<u64> {
        let mut at = first;
        for chunk in bytes.chunks(CHUNK_BYTES) {
            self.as_leader(&[put(&format!("{}{at:016x}", self.folder(generation)), chunk)])?;
            at += 1;
        }
        Ok(at)
    }
}

impl Storage for EtcdStorage {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        self.find_generation()?;
        let folder = self.folder(self.generation).into_bytes();
        let (mut bytes, mut from) = (Vec::new(), folder.clone());
        self.chunks = 0;
        loop {
            let (page, more) = self.etcd.page(&from, &folder, PAGE).map_err(io::Error::other)?;
            for chunk in &page {
                let name = String::from_utf8_lossy(&chunk.key[folder.len()..]).into_owned();
                if u64::from_str_radix(&name, 16).ok() != Some(self.chunks) {
                    let why = format!("chunk {:x} of the journal in etcd is missing", self.chunks);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
                self.chunks += 1;
                bytes.extend_from_slice(&chunk.value);
            }
            let Some(last) = page.last().filter(|_| more) else { break };
            from = last.key.clone();
            from.push(0);
        }
        self.pending.clear();
        Ok(bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.chunks = self.put_chunks(self.generation, self.chunks, &pending)?;
        Ok(())
    }

    /// The generation before is kept until the next one.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let next = self.generation + 1;
        // What an earlier try left there.
        let folder = self.folder(next).into_bytes();
        let forget = |from: &[u8], end: &[u8]| json!({"request_delete_range": {"key": coded(from), "range_end": coded(end)}});
        self.as_leader(&[forget(&folder, &end_of(&folder))])?;
        let chunks = self.put_chunks(next, 0, bytes)?;
        let all = format!("{}/journal/", self.prefix).into_bytes();
        let before = self.folder(self.generation).into_bytes();
        self.as_leader(&[put(&self.head(), next.to_string().as_bytes()), forget(&all, &before)])?;
        (self.generation, self.chunks) = (next, chunks);
        self.pending.clear();
        Ok(())
    }

    fn trouble(&self) -> Option<String> {
        let is_held = self.fence.is_open();
        (!is_held).then(|| "etcd does not renew the lease of this daemon".to_owned())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut bytes = self.load()?;
        bytes.truncate(usize::try_from(length).map_err(io::Error::other)?);
        self.replace(&bytes)
    }
}
