// SPDX-License-Identifier: Apache-2.0
//! The path switch, which arms and fires changes, monitors the position and determines the outcome.
//!
//! ```text
//!        arm                fire                      at the path          power checked
//!  idle ─────▶ armed ─────────────────▶ moving ─────────────────▶ settling ─────────────▶ idle
//!                │ refused: no motion      │ elsewhere: HardwareFault         generation + 1
//!                ▼                         │ not at rest in time: SettleTimeout
//!              armed                       ▼
//!                                         idle
//! ```
//!
//! A transaction switches each group only once, so a repeated fire request does not change the outcome.

use crate::message::{
    Arm, ArmReport, Capabilities, FireReport, Power, RequestRefusal, TransactionId,
};
use crate::module::hardware::{Hardware, Position};
use crate::module::profile::Profile;
use crate::path::{DataPathPolicy, GROUPS_MAX, GroupOutcome, Groups, Outcomes, Path, Paths};
use crate::time::Micros;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Moving,
    Settling,
}

#[derive(Clone, Copy, Debug)]
struct Motion {
    wanted: Path,
    began: Micros,
    phase: Phase,
    next_look: Micros,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Permission {
    pub(crate) ready: bool,
    pub(crate) all_deactivated: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SwitchGroups {
    groups: Groups,
    armed: Option<Arm>,
    pub(crate) arm_outcomes: Outcomes,
    pub(crate) fired: TransactionId,
    fired_groups: Groups,
    policy: DataPathPolicy,
    pub(crate) fire_outcomes: Outcomes,
    pub(crate) generation: u32,
    pub(crate) committed: Paths,
    moved_in_this_fire: bool,
    motions: [Option<Motion>; GROUPS_MAX],
    came_to_rest: [Option<Micros>; GROUPS_MAX],
}

impl SwitchGroups {
    pub(crate) fn power_on(profile: &Profile, hardware: &mut impl Hardware, now: Micros) -> Self {
        let stored = hardware.load_power_on_paths();
        let groups = Groups::first(profile.groups);
        let mut committed = [Path::DARK; GROUPS_MAX];
        for group in groups.iter() {
            committed[group] = stored[group];
            hardware.drive(now, group, stored[group]);
        }
        Self { groups, committed, ..Self::default() }
    }

    pub(crate) fn armed(&self) -> TransactionId {
        self.armed.map_or(TransactionId::NONE, |arm| arm.transaction)
    }

    pub(crate) fn busy(&self) -> Groups {
        (0..GROUPS_MAX)
            .filter(|&group| self.motions[group].is_some())
            .fold(Groups::NONE, Groups::with)
    }

    pub(crate) fn mutes(&self) -> bool {
        self.policy == DataPathPolicy::MuteTransmit && !self.busy().is_empty()
    }

    pub(crate) fn arm(&mut self, profile: &Profile, arm: Arm) -> Result<ArmReport, RequestRefusal> {
        if !self.busy().is_empty() {
            return Err(RequestRefusal::Busy);
        }
        let repeated = self.armed == Some(arm);
        let reused = arm.transaction == self.fired && !repeated;
        self.arm_outcomes = core::array::from_fn(|group| self.check(profile, &arm, group, reused));
        self.armed = (!reused).then_some(arm);
        Ok(ArmReport { transaction: self.armed(), outcomes: self.arm_outcomes })
    }

    fn check(&self, profile: &Profile, arm: &Arm, group: usize, reused: bool) -> GroupOutcome {
        let (capabilities, path) = (profile.capabilities, arm.paths[group]);
        let exists = match path.external_number() {
            Some(number) => number <= profile.external_paths,
            None if path == Path::LOOPBACK => capabilities.has(Capabilities::LOOPBACK),
            None => capabilities.has(Capabilities::DARK),
        };
        match (self.groups.contains(group), exists) {
            (false, _) if path == Path::DARK => GroupOutcome::None,
            (false, _) | (true, false) => GroupOutcome::Invalid,
            (true, true) if reused => GroupOutcome::Rejected,
            (true, true)
                if arm.policy == DataPathPolicy::Hot && !capabilities.has(Capabilities::HOT) =>
            {
                GroupOutcome::Rejected
            }
            (true, true) => GroupOutcome::Success,
        }
    }

    pub(crate) fn disarm(&mut self, transaction: TransactionId) -> Result<(), RequestRefusal> {
        if self.armed() != transaction || transaction == TransactionId::NONE {
            return Ok(());
        }
        if !self.busy().is_empty() {
            return Err(RequestRefusal::Busy);
        }
        self.armed = None;
        self.arm_outcomes = Outcomes::default();
        Ok(())
    }

    /// Skips groups that this transaction has already switched.
    pub(crate) fn fire(
        &mut self,
        profile: &Profile,
        hardware: &mut impl Hardware,
        now: Micros,
        transaction: TransactionId,
        groups: Groups,
        permission: Permission,
    ) -> Result<(), RequestRefusal> {
        let arm = match self.armed {
            Some(arm) if arm.transaction == transaction => arm,
            _ if transaction == self.fired && transaction != TransactionId::NONE => return Ok(()),
            _ => return Err(RequestRefusal::NotArmed),
        };
        if self.fired != transaction {
            self.fired = transaction;
            self.fired_groups = Groups::NONE;
            self.fire_outcomes = Outcomes::default();
            self.moved_in_this_fire = false;
        }
        self.policy = arm.policy;
        let moved_before = self.fired_groups;
        for group in groups.iter().filter(|&group| !moved_before.contains(group)) {
            let outcome = self.may_move(profile, &arm, group, now, permission);
            self.fire_outcomes[group] = outcome;
            if outcome == GroupOutcome::InProgress {
                self.fired_groups = self.fired_groups.with(group);
                self.begin(profile, hardware, now, group, arm.paths[group]);
            }
        }
        Ok(())
    }

    fn may_move(
        &self,
        profile: &Profile,
        arm: &Arm,
        group: usize,
        now: Micros,
        permission: Permission,
    ) -> GroupOutcome {
        let dwell = Micros(u64::from(profile.timing.dwell_us));
        let rested = self.came_to_rest[group].is_none_or(|at| now.since(at) >= dwell);
        if !self.groups.contains(group) {
            GroupOutcome::Invalid
        } else if self.arm_outcomes[group] != GroupOutcome::Success {
            self.arm_outcomes[group]
        } else if arm.policy == DataPathPolicy::RequireDeactivated && !permission.all_deactivated {
            GroupOutcome::InconsistentWithDataPath
        } else if !permission.ready || !rested {
            GroupOutcome::Rejected
        } else {
            GroupOutcome::InProgress
        }
    }

    fn begin(
        &mut self,
        profile: &Profile,
        hardware: &mut impl Hardware,
        now: Micros,
        group: usize,
        wanted: Path,
    ) {
        let mut motion = Motion { wanted, began: now, phase: Phase::Moving, next_look: now };
        if hardware.position(now, group) != Position::At(wanted) {
            hardware.drive(now, group, wanted);
            motion.next_look = now + Micros(u64::from(profile.timing.switch_us));
        }
        self.motions[group] = Some(motion);
    }

    pub(crate) fn next_look(&self) -> Option<Micros> {
        self.motions.iter().flatten().map(|motion| motion.next_look).min()
    }

    /// Returns the custom flags to raise for groups whose switching has ended.
    pub(crate) fn advance(
        &mut self,
        profile: &Profile,
        hardware: &impl Hardware,
        now: Micros,
    ) -> u8 {
        let mut flags = 0;
        for group in self.groups.iter() {
            let Some(motion) = self.motions[group].filter(|motion| motion.next_look <= now) else {
                continue;
            };
            let position = hardware.position(now, group);
            match look(profile, motion, position, tap_of(hardware, now, motion.wanted), now) {
                MotionReading::Again(motion) => self.motions[group] = Some(motion),
                MotionReading::Ended(outcome) => {
                    self.end(group, motion.wanted, outcome, now);
                    flags |= flags_of(outcome);
                }
            }
        }
        flags
    }

    fn end(&mut self, group: usize, wanted: Path, outcome: GroupOutcome, now: Micros) {
        self.motions[group] = None;
        self.came_to_rest[group] = Some(now);
        self.fire_outcomes[group] = outcome;
        if matches!(outcome, GroupOutcome::Success | GroupOutcome::PowerLow) {
            self.committed[group] = wanted;
            self.moved_in_this_fire = true;
        }
        if self.busy().is_empty() && core::mem::take(&mut self.moved_in_this_fire) {
            self.generation = self.generation.wrapping_add(1);
        }
    }

    /// A group is dark while it is switching.
    pub(crate) fn active(&self, hardware: &impl Hardware, now: Micros) -> Paths {
        core::array::from_fn(|group| match hardware.position(now, group) {
            Position::At(path) if self.groups.contains(group) => path,
            _ => Path::DARK,
        })
    }

    pub(crate) fn strayed(&self, hardware: &impl Hardware, now: Micros) -> bool {
        let active = self.active(hardware, now);
        self.groups
            .iter()
            .any(|group| self.motions[group].is_none() && active[group] != self.committed[group])
    }

    pub(crate) fn report(&self, hardware: &impl Hardware, now: Micros) -> FireReport {
        FireReport {
            transaction: self.fired,
            generation: self.generation,
            outcomes: self.fire_outcomes,
            active: self.active(hardware, now),
        }
    }
}

enum MotionReading {
    Again(Motion),
    Ended(GroupOutcome),
}

fn look(
    profile: &Profile,
    motion: Motion,
    position: Position,
    tap: Option<Power>,
    now: Micros,
) -> MotionReading {
    let timing = &profile.timing;
    let deadline = motion.began + Micros(u64::from(timing.commit_max_us));
    match (motion.phase, position) {
        (Phase::Moving, Position::At(path)) if path == motion.wanted => {
            let next_look = now + Micros(u64::from(timing.settle_us));
            MotionReading::Again(Motion { phase: Phase::Settling, next_look, ..motion })
        }
        (Phase::Settling, Position::At(path)) if path == motion.wanted => {
            let has_taps = profile.capabilities.has(Capabilities::TAPS);
            let dim = has_taps && tap.is_some_and(|power| power < profile.power_low);
            MotionReading::Ended(if dim { GroupOutcome::PowerLow } else { GroupOutcome::Success })
        }
        (_, Position::Moving) if now < deadline => {
            let pause = u64::from(timing.switch_us / 4).max(1);
            let next_look = Micros((now.0 + pause).min(deadline.0));
            MotionReading::Again(Motion { phase: Phase::Moving, next_look, ..motion })
        }
        (_, Position::Moving) => MotionReading::Ended(GroupOutcome::SettleTimeout),
        (_, Position::At(_)) => MotionReading::Ended(GroupOutcome::HardwareFault),
    }
}

fn tap_of(hardware: &impl Hardware, now: Micros, path: Path) -> Option<Power> {
    path.external_number().map(|number| hardware.tap(now, number))
}

fn flags_of(outcome: GroupOutcome) -> u8 {
    use crate::cmis::page_b0::flag;
    match outcome {
        GroupOutcome::Success => flag::SWITCH_DONE,
        GroupOutcome::PowerLow => flag::SWITCH_DONE | flag::POWER_LOW,
        _ => flag::SWITCH_FAULT,
    }
}
