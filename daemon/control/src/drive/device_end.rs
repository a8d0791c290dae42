// SPDX-License-Identifier: Apache-2.0

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Applied,
    Untouched,
    Refused,
    Failed,
    Unknown,
    RolledBack,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceEnd {
    pub verdict: Verdict,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlit: bool,
}

impl DeviceEnd {
    pub fn new(verdict: Verdict, detail: String) -> Self {
        Self { verdict, detail, unlit: false }
    }
}
