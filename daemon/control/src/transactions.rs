// SPDX-License-Identifier: Apache-2.0
//! The changes of the daemon: the ledger, the open transaction with its moves, and the requests.
//!
//! ```text
//!   idle ──apply──▶ Intent ─▶ drive forward ──all applied──▶ End committed ─▶ (confirm?) ─▶ idle
//!                                  │                                             │ too late
//!                                  └─ trouble ─▶ Turn ─▶ drive back ─▶ End       └──▶ rollback
//! ```
//!
//! Only one transaction is open at a time, except that a bypass may start while a change awaits its
//! confirmation.

mod deferred;
mod requests;

use std::collections::{BTreeMap, BTreeSet};

pub use deferred::Remedy;
use deferred::Tries;
pub(crate) use requests::Decision;

use crate::actor::Policy;
use crate::change::{self, Known, Mode, PhaseChange, Wave, stages_back};
use crate::drive::{Command, DeviceEnd, Drive, Orders, Site, Start, Verdict};
use crate::inventory::{Inventory, Recovery};
use crate::ledger::{Ledger, Open};
use crate::management::Trouble;
use crate::messages::{Apply, Note, Outbox};
use crate::record::{Asked, Cause, Intent, OnFailure, Pending, Record, TxnResult};
use crate::sightings::{Sightings, drift};
use crate::state::{
    DeviceName, Drift, Micros, Move, Now, Observation, Outcome, Positions, Slot, SwitchState, Txn,
    at,
};
use crate::strays::Strays;

const READ_LATELY: Micros = Micros::from_secs(2);

/// After a restart, a bypass that started within this time is finished even if the journal does not
/// contain its moves, because the fault is recent.
const INTERRUPTED_LATELY: Micros = Micros::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    pub version: u64,
    pub changes: BTreeMap<DeviceName, Vec<Move>>,
    pub waves: Vec<Wave>,
    pub phase: Option<PhaseChange>,
}

#[derive(Clone, Debug, Default)]
pub struct Planned {
    pub plan_sha256: String,
    pub positions: SwitchState,
}

pub(crate) struct Context<'a> {
    now: &'a Now,
    sightings: &'a Sightings,
    strays: &'a Strays,
    out: &'a mut Outbox,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        now: &'a Now,
        sightings: &'a Sightings,
        strays: &'a Strays,
        out: &'a mut Outbox,
    ) -> Self {
        Self { now, sightings, strays, out }
    }
}

type Ends = BTreeMap<DeviceName, DeviceEnd>;

/// How to continue a transaction that the previous daemon left open.
pub(crate) struct Unfinished {
    pub(crate) intent: Intent,
    pub(crate) forward: bool,
    /// Whether it is a recent bypass.
    pub(crate) interrupted: bool,
}

pub(crate) enum DriveEnd {
    GoesBack(Vec<Command>),
    Ended(Box<Ended>),
}

pub(crate) struct Ended {
    pub(crate) open: Open,
    pub(crate) result: TxnResult,
    pub(crate) devices: BTreeSet<DeviceName>,
}

#[derive(Clone, Debug, Default)]
pub struct Transactions {
    ledger: Ledger,
    drive: Option<Drive>,
    /// The transaction that a crash interrupted. Its last moves can be missing in the journal.
    recovered: Option<Txn>,
    planned: Planned,
    neighbours: BTreeMap<DeviceName, BTreeMap<Slot, String>>,
    lead_back: Option<(Txn, Apply)>,
    tries: BTreeMap<DeviceName, Tries>,
    only_reads: bool,
}

impl Transactions {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self { ledger, ..Self::default() }
    }

    pub(crate) fn only_read(&mut self, ledger: Ledger) {
        (self.ledger, self.only_reads) = (ledger, true);
        (self.drive, self.lead_back) = (None, None);
        self.neighbours.clear();
    }

    pub(crate) fn write_again(&mut self) {
        self.only_reads = false;
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn is_busy(&self) -> bool {
        self.drive.is_some()
    }

    pub(crate) fn only_reads(&self) -> bool {
        self.only_reads
    }

    pub(crate) fn append(&mut self, record: Record, out: &mut Outbox) {
        self.ledger.apply(&record);
        out.append(record);
    }

    pub(crate) fn plans(&mut self, planned: Planned) {
        self.planned = planned;
    }

    pub fn planned(&self, device: &DeviceName) -> &Positions {
        static NOTHING: Positions = Positions::new();
        let known = self.planned.plan_sha256 == self.ledger.plan_sha256;
        self.planned.positions.get(device).filter(|_| known).unwrap_or(&NOTHING)
    }

    pub fn wanted(&self, device: &DeviceName) -> Positions {
        let mut wanted = self.ledger.owned.get(device).cloned().unwrap_or_default();
        wanted.extend(self.planned(device));
        wanted
    }

    fn known<'a>(&'a self, device: &DeviceName, sightings: &'a Sightings) -> Option<Known<'a>> {
        static NOTHING: Positions = Positions::new();
        static NONE: BTreeSet<Slot> = BTreeSet::new();
        let seen = sightings.devices().get(device)?;
        Some(Known {
            sharing: sightings.inventory().devices.get(device)?.sharing,
            owned: self.ledger.owned.get(device).unwrap_or(&NOTHING),
            probed: self.ledger.probed.get(device).unwrap_or(&NONE),
            observed: seen.observed().filter(|_| seen.is_reachable()),
            trouble: seen.trouble().map(Trouble::why),
        })
    }

    pub(crate) fn take_planned(
        &mut self,
        device: &DeviceName,
        sightings: &Sightings,
        out: &mut Outbox,
    ) {
        let ledger = &self.ledger;
        let left = ledger.attention.contains_key(device) || ledger.deferred.contains_key(device);
        if self.only_reads || left || ledger.open.is_some() {
            return;
        }
        let Some(known) = self.known(device, sightings) else { return };
        let Some(read) = known.observed else { return };
        let mut planned = self.planned(device).clone();
        planned.retain(|slot, wanted| {
            at(&read.positions, *slot) == *wanted && at(known.owned, *slot) != *wanted
        });
        if planned.is_empty() {
            return;
        }
        let mut owned = known.owned.clone();
        owned.extend(planned);
        let asked = own(Policy::Drift, format!("planned-{}-{device}", ledger.version));
        let positions = [(device.clone(), owned)].into();
        self.append(Record::Adopted { asked, positions, wall_ms: 0 }, out);
    }

    pub(crate) fn preview(
        &self,
        apply: &Apply,
        sightings: &Sightings,
    ) -> Result<Preview, Vec<String>> {
        let inventory = sightings.inventory();
        let changes = match apply.cause.as_ref().is_some_and(Cause::undoes) {
            true => self.changes_back(&mut apply.clone(), sightings)?,
            false => change::difference(&apply.target, apply.mode, |device: &DeviceName| {
                self.known(device, sightings)
            })
            .map_err(|objections| change::in_words(&objections))?,
        };
        let levers: Vec<String> = apply
            .target
            .keys()
            .filter(|device| inventory.is_lever(device))
            .map(|d| format!("{d}: is a drain control; help: use drain and undrain"))
            .collect();
        if !levers.is_empty() {
            return Err(levers);
        }
        let ordered = apply.phase.as_ref().map(|phase| phase.order(&changes));
        let (phase, stages) = ordered.unzip();
        let waves = match apply.mode {
            Mode::Probe => vec![change::at_once(&changes, inventory)],
            _ => change::waves_in_stages(&changes, &stages.unwrap_or_default(), inventory),
        };
        Ok(Preview { version: self.ledger.version, changes, waves, phase })
    }

    pub fn taken_by_adopting(
        &self,
        devices: &[DeviceName],
        sightings: &Sightings,
    ) -> Vec<(DeviceName, Drift)> {
        let mut taken = Vec::new();
        for device in devices {
            let Some(known) = self.known(device, sightings) else { continue };
            let Some(read) = known.observed else { continue };
            for (&slot, &wanted) in self.planned(device) {
                let observed = at(&read.positions, slot);
                if at(known.owned, slot) == wanted && wanted != observed {
                    taken.push((device.clone(), Drift { slot, wanted, observed }));
                }
            }
        }
        taken
    }

    pub(crate) fn put_back(&self, target: SwitchState) -> Apply {
        let plan_sha256 = self.ledger.plan_sha256.clone();
        let (mode, cause) = (Mode::Update, Some(Cause::Drift));
        Apply { target, mode, cause, plan_sha256, ..Default::default() }
    }

    pub(crate) fn way_home(&self, sightings: &Sightings) -> Result<Apply, Vec<String>> {
        let mut is_foreign = false;
        let devices = sightings.devices().keys();
        let answers = devices.filter(|device| !sightings.inventory().is_lever(device));
        let target = answers.filter_map(|device| {
            let (wanted, read) = (self.wanted(device), sightings.reading(device)?);
            let elsewhere = drift(&wanted, &read.positions);
            is_foreign |= !elsewhere.is_empty();
            let is_ours = elsewhere.iter().any(|drift| !drift.wanted.is_dark());
            is_ours.then(|| (device.clone(), wanted))
        });
        let target: SwitchState = target.collect();
        if target.is_empty() && is_foreign {
            let why = "no reachable device is missing a circuit that the daemon set; foreign circuits are \
                not restored";
            return Err(vec![why.into()]);
        }
        Ok(self.put_back(target))
    }

    pub(crate) fn unfinished(&self, now: &Now, inventory: &Inventory) -> Option<Unfinished> {
        let open = self.ledger.open.as_ref()?;
        let age = Micros::from_millis(now.wall_ms.saturating_sub(open.intent.wall_ms));
        let interrupted = open.intent.cause == Cause::Bypass && age <= INTERRUPTED_LATELY;
        let finish = inventory.recovery == Recovery::FinishForward
            && (interrupted || !open.fired.is_empty());
        let forward = open.turned.is_none() && (finish || open.intent.cause.undoes());
        Some(Unfinished { intent: open.intent.clone(), forward, interrupted })
    }

    pub(crate) fn recover(
        &mut self,
        cx: &mut Context<'_>,
        unfinished: &Unfinished,
    ) -> Vec<Command> {
        self.recovered = Some(unfinished.intent.txn);
        if unfinished.forward {
            let start = Start::Reachable(cx.sightings.long_unread(cx.now));
            return self.run(cx, unfinished.intent.after.clone(), start);
        }
        let all = unfinished.intent.before.keys().cloned().collect();
        self.go_back(cx, &all, BTreeMap::new())
    }

    fn run(&mut self, cx: &Context<'_>, mut target: SwitchState, start: Start) -> Vec<Command> {
        let Some(open) = &self.ledger.open else { return Vec::new() };
        let (intent, inventory) = (&open.intent, cx.sightings.inventory());
        if makes_up(&intent.cause) {
            // Restore the traffic that the deferred change drained, even if the device does not
            // move.
            for (device, goal) in &intent.goal {
                if inventory.devices.get(device).is_none_or(|d| d.levers.is_empty()) {
                    continue;
                }
                target.entry(device.clone()).or_default().extend(goal);
            }
        }
        let turned = open.turned.is_some();
        let stages = match turned {
            true => stages_back(&intent.before, &intent.stages),
            false => intent.stages.clone(),
        };
        let is_probe = intent.cause == Cause::Probe && !turned;
        let orders = Orders {
            txn: intent.txn,
            known: self.known_to_stand(cx, intent, &start),
            standing: standing_opposite(&target, cx.sightings),
            target,
            start,
            stops_between_stages: !turned && !stages.is_empty() && !intent.cause.undoes(),
            stages,
            neighbours: self.neighbours.clone(),
            held: self.ledger.held.clone(),
            goes_back: turned || matches!(intent.cause, Cause::Late(_)),
            late: cx.strays.still_late(cx.now),
            probes: is_probe.then(|| intent.goal.keys().cloned().collect()),
        };
        let mut drive = Drive::new(orders);
        let commands = drive.begin(cx.now.mono, inventory);
        self.drive = Some(drive);
        commands
    }

    fn known_to_stand(
        &self,
        cx: &Context<'_>,
        intent: &Intent,
        start: &Start,
    ) -> BTreeMap<DeviceName, Observation> {
        let Start::AllOrNothing(expected) = start else { return BTreeMap::new() };
        let turned = self.ledger.open.as_ref().is_none_or(|open| open.turned.is_some());
        if intent.cause != Cause::Bypass || turned {
            return BTreeMap::new();
        }
        let known = intent.after.keys().filter_map(|device| {
            let goes = cx.sightings.inventory().devices.get(device)?.goes;
            let seen =
                cx.sightings.devices().get(device).filter(|seen| seen.is_reachable() && goes)?;
            let read = seen.observed().filter(|read| read.tuning.is_empty())?;
            let is_recent = seen.read_at() + READ_LATELY >= cx.now.mono;
            let lately = is_recent && !cx.strays.is_late(device, cx.now);
            let attended = self.ledger.attention.contains_key(device);
            let mut expected = expected.get(device).into_iter().flatten();
            let stands = expected.all(|(slot, to)| at(&read.positions, *slot) == *to);
            (lately && stands && !attended).then(|| (device.clone(), read.clone()))
        });
        known.collect()
    }

    pub(crate) fn reply(
        &mut self,
        now: &Now,
        device: &DeviceName,
        outcome: Outcome,
        site: &Inventory,
    ) -> Vec<Command> {
        let Some(drive) = &mut self.drive else { return Vec::new() };
        drive.reply(now.mono, site, device, outcome)
    }

    pub(crate) fn tick(&mut self, now: &Now, site: &Inventory) -> Vec<Command> {
        self.drive.as_mut().map_or_else(Vec::new, |drive| drive.tick(now.mono, site))
    }

    pub(crate) fn reached(&mut self, now: &Now, device: &DeviceName) {
        if let Some(drive) = &mut self.drive {
            drive.reached(now.mono, device);
        }
    }

    pub(crate) fn drive_deadline(&self) -> Option<Micros> {
        self.drive.as_ref().and_then(Drive::deadline)
    }

    pub(crate) fn fired(&mut self, now: &Now, wave: Wave, out: &mut Outbox) {
        let Some(txn) = self.ledger.open.as_ref().map(|open| open.intent.txn) else { return };
        self.append(Record::Fire { txn, wave, wall_ms: now.wall_ms }, out);
        out.note(Note::Fired(txn));
    }

    pub(crate) fn drive_ended(&mut self, cx: &mut Context<'_>, mut ends: Ends) -> Option<DriveEnd> {
        self.drive = None;
        let open = self.ledger.open.clone()?;
        look_again(&open, cx.sightings, &mut ends);
        let applied = ends.values().all(|end| end.verdict == Verdict::Applied);
        let moved: BTreeSet<DeviceName> = match self.recovered == Some(open.intent.txn) {
            true => open.intent.before.keys().cloned().collect(),
            false => open.fired.clone(),
        };
        let result = match &open.turned {
            None if applied => TxnResult::Committed,
            None if open.intent.cause.undoes() => {
                defer(&mut ends);
                TxnResult::Partial
            }
            None if moved.is_empty() => TxnResult::Aborted,
            None if open.intent.on_failure == OnFailure::Hold => {
                say_how_to_continue(&open, &mut ends);
                TxnResult::Partial
            }
            None => {
                return Some(DriveEnd::GoesBack(self.go_back(cx, &moved, ends)));
            }
            Some(forward) => {
                defer(&mut ends);
                ends = merge(forward, ends, &open.fired);
                match (applied, open.fired.is_empty()) {
                    (true, false) => TxnResult::RolledBack,
                    (true, true) => TxnResult::Aborted,
                    _ => TxnResult::Partial,
                }
            }
        };
        Some(DriveEnd::Ended(Box::new(self.end(cx, open, result, ends))))
    }

    fn go_back(
        &mut self,
        cx: &mut Context<'_>,
        devices: &BTreeSet<DeviceName>,
        ends: Ends,
    ) -> Vec<Command> {
        let Some(open) = &self.ledger.open else { return Vec::new() };
        let mut target = open.intent.before.clone();
        target.retain(|device, _| devices.contains(device));
        if open.turned.is_none() {
            let turn = Record::Turn { txn: open.intent.txn, ends, wall_ms: cx.now.wall_ms };
            self.append(turn, cx.out);
        }
        self.neighbours.clear();
        let start = Start::Reachable(cx.sightings.long_unread(cx.now));
        self.run(cx, target, start)
    }

    fn end(
        &mut self,
        cx: &mut Context<'_>,
        open: Open,
        result: TxnResult,
        mut ends: Ends,
    ) -> Ended {
        let intent = &open.intent;
        let committed = result == TxnResult::Committed;
        // The daemon now owns all devices in the target, even those that did not move.
        if committed || (result == TxnResult::Partial && intent.cause.undoes()) {
            for device in intent.goal.keys() {
                let applied = DeviceEnd::new(Verdict::Applied, String::new());
                ends.entry(device.clone()).or_insert(applied);
            }
        }
        if committed && makes_up(&intent.cause) {
            self.tries.retain(|device, _| !intent.goal.contains_key(device));
        }
        self.lead_back = None;
        let (txn, wall_ms) = (intent.txn, cx.now.wall_ms);
        let within = intent.confirm_within.filter(|_| committed);
        let pending = within.map(|within| Pending { txn, since: cx.now.clone(), within });
        let devices = ends.keys().cloned().collect();
        self.append(Record::End { txn, result, ends, pending, wall_ms }, cx.out);
        cx.out.note(Note::Ended(txn, result));
        Ended { open, result, devices }
    }
}

pub(crate) fn own(policy: Policy, request: String) -> Asked {
    Asked { actor: policy.into(), digest: request.clone(), request }
}

fn makes_up(cause: &Cause) -> bool {
    matches!(cause, Cause::Deferred(_))
}

fn defer(ends: &mut Ends) {
    for end in ends.values_mut().filter(|end| end.verdict == Verdict::Unknown) {
        end.detail += "; it is restored automatically when it answers";
    }
}

fn standing_opposite(target: &SwitchState, sightings: &Sightings) -> SwitchState {
    let ends = target.iter().flat_map(|(device, slots)| {
        slots.iter().filter_map(|(&slot, &to)| sightings.inventory().far_end(device, slot, to))
    });
    let mut standing = SwitchState::new();
    for (far, ..) in ends.filter(|(far, ..)| !target.contains_key(far)) {
        if let Some(read) = sightings.reading(far) {
            let mut positions = read.positions.clone();
            positions.retain(|slot, _| !read.is_shut(*slot));
            standing.insert(far.clone(), positions);
        }
    }
    standing
}

fn look_again(open: &Open, sightings: &Sightings, ends: &mut Ends) {
    let target = if open.turned.is_some() { &open.intent.before } else { &open.intent.after };
    for (device, end) in ends.iter_mut().filter(|(_, p)| p.verdict == Verdict::Applied) {
        let Some(want) = target.get(device) else { continue };
        let Some(read) = sightings.devices().get(device).and_then(|seen| seen.observed()) else {
            continue;
        };
        let moved = want.iter().find(|(slot, to)| at(&read.positions, **slot) != **to);
        if let Some((slot, to)) = moved {
            end.verdict = Verdict::Failed;
            let (slot, to) = (device.slot(*slot), device.place(*to));
            end.detail = format!("{slot} was read at {to} and has moved since");
        }
    }
}

fn say_how_to_continue(open: &Open, ends: &mut Ends) {
    for (device, end) in ends.iter_mut().filter(|_| open.intent.stages.len() > 1) {
        if end.verdict == Verdict::Untouched && open.fired.contains(device) {
            *end = DeviceEnd::new(Verdict::Failed, "only circuits of earlier stages moved".into());
        }
        if !end.detail.is_empty() {
            end.detail += &format!(
                "; continue by applying the plan again with `--mode update`, or undo with \
                 `lightloom ctl rollback {}`",
                open.intent.txn
            );
        }
    }
}

fn merge(forward: &Ends, back: Ends, fired: &BTreeSet<DeviceName>) -> Ends {
    let mut ends = forward.clone();
    for end in ends.values_mut().filter(|end| end.verdict == Verdict::Applied) {
        end.verdict = Verdict::Untouched;
    }
    for (device, back) in back {
        let before = ends.get(&device).filter(|end| !end.detail.is_empty());
        let (why, unlit) = before.map(|end| (end.detail.clone(), end.unlit)).unwrap_or_default();
        let end = match back.verdict {
            Verdict::Applied if fired.contains(&device) => {
                DeviceEnd { verdict: Verdict::RolledBack, detail: why, unlit }
            }
            Verdict::Applied | Verdict::Untouched => {
                DeviceEnd { verdict: Verdict::Untouched, detail: why, unlit }
            }
            verdict => {
                let detail = if why.is_empty() {
                    format!("rolling back: {}", back.detail)
                } else {
                    format!("{why}; rolling back: {}", back.detail)
                };
                DeviceEnd { verdict, detail, unlit: back.unlit && (why.is_empty() || unlit) }
            }
        };
        ends.insert(device, end);
    }
    ends
}
