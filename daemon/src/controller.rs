//! The controller: events in, actions out. No clock, no file, no socket, no thread.
//!
//! ```text
//!   idle ──apply──▶ Intent ─▶ drive forward ──all applied──▶ End committed ─▶ (confirm?) ─▶ idle
//!                                  │                                             │ too late
//!                                  └─ trouble ─▶ Turn ─▶ drive back ─▶ End       └──▶ rollback
//! ```
//!
//! One transaction at a time, over any number of devices. The edge executes actions in order; a
//! [`Action::Append`] is durable before anything behind it in the list is done. What must survive
//! a crash lives in the [`Ledger`] and changes by records only.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::change::{self, Known, Mode, Wave};
use crate::drive::{Command, Drive, IN_USE, PartEnd, Site, Start, Verdict};
use crate::inventory::{FibreEnd, Inventory, OnDrift, Recovery};
use crate::record::{Asked, Cause, Intent, Ledger, OnFailure, Open, Pending, Record, TxnResult};
use crate::state::{
    DeviceName, Fabric, Micros, Move, Now, Observation, Op, Outcome, Position, Positions, Slot,
    Txn, at,
};

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
    /// Undo this transaction and everything after it.
    Rollback(Txn),
    /// Take what is lit on these devices as ours; move nothing.
    Adopt(Vec<DeviceName>),
    /// Hold these slots' levers drained, or let them go.
    Hold {
        /// Slots of devices that have levers, or levers themselves.
        slots: Vec<(DeviceName, Slot)>,
        /// Drained from now on, or not.
        drained: bool,
    },
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
    /// A device can be talked to.
    Up(DeviceName),
    /// A device cannot be talked to.
    Down(DeviceName, String),
    /// Time has passed.
    Tick,
}

/// What the edge has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make this durable before anything behind it.
    Append(Record),
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
}

/// A device as the controller sees it now.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Whether it can be talked to.
    pub up: bool,
    /// Its last read, since it came up.
    pub observed: Option<Observation>,
    /// When that was.
    pub read_at: Micros,
    /// Where it differs from the ledger.
    pub drift: Vec<Drift>,
    /// Slots that stand where we put them and see no light though the far end sends it, with the
    /// reads in a row that said so and the time of the first.
    dark: BTreeMap<Slot, (u32, Micros)>,
    in_flight: Option<Flight>,
    waiting: VecDeque<(Op, bool)>,
    next_poll: Micros,
}

#[derive(Clone, Debug)]
struct Flight {
    ticket: Ticket,
    deadline: Micros,
    /// Asked by the drive, or a poll.
    drives: bool,
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Controller {
    inventory: Inventory,
    ledger: Ledger,
    devices: BTreeMap<DeviceName, Seen>,
    drive: Option<Drive>,
    neighbours: BTreeMap<DeviceName, BTreeMap<Slot, String>>,
    tickets: u64,
    /// When the daemon last changed something without being asked.
    own_changes: VecDeque<Micros>,
    /// The daemon's own transactions wait till then after one could not begin or changed nothing.
    own_not_before: Micros,
}

impl Controller {
    /// A controller over what the journal remembers, and what it does first: finish or undo what a
    /// dead daemon left open. Nothing else moves.
    #[must_use]
    pub fn start(inventory: Inventory, ledger: Ledger, now: &Now) -> (Self, Vec<Action>) {
        let devices =
            inventory.devices.keys().map(|name| (name.clone(), Seen::default())).collect();
        let mut controller = Self {
            inventory,
            ledger,
            devices,
            drive: None,
            neighbours: BTreeMap::new(),
            tickets: 0,
            own_changes: VecDeque::new(),
            own_not_before: Micros::default(),
        };
        let daemon = env!("CARGO_PKG_VERSION").to_owned();
        let mut actions = Vec::new();
        controller.append(Record::Started { daemon, wall_ms: now.wall_ms }, &mut actions);
        controller.recover(now, &mut actions);
        (controller, actions)
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
    /// Whether a transaction is on its way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.drive.is_some()
    }

    /// When [`Event::Tick`] is to come, if nothing else happens.
    #[must_use]
    pub fn deadline(&self, now: &Now) -> Option<Micros> {
        let flights = self.devices.values().filter_map(|d| Some(d.in_flight.as_ref()?.deadline));
        let idle = |d: &&Seen| d.up && d.in_flight.is_none();
        let polls = self.devices.values().filter(idle).map(|d| d.next_poll);
        let drive = self.drive.as_ref().and_then(Drive::deadline);
        let pending = match (&self.drive, &self.ledger.pending) {
            (None, Some(pending)) => Some(pending.deadline(now).max(self.own_not_before)),
            _ => None,
        };
        flights.chain(polls).chain(drive).chain(pending).min()
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
            Event::Up(device) => self.up(now, device, &mut actions),
            Event::Down(device, reason) => self.down(now, device, reason, &mut actions),
            Event::Tick => self.tick(now, &mut actions),
        }
        actions
    }

    /// What an apply would do, or every reason why it would be refused. Changes nothing.
    ///
    /// # Errors
    /// All objections in words.
    pub fn preview(&self, apply: &Apply) -> Result<Preview, Vec<String>> {
        let changes = change::difference(&apply.target, apply.mode, |device| self.known(device))
            .map_err(|objections| objections.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let levers = apply.target.keys().filter(|d| self.is_lever(d));
        let levers: Vec<String> =
            levers.map(|d| format!("{d}: is a lever; use drain and undrain")).collect();
        if !levers.is_empty() {
            return Err(levers);
        }
        let waves = change::waves(&changes, &self.inventory);
        Ok(Preview { version: self.ledger.version, changes, waves })
    }

    fn known(&self, device: &DeviceName) -> Option<Known<'_>> {
        static NOTHING: Positions = Positions::new();
        let seen = self.devices.get(device)?;
        Some(Known {
            sharing: self.inventory.devices.get(device)?.sharing,
            owned: self.ledger.owned.get(device).unwrap_or(&NOTHING),
            observed: seen.observed.as_ref().filter(|_| seen.up),
        })
    }

    fn is_lever(&self, device: &DeviceName) -> bool {
        self.inventory.devices.get(device).is_some_and(|d| d.is_lever)
    }

    fn append(&mut self, record: Record, actions: &mut Vec<Action>) {
        self.ledger.apply(&record);
        actions.push(Action::Append(record));
    }

    // ---- what clients ask ----------------------------------------------------------------------

    fn request(
        &mut self,
        now: &Now,
        asked: Asked,
        request: Request,
        actions: &mut Vec<Action>,
    ) -> Answer {
        if let Some((digest, txn)) = self.ledger.requests.get(&asked.request) {
            if *digest != asked.digest {
                let reason = format!("request id `{}` was used for another request", asked.request);
                return Answer::Conflict { reason };
            }
            return txn.map_or(Answer::Done, |txn| Answer::Accepted { txn });
        }
        match request {
            Request::Apply(apply) => self.apply(now, asked, apply, actions),
            Request::Confirm(txn) => self.confirm(asked, txn, actions),
            Request::Rollback(txn) => self.rollback(now, asked, txn, actions),
            Request::Adopt(devices) => self.adopt(asked, &devices, actions),
            Request::Hold { slots, drained } => self.hold(now, asked, &slots, drained, actions),
        }
    }

    fn busy(&self) -> Option<Answer> {
        let conflict = |reason| Some(Answer::Conflict { reason });
        if let Some(open) = &self.ledger.open {
            return conflict(format!("transaction {} is on its way", open.intent.txn));
        }
        let pending = self.ledger.pending.as_ref()?;
        conflict(format!("transaction {} waits for its confirm", pending.txn))
    }

    fn apply(
        &mut self,
        now: &Now,
        asked: Asked,
        apply: Apply,
        actions: &mut Vec<Action>,
    ) -> Answer {
        if let Some(conflict) = self.busy() {
            return conflict;
        }
        if let Some(version) = apply.version.filter(|v| *v != self.ledger.version) {
            let reason =
                format!("planned against version {version}, now is {}", self.ledger.version);
            return Answer::Conflict { reason };
        }
        match self.preview(&apply) {
            Err(reasons) => Answer::Refused { reasons },
            Ok(preview) => self.begin(now, asked, apply, preview.changes, actions),
        }
    }

    fn begin(
        &mut self,
        now: &Now,
        asked: Asked,
        apply: Apply,
        changes: BTreeMap<DeviceName, Vec<Move>>,
        actions: &mut Vec<Action>,
    ) -> Answer {
        let alone = matches!(apply.cause, Some(Cause::Bypass | Cause::Drift));
        if alone && asked.actor.starts_with("policy:") {
            self.own_changes.push_back(now.mono);
            let surplus = self.own_changes.len().saturating_sub(OWN_CHANGES_MAX);
            self.own_changes.drain(..surplus);
        }
        let txn = Txn(self.ledger.last_txn.0 + 1);
        let side = |pick: fn(&Move) -> Position| -> Fabric {
            let of = |moves: &Vec<Move>| moves.iter().map(|m| (m.slot, pick(m))).collect();
            changes.iter().map(|(device, moves)| (device.clone(), of(moves))).collect()
        };
        let (before, after) = (side(|m| m.from), side(|m| m.to));
        let owned = |device| self.ledger.owned.get(device).cloned().unwrap_or_default();
        let owned_before: Fabric = apply.target.keys().map(|d| (d.clone(), owned(d))).collect();
        let intent = Intent {
            txn,
            asked,
            cause: apply.cause.unwrap_or(Cause::Apply),
            plan_sha256: apply.plan_sha256,
            mode: apply.mode,
            before: before.clone(),
            after: after.clone(),
            goal: apply.target,
            owned_before,
            confirm_within: apply.confirm_within,
            on_failure: apply.on_failure.unwrap_or(self.inventory.on_failure),
            wall_ms: now.wall_ms,
        };
        self.neighbours = apply.neighbours;
        self.append(Record::Intent(Box::new(intent)), actions);
        self.run(now, after, Start::AllOrNothing(before), actions);
        Answer::Accepted { txn }
    }

    fn confirm(&mut self, asked: Asked, txn: Txn, actions: &mut Vec<Action>) -> Answer {
        match &self.ledger.pending {
            Some(pending) if pending.txn == txn && self.drive.is_none() => {
                self.append(Record::Confirmed { txn, asked }, actions);
                Answer::Done
            }
            Some(pending) => Answer::Conflict {
                reason: format!("transaction {} waits for a confirm, not {txn}", pending.txn),
            },
            None => Answer::Conflict { reason: "nothing waits for a confirm".into() },
        }
    }

    fn rollback(&mut self, now: &Now, asked: Asked, txn: Txn, actions: &mut Vec<Action>) -> Answer {
        if self.ledger.open.is_some() {
            return self.busy().unwrap_or(Answer::Done);
        }
        if let Some(pending) = self.ledger.pending.as_ref().filter(|p| p.txn < txn) {
            let reason = format!("transaction {} waits for its confirm", pending.txn);
            return Answer::Conflict { reason };
        }
        self.undo(now, asked, txn, Cause::Rollback(txn), actions)
    }

    fn undo(
        &mut self,
        now: &Now,
        asked: Asked,
        txn: Txn,
        cause: Cause,
        actions: &mut Vec<Action>,
    ) -> Answer {
        let Some(target) = self.ledger.stood_before(txn) else {
            let reasons = vec![format!("transaction {txn} is not in the history")];
            return Answer::Refused { reasons };
        };
        // What is undone is known by its plan again, so that a fault afterwards finds its bypass.
        let past = self.ledger.history.iter().find(|past| past.txn == txn);
        let plan_sha256 = past.map(|past| past.plan_before.clone()).unwrap_or_default();
        let (mode, cause) = (Mode::Update, Some(cause));
        let apply = Apply { target, mode, cause, plan_sha256, ..Default::default() };
        match self.preview(&apply) {
            Err(reasons) => Answer::Refused { reasons },
            Ok(preview) => self.begin(now, asked, apply, preview.changes, actions),
        }
    }

    fn adopt(&mut self, asked: Asked, devices: &[DeviceName], actions: &mut Vec<Action>) -> Answer {
        if let Some(conflict) = self.busy() {
            return conflict;
        }
        let mut positions = Fabric::new();
        let mut reasons = Vec::new();
        for device in devices {
            match self.devices.get(device).and_then(|d| d.observed.as_ref().filter(|_| d.up)) {
                Some(seen) => {
                    positions.insert(device.clone(), seen.positions.clone());
                }
                None => reasons.push(format!("{device}: not read, so there is nothing to adopt")),
            }
        }
        if !reasons.is_empty() {
            return Answer::Refused { reasons };
        }
        self.append(Record::Adopted { asked, positions }, actions);
        for device in devices {
            self.note_drift(device, actions);
        }
        Answer::Done
    }

    /// Levers held drained are switched at once, outside any transaction: they move traffic, not
    /// light. The record comes first, so a crash in between leaves them held and read as drifted.
    fn hold(
        &mut self,
        now: &Now,
        asked: Asked,
        slots: &[(DeviceName, Slot)],
        drained: bool,
        actions: &mut Vec<Action>,
    ) -> Answer {
        if let Some(open) = &self.ledger.open {
            let reason = format!("transaction {} is on its way", open.intent.txn);
            return Answer::Conflict { reason };
        }
        let lever = |(device, slot): &(DeviceName, Slot)| {
            if self.is_lever(device) {
                return Some((device.clone(), *slot));
            }
            self.inventory.lever(device, *slot)
        };
        let levers: BTreeSet<_> = slots.iter().filter_map(lever).collect();
        if levers.is_empty() {
            let reasons = vec!["none of these has a lever that takes traffic off it".into()];
            return Answer::Refused { reasons };
        }
        let record = Record::Held { asked, levers: levers.clone(), drained };
        self.append(record, actions);
        let (from, to) = if drained { (IN_USE, Position::DARK) } else { (Position::DARK, IN_USE) };
        let txn = self.ledger.last_txn;
        for (device, slot) in levers {
            let op = Op::Switch { txn, moves: vec![Move { slot, from, to }] };
            self.send(now, &device, op, false, actions);
            let observe = Op::Observe { power: Vec::new() };
            self.send(now, &device, observe, false, actions);
        }
        Answer::Done
    }

    // ---- transactions --------------------------------------------------------------------------

    fn recover(&mut self, now: &Now, actions: &mut Vec<Action>) {
        let Some(open) = self.ledger.open.clone() else { return };
        let forward = open.turned.is_none()
            && !open.fired.is_empty()
            && self.inventory.recovery == Recovery::FinishForward;
        if forward {
            self.run(now, open.intent.after, Start::WhatAnswers, actions);
        } else {
            self.go_back(now, &open, BTreeMap::new(), actions);
        }
    }

    fn run(&mut self, now: &Now, target: Fabric, start: Start, actions: &mut Vec<Action>) {
        let Some(open) = &self.ledger.open else { return };
        let (txn, held) = (open.intent.txn, self.ledger.held.clone());
        let standing = self.standing_opposite(&target);
        let neighbours = self.neighbours.clone();
        let mut drive = Drive::new(txn, target, start, neighbours, held, standing);
        let commands = drive.begin(now.mono, &self.inventory);
        self.drive = Some(drive);
        self.execute(now, commands, actions);
    }

    /// Where the devices stand that are at the far ends of these.
    fn standing_opposite(&self, target: &Fabric) -> Fabric {
        let ends = target.iter().flat_map(|(device, slots)| {
            slots.iter().filter_map(|(&slot, &to)| self.inventory.far_end(device, slot, to))
        });
        let opposite: BTreeSet<&DeviceName> =
            ends.map(|(far, ..)| far).filter(|far| !target.contains_key(*far)).collect();
        let seen =
            |far: &&DeviceName| self.devices.get(*far).filter(|seen| seen.up)?.observed.as_ref();
        let stands = opposite.iter().filter_map(|far| Some(((*far).clone(), seen(far)?)));
        stands.map(|(far, seen)| (far, seen.positions.clone())).collect()
    }

    fn execute(&mut self, now: &Now, commands: Vec<Command>, actions: &mut Vec<Action>) {
        for command in commands {
            match command {
                Command::Send(device, op) => {
                    let drives = !matches!(op, Op::Disarm { .. });
                    self.send(now, &device, op, drives, actions);
                }
                Command::Fire(wave) => {
                    let Some(txn) = self.ledger.open.as_ref().map(|o| o.intent.txn) else {
                        continue;
                    };
                    self.append(Record::Fire { txn, wave }, actions);
                    actions.push(Action::Note(Note::Fired(txn)));
                }
                Command::End(parts) => self.drive_ended(now, parts, actions),
            }
        }
    }

    fn drive_ended(
        &mut self,
        now: &Now,
        parts: BTreeMap<DeviceName, PartEnd>,
        actions: &mut Vec<Action>,
    ) {
        self.drive = None;
        let Some(open) = self.ledger.open.clone() else { return };
        let mut parts = parts;
        self.look_again(&open, &mut parts);
        let applied = parts.values().all(|part| part.verdict == Verdict::Applied);
        match &open.turned {
            None if applied => self.end(now, TxnResult::Committed, parts, actions),
            None if open.fired.is_empty() => self.end(now, TxnResult::Aborted, parts, actions),
            None if open.intent.on_failure == OnFailure::Hold => {
                self.end(now, TxnResult::Partial, parts, actions);
            }
            None => self.go_back(now, &open, parts, actions),
            Some(forward) => {
                let back = applied && !open.fired.is_empty();
                let parts = merge(forward, parts, &open.fired);
                let result = match (applied, back) {
                    (true, true) => TxnResult::RolledBack,
                    (true, false) => TxnResult::Aborted,
                    _ if open.fired.is_empty() => TxnResult::Aborted,
                    _ => TxnResult::Partial,
                };
                self.end(now, result, parts, actions);
            }
        }
    }

    /// A device that was done early may have been read since, and stand elsewhere by then: a
    /// command from before a time-out can arrive late.
    fn look_again(&self, open: &Open, parts: &mut BTreeMap<DeviceName, PartEnd>) {
        let target = if open.turned.is_some() { &open.intent.before } else { &open.intent.after };
        for (device, part) in parts.iter_mut().filter(|(_, p)| p.verdict == Verdict::Applied) {
            let Some(want) = target.get(device) else { continue };
            let Some(seen) = self.devices.get(device).and_then(|d| d.observed.as_ref()) else {
                continue;
            };
            let moved = want.iter().find(|(slot, to)| at(&seen.positions, **slot) != **to);
            if let Some((slot, to)) = moved {
                part.verdict = Verdict::Failed;
                part.detail = format!("slot {slot} was read at {to} and has moved since");
            }
        }
    }

    /// Turns the transaction round. Only devices that may have moved are sent anything that moves
    /// light: the others stand at `before`, so for them the way back is empty.
    fn go_back(
        &mut self,
        now: &Now,
        open: &Open,
        parts: BTreeMap<DeviceName, PartEnd>,
        actions: &mut Vec<Action>,
    ) {
        if open.turned.is_none() {
            self.append(Record::Turn { txn: open.intent.txn, parts }, actions);
        }
        let mut target = open.intent.before.clone();
        target.retain(|device, _| open.fired.contains(device));
        self.neighbours.clear();
        self.run(now, target, Start::WhatAnswers, actions);
    }

    fn end(
        &mut self,
        now: &Now,
        result: TxnResult,
        parts: BTreeMap<DeviceName, PartEnd>,
        actions: &mut Vec<Action>,
    ) {
        let Some(open) = &self.ledger.open else { return };
        let (txn, within) = (open.intent.txn, open.intent.confirm_within);
        let committed = result == TxnResult::Committed;
        let pending = within.filter(|_| committed);
        let pending = pending.map(|within| Pending { txn, since: now.clone(), within });
        // Devices the target names and nothing had to move on are ours as well now.
        let mut parts = parts;
        if committed {
            for device in open.intent.goal.keys() {
                let applied = PartEnd { verdict: Verdict::Applied, detail: String::new() };
                parts.entry(device.clone()).or_insert(applied);
            }
        }
        let devices: Vec<DeviceName> = parts.keys().cloned().collect();
        self.append(Record::End { txn, result, parts, pending }, actions);
        actions.push(Action::Note(Note::Ended(txn, result)));
        for device in devices {
            self.note_drift(&device, actions);
        }
    }

    // ---- devices -------------------------------------------------------------------------------

    fn send(
        &mut self,
        now: &Now,
        device: &DeviceName,
        op: Op,
        drives: bool,
        actions: &mut Vec<Action>,
    ) {
        let reply_within = self.inventory.limits(device).reply_within;
        let Some(seen) = self.devices.get_mut(device) else { return };
        if seen.in_flight.is_some() {
            seen.waiting.push_back((op, drives));
            return;
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        seen.in_flight = Some(Flight { ticket, deadline: now.mono + reply_within, drives });
        actions.push(Action::Send(device.clone(), ticket, op));
    }

    fn reply(
        &mut self,
        now: &Now,
        device: &DeviceName,
        ticket: Ticket,
        outcome: Outcome,
        actions: &mut Vec<Action>,
    ) {
        let Some(seen) = self.devices.get_mut(device) else { return };
        let Some(flight) = seen.in_flight.take_if(|flight| flight.ticket == ticket) else {
            actions.push(Action::Note(Note::Late(device.clone())));
            return;
        };
        seen.next_poll = now.mono + self.inventory.poll_every;
        match &outcome {
            Outcome::Done(Some(observation)) => {
                seen.observed = Some(observation.clone());
                seen.read_at = now.mono;
                self.note_drift(device, actions);
                self.note_darkness(now, device);
            }
            Outcome::Unknown(why) => {
                actions.push(Action::Note(Note::Unknown(device.clone(), why.clone())));
            }
            _ => {}
        }
        if flight.drives {
            self.drive(now, actions, |drive, site| drive.reply(now.mono, site, device, outcome));
        }
        self.send_next(now, device, actions);
    }

    fn drive(
        &mut self,
        now: &Now,
        actions: &mut Vec<Action>,
        step: impl FnOnce(&mut Drive, &Inventory) -> Vec<Command>,
    ) {
        if let Some(drive) = &mut self.drive {
            let commands = step(drive, &self.inventory);
            self.execute(now, commands, actions);
        }
    }

    fn send_next(&mut self, now: &Now, device: &DeviceName, actions: &mut Vec<Action>) {
        let Some(seen) = self.devices.get_mut(device) else { return };
        if seen.in_flight.is_none()
            && let Some((op, drives)) = seen.waiting.pop_front()
        {
            self.send(now, device, op, drives, actions);
        }
    }

    fn up(&mut self, now: &Now, device: DeviceName, actions: &mut Vec<Action>) {
        let Some(seen) = self.devices.get_mut(&device) else { return };
        seen.up = true;
        seen.observed = None;
        actions.push(Action::Note(Note::Up(device.clone())));
        if seen.in_flight.is_none() {
            self.send(now, &device, Op::Observe { power: Vec::new() }, false, actions);
        }
    }

    fn down(&mut self, now: &Now, device: DeviceName, reason: String, actions: &mut Vec<Action>) {
        let Some(seen) = self.devices.get_mut(&device) else { return };
        seen.up = false;
        seen.observed = None;
        let ticket = seen.in_flight.as_ref().map(|flight| flight.ticket);
        actions.push(Action::Note(Note::Down(device.clone(), reason.clone())));
        if let Some(ticket) = ticket {
            self.reply(now, &device, ticket, Outcome::Unknown(reason), actions);
        }
    }

    fn tick(&mut self, now: &Now, actions: &mut Vec<Action>) {
        self.time_out(now, actions);
        self.drive(now, actions, |drive, site| drive.tick(now.mono, site));
        self.poll(now, actions);
        if self.drive.is_none() && now.mono >= self.own_not_before {
            self.confirm_too_late(now, actions);
            self.restore_drift(now, actions);
        }
    }

    fn time_out(&mut self, now: &Now, actions: &mut Vec<Action>) {
        let late = |seen: &Seen| seen.in_flight.clone().filter(|f| f.deadline <= now.mono);
        let late: Vec<(DeviceName, Ticket)> = self
            .devices
            .iter()
            .filter_map(|(device, seen)| Some((device.clone(), late(seen)?.ticket)))
            .collect();
        for (device, ticket) in late {
            actions.push(Action::Abandon(device.clone(), ticket));
            let outcome = Outcome::Unknown("no answer in time".into());
            self.reply(now, &device, ticket, outcome, actions);
        }
    }

    fn poll(&mut self, now: &Now, actions: &mut Vec<Action>) {
        let due = |seen: &Seen| seen.up && seen.in_flight.is_none() && seen.next_poll <= now.mono;
        let due: Vec<DeviceName> =
            self.devices.iter().filter(|(_, s)| due(s)).map(|(d, _)| d.clone()).collect();
        for device in due {
            let lit = self.ledger.owned.get(&device).map(|p| p.keys().copied().collect());
            let op = Op::Observe { power: lit.unwrap_or_default() };
            self.send(now, &device, op, false, actions);
        }
    }

    fn confirm_too_late(&mut self, now: &Now, actions: &mut Vec<Action>) {
        let Some(pending) = self.ledger.pending.clone() else { return };
        if pending.deadline(now) > now.mono {
            return;
        }
        self.own_not_before = now.mono + Micros::from_secs(1);
        let request = format!("confirm-timeout-{}", pending.txn);
        let asked = own("policy:confirm-timeout", request);
        let cause = Cause::ConfirmTimeout(pending.txn);
        // Refused while a device is unread: tried again in a second.
        self.undo(now, asked, pending.txn, cause, actions);
    }

    // ---- drift ---------------------------------------------------------------------------------

    fn note_drift(&mut self, device: &DeviceName, actions: &mut Vec<Action>) {
        let involved = |open: &Open| open.intent.after.contains_key(device);
        if self.is_lever(device) || self.ledger.open.as_ref().is_some_and(involved) {
            return;
        }
        let Some(known) = self.known(device) else { return };
        let Some(observed) = known.observed else { return };
        let drift = drift(known.owned, &observed.positions);
        let Some(seen) = self.devices.get_mut(device) else { return };
        if drift != seen.drift {
            seen.drift.clone_from(&drift);
            actions.push(Action::Note(Note::Drift(device.clone(), drift)));
        }
    }

    /// Counts the reads in which a slot saw no light that should. The first makes the daemon look
    /// again at once, here and at the far end.
    fn note_darkness(&mut self, now: &Now, device: &DeviceName) {
        let limits = self.inventory.limits(device);
        let Some(seen) = self.devices.get(device) else { return };
        let Some(observed) = &seen.observed else { return };
        let owned = self.ledger.owned.get(device);
        let involved = |open: &Open| open.intent.after.contains_key(device);
        let resting = !self.ledger.open.as_ref().is_some_and(involved);
        let stands = owned.into_iter().flatten().filter(|_| resting).filter_map(|(&slot, &to)| {
            let there = at(&observed.positions, slot) == to && !observed.tuning.contains(&slot);
            let power = *observed.power_mdbm.get(&slot).filter(|_| there)?;
            let far = self.inventory.far_end(device, slot, to)?;
            let sends = self.ledger.owned.get(&far.0).is_some_and(|p| at(p, far.1) == far.2);
            (sends && power < limits.power_min_mdbm).then(|| (slot, far.0.clone()))
        });
        let dark: BTreeMap<Slot, DeviceName> = stands.collect();
        let Some(seen) = self.devices.get_mut(device) else { return };
        seen.dark.retain(|slot, _| dark.contains_key(slot));
        for (slot, far) in dark {
            let Some(seen) = self.devices.get_mut(device) else { return };
            let (reads, _) = seen.dark.entry(slot).or_insert((0, now.mono));
            *reads = reads.saturating_add(1);
            if *reads < limits.power_samples {
                seen.next_poll = now.mono + limits.settle_poll;
                if let Some(far) = self.devices.get_mut(&far) {
                    far.next_poll = now.mono;
                }
            }
        }
    }

    /// Fibres that are known to carry no light, by the end that misses it: it has been looked at
    /// again, and the far end stands where it should or cannot be talked to.
    #[must_use]
    pub fn dark_fibres(&self) -> Vec<(FibreEnd, FibreEnd)> {
        let mut dark = Vec::new();
        for (device, seen) in self.devices.iter().filter(|(_, seen)| seen.up) {
            let sure = self.inventory.limits(device).power_samples;
            let dark_for_sure = seen.dark.iter().filter(|(_, (reads, _))| *reads >= sure);
            for (&slot, &(_, since)) in dark_for_sure {
                let to = self.ledger.owned.get(device).map_or(Position::DARK, |p| at(p, slot));
                let Some(far) = self.inventory.far_end(device, slot, to) else { continue };
                let Some(other) = self.devices.get(&far.0) else { continue };
                let faces = |seen: &Observation| at(&seen.positions, far.1) == far.2;
                let read_since = other.observed.as_ref().filter(|_| other.read_at >= since);
                if !other.up || read_since.is_some_and(faces) {
                    dark.push(((device.clone(), slot, to), far.clone()));
                }
            }
        }
        dark
    }

    /// Whether the daemon may change anything without being asked: not when it has done so
    /// [`OWN_CHANGES_MAX`] times within the last hour, for then something keeps coming and going.
    #[must_use]
    pub fn may_act_alone(&self, now: &Now) -> bool {
        let recent = |at: &&Micros| **at + OWN_CHANGES_WINDOW > now.mono;
        self.own_changes.iter().filter(recent).count() < OWN_CHANGES_MAX
    }

    fn restore_drift(&mut self, now: &Now, actions: &mut Vec<Action>) {
        let off = self.inventory.on_drift == OnDrift::Report;
        if off || self.busy().is_some() || !self.may_act_alone(now) {
            return;
        }
        let ours = |seen: &Seen| seen.up && seen.drift.iter().any(|d| !d.wanted.is_dark());
        let drifted = self
            .devices
            .iter()
            .filter(|(device, seen)| ours(seen) && !self.ledger.attention.contains_key(*device));
        let target: Fabric = drifted
            .filter_map(|(device, _)| {
                Some((device.clone(), self.ledger.owned.get(device)?.clone()))
            })
            .collect();
        if target.is_empty() {
            return;
        }
        self.own_not_before = now.mono + Micros::from_secs(1);
        let request = format!("drift-{}", self.ledger.last_txn.0 + 1);
        let asked = own("policy:drift", request);
        let plan_sha256 = self.ledger.plan_sha256.clone();
        let (mode, cause) = (Mode::Update, Some(Cause::Drift));
        let apply = Apply { target, mode, cause, plan_sha256, ..Default::default() };
        self.apply(now, asked, apply, actions);
    }
}

/// Who asks when the daemon itself does.
fn own(actor: &str, request: String) -> Asked {
    Asked { actor: actor.into(), digest: request.clone(), request }
}

fn drift(owned: &Positions, observed: &Positions) -> Vec<Drift> {
    let slots: BTreeSet<Slot> = owned.keys().chain(observed.keys()).copied().collect();
    slots
        .into_iter()
        .map(|slot| Drift { slot, wanted: at(owned, slot), observed: at(observed, slot) })
        .filter(|d| d.wanted != d.observed)
        .collect()
}

/// How devices came out of a transaction that went forward and then back.
fn merge(
    forward: &BTreeMap<DeviceName, PartEnd>,
    back: BTreeMap<DeviceName, PartEnd>,
    fired: &BTreeSet<DeviceName>,
) -> BTreeMap<DeviceName, PartEnd> {
    let mut parts = forward.clone();
    for part in parts.values_mut().filter(|part| part.verdict == Verdict::Applied) {
        part.verdict = Verdict::Untouched;
    }
    for (device, back) in back {
        let before = parts.get(&device).filter(|part| !part.detail.is_empty());
        let why = before.map(|part| part.detail.clone()).unwrap_or_default();
        let part = match back.verdict {
            Verdict::Applied if fired.contains(&device) => {
                PartEnd { verdict: Verdict::RolledBack, detail: why }
            }
            Verdict::Applied | Verdict::Untouched => {
                PartEnd { verdict: Verdict::Untouched, detail: why }
            }
            verdict => {
                let detail = if why.is_empty() {
                    format!("rolling back: {}", back.detail)
                } else {
                    format!("{why}; rolling back: {}", back.detail)
                };
                PartEnd { verdict, detail }
            }
        };
        parts.insert(device, part);
    }
    parts
}
