// SPDX-License-Identifier: Apache-2.0
//! Plans in the journal, under the name that changes use, and verified against their digest
//! whenever they are read.

use std::sync::Arc;

use lightloom_fabric::plan::{Plan, PlanChange, digest, is_called};
use serde::{Deserialize, Serialize, Serializer};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct KeptPlan {
    /// SHA-256: its digest, or the name from an earlier version or a fat-tree's document.
    sha256: String,
    /// Its digest, if that is not its name.
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
    /// Names a plan by its digest.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self { sha256: digest(&plan), digest: None, plan: Arc::new(plan) }
    }

    /// Creates it from a plan with a known digest.
    pub(crate) fn of_digest(sha256: String, plan: Plan) -> Self {
        Self { sha256, digest: None, plan: Arc::new(plan) }
    }

    /// Gives a plan another name.
    #[must_use]
    pub fn called(sha256: String, plan: Plan) -> Self {
        let found = digest(&plan);
        let digest = (found != sha256).then_some(found);
        Self { sha256, digest, plan: Arc::new(plan) }
    }

    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns its size in entries of about 100 bytes.
    #[must_use]
    pub fn entries(&self) -> usize {
        let Plan { ranks, transceivers, circuits, groups, phases, .. } = &*self.plan;
        let of_phases: usize = phases.iter().map(|phase| phase.circuits.len()).sum();
        1 + ranks.len() + transceivers.len() + circuits.len() + groups.len() + of_phases
    }
}

/// A plan stored as the difference from another kept plan. A plan around a fault differs only a
/// little.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FollowingPlan {
    pub after: String,
    pub sha256: String,
    change: PlanChange,
    /// The plan itself, if it was just made.
    #[serde(skip)]
    made: Option<KeptPlan>,
}

impl FollowingPlan {
    /// Stores a plan as a difference; `None` if its name is not its digest.
    #[must_use]
    pub fn new(plan: &KeptPlan, after: &KeptPlan) -> Option<Self> {
        let change = PlanChange::between(&after.plan, &plan.plan);
        let (after, sha256) = (after.sha256.clone(), plan.sha256.clone());
        let made = Some(plan.clone());
        plan.digest.is_none().then_some(Self { after, sha256, change, made })
    }

    /// Restores the plan from the other one; `None` if the result does not match the digest.
    #[must_use]
    pub fn plan(&self, after: &KeptPlan) -> Option<KeptPlan> {
        if let Some(made) = &self.made {
            return Some(made.clone());
        }
        let plan = self.change.of(&after.plan)?;
        let digest = digest(&plan);
        (digest == self.sha256).then(|| KeptPlan::of_digest(digest, plan))
    }
}

impl PartialEq for FollowingPlan {
    fn eq(&self, other: &Self) -> bool {
        (&self.after, &self.sha256) == (&other.after, &other.sha256)
    }
}

impl Eq for FollowingPlan {}

/// Equal digests mean equal plans.
impl PartialEq for KeptPlan {
    fn eq(&self, other: &Self) -> bool {
        (&self.sha256, &self.digest) == (&other.sha256, &other.digest)
    }
}

impl Eq for KeptPlan {}
