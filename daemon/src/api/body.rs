//! What clients send.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use lightloom_daemon_api::phase::{PhaseBody, ReleaseBody};

use super::document::PlanDocument;
use super::reading::{Described, Field, Wanted};
use lightloom_control::change::Mode;
use lightloom_control::record::OnFailure;

/// A wanted state: a plan, or positions device by device.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyBody {
    /// Chosen by the client: sent again, it acts once.
    #[serde(default)]
    pub request_id: String,
    /// A plan document.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub plan: Option<PlanDocument>,
    /// Or the plan that was applied last, once more, from the daemon's own copy.
    #[serde(default)]
    pub again: bool,
    /// Which phase of a plan with phases.
    #[serde(default)]
    pub phase: Option<String>,
    /// Or device, slot, position; 0 is dark. Slots we own on these devices and not named go dark.
    #[serde(default)]
    pub target: Option<BTreeMap<String, BTreeMap<u32, u32>>>,
    /// safe, update or overwrite.
    #[serde(default)]
    #[schema(value_type = String)]
    pub mode: Mode,
    /// The version that was looked at.
    #[serde(default)]
    pub expected_version: Option<u64>,
    /// Undo it unless confirmed within this time.
    #[serde(default)]
    pub confirm_within_ms: Option<u64>,
    /// rollback or hold; the daemon's policy where it is left out.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub on_failure: Option<OnFailure>,
    /// For overwrite: what the diff says to type.
    #[serde(default)]
    pub confirmation: Option<String>,
}

/// A request about one transaction.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TxnBody {
    /// Chosen by the client.
    pub request_id: String,
    /// Which transaction.
    pub txn: u32,
}

/// A way back.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
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
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DevicesBody {
    /// Chosen by the client.
    pub request_id: String,
    /// Devices; for adopt `all`, for drain and undrain a node `n17` names all of its.
    pub devices: Vec<String>,
}

/// Parts that broke or work again.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
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

/// A request under an id of the client's own choice.
const REQUEST_ID: Field = Field::must("request_id", Wanted::Text);
/// The same, where a preview needs none.
const REQUEST_ID_OR_NOT: Field = Field::may("request_id", Wanted::Text);
const CONFIRM_WITHIN: Field =
    Field::may("confirm_within_ms", Wanted::Whole("milliseconds, a week at most"));
const TXN: Field = Field::must("txn", Wanted::Whole("the transaction"));

impl Described for ApplyBody {
    const FIELDS: &'static [Field] = &[
        REQUEST_ID_OR_NOT,
        Field::may("plan", Wanted::Plan),
        Field::may("again", Wanted::Flag),
        Field::may("phase", Wanted::Text),
        Field::may("target", Wanted::Target),
        Field::may("mode", Wanted::Word(&["safe", "update", "overwrite"])),
        Field::may("expected_version", Wanted::Whole("the version that was looked at")),
        CONFIRM_WITHIN,
        Field::may("on_failure", Wanted::Word(&["rollback", "hold"])),
        Field::may("confirmation", Wanted::Text),
    ];
    const EXAMPLE: &'static str =
        r#"{"request_id": "mine-1", "target": {"ocs0": {"1": 25}}, "confirm_within_ms": 300000}"#;

    fn may_be_long(&self) -> bool {
        self.plan.is_some()
    }
}

impl Described for TxnBody {
    const FIELDS: &'static [Field] = &[REQUEST_ID, TXN];
    const EXAMPLE: &'static str = r#"{"request_id": "mine-1", "txn": 7}"#;
}

impl Described for PhaseBody {
    const FIELDS: &'static [Field] = &[
        REQUEST_ID,
        Field::must("phase", Wanted::Text),
        Field::may("in_ms", Wanted::Whole("milliseconds until its circuits are wanted")),
        Field::must("for_ms", Wanted::Whole("milliseconds that it lasts at least")),
        Field::must("lease_ms", Wanted::Whole("milliseconds that no other job has a phase")),
        Field::may("job", Wanted::Text),
        Field::may("revision", Wanted::Text),
    ];
    const EXAMPLE: &'static str = r#"{"request_id": "step-1", "phase": "experts", "in_ms": 40, "for_ms": 800, "lease_ms": 5000, "job": "train"}"#;
}

impl Described for ReleaseBody {
    const FIELDS: &'static [Field] = &[REQUEST_ID, Field::may("job", Wanted::Text)];
    const EXAMPLE: &'static str = r#"{"request_id": "mine-1", "job": "train"}"#;
}

impl Described for RollbackBody {
    const FIELDS: &'static [Field] = &[REQUEST_ID_OR_NOT, TXN, CONFIRM_WITHIN];
    const EXAMPLE: &'static str = r#"{"request_id": "mine-1", "txn": 7}"#;
}

impl Described for DevicesBody {
    const FIELDS: &'static [Field] =
        &[REQUEST_ID, Field::must("devices", Wanted::Texts(r#"["n17/b0", "ocs0"]"#))];
    const EXAMPLE: &'static str = r#"{"request_id": "mine-1", "devices": ["n17/b0"]}"#;
}

impl Described for FaultBody {
    const FIELDS: &'static [Field] = &[
        REQUEST_ID_OR_NOT,
        Field::may("broken", Wanted::Texts(r#"["n17", "n9/b0", "n3/b0.2"]"#)),
        Field::may("repaired", Wanted::Texts(r#"["n17"]"#)),
    ];
    const EXAMPLE: &'static str = r#"{"request_id": "mine-1", "broken": ["n17"]}"#;
}

/// How long to wait.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Wait {
    /// Milliseconds.
    #[serde(default)]
    pub(super) wait_ms: u64,
}

/// How much of something to show.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Last {
    /// How many, from the end.
    #[serde(default)]
    pub(super) last: Option<usize>,
}
