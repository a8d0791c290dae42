// SPDX-License-Identifier: Apache-2.0
//! Executes one step on one device: switches, reads back, compares and qualifies.
//!
//! ```text
//!            ┌───────────── what is still missing, as just read ─────────────┐
//!            ▼                                                               │
//!   remove ──▶ add ──▶ read ──▶ compare ──▶ qualify (generation, power, neighbour) ──▶ applied
//!      │        │       ▲ │         │            │
//!      └────────┴─ wait ┘ └ unknown └ gives up   └ does not settle ──▶ refused, failed, unknown
//! ```
//!
//! A read follows each switching command, so a command is never repeated blindly.

use std::collections::{BTreeMap, BTreeSet};

use crate::change::Step;
use crate::state::{
    DeviceName, Micros, Move, Neighbours, Observation, Op, Outcome, Position, Positions, Sharing,
    Shut, Slot, Txn, at,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time limit for the reply to an operation without moves, after which its outcome is unknown.
    pub reply_within: Micros,
    /// Time after which such a reply is overdue. The daemon then reads the far ends of the device's
    /// fibres. If one is dark, the daemon stops waiting.
    pub read_within: Micros,
    /// The same limit for the status while the node is checked. 0 if the device does not promise such
    /// a time.
    pub status_within: Micros,
    pub switch_within: Micros,
    /// How long a device must be unreachable before reads of its dark far ends count.
    pub reconnect_within: Micros,
    /// How long light must be missing between two facing ends before their fibre is dark.
    pub dark_within: Micros,
    /// First wait after an unknown outcome. Later waits double, up to 16 times this value.
    pub backoff: Micros,
    pub reconcile_within: Micros,
    pub attempts_max: u32,
    /// How long light may take to settle. It exceeds a module's promise, because the far end may
    /// move in the same transaction.
    pub settle_within: Micros,
    pub settle_poll: Micros,
    /// Minimum optical power of a lit slot in 1/1000 dBm, if the device measures it.
    pub power_min_mdbm: i32,
    pub power_samples: u32,
    /// How long the device may still execute an abandoned command. During this time the daemon
    /// sends it no moves and ignores its reads. 0 if the device refuses abandoned commands.
    pub late_within: Micros,
    /// How long late commands are undone after a takeover; 0 if the device checks epochs.
    pub restore_late_within: Micros,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            reply_within: Micros::from_secs(2),
            read_within: Micros::from_secs(2),
            status_within: Micros(0),
            switch_within: Micros::from_secs(2),
            reconnect_within: Micros(0),
            dark_within: Micros::from_secs(1),
            backoff: Micros::from_millis(50),
            reconcile_within: Micros::from_secs(30),
            attempts_max: 3,
            settle_within: Micros::from_secs(1),
            settle_poll: Micros::from_millis(5),
            power_min_mdbm: -14_000,
            power_samples: 3,
            late_within: Micros(0),
            restore_late_within: Micros(0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    pub commit: Micros,
    /// Time from the first light on the new path until its power is reliable.
    pub settle: Micros,
    pub dwell: Micros,
    /// Maximum time to reply to a status, for a module that reports loss of light.
    pub answer: Option<Micros>,
    pub goes: bool,
    pub refuses_late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follows {
    pub bits_per_second: u32,
    /// Whether `reply_within` is configured, and therefore limits all other reply times.
    pub reply_written: bool,
    /// Whether `settle_within` is configured, so that `dark_within` does not follow the promise.
    pub settle_written: bool,
}

/// Promised time for all replies except the reply to a fire (docs/firmware-api.md, section 1).
pub const ANSWER: Micros = Micros::from_millis(10);
const OVERDUE: u64 = 5;
/// Multiple of the promise after which a fibre is dark, with [`DARK_LEAST`] as the minimum.
const DARK: u64 = 3;
const DARK_LEAST: Micros = Micros::from_millis(5);
/// Length of the longest operation in both directions: a name, a status and the neighbours.
const OPERATION_BYTES: u64 = 256;
const READ_BYTES: u64 = 160;
pub const RECONNECT: Micros = Micros::from_millis(5);

impl Limits {
    /// Returns the defaults of the configuration file.
    pub fn configured(sharing: Sharing) -> Self {
        let late_within = match sharing {
            // An optical switch may continue to execute commands after the end of a session.
            Sharing::Exclusive => Micros::from_secs(2),
            Sharing::Independent => Micros(0),
        };
        // The network may delay the last commands of the previous leader.
        Self { late_within, restore_late_within: Micros::from_secs(60), ..Self::default() }
    }
}

/// Returns when a reply is overdue: after a multiple of the promise and the time on the line.
fn overdue_after(promised: Micros, bytes: u64, bits_per_second: u64) -> Micros {
    let line = Micros((10 * 1_000_000 * bytes).div_ceil(bits_per_second));
    Micros(promised.0.saturating_mul(OVERDUE)) + line
}

impl Limits {
    #[must_use]
    pub fn promised(mut self, promise: &Promise, follows: &Follows) -> Self {
        let rate = u64::from(follows.bits_per_second.max(1));
        self.read_within = overdue_after(ANSWER, OPERATION_BYTES, rate);
        self.switch_within =
            overdue_after(promise.commit + ANSWER, OPERATION_BYTES, rate) + promise.dwell;
        self.status_within =
            promise.answer.map_or(Micros(0), |answer| overdue_after(answer, READ_BYTES, rate));
        if follows.reply_written {
            self.read_within = self.read_within.min(self.reply_within);
            self.status_within = self.status_within.min(self.reply_within);
            self.switch_within = self.switch_within.min(self.reply_within);
        }
        self.reconnect_within = RECONNECT + self.read_within;
        if !follows.settle_written {
            let settles = promise.commit + promise.settle;
            self.dark_within = DARK_LEAST.max(Micros(settles.0.saturating_mul(DARK)));
        }
        self
    }

    /// How long a change waits for an unreachable device before it switches light. An undo sends
    /// only one request to a device that has been unreachable for longer.
    pub fn patience(&self) -> Micros {
        self.reply_within + Micros(self.reply_within.0 / 2)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepEnd {
    Applied(Observation),
    Refused(String, Option<Observation>),
    Failed(String, Option<Observation>),
    Unlit(String, Observation),
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Send(Op),
    Sleep(Micros),
    Finished(Box<StepEnd>),
}

#[derive(Clone, Debug)]
pub struct Mover {
    txn: Txn,
    device: DeviceName,
    goal: Positions,
    step: Step,
    sharing: Sharing,
    limits: Limits,
    baseline: Option<Observation>,
    neighbours: BTreeMap<Slot, String>,
    expected_dark: BTreeSet<Slot>,
    doing: Doing,
    attempts: u32,
    complaint: Option<Outcome>,
    good_samples: u32,
    settle_until: Option<Micros>,
    reconcile_until: Option<Micros>,
    late_until: Micros,
    backoff: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Remove,
    Add,
    Read,
}

impl Mover {
    pub fn new(
        txn: Txn,
        step: Step,
        sharing: Sharing,
        limits: Limits,
        baseline: Option<Observation>,
        neighbours: BTreeMap<Slot, String>,
    ) -> Self {
        let backoff = limits.backoff;
        Self {
            txn,
            device: DeviceName::from(""),
            goal: step.end(),
            step,
            sharing,
            limits,
            baseline,
            neighbours,
            expected_dark: BTreeSet::new(),
            doing: Doing::Remove,
            attempts: 0,
            complaint: None,
            good_samples: 0,
            settle_until: None,
            reconcile_until: None,
            late_until: Micros(0),
            backoff,
        }
    }

    #[must_use]
    pub fn called(self, device: &DeviceName) -> Self {
        Self { device: device.clone(), ..self }
    }

    pub fn expect_dark(&mut self, slots: BTreeSet<Slot>) {
        self.expected_dark = slots;
    }

    pub(crate) fn given_up_at(&self) -> Option<Micros> {
        self.reconcile_until
    }

    pub(crate) fn is_read(&self) -> bool {
        self.baseline.is_some()
    }

    pub fn start(&mut self) -> Next {
        let step = self.step.clone();
        self.switch(step)
    }

    pub fn reply(&mut self, now: Micros, outcome: Outcome) -> Next {
        match self.doing {
            Doing::Read => self.read_reply(now, outcome),
            Doing::Remove | Doing::Add => self.switch_reply(now, outcome),
        }
    }

    pub fn wake(&mut self) -> Next {
        self.read()
    }

    fn switch(&mut self, step: Step) -> Next {
        self.attempts += 1;
        self.complaint = None;
        self.good_samples = 0;
        self.settle_until = None;
        self.step = step;
        let (doing, moves) = if self.step.remove.is_empty() {
            (Doing::Add, self.step.add.clone())
        } else {
            (Doing::Remove, self.step.remove.clone())
        };
        self.doing = doing;
        if moves.is_empty() {
            return self.read();
        }
        Next::Send(Op::Switch { txn: self.txn, moves })
    }

    fn switch_reply(&mut self, now: Micros, outcome: Outcome) -> Next {
        match outcome {
            Outcome::Done(_) if self.doing == Doing::Remove && !self.step.add.is_empty() => {
                self.doing = Doing::Add;
                Next::Send(Op::Switch { txn: self.txn, moves: self.step.add.clone() })
            }
            Outcome::Done(_) => self.read(),
            Outcome::Unknown(_) => {
                self.late_until = now + self.limits.late_within;
                self.complaint = Some(outcome);
                self.doing = Doing::Read;
                self.wait_and_read(now)
            }
            Outcome::Refused(_) | Outcome::Failed(_) => {
                self.complaint = Some(outcome);
                self.read()
            }
        }
    }

    fn read(&mut self) -> Next {
        self.doing = Doing::Read;
        let power = self.lit().map(|(slot, _)| slot).collect();
        Next::Send(Op::Observe { power, neighbours: Neighbours::Usual })
    }

    fn wait_and_read(&mut self, now: Micros) -> Next {
        let until = *self.reconcile_until.get_or_insert(now + self.limits.reconcile_within);
        let wake = now + self.backoff;
        self.backoff = Micros((self.backoff.0 * 2).min(self.limits.backoff.0.saturating_mul(16)));
        if wake > until {
            let why = self.complaint_text().unwrap_or_else(|| "it cannot be read".into());
            return finished(StepEnd::Unknown(why));
        }
        Next::Sleep(wake)
    }

    fn read_reply(&mut self, now: Micros, outcome: Outcome) -> Next {
        match outcome {
            Outcome::Done(Some(seen)) => {
                self.reconcile_until = None;
                self.backoff = self.limits.backoff;
                self.compare(now, seen)
            }
            Outcome::Done(None) => self.wait_and_read(now),
            other => {
                self.complaint.get_or_insert(other);
                self.wait_and_read(now)
            }
        }
    }

    fn compare(&mut self, now: Micros, seen: Observation) -> Next {
        // The device may still execute the command, so only a later read is valid.
        if now < self.late_until {
            return Next::Sleep(self.late_until);
        }
        if let Some(stranger) = self.stranger(&seen) {
            return finished(StepEnd::Failed(stranger, Some(seen)));
        }
        let missing = self.missing(&seen);
        if missing.is_empty() {
            return self.qualify(now, seen);
        }
        // The device is tuning to the new position, so wait instead of sending the change again.
        if missing.iter().any(|m| seen.tuning.contains(&m.slot)) {
            let until = *self.settle_until.get_or_insert(now + self.limits.settle_within);
            if now < until {
                return Next::Sleep((now + self.limits.settle_poll).min(until));
            }
        }
        let m = missing[0];
        let [from, to] = [m.from, m.to].map(|at| self.device.place(at));
        let state = format!("{} is at {from}, not at {to}", self.device.slot(m.slot));
        match (&self.complaint, self.attempts < self.limits.attempts_max) {
            (Some(Outcome::Refused(why)), _) => {
                finished(StepEnd::Refused(format!("{why}; {state}"), Some(seen)))
            }
            (_, true) => self.switch(Step::of(self.sharing, &missing)),
            (_, false) => {
                let why = self.complaint_text().unwrap_or_else(|| "it reported success".into());
                finished(StepEnd::Failed(format!("{why}; {state}"), Some(seen)))
            }
        }
    }

    fn stranger(&self, seen: &Observation) -> Option<String> {
        let before = &self.baseline.as_ref()?.positions;
        let slots = before.keys().chain(seen.positions.keys());
        let moved = slots
            .filter(|slot| !self.goal.contains_key(slot))
            .find(|&&slot| at(before, slot) != at(&seen.positions, slot))?;
        let [from, to] = [before, &seen.positions].map(|all| self.device.place(at(all, *moved)));
        let moved = self.device.slot(*moved);
        Some(format!("{moved} was not part of the change but moved from {from} to {to}"))
    }

    fn missing(&self, seen: &Observation) -> Vec<Move> {
        let goal = self.goal.iter();
        let moves = goal.map(|(&slot, &to)| Move { slot, from: at(&seen.positions, slot), to });
        moves.filter(|m| m.from != m.to).collect()
    }

    fn lit(&self) -> impl Iterator<Item = (Slot, Position)> {
        self.goal.iter().map(|(&slot, &to)| (slot, to)).filter(|(_, to)| !to.is_dark())
    }

    fn qualify(&mut self, now: Micros, seen: Observation) -> Next {
        if let Some(why) = self.wrong_neighbour(&seen) {
            return finished(StepEnd::Unlit(why, seen));
        }
        let mut shut = seen.shut.iter();
        let failed = shut.find(|(slot, why)| *why == Shut::Failed && self.goal.contains_key(slot));
        if let Some((slot, why)) = failed {
            let why = format!("{}: {why}", self.device.slot(*slot));
            return finished(StepEnd::Failed(why, Some(seen)));
        }
        if let Some(why) = self.stale_generation(&seen) {
            return finished(StepEnd::Failed(why, Some(seen)));
        }
        let Some(why) = self.not_settled(&seen) else {
            self.good_samples += 1;
            let measured = !seen.power_mdbm.is_empty();
            if measured && self.good_samples < self.limits.power_samples {
                return self.read();
            }
            return finished(StepEnd::Applied(seen));
        };
        self.good_samples = 0;
        let until = *self.settle_until.get_or_insert(now + self.limits.settle_within);
        if now >= until && seen.tuning.is_empty() {
            return finished(StepEnd::Unlit(why, seen));
        }
        if now >= until {
            return finished(StepEnd::Failed(why, Some(seen)));
        }
        Next::Sleep((now + self.limits.settle_poll).min(until))
    }

    fn wrong_neighbour(&self, seen: &Observation) -> Option<String> {
        self.lit().find_map(|(slot, _)| {
            let (wanted, found) = (self.neighbours.get(&slot)?, seen.neighbours.get(&slot)?);
            (wanted != found).then(|| {
                let slot = self.device.slot(slot);
                format!("{slot} is lit by {found} instead of {wanted}: crossed cables?")
            })
        })
    }

    fn stale_generation(&self, seen: &Observation) -> Option<String> {
        let before = self.baseline.as_ref()?;
        let moved = self.goal.iter().any(|(&slot, &to)| at(&before.positions, slot) != to);
        let (old, new) = (before.generation?, seen.generation?);
        (moved && old == new).then(|| {
            format!(
                "the positions changed, but the generation is still \
            {new}"
            )
        })
    }

    fn not_settled(&self, seen: &Observation) -> Option<String> {
        if let Some(&slot) = self.goal.keys().find(|slot| seen.tuning.contains(slot)) {
            return Some(format!("{} is still tuning", self.device.slot(slot)));
        }
        self.lit().find_map(|(slot, _)| {
            let power = *seen.power_mdbm.get(&slot)?;
            let least = self.limits.power_min_mdbm;
            (power < least && !self.expected_dark.contains(&slot)).then(|| {
                let [power, least] = [power, least].map(|p| f64::from(p) / 1000.0);
                let slot = self.device.slot(slot);
                format!("{slot} receives {power:.1} dBm, but needs at least {least:.1} dBm")
            })
        })
    }

    fn complaint_text(&self) -> Option<String> {
        match self.complaint.as_ref()? {
            Outcome::Done(_) => None,
            Outcome::Refused(why) => Some(format!("refused: {why}")),
            Outcome::Failed(why) => Some(format!("failed: {why}")),
            Outcome::Unknown(why) => Some(format!("unknown: {why}")),
        }
    }
}

fn finished(end: StepEnd) -> Next {
    Next::Finished(Box::new(end))
}
