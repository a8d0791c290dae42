// SPDX-License-Identifier: Apache-2.0
//! The controller: a state machine from events to actions, without clocks, sockets or threads.
//!
//! ```text
//!   idle ──apply──▶ Intent ─▶ drive forward ──all applied──▶ End committed ─▶ (confirm?) ─▶ idle
//!                                  │                                             │ too late
//!                                  └─ trouble ─▶ Turn ─▶ drive back ─▶ End       └──▶ rollback
//! ```
//!
//! Only one transaction is open at a time, except that a bypass may start while a change awaits its
//! confirmation. The caller executes the actions in order. A record with [`Record::is_waited_for`]
//! must be durable before any later action.

mod agenda;
mod budget;
mod contention;
mod darkness;
mod deferred;
mod devices;
mod drift;
mod readings;
mod requests;
mod shut;
mod signals;
mod silence;
mod strays;
mod transactions;
mod witnesses;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lightloom_fabric::fault::Part;
use serde::{Deserialize, Serialize};

use crate::change::{self, Known, Mode, Phase, PhaseChange, Wave};
use crate::drive::Drive;
use crate::inventory::Inventory;
use crate::kept_plan::KeptPlan;
use crate::ledger::Ledger;
use crate::management::Trouble;
use crate::mover::Promise;
use crate::record::{Asked, Broken, Cause, OnFailure, Record, TxnResult};
use crate::state::{
    DeviceName, Micros, Move, Now, Observation, Op, Outcome, Position, Positions, Shut, Slot,
    SwitchState, Txn,
};
use agenda::Devices;
use budget::{OwnChange, own_changes};
use contention::Contention;
pub use contention::{Contended, Foreign, QUIET, RESTORES_MAX};
use darkness::Dark;
pub use darkness::DarkFibre;
pub use deferred::Remedy;
pub(crate) use drift::own;
pub use drift::{Crossed, Planned, end_name};
pub use requests::Adopt;
pub use shut::ShutEnd;
pub use signals::Signal;
use strays::Strays;
pub use witnesses::{Sight, Testimony};

pub const OWN_CHANGES_MAX: usize = 10;
pub const OWN_CHANGES_WINDOW: Micros = Micros::from_secs(3600);

/// Identifies an operation sent to a device. Replies with an old ticket are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

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
    /// Known faults after the commit; `None` leaves them unchanged.
    pub broken: Option<BTreeMap<String, Broken>>,
    pub phase: Option<Box<Phase>>,
    pub plan: Option<Box<KeptPlan>>,
    pub settles: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollback {
    pub txn: Txn,
    pub confirm_within: Option<Micros>,
    /// A target around later faults, instead of the [exact rollback](Controller::way_back).
    pub around: Option<Box<Apply>>,
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
        #[serde(default, skip_serializing_if = "is_none")]
        silent: usize,
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
    Up(DeviceName),
    Down(DeviceName, Trouble),
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
    Up(DeviceName),
    Down(DeviceName, String),
    Drift(DeviceName, Vec<Drift>),
    Crossed(DeviceName, Vec<Crossed>),
    Contended(DeviceName, Option<Contended>),
    Bypassing(Vec<(Part, String)>, Micros),
    TooMany(Vec<(Part, String)>),
    Fired(Txn),
    Ended(Txn, TxnResult),
    Unknown(DeviceName, String),
    Late(DeviceName),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    pub slot: Slot,
    pub wanted: Position,
    pub observed: Position,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    pub version: u64,
    pub changes: BTreeMap<DeviceName, Vec<Move>>,
    pub waves: Vec<Wave>,
    pub phase: Option<PhaseChange>,
}

#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub up: bool,
    was_up: bool,
    pub observed: Option<Observation>,
    pub read_at: Micros,
    pub down_since: Micros,
    silent_since: Micros,
    pub trouble: Option<Trouble>,
    pub drift: Vec<Drift>,
    crossed: Vec<Crossed>,
    named_at: Micros,
    missed_opposite: bool,
    stood: Option<Positions>,
    stands_since: Micros,
    dark: BTreeMap<Slot, Dark>,
    shut: BTreeMap<Slot, (Shut, Micros)>,
    usual: BTreeMap<(Slot, Position), i32>,
    signalled: signals::Signalled,
    in_flight: Option<Flight>,
    pace: signals::Pace,
    occupied: bool,
    free_since: Micros,
    waiting: VecDeque<(Op, bool)>,
    next_poll: Micros,
    /// Number of attempts at the deferred change, and the time of the next attempt.
    settled: (u32, Micros),
    contention: Contention,
    late_until: Micros,
}

#[derive(Clone, Debug)]
struct Flight {
    ticket: Ticket,
    asked: Micros,
    late_at: Micros,
    is_late: bool,
    is_probe: bool,
    unanswered: Option<Micros>,
    deadline: Micros,
    drives: bool,
    names: bool,
    moves: bool,
    in_a_crowd: bool,
}

#[derive(Clone, Debug)]
pub struct Controller {
    inventory: Inventory,
    ledger: Ledger,
    planned: Planned,
    devices: Devices,
    drive: Option<Drive>,
    crowd: signals::Crowd,
    neighbours: BTreeMap<DeviceName, BTreeMap<Slot, String>>,
    around: Option<(Txn, Apply)>,
    tickets: u64,
    own_changes: VecDeque<OwnChange>,
    /// Earliest start of the next automatic transaction after one that failed or had no effect.
    own_not_before: Micros,
    only_reads: bool,
    strays: Strays,
}

impl Controller {
    #[must_use]
    pub fn start(inventory: Inventory, ledger: Ledger, now: &Now) -> (Self, Vec<Action>) {
        let unseen = || Seen { silent_since: now.mono, ..Seen::default() };
        let devices = inventory.devices.keys().map(|name| (name.clone(), unseen()));
        let devices = Devices::new(devices.collect());
        let own_changes = own_changes(&ledger, now);
        let mut controller = Self {
            inventory,
            ledger,
            planned: Planned::default(),
            devices,
            drive: None,
            crowd: signals::Crowd::default(),
            neighbours: BTreeMap::new(),
            around: None,
            tickets: 0,
            own_changes,
            own_not_before: Micros::default(),
            only_reads: false,
            strays: Strays::new(),
        };
        let actions = controller.started(now);
        (controller, actions)
    }

    fn started(&mut self, now: &Now) -> Vec<Action> {
        let daemon = env!("CARGO_PKG_VERSION").to_owned();
        let mut actions = Vec::new();
        self.append(Record::Started { daemon, wall_ms: now.wall_ms }, &mut actions);
        self.remember_restores(now);
        self.expect_late(now);
        self.recover(now, &mut actions);
        actions
    }

    pub fn only_read(&mut self, ledger: Ledger) {
        (self.ledger, self.only_reads) = (ledger, true);
        (self.drive, self.around) = (None, None);
        self.neighbours.clear();
        for seen in self.devices.values_mut() {
            seen.waiting.clear();
            if let Some(flight) = &mut seen.in_flight {
                flight.drives = false;
            }
        }
    }

    pub fn not_sent(&mut self, actions: &[Action]) {
        for action in actions {
            if let Action::Send(device, ticket, _) = action
                && let Some(seen) = self.devices.get_mut(device)
            {
                seen.in_flight.take_if(|flight| flight.ticket == *ticket);
            }
        }
    }

    pub fn go_on(&mut self, ledger: Ledger, now: &Now) -> Vec<Action> {
        self.only_read(ledger);
        self.only_reads = false;
        self.own_changes = own_changes(&self.ledger, now);
        self.started(now)
    }

    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
    #[must_use]
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }
    #[must_use]
    pub fn devices(&self) -> &BTreeMap<DeviceName, Seen> {
        &self.devices
    }
    pub fn down_devices(&self) -> impl Iterator<Item = (&DeviceName, &Seen)> {
        self.devices.down()
    }
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.drive.is_some()
    }

    #[must_use]
    pub fn deadline(&self, now: &Now) -> Option<Micros> {
        let reads = self.first_due();
        if self.only_reads {
            return reads;
        }
        let drive = self.drive.as_ref().and_then(Drive::deadline);
        let pending = match (&self.drive, &self.ledger.pending) {
            (None, Some(pending)) => Some(pending.deadline(now).max(self.own_not_before)),
            _ => None,
        };
        reads.into_iter().chain(drive).chain(pending).chain(self.settles_at(now)).min()
    }

    pub fn handle(&mut self, now: &Now, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Request { asked, request, reply_to } => {
                let answer = self.request(now, asked, request, &mut actions);
                actions.push(Action::Answer(reply_to, answer));
            }
            Event::Reply { device, ticket, outcome } => {
                self.reply(now, &device, ticket, outcome, &mut actions);
            }
            Event::Promised(device, promise) => {
                if promise.refuses_late {
                    self.expect_nothing_late(&device);
                }
                self.inventory.promised(&device, &promise);
                self.devices.is_changed(&device);
            }
            Event::Up(device) => self.up(now, device, &mut actions),
            Event::Down(device, reason) => self.down(now, device, reason, &mut actions),
            Event::Foreign(device, what) => self.foreign(now, &device, what, &mut actions),
            Event::Signalled(device, signal) => self.signalled(now, &device, signal),
            Event::Occupied(device, occupied) => self.occupied(now, &device, occupied),
            Event::Tick => self.tick(now, &mut actions),
        }
        self.settle_agenda();
        actions
    }

    pub fn preview(&self, apply: &Apply) -> Result<Preview, Vec<String>> {
        let changes = match apply.cause.as_ref().is_some_and(Cause::undoes) {
            true => self.changes_back(&mut apply.clone())?,
            false => change::difference(&apply.target, apply.mode, |device| self.known(device))
                .map_err(|objections| change::in_words(&objections))?,
        };
        let levers = apply.target.keys().filter(|d| self.is_lever(d));
        let levers: Vec<String> = levers
            .map(|d| format!("{d}: is a drain control; help: use drain and undrain"))
            .collect();
        if !levers.is_empty() {
            return Err(levers);
        }
        let ordered = apply.phase.as_ref().map(|phase| phase.order(&changes));
        let (phase, stages) = ordered.unzip();
        let stages = stages.unwrap_or_default();
        let waves = match apply.mode {
            Mode::Probe => vec![change::at_once(&changes, &self.inventory)],
            _ => change::waves_in_stages(&changes, &stages, &self.inventory),
        };
        Ok(Preview { version: self.ledger.version, changes, waves, phase })
    }

    fn known(&self, device: &DeviceName) -> Option<Known<'_>> {
        static NOTHING: Positions = Positions::new();
        static NONE: BTreeSet<Slot> = BTreeSet::new();
        let seen = self.devices.get(device)?;
        Some(Known {
            sharing: self.inventory.devices.get(device)?.sharing,
            owned: self.ledger.owned.get(device).unwrap_or(&NOTHING),
            probed: self.ledger.probed.get(device).unwrap_or(&NONE),
            observed: seen.observed.as_ref().filter(|_| seen.up),
            trouble: seen.trouble.as_ref().map(Trouble::why),
        })
    }

    fn is_lever(&self, device: &DeviceName) -> bool {
        self.inventory.devices.get(device).is_some_and(|d| d.is_lever)
    }

    fn append(&mut self, record: Record, actions: &mut Vec<Action>) {
        self.ledger.apply(&record);
        match actions.last_mut() {
            Some(Action::Append(records)) => records.push(record),
            _ => actions.push(Action::Append(vec![record])),
        }
    }
}
