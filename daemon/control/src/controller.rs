// SPDX-License-Identifier: Apache-2.0
//! The controller: events in, actions out. No clock, no file, no socket, no thread.
//!
//! ```text
//!   idle ──apply──▶ Intent ─▶ drive forward ──all applied──▶ End committed ─▶ (confirm?) ─▶ idle
//!                                  │                                             │ too late
//!                                  └─ trouble ─▶ Turn ─▶ drive back ─▶ End       └──▶ rollback
//! ```
//!
//! One transaction at a time, over any number of devices. A bypass may come on top of one that waits for
//! its confirm; whoever undoes that leads around what was bypassed. The edge executes actions in order; a
//! record [that is waited for](Record::is_waited_for) is durable before anything behind it in the
//! list is done. What must survive a crash lives in the [`Ledger`] and changes by records only.

mod agenda;
mod budget;
mod contention;
mod darkness;
mod devices;
mod drift;
mod owed;
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
    DeviceName, Fabric, Micros, Move, Now, Observation, Op, Outcome, Position, Positions, Shut,
    Slot, Txn,
};
use agenda::Devices;
use budget::{OwnChange, own_changes};
use contention::Contention;
pub use contention::{Contended, Foreign, QUIET, RESTORES_MAX};
use darkness::Dark;
pub use darkness::DarkFibre;
pub(crate) use drift::own;
pub use drift::{Crossed, Planned, end_name};
pub use owed::Remedy;
pub use requests::Adopt;
pub use shut::ShutEnd;
pub use signals::Signal;
use strays::Strays;
pub use witnesses::{Sight, Testimony};

/// How often the daemon changes something without being asked within [`OWN_CHANGES_WINDOW`].
pub const OWN_CHANGES_MAX: usize = 10;
/// An hour.
pub const OWN_CHANGES_WINDOW: Micros = Micros::from_secs(3600);

/// Names one operation sent to one device; an answer with an old ticket counts for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Where an answer to a client goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplyTo(pub u64);

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Bring the devices of `target` there.
    Apply(Apply),
    /// Keep what waits for a confirm.
    Confirm(Txn),
    /// Undo a transaction and everything after it.
    Rollback(Rollback),
    /// Take what is lit on devices as ours; move nothing.
    Adopt(Adopt),
    /// Hold these slots' levers drained, or let them go.
    Hold {
        /// Slots of devices that have levers, or levers themselves.
        slots: Vec<(DeviceName, Slot)>,
        /// Drained from now on, or not.
        drained: bool,
    },
    /// Change things without being asked again, though that was done often within the hour.
    Resume,
}

/// A wanted state of the fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Apply {
    /// Where slots shall stand. A slot we own on a device named here and not in it goes dark.
    pub target: Fabric,
    /// Who should be seen at the far ends.
    pub neighbours: BTreeMap<DeviceName, BTreeMap<Slot, String>>,
    /// SHA-256 of the plan, empty where there is none.
    pub plan_sha256: String,
    /// How much it may disturb.
    pub mode: Mode,
    /// The ledger version the client planned against.
    pub version: Option<u64>,
    /// Undo it unless confirmed within this time.
    pub confirm_within: Option<Micros>,
    /// Overrides the operator's policy.
    pub on_failure: Option<OnFailure>,
    /// `None` for a client; the daemon's own applies say why.
    pub cause: Option<Cause>,
    /// What is known to be broken once it is committed; `None` leaves that as it is.
    pub broken: Option<BTreeMap<String, Broken>>,
    /// The phase of a plan with phases.
    pub phase: Option<Box<Phase>>,
    /// The plan, which is written down with the intent; `None` if it is kept already, or there is none.
    pub plan: Option<Box<KeptPlan>>,
    /// Reports of broken parts that are settled once it is committed.
    pub settles: BTreeSet<String>,
}

/// A way back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollback {
    /// Undo this transaction and everything after it.
    pub txn: Txn,
    /// Undo the rollback unless confirmed within this time.
    pub confirm_within: Option<Micros>,
    /// Where to go instead of [exactly back](Controller::way_back): around what broke since.
    pub around: Option<Box<Apply>>,
}

/// What a client is told at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// It is journalled and on its way; ask for the transaction.
    Accepted {
        /// Its number.
        txn: Txn,
    },
    /// Nothing has to move; or a request that moves nothing is done.
    Done,
    /// What was lit is ours from now on.
    Adopted {
        /// How many devices.
        devices: usize,
        /// How many of their slots are lit.
        slots: usize,
        /// How many were left out, because they do not answer.
        #[serde(default, skip_serializing_if = "is_none")]
        silent: usize,
    },
    /// There is nothing to do, for a reason that whoever asked may not expect.
    NothingToDo {
        /// Every reason.
        reasons: Vec<String>,
    },
    /// A phase is scheduled: its standing is known by the request's id.
    Booked {
        /// The id.
        request_id: String,
        /// It came no faster after the last than phases do.
        paced: bool,
    },
    /// A phase is not scheduled, and no light moves.
    PhaseRefused {
        /// Another change or another job is in the way.
        conflict: bool,
        /// The reason's name, for programs.
        code: String,
        /// The reason.
        reason: String,
        /// What to do instead.
        fix: String,
    },
    /// Somebody else was first, or something is on its way. Look again and decide again.
    Conflict {
        /// What is in the way.
        reason: String,
    },
    /// It cannot be done as asked. No device was touched.
    Refused {
        /// Every reason.
        reasons: Vec<String>,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

/// What happens to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client asks.
    Request {
        /// Who, and under which id.
        asked: Asked,
        /// What.
        request: Request,
        /// Where the answer goes.
        reply_to: ReplyTo,
    },
    /// A device answered, or its driver knows it never will.
    Reply {
        /// Which device.
        device: DeviceName,
        /// To what.
        ticket: Ticket,
        /// How it ended.
        outcome: Outcome,
    },
    /// A device promises its times.
    Promised(DeviceName, Promise),
    /// A device can be talked to.
    Up(DeviceName),
    /// A device cannot be talked to.
    Down(DeviceName, Trouble),
    /// A device reported what another controller does.
    Foreign(DeviceName, Foreign),
    /// A device reported what it sees of its light.
    Signalled(DeviceName, Signal),
    /// A device is asked about itself from now on, or not any more: operations wait meanwhile.
    Occupied(DeviceName, bool),
    /// Time has passed.
    Tick,
}

/// What the edge has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write these, and make them durable before anything behind them if one
    /// [is waited for](Record::is_waited_for).
    Append(Vec<Record>),
    /// Send to a device.
    Send(DeviceName, Ticket, Op),
    /// Stop waiting for this and start the connection afresh: its answer would come too late.
    Abandon(DeviceName, Ticket),
    /// Tell a client.
    Answer(ReplyTo, Answer),
    /// For logs, metrics and whoever watches.
    Note(Note),
}

/// Something worth telling people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A device can be talked to.
    Up(DeviceName),
    /// A device cannot be talked to.
    Down(DeviceName, String),
    /// A device stands elsewhere than the ledger says; empty when it is back.
    Drift(DeviceName, Vec<Drift>),
    /// Ends of a device are lit by others than the fabric says; empty when they are right again.
    Crossed(DeviceName, Vec<Crossed>),
    /// Another controller changes a device; `None` once an operator has decided about it.
    Contended(DeviceName, Option<Contended>),
    /// These parts are broken and are bypassed now; if that fails, it is tried again after this time.
    Bypassing(Vec<(Part, String)>, Micros),
    /// These parts are broken, and too much was changed without being asked.
    TooMany(Vec<(Part, String)>),
    /// A transaction is about to move light.
    Fired(Txn),
    /// A transaction is over.
    Ended(Txn, TxnResult),
    /// No answer that can be trusted.
    Unknown(DeviceName, String),
    /// An answer came after nobody waited for it.
    Late(DeviceName),
}

/// One slot that stands elsewhere than the ledger says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// Which.
    pub slot: Slot,
    /// Where the ledger says it stands; dark for a foreign circuit.
    pub wanted: Position,
    /// Where it was read.
    pub observed: Position,
}

/// What an apply would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The ledger version it was worked out against.
    pub version: u64,
    /// What moves.
    pub changes: BTreeMap<DeviceName, Vec<Move>>,
    /// In which order.
    pub waves: Vec<Wave>,
    /// The phase of a plan with phases, and whether its stages say that order.
    pub phase: Option<PhaseChange>,
}

/// A device as the controller sees it now.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Whether it can be talked to.
    pub up: bool,
    /// It was reached since the daemon started.
    was_up: bool,
    /// Its last read, since it came up.
    pub observed: Option<Observation>,
    /// When that was asked for.
    pub read_at: Micros,
    /// When it went down, if it is down and was up.
    pub down_since: Micros,
    /// When it was last known to answer, if it does not; at first when the daemon started.
    silent_since: Micros,
    /// Why it cannot be talked to.
    pub trouble: Option<Trouble>,
    /// Where it differs from the ledger.
    pub drift: Vec<Drift>,
    /// Its ends that were lit by others than the fabric says when it was last read.
    crossed: Vec<Crossed>,
    /// When the last read was asked for that also asked who is at the far ends.
    named_at: Micros,
    /// Light is missing at the other end of a fibre of its: the next read asks who is at the far ends.
    missed_opposite: bool,
    /// Where it stood when it was last read, kept while it is down.
    stood: Option<Positions>,
    /// When the first read in a row that found it there was answered.
    stands_since: Micros,
    /// Slots that stand where we put them and see no light though the far end should send it.
    dark: BTreeMap<Slot, Dark>,
    /// Slots that sent no light by the device's own word when it was last read, and since when; kept while
    /// it is down.
    shut: BTreeMap<Slot, (Shut, Micros)>,
    /// What light was usual at each place of each slot.
    usual: BTreeMap<(Slot, Position), i32>,
    /// What it reported unasked.
    signalled: signals::Signalled,
    in_flight: Option<Flight>,
    /// What reads took lately, and the last of them.
    pace: signals::Pace,
    /// It is asked something else than operations, or was until then: nothing is late meanwhile.
    occupied: bool,
    free_since: Micros,
    waiting: VecDeque<(Op, bool)>,
    next_poll: Micros,
    /// How often it was to be given what it is owed, and when that is tried again.
    settled: (u32, Micros),
    /// What is known of restores that did not last.
    contention: Contention,
    /// Until then a command that was given up may still be carried out.
    late_until: Micros,
}

#[derive(Clone, Debug)]
struct Flight {
    ticket: Ticket,
    asked: Micros,
    /// From then on its answer is late.
    late_at: Micros,
    /// That was seen, and the far ends are read.
    is_late: bool,
    /// It asks for nothing but a status, which a module that reports lost light answers soon.
    is_probe: bool,
    /// Since when that status is missing, of a node that is suspected to be dead.
    unanswered: Option<Micros>,
    /// It is given up then.
    deadline: Micros,
    /// Asked by the drive, or a poll.
    drives: bool,
    /// It asks who is at the far ends.
    names: bool,
    /// It moves light.
    moves: bool,
    /// So many were asked with it that its time says nothing of the device.
    in_a_crowd: bool,
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Controller {
    inventory: Inventory,
    ledger: Ledger,
    /// What the plan in force states.
    planned: Planned,
    devices: Devices,
    drive: Option<Drive>,
    crowd: signals::Crowd,
    neighbours: BTreeMap<DeviceName, BTreeMap<Slot, String>>,
    /// Where to go instead of exactly back, when this transaction is not confirmed.
    around: Option<(Txn, Apply)>,
    tickets: u64,
    /// What the daemon last changed without being asked.
    own_changes: VecDeque<OwnChange>,
    /// The daemon's own transactions wait till then after one could not begin or changed nothing.
    own_not_before: Micros,
    /// Nothing can be written down, so nothing is begun, finished or undone.
    only_reads: bool,
    /// Commands without a waiting transaction that may still be carried out.
    strays: Strays,
}

impl Controller {
    /// A controller over what the journal remembers, and what it does first: finish or undo what a
    /// dead daemon left open. Nothing else moves.
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

    /// Over what the journal remembers, only reads devices: nothing can be written down. What was on its way is
    /// left as a crash would leave it.
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

    /// These came behind a record that could not be written, so that nothing of them was sent: no answer is
    /// waited for.
    pub fn not_sent(&mut self, actions: &[Action]) {
        for action in actions {
            if let Action::Send(device, ticket, _) = action
                && let Some(seen) = self.devices.get_mut(device)
            {
                seen.in_flight.take_if(|flight| flight.ticket == *ticket);
            }
        }
    }

    /// Goes on over what the journal remembers, as after a restart but for what was read of devices since.
    pub fn go_on(&mut self, ledger: Ledger, now: &Now) -> Vec<Action> {
        self.only_read(ledger);
        self.only_reads = false;
        self.own_changes = own_changes(&self.ledger, now);
        self.started(now)
    }

    /// What survives a crash.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
    /// What is installed.
    #[must_use]
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }
    /// The devices as last seen.
    #[must_use]
    pub fn devices(&self) -> &BTreeMap<DeviceName, Seen> {
        &self.devices
    }
    /// The devices that cannot be talked to.
    pub fn down_devices(&self) -> impl Iterator<Item = (&DeviceName, &Seen)> {
        self.devices.down()
    }
    /// Whether a transaction is on its way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.drive.is_some()
    }

    /// When [`Event::Tick`] is to come, if nothing else happens.
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

    /// Takes one event in and says what to do.
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

    /// What an apply would do, or every reason why it would be refused. Changes nothing.
    ///
    /// # Errors
    /// All objections in words.
    pub fn preview(&self, apply: &Apply) -> Result<Preview, Vec<String>> {
        let changes = match apply.cause.as_ref().is_some_and(Cause::undoes) {
            true => self.changes_back(&mut apply.clone())?,
            false => change::difference(&apply.target, apply.mode, |device| self.known(device))
                .map_err(|objections| change::in_words(&objections))?,
        };
        let levers = apply.target.keys().filter(|d| self.is_lever(d));
        let levers: Vec<String> =
            levers.map(|d| format!("{d}: is a drain control: use drain and undrain")).collect();
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
