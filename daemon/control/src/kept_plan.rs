// SPDX-License-Identifier: Apache-2.0
//! A plan as the journal keeps it: under the name by which changes know it, and proven against its digest whenever
//! it is read.

use std::sync::Arc;

use lightloom_fabric::plan::{Plan, digest, is_called};
use serde::{Deserialize, Serialize, Serializer};

/// A plan and the name by which changes know it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct KeptPlan {
    /// SHA-256: its digest, or what an earlier version or the document of a fat-tree called it.
    sha256: String,
    /// Its digest, where that is not its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(serialize_with = "as_plan")]
    plan: Arc<Plan>,
}

fn as_plan<S: Serializer>(plan: &Arc<Plan>, serializer: S) -> Result<S::Ok, S::Error> {
    plan.as_ref().serialize(serializer)
}

#[derive(Deserialize)]
struct Stored {
    sha256: String,
    #[serde(default)]
    digest: Option<String>,
    plan: Plan,
}

impl TryFrom<Stored> for KeptPlan {
    type Error = String;
    fn try_from(stored: Stored) -> Result<Self, String> {
        let Stored { sha256, digest: written, plan } = stored;
        if !is_called(&plan, written.as_ref().unwrap_or(&sha256)) {
            let found = digest(&plan);
            return Err(format!("plan {sha256} does not match its digest: it is {found}"));
        }
        Ok(Self { sha256, digest: written, plan: Arc::new(plan) })
    }
}

impl KeptPlan {
    /// A plan under its digest.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self { sha256: digest(&plan), digest: None, plan: Arc::new(plan) }
    }

    /// A plan under another name.
    #[must_use]
    pub fn called(sha256: String, plan: Plan) -> Self {
        let found = digest(&plan);
        let digest = (found != sha256).then_some(found);
        Self { sha256, digest, plan: Arc::new(plan) }
    }

    /// The name by which changes know it.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// How much it holds, in entries of some 100 bytes each.
    #[must_use]
    pub fn entries(&self) -> usize {
        let Plan { ranks, transceivers, circuits, groups, phases, .. } = &*self.plan;
        let of_phases: usize = phases.iter().map(|phase| phase.circuits.len()).sum();
        1 + ranks.len() + transceivers.len() + circuits.len() + groups.len() + of_phases
    }
}

/// One digest, one plan.
impl PartialEq for KeptPlan {
    fn eq(&self, other: &Self) -> bool {
        (&self.sha256, &self.digest) == (&other.sha256, &other.digest)
    }
}

impl Eq for KeptPlan {}
