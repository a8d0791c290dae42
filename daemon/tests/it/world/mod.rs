// SPDX-License-Identifier: Apache-2.0
//! A world in virtual time: the shipping control core and journal, model devices, a disk that tears,
//! clients, operators and crashes, all from one seed. After every step the invariants I1 to I9 of
//! docs/reliability.md are checked; a violation panics with what happened last.
//!
//! The policy is the shipping one ([`Control`]); `judge` knows what is really broken and derives nothing from it.
pub(crate) mod device;
pub(crate) mod disk;
mod judge;
mod light;
pub(crate) mod ring;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use lightloom_control::controller::{
    Action, Answer, Apply, Controller, Event, Note, ReplyTo, Request, Ticket, end_name,
};
use lightloom_control::inventory::{FibreEnd, Inventory};
use lightloom_control::ledger::Ledger;
use lightloom_control::mover::RECONNECT;
use lightloom_control::policy::{Control, Setup};
use lightloom_control::record::{Asked, Cause, Record, TxnResult};
use lightloom_control::state::{DeviceName, Micros, Now, Op, Outcome, Position, Slot, Txn, at};
use lightloom_daemon::file_storage::FileStorage;
use lightloom_daemon::journal::{Journal, JournalError};
use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::Plan;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

use device::{Faults, ModelDevice};
use disk::Disk;

/// What a client wants.
#[derive(Debug)]
enum Wish {
    Request(Request, Option<Box<Plan>>),
    /// These parts are broken, these work again.
    Fault(Vec<Part>, Vec<Part>),
}

/// What comes to pass at a point in time.
#[derive(Debug)]
enum Happening {
    /// The device does what was asked of it.
    Execute {
        life: u32,
        device: DeviceName,
        ticket: Ticket,
        op: Op,
        reply: bool,
        late: bool,
    },
    Reply {
        life: u32,
        device: DeviceName,
        ticket: Ticket,
        outcome: Outcome,
    },
    Up {
        life: u32,
        device: DeviceName,
    },
    Down {
        life: u32,
        device: DeviceName,
    },
    /// A module reports what it sees at this slot.
    Signal {
        life: u32,
        device: DeviceName,
        slot: Slot,
    },
    Client {
        asked: Asked,
        wish: Wish,
    },
    Restart,
    OperatorMoves,
}

struct Entry(Micros, u64, Happening);
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// Where the daemon dies, counted over everything it does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CrashAt {
    /// The point: before a write, while it is under way, after it, before a send or an answer.
    pub point: u64,
}

/// A device that restarts in the middle of things.
#[derive(Clone, Debug)]
pub(crate) struct Reboot {
    pub device: DeviceName,
    /// At which of its operations from now on, from 1.
    pub operation: u64,
    /// Whether its circuits survive.
    pub keeps: bool,
    /// How long it is gone.
    pub boot: Micros,
}

/// Counts of what was seen, for the published table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub points: u64,
    pub crashes: u64,
    pub committed: u64,
    pub rolled_back: u64,
    pub aborted: u64,
    pub partial: u64,
    pub conflicts: u64,
    pub refused: u64,
    pub unknown: u64,
    pub switches: u64,
    pub drifts: u64,
    pub shortened: u64,
    pub cuts: u64,
    /// Bypasses of the policy's own that were begun.
    pub bypasses: u64,
    /// Those that were committed, and changes of plans that clients asked for.
    pub bypassed: u64,
    pub plans: u64,
    /// Parts that were bypassed because a bypass before had failed at them.
    pub suspects: u64,
    /// Devices that were dead when a change was undone, and brought back afterwards.
    pub settled: u64,
    /// Bypasses while a change waited for its confirm.
    pub on_top: u64,
    /// Reports of light that was lost or back.
    pub signals: u64,
    /// Modules that were bypassed as dead, and those among them that had power all the time.
    pub dead: u64,
    pub misnamed: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.points += other.points;
        self.crashes += other.crashes;
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.aborted += other.aborted;
        self.partial += other.partial;
        self.conflicts += other.conflicts;
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.switches += other.switches;
        self.drifts += other.drifts;
        self.shortened += other.shortened;
        self.cuts += other.cuts;
        self.bypasses += other.bypasses;
        self.bypassed += other.bypassed;
        self.plans += other.plans;
        self.suspects += other.suspects;
        self.settled += other.settled;
        self.on_top += other.on_top;
        self.signals += other.signals;
        self.dead += other.dead;
        self.misnamed += other.misnamed;
    }
}

pub(crate) struct World {
    pub now: Now,
    pub inventory: Inventory,
    pub disk: Disk,
    pub devices: BTreeMap<DeviceName, ModelDevice>,
    pub faults: Faults,
    /// Faults of single devices, instead of those of all.
    pub faults_of: BTreeMap<DeviceName, Faults>,
    pub reboots: Option<Reboot>,
    /// Fibres that are cut, by both of their ends, and when those that are whole again were mended.
    pub cut: BTreeSet<FibreEnd>,
    /// Where the fibre of each end leads to, whatever the fabric says.
    cables: BTreeMap<FibreEnd, FibreEnd>,
    mended: BTreeMap<FibreEnd, Micros>,
    /// How long light takes to settle after a switch, at most.
    pub settles_within: Micros,
    lit_from: BTreeMap<DeviceName, Micros>,
    /// Where no light arrived when that was last looked at, for modules that report it.
    unlit_before: BTreeMap<DeviceName, BTreeSet<Slot>>,
    /// Light may have changed since.
    light_changed: bool,
    /// Devices that the daemon has no connection to.
    disconnected: BTreeSet<DeviceName>,
    /// What the daemon took for a dark fibre, once each.
    pub dark: BTreeSet<(FibreEnd, FibreEnd)>,
    /// Parts that were bypassed while a change waited for its confirm.
    on_top: BTreeSet<Part>,
    /// When each device last did something else than it was asked for, and answered nothing.
    erred: BTreeMap<DeviceName, Micros>,
    /// What operators said to be broken and did not say to be repaired since.
    said_broken: BTreeSet<Part>,
    /// When each device last did a switch.
    pub switched_at: BTreeMap<DeviceName, Micros>,
    /// When outcomes were given up as unknown.
    pub unknown_at: Vec<Micros>,
    pub counts: Counts,
    pub crash_at: Option<CrashAt>,
    /// Chance of a crash at each point.
    pub crash_chance: f64,
    /// How long a dead daemon stays dead.
    pub dead_for: Micros,
    pub answers: Vec<(Asked, Answer)>,
    pub ended: Vec<(Txn, TxnResult)>,
    /// What the disk has promised to keep.
    pub durable: Ledger,
    /// The plans that were ever written down.
    plans: BTreeSet<String>,
    /// Written behind that, and not promised yet.
    unsynced: Vec<Record>,
    pub log: VecDeque<String>,
    keep_log: bool,
    setup: Setup,
    control: Option<Control>,
    journal: Option<Journal<Record, FileStorage<Disk>>>,
    life: u32,
    seq: u64,
    queue: BinaryHeap<Reverse<Entry>>,
    rng: Stream,
    waiting: BTreeMap<u64, Asked>,
    /// Devices whose last switch has an unknown outcome and that were not read since.
    unread: BTreeSet<DeviceName>,
    last_op: BTreeMap<(DeviceName, Ticket), Op>,
    intents: BTreeMap<String, u32>,
}

impl World {
    /// A world without a fabric of rings: the policy has nothing to plan.
    pub(crate) fn new(seed: u64, inventory: Inventory, faults: Faults) -> Self {
        Self::with(seed, inventory, Setup::default(), faults)
    }

    pub(crate) fn with(seed: u64, inventory: Inventory, setup: Setup, faults: Faults) -> Self {
        let devices = inventory
            .devices
            .iter()
            .map(|(name, device)| (name.clone(), ModelDevice::new(device.sharing)))
            .collect();
        let cables = inventory.fibres.clone();
        let mut world = Self {
            cables,
            now: Now { mono: Micros::from_secs(1), wall_ms: 1_700_000_000_000, boot: "b0".into() },
            inventory,
            disk: Disk::default(),
            devices,
            faults,
            faults_of: BTreeMap::new(),
            reboots: None,
            cut: BTreeSet::new(),
            mended: BTreeMap::new(),
            settles_within: Micros::default(),
            lit_from: BTreeMap::new(),
            unlit_before: BTreeMap::new(),
            light_changed: false,
            disconnected: BTreeSet::new(),
            dark: BTreeSet::new(),
            on_top: BTreeSet::new(),
            erred: BTreeMap::new(),
            said_broken: BTreeSet::new(),
            switched_at: BTreeMap::new(),
            unknown_at: Vec::new(),
            counts: Counts::default(),
            crash_at: None,
            crash_chance: 0.0,
            dead_for: Micros::from_millis(200),
            answers: Vec::new(),
            ended: Vec::new(),
            durable: Ledger::default(),
            plans: BTreeSet::new(),
            unsynced: Vec::new(),
            log: VecDeque::new(),
            keep_log: std::env::var_os("LIGHTLOOM_SEED").is_some(),
            setup,
            control: None,
            journal: None,
            life: 0,
            seq: 0,
            queue: BinaryHeap::new(),
            rng: Seed(seed).stream("world", 0),
            waiting: BTreeMap::new(),
            unread: BTreeSet::new(),
            last_op: BTreeMap::new(),
            intents: BTreeMap::new(),
        };
        world.at(Micros::default(), Happening::Restart);
        world
    }

    pub(crate) fn controller(&self) -> Option<&Controller> {
        self.control.as_ref().map(Control::controller)
    }

    pub(crate) fn control(&self) -> Option<&Control> {
        self.control.as_ref()
    }

    pub(crate) fn ask(&mut self, after: Micros, actor: &str, request_id: &str, request: Request) {
        self.wish(after, actor, request_id, Wish::Request(request, None));
    }

    /// An apply of a plan of the ring.
    pub(crate) fn ask_plan(
        &mut self,
        after: Micros,
        actor: &str,
        request_id: &str,
        apply: Apply,
        plan: Plan,
    ) {
        let wish = Wish::Request(Request::Apply(apply), Some(Box::new(plan)));
        self.wish(after, actor, request_id, wish);
    }

    /// An operator says that these parts are broken, and that these work again.
    pub(crate) fn say(
        &mut self,
        actor: &str,
        request_id: &str,
        broken: Vec<Part>,
        repaired: Vec<Part>,
    ) {
        self.wish(Micros::default(), actor, request_id, Wish::Fault(broken, repaired));
    }

    fn wish(&mut self, after: Micros, actor: &str, request_id: &str, wish: Wish) {
        let digest = format!("{wish:?}");
        let asked = Asked { actor: actor.into(), request: request_id.into(), digest };
        self.at(after, Happening::Client { asked, wish });
    }

    /// The machine sleeps: the clocks go on, and nothing happens.
    pub(crate) fn suspend(&mut self, time: Micros) {
        self.advance(self.now.mono + time);
    }

    pub(crate) fn operator_moves(&mut self, after: Micros) {
        self.at(after, Happening::OperatorMoves);
    }

    /// Something comes to pass now.
    pub(crate) fn happens(&mut self, event: Event) {
        self.handle(event);
    }

    pub(crate) fn kill(&mut self) {
        self.crash("killed");
    }

    /// A dead daemon starts again, on a machine that was rebooted or not.
    pub(crate) fn reboot_machine(&mut self) {
        self.now.boot = format!("b{}", self.rng.random::<u32>());
        let old = std::mem::replace(&mut self.now.mono, Micros::from_secs(30));
        self.devices.values_mut().for_each(|model| model.clock_restarts(old, self.now.mono));
        // What is kept of the old clock: light has settled, and what was mended was so just now.
        self.lit_from.clear();
        self.mended.values_mut().for_each(|at| *at = self.now.mono);
        self.erred.values_mut().for_each(|at| *at = self.now.mono);
        assert!(self.control.is_none(), "only a dead daemon's machine reboots here");
        self.queue.clear();
        self.at(Micros::default(), Happening::Restart);
    }

    fn at(&mut self, after: Micros, happening: Happening) {
        self.seq += 1;
        self.queue.push(Reverse(Entry(self.now.mono + after, self.seq, happening)));
    }

    /// Runs until the given time of the monotonic clock.
    pub(crate) fn run_until(&mut self, end: Micros) {
        loop {
            let next = self.queue.peek().map(|Reverse(entry)| entry.0);
            let deadline = self.control.as_ref().and_then(|c| c.deadline(&self.now));
            let tick_first = deadline.is_some_and(|d| next.is_none_or(|n| d < n));
            let Some(time) = (if tick_first { deadline } else { next }) else { break };
            if time > end {
                break;
            }
            self.advance(time);
            if !tick_first && let Some(Reverse(Entry(_, _, happening))) = self.queue.pop() {
                self.happen(happening);
            }
            self.tick();
        }
        self.advance(end);
    }

    pub(crate) fn run_for(&mut self, time: Micros) {
        // Whoever drives the world may have broken something.
        self.report_light();
        self.run_until(self.now.mono + time);
    }

    /// As the real runtime does after each event.
    fn tick(&mut self) {
        if std::mem::take(&mut self.light_changed) {
            self.report_light();
        }
        self.judge_darkness();
        let Some(control) = &mut self.control else { return };
        let actions = control.tick(&self.now);
        self.perform(actions);
        self.shorten_journal();
    }

    fn advance(&mut self, time: Micros) {
        if time > self.now.mono {
            let passed = time - self.now.mono;
            self.now.mono = time;
            self.now.wall_ms = self.now.wall_ms.saturating_add(passed.0.div_ceil(1000));
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Execute { life, device, ticket, op, reply, late } => {
                // For everybody who reads the device, this is a move behind their back.
                if late && let Some(model) = self.devices.get_mut(&device) {
                    model.tampered = true;
                }
                self.execute(life, device, ticket, &op, reply);
            }
            Happening::Reply { life, device, ticket, outcome } if life == self.life => {
                self.reply(device, ticket, outcome);
            }
            Happening::Up { life, device } if life == self.life => self.up(device),
            Happening::Down { life, device } if life == self.life => {
                self.disconnected.insert(device.clone());
                self.handle(Event::Down(device.clone(), "no answer in time".into()));
                self.at(RECONNECT, Happening::Up { life, device });
            }
            Happening::Signal { life, device, slot } if life == self.life => {
                self.signal(device, slot);
            }
            Happening::Reply { .. }
            | Happening::Up { .. }
            | Happening::Down { .. }
            | Happening::Signal { .. } => {}
            Happening::Client { asked, wish } => self.client(asked, wish),
            Happening::Restart => self.start(),
            Happening::OperatorMoves => {
                self.light_changed = true;
                let index = self.rng.random_range(0..self.devices.len());
                if let Some(device) = self.devices.values_mut().nth(index) {
                    device.moved_by_operator(&mut self.rng);
                }
            }
        }
    }

    fn client(&mut self, asked: Asked, wish: Wish) {
        let Some(control) = &mut self.control else { return };
        self.seq += 1;
        let reply_to = ReplyTo(self.seq);
        self.waiting.insert(self.seq, asked.clone());
        let actions = match wish {
            Wish::Request(request, plan) => control.ask(&self.now, asked, request, plan, reply_to),
            Wish::Fault(broken, repaired) => {
                self.said_broken.extend(&broken);
                let why = |part: &Part| (*part, format!("{} said so", asked.actor));
                let broken: Vec<(Part, String)> = broken.iter().map(why).collect();
                control.fault(&self.now, asked, &broken, &repaired, reply_to)
            }
        };
        self.perform(actions);
    }

    // ---- the daemon's life ---------------------------------------------------------------------

    fn start(&mut self) {
        if self.control.is_some() {
            return;
        }
        self.life += 1;
        let opened = self.disk.journal().map_err(JournalError::from);
        let (journal, opened) = match opened.and_then(Journal::<Record, _>::open) {
            Ok(opened) => opened,
            // A torn tail that cannot be cut off: it is started again and again.
            Err(error) => {
                self.note(|| format!("the daemon does not start: {error}"));
                return self.at(Micros::from_millis(500), Happening::Restart);
            }
        };
        if let Some(damage) = opened.damage {
            self.note(|| format!("journal damaged: {damage}"));
            return;
        }
        let ledger = Ledger::fold(&opened.records);
        self.check_durable(&ledger);
        self.durable = ledger.clone();
        self.journal = Some(journal);
        let was_open = ledger.open.is_some();
        let (control, actions) =
            Control::start(self.inventory.clone(), self.setup.clone(), ledger, &self.now);
        let life = self.life;
        self.note(|| format!("daemon starts, life {life}, open transaction: {was_open}"));
        self.control = Some(control);
        self.perform(actions);
        let names: Vec<DeviceName> = self.devices.keys().cloned().collect();
        for device in names {
            let life = self.life;
            self.at(Micros(500), Happening::Up { life, device });
        }
    }

    fn crash(&mut self, why: &str) {
        self.note(|| format!("daemon dies: {why}"));
        self.counts.crashes += 1;
        self.control = None;
        self.journal = None;
        self.waiting.clear();
        self.unsynced.clear();
        self.last_op.clear();
        self.unread.clear();
        self.disconnected.clear();
        self.disk.lose_power(&mut self.rng);
        self.at(self.dead_for, Happening::Restart);
    }

    /// Whether the daemon dies here.
    fn point(&mut self, what: &str) -> bool {
        if self.control.is_none() {
            return true;
        }
        let dies = self.dies_here();
        if dies {
            self.crash(what);
        }
        dies
    }

    fn dies_here(&mut self) -> bool {
        self.counts.points += 1;
        let planned = self.crash_at.is_some_and(|c| c.point == self.counts.points);
        planned || (self.crash_chance > 0.0 && self.rng.random_bool(self.crash_chance))
    }

    fn handle(&mut self, event: Event) {
        let Some(control) = &mut self.control else { return };
        let actions = control.handle(&self.now, event);
        self.perform(actions);
    }

    /// As the real runtime does, only sooner: a crash may come before it or after it.
    fn shorten_journal(&mut self) {
        const RECORDS_MAX: u64 = 100;
        let (Some(journal), Some(control)) = (&mut self.journal, &self.control) else {
            return;
        };
        let controller = control.controller();
        if journal.length() < RECORDS_MAX || controller.is_busy() {
            return;
        }
        let first = controller.ledger().begun_anew(journal.head().to_owned());
        let dies = self.crash_chance > 0.0 && self.rng.random_bool(0.2);
        // At any of its operations, or after all of them.
        self.disk.stop_after(dies.then(|| self.rng.random_range(0..12)));
        if journal.restart(&first).is_ok() {
            self.counts.shortened += 1;
        }
        self.disk.stop_after(None);
        if dies {
            self.crash("while the journal begins anew");
        }
    }

    /// Does what the controller says, in order, as the real runtime does.
    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Append(records) => {
                    if !self.append(records) {
                        return;
                    }
                }
                Action::Send(device, ticket, op) => {
                    if self.point("before a send") {
                        return;
                    }
                    self.send(device, ticket, op);
                }
                // The connection is started afresh.
                Action::Abandon(device, _) => {
                    let life = self.life;
                    self.at(Micros(100), Happening::Down { life, device });
                }
                Action::Answer(reply_to, answer) => {
                    if self.point("before an answer") {
                        return;
                    }
                    self.answer(reply_to, answer);
                }
                Action::Note(note) => self.take_note(note),
            }
        }
    }

    fn append(&mut self, records: Vec<Record>) -> bool {
        if self.point("before a write") {
            return false;
        }
        // What was there before is durable then, of the rest any sectors.
        let inside = self.dies_here();
        let Some(journal) = &mut self.journal else { return false };
        let synced = records.iter().any(Record::is_waited_for);
        self.disk.lie(inside);
        let result = if synced { journal.append(&records) } else { journal.write(&records) };
        self.disk.lie(false);
        if let Err(error) = result {
            self.crash(&format!("journal: {error}"));
            return false;
        }
        if inside {
            self.crash("inside a write");
            return false;
        }
        if self.point("after a write") {
            return false;
        }
        self.unsynced.extend(records);
        for record in if synced { std::mem::take(&mut self.unsynced) } else { Vec::new() } {
            self.check_record(&record);
            if let Record::Plan(plan) = &record {
                self.plans.insert(plan.sha256().to_owned());
            }
            self.durable.apply(&record);
        }
        true
    }

    // ---- devices -------------------------------------------------------------------------------

    fn up(&mut self, device: DeviceName) {
        self.light_changed = true;
        if self.devices[&device].is_gone(self.now.mono) {
            let life = self.life;
            self.at(Micros::from_secs(1), Happening::Up { life, device: device.clone() });
            // A device task says so once.
            if self.disconnected.insert(device.clone()) {
                self.handle(Event::Down(device, "no answer to a hello".into()));
            }
            return;
        }
        self.disconnected.remove(&device);
        self.handle(Event::Up(device));
    }

    /// Cuts the fibre of this end, or mends it.
    pub(crate) fn cut(&mut self, end: &FibreEnd, cut: bool) {
        let far = self.inventory.fibres[end].clone();
        for end in [end.clone(), far] {
            if cut {
                self.cut.insert(end);
            } else if self.cut.remove(&end) {
                self.mended.insert(end, self.now.mono);
            }
        }
        self.counts.cuts += u64::from(cut);
    }

    /// Cuts the fibre so that light is lost on its way to this end, and to no other.
    pub(crate) fn cut_towards(&mut self, end: &FibreEnd) {
        self.cut.insert(end.clone());
        self.counts.cuts += 1;
    }

    /// Swaps the cables that are plugged in at these ends.
    pub(crate) fn swap(&mut self, one: &FibreEnd, other: &FibreEnd) {
        let [far, other_far] = [one, other].map(|end| self.cables[end].clone());
        let joined = [(one, &other_far), (other, &far)];
        for (near, far) in joined {
            self.cables.insert(near.clone(), far.clone());
            self.cables.insert(far.clone(), near.clone());
        }
    }

    /// Whose light arrives, where a fibre leads somebody's there.
    fn neighbours(&self, device: &DeviceName, unlit: &BTreeSet<Slot>) -> BTreeMap<Slot, String> {
        let lit = self.devices[device].positions.iter().filter(|(slot, _)| !unlit.contains(slot));
        let named = lit.filter_map(|(&slot, &to)| {
            let far = self.cables.get(&(device.clone(), slot, to))?;
            Some((slot, end_name(far)))
        });
        named.collect()
    }

    /// Where no light arrives: its far end looks elsewhere, is gone, has only just been switched, or
    /// the fibre is cut.
    fn unlit(&self, device: &DeviceName) -> BTreeSet<Slot> {
        let now = self.now.mono;
        let arrives = |slot: Slot, to: Position| {
            let end = (device.clone(), slot, to);
            let Some((far, far_slot, far_to)) = self.cables.get(&end) else {
                return true;
            };
            let model = &self.devices[far];
            at(&model.positions, *far_slot) == *far_to
                && !model.is_gone(now)
                && !model.shut.contains(far_slot)
                && self.lit_from.get(far).is_none_or(|from| *from <= now)
                && !self.cut.contains(&end)
        };
        let positions = self.devices[device].positions.iter();
        positions.filter(|(slot, to)| !arrives(**slot, **to)).map(|(slot, _)| *slot).collect()
    }

    fn send(&mut self, device: DeviceName, ticket: Ticket, op: Op) {
        self.check_send(&device, &op);
        let life = self.life;
        let faults = *self.faults_of.get(&device).unwrap_or(&self.faults);
        let fate = faults.fate(&mut self.rng, &op);
        self.last_op.insert((device.clone(), ticket), op.clone());
        if matches!(op, Op::Switch { .. }) {
            self.counts.switches += 1;
        }
        if !fate.reply {
            self.erred.insert(device.clone(), self.now.mono);
        }
        self.note(|| format!("send {device} {op:?} fate {fate:?}"));
        if self.disconnected.contains(&device) {
            let outcome = Outcome::Unknown("not connected".into());
            return self.at(Micros(20), Happening::Reply { life, device, ticket, outcome });
        }
        if let Some(after) = fate.execute_after {
            let (reply, late) = (fate.reply, after >= Micros::from_millis(1000));
            self.at(after, Happening::Execute { life, device, ticket, op, reply, late });
        }
    }

    fn execute(&mut self, life: u32, device: DeviceName, ticket: Ticket, op: &Op, reply: bool) {
        let unlit = self.unlit(&device);
        let neighbours = self.neighbours(&device, &unlit);
        let Some(model) = self.devices.get_mut(&device) else { return };
        if let Some(reboot) = self.reboots.as_mut().filter(|reboot| reboot.device == device) {
            reboot.operation = reboot.operation.saturating_sub(1);
            if reboot.operation == 0 {
                model.reboot(self.now.mono + reboot.boot, reboot.keeps);
                self.reboots = None;
            }
        }
        if model.is_gone(self.now.mono) {
            return;
        }
        if matches!(op, Op::Switch { .. }) {
            self.light_changed = true;
            self.switched_at.insert(device.clone(), self.now.mono);
        }
        let faults = *self.faults_of.get(&device).unwrap_or(&self.faults);
        (model.unlit, model.neighbours) = (unlit, neighbours);
        let outcome = model.execute(op, &faults, &mut self.rng);
        if std::mem::take(&mut model.erred) {
            self.erred.insert(device.clone(), self.now.mono);
        }
        if matches!(op, Op::Switch { .. }) && self.settles_within > Micros::default() {
            let settled = Micros(self.rng.random_range(0..self.settles_within.0));
            self.lit_from.insert(device.clone(), self.now.mono + settled);
        }
        let line = || format!("{device} does {op:?}: {outcome:?}");
        self.note(line);
        if reply {
            let after = Micros(self.rng.random_range(20..200));
            self.at(after, Happening::Reply { life, device, ticket, outcome });
        }
    }

    fn reply(&mut self, device: DeviceName, ticket: Ticket, outcome: Outcome) {
        if let Some(Op::Observe { .. } | Op::Arm { .. }) =
            self.last_op.remove(&(device.clone(), ticket))
            && matches!(outcome, Outcome::Done(Some(_)))
        {
            self.unread.remove(&device);
        }
        self.handle(Event::Reply { device, ticket, outcome });
    }

    fn answer(&mut self, reply_to: ReplyTo, answer: Answer) {
        let Some(asked) = self.waiting.remove(&reply_to.0) else { return };
        match &answer {
            Answer::Conflict { .. } => self.counts.conflicts += 1,
            Answer::Refused { .. } => self.counts.refused += 1,
            Answer::Accepted { .. }
            | Answer::Done
            | Answer::Adopted { .. }
            | Answer::NothingToDo { .. }
            | Answer::Booked { .. }
            | Answer::PhaseRefused { .. } => {}
        }
        self.note(|| format!("answer {asked:?}: {answer:?}"));
        self.answers.push((asked, answer));
    }

    fn take_note(&mut self, note: Note) {
        self.note(|| format!("note {note:?}"));
        match note {
            Note::Unknown(device, _) => {
                self.counts.unknown += 1;
                if self.unknown_at.len() < 100 {
                    self.unknown_at.push(self.now.mono);
                }
                let flying = self.last_op.keys().filter(|(d, _)| *d == device).cloned();
                for key in flying.collect::<Vec<_>>() {
                    if let Some(Op::Switch { .. }) = self.last_op.remove(&key) {
                        self.unread.insert(device.clone());
                    }
                }
            }
            Note::Bypassing(parts, _) => {
                self.counts.bypasses += 1;
                self.judge_found(&parts);
            }
            Note::Drift(_, drift) if !drift.is_empty() => self.counts.drifts += 1,
            Note::Ended(txn, result) => {
                match result {
                    TxnResult::Committed => self.counts.committed += 1,
                    TxnResult::RolledBack => self.counts.rolled_back += 1,
                    TxnResult::Aborted => self.counts.aborted += 1,
                    TxnResult::Partial => self.counts.partial += 1,
                }
                let last = self.controller().and_then(|c| c.ledger().history.back());
                let is = |cause: fn(&Cause) -> bool| last.is_some_and(|past| cause(&past.cause));
                let committed = result == TxnResult::Committed;
                let settled = is(|cause| matches!(cause, Cause::Owed(_))) && committed;
                let bypassed = is(|cause| *cause == Cause::Bypass) && committed;
                let plan = is(|cause| *cause == Cause::Apply)
                    && last.is_some_and(|past| !past.plan_sha256.is_empty());
                self.counts.settled += u64::from(settled);
                self.counts.bypassed += u64::from(bypassed);
                self.counts.plans += u64::from(plan && committed);
                self.judge_end();
                self.ended.push((txn, result));
            }
            _ => {}
        }
    }

    /// Remembers the last events, when a single seed is looked at.
    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if !self.keep_log {
            return;
        }
        if self.log.len() == 400 {
            self.log.pop_front();
        }
        let line = format!("{:>12} {}", self.now.mono.0, line());
        self.log.push_back(line);
    }
}
