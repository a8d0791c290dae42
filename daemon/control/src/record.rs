// SPDX-License-Identifier: Apache-2.0
//! Records of the journal.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::change::{Mode, PhaseChange, Wave};
use crate::drive::DeviceEnd;
use crate::kept_plan::{FollowingPlan, KeptPlan};
use crate::ledger::Ledger;
use crate::state::{DeviceName, Micros, Now, Slot, SwitchState, Txn};

/// The client of a request, with the request's id, which makes retries idempotent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Asked {
    pub actor: Actor,
    pub request: String,
    /// SHA-256 of the request, which detects a second request with the same id.
    pub digest: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    Apply,
    Phase,
    Rollback(Txn),
    ConfirmTimeout(Txn),
    Bypass,
    /// Uses repaired parts again. Older journals record this as `bypass`.
    Repair,
    Drift,
    #[serde(rename = "owed")]
    Deferred(Txn),
    Late(Txn),
    Probe,
}

impl Cause {
    /// Returns whether the change is an undo, which is never rolled back.
    pub fn undoes(&self) -> bool {
        matches!(self, Self::Rollback(_) | Self::ConfirmTimeout(_) | Self::Deferred(_))
    }

    /// Returns whether the change may start while another one awaits confirmation.
    pub(crate) fn goes_on_top(&self) -> bool {
        matches!(self, Self::Bypass | Self::Repair | Self::Late(_))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "OnFailureFile")]
pub enum OnFailure {
    #[default]
    Rollback,
    Hold,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    pub txn: Txn,
    pub asked: Asked,
    pub cause: Cause,
    pub plan_sha256: String,
    pub mode: Mode,
    pub before: SwitchState,
    pub after: SwitchState,
    /// The positions that the daemon owns on the target's devices after the commit.
    pub goal: SwitchState,
    pub owned_before: SwitchState,
    pub confirm_within: Option<Micros>,
    pub on_failure: OnFailure,
    pub wall_ms: u64,
    #[serde(default, rename = "broken", skip_serializing_if = "Option::is_none")]
    pub failed: Option<BTreeMap<String, Failed>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PhaseChange>,
    /// Positions after each stage. Slots that are not part of a stage move last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<SwitchState>,
    /// Fault reports that the commit resolves, because it bypasses the parts or they work again.
    #[serde(default, rename = "settles", skip_serializing_if = "BTreeSet::is_empty")]
    pub resolves: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Unix time in milliseconds when the fault became known; 0 if not recorded.
    pub wall_ms: u64,
    pub why: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspected: bool,
    /// The healthy rings that its bypass moved, as text; empty if none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub price: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TxnResult {
    Committed,
    RolledBack,
    Aborted,
    Partial,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    pub txn: Txn,
    pub since: Now,
    pub within: Micros,
}

impl Pending {
    /// Within one boot, the deadline uses only the monotonic clock, so jumps of the wall clock have
    /// no effect. After a reboot, the wall clock can shorten the wait but never extend it.
    pub fn deadline(&self, now: &Now) -> Micros {
        end_of(&self.since, self.within, now)
    }

    pub fn until_unix_ms(&self, now: &Now) -> u64 {
        if now.boot != self.since.boot {
            let promised = self.since.wall_ms.saturating_add(self.within.0 / 1000);
            return promised.min(now.wall_ms.saturating_add(self.within.0 / 1000));
        }
        let deadline = self.deadline(now);
        let (ahead, past) = ((deadline - now.mono).0, (now.mono - deadline).0);
        now.wall_ms.saturating_add(ahead / 1000).saturating_sub(past.div_ceil(1000))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub actor: Actor,
    pub job: String,
    pub since: Now,
    pub within: Micros,
}

impl Lease {
    pub fn until(&self, now: &Now) -> Micros {
        end_of(&self.since, self.within, now)
    }
}

fn end_of(since: &Now, within: Micros, now: &Now) -> Micros {
    if now.boot == since.boot {
        return since.mono + within;
    }
    let passed = Micros::from_millis(now.wall_ms.saturating_sub(since.wall_ms));
    now.mono + (within - passed)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    Started {
        daemon: String,
        wall_ms: u64,
    },
    Snapshot {
        after: String,
        ledger: Box<Ledger>,
    },
    Plan(KeptPlan),
    /// A plan around a fault, as the difference from the previous plan.
    PlanAfter(Box<FollowingPlan>),
    /// A fault report, open until a change [resolves](Intent::resolves) it.
    Reported {
        asked: Asked,
        parts: BTreeMap<String, Failed>,
        wall_ms: u64,
    },
    /// The audit log has a key from now on. A log without this key is not genuine.
    AuditKey {
        sha256: String,
        wall_ms: u64,
    },
    /// `None` if the lease was released.
    Leased {
        asked: Asked,
        lease: Option<Lease>,
        wall_ms: u64,
    },
    /// A transaction begins. Durable before any command.
    Intent(Box<Intent>),
    Fire {
        txn: Txn,
        wave: Wave,
        #[serde(default)]
        wall_ms: u64,
    },
    Turn {
        txn: Txn,
        #[serde(rename = "parts")]
        ends: BTreeMap<DeviceName, DeviceEnd>,
        #[serde(default)]
        wall_ms: u64,
    },
    End {
        txn: Txn,
        result: TxnResult,
        #[serde(rename = "parts")]
        ends: BTreeMap<DeviceName, DeviceEnd>,
        pending: Option<Pending>,
        #[serde(default)]
        wall_ms: u64,
    },
    Confirmed {
        txn: Txn,
        asked: Asked,
        #[serde(default)]
        wall_ms: u64,
    },
    Adopted {
        asked: Asked,
        positions: SwitchState,
        #[serde(default)]
        wall_ms: u64,
    },
    Held {
        asked: Asked,
        levers: BTreeSet<(DeviceName, Slot)>,
        drained: bool,
        #[serde(default)]
        wall_ms: u64,
    },
    /// Earlier automatic changes no longer count towards the hourly limit.
    Resumed {
        asked: Asked,
        wall_ms: u64,
    },
}

impl Record {
    /// Returns whether later actions must wait until this record is durable. `Fire` does not wait,
    /// because after a crash the daemon examines all devices of the durable intent.
    pub fn is_waited_for(&self) -> bool {
        !matches!(self, Self::Fire { .. })
    }

    pub fn goes_on(&self) -> bool {
        matches!(self, Self::Fire { .. } | Self::Turn { .. } | Self::End { .. })
    }
}
