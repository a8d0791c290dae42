// SPDX-License-Identifier: Apache-2.0
//! A daemon in virtual time with an emulated plant and an in-memory disk. Its clients poll
//! constantly and receive every response.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use lightloom_control::controller::{Answer, Event, Ticket};
use lightloom_control::ledger::Ledger;
use lightloom_control::mover::RECONNECT;
use lightloom_control::policy::{Control, Setup};
use lightloom_control::record::{Cause, Record, TxnResult};
use lightloom_control::state::{DeviceName, Micros, Now, Op, Outcome, Txn};
use lightloom_daemon::audit::Audit;
use lightloom_daemon::clock::Clock;
use lightloom_daemon::cluster::JournalPlace;
use lightloom_daemon::config::{self, Config};
use lightloom_daemon::file_storage::FileStorage;
use lightloom_daemon::hooks::Hooks;
use lightloom_daemon::journal::{Journal, Storage, Stored};
use lightloom_daemon::metrics::Metrics;
use lightloom_daemon::runtime::{AnswerSender, Call, NotStored, Parts, Runtime};
use lightloom_daemon::tend::{FromDevice, ToDevice};
use lightloom_daemon::traces::Traces;
use lightloom_daemon::view;
use lightloom_daemon_api::status::Status;
use lightloom_fabric::fabric::Fabric;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{oneshot, watch};

use super::disk::{Died, Disk};
use super::plant::Plant;

const EXECUTES_AFTER: Micros = Micros(300);
const REPLIES_AFTER: Micros = Micros(150);
/// Retry interval for unresponsive devices and a failed disk.
const TRIES_EVERY: Micros = Micros::from_secs(1);
const STEPS_MAX: u32 = 400_000;

enum Happening {
    Execute(u32, DeviceName, Ticket, Op),
    Reply(u32, DeviceName, Ticket, Outcome),
    Up(u32, DeviceName),
    Restart,
    Mended,
}

pub(super) struct Asked {
    pub(super) id: String,
    pub(super) what: String,
    waits: Option<oneshot::Receiver<Result<Stored<Answer>, NotStored>>>,
    pub(super) answer: Option<Answer>,
}

pub(super) struct World {
    pub(super) installed: Fabric,
    config: Config,
    folder: tempfile::TempDir,
    pub(super) plant: Plant,
    pub(super) disk: Disk,
    pub(super) runtime: Option<Runtime>,
    to_devices: BTreeMap<DeviceName, UnboundedReceiver<ToDevice>>,
    unreached: BTreeSet<DeviceName>,
    clock: Arc<Mutex<Now>>,
    pub(super) time: Micros,
    ahead: Micros,
    life: u32,
    takes_over: bool,
    queue: BTreeMap<(Micros, u64), Happening>,
    sequence: u64,
    pub(super) asked: Vec<Asked>,
    pub(super) ended: BTreeMap<Txn, (Cause, TxnResult)>,
    pub(super) log: Vec<String>,
}

impl World {
    pub(super) fn new(fabric: &str, nodes: u32) -> Self {
        let installed = lightloom_fabric::file::load("ring.yaml", fabric.as_bytes()).0.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = format!(
            "state_dir: {}\npolicies: {{on_fault: bypass, heartbeat: 20s, poll_every: 5s}}\nmodules:\n  \
             - {{nodes: [0, {}], bundles: 2, serial: \"/nowhere/{{node}}-{{bundle}}\"}}\n",
            folder.path().display(),
            nodes - 1
        );
        let (config, mistakes) = config::load("daemon.yaml", file.as_bytes());
        let mut config = config.unwrap_or_else(|| panic!("{mistakes:?}"));
        config.inventory.cable(&installed, &config.bundles);
        let names = config.inventory.devices.keys().cloned();
        let plant = Plant::new(names, config.inventory.fibres.clone());
        let time = Micros::from_secs(100);
        let mut world = Self {
            installed,
            config,
            folder,
            plant,
            disk: Disk::default(),
            runtime: None,
            to_devices: BTreeMap::new(),
            unreached: BTreeSet::new(),
            clock: Arc::new(Mutex::new(Now { mono: time, wall_ms: 0, boot: String::new() })),
            time,
            ahead: Micros(0),
            life: 0,
            takes_over: false,
            queue: BTreeMap::new(),
            sequence: 0,
            asked: Vec::new(),
            ended: BTreeMap::new(),
            log: Vec::new(),
        };
        world.set_clock();
        world.start();
        world
    }

    pub(super) fn note(&mut self, line: impl Into<String>) {
        self.log.push(format!("{:>12.3} s  {}", self.time.as_secs_f64(), line.into()));
    }

    fn set_clock(&self) {
        let mut now = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        now.mono = self.time + self.ahead;
        now.wall_ms = 1_700_000_000_000 + self.time.0 / 1000;
    }

    fn later(&mut self, after: Micros, what: Happening) {
        self.sequence += 1;
        self.queue.insert((self.time + after, self.sequence), what);
    }

    // ---- the daemon ----------------------------------------------------------------------------

    fn start(&mut self) {
        if self.runtime.is_some() {
            return;
        }
        self.life += 1;
        if std::mem::take(&mut self.takes_over) {
            self.ahead = Micros::from_secs(1_000 * u64::from(self.life));
            self.set_clock();
            self.clock.lock().unwrap_or_else(PoisonError::into_inner).boot =
                format!("machine {}", self.life);
        }
        let disk: Box<dyn Storage + Send> = Box::new(self.disk.clone());
        let opened = catch_unwind(AssertUnwindSafe(|| Journal::<Record, _>::open(disk)));
        let (journal, opened) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                self.note(format!("does not start: {error}"));
                return self.later(TRIES_EVERY, Happening::Restart);
            }
            Err(payload) if payload.is::<Died>() => return self.died(),
            Err(payload) => resume_unwind(payload),
        };
        let clock = Clock::simulated(Arc::clone(&self.clock));
        let setup = Setup {
            installed: Some(self.installed.clone()),
            modules: self.config.bundles.clone(),
            switches: self.config.numbered_switches(),
            on_fault: self.config.file.policies.on_fault,
            may_move: self.config.file.policies.may_move(),
            heal: self.config.file.policies.heal_policy(),
            heartbeat: Micros::from_secs(20),
        };
        let (inventory, ledger) = (self.config.inventory.clone(), Ledger::fold(&opened.records));
        let (control, first) = Control::start(inventory, setup, ledger, &clock.now());
        let mut devices = BTreeMap::new();
        self.to_devices.clear();
        for name in self.plant.modules.keys() {
            let (sender, receiver) = unbounded_channel();
            devices.insert(name.clone(), sender);
            self.to_devices.insert(name.clone(), receiver);
        }
        let metrics = Metrics::new().unwrap();
        let audit = FileStorage::open(&self.folder.path().join("audit.log")).unwrap();
        let (audit, _) = Journal::open(audit).unwrap();
        let parts = Parts {
            control,
            first,
            place: JournalPlace::of(&self.config),
            leadership: None,
            journal,
            audit: Audit::new(audit),
            damage: opened.damage,
            proof: opened.proof,
            journal_gone: false,
            config: self.config.clone(),
            clock,
            hooks: Hooks::start(self.config.file.hooks.clone(), &metrics),
            traces: Traces::default(),
            metrics,
            devices,
            changes: watch::channel(0).0,
        };
        self.note(format!("the daemon starts, life {}", self.life));
        let runtime = catch_unwind(AssertUnwindSafe(|| Runtime::new(parts)));
        match runtime {
            Ok(runtime) => self.runtime = Some(runtime),
            Err(payload) if payload.is::<Died>() => return self.died(),
            Err(payload) => resume_unwind(payload),
        }
        self.unreached.clear();
        self.after();
        for name in self.plant.modules.keys().cloned().collect::<Vec<_>>() {
            self.later(Micros(500), Happening::Up(self.life, name));
        }
    }

    fn died(&mut self) {
        self.note("the daemon dies");
        self.collect();
        self.runtime = None;
        self.life += 1;
        self.disk.lose();
        let away = if self.takes_over { 2_000 } else { 200 };
        self.later(Micros::from_millis(away), Happening::Restart);
    }

    pub(super) fn kill(&mut self, takes_over: bool) {
        if self.runtime.is_some() {
            self.takes_over = takes_over;
            self.died();
        }
    }

    pub(super) fn next_takes_over(&mut self) {
        self.takes_over = true;
    }

    pub(super) fn mend_disk_in(&mut self, after: Micros) {
        self.later(after, Happening::Mended);
    }

    pub(super) fn with(&mut self, does: impl FnOnce(&mut Runtime)) {
        let Some(mut runtime) = self.runtime.take() else { return };
        let lives = catch_unwind(AssertUnwindSafe(|| does(&mut runtime)));
        match lives {
            Ok(()) => self.runtime = Some(runtime),
            Err(payload) if payload.is::<Died>() => {
                drop(runtime);
                return self.died();
            }
            Err(payload) => resume_unwind(payload),
        }
        self.after();
    }

    fn after(&mut self) {
        self.collect();
        let Some(runtime) = &self.runtime else { return };
        // The API must not serve results before they are durable.
        if runtime.stored(|_| ()).is_err() {
            return;
        }
        let history = &runtime.control.ledger().history;
        let known = |txn: Txn| self.ended.contains_key(&txn);
        let news = history.iter().rev().take_while(|past| !known(past.txn));
        let news: Vec<_> = news.map(|past| (past.txn, past.cause.clone(), past.result)).collect();
        for (txn, cause, result) in news.into_iter().rev() {
            self.note(format!("transaction {txn} {cause:?} ended {result:?}"));
            self.ended.insert(txn, (cause, result));
        }
    }

    fn collect(&mut self) {
        let mut lines = Vec::new();
        for asked in self.asked.iter_mut().rev().take(8) {
            let Some(waits) = &mut asked.waits else { continue };
            match waits.try_recv() {
                Ok(Ok(answer)) => {
                    let answer = answer.into_inner();
                    lines.push(format!("{}: {answer:?}", asked.what));
                    (asked.answer, asked.waits) = (Some(answer), None);
                }
                Ok(Err(why)) => {
                    lines.push(format!("{}: {why}", asked.what));
                    asked.waits = None;
                }
                Err(oneshot::error::TryRecvError::Closed) => {
                    lines.push(format!("{}: no answer", asked.what));
                    asked.waits = None;
                }
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
        }
        lines.into_iter().for_each(|line| self.note(line));
        let mut sent = Vec::new();
        for (name, receiver) in &mut self.to_devices {
            while let Ok(command) = receiver.try_recv() {
                sent.push((name.clone(), command));
            }
        }
        for (name, command) in sent {
            match command {
                ToDevice::Run(ticket, op) => self.sends(name, ticket, op),
                ToDevice::Abandon(_) => {
                    let event = Event::Unreachable(name.clone(), "no answer in time".into());
                    self.unreached.insert(name.clone());
                    self.later(RECONNECT, Happening::Up(self.life, name));
                    self.with(|runtime| runtime.take_event(FromDevice::Event(Box::new(event))));
                }
                ToDevice::Preview(..) | ToDevice::Look(_) => {}
            }
        }
    }

    fn sends(&mut self, device: DeviceName, ticket: Ticket, op: Op) {
        let life = self.life;
        if matches!(op, Op::Switch { .. }) {
            self.note(format!("to {device}: {op:?}"));
        }
        if self.unreached.contains(&device) {
            let outcome = Outcome::Unknown("not connected".into());
            return self.later(Micros(20), Happening::Reply(life, device, ticket, outcome));
        }
        self.later(EXECUTES_AFTER, Happening::Execute(life, device, ticket, op));
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Execute(life, device, ticket, op) => {
                // Half of the commands of a killed daemon still arrive.
                if life != self.life && self.sequence.is_multiple_of(2) {
                    return;
                }
                if let Some(outcome) = self.plant.execute(&device, &op) {
                    self.later(REPLIES_AFTER, Happening::Reply(life, device, ticket, outcome));
                }
            }
            Happening::Reply(life, device, ticket, outcome) if life == self.life => {
                self.event(Event::Reply { device, ticket, outcome });
            }
            Happening::Up(life, device) if life == self.life => self.up(device),
            Happening::Reply(..) | Happening::Up(..) => {}
            Happening::Restart => self.start(),
            Happening::Mended => self.disk.mend(),
        }
    }

    fn up(&mut self, device: DeviceName) {
        if !self.plant.answers(&device) {
            self.later(TRIES_EVERY, Happening::Up(self.life, device.clone()));
            if self.unreached.insert(device.clone()) || !self.is_known_down(&device) {
                self.event(Event::Unreachable(device, "no answer to a hello".into()));
            }
            return;
        }
        self.unreached.remove(&device);
        let identity = format!("maker,module,{}", self.plant.modules[&device].serial);
        let name = device.clone();
        self.with(|runtime| runtime.take_event(FromDevice::Identity(name, identity)));
        self.event(Event::Reachable(device));
    }

    fn is_known_down(&self, device: &DeviceName) -> bool {
        let runtime = self.runtime.as_ref();
        runtime.is_some_and(|runtime| {
            runtime.control.sightings().devices()[device].trouble().is_some()
        })
    }

    fn event(&mut self, event: Event) {
        self.with(|runtime| runtime.take_event(FromDevice::Event(Box::new(event))));
    }

    pub(super) fn ask(
        &mut self,
        what: &str,
        call: impl FnOnce(&Runtime, &str) -> Result<CallTo, String>,
    ) {
        let id = format!("request-{}", self.asked.len());
        let Some(runtime) = &self.runtime else {
            return self.note(format!("{what}: no daemon answers"));
        };
        match call(runtime, &id) {
            Err(why) => self.note(format!("{what}: not asked: {why}")),
            Ok(call) => {
                let (sender, receiver) = oneshot::channel();
                let what = what.to_owned();
                self.asked.push(Asked { id, what, waits: Some(receiver), answer: None });
                self.with(|runtime| runtime.take_call(call(sender)));
            }
        }
    }

    // ---- time ----------------------------------------------------------------------------------

    pub(super) fn run_for(&mut self, time: Micros) {
        let end = self.time + time;
        for _ in 0..STEPS_MAX {
            let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = queued.into_iter().chain(self.deadline()).min() else { break };
            if next > end {
                break;
            }
            self.time = self.time.max(next);
            self.set_clock();
            if queued == Some(next)
                && let Some((_, what)) = self.queue.pop_first()
            {
                self.happen(what);
            }
            self.with(|runtime| {
                runtime.tick();
            });
        }
        self.time = self.time.max(end);
        self.set_clock();
    }

    fn deadline(&self) -> Option<Micros> {
        let runtime = self.runtime.as_ref()?;
        let mends = runtime.control.journal_failure().map(|_| self.time + TRIES_EVERY);
        let now = self.clock.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let deadline = runtime.control.deadline(&now);
        let deadline = deadline.map(|at| (at - self.ahead).max(self.time));
        deadline.into_iter().chain(mends).min()
    }

    pub(super) fn sleep(&mut self, time: Micros) {
        self.time = self.time + time;
        self.set_clock();
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.queue.values().any(|what| matches!(what, Happening::Restart | Happening::Mended))
    }

    pub(super) fn is_busy(&self) -> bool {
        self.runtime.as_ref().is_none_or(|runtime| runtime.control.transactions().is_busy())
    }

    pub(super) fn status(&self) -> Option<Status> {
        self.runtime.as_ref().map(view::status)
    }

    pub(super) fn ledger(&self) -> Option<&Ledger> {
        Some(self.runtime.as_ref()?.control.ledger())
    }
}

pub(super) type CallTo = Box<dyn FnOnce(AnswerSender) -> Call>;
