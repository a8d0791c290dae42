// SPDX-License-Identifier: Apache-2.0
//! Plans that survive a restart: all that a rollback may need, and older ones that fit.

use std::collections::BTreeSet;
use std::sync::Arc;

use lightloom_fabric::plan::Plan;

use super::Ledger;
use crate::record::Record;

/// About 12 MB, which is enough for one plan of 131,072 GPUs or a thousand plans of 64 nodes.
pub const PLAN_ENTRIES_MAX: usize = 131_072;
/// Finding unused plans requires reading the whole history.
const DROP_EVERY: u32 = 64;

impl Ledger {
    pub fn plan_named(&self, sha256: &str) -> Option<&Arc<Plan>> {
        self.plans.get(sha256).map(|kept| kept.plan())
    }

    pub fn plans_needed(&self) -> BTreeSet<&str> {
        let pending = self.pending.as_ref().map(|pending| pending.txn);
        let waits = self.history.iter().rev().find(|past| Some(past.txn) == pending);
        let back = self.history.back().into_iter().chain(waits);
        let back = back.flat_map(|p| [&p.plan_sha256, &p.plan_before, &p.applied_before]);
        let open = self.open.iter().map(|open| &open.intent.plan_sha256);
        let now = [&self.plan_sha256, &self.applied_sha256];
        let needed = now.into_iter().chain(open).chain(back).map(String::as_str);
        needed.filter(|name| !name.is_empty()).collect()
    }

    pub(super) fn drop_plans(&mut self) {
        let held: usize = self.plans.values().map(|kept| kept.entries()).sum();
        if held <= PLAN_ENTRIES_MAX && !self.last_txn.0.is_multiple_of(DROP_EVERY) {
            return;
        }
        let mut keep = self.plans_needed();
        let mut entries = 0;
        let past = self.history.iter().rev();
        let names = past.flat_map(|p| [&p.plan_sha256, &p.plan_before, &p.applied_before]);
        for name in names.map(String::as_str).filter(|name| !name.is_empty()) {
            let Some(kept) = self.plans.get(name).filter(|_| !keep.contains(name)) else {
                continue;
            };
            entries += kept.entries();
            if entries > PLAN_ENTRIES_MAX {
                break;
            }
            keep.insert(name);
        }
        let keep: BTreeSet<String> = keep.into_iter().map(str::to_owned).collect();
        self.plans.retain(|name, _| keep.contains(name));
    }

    /// `after` is the hash of the other journal's last line.
    pub fn begun_anew(&self, after: String) -> Vec<Record> {
        let mut ledger = self.clone();
        let plans = std::mem::take(&mut ledger.plans).into_values();
        let snapshot = Record::Snapshot { after, ledger: Box::new(ledger) };
        std::iter::once(snapshot).chain(plans.map(Record::Plan)).collect()
    }
}
