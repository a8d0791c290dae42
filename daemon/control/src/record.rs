// SPDX-License-Identifier: Apache-2.0
//! What is written into the journal; folded, it is the [ledger](crate::ledger).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::change::{Mode, PhaseChange, Wave};
use crate::drive::PartEnd;
use crate::kept_plan::{FollowingPlan, KeptPlan};
use crate::ledger::Ledger;
use crate::state::{DeviceName, Fabric, Micros, Now, Slot, Txn};

/// Who asked, and the id under which asking again acts once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Asked {
    /// The client, or a policy of the daemon itself.
    pub actor: Actor,
    /// Chosen by the client.
    pub request: String,
    /// SHA-256 of what was asked, so that one id cannot mean two things.
    pub digest: String,
}

/// Why a transaction exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A plan was applied.
    Apply,
    /// The next phase of the plan on the devices.
    Phase,
    /// An operator asked to undo everything from this transaction on.
    Rollback(Txn),
    /// Nobody confirmed this transaction in time.
    ConfirmTimeout(Txn),
    /// A fault was bypassed.
    Bypass,
    /// Parts work again and were taken back; a bypass in journals that have no word for it.
    Repair,
    /// The policy put back what somebody else moved.
    Drift,
    /// A device that did not answer when this transaction was to bring it somewhere answers again.
    Owed(Txn),
    /// A command of this transaction was carried out after it was over, and is undone.
    Late(Txn),
    /// Ends without a circuit were lit to see what they are joined with.
    Probe,
}

impl Cause {
    /// Whether it completes something that is no longer wanted otherwise: it goes as far as devices let it,
    /// and never back.
    #[must_use]
    pub fn undoes(&self) -> bool {
        matches!(self, Self::Rollback(_) | Self::ConfirmTimeout(_) | Self::Owed(_))
    }

    /// Whether it does not wait for the confirm of another change: light that is missing cannot. It is made on
    /// top of what is unconfirmed, and that goes on to wait for its confirm.
    #[must_use]
    pub fn goes_on_top(&self) -> bool {
        matches!(self, Self::Bypass | Self::Repair | Self::Late(_))
    }
}

/// What to do when a device does not get to its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// Bring every device that moved back to where it stood.
    #[default]
    Rollback,
    /// Leave every device where it is and report which are where.
    Hold,
}

/// A transaction, before its first byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Its number.
    pub txn: Txn,
    /// Who wanted it.
    pub asked: Asked,
    /// Why.
    pub cause: Cause,
    /// SHA-256 of the plan, empty where there is none.
    pub plan_sha256: String,
    /// How much it may disturb.
    pub mode: Mode,
    /// Where the slots that move stood on the devices.
    pub before: Fabric,
    /// Where they go.
    pub after: Fabric,
    /// Everything we own on the devices it names once it is committed.
    pub goal: Fabric,
    /// What we owned on them before.
    pub owned_before: Fabric,
    /// Undo it unless somebody confirms within this time.
    pub confirm_within: Option<Micros>,
    /// What to do when a device fails.
    pub on_failure: OnFailure,
    /// Unix time in milliseconds, for people.
    pub wall_ms: u64,
    /// What is known to be broken once it is committed, part by part; `None` leaves that as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<BTreeMap<String, Broken>>,
    /// The phase of a plan with phases, and in which order its circuits are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PhaseChange>,
    /// Where each stage leaves the slots it moves; what no stage names moves last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Fabric>,
    /// Reports of broken parts that are settled once it is committed: it bypasses them, or they work again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub settles: BTreeSet<String>,
}

/// A part that the plan goes around.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredBroken")]
pub struct Broken {
    /// Since when that is known, Unix time in milliseconds; 0 where nobody wrote it down.
    pub wall_ms: u64,
    /// Who or what says so, for operators.
    pub why: String,
    /// Nobody says so: a bypass failed at it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspected: bool,
}

/// How a broken part is written down. Journals of 0.1.0 say in the text alone that it is a suspect.
#[derive(Deserialize)]
struct StoredBroken {
    wall_ms: u64,
    why: String,
    #[serde(default)]
    suspected: bool,
}

impl From<StoredBroken> for Broken {
    fn from(stored: StoredBroken) -> Self {
        let StoredBroken { wall_ms, why, suspected } = stored;
        let suspected = suspected || why.starts_with("suspect: ");
        Self { wall_ms, why, suspected }
    }
}

/// How a transaction ended as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TxnResult {
    /// Every device is at the target.
    Committed,
    /// Every device is back where it was.
    RolledBack,
    /// Nothing moved.
    Aborted,
    /// Some devices are where the list says, and an operator has to look.
    Partial,
}

/// A confirm that is being waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// Which transaction.
    pub txn: Txn,
    /// The clocks when it was committed.
    pub since: Now,
    /// How long it may take.
    pub within: Micros,
}

impl Pending {
    /// When it is over, on the monotonic clock of `now`.
    ///
    /// Within one boot only the monotonic clock counts, so wall-clock jumps mean nothing. After a
    /// reboot the wall clock is all there is: it can shorten the wait, never lengthen it.
    #[must_use]
    pub fn deadline(&self, now: &Now) -> Micros {
        end_of(&self.since, self.within, now)
    }

    /// The same as Unix time in milliseconds, by the clock as it stands now. It does not move on when it is
    /// past.
    #[must_use]
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

/// A job's word that the circuits are its own for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The client.
    pub actor: Actor,
    /// Its job.
    pub job: String,
    /// The clocks when it was given.
    pub since: Now,
    /// For how long.
    pub within: Micros,
}

impl Lease {
    /// When it is over, on the monotonic clock of `now`; after a reboot as for [`Pending::deadline`].
    #[must_use]
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

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// A daemon started on this journal.
    Started {
        /// Its version.
        daemon: String,
        /// Unix time in milliseconds.
        wall_ms: u64,
    },
    /// Everything that the records of an earlier journal said; this one begins with it.
    Snapshot {
        /// The hash of the earlier journal's last line.
        after: String,
        /// What it came to.
        ledger: Box<Ledger>,
    },
    /// A plan, before the first intent that names it.
    Plan(KeptPlan),
    /// The same of a plan around what broke, by what makes it of the plan before.
    PlanAfter(Box<FollowingPlan>),
    /// An operator reports that these parts are broken. It holds until a change [settles](Intent::settles) it.
    Reported {
        /// Who.
        asked: Asked,
        /// The parts, since when and why.
        parts: BTreeMap<String, Broken>,
        /// Unix time in milliseconds.
        wall_ms: u64,
    },
    /// The audit log beside this journal is keyed from now on: without this key it is not the one.
    AuditKey {
        /// SHA-256 of the key.
        sha256: String,
        /// Unix time in milliseconds.
        wall_ms: u64,
    },
    /// A job has a lease from now on; `None` if it was given up.
    Leased {
        /// Who.
        asked: Asked,
        /// The lease.
        lease: Option<Lease>,
        /// Unix time in milliseconds.
        wall_ms: u64,
    },
    /// A transaction begins: durable before any device hears of it.
    Intent(Box<Intent>),
    /// This wave is about to move light.
    Fire {
        /// Of which transaction.
        txn: Txn,
        /// What moves.
        wave: Wave,
        /// Unix time in milliseconds; 0 in journals that did not write it down.
        #[serde(default)]
        wall_ms: u64,
    },
    /// The transaction goes back from here.
    Turn {
        /// Which.
        txn: Txn,
        /// How the devices came out of going forward.
        parts: BTreeMap<DeviceName, PartEnd>,
        /// Unix time in milliseconds; 0 in journals that did not write it down.
        #[serde(default)]
        wall_ms: u64,
    },
    /// The transaction is over.
    End {
        /// Which.
        txn: Txn,
        /// As a whole.
        result: TxnResult,
        /// Device by device.
        parts: BTreeMap<DeviceName, PartEnd>,
        /// The confirm it waits for, when committed with one.
        pending: Option<Pending>,
        /// Unix time in milliseconds; 0 in journals that did not write it down.
        #[serde(default)]
        wall_ms: u64,
    },
    /// Somebody confirmed.
    Confirmed {
        /// Which transaction.
        txn: Txn,
        /// Who.
        asked: Asked,
        /// Unix time in milliseconds; 0 in journals that did not write it down.
        #[serde(default)]
        wall_ms: u64,
    },
    /// What is lit on these devices is ours from now on. Nothing moved.
    Adopted {
        /// Who.
        asked: Asked,
        /// What was lit.
        positions: Fabric,
        /// Unix time in milliseconds; 0 in journals that did not write it down.
        #[serde(default)]
        wall_ms: u64,
    },
    /// An operator holds these levers drained, or lets go of them.
    Held {
        /// Who.
        asked: Asked,
        /// Which levers.
        levers: BTreeSet<(DeviceName, Slot)>,
        /// Drained from now on, or not.
        drained: bool,
        /// Unix time in milliseconds; 0 in journals that did not write it down.
        #[serde(default)]
        wall_ms: u64,
    },
    /// What the daemon changed without being asked before this counts no more.
    Resumed {
        /// Who.
        asked: Asked,
        /// Unix time in milliseconds.
        wall_ms: u64,
    },
}

impl Record {
    /// Whether everything behind this record waits until it is durable.
    ///
    /// Not so for `Fire`, which becomes durable with the next record: its transaction's intent is,
    /// and after a crash every device that the intent names is looked at, fired or not. So the only
    /// thing that light waits for is the intent.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        !matches!(self, Self::Fire { .. })
    }

    /// Whether it brings on what was begun before: on a full disk it has the space that was set aside.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        matches!(self, Self::Fire { .. } | Self::Turn { .. } | Self::End { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspect_is_one_by_its_mark_and_in_the_first_journals_by_its_text() {
        let read = |text: &str| -> Broken { serde_json::from_str(text).expect("it is one") };
        let old = read(r#"{"wall_ms":1,"why":"suspect: 5 failed there: it said done"}"#);
        assert!(old.suspected);
        assert!(!read(r#"{"wall_ms":1,"why":"alice said so"}"#).suspected);
        let text = serde_json::to_string(&old).expect("it can be written");
        assert_eq!(read(&text), old);
    }
}
