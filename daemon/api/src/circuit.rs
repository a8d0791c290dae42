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

/// A loopback that closes a ring of the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LoopbackView {
    /// The bundle, such as `n17/b0`.
    pub bundle: String,
    /// It is at loopback.
    pub stands: bool,
}

/// Positions of the plan that were read elsewhere, where nothing else in the status explains it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DarkCircuits {
    /// How many circuits of the plan are up, loopbacks that close a ring included.
    pub standing: usize,
    /// How many it has.
    pub circuits: usize,
    /// Their ends that are elsewhere, such as `n17/b0.2`, or `n17/b0 (loopback)`.
    pub ends: Vec<String>,
    /// Other positions that differ: `n18/b0 at external-1, planned loopback`.
    pub elsewhere: Vec<String>,
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
