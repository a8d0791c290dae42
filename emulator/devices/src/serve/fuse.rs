// SPDX-License-Identifier: Apache-2.0
//! The subset of FUSE (`linux/fuse.h`) for a folder of files without a cache.
//!
//! The kernel ends the connection if a request is not answered within [`REQUEST_WITHIN`]; older
//! kernels end it only when the process ends.

use std::time::Duration;

/// The kernel checks every 15 s (`FUSE_TIMEOUT_TIMER_FREQ`).
pub(super) const REQUEST_WITHIN: Duration = Duration::from_secs(15);
/// The kernel requires at least 8 KiB.
pub(super) const REQUEST_BYTES_MAX: usize = 64 << 10;
const WRITE_BYTES_MAX: u32 = 32 << 10;
const HEADER_BYTES: usize = 40;
const ROOT: u64 = 1;
const FOLDER_MODE: u32 = 0o040_755;
const FILE_MODE: u32 = 0o100_644;
const OPEN_DIRECT: u32 = 1;
const INIT_EXTENDED: u32 = 1 << 30;
/// Bit 42, in the second word.
const REQUEST_TIMEOUT: u32 = 1 << 10;
const MINOR_KNOWN: u32 = 43;

pub(super) mod errno {
    pub(in crate::serve) const NO_ENTRY: i32 = 2;
    pub(in crate::serve) const AGAIN: i32 = 11;
    pub(in crate::serve) const INVALID: i32 = 22;
    pub(in crate::serve) const NO_SUCH_CALL: i32 = 38;
    pub(in crate::serve) const TIMED_OUT: i32 = 110;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIndex(pub(super) usize);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum KernelAsks {
    Reply(Vec<u8>),
    Nothing,
    Read { unique: u64, file: FileIndex, offset: u64, length: usize },
    Write { unique: u64, file: FileIndex, offset: u64, bytes: Vec<u8> },
}

#[derive(Debug)]
pub(super) struct EepromFolder {
    pub(super) names: Vec<String>,
    pub(super) file_bytes: u64,
}

impl EepromFolder {
    pub(super) fn asked(&self, request: &[u8]) -> KernelAsks {
        let Some((head, body)) = request.split_at_checked(HEADER_BYTES) else {
            return KernelAsks::Nothing;
        };
        let mut fields = Fields(head);
        let (_length, operation) = (fields.u32(), fields.u32());
        let (unique, node) = (fields.u64(), fields.u64());
        match operation {
            FORGET | INTERRUPT | BATCH_FORGET => return KernelAsks::Nothing,
            _ => {}
        }
        self.one(operation, unique, node, body)
            .unwrap_or_else(|error| KernelAsks::Reply(failure(unique, error)))
    }

    fn one(&self, operation: u32, unique: u64, node: u64, body: &[u8]) -> Result<KernelAsks, i32> {
        let mut fields = Fields(body);
        let reply = |body: Vec<u8>| Ok(KernelAsks::Reply(success(unique, &body)));
        match operation {
            INIT => reply(init(&mut fields)),
            LOOKUP => reply(self.look_up(node, body)?),
            GET_ATTRIBUTES | SET_ATTRIBUTES => reply(self.attributes(node)?),
            OPEN => {
                self.file(node)?;
                reply(Words::new().u64(0).u32(OPEN_DIRECT).u32(0).bytes)
            }
            OPEN_FOLDER => reply(Words::new().u64(0).u32(0).u32(0).bytes),
            READ => {
                let (_handle, offset, length) = (fields.u64(), fields.u64(), fields.u32());
                Ok(KernelAsks::Read {
                    unique,
                    file: self.file(node)?,
                    offset,
                    length: length as usize,
                })
            }
            WRITE => {
                let (_handle, offset, length) = (fields.u64(), fields.u64(), fields.u32());
                let bytes = body.get(40..40 + length as usize).ok_or(errno::INVALID)?.to_vec();
                Ok(KernelAsks::Write { unique, file: self.file(node)?, offset, bytes })
            }
            READ_FOLDER => {
                let (_handle, from, room) = (fields.u64(), fields.u64(), fields.u32());
                reply(self.entries(from, room as usize))
            }
            STATISTICS => reply(vec![0; 80]),
            RELEASE | FLUSH | SYNC | RELEASE_FOLDER | DESTROY => reply(Vec::new()),
            _ => Err(errno::NO_SUCH_CALL),
        }
    }

    /// Node 1 is the folder, and a file's node is its index plus two.
    fn file(&self, node: u64) -> Result<FileIndex, i32> {
        let index = node.checked_sub(2).and_then(|index| usize::try_from(index).ok());
        index.filter(|index| *index < self.names.len()).map(FileIndex).ok_or(errno::NO_ENTRY)
    }

    fn look_up(&self, node: u64, name: &[u8]) -> Result<Vec<u8>, i32> {
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let index = self.names.iter().position(|known| known.as_bytes() == name);
        let index = index.filter(|_| node == ROOT).ok_or(errno::NO_ENTRY)?;
        let words = Words::new().u64(index as u64 + 2).u64(0).u64(1).u64(1).u32(0).u32(0);
        Ok(self.put_attributes(words, index as u64 + 2).bytes)
    }

    fn attributes(&self, node: u64) -> Result<Vec<u8>, i32> {
        if node != ROOT {
            self.file(node)?;
        }
        Ok(self.put_attributes(Words::new().u64(1).u32(0).u32(0), node).bytes)
    }

    fn put_attributes(&self, words: Words, node: u64) -> Words {
        let (size, mode, links) = match node {
            ROOT => (0, FOLDER_MODE, 2),
            _ => (self.file_bytes, FILE_MODE, 1),
        };
        let words = words.u64(node).u64(size).u64(0).u64(0).u64(0).u64(0).u32(0).u32(0).u32(0);
        words.u32(mode).u32(links).u32(0).u32(0).u32(0).u32(4096).u32(0)
    }

    fn entries(&self, from: u64, room: usize) -> Vec<u8> {
        let mut words = Words::new();
        for (index, name) in self.names.iter().enumerate().skip(from as usize) {
            let padded = name.len().next_multiple_of(8);
            if words.bytes.len() + 24 + padded > room {
                break;
            }
            let node = index as u64 + 2;
            words = words.u64(node).u64(index as u64 + 1).u32(name.len() as u32).u32(8);
            words.bytes.extend(name.as_bytes());
            words.bytes.resize(words.bytes.len() + padded - name.len(), 0);
        }
        words.bytes
    }
}

fn init(fields: &mut Fields<'_>) -> Vec<u8> {
    let (_major, minor, read_ahead) = (fields.u32(), fields.u32(), fields.u32());
    let (flags, more_flags) = (fields.u32(), fields.u32());
    let extended = flags & INIT_EXTENDED;
    let timeout = if extended == 0 { 0 } else { more_flags & REQUEST_TIMEOUT };
    let within = if timeout == 0 { 0 } else { REQUEST_WITHIN.as_secs() as u16 };
    let words = Words::new().u32(7).u32(minor.min(MINOR_KNOWN)).u32(read_ahead).u32(extended);
    let words = words.u16(64).u16(48).u32(WRITE_BYTES_MAX).u32(1).u16(0).u16(0).u32(timeout);
    let mut words = words.u32(0).u16(within);
    words.bytes.resize(64, 0);
    words.bytes
}

pub(super) fn success(unique: u64, body: &[u8]) -> Vec<u8> {
    let mut words = Words::new().u32((16 + body.len()) as u32).u32(0).u64(unique);
    words.bytes.extend(body);
    words.bytes
}

pub(super) fn written(unique: u64, count: usize) -> Vec<u8> {
    success(unique, &Words::new().u32(count as u32).u32(0).bytes)
}

pub(super) fn failure(unique: u64, error: i32) -> Vec<u8> {
    Words::new().u32(16).u32((-error).cast_unsigned()).u64(unique).bytes
}

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GET_ATTRIBUTES: u32 = 3;
const SET_ATTRIBUTES: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATISTICS: u32 = 17;
const RELEASE: u32 = 18;
const SYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPEN_FOLDER: u32 = 27;
const READ_FOLDER: u32 = 28;
const RELEASE_FOLDER: u32 = 29;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let Some((head, tail)) = self.0.split_first_chunk::<N>() else { return [0; N] };
        self.0 = tail;
        *head
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.array())
    }
}

struct Words {
    bytes: Vec<u8>,
}

impl Words {
    fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    fn u16(mut self, value: u16) -> Self {
        self.bytes.extend(value.to_ne_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.bytes.extend(value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.bytes.extend(value.to_ne_bytes());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> EepromFolder {
        EepromFolder { names: vec!["n0-b0".into(), "n0-b1".into()], file_bytes: 32_896 }
    }

    fn request(operation: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let words = Words::new().u32(0).u32(operation).u64(9).u64(node).u64(0).u64(0);
        [words.bytes, body.to_vec()].concat()
    }

    #[test]
    fn forwards_reads_and_writes_with_their_offsets() {
        let body = Words::new().u64(0).u64(300).u32(4).u32(0).u64(0).u64(0).bytes;
        let read = folder().asked(&request(READ, 3, &body));
        assert_eq!(
            read,
            KernelAsks::Read { unique: 9, file: FileIndex(1), offset: 300, length: 4 }
        );
        let write = folder().asked(&request(WRITE, 2, &[&body[..], &[1, 2, 3, 4]].concat()));
        let bytes = vec![1, 2, 3, 4];
        assert_eq!(write, KernelAsks::Write { unique: 9, file: FileIndex(0), offset: 300, bytes });
    }

    #[test]
    fn rejects_truncated_and_unknown_requests() {
        let body = Words::new().u64(0).u64(300).u32(400).u32(0).u64(0).u64(0).bytes;
        let refused = |request: Vec<u8>, error| {
            assert_eq!(folder().asked(&request), KernelAsks::Reply(failure(9, error)));
        };
        refused(request(WRITE, 2, &body), errno::INVALID);
        refused(request(READ, 4, &body), errno::NO_ENTRY);
        refused(request(LOOKUP, ROOT, b"n0-b2\0"), errno::NO_ENTRY);
        refused(request(999, ROOT, &[]), errno::NO_SUCH_CALL);
        assert_eq!(folder().asked(&[1, 2, 3]), KernelAsks::Nothing);
        assert_eq!(folder().asked(&request(FORGET, 2, &[0; 8])), KernelAsks::Nothing);
    }

    /// Lengths from `linux/fuse.h`: entry 128, attributes 104, init 64 bytes after a header of 16.
    #[test]
    fn replies_have_the_lengths_the_kernel_expects() {
        let length = |operation, node, body: &[u8]| {
            let KernelAsks::Reply(reply) = folder().asked(&request(operation, node, body)) else {
                panic!("no answer")
            };
            assert_eq!(reply[..4], (reply.len() as u32).to_ne_bytes());
            reply.len() - 16
        };
        assert_eq!(length(LOOKUP, ROOT, b"n0-b1\0"), 128);
        assert_eq!(length(GET_ATTRIBUTES, 2, &[0; 16]), 104);
        assert_eq!(
            length(INIT, 0, &Words::new().u32(7).u32(45).u32(0).u32(1 << 30).u32(1 << 10).bytes),
            64
        );
        assert_eq!(length(OPEN, 2, &[0; 8]), 16);
        let all = Words::new().u64(0).u64(0).u32(4096).u32(0).u64(0).u64(0).bytes;
        assert_eq!(length(READ_FOLDER, ROOT, &all), 64);
    }
}
