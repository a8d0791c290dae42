// SPDX-License-Identifier: Apache-2.0
//! What clients send.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
/// JSON as it stands in a file: a client sends a plan so, without reading it.
pub use serde_json::value::RawValue;

/// How much an apply may disturb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Refuse when a slot differs from the journal or a circuit of somebody else is in the way.
    #[default]
    Safe,
    /// Move what the target names from wherever it is.
    Update,
    /// Make each named device exactly the target: everything else on it goes dark.
    Overwrite,
    /// Of a `target`: move slots that carry no circuit, all at once, take what arrives there as it is, and read every
    /// device that is named.
    Probe,
}

/// What to do when a device does not get to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// Bring every device that moved back to where it was.
    Rollback,
    /// Leave every device where it is and report it.
    Hold,
}

/// A wanted state: a plan, or positions device by device.
///
/// `P` is the plan document: the daemon reads it, a client sends it as it is in its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "schema",
    schema(bound = "", description = "A wanted state: a plan, or positions device by device.")
)]
#[serde(deny_unknown_fields)]
pub struct ApplyBody<P> {
    /// Chosen by the client: sent again, it acts once.
    #[serde(default)]
    pub request_id: String,
    /// A plan document.
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub plan: Option<P>,
    /// Or the plan that was applied last, once more, from the daemon's own copy.
    #[serde(default)]
    pub again: bool,
    /// Or what the journal says, on every device that answers and stands elsewhere.
    #[serde(default)]
    pub restore: bool,
    /// Which phase of a plan with phases.
    #[serde(default)]
    pub phase: Option<String>,
    /// Or device, slot, position; 0 is dark. Slots we own on these devices and not named go dark.
    #[serde(default)]
    pub target: Option<BTreeMap<String, BTreeMap<u32, u32>>>,
    /// safe, update, overwrite or probe.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub mode: Mode,
    /// The version that was looked at.
    #[serde(default)]
    pub expected_version: Option<u64>,
    /// Undo it unless confirmed within this time.
    #[serde(default)]
    pub confirm_within_ms: Option<u64>,
    /// rollback or hold; the daemon's policy where it is left out.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub on_failure: Option<OnFailure>,
    /// For overwrite: what the diff says to type.
    #[serde(default)]
    pub confirmation: Option<String>,
}

/// Derived, it would ask a default of the plan document as well.
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

/// A request about one transaction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TxnBody {
    /// Chosen by the client.
    pub request_id: String,
    /// Which transaction.
    pub txn: u32,
}

/// A way back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RollbackBody {
    /// Chosen by the client; a preview needs none.
    #[serde(default)]
    pub request_id: String,
    /// Undo this transaction and everything after it.
    pub txn: u32,
    /// Undo the rollback unless confirmed within this time.
    #[serde(default)]
    pub confirm_within_ms: Option<u64>,
}

/// A request about devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DevicesBody {
    /// Chosen by the client.
    pub request_id: String,
    /// Devices; a node `n17` names all of its.
    pub devices: Vec<String>,
}

/// Devices whose light is taken as ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AdoptBody {
    /// Chosen by the client.
    pub request_id: String,
    /// Devices or nodes, or `all` that answer.
    pub devices: Vec<String>,
    /// Also where that takes positions away from the plan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub against_plan: bool,
}

/// A request about nothing in particular.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResumeBody {
    /// Chosen by the client.
    pub request_id: String,
}

/// Parts that broke or work again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FaultBody {
    /// Chosen by the client; a preview needs none.
    #[serde(default)]
    pub request_id: String,
    /// What broke: `n17`, `n17/b0`, `n17/b0.2`.
    #[serde(default)]
    pub broken: Vec<String>,
    /// What works again.
    #[serde(default)]
    pub repaired: Vec<String>,
}
