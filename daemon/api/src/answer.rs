// SPDX-License-Identifier: Apache-2.0
//! The daemon's immediate response to a request for a change.

use serde::{Deserialize, Serialize};

/// The response to a change request. The daemon's `responses.rs` defines its OpenAPI schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// The change is in the journal and in progress. Poll the transaction for its result.
    Accepted {
        /// Transaction number.
        txn: u32,
    },
    /// The requested state is already reached, or the request did not require moves.
    Done,
    /// The daemon has adopted the current positions of the devices.
    Adopted {
        /// Number of devices.
        #[serde(default)]
        devices: usize,
        /// Number of lit slots on these devices.
        #[serde(default)]
        slots: usize,
        /// Number of devices that were skipped because they are unreachable.
        #[serde(default, skip_serializing_if = "is_none")]
        silent: usize,
    },
    /// The request has no effect, for reasons that the client may not expect.
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
        /// Whether the request is exempt from the rate limit thanks to its spacing.
        #[serde(default)]
        paced: bool,
    },
    /// The phase was not scheduled, and no circuit is switched.
    PhaseRefused {
        /// Whether another change or another job is the reason.
        #[serde(default)]
        conflict: bool,
        /// Machine-readable reason code.
        #[serde(default)]
        code: String,
        /// The reason as text.
        #[serde(default)]
        reason: String,
        /// What to do instead.
        #[serde(default)]
        fix: String,
    },
    /// Another change was made first or is in progress. Read the state again before retrying.
    Conflict {
        /// Description of the conflict.
        #[serde(default)]
        reason: String,
    },
    /// The request cannot be executed. No device was changed.
    Refused {
        /// The reasons.
        #[serde(default)]
        reasons: Vec<String>,
    },
    /// A response from another version of the daemon.
    #[default]
    #[serde(other)]
    Other,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(count: &usize) -> bool {
    *count == 0
}
