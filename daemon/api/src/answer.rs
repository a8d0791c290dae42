// SPDX-License-Identifier: Apache-2.0
//! What a client that asks for a change is answered at once, and why a request is refused.

use serde::{Deserialize, Serialize};

/// The answer to a change. The OpenAPI document describes it by hand, in the daemon's `responses.rs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// It is journalled and under way; ask for the transaction.
    Accepted {
        /// Its number.
        txn: u32,
    },
    /// Nothing has to move; or a request that moves nothing is done.
    Done,
    /// What had light is ours from now on.
    Adopted {
        /// How many devices.
        #[serde(default)]
        devices: usize,
        /// How many of their slots have light.
        #[serde(default)]
        slots: usize,
        /// How many were left out, because they do not answer.
        #[serde(default, skip_serializing_if = "is_none")]
        silent: usize,
    },
    /// There is nothing to do, for a reason that the client may not expect.
    NothingToDo {
        /// Every reason.
        #[serde(default)]
        reasons: Vec<String>,
    },
    /// A phase is scheduled: ask for it under its request id.
    Booked {
        /// The id.
        #[serde(default)]
        request_id: String,
        /// It came no faster after the last than phases do.
        #[serde(default)]
        paced: bool,
    },
    /// A phase is not scheduled, and no light moves.
    PhaseRefused {
        /// Another change or another job is in the way.
        #[serde(default)]
        conflict: bool,
        /// The reason's name, for programs.
        #[serde(default)]
        code: String,
        /// The reason.
        #[serde(default)]
        reason: String,
        /// What to do instead.
        #[serde(default)]
        fix: String,
    },
    /// Another change was first, or one is under way: read the state and decide again.
    Conflict {
        /// What is in the way.
        #[serde(default)]
        reason: String,
    },
    /// It cannot be done as asked. No device was touched.
    Refused {
        /// Every reason.
        #[serde(default)]
        reasons: Vec<String>,
    },
    /// An answer of another version of the daemon.
    #[default]
    #[serde(other)]
    Other,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(count: &usize) -> bool {
    *count == 0
}
