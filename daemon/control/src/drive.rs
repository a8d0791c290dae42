// SPDX-License-Identifier: Apache-2.0
//! Brings devices to a target: arms all, then drains, switches, qualifies and undrains each wave.
//!
//! If one device refuses to arm, the others are disarmed and nothing moves.
//!
//! A drive has a single target; for a rollback, the [controller](crate::controller) starts another
//! drive. Devices succeed and fail separately, so the result is a list.

mod device_end;
mod probe;

use std::collections::{BTreeMap, BTreeSet};

use crate::change::{Domains, Step, Wave, at_once, waves_in_stages};
use crate::mover::{Limits, Mover, Next, StepEnd};
use crate::state::{
    DeviceName, FibreEnd, Micros, Move, Observation, Op, Outcome, Position, Positions, Slot,
    SwitchState, Txn, at,
};

pub use device_end::{DeviceEnd, Verdict};

pub trait Site: Domains {
    fn limits(&self, device: &DeviceName) -> Limits;
    /// Returns the drain control of a slot: a slot of a Linux switch, 0 for drained, 1 for in use.
    fn lever(&self, device: &DeviceName, slot: Slot) -> Option<(DeviceName, Slot)>;
    fn far_end(&self, device: &DeviceName, slot: Slot, position: Position) -> Option<&FibreEnd>;
}

pub const IN_USE: Position = Position(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    AllOrNothing(SwitchState),
    /// Continue with the devices that respond. Used for compensation, undo and recovery. Each
    /// listed device gets only one request, because it has been unreachable for long.
    Reachable(BTreeSet<DeviceName>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Fire(Wave),
    Send(DeviceName, Op),
    End(BTreeMap<DeviceName, DeviceEnd>),
}

#[derive(Clone, Debug)]
pub struct Orders {
    pub txn: Txn,
    pub target: SwitchState,
    pub start: Start,
    pub stages: Vec<SwitchState>,
    pub stops_between_stages: bool,
    pub neighbours: BTreeMap<DeviceName, BTreeMap<Slot, String>>,
    pub held: BTreeSet<(DeviceName, Slot)>,
    pub standing: SwitchState,
    /// A rollback does not fail if light is missing.
    pub goes_back: bool,
    pub late: BTreeMap<DeviceName, Micros>,
    pub known: BTreeMap<DeviceName, Observation>,
    pub probes: Option<BTreeSet<DeviceName>>,
}

#[derive(Clone, Debug)]
pub struct Drive {
    orders: Orders,
    stage: Stage,
    arming: BTreeMap<DeviceName, Arming>,
    seen: BTreeMap<DeviceName, Observation>,
    waves: Vec<Wave>,
    movers: BTreeMap<DeviceName, Mover>,
    wake: BTreeMap<DeviceName, Micros>,
    trouble: BTreeMap<DeviceName, DeviceEnd>,
    let_back: bool,
    looking: BTreeSet<DeviceName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Arm,
    Drain(usize),
    Move(usize),
    Undrain(usize),
    Look,
    Ended,
}

#[derive(Clone, Debug)]
struct Arming {
    backoff: Micros,
    until: Micros,
}

impl Drive {
    pub fn new(orders: Orders) -> Self {
        Self {
            stage: Stage::Arm,
            arming: BTreeMap::new(),
            seen: orders.known.clone(),
            waves: Vec::new(),
            movers: BTreeMap::new(),
            wake: BTreeMap::new(),
            trouble: BTreeMap::new(),
            let_back: false,
            looking: BTreeSet::new(),
            orders,
        }
    }

    pub fn begin(&mut self, now: Micros, site: &impl Site) -> Vec<Command> {
        let unknown =
            self.orders.target.keys().filter(|device| !self.orders.known.contains_key(*device));
        let devices: Vec<DeviceName> = unknown.cloned().collect();
        for device in &devices {
            let limits = site.limits(device);
            // If a reply is overdue, repeat the request, because the line may have been disturbed.
            let from = self.orders.late.get(device).copied().unwrap_or_default().max(now);
            let until = match &self.orders.start {
                Start::Reachable(unreachable) if unreachable.contains(device) => from,
                _ => from + limits.patience(),
            };
            self.arming.insert(device.clone(), Arming { backoff: limits.backoff, until });
            if from > now {
                self.wake.insert(device.clone(), from);
            }
        }
        if devices.is_empty() {
            return self.advance(site);
        }
        let at_once = devices.into_iter().filter(|device| !self.wake.contains_key(device));
        at_once.map(|device| self.arm(device)).collect()
    }

    pub fn waits_for(&self) -> BTreeMap<DeviceName, Micros> {
        let arming = self.arming.iter().map(|(device, arming)| (device.clone(), arming.until));
        let movers = self.movers.iter();
        let moving = movers.filter_map(|(device, m)| Some((device.clone(), m.given_up_at()?)));
        arming.chain(moving).collect()
    }

    pub fn deadline(&self) -> Option<Micros> {
        self.wake.values().min().copied()
    }

    pub fn tick(&mut self, now: Micros, site: &impl Site) -> Vec<Command> {
        let due: Vec<DeviceName> =
            self.wake.iter().filter(|(_, at)| **at <= now).map(|(d, _)| d.clone()).collect();
        let mut commands = Vec::new();
        for device in due {
            self.wake.remove(&device);
            if self.stage == Stage::Arm {
                commands.push(self.arm(device));
            } else if let Some(mover) = self.movers.get_mut(&device) {
                let next = mover.wake();
                self.take(device, next, &mut commands);
            }
        }
        self.go_on(site, commands)
    }

    pub fn reached(&mut self, now: Micros, device: &DeviceName) {
        let late = self.orders.late.get(device).copied().unwrap_or_default();
        if let Some(at) = self.wake.get_mut(device) {
            *at = (*at).min(now.max(late));
        }
    }

    pub fn reply(
        &mut self,
        now: Micros,
        site: &impl Site,
        device: &DeviceName,
        outcome: Outcome,
    ) -> Vec<Command> {
        let mut commands = Vec::new();
        if self.stage == Stage::Arm {
            self.armed(now, device, outcome);
        } else if self.stage == Stage::Look {
            self.looked(device, outcome);
        } else if let Some(mover) = self.movers.get_mut(device) {
            let next = mover.reply(now, outcome);
            self.take(device.clone(), next, &mut commands);
        }
        self.go_on(site, commands)
    }

    fn go_on(&mut self, site: &impl Site, mut commands: Vec<Command>) -> Vec<Command> {
        let rests = self.arming.is_empty() && self.movers.is_empty() && self.looking.is_empty();
        if self.stage != Stage::Ended && rests {
            commands.extend(self.advance(site));
        }
        commands
    }

    fn arm(&self, device: DeviceName) -> Command {
        let want = self.orders.target[&device].clone();
        Command::Send(device, Op::Arm { txn: self.orders.txn, want })
    }

    fn armed(&mut self, now: Micros, device: &DeviceName, outcome: Outcome) {
        let Some(arming) = self.arming.get_mut(device) else { return };
        let trouble = match outcome {
            Outcome::Done(Some(seen)) => {
                let wrong = self.not_as_expected(device, &seen.positions);
                self.seen.insert(device.clone(), seen);
                wrong.map(|detail| DeviceEnd::new(Verdict::Refused, detail))
            }
            Outcome::Refused(detail) => Some(DeviceEnd::new(Verdict::Refused, detail)),
            Outcome::Failed(detail) => Some(DeviceEnd::new(Verdict::Failed, detail)),
            // Arming is the only operation that is retried without a read.
            Outcome::Unknown(_) | Outcome::Done(None) if now + arming.backoff <= arming.until => {
                self.wake.insert(device.clone(), now + arming.backoff);
                arming.backoff = Micros((arming.backoff.0 * 2).min(2_000_000));
                return;
            }
            Outcome::Unknown(detail) => {
                let so = match self.orders.start {
                    Start::AllOrNothing(_) => ", so nothing was moved",
                    Start::Reachable(_) => "",
                };
                let detail = format!("it does not answer{so}: {detail}");
                Some(DeviceEnd::new(Verdict::Unknown, detail))
            }
            Outcome::Done(None) => {
                let detail = "it armed the change without reporting its position".into();
                Some(DeviceEnd::new(Verdict::Unknown, detail))
            }
        };
        self.arming.remove(device);
        if let Some(trouble) = trouble {
            self.trouble.insert(device.clone(), trouble);
        }
    }

    fn not_as_expected(&self, device: &DeviceName, seen: &Positions) -> Option<String> {
        let Start::AllOrNothing(expected) = &self.orders.start else { return None };
        expected.get(device)?.iter().find_map(|(&slot, &position)| {
            let found = at(seen, slot);
            (found != position).then(|| {
                let [found, stood] = [found, position].map(|at| device.place(at));
                let slot = device.slot(slot);
                format!("{slot} is at {found}, but was at {stood} when this was planned")
            })
        })
    }

    fn take(&mut self, device: DeviceName, next: Next, commands: &mut Vec<Command>) {
        match next {
            Next::Send(op) => commands.push(Command::Send(device, op)),
            Next::Sleep(until) => {
                self.wake.insert(device, until);
            }
            Next::Finished(end) => {
                self.movers.remove(&device);
                let unlit = matches!(*end, StepEnd::Unlit(..));
                let (verdict, detail, seen) = match *end {
                    StepEnd::Applied(seen) => (Verdict::Applied, String::new(), Some(seen)),
                    StepEnd::Refused(why, seen) => (Verdict::Refused, why, seen),
                    StepEnd::Failed(why, seen) => (Verdict::Failed, why, seen),
                    StepEnd::Unlit(_, seen)
                        if self.orders.goes_back || self.orders.probes.is_some() =>
                    {
                        (Verdict::Applied, String::new(), Some(seen))
                    }
                    StepEnd::Unlit(why, seen) => (Verdict::Failed, why, Some(seen)),
                    StepEnd::Unknown(why) => (Verdict::Unknown, why, None),
                };
                if let Some(seen) = seen {
                    self.seen.insert(device.clone(), seen);
                }
                if verdict != Verdict::Applied {
                    self.trouble.insert(device, DeviceEnd { verdict, detail, unlit });
                }
            }
        }
    }

    fn advance(&mut self, site: &impl Site) -> Vec<Command> {
        let mut commands = Vec::new();
        while self.movers.is_empty() && self.looking.is_empty() && self.stage != Stage::Ended {
            self.stage = match self.stage {
                Stage::Arm => self.after_arm(site, &mut commands),
                Stage::Drain(wave) => self.after_drain(wave, site, &mut commands),
                Stage::Move(wave) => self.start_undrain(wave, site, &mut commands),
                Stage::Undrain(wave) => self.start_wave(wave + 1, site, &mut commands),
                Stage::Look => self.end(&mut commands),
                Stage::Ended => Stage::Ended,
            };
        }
        commands
    }

    fn after_arm(&mut self, site: &impl Site, commands: &mut Vec<Command>) -> Stage {
        if matches!(self.orders.start, Start::AllOrNothing(_)) && !self.trouble.is_empty() {
            let orders = &self.orders;
            let armed = self.seen.keys().filter(|device| {
                orders.target.contains_key(*device) && !orders.known.contains_key(*device)
            });
            for device in armed {
                commands.push(Command::Send(device.clone(), Op::Disarm { txn: self.orders.txn }));
            }
            return self.end(commands);
        }
        let mut changes = BTreeMap::<DeviceName, Vec<Move>>::new();
        for (device, seen) in &self.seen {
            let target = self.orders.target[device].iter();
            let moves =
                target.map(|(&slot, &to)| Move { slot, from: at(&seen.positions, slot), to });
            changes.insert(device.clone(), moves.filter(|m| m.from != m.to).collect());
        }
        self.waves = match self.orders.probes.is_some() {
            true => vec![at_once(&changes, site)],
            false => waves_in_stages(&changes, &self.orders.stages, site),
        };
        self.start_wave(0, site, commands)
    }

    /// A later stage relies on the circuits of the earlier ones, even if a restarted daemon
    /// continues the change.
    fn stops(&self) -> bool {
        let needs_all = matches!(self.orders.start, Start::AllOrNothing(_));
        !self.trouble.is_empty() && (needs_all || self.orders.stops_between_stages)
    }

    fn start_wave(&mut self, wave: usize, site: &impl Site, commands: &mut Vec<Command>) -> Stage {
        if wave > 0 && self.orders.stops_between_stages && !self.let_back {
            let (last, of) = (&self.waves[wave - 1], self.waves.len());
            for (device, end) in &mut self.trouble {
                let dark = last.get(device).map_or(0, |step| step.end().len());
                end.detail +=
                    &format!("; stopped in wave {wave} of {of} with up to {dark} slots dark");
            }
        }
        if wave >= self.waves.len() || self.stops() {
            return self.let_back(site, commands);
        }
        let levers = self.levers(wave, site, |step| {
            let moves = step.remove.iter().chain(&step.add);
            moves.filter(|m| !m.from.is_dark()).map(|m| m.slot).collect()
        });
        self.pull(levers, Position::DARK, site, commands);
        Stage::Drain(wave)
    }

    fn after_drain(&mut self, wave: usize, site: &impl Site, commands: &mut Vec<Command>) -> Stage {
        if self.stops() {
            return Stage::Move(wave);
        }
        let mut steps = self.waves[wave].clone();
        steps.retain(|device, _| !self.trouble.contains_key(device));
        if steps.is_empty() {
            return Stage::Move(wave);
        }
        commands.push(Command::Fire(steps.clone()));
        for (device, step) in steps {
            let baseline = self.seen.get(&device).cloned();
            let dark = self.expected_dark(&device, &step, wave, site);
            let mover = self.mover(&device, step, dark, baseline, site);
            self.start(device, mover, commands);
        }
        Stage::Move(wave)
    }

    fn expected_dark(
        &self,
        device: &DeviceName,
        step: &Step,
        wave: usize,
        site: &impl Site,
    ) -> BTreeSet<Slot> {
        let ends = step.end().into_iter();
        let dark = ends.filter(|&(slot, to)| {
            site.far_end(device, slot, to).is_some_and(|(far, far_slot, position)| {
                self.stands(far, *far_slot, wave) != Some(*position)
            })
        });
        dark.map(|(slot, _)| slot).collect()
    }

    fn stands(&self, device: &DeviceName, slot: Slot, wave: usize) -> Option<Position> {
        let seen = self.seen.get(device);
        if seen.is_some_and(|seen| seen.is_shut(slot)) {
            return Some(Position::DARK);
        }
        let mut waves = self.waves[..=wave].iter().rev();
        let moved =
            waves.find_map(|wave| wave.get(device).and_then(|s| s.end().get(&slot).copied()));
        let stood = seen.map(|seen| &seen.positions);
        moved.or_else(|| Some(at(stood.or_else(|| self.orders.standing.get(device))?, slot)))
    }

    fn start_undrain(
        &mut self,
        wave: usize,
        site: &impl Site,
        commands: &mut Vec<Command>,
    ) -> Stage {
        let mut levers = self.levers(wave, site, |step| {
            let lit = step.end().into_iter().filter(|(_, to)| !to.is_dark());
            lit.map(|(slot, _)| slot).collect()
        });
        levers.retain(|lever| !self.orders.held.contains(lever));
        self.pull(levers, IN_USE, site, commands);
        Stage::Undrain(wave)
    }

    /// Restores traffic at the end of a drive that completes or undoes another one. The other drive
    /// may have drained slots that are already at their target and therefore not part of a wave.
    fn let_back(&mut self, site: &impl Site, commands: &mut Vec<Command>) -> Stage {
        let done = std::mem::replace(&mut self.let_back, true);
        if !done && self.orders.probes.is_some() {
            return self.look(commands);
        }
        if done || matches!(self.orders.start, Start::AllOrNothing(_)) {
            return self.end(commands);
        }
        let mut levers = BTreeSet::new();
        for (device, slots) in &self.orders.target {
            let seen = self.seen.get(device).filter(|_| !self.trouble.contains_key(device));
            let Some(seen) = seen else { continue };
            let lit = slots
                .iter()
                .filter(|(slot, to)| !to.is_dark() && at(&seen.positions, **slot) == **to);
            levers.extend(lit.filter_map(|(slot, _)| site.lever(device, *slot)));
        }
        levers.retain(|lever| !self.orders.held.contains(lever));
        self.pull(levers, IN_USE, site, commands);
        Stage::Undrain(self.waves.len())
    }

    fn levers(
        &self,
        wave: usize,
        site: &impl Site,
        slots: impl Fn(&Step) -> Vec<Slot>,
    ) -> BTreeSet<(DeviceName, Slot)> {
        let steps =
            self.waves[wave].iter().filter(|(device, _)| !self.trouble.contains_key(*device));
        steps
            .flat_map(|(device, step)| slots(step).into_iter().map(move |slot| (device, slot)))
            .filter_map(|(device, slot)| site.lever(device, slot))
            .collect()
    }

    fn pull(
        &mut self,
        levers: BTreeSet<(DeviceName, Slot)>,
        to: Position,
        site: &impl Site,
        commands: &mut Vec<Command>,
    ) {
        let from = if to.is_dark() { IN_USE } else { Position::DARK };
        let mut steps = BTreeMap::<DeviceName, Step>::new();
        for (device, slot) in levers {
            steps.entry(device).or_default().add.push(Move { slot, from, to });
        }
        for (device, step) in steps {
            let mover = self.mover(&device, step, BTreeSet::new(), None, site);
            self.start(device, mover, commands);
        }
    }

    fn mover(
        &self,
        device: &DeviceName,
        step: Step,
        dark: BTreeSet<Slot>,
        baseline: Option<Observation>,
        site: &impl Site,
    ) -> Mover {
        let ends = step.end();
        let lit = ends.iter().filter(|(_, to)| !to.is_dark());
        let fibres = lit.filter_map(|(&slot, &to)| Some((slot, site.far_end(device, slot, to)?)));
        let far = fibres.filter(|_| self.orders.probes.is_none());
        let mut neighbours: BTreeMap<Slot, String> =
            far.map(|(slot, (far, _, position))| (slot, format!("{far}.{position}"))).collect();
        neighbours.extend(
            self.orders.neighbours.get(device).into_iter().flatten().map(|(s, n)| (*s, n.clone())),
        );
        let (sharing, limits) = (site.sharing(device), site.limits(device));
        let unnamed = Mover::new(self.orders.txn, step, sharing, limits, baseline, neighbours);
        let mut mover = unnamed.called(device);
        mover.expect_dark(match self.orders.probes.is_some() {
            true => ends.keys().copied().collect(),
            false => dark,
        });
        mover
    }

    fn start(&mut self, device: DeviceName, mut mover: Mover, commands: &mut Vec<Command>) {
        // Read drain controls first, because arming did not read them.
        let next = if mover.is_read() { mover.start() } else { mover.wake() };
        self.movers.insert(device.clone(), mover);
        self.take(device, next, commands);
    }

    fn end(&mut self, commands: &mut Vec<Command>) -> Stage {
        let mut ends: BTreeMap<DeviceName, DeviceEnd> = self.trouble.clone();
        for (device, want) in &self.orders.target {
            let there = self.seen.get(device).is_some_and(|seen| {
                want.iter().all(|(&slot, &to)| at(&seen.positions, slot) == to)
            });
            let verdict = if there { Verdict::Applied } else { Verdict::Untouched };
            ends.entry(device.clone()).or_insert(DeviceEnd::new(verdict, String::new()));
        }
        commands.push(Command::End(ends));
        Stage::Ended
    }
}
