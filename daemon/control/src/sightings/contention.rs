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

use crate::ledger::{Ledger, Past};
use crate::record::{Cause, TxnResult};
use crate::state::{DeviceName, Drift, Micros, Now, Observation, Positions, Slot};

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

    pub(super) fn contended(&self, now: &Now) -> Option<Contended> {
        let fought = self.times > 0 && (self.is_stopped() || !self.is_quiet(now));
        if !fought && self.claimed_by.is_none() {
            return None;
        }
        let left = (self.moved_at + self.quiet()) - now.mono;
        Some(Contended {
            times: if fought { self.times } else { 0 },
            drift: self.drift.filter(|_| fought),
            first_ms: self.first_ms,
            last_ms: self.last_ms,
            report: self.report.as_ref().filter(|_| fought).map(|(_, text)| text.clone()),
            claimed_by: self.claimed_by.clone(),
            stopped_for: (fought && self.is_stopped()).then_some(left),
        })
    }

    pub(super) fn may_restore(&self, now: &Now) -> bool {
        let stopped = self.is_stopped() && !self.is_quiet(now);
        self.claimed_by.is_none() && !stopped && self.not_before <= now.mono
    }

    pub(super) fn reported(&mut self, now: &Now, text: String) {
        self.report = Some((now.mono, text));
    }

    pub(super) fn claimed(&mut self, by: Option<String>) -> bool {
        let is_new = by != self.claimed_by;
        self.claimed_by = by;
        is_new
    }

    pub(super) fn drifts(
        &mut self,
        now: &Now,
        read: &Observation,
        drift: &[Drift],
        poll_every: Micros,
    ) -> bool {
        if self.restores == 0 {
            return false;
        }
        if self.stood != read.positions {
            self.stood.clone_from(&read.positions);
            self.moved_at = now.mono;
        }
        let again = drift.iter().find(|drift| self.restored.contains(&drift.slot));
        let Some(&again) = again else { return false };
        let polls = Micros(poll_every.0.saturating_mul(POLLS));
        let soon = self.restored_at + AGAIN_WITHIN.max(polls) > now.mono;
        let fought = self.times > 0 && self.restored_at + self.quiet() > now.mono;
        if !soon && !fought {
            self.forget();
            return false;
        }
        self.restored.clear();
        self.times += 1;
        self.drift = Some(again);
        self.first_ms = if self.times == 1 { now.wall_ms } else { self.first_ms };
        self.last_ms = now.wall_ms;
        let restored_at = self.restored_at;
        self.report.take_if(|(at, _)| *at < restored_at);
        true
    }

    pub(super) fn restored(&mut self, now: &Now, slots: BTreeSet<Slot>, stood: Positions) {
        if self.is_stopped() {
            self.quiet_tries += 1;
        } else {
            self.restores += 1;
        }
        self.restored = slots;
        (self.restored_at, self.moved_at) = (now.mono, now.mono);
        self.not_before = now.mono + wait(self.restores);
        self.stood = stood;
    }

    pub(super) fn forget(&mut self) -> bool {
        let claimed_by = self.claimed_by.take();
        let known = std::mem::replace(self, Self { claimed_by, ..Self::default() });
        known.times > 0
    }
}

fn wait(restores: u32) -> Micros {
    Micros(FIRST_WAIT.0.saturating_mul(8_u64.saturating_pow(restores.saturating_sub(1))))
}

pub(super) fn restores(ledger: &Ledger, now: &Now) -> BTreeMap<DeviceName, Contention> {
    // Restores may be older than the host's uptime, so times are counted from the oldest one.
    let oldest = ledger.history.iter().map(|past| age(past, now)).max().unwrap_or_default();
    let then = Now { mono: oldest, ..now.clone() };
    let mut known = BTreeMap::<DeviceName, Contention>::new();
    for past in &ledger.history {
        let devices = past.ends.keys().chain(past.stood_before.keys());
        if !past.actor.is_policy() {
            devices.for_each(|device| drop(known.remove(device)));
        } else if past.cause == Cause::Drift && past.result != TxnResult::Aborted {
            for device in past.ends.keys() {
                take_in(known.entry(device.clone()).or_default(), past, device, &then);
            }
        }
    }
    known.retain(|_, known| !known.is_quiet(&then));
    for known in known.values_mut() {
        for at in [&mut known.restored_at, &mut known.moved_at, &mut known.not_before] {
            *at = (now.mono + *at) - oldest;
        }
    }
    known
}

fn age(past: &Past, now: &Now) -> Micros {
    Micros::from_millis(now.wall_ms.saturating_sub(past.wall_ms))
}

fn take_in(known: &mut Contention, past: &Past, device: &DeviceName, now: &Now) {
    let at = now.mono - age(past, now);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{DeviceEnd, Verdict};
    use crate::state::Txn;

    fn restored(wall_ms: u64) -> Past {
        let end = DeviceEnd { verdict: Verdict::Applied, detail: String::new(), unlit: false };
        Past {
            txn: Txn(1),
            actor: "policy:drift".into(),
            cause: Cause::Drift,
            plan_sha256: String::new(),
            plan_before: String::new(),
            applied_before: String::new(),
            plan_devices_before: None,
            wall_ms,
            result: TxnResult::Committed,
            ends: [("n1/b0".into(), end)].into(),
            stood_before: BTreeMap::new(),
            confirm_within: None,
            confirmed_ms: None,
            undone_by: None,
            failed_before: BTreeMap::new(),
            failed_after: BTreeMap::new(),
            phase: None,
        }
    }

    /// The host has been running for a minute.
    #[test]
    fn restores_before_a_reboot_count_by_their_age() {
        let now = Now { mono: Micros::from_secs(60), wall_ms: 1_800_000_000_000, boot: "c".into() };
        let of = |ages_s: [u64; 3]| {
            let history = ages_s.map(|age| restored(now.wall_ms - 1_000 * age)).into();
            let mut ledger = Ledger::default();
            ledger.history = history;
            restores(&ledger, &now).remove(&"n1/b0".into()).map(|known| known.restores)
        };
        let week = 7 * 24 * 3_600;
        assert_eq!(of([3 * week, 2 * week, week]), None);
        assert_eq!(of([3 * week, 2 * week, 600]), Some(1));
        assert_eq!(of([700, 650, 600]), Some(3));
    }
}
