// SPDX-License-Identifier: Apache-2.0
//! The limit on automatic changes. Each change that took effect is counted. A change that was
//! rolled back is counted once, because the [backoff](crate::bypass::Backoff) limits its retries. A
//! change without moves is not counted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Controller, OWN_CHANGES_MAX, OWN_CHANGES_WINDOW};
use crate::actor::Actor;
use crate::drive::PartEnd;
use crate::ledger::{Ledger, Past};
use crate::record::{Cause, TxnResult};
use crate::state::{DeviceName, Micros, Now};

#[derive(Clone, Debug)]
pub(super) struct OwnChange {
    at: Micros,
    back: Option<BTreeSet<DeviceName>>,
}

impl OwnChange {
    fn new(at: Micros, result: TxnResult, parts: &BTreeMap<DeviceName, PartEnd>) -> Option<Self> {
        match result {
            TxnResult::Committed | TxnResult::Partial => Some(Self { at, back: None }),
            TxnResult::RolledBack => Some(Self { at, back: Some(parts.keys().cloned().collect()) }),
            TxnResult::Aborted => None,
        }
    }
}

impl Controller {
    #[must_use]
    pub fn may_act_alone(&self, now: &Now) -> bool {
        self.own_changes_spent(now) < OWN_CHANGES_MAX
    }

    #[must_use]
    pub fn own_changes_spent(&self, now: &Now) -> usize {
        let recent = self.own_changes.iter().filter(|own| own.at + OWN_CHANGES_WINDOW > now.mono);
        let (stayed, back): (Vec<_>, Vec<_>) = recent.partition(|own| own.back.is_none());
        stayed.len() + back.iter().map(|own| &own.back).collect::<BTreeSet<_>>().len()
    }

    pub(super) fn count_own_change(
        &mut self,
        now: &Now,
        result: TxnResult,
        parts: &BTreeMap<DeviceName, PartEnd>,
    ) {
        let Some(open) = &self.ledger.open else { return };
        if !is_own_change(&open.intent.asked.actor, &open.intent.cause) {
            return;
        }
        self.own_changes.retain(|own| own.at + OWN_CHANGES_WINDOW > now.mono);
        let own = OwnChange::new(now.mono, result, parts);
        self.own_changes.retain(|known| {
            known.back.is_none() || own.as_ref().is_none_or(|own| own.back != known.back)
        });
        self.own_changes.extend(own);
    }
}

fn is_own_change(actor: &Actor, cause: &Cause) -> bool {
    matches!(cause, Cause::Bypass | Cause::Drift) && actor.is_policy()
}

pub(super) fn own_changes(ledger: &Ledger, now: &Now) -> VecDeque<OwnChange> {
    let own = |past: &&Past| is_own_change(&past.actor, &past.cause);
    let age = |past: &Past| Micros::from_millis(now.wall_ms.saturating_sub(past.wall_ms));
    let counts = |past: &&Past| ledger.resumed_after.is_none_or(|resumed| past.txn > resumed);
    let recent = ledger.history.iter().filter(own).filter(counts);
    let recent = recent.filter(|past| age(past) < OWN_CHANGES_WINDOW);
    recent.filter_map(|p| OwnChange::new(now.mono - age(p), p.result, &p.parts)).collect()
}
