// SPDX-License-Identifier: Apache-2.0
//! How one device came out of a drive.

use serde::{Deserialize, Serialize};

/// How one device came out of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// At the target, read back and qualified.
    Applied,
    /// Nothing was sent that moves light.
    Untouched,
    /// The device said no.
    Refused,
    /// It was tried and the device stands elsewhere, or its light is not good.
    Failed,
    /// It could not be read: nothing is claimed.
    Unknown,
    /// It was at the target and has been brought back, read back and qualified.
    RolledBack,
}

/// How one device came out, with the reason in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartEnd {
    /// The verdict.
    pub verdict: Verdict,
    /// Why, for people. Empty when applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// It did as it was told, and missed light that another end or the fibre should have brought.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlit: bool,
}

impl PartEnd {
    /// A verdict and its reason.
    #[must_use]
    pub fn new(verdict: Verdict, detail: String) -> Self {
        Self { verdict, detail, unlit: false }
    }
}
