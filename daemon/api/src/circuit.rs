// SPDX-License-Identifier: Apache-2.0
//! The circuits of the plan and their state.

use serde::{Deserialize, Serialize};

/// A circuit of the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct CircuitView {
    /// One end, such as `n17/b0.2`.
    pub a: String,
    /// The other end.
    pub b: String,
    /// Whether both ends are in position.
    pub stands: bool,
}

/// A loopback that closes a ring of the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LoopbackView {
    /// The bundle, such as `n17/b0`.
    pub bundle: String,
    /// Whether the bundle is in loopback.
    pub stands: bool,
}

/// Positions that differ from the plan, for a reason that the status does not show elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DarkCircuits {
    /// Number of planned circuits that are up, including loopbacks that close a ring.
    pub standing: usize,
    /// Number of planned circuits.
    pub circuits: usize,
    /// Ends that are not at their planned position, such as `n17/b0.2` or `n17/b0 (loopback)`.
    pub ends: Vec<String>,
    /// Other positions that differ from the plan, such as `n18/b0 at external-1, planned loopback`.
    pub elsewhere: Vec<String>,
    /// Remedy; lists only commands that would be accepted now.
    pub next: String,
}

/// The lit circuits when no plan is applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct NoPlan {
    /// Number of lit circuits that belong to no plan.
    pub lit: usize,
    /// Remedy; lists only commands that would be accepted now.
    pub next: String,
}

/// Number of circuits between modules with both ends in position, before and after a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct CircuitCounts {
    /// Current number, as last read from the modules.
    pub before: usize,
    /// Number after all moves, without other changes.
    pub after: usize,
}
