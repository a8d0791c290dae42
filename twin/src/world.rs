// SPDX-License-Identifier: Apache-2.0
//! The event queue: arriving bytes, timers of device tasks, turns of the daemon, and settling light.

mod begin;
mod faults;
mod light;
mod phases;

use std::collections::{BTreeMap, BTreeSet};

use lightloom_control::controller::{Answer, Event};
use lightloom_control::state::{DeviceName, Op, Outcome};
use lightloom_devices::{DeviceFault, Line, Output, Rack, RackSlot};
use lightloom_drivers::tender::Does;
use lightloom_emulator::outcome::{DaemonResult, PhaseCounts};
use lightloom_emulator::scenario::FaultEvent;
use lightloom_emulator::shipped::{ControlSide, DaemonSetup as Settings, Happened, PhaseWish};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::Plan;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};
use rand::RngExt;

use crate::cost::COST;
use crate::daemon::{TaskCommand, Turn, TwinDaemon, mono};
use crate::line::TwinDevice;
use crate::setup::{self, Installed};
use phases::AskedPhase;

/// A reading below this value, in thousandths of a dBm, means that the port receives no light.
const DARK_MDBM: i32 = -20_000;

enum WorldEvent {
    ToDevice(Line, Vec<u8>),
    FromDevice(Line, Option<Vec<u8>>),
    Tend(usize),
    Turn,
    Rests(usize),
    Asks(u64),
    /// A command, with the number of daemon starts that precede it.
    Command(u64, TaskCommand),
}

pub struct World {
    settings: Settings,
    fabric: Fabric,
    now: SimTime,
    zero: SimTime,
    queue: BTreeMap<(SimTime, u64), WorldEvent>,
    sequence: u64,
    daemon: TwinDaemon,
    rack: Rack,
    devices: Vec<TwinDevice>,
    by_name: BTreeMap<DeviceName, usize>,
    by_slot: BTreeMap<RackSlot, usize>,
    lines: Vec<usize>,
    inbox: Vec<Event>,
    turn_at: Option<SimTime>,
    happened: Vec<(SimTime, Happened)>,
    answer: Option<Answer>,
    asked: Option<AskedPhase>,
    phases: PhaseCounts,
    active: Vec<(RackSlot, DeviceFault)>,
    broken: BTreeSet<Part>,
    is_watched: bool,
    life: u64,
}

impl World {
    pub fn new(
        fabric: &Fabric,
        plan: &Plan,
        settings: &Settings,
        seed: Seed,
    ) -> Result<Self, String> {
        let (rack, slots) = setup::rack(fabric, settings, seed);
        let (inventory, setup) = setup::inventory(fabric, settings);
        let draws = seed.stream("daemon scheduling", 0);
        let nodes = fabric.hbd.nodes();
        let daemon = TwinDaemon::new(inventory, setup, settings.flush.0, draws, nodes);
        let now = SimTime::START + Picoseconds::from_millis(1);
        let mut world = Self {
            settings: *settings,
            fabric: fabric.clone(),
            now,
            zero: now,
            queue: BTreeMap::new(),
            sequence: 0,
            daemon,
            rack,
            devices: Vec::new(),
            by_name: BTreeMap::new(),
            by_slot: BTreeMap::new(),
            lines: Vec::new(),
            inbox: Vec::new(),
            turn_at: None,
            happened: Vec::new(),
            answer: None,
            asked: None,
            phases: PhaseCounts::default(),
            active: Vec::new(),
            broken: BTreeSet::new(),
            is_watched: false,
            life: 0,
        };
        for (index, (installed, slot)) in slots.into_iter().enumerate() {
            let tender = installed.tender(index, now, 0, settings.switches);
            world.by_name.insert(tender.name().clone(), index);
            world.by_slot.insert(slot, index);
            world.devices.push(TwinDevice::new(installed, slot, tender));
        }
        world.start()?;
        begin::set_up(&mut world, plan)?;
        let mut draws = seed.stream("poll phase", 0);
        let phase = Picoseconds(draws.random_range(0..settings.poll_every.0.get().max(1)));
        world.run_to(world.now + settings.poll_every.0 + phase);
        world.zero = world.now;
        world.happened.clear();
        world.shows_light();
        (world.daemon.bypasses, world.daemon.committed, world.daemon.not_committed) = (0, 0, 0);
        Ok(world)
    }

    fn start(&mut self) -> Result<(), String> {
        self.life += 1;
        let turn = self.daemon.start(self.now)?;
        self.take(turn);
        for index in 0..self.devices.len() {
            let installed = self.devices[index].installed;
            self.devices[index].tender =
                installed.tender(index, self.now, self.life, self.settings.switches);
            self.plan_tend(index);
        }
        phases::ask_again(self);
        Ok(())
    }

    fn kill(&mut self) {
        self.life += 1;
        self.daemon.kill();
        self.inbox.clear();
        self.turn_at = None;
        for index in 0..self.devices.len() {
            self.hang_up(index);
        }
    }

    fn at(&mut self, time: SimTime, what: WorldEvent) {
        self.sequence += 1;
        self.queue.insert((time.max(self.now), self.sequence), what);
    }

    fn next(&self) -> Option<SimTime> {
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
        queued.into_iter().chain(self.rack.next_wakeup()).min()
    }

    fn run_to(&mut self, end: SimTime) {
        while let Some(next) = self.next().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
            if queued.is_some_and(|at| at <= self.now) {
                if let Some((_, what)) = self.queue.pop_first() {
                    self.happen(what);
                }
            } else {
                self.rack_time();
            }
        }
        self.now = self.now.max(end);
    }

    fn happen(&mut self, what: WorldEvent) {
        match what {
            WorldEvent::ToDevice(line, bytes) => {
                let Some(index) = self.end_of(line) else { return };
                let (now, slot) = (self.now, self.devices[index].slot);
                let mut out = Vec::new();
                self.rack.on_bytes(now, slot, line, &bytes, &mut out);
                self.spread(out);
                self.see(index);
            }
            WorldEvent::FromDevice(line, bytes) => self.hear(line, bytes),
            WorldEvent::Tend(index) => {
                let mut does = Vec::new();
                self.devices[index].tender.on_time(mono(self.now), &mut does);
                self.act(index, does);
                self.plan_tend(index);
            }
            WorldEvent::Turn => {
                if self.turn_at.is_some_and(|at| at <= self.now) {
                    self.turn();
                }
            }
            WorldEvent::Rests(index) => {
                self.devices[index].wakes_at = None;
                self.see(index);
            }
            WorldEvent::Asks(life) if life == self.life => phases::asks(self),
            WorldEvent::Asks(_) => {}
            WorldEvent::Command(life, command) if life == self.life => self.command(command),
            WorldEvent::Command(..) => {}
        }
    }

    fn end_of(&self, line: Line) -> Option<usize> {
        let index = *self.lines.get(line.0 as usize)?;
        (self.devices[index].line == line).then_some(index)
    }

    fn rack_time(&mut self) {
        let due: Vec<RackSlot> = self.rack.due(self.now).collect();
        let mut out = Vec::new();
        self.rack.on_time(self.now, &mut out);
        self.spread(out);
        for slot in due {
            let index = self.by_slot[&slot];
            self.see(index);
        }
    }

    fn spread(&mut self, out: Vec<Output>) {
        for output in out {
            let (line, bytes) = match output {
                Output::Bytes(line, bytes) => (line, Some(bytes)),
                Output::Close(line) => (line, None),
            };
            let Some(index) = self.end_of(line) else { continue };
            let rate = self.rate(index);
            let length = bytes.as_ref().map_or(0, Vec::len);
            let at = self.devices[index].answers(self.now, length, rate);
            self.at(at + COST.handoff, WorldEvent::FromDevice(line, bytes));
        }
    }

    /// The daemon reads arriving bytes once its processor is free.
    fn hear(&mut self, line: Line, bytes: Option<Vec<u8>>) {
        let Some(index) = self.end_of(line).filter(|_| self.daemon.control.is_some()) else {
            return;
        };
        if self.daemon.busy_until > self.now {
            return self.at(self.daemon.busy_until, WorldEvent::FromDevice(line, bytes));
        }
        let mut does = Vec::new();
        let tender = &mut self.devices[index].tender;
        match bytes {
            Some(bytes) => tender.received(mono(self.now), &bytes, &mut does),
            None => tender.broke(mono(self.now), "the device closed it".into(), &mut does),
        }
        self.act(index, does);
        self.plan_tend(index);
    }

    fn act(&mut self, index: usize, does: Vec<Does>) {
        let rate = self.rate(index);
        for one in does {
            match one {
                Does::Open => {
                    self.lines.push(index);
                    let line = Line((self.lines.len() - 1) as u32);
                    self.devices[index].line = line;
                    let slot = self.devices[index].slot;
                    let mut out = Vec::new();
                    let port = self.devices[index].installed.port(self.settings.switches);
                    self.rack.open(self.now, slot, line, port, &mut out);
                    self.spread(out);
                }
                Does::Close => self.hang_up(index),
                Does::Send(bytes) => {
                    let line = self.devices[index].line;
                    let begins = self.now + COST.handoff;
                    let at = self.devices[index].sends(begins, bytes.len(), rate);
                    self.at(at, WorldEvent::ToDevice(line, bytes));
                }
                Does::Identity(_) | Does::Account(_) => {}
                Does::Event(event) => {
                    if self.is_watched && is_sign(&event) {
                        self.happened.push((self.now, Happened::Noticed));
                    }
                    self.inbox.push(*event);
                }
            }
        }
        if !self.inbox.is_empty() {
            self.plan_turn(Some(self.now.max(self.daemon.busy_until)));
        }
    }

    fn rate(&self, index: usize) -> u32 {
        let is_serial = matches!(self.devices[index].installed, Installed::Module(_));
        if is_serial && self.settings.line_time { self.settings.bits_per_second } else { 0 }
    }

    fn hang_up(&mut self, index: usize) {
        let (slot, line) = (self.devices[index].slot, self.devices[index].line);
        self.rack.close(self.now, slot, line);
    }

    fn plan_tend(&mut self, index: usize) {
        if let Some(at) = self.devices[index].tender.deadline() {
            self.at(SimTime(at.0 * 1_000_000), WorldEvent::Tend(index));
        }
    }

    fn plan_turn(&mut self, at: Option<SimTime>) {
        let Some(at) = at else { return };
        self.turn_at = Some(at);
        self.at(at, WorldEvent::Turn);
    }

    fn turn(&mut self) {
        self.turn_at = None;
        if self.daemon.busy_until > self.now {
            return self.plan_turn(Some(self.daemon.busy_until));
        }
        let events = std::mem::take(&mut self.inbox);
        let turn = self.daemon.turn(self.now, events);
        self.take(turn);
        phases::look_at_phase(self);
        let goals = std::mem::take(&mut self.daemon.judge.committed);
        for goal in goals {
            let truths = goal
                .keys()
                .filter_map(|name| Some((name.clone(), self.truth(*self.by_name.get(name)?)?)))
                .collect();
            self.daemon.judge.holds(&goal, &truths);
        }
        for goal in std::mem::take(&mut self.daemon.judge.undone) {
            let wrong = self.at_rest(|name| goal.contains_key(name) && !self.was_off(name));
            wrong.into_iter().for_each(|what| self.daemon.judge.note(what));
        }
        let deadline = self.daemon.deadline(self.now);
        self.plan_turn(deadline);
    }

    /// Returns whether a device lost power in this run. Such a transceiver switched when its power returned.
    fn was_off(&self, name: &DeviceName) -> bool {
        let Some(index) = self.by_name.get(name) else { return false };
        self.broken.iter().any(|part| match self.devices[*index].installed {
            Installed::Module(bundle) => {
                !matches!(part, Part::Fibre(_)) && part.node() == Some(bundle.node)
            }
            Installed::Switch(ocs, _) => *part == Part::Ocs(ocs),
        })
    }

    fn take(&mut self, turn: Turn) {
        for (at, command) in turn.commands {
            self.at(at, WorldEvent::Command(self.life, command));
        }
        for (_, happened) in &turn.happened {
            if let Happened::Bypassing(parts) = happened {
                self.is_watched = false;
                self.judge_bypass(parts);
            }
        }
        self.happened.extend(turn.happened);
        self.answer = turn.answer.or(self.answer.take());
        if self.turn_at.is_none() {
            let deadline = self.daemon.deadline(self.now);
            self.plan_turn(deadline);
        }
    }

    /// Checks I9: each bypassed part has failed in this run or before it, or is at the far end of a failed part.
    fn judge_bypass(&mut self, parts: &[Part]) {
        for part in parts {
            if !self.broken.iter().any(|broken| self.is_beside(*broken, *part)) {
                let what = format!("I9: at {} {part} is bypassed without a fault", self.now);
                self.daemon.judge.note(what);
            }
        }
    }

    fn is_beside(&self, broken: Part, found: Part) -> bool {
        let [broken, found] = [broken, found].map(|part| {
            let far = match part {
                Part::Fibre(port) => self.fabric.hbd.peer(port).map(|far| far.bundle.node),
                _ => None,
            };
            part.node().into_iter().chain(far).collect::<Vec<_>>()
        });
        broken.iter().any(|node| found.contains(node))
    }

    fn fabric_modules(&self) -> usize {
        let devices = self.devices.iter();
        devices.filter(|device| matches!(device.installed, Installed::Module(_))).count()
    }

    fn command(&mut self, command: TaskCommand) {
        let mut does = Vec::new();
        let now = mono(self.now);
        let (name, moves) = match &command {
            TaskCommand::Run(name, _, op) => (name, matches!(op, Op::Switch { .. })),
            TaskCommand::Abandon(name, _) => (name, false),
        };
        let Some(&index) = self.by_name.get(name) else { return };
        let tender = &mut self.devices[index].tender;
        match &command {
            TaskCommand::Run(_, ticket, op) => tender.run(now, *ticket, op, &mut does),
            TaskCommand::Abandon(_, ticket) => tender.abandon(now, *ticket, &mut does),
        }
        self.act(index, does);
        if moves {
            let rate = self.rate(index);
            let at = self.devices[index].sends(self.now, 0, rate);
            self.happened.push((at, Happened::Sent));
        }
        self.plan_tend(index);
    }

    fn drain(&mut self, out: &mut Vec<(SimTime, Happened)>) {
        let zero = self.zero.0;
        let happened = self.happened.drain(..);
        out.extend(happened.map(|(at, what)| (SimTime(at.0.saturating_sub(zero)), what)));
    }
}

impl ControlSide for World {
    fn next_due(&self) -> Option<SimTime> {
        self.next().map(|at| SimTime(at.0.saturating_sub(self.zero.0)))
    }

    fn advance(&mut self, now: SimTime, out: &mut Vec<(SimTime, Happened)>) {
        self.run_to(SimTime(self.zero.0 + now.0));
        self.drain(out);
    }

    fn fault(
        &mut self,
        _now: SimTime,
        event: &FaultEvent,
        begins: bool,
        out: &mut Vec<(SimTime, Happened)>,
    ) {
        for part in &event.parts {
            if part.is_control {
                self.fault_of_control(&event.effect, begins);
            }
            let ocs = part.name.parse().ok().map(Part::Ocs);
            if ocs.is_none() {
                self.shine(&part.ports, &event.effect, begins);
            }
            for planned in part.planned.iter().copied().chain(ocs) {
                let faults = self.faults_of(planned, &event.effect, part.towards);
                if begins && !faults.is_empty() {
                    self.broken.insert(planned);
                    self.is_watched = true;
                    self.begin_faults(faults);
                } else {
                    self.end_faults(faults);
                }
            }
        }
        self.drain(out);
    }

    fn ask(&mut self, _now: SimTime, wish: PhaseWish, out: &mut Vec<(SimTime, Happened)>) {
        phases::wishes(self, wish);
        self.drain(out);
    }

    fn is_busy(&self) -> bool {
        self.daemon.is_busy() || self.asked.is_some()
    }

    fn result(&self) -> DaemonResult {
        let mut violations = self.daemon.judge.violations().to_vec();
        violations.extend(self.at_rest(|_| true));
        violations.extend(self.daemon.judge.overdue(self.now));
        DaemonResult {
            devices: self.fabric_modules(),
            switches: self.devices.len() - self.fabric_modules(),
            switch_language: self.settings.switches,
            reroute: self.settings.reroute_delay.0,
            poll_every: self.settings.poll_every.0,
            events: self.settings.events,
            bypasses: self.daemon.bypasses,
            false_bypasses: 0,
            committed: self.daemon.committed,
            not_committed: self.daemon.not_committed,
            phases: self.phases,
            restarts: self.daemon.starts - 1,
            plan_sha256: self.daemon.plan_sha256(),
            journal_records: self.daemon.records(),
            line_bytes: self.devices.iter().map(|module| module.bytes).sum(),
            violations,
            assumed: COST,
        }
    }
}

fn is_sign(event: &Event) -> bool {
    match event {
        Event::Signalled(..) | Event::Unreachable(..) => true,
        Event::Reply { outcome: Outcome::Done(Some(seen)), .. } => {
            seen.power_mdbm.values().any(|power| *power < DARK_MDBM)
        }
        _ => false,
    }
}
