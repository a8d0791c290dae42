// SPDX-License-Identifier: Apache-2.0

use std::fmt;

use crate::messages::Answer;
use crate::record::{Asked, TxnResult};
use crate::state::{Micros, Txn};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    pub job: String,
    pub phase: String,
    pub within: Micros,
    pub least: Micros,
    pub lease: Micros,
    /// Digest of the plan that the job expects, or its first digits; `None` accepts any plan.
    pub revision: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no plan with circuits is applied")]
    NoPlan,
    #[error("the plan has no phase `{phase}`; it has {known}")]
    NoSuchPhase { phase: String, known: String },
    #[error("the plan in force is {found}, but the request expects {counted_on}")]
    OtherPlan { found: String, counted_on: String },
    #[error("transaction {0} awaits confirmation, and no other change can start until then")]
    WaitsForConfirm(Txn),
    #[error("the job `{job}` of {actor} has the lease for another {} ms", .left.0.div_ceil(1000))]
    LeaseHeld { job: String, actor: String, left: Micros },
    #[error("the lease of {} ms ends before the phase does", .lease.0 / 1000)]
    LeaseTooShort { lease: Micros, needs: Micros },
    #[error("`{field}` is {ms} ms, and {what}")]
    OutOfRange { field: &'static str, ms: u64, what: &'static str },
    #[error("phase {phase} is scheduled until {} ms from now", .free.0.div_ceil(1000))]
    Overlaps { phase: String, free: Micros },
    #[error("{0} phases are already waiting")]
    TooMany(usize),
    #[error("changes are currently refused: {0}")]
    NoJournal(String),
    #[error("request id `{0}` has already been used for a different request")]
    OtherRequest(String),
}

impl Refusal {
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoPlan => "no-plan",
            Self::NoSuchPhase { .. } => "no-such-phase",
            Self::OtherPlan { .. } => "other-plan",
            Self::WaitsForConfirm(_) => "waits-for-confirm",
            Self::LeaseHeld { .. } => "lease-held",
            Self::LeaseTooShort { .. } => "lease-too-short",
            Self::OutOfRange { .. } => "out-of-range",
            Self::Overlaps { .. } => "overlaps",
            Self::TooMany(_) => "too-many",
            Self::NoJournal(_) => "no-journal",
            Self::OtherRequest(_) => "other-request",
        }
    }

    pub(crate) fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::OtherPlan { .. }
                | Self::WaitsForConfirm(_)
                | Self::LeaseHeld { .. }
                | Self::Overlaps { .. }
                | Self::TooMany(_)
                | Self::OtherRequest(_)
        )
    }

    pub fn answer(&self) -> Answer {
        Answer::PhaseRefused {
            conflict: self.is_conflict(),
            code: self.code().to_owned(),
            reason: self.to_string(),
            fix: self.fix(),
        }
    }

    /// Returns the remedy, with times rounded up to milliseconds.
    pub fn fix(&self) -> String {
        match self {
            Self::NoPlan => "apply one: lightloom ctl apply PLAN --phase NAME".into(),
            Self::NoSuchPhase { .. } => "use one of these".into(),
            Self::OtherPlan { .. } => {
                "read `GET /v1/phases` again, place ranks as in that plan, and send its `revision`"
                    .into()
            }
            Self::WaitsForConfirm(txn) => {
                format!("lightloom ctl confirm {txn}, or lightloom ctl rollback {txn}")
            }
            Self::LeaseHeld { left, .. } => {
                format!("retry in {} ms, or let that job release its lease", left.0.div_ceil(1000))
            }
            Self::LeaseTooShort { needs, .. } => {
                format!(
                    "request a lease of at least {} ms: `in_ms` and `for_ms` together",
                    needs.0.div_ceil(1000)
                )
            }
            Self::OutOfRange { .. } => "use a shorter time".into(),
            Self::Overlaps { free, .. } => {
                format!(
                    "use `in_ms` of at least {}, or release the lease first",
                    free.0.div_ceil(1000)
                )
            }
            Self::TooMany(_) => "retry once the first of them has started".into(),
            Self::NoJournal(_) => "see `lightloom ctl status`".into(),
            Self::OtherRequest(_) => "use a different id for each request".into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Waiting,
    Moving(Txn),
    /// The circuits were read back and qualified. They were already lit if there is no transaction.
    Lit(Option<Txn>),
    /// The phase is too short for the transition, which requires at least this duration.
    Kept(Micros),
    Missed(Missed),
}

impl Standing {
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Waiting | Self::Moving(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missed {
    Released,
    LeaseOver,
    NoTime,
    OtherPlan,
    Refused(Vec<String>),
    Failed(Txn, TxnResult, Vec<String>),
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("the job released its lease"),
            Self::LeaseOver => f.write_str("the lease ended before the phase could begin"),
            Self::NoTime => {
                f.write_str("another change was in progress until the time for this phase was over")
            }
            Self::OtherPlan => f.write_str("another plan has been applied since"),
            Self::Refused(reasons) => f.write_str(&reasons.join("; ")),
            Self::Failed(txn, result, parts) => {
                let result = match result {
                    TxnResult::Committed => "is committed",
                    TxnResult::RolledBack => "was rolled back",
                    TxnResult::Aborted => "moved nothing",
                    TxnResult::Partial => "left devices in different states",
                };
                write!(f, "transaction {txn} {result}")?;
                if parts.is_empty() { Ok(()) } else { write!(f, ": {}", parts.join("; ")) }
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booking {
    pub asked: Asked,
    pub wish: Wish,
    pub plan_sha256: String,
    pub at: Micros,
    pub standing: Standing,
    pub began: Option<Micros>,
    pub fired: Option<Micros>,
    pub ended: Option<Micros>,
    pub from: Option<String>,
    pub expected: Micros,
    pub stated: Option<Micros>,
}

impl Booking {
    pub fn wanted(&self) -> Micros {
        self.at + self.wish.within
    }

    pub fn until(&self) -> Micros {
        self.wanted() + self.wish.least
    }

    pub fn dark(&self) -> Option<Micros> {
        Some(self.ended? - self.fired?)
    }
}
