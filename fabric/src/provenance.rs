// SPDX-License-Identifier: Apache-2.0
//! The provenance of a result consists of the program version and the hashes of all input files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use sha2::{Digest, Sha256};

/// The version of lightloom.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An input file of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Path as given by the user.
    pub file: String,
    /// SHA-256 of its contents, in hex.
    pub sha256: String,
}

impl Input {
    /// Describes a file with these contents.
    pub fn of(file: impl Into<String>, bytes: &[u8]) -> Self {
        Self { file: file.into(), sha256: sha256(bytes) }
    }
}

/// Input files of a result, keyed by role, such as `fabric`, `scenario`, `trace` or `prices`.
pub type Inputs = BTreeMap<String, Input>;

/// The header of every JSON result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Schema name and version of the document.
    pub schema: String,
    /// Version of the program that wrote it.
    pub version: String,
    /// Input files.
    pub inputs: Inputs,
}

impl Provenance {
    /// Creates the header of a document that this version derives from `inputs`.
    pub fn of(schema: &str, inputs: Inputs) -> Self {
        Self { schema: schema.to_owned(), version: VERSION.to_owned(), inputs }
    }
}

/// Returns the SHA-256 of a file's contents as 64 hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    sha256_of_parts([bytes])
}

pub(crate) fn sha256_of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    parts.into_iter().for_each(|part| hash.update(part));
    let digest: [u8; 32] = hash.finalize().into();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
