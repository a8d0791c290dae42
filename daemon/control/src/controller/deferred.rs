// SPDX-License-Identifier: Apache-2.0
//! How long a change waits for unresponsive devices, and how their deferred changes are completed.

use std::collections::{BTreeMap, BTreeSet};

use super::drift::own;
use super::{Action, Apply, Controller};
use crate::actor::Policy;
use crate::change::{self, Known, Mode};
use crate::deferred::Deferred;
use crate::drive::Site;
use crate::inventory::OnDrift;
use crate::record::{Cause, OnFailure};
use crate::state::{DeviceName, Micros, Move, Now, Observation, Positions, Txn};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    Over(Txn),
    Answer { deferred: bool },
    Decide(Txn),
    Adopt { apply: bool },
}

/// Healthy devices reply within this time. A refusal lists the devices that do not.
const ANSWERS_WITHIN: Micros = Micros::from_millis(250);
const NAMES_MAX: usize = 6;

impl Controller {
    fn answers(&self, device: &DeviceName) -> bool {
        self.devices.get(device).is_some_and(|seen| seen.up && seen.observed.is_some())
    }

    #[must_use]
    pub fn remedy(&self, device: &DeviceName) -> Remedy {
        let deferred = self.ledger.deferred.get(device);
        match (&self.ledger.open, &self.ledger.pending) {
            (Some(open), _) => Remedy::Over(open.intent.txn),
            _ if !self.answers(device) => Remedy::Answer { deferred: deferred.is_some() },
            (None, Some(pending)) => Remedy::Decide(pending.txn),
            (None, None) => {
                Remedy::Adopt { apply: self.devices.keys().all(|device| self.answers(device)) }
            }
        }
    }

    pub(super) fn long_silent(&self, now: &Now) -> BTreeSet<DeviceName> {
        let devices = self.devices.iter().filter(|(device, seen)| {
            let patience = self.inventory.limits(device).patience();
            !self.answers(device) && seen.silent_since + patience <= now.mono
        });
        devices.map(|(device, _)| device.clone()).collect()
    }

    pub(super) fn on_its_way(&self, now: &Now) -> Option<String> {
        let txn = self.ledger.open.as_ref()?.intent.txn;
        let waits: Vec<String> = self
            .waits_for(now)
            .into_iter()
            .take(NAMES_MAX)
            .map(|(device, left)| format!("{device} ({:.1} s at most)", left.as_secs_f64()))
            .collect();
        let waits = match waits.is_empty() {
            true => String::new(),
            false => format!(" and waits for {}", waits.join(", ")),
        };
        Some(format!("transaction {txn} is in progress{waits}"))
    }

    #[must_use]
    pub fn waits_for(&self, now: &Now) -> BTreeMap<DeviceName, Micros> {
        let waits = self.drive.iter().flat_map(|drive| drive.waits_for());
        let silent = waits.filter(|(device, _)| !self.answers(device) || self.is_slow(now, device));
        silent
            .map(|(device, until)| {
                let last = self.devices[&device].in_flight.as_ref().map(|flight| flight.deadline);
                let until = until.max(last.unwrap_or_default());
                (device, until - now.mono)
            })
            .collect()
    }

    fn is_slow(&self, now: &Now, device: &DeviceName) -> bool {
        let flight = self.devices.get(device).and_then(|seen| seen.in_flight.as_ref());
        flight.is_some_and(|flight| flight.asked + ANSWERS_WITHIN < now.mono)
    }

    pub(super) fn changes_back(
        &self,
        back: &mut Apply,
    ) -> Result<BTreeMap<DeviceName, Vec<Move>>, Vec<String>> {
        back.target.retain(|device, _| self.devices.contains_key(device));
        back.on_failure = Some(OnFailure::Hold);
        let assumed: BTreeMap<DeviceName, Observation> = back
            .target
            .keys()
            .filter(|device| !self.answers(device))
            .map(|device| {
                let positions = self.ledger.belongs(device).into_owned();
                (device.clone(), Observation { positions, ..Observation::default() })
            })
            .collect();
        let known = |device: &DeviceName| {
            let known = self.known(device)?;
            let observed = known.observed.or_else(|| assumed.get(device));
            Some(Known { observed, ..known })
        };
        let changes = change::difference(&back.target, back.mode, known)
            .map_err(|objections| change::in_words(&objections))?;
        back.target.retain(|device, _| self.answers(device) || changes.contains_key(device));
        Ok(changes)
    }

    fn can_settle(&self, device: &DeviceName, deferred: &Deferred) -> bool {
        static NOTHING: Positions = Positions::new();
        let Some(seen) = self.devices.get(device).filter(|seen| seen.up) else { return false };
        let owned = self.ledger.owned.get(device).unwrap_or(&NOTHING);
        seen.observed.as_ref().is_some_and(|read| {
            deferred.explains(&read.positions, owned) || self.inventory.on_drift == OnDrift::Restore
        })
    }

    #[must_use]
    pub fn is_brought_back(&self, device: &DeviceName) -> bool {
        let deferred = self.ledger.deferred.get(device);
        deferred.is_some_and(|deferred| !self.answers(device) || self.can_settle(device, deferred))
    }

    pub(super) fn settles_at(&self, now: &Now) -> Option<Micros> {
        if self.ledger.deferred.is_empty() || self.busy(now).is_some() {
            return None;
        }
        let deferred = self.ledger.deferred.iter();
        let ready = deferred.filter(|(device, deferred)| self.can_settle(device, deferred));
        let at = ready.map(|(device, _)| self.devices[device].settled.1).min()?;
        Some(at.max(self.own_not_before))
    }

    pub(super) fn forget_tries(&mut self, devices: &[DeviceName]) {
        for device in devices {
            if let Some(seen) = self.devices.get_mut(device) {
                seen.settled = (0, Micros::default());
            }
        }
    }

    pub(super) fn settle(&mut self, now: &Now, actions: &mut Vec<Action>) {
        if self.busy(now).is_some() {
            return;
        }
        let deferred = self.ledger.deferred.iter().find(|(device, deferred)| {
            self.can_settle(device, deferred) && self.devices[*device].settled.1 <= now.mono
        });
        let Some((device, deferred)) =
            deferred.map(|(device, deferred)| (device.clone(), deferred.clone()))
        else {
            return;
        };
        if let Some(seen) = self.devices.get_mut(&device) {
            let (tries, at) = &mut seen.settled;
            *at = now.mono + Micros::from_secs(8u64.saturating_pow(*tries).min(1_800));
            *tries += 1;
        }
        let mut apply = Apply {
            target: [(device, deferred.to)].into(),
            mode: Mode::Update,
            cause: Some(Cause::Deferred(deferred.txn)),
            plan_sha256: self.ledger.plan_sha256.clone(),
            ..Apply::default()
        };
        if let Ok(changes) = self.changes_back(&mut apply) {
            let request = format!("owed-{}", self.ledger.last_txn.0 + 1);
            self.begin(now, own(Policy::Undo, request), apply, changes, actions);
        }
    }
}
