// SPDX-License-Identifier: Apache-2.0
//! The daemon's immediate answer to a request for a change.

use serde::{Deserialize, Serialize};

/// The answer to a change. The daemon's `responses.rs` has a separate OpenAPI description of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// The change is in the journal and in progress. Poll the transaction for its result.
    Accepted {
        /// Transaction number.
        txn: u32,
    },
    /// The state already is as requested, or a request without moves is complete.
    Done,
    /// The daemon now owns the light that was found on the devices.
    Adopted {
        /// Number of devices.
        #[serde(default)]
        devices: usize,
        /// Number of slots with light on these devices.
        #[serde(default)]
        slots: usize,
        /// Number of devices that were skipped because they are unreachable.
        #[serde(default, skip_serializing_if = "is_none")]
        silent: usize,
    },
    /// The request has no effect, for reasons the client may not expect.
    NothingToDo {
        /// The reasons.
        #[serde(default)]
        reasons: Vec<String>,
    },
    /// A phase is scheduled. Poll its status with this request id.
    Booked {
        /// Request id.
        #[serde(default)]
        request_id: String,
        /// Whether the request came long enough after the previous one not to count against the
        /// client's rate limit.
        #[serde(default)]
        paced: bool,
    },
    /// The phase is not scheduled, and no light moves.
    PhaseRefused {
        /// Whether another change or another job is the obstacle.
        #[serde(default)]
        conflict: bool,
        /// Machine-readable reason code.
        #[serde(default)]
        code: String,
        /// The reason in words.
        #[serde(default)]
        reason: String,
        /// What to do instead.
        #[serde(default)]
        fix: String,
    },
    /// Another change was first or is still in progress. Read the state again before retrying.
    Conflict {
        /// Description of what conflicts with the request.
        #[serde(default)]
        reason: String,
    },
    /// The request cannot be executed. No device was touched.
    Refused {
        /// The reasons.
        #[serde(default)]
        reasons: Vec<String>,
    },
    /// An answer that only another version of the daemon sends.
    #[default]
    #[serde(other)]
    Other,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(count: &usize) -> bool {
    *count == 0
}
