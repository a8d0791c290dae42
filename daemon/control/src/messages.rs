// SPDX-License-Identifier: Apache-2.0
//! The controller's inputs and outputs: requests and events in, answers and actions out.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fault::Part;
use serde::{Deserialize, Serialize};

use crate::change::{Mode, Phase};
use crate::kept_plan::KeptPlan;
use crate::management::Trouble;
use crate::mover::Promise;
use crate::record::{Asked, Cause, Failed, OnFailure, Record, TxnResult};
use crate::sightings::{Contended, Crossed, Foreign, Signal, Ticket};
use crate::state::{DeviceName, Drift, Micros, Op, Outcome, Slot, SwitchState, Txn};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplyTo(pub u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Apply(Apply),
    Confirm(Txn),
    Rollback(Rollback),
    Adopt(Adopt),
    Hold { slots: Vec<(DeviceName, Slot)>, drained: bool },
    Resume,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Apply {
    /// Owned slots of these devices go dark if they are not in the target.
    pub target: SwitchState,
    pub neighbours: BTreeMap<DeviceName, BTreeMap<Slot, String>>,
    pub plan_sha256: String,
    pub mode: Mode,
    pub version: Option<u64>,
    pub confirm_within: Option<Micros>,
    pub on_failure: Option<OnFailure>,
    pub cause: Option<Cause>,
    /// Failed parts after the commit; `None` leaves them unchanged.
    pub failed: Option<BTreeMap<String, Failed>>,
    pub phase: Option<Box<Phase>>,
    pub plan: Option<Box<KeptPlan>>,
    pub resolves: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollback {
    pub txn: Txn,
    pub confirm_within: Option<Micros>,
    /// A target that avoids later faults, instead of the [exact rollback](crate::transactions::Transactions::way_back).
    pub avoiding: Option<Box<Apply>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adopt {
    pub devices: Vec<DeviceName>,
    pub leave_out_unreachable: bool,
    pub against_plan: bool,
}

impl From<Vec<DeviceName>> for Adopt {
    fn from(devices: Vec<DeviceName>) -> Self {
        Self { devices, ..Self::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    Accepted {
        txn: Txn,
    },
    Done,
    Adopted {
        devices: usize,
        slots: usize,
        #[serde(default, rename = "silent", skip_serializing_if = "is_none")]
        unreachable: usize,
    },
    NothingToDo {
        reasons: Vec<String>,
    },
    Booked {
        request_id: String,
        paced: bool,
    },
    PhaseRefused {
        conflict: bool,
        code: String,
        reason: String,
        fix: String,
    },
    Conflict {
        reason: String,
    },
    Refused {
        reasons: Vec<String>,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Request {
        asked: Asked,
        request: Request,
        reply_to: ReplyTo,
    },
    Reply {
        device: DeviceName,
        ticket: Ticket,
        outcome: Outcome,
    },
    Promised(DeviceName, Promise),
    Reachable(DeviceName),
    Unreachable(DeviceName, Trouble),
    Foreign(DeviceName, Foreign),
    Signalled(DeviceName, Signal),
    /// A query for a module's identity and state starts or ends. Operations wait until it ends.
    Occupied(DeviceName, bool),
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Append(Vec<Record>),
    Send(DeviceName, Ticket, Op),
    /// Stop waiting for this reply, because it would be too late, and open a new connection.
    Abandon(DeviceName, Ticket),
    Answer(ReplyTo, Answer),
    Note(Note),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    Reachable(DeviceName),
    Unreachable(DeviceName, String),
    Drift(DeviceName, Vec<Drift>),
    Crossed(DeviceName, Vec<Crossed>),
    Contended(DeviceName, Option<Contended>),
    Bypassing(Vec<(Part, String)>, Micros),
    TooMany(Vec<(Part, String)>),
    /// Groups that return to the applied plan and those that stay, such as `g3 of pretrain`.
    Healing {
        healed: BTreeSet<String>,
        left: BTreeSet<String>,
    },
    Fired(Txn),
    Ended(Txn, TxnResult),
    Unknown(DeviceName, String),
    Late(DeviceName),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox(Vec<Action>);

impl Outbox {
    pub(crate) fn push(&mut self, action: Action) {
        self.0.push(action);
    }

    pub(crate) fn note(&mut self, note: Note) {
        self.push(Action::Note(note));
    }

    pub(crate) fn append(&mut self, record: Record) {
        match self.0.last_mut() {
            Some(Action::Append(records)) => records.push(record),
            _ => self.push(Action::Append(vec![record])),
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.0)
    }
}
