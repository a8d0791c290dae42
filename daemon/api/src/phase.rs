// SPDX-License-Identifier: Apache-2.0
//! Circuits that follow a job: a phase that is asked for, and how it stands.

use serde::{Deserialize, Serialize};

use crate::words::words;

/// A phase of the plan on the devices: in so many milliseconds, for at least so many, under a lease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PhaseBody {
    /// Chosen by the client: sent again, it acts once.
    pub request_id: String,
    /// The phase by its name in the plan.
    pub phase: String,
    /// From now until its circuits are wanted.
    #[serde(default)]
    pub in_ms: u64,
    /// They are used for at least so long.
    pub for_ms: u64,
    /// No other job is given a phase for so long; at least `in_ms` and `for_ms` together.
    pub lease_ms: u64,
    /// The job that holds the lease; one client may run several.
    #[serde(default)]
    pub job: String,
    /// The digest of the plan that the job counts on, or its first 8 digits or more; any plan if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// A lease that is given up, and what waits under it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReleaseBody {
    /// Chosen by the client.
    pub request_id: String,
    /// The job that holds the lease.
    #[serde(default)]
    pub job: String,
}

words! {
    /// How a phase stands that was asked for.
    PhaseState {
        /// It begins later.
        Waiting,
        /// Its circuits are on their way.
        Moving,
        /// Acknowledged: its circuits have light, read back and qualified.
        Lit,
        /// The circuits of before stay: it is too short for the way into it.
        Kept,
        /// Nothing was made of it; the circuits of before stay where `reason` names no other.
        Missed,
    }
}

/// A phase that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct PhaseStatus {
    /// The id of the request.
    pub request_id: String,
    /// The job that asked.
    pub job: String,
    /// The phase.
    pub phase: String,
    /// How it stands.
    pub state: PhaseState,
    /// Why, where it is kept or missed.
    pub reason: Option<String>,
    /// What to do about it.
    pub fix: Option<String>,
    /// Its transaction, if one has begun.
    pub txn: Option<u32>,
    /// The digest of the plan on the devices.
    pub revision: String,
    /// The phase whose circuits have light now; `None` if other circuits have.
    pub lit: Option<String>,
    /// The phase that had light before.
    pub from: Option<String>,
    /// How long the way into it is expected to take.
    pub expected_ms: f64,
    /// How long the plan says that circuits are dark on that way; `None` if it has no such way.
    pub stated_ms: Option<f64>,
    /// From the first command that moves light until the last circuit was qualified.
    pub dark_ms: Option<f64>,
    /// From the beginning of its transaction until it was acknowledged.
    pub took_ms: Option<f64>,
    /// How long it would have to last for its circuits to be made, where it is kept.
    pub needs_ms: Option<f64>,
    /// The phase after it, and how long before it is wanted to ask for it.
    pub next: Option<NextPhase>,
    /// How much longer the job has the lease; `None` if it has none.
    pub lease_left_ms: Option<f64>,
}

/// The phase that the plan names next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct NextPhase {
    /// Its name.
    pub phase: String,
    /// How long the way into it is expected to take.
    pub expected_ms: f64,
}

/// The phases of the plan on the devices, and what is scheduled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Phases {
    /// The digest of the plan on the devices; empty without one.
    pub revision: String,
    /// The phase whose circuits have light now.
    pub lit: Option<String>,
    /// The phases in their order.
    pub phases: Vec<PhaseOfPlan>,
    /// The ways between them that the plan states.
    pub ways: Vec<WayOfPlan>,
    /// Whose the circuits are.
    pub lease: Option<LeaseStatus>,
    /// What waits or moves, in its order in time.
    pub waiting: Vec<PhaseStatus>,
}

/// A phase of the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct PhaseOfPlan {
    /// Its name.
    pub name: String,
    /// How many circuits it has.
    pub circuits: usize,
}

/// A way between two phases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct WayOfPlan {
    /// From this phase.
    pub from: String,
    /// To this one.
    pub to: String,
    /// In so many stages.
    pub stages: usize,
    /// How long the plan says that circuits are dark.
    pub stated_ms: f64,
    /// The longest that it took of late, from the beginning until it was acknowledged.
    pub measured_ms: Option<f64>,
}

/// A job's word that the circuits are its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LeaseStatus {
    /// The job.
    pub job: String,
    /// Its client.
    pub actor: String,
    /// For so much longer.
    pub left_ms: f64,
}
