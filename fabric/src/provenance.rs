// SPDX-License-Identifier: Apache-2.0
//! What a result came from: the program's version, and every file that went into it by its hash.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use sha2::{Digest, Sha256};

/// The version of lightloom.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A file that a result came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// As the user named it.
    pub file: String,
    /// SHA-256 of its bytes, in hex.
    pub sha256: String,
}

impl Input {
    /// A file of these bytes.
    #[must_use]
    pub fn of(file: impl Into<String>, bytes: &[u8]) -> Self {
        Self { file: file.into(), sha256: sha256(bytes) }
    }
}

/// The files a result came from, by the part they have in it: `fabric`, `scenario`, `trace`, `prices`.
pub type Inputs = BTreeMap<String, Input>;

/// What every JSON result begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The kind of document and its version.
    pub schema: String,
    /// The version of the program that wrote it.
    pub version: String,
    /// The files it came from.
    pub inputs: Inputs,
}

impl Provenance {
    /// That of a document this version makes out of `inputs`.
    #[must_use]
    pub fn of(schema: &str, inputs: Inputs) -> Self {
        Self { schema: schema.to_owned(), version: VERSION.to_owned(), inputs }
    }
}

/// The SHA-256 of a file as results name it: 64 hexadecimal digits.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    sha256_of_parts([bytes])
}

/// The same of bytes in parts.
pub(crate) fn sha256_of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    parts.into_iter().for_each(|part| hash.update(part));
    let digest: [u8; 32] = hash.finalize().into();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
