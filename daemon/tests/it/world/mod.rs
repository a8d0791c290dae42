// SPDX-License-Identifier: Apache-2.0
//! A world in virtual time, generated from one seed: the shipping control core and journal, model
//! devices, a disk that tears writes, clients, operators and crashes. After every step, it checks
//! the invariants I1 to I9 of docs/reliability.md.
//!
//! The policy is the shipping [`Control`]; `judge` does not depend on it.
pub(crate) mod device;
pub(crate) mod disk;
mod judge;
mod light;
mod links;
mod process;
pub(crate) mod ring;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use lightloom_control::controller::{
    Action, Answer, Apply, Controller, Event, Note, ReplyTo, Request, Ticket, end_name,
};
use lightloom_control::inventory::Inventory;
use lightloom_control::ledger::Ledger;
use lightloom_control::mover::RECONNECT;
use lightloom_control::policy::{Control, Setup};
use lightloom_control::record::{Asked, Cause, Record, TxnResult};
use lightloom_control::state::{
    DeviceName, FibreEnd, Micros, Now, Op, Outcome, Position, Slot, Txn, at,
};
use lightloom_daemon::file_storage::FileStorage;
use lightloom_daemon::journal::{Journal, JournalError};
use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::Plan;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

use device::{Faults, ModelDevice};
use disk::Disk;

#[derive(Debug)]
enum Wish {
    Request(Request, Option<Box<Plan>>),
    Fault(Vec<Part>, Vec<Part>),
}

#[derive(Debug)]
enum Happening {
    Execute { life: u32, device: DeviceName, ticket: Ticket, op: Op, reply: bool, late: bool },
    Reply { life: u32, device: DeviceName, ticket: Ticket, outcome: Outcome },
    Up { life: u32, device: DeviceName },
    Down { life: u32, device: DeviceName },
    Signal { life: u32, device: DeviceName, slot: Slot },
    Client { asked: Asked, wish: Wish },
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

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CrashAt {
    /// Number of the crash point: around a write, before a send, or before a reply.
    pub point: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Reboot {
    pub device: DeviceName,
    /// Number of the operation, from 1.
    pub operation: u64,
    pub keeps: bool,
    pub boot: Micros,
}

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
    pub bypasses: u64,
    pub bypassed: u64,
    pub plans: u64,
    /// Number of parts that were bypassed because an earlier bypass failed at them.
    pub suspects: u64,
    /// Number of devices that were unreachable during an undo and were restored later.
    pub settled: u64,
    pub on_top: u64,
    pub signals: u64,
    /// Number of modules bypassed as failed, and of those that had power all the time.
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
    pub faults_of: BTreeMap<DeviceName, Faults>,
    pub reboots: Option<Reboot>,
    /// Both ends of each cut fibre; `mended` contains the times of repairs.
    pub cut: BTreeSet<FibreEnd>,
    cables: BTreeMap<FibreEnd, FibreEnd>,
    mended: BTreeMap<FibreEnd, Micros>,
    pub settles_within: Micros,
    lit_from: BTreeMap<DeviceName, Micros>,
    /// Slots that were without light at the last check, for modules that report loss of light.
    unlit_before: BTreeMap<DeviceName, BTreeSet<Slot>>,
    light_changed: bool,
    disconnected: BTreeSet<DeviceName>,
    pub dark: BTreeSet<(FibreEnd, FibreEnd)>,
    on_top: BTreeSet<Part>,
    /// When each device last failed to execute a request or missed a reply.
    erred: BTreeMap<DeviceName, Micros>,
    /// Parts that operators have reported as failed and not yet as repaired.
    said_broken: BTreeSet<Part>,
    pub switched_at: BTreeMap<DeviceName, Micros>,
    pub unknown_at: Vec<Micros>,
    pub counts: Counts,
    pub crash_at: Option<CrashAt>,
    pub crash_chance: f64,
    pub dead_for: Micros,
    pub answers: Vec<(Asked, Answer)>,
    pub ended: Vec<(Txn, TxnResult)>,
    /// The ledger of the durable records.
    pub durable: Ledger,
    plans: BTreeSet<String>,
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
    /// Devices that have not been read since a switch with an unknown outcome.
    unread: BTreeSet<DeviceName>,
    last_op: BTreeMap<(DeviceName, Ticket), Op>,
    intents: BTreeMap<String, u32>,
}

impl World {
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

    pub(crate) fn suspend(&mut self, time: Micros) {
        self.advance(self.now.mono + time);
    }

    pub(crate) fn operator_moves(&mut self, after: Micros) {
        self.at(after, Happening::OperatorMoves);
    }

    pub(crate) fn happens(&mut self, event: Event) {
        self.handle(event);
    }

    fn at(&mut self, after: Micros, happening: Happening) {
        self.seq += 1;
        self.queue.push(Reverse(Entry(self.now.mono + after, self.seq, happening)));
    }

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
        // The caller may have injected a fault.
        self.report_light();
        self.run_until(self.now.mono + time);
    }

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
                // Treat late execution as an unexpected move.
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
                self.handle(Event::Unreachable(device.clone(), "no answer in time".into()));
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
