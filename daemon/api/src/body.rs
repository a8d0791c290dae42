// SPDX-License-Identifier: Apache-2.0
//! Request bodies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
/// Unparsed JSON, used by clients that forward a plan file.
pub use serde_json::value::RawValue;

/// How much of the current state an apply may disturb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Refuse if a slot differs from the journal or a circuit of another owner blocks a move.
    #[default]
    Safe,
    /// Move the target's slots from any position.
    Update,
    /// Make the target's devices match it exactly; all their other slots go dark.
    Overwrite,
    /// Only with a `target`: move slots without circuits at the same time, accept any light, and
    /// read all devices in the target.
    Probe,
}

/// Action when a device does not reach its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// Return all moved devices to their previous state.
    Rollback,
    /// Leave all devices where they are, and report them.
    Hold,
}

/// The desired state: a plan, or explicit positions per device.
///
/// `P` is the plan document, which the daemon parses and clients forward unparsed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "schema",
    schema(bound = "", description = "A desired state: a plan, or positions for each device.")
)]
#[serde(deny_unknown_fields)]
pub struct ApplyBody<P> {
    /// Idempotency key chosen by the client: a repeated request takes effect only once.
    #[serde(default)]
    pub request_id: String,
    /// A plan document.
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub plan: Option<P>,
    /// Alternative: apply the last applied plan again, from the copy in the daemon.
    #[serde(default)]
    pub again: bool,
    /// Alternative: restore all reachable devices that have drifted to their journalled state.
    #[serde(default)]
    pub restore: bool,
    /// Phase to apply, for a plan with phases.
    #[serde(default)]
    pub phase: Option<String>,
    /// Alternative: positions by device and slot; 0 is dark. Slots that the daemon owns on these
    /// devices go dark if they are not in the target.
    #[serde(default)]
    pub target: Option<BTreeMap<String, BTreeMap<u32, u32>>>,
    /// safe, update, overwrite or probe.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub mode: Mode,
    /// Version of the state that the client has read. An outdated version is refused.
    #[serde(default)]
    pub expected_version: Option<u64>,
    /// Roll back unless confirmed within this time, in milliseconds.
    #[serde(default)]
    pub confirm_within_ms: Option<u64>,
    /// rollback or hold. Omitted: the daemon's policy.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub on_failure: Option<OnFailure>,
    /// For overwrite: the confirmation text from the diff.
    #[serde(default)]
    pub confirmation: Option<String>,
}

/// Written manually, because the derive would require `P: Default`.
impl<P> Default for ApplyBody<P> {
    fn default() -> Self {
        Self {
            request_id: String::new(),
            plan: None,
            again: false,
            restore: false,
            phase: None,
            target: None,
            mode: Mode::default(),
            expected_version: None,
            confirm_within_ms: None,
            on_failure: None,
            confirmation: None,
        }
    }
}

/// A request that refers to one transaction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TxnBody {
    /// Idempotency key chosen by the client.
    pub request_id: String,
    /// Transaction number.
    pub txn: u32,
}

/// A rollback request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RollbackBody {
    /// Idempotency key chosen by the client; a preview needs none.
    #[serde(default)]
    pub request_id: String,
    /// Number of the first transaction to undo; all later ones are undone too.
    pub txn: u32,
    /// Revert the rollback unless confirmed within this time, in milliseconds.
    #[serde(default)]
    pub confirm_within_ms: Option<u64>,
}

/// A request that refers to devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DevicesBody {
    /// Idempotency key chosen by the client.
    pub request_id: String,
    /// Device names; a node such as `n17` includes all its devices.
    pub devices: Vec<String>,
}

/// Devices whose current positions the daemon should adopt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AdoptBody {
    /// Idempotency key chosen by the client.
    pub request_id: String,
    /// Devices or nodes, or `all` for all reachable devices.
    pub devices: Vec<String>,
    /// Adopt even if this overrides positions of the plan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub against_plan: bool,
}

/// A request to resume automatic changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResumeBody {
    /// Idempotency key chosen by the client.
    pub request_id: String,
}

/// A report of failed and repaired parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FaultBody {
    /// Idempotency key chosen by the client; a preview needs none.
    #[serde(default)]
    pub request_id: String,
    /// Failed parts: `n17`, `n17/b0`, `n17/b0.2`.
    #[serde(default)]
    pub broken: Vec<String>,
    /// Repaired parts.
    #[serde(default)]
    pub repaired: Vec<String>,
}
