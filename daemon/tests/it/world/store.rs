// SPDX-License-Identifier: Apache-2.0
//! Plans beside the journal, in memory; they survive the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use lightloom_control::policy::PlanStore;
use lightloom_fabric::plan::Plan;

/// Handles to one folder of plans.
#[derive(Clone, Default)]
pub(crate) struct Store(Arc<Mutex<BTreeMap<String, Plan>>>);

impl PlanStore for Store {
    fn load(&self, sha256: &str) -> Option<Plan> {
        self.0.lock().ok()?.get(sha256).cloned()
    }
    fn keep(&mut self, sha256: &str, plan: &Plan) {
        if let Ok(mut plans) = self.0.lock() {
            plans.insert(sha256.to_owned(), plan.clone());
        }
    }
    fn retain(&mut self, spoken_of: &BTreeSet<String>) {
        if let Ok(mut plans) = self.0.lock() {
            plans.retain(|sha256, _| spoken_of.contains(sha256));
        }
    }
}
