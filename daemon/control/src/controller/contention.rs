// SPDX-License-Identifier: Apache-2.0
//! Detects another controller that changes the same device, and reports it instead of fighting it.
//!
//! ```text
//!   drift ─▶ restore ─▶ the same slots drift again soon ─▶ wait 2 s, restore ─▶ again ─▶ wait 16 s, restore ─▶ again
//!              ▲                                                                                        │
//!              │   an operator applies or adopts the device, or it was quiet for an hour                ▼
//!              └──────────────────────────────────────────────────────────────────────────────────── stopped
//! ```
//!
//! Otherwise two controllers could restore their positions forever and interrupt links.

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, Controller, Drift, Note};
use crate::ledger::{Ledger, Open, Past};
use crate::record::{Cause, TxnResult};
use crate::state::{DeviceName, Micros, Now, Observation, Positions, Slot};

pub const RESTORES_MAX: u32 = 3;
/// Wait before the second consecutive restore. Each further wait is eight times as long.
const FIRST_WAIT: Micros = Micros::from_secs(2);
/// Drift within this time and [`POLLS`] polls after a restore is treated as the same drift.
const AGAIN_WITHIN: Micros = Micros::from_secs(120);
const POLLS: u64 = 12;
pub const QUIET: Micros = Micros::from_secs(3600);
/// The quiet period doubles each time a restore is undone, up to 32 h.
const DOUBLINGS_MAX: u32 = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreign {
    Changed(String),
    Claimed(Option<String>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contended {
    pub times: u32,
    pub drift: Option<Drift>,
    pub first_ms: u64,
    pub last_ms: u64,
    pub report: Option<String>,
    pub claimed_by: Option<String>,
    pub stopped_for: Option<Micros>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Contention {
    restores: u32,
    times: u32,
    quiet_tries: u32,
    restored: BTreeSet<Slot>,
    restored_at: Micros,
    moved_at: Micros,
    not_before: Micros,
    stood: Positions,
    drift: Option<Drift>,
    first_ms: u64,
    last_ms: u64,
    report: Option<(Micros, String)>,
    claimed_by: Option<String>,
}

impl Contention {
    fn quiet(&self) -> Micros {
        Micros(QUIET.0 << self.quiet_tries.min(DOUBLINGS_MAX))
    }

    fn is_quiet(&self, now: &Now) -> bool {
        self.moved_at + self.quiet() <= now.mono
    }

    fn is_stopped(&self) -> bool {
        self.restores >= RESTORES_MAX && self.restored.is_empty()
    }
}

impl Controller {
    #[must_use]
    pub fn contended(&self, device: &DeviceName, now: &Now) -> Option<Contended> {
        let known = &self.devices.get(device)?.contention;
        let fought = known.times > 0 && (known.is_stopped() || !known.is_quiet(now));
        if !fought && known.claimed_by.is_none() {
            return None;
        }
        let left = (known.moved_at + known.quiet()) - now.mono;
        Some(Contended {
            times: if fought { known.times } else { 0 },
            drift: known.drift.filter(|_| fought),
            first_ms: known.first_ms,
            last_ms: known.last_ms,
            report: known.report.as_ref().filter(|_| fought).map(|(_, text)| text.clone()),
            claimed_by: known.claimed_by.clone(),
            stopped_for: (fought && known.is_stopped()).then_some(left),
        })
    }

    pub(super) fn may_restore(&self, device: &DeviceName, now: &Now) -> bool {
        let Some(known) = self.devices.get(device).map(|seen| &seen.contention) else {
            return false;
        };
        let stopped = known.is_stopped() && !known.is_quiet(now);
        known.claimed_by.is_none() && !stopped && known.not_before <= now.mono
    }

    pub(super) fn foreign(
        &mut self,
        now: &Now,
        device: &DeviceName,
        what: Foreign,
        actions: &mut Vec<Action>,
    ) {
        const REREAD: Micros = Micros::from_millis(50);
        let Some(seen) = self.devices.get_mut(device) else { return };
        match what {
            Foreign::Changed(text) => {
                seen.contention.report = Some((now.mono, text));
                seen.next_poll = seen.next_poll.min(now.mono.max(seen.read_at + REREAD));
            }
            Foreign::Claimed(by) if by == seen.contention.claimed_by => {}
            Foreign::Claimed(by) => {
                seen.contention.claimed_by = by;
                self.note_contended(now, device, actions);
            }
        }
    }

    pub(super) fn note_contention(
        &mut self,
        now: &Now,
        device: &DeviceName,
        read: &Observation,
        actions: &mut Vec<Action>,
    ) {
        if self.is_moving(device) {
            return;
        }
        let polls = Micros(self.inventory.poll_every.0.saturating_mul(POLLS));
        let Some(seen) = self.devices.get_mut(device) else { return };
        let known = &mut seen.contention;
        if known.restores == 0 {
            return;
        }
        if known.stood != read.positions {
            known.stood.clone_from(&read.positions);
            known.moved_at = now.mono;
        }
        let again = seen.drift.iter().find(|drift| known.restored.contains(&drift.slot));
        let Some(&again) = again else { return };
        let soon = known.restored_at + AGAIN_WITHIN.max(polls) > now.mono;
        let fought = known.times > 0 && known.restored_at + known.quiet() > now.mono;
        if !soon && !fought {
            let claimed_by = known.claimed_by.take();
            *known = Contention { claimed_by, ..Contention::default() };
            return;
        }
        known.restored.clear();
        known.times += 1;
        known.drift = Some(again);
        known.first_ms = if known.times == 1 { now.wall_ms } else { known.first_ms };
        known.last_ms = now.wall_ms;
        let old = |(at, _): &(Micros, String)| *at < known.restored_at;
        known.report.take_if(|report| old(report));
        self.note_contended(now, device, actions);
    }

    fn note_contended(&self, now: &Now, device: &DeviceName, actions: &mut Vec<Action>) {
        let contended = self.contended(device, now);
        actions.push(Action::Note(Note::Contended(device.clone(), contended)));
    }

    pub(super) fn count_restore(&mut self, now: &Now, open: &Open, actions: &mut Vec<Action>) {
        let intent = &open.intent;
        if !intent.asked.actor.is_policy() {
            let devices: Vec<DeviceName> = intent.goal.keys().cloned().collect();
            return self.forget_contention(now, &devices, actions);
        }
        if intent.cause != Cause::Drift {
            return;
        }
        for (device, slots) in &intent.after {
            let Some(seen) = self.devices.get_mut(device) else { continue };
            let known = &mut seen.contention;
            if !open.fired.contains(device) {
                continue;
            }
            if known.is_stopped() {
                known.quiet_tries += 1;
            } else {
                known.restores += 1;
            }
            known.restored = slots.keys().copied().collect();
            (known.restored_at, known.moved_at) = (now.mono, now.mono);
            known.not_before = now.mono + wait(known.restores);
            let read = seen.observed.as_ref();
            known.stood = read.map(|read| read.positions.clone()).unwrap_or_default();
        }
    }

    pub(super) fn forget_contention(
        &mut self,
        now: &Now,
        devices: &[DeviceName],
        actions: &mut Vec<Action>,
    ) {
        for device in devices {
            let Some(seen) = self.devices.get_mut(device) else { continue };
            let claimed_by = seen.contention.claimed_by.take();
            let known = std::mem::replace(
                &mut seen.contention,
                Contention { claimed_by, ..Contention::default() },
            );
            if known.times > 0 {
                self.note_contended(now, device, actions);
            }
        }
    }

    pub(super) fn remember_restores(&mut self, now: &Now) {
        for (device, known) in restores(&self.ledger, now) {
            if let Some(seen) = self.devices.get_mut(&device) {
                seen.contention = known;
            }
        }
    }
}

fn wait(restores: u32) -> Micros {
    Micros(FIRST_WAIT.0.saturating_mul(8_u64.saturating_pow(restores.saturating_sub(1))))
}

fn restores(ledger: &Ledger, now: &Now) -> BTreeMap<DeviceName, Contention> {
    let mut known = BTreeMap::<DeviceName, Contention>::new();
    for past in &ledger.history {
        let devices = past.parts.keys().chain(past.stood_before.keys());
        if !past.actor.is_policy() {
            devices.for_each(|device| drop(known.remove(device)));
        } else if past.cause == Cause::Drift && past.result != TxnResult::Aborted {
            for device in past.parts.keys() {
                take_in(known.entry(device.clone()).or_default(), past, device, now);
            }
        }
    }
    known.retain(|_, known| !known.is_quiet(now));
    known
}

fn take_in(known: &mut Contention, past: &Past, device: &DeviceName, now: &Now) {
    let age = Micros::from_millis(now.wall_ms.saturating_sub(past.wall_ms));
    let at = now.mono - age;
    let soon = known.restores > 0 && known.restored_at + AGAIN_WITHIN > at;
    let fought = known.times > 0 && known.restored_at + known.quiet() > at;
    if !soon && !fought {
        *known = Contention::default();
    }
    if known.restores > 0 {
        known.times += 1;
        known.first_ms = if known.times == 1 { past.wall_ms } else { known.first_ms };
        known.last_ms = past.wall_ms;
    }
    known.restores = (known.restores + 1).min(RESTORES_MAX);
    known.restored = past.stood_before.get(device).into_iter().flatten().map(|(s, _)| *s).collect();
    (known.restored_at, known.moved_at) = (at, at);
    known.not_before = at + wait(known.restores);
}
