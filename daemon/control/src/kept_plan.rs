// SPDX-License-Identifier: Apache-2.0
//! Plans in the journal, verified against their digest on every read.

use std::sync::Arc;

use lightloom_fabric::plan::{Plan, PlanChange, digest};
use serde::{Deserialize, Serialize, Serializer};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct KeptPlan {
    sha256: String,
    #[serde(serialize_with = "as_plan")]
    plan: Arc<Plan>,
}

fn as_plan<S: Serializer>(plan: &Arc<Plan>, serializer: S) -> Result<S::Ok, S::Error> {
    plan.as_ref().serialize(serializer)
}

#[derive(Deserialize)]
struct Stored {
    sha256: String,
    plan: Plan,
}

impl TryFrom<Stored> for KeptPlan {
    type Error = String;
    fn try_from(stored: Stored) -> Result<Self, String> {
        let Stored { sha256, plan } = stored;
        let found = digest(&plan);
        if found != sha256 {
            return Err(format!(
                "plan {sha256} does not match its digest: the digest of its content is {found}"
            ));
        }
        Ok(Self { sha256, plan: Arc::new(plan) })
    }
}

impl KeptPlan {
    pub fn new(plan: Plan) -> Self {
        Self { sha256: digest(&plan), plan: Arc::new(plan) }
    }

    pub(crate) fn of_digest(sha256: String, plan: Plan) -> Self {
        Self { sha256, plan: Arc::new(plan) }
    }

    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    pub(crate) fn entries(&self) -> usize {
        let Plan { ranks, transceivers, circuits, groups, phases, .. } = &*self.plan;
        let of_phases: usize = phases.iter().map(|phase| phase.circuits.len()).sum();
        1 + ranks.len() + transceivers.len() + circuits.len() + groups.len() + of_phases
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FollowingPlan {
    pub after: String,
    pub sha256: String,
    change: PlanChange,
    #[serde(skip)]
    made: Option<KeptPlan>,
}

impl FollowingPlan {
    pub fn new(plan: &KeptPlan, after: &KeptPlan) -> Self {
        let change = PlanChange::between(&after.plan, &plan.plan);
        let (after, sha256) = (after.sha256.clone(), plan.sha256.clone());
        let made = Some(plan.clone());
        Self { after, sha256, change, made }
    }

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

impl PartialEq for KeptPlan {
    fn eq(&self, other: &Self) -> bool {
        self.sha256 == other.sha256
    }
}

impl Eq for KeptPlan {}
