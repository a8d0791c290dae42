// SPDX-License-Identifier: Apache-2.0

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// The SHA-256 identifies the key without revealing it.
    pub fn sha256(&self) -> String {
        hex(&Sha256::digest(self.0))
    }

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

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub(super) seq: u64,
    pub(super) hash: String,
    pub(super) key: Option<Key>,
    pub(super) keyed_from: Option<u64>,
}

impl Chain {
    pub(super) fn new(key: Option<Key>) -> Self {
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

    pub(super) fn push(&mut self, body: &str, lines: &mut String) {
        let hash = self.hash(body.as_bytes());
        self.seq += 1;
        self.note_keyed();
        for part in [&self.seq.to_string(), " ", &hash, " ", body, "\n"] {
            lines.push_str(part);
        }
        self.hash = hash;
    }

    pub(super) fn begins(&self, tail: &[u8]) -> bool {
        let tail = tail.strip_prefix(b"+").unwrap_or(tail);
        let number = format!("{} ", self.seq + 1);
        let length = number.len().min(tail.len());
        tail[..length] == number.as_bytes()[..length]
    }

    pub(super) fn check<'a>(&mut self, line: &'a [u8]) -> Result<&'a [u8], String> {
        let mut parts = line.splitn(3, |byte| *byte == b' ');
        let (Some(seq), Some(hash), Some(body)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("is not `seq hash body`".into());
        };
        let seq = seq.strip_prefix(b"+").unwrap_or(seq);
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
