// SPDX-License-Identifier: Apache-2.0
//! The circuits of the plan, and how many of them are established.

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
    /// Both ends stand at it.
    pub stands: bool,
}

/// Circuits of the plan that do not stand, where nothing else in the status explains it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DarkCircuits {
    /// How many circuits of the plan stand at both ends.
    pub standing: usize,
    /// How many it has.
    pub circuits: usize,
    /// The ends that stand elsewhere, such as `n17/b0.2`.
    pub ends: Vec<String>,
    /// What to do: only what would be accepted now.
    pub next: String,
}

/// That no plan is applied and nothing is lit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct NoPlan {
    /// How many circuits are lit that belong to none.
    pub lit: usize,
    /// What to do: only what would be accepted now.
    pub next: String,
}

/// How many circuits between modules stand at both ends, before a change and after it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct CircuitCounts {
    /// Now, as the modules were last read.
    pub before: usize,
    /// Once everything that moves is there and nothing else has moved.
    pub after: usize,
}
