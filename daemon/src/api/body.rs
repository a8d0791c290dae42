// SPDX-License-Identifier: Apache-2.0

use serde::Deserialize;

use lightloom_daemon_api::body::{
    self, AdoptBody, DevicesBody, FaultBody, ResumeBody, RollbackBody, TxnBody,
};
use lightloom_daemon_api::phase::{PhaseBody, ReleaseBody};

use super::document::PlanDocument;
use super::reading::{Described, Field, Wanted};

pub type ApplyBody = body::ApplyBody<PlanDocument>;

const REQUEST_ID: Field = Field::must("request_id", Wanted::Text);
const REQUEST_ID_OR_NOT: Field = Field::may("request_id", Wanted::Text);
const CONFIRM_WITHIN: Field =
    Field::may("confirm_within_ms", Wanted::Whole("milliseconds, at most a week"));
const TXN: Field = Field::must("txn", Wanted::Whole("the transaction"));

impl Described for ApplyBody {
    const FIELDS: &'static [Field] = &[
        REQUEST_ID_OR_NOT,
        Field::may("plan", Wanted::Plan),
        Field::may("again", Wanted::Flag),
        Field::may("restore", Wanted::Flag),
        Field::may("phase", Wanted::Text),
        Field::may("target", Wanted::Target),
        Field::may("mode", Wanted::Word(&["safe", "update", "overwrite"])),
        Field::may("expected_version", Wanted::Whole("the version that the client has read")),
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
        Field::may("in_ms", Wanted::Whole("milliseconds until the phase needs its circuits")),
        Field::must("for_ms", Wanted::Whole("minimum duration of the phase in milliseconds")),
        Field::must(
            "lease_ms",
            Wanted::Whole(
                "milliseconds during which no other job can request \
            a phase",
            ),
        ),
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

impl Described for AdoptBody {
    const FIELDS: &'static [Field] = &[
        REQUEST_ID,
        Field::must("devices", Wanted::Texts(r#"["n17/b0", "ocs0"]"#)),
        Field::may("against_plan", Wanted::Flag),
    ];
    const EXAMPLE: &'static str = r#"{"request_id": "mine-1", "devices": ["all"]}"#;
}

impl Described for ResumeBody {
    const FIELDS: &'static [Field] = &[REQUEST_ID];
    const EXAMPLE: &'static str = r#"{"request_id": "mine-1"}"#;
}

impl Described for FaultBody {
    const FIELDS: &'static [Field] = &[
        REQUEST_ID_OR_NOT,
        Field::may("broken", Wanted::Texts(r#"["n17", "n9/b0", "n3/b0.2"]"#)),
        Field::may("repaired", Wanted::Texts(r#"["n17"]"#)),
    ];
    const EXAMPLE: &'static str = r#"{"request_id": "mine-1", "broken": ["n17"]}"#;
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Wait {
    #[serde(default)]
    pub(super) wait_ms: u64,
    pub(super) since: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Last {
    #[serde(default)]
    pub(super) last: Option<usize>,
}
