// SPDX-License-Identifier: Apache-2.0
//! How long a change waits for unreachable devices, and how their deferred changes are completed.

use std::collections::BTreeMap;

use super::{Context, Transactions, own};
use crate::actor::Policy;
use crate::change::{self, Known, Mode};
use crate::deferred::Deferred;
use crate::inventory::OnDrift;
use crate::messages::Apply;
use crate::record::{Cause, OnFailure};
use crate::sightings::Sightings;
use crate::state::{DeviceName, Micros, Move, Now, Observation, Positions, Txn};
use crate::transactions::Decision;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    Over(Txn),
    Answer { deferred: bool },
    Decide(Txn),
    Adopt { apply: bool },
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tries {
    count: u32,
    next: Micros,
}

/// Healthy devices reply within this time. A refusal lists the devices that do not.
const ANSWERS_WITHIN: Micros = Micros::from_millis(250);
const NAMES_MAX: usize = 6;

impl Transactions {
    pub fn remedy(&self, device: &DeviceName, sightings: &Sightings) -> Remedy {
        let deferred = self.ledger.deferred.contains_key(device);
        match (&self.ledger.open, &self.ledger.pending) {
            (Some(open), _) => Remedy::Over(open.intent.txn),
            _ if !sightings.is_read(device) => Remedy::Answer { deferred },
            (None, Some(pending)) => Remedy::Decide(pending.txn),
            (None, None) => {
                let mut devices = sightings.devices().values();
                Remedy::Adopt { apply: devices.all(|seen| seen.is_read()) }
            }
        }
    }

    pub(super) fn on_its_way(&self, cx: &Context<'_>) -> Option<String> {
        let txn = self.ledger.open.as_ref()?.intent.txn;
        let waits: Vec<String> = self
            .waits_for(cx.now, cx.sightings)
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

    pub fn waits_for(&self, now: &Now, sightings: &Sightings) -> BTreeMap<DeviceName, Micros> {
        let waits = self.drive.iter().flat_map(|drive| drive.waits_for());
        let unreachable = waits.filter_map(|(device, until)| {
            let flight = sightings.devices().get(&device).and_then(|seen| seen.in_flight());
            let is_slow = flight.is_some_and(|flight| flight.asked + ANSWERS_WITHIN < now.mono);
            let last = flight.map_or(Micros(0), |flight| flight.deadline);
            (is_slow || !sightings.is_read(&device)).then(|| (device, until.max(last) - now.mono))
        });
        unreachable.collect()
    }

    pub(super) fn changes_back(
        &self,
        back: &mut Apply,
        sightings: &Sightings,
    ) -> Result<BTreeMap<DeviceName, Vec<Move>>, Vec<String>> {
        back.target.retain(|device, _| sightings.devices().contains_key(device));
        back.on_failure = Some(OnFailure::Hold);
        let assumed: BTreeMap<DeviceName, Observation> = back
            .target
            .keys()
            .filter(|device| !sightings.is_read(device))
            .map(|device| {
                let positions = self.ledger.belongs(device).into_owned();
                (device.clone(), Observation { positions, ..Observation::default() })
            })
            .collect();
        let changes = change::difference(&back.target, back.mode, |device: &DeviceName| {
            let known = self.known(device, sightings)?;
            let observed = known.observed.or_else(|| assumed.get(device));
            Some(Known { observed, ..known })
        });
        let changes = changes.map_err(|objections| change::in_words(&objections))?;
        back.target.retain(|device, _| sightings.is_read(device) || changes.contains_key(device));
        Ok(changes)
    }

    fn is_ready(&self, device: &DeviceName, deferred: &Deferred, sightings: &Sightings) -> bool {
        static NOTHING: Positions = Positions::new();
        let owned = self.ledger.owned.get(device).unwrap_or(&NOTHING);
        sightings.reading(device).is_some_and(|read| {
            deferred.explains(&read.positions, owned)
                || sightings.inventory().on_drift == OnDrift::Restore
        })
    }

    pub fn is_brought_back(&self, device: &DeviceName, sightings: &Sightings) -> bool {
        self.ledger.deferred.get(device).is_some_and(|deferred| {
            !sightings.is_read(device) || self.is_ready(device, deferred, sightings)
        })
    }

    fn tries(&self, device: &DeviceName) -> Tries {
        self.tries.get(device).copied().unwrap_or_default()
    }

    pub(crate) fn deferred_at(&self, sightings: &Sightings) -> Option<Micros> {
        let deferred = self.ledger.deferred.iter().filter(|_| self.is_free());
        let ready = deferred.filter(|(device, one)| self.is_ready(device, one, sightings));
        ready.map(|(device, _)| self.tries(device).next).min()
    }

    pub(crate) fn complete_deferred(&mut self, cx: &mut Context<'_>) -> Option<Decision> {
        let mut deferred = self.ledger.deferred.iter().filter(|_| self.is_free());
        let (device, deferred) = deferred.find(|(device, one)| {
            self.is_ready(device, one, cx.sightings) && self.tries(device).next <= cx.now.mono
        })?;
        let mut apply = Apply {
            target: [(device.clone(), deferred.to.clone())].into(),
            mode: Mode::Update,
            cause: Some(Cause::Deferred(deferred.txn)),
            plan_sha256: self.ledger.plan_sha256.clone(),
            ..Apply::default()
        };
        let tries = self.tries.entry(device.clone()).or_default();
        tries.next = cx.now.mono + Micros::from_secs(8u64.saturating_pow(tries.count).min(1_800));
        tries.count += 1;
        let changes = self.changes_back(&mut apply, cx.sightings).ok()?;
        let request = format!("owed-{}", self.ledger.last_txn.0 + 1);
        Some(self.begin(cx, own(Policy::Undo, request), apply, changes))
    }

    pub(crate) fn confirm_too_late(&mut self, cx: &mut Context<'_>) -> Option<Decision> {
        let txn = self.ledger.pending.as_ref()?.txn;
        let asked = own(Policy::ConfirmTimeout, format!("confirm-timeout-{txn}"));
        let back = self.led_back(txn, Cause::ConfirmTimeout(txn)).ok()?;
        Some(self.undo(cx, asked, back))
    }
}
