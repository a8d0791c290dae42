// SPDX-License-Identifier: Apache-2.0
//! Phase requests from jobs, and their state.

use serde::{Deserialize, Serialize};

use crate::words::words;

/// A request for a phase of the plan in force, under the job's lease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PhaseBody {
    /// Idempotency key chosen by the client: a repeated request takes effect only once.
    pub request_id: String,
    /// Name of the phase in the plan.
    pub phase: String,
    /// Time until the job needs the circuits, in milliseconds.
    #[serde(default)]
    pub in_ms: u64,
    /// Minimum time that the job needs the circuits, in milliseconds.
    pub for_ms: u64,
    /// Duration of the lease, during which other jobs cannot request a phase, in milliseconds; at
    /// least `in_ms` plus `for_ms`.
    pub lease_ms: u64,
    /// The job that holds the lease. A client may run several jobs.
    #[serde(default)]
    pub job: String,
    /// Digest of the expected plan, or at least its first 8 digits. Omitted: any plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// Releases a lease and cancels its pending requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReleaseBody {
    /// Idempotency key chosen by the client.
    pub request_id: String,
    /// The job that holds the lease.
    #[serde(default)]
    pub job: String,
}

words! {
    /// The state of a requested phase.
    PhaseState {
        /// The transition has not started yet.
        Waiting,
        /// The circuits are being established.
        Moving,
        /// The circuits are lit, read back and qualified.
        Lit,
        /// The previous circuits stay lit because the phase is too short for the transition.
        Kept,
        /// Not executed. The previous circuits stay lit unless `reason` states something else.
        Missed,
    }
}

/// A requested phase and its progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct PhaseStatus {
    /// Request id.
    pub request_id: String,
    /// The requesting job.
    pub job: String,
    /// Name of the phase.
    pub phase: String,
    /// State of the request.
    pub state: PhaseState,
    /// Why the previous circuits were kept, or why the request was missed.
    pub reason: Option<String>,
    /// Remedy.
    pub fix: Option<String>,
    /// The transaction, after it has started.
    pub txn: Option<u32>,
    /// Digest of the plan in force.
    pub revision: String,
    /// The phase whose circuits are lit now. `None` if other circuits are lit.
    pub lit: Option<String>,
    /// The phase whose circuits were lit before the request.
    pub from: Option<String>,
    /// Expected duration of the transition, in milliseconds.
    pub expected_ms: f64,
    /// Dark time of the transition in the plan, in milliseconds. `None` without such a transition.
    pub stated_ms: Option<f64>,
    /// Time from the first switching command until the last circuit was qualified, in milliseconds.
    pub dark_ms: Option<f64>,
    /// Time from the start of the transaction until the acknowledgement, in milliseconds.
    pub took_ms: Option<f64>,
    /// Minimum duration of the phase that would have justified the transition, in milliseconds.
    pub needs_ms: Option<f64>,
    /// The next phase, with the expected transition time.
    pub next: Option<NextPhase>,
    /// Remaining lease time of the job. `None` without a lease.
    pub lease_left_ms: Option<f64>,
}

/// The phase that follows in the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct NextPhase {
    /// Name of the phase.
    pub phase: String,
    /// Expected duration of the transition into it, in milliseconds.
    pub expected_ms: f64,
}

/// The phases of the plan in force, and the scheduled requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Phases {
    /// Digest of the plan in force; empty without one.
    pub revision: String,
    /// The phase whose circuits are lit now.
    pub lit: Option<String>,
    /// The phases in plan order.
    pub phases: Vec<PhaseOfPlan>,
    /// The transitions that the plan defines.
    pub ways: Vec<WayOfPlan>,
    /// The current lease on the circuits.
    pub lease: Option<LeaseStatus>,
    /// Pending and running requests in chronological order.
    pub waiting: Vec<PhaseStatus>,
}

/// A phase of the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct PhaseOfPlan {
    /// Name of the phase.
    pub name: String,
    /// Number of circuits.
    pub circuits: usize,
}

/// A transition between two phases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct WayOfPlan {
    /// Phase before the transition.
    pub from: String,
    /// Phase after it.
    pub to: String,
    /// Number of stages.
    pub stages: usize,
    /// Dark time according to the plan, in milliseconds.
    pub stated_ms: f64,
    /// Longest recent duration from start to acknowledgement, in milliseconds.
    pub measured_ms: Option<f64>,
}

/// A job's exclusive claim on the circuits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LeaseStatus {
    /// The job.
    pub job: String,
    /// The client that runs it.
    pub actor: String,
    /// Remaining time, in milliseconds.
    pub left_ms: f64,
}
