// SPDX-License-Identifier: Apache-2.0
//! The limit on bypasses and restored circuits that policies request. Each change that took effect is
//! counted. Repeated rollbacks on the same devices count once, because the
//! [backoff](crate::replan::Backoff) limits retries. An aborted change is not counted.

use std::collections::{BTreeSet, VecDeque};

use crate::actor::Actor;
use crate::ledger::Ledger;
use crate::record::{Cause, Intent, TxnResult};
use crate::state::{DeviceName, Micros, Now};

pub const OWN_CHANGES_MAX: usize = 10;
pub const OWN_CHANGES_WINDOW: Micros = Micros::from_secs(3600);
/// Wait before the next automatic change after one that failed or had no effect.
const AGAIN_IN: Micros = Micros::from_secs(1);

#[derive(Clone, Debug, Default)]
pub struct Budget {
    changes: VecDeque<OwnChange>,
    not_before: Micros,
}

#[derive(Clone, Debug)]
struct OwnChange {
    until: Micros,
    back: Option<BTreeSet<DeviceName>>,
}

impl OwnChange {
    fn new<'a>(
        until: Micros,
        result: TxnResult,
        devices: impl Iterator<Item = &'a DeviceName>,
    ) -> Option<Self> {
        match result {
            TxnResult::Committed | TxnResult::Partial => Some(Self { until, back: None }),
            TxnResult::RolledBack => Some(Self { until, back: Some(devices.cloned().collect()) }),
            TxnResult::Aborted => None,
        }
    }
}

impl Budget {
    pub fn is_left(&self, now: &Now) -> bool {
        self.spent(now) < OWN_CHANGES_MAX
    }

    pub fn spent(&self, now: &Now) -> usize {
        let recent = self.changes.iter().filter(|own| own.until > now.mono);
        let (stayed, back): (Vec<_>, Vec<_>) = recent.partition(|own| own.back.is_none());
        stayed.len() + back.iter().map(|own| &own.back).collect::<BTreeSet<_>>().len()
    }

    pub(crate) fn not_before(&self) -> Micros {
        self.not_before
    }

    pub(crate) fn begins(&mut self, now: &Now) {
        self.not_before = now.mono + AGAIN_IN;
    }

    pub(crate) fn forget(&mut self) {
        self.changes.clear();
    }

    pub(crate) fn recall(&mut self, ledger: &Ledger, now: &Now) {
        let own = ledger.history.iter().filter(|past| {
            ledger.resumed_after.is_none_or(|resumed| past.txn > resumed)
                && is_own_change(&past.actor, &past.cause)
        });
        let changes = own.filter_map(|past| {
            let age = Micros::from_millis(now.wall_ms.saturating_sub(past.wall_ms));
            // The change may be older than the host's uptime, so its own time is not used.
            let until = now.mono + (OWN_CHANGES_WINDOW - age);
            OwnChange::new(until, past.result, past.ends.keys())
        });
        self.changes = changes.collect();
    }

    pub(crate) fn ended(
        &mut self,
        now: &Now,
        intent: &Intent,
        result: TxnResult,
        devices: &BTreeSet<DeviceName>,
    ) {
        if !is_own_change(&intent.asked.actor, &intent.cause) {
            return;
        }
        self.changes.retain(|own| own.until > now.mono);
        let own = OwnChange::new(now.mono + OWN_CHANGES_WINDOW, result, devices.iter());
        self.changes.retain(|known| {
            known.back.is_none() || own.as_ref().is_none_or(|own| own.back != known.back)
        });
        self.changes.extend(own);
    }
}

fn is_own_change(actor: &Actor, cause: &Cause) -> bool {
    matches!(cause, Cause::Bypass | Cause::Repair | Cause::Drift) && actor.is_policy()
}
