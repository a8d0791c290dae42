// SPDX-License-Identifier: Apache-2.0
//! What a job asks for, why it may be refused, and what became of it.

use std::fmt;

use crate::controller::Answer;
use crate::record::{Asked, TxnResult};
use crate::state::{Micros, Txn};

/// A phase that a job asks for: this one within `within`, for at least `least`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The job that holds the lease.
    pub job: String,
    /// The phase by its name in the plan.
    pub phase: String,
    /// Its circuits are wanted from then on.
    pub within: Micros,
    /// And are used for at least so long.
    pub least: Micros,
    /// No other job is given a phase for so long.
    pub lease: Micros,
    /// The digest of the plan that the job counts on, or the start of it; `None` takes any.
    pub revision: Option<String>,
}

/// Why a phase is refused. Nothing was scheduled, and no light moves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no plan with circuits is on the devices")]
    NoPlan,
    #[error("the plan has no phase `{phase}`; it has {known}")]
    NoSuchPhase { phase: String, known: String },
    #[error("the plan on the devices is {found}, and the request counts on {counted_on}")]
    OtherPlan { found: String, counted_on: String },
    #[error("transaction {0} waits for its confirm, and no other change begins before")]
    WaitsForConfirm(Txn),
    #[error("the job `{job}` of {actor} holds the circuits for {} ms more", .left.0.div_ceil(1000))]
    LeaseHeld { job: String, actor: String, left: Micros },
    #[error("the lease of {} ms ends before the phase does", .lease.0 / 1000)]
    LeaseTooShort { lease: Micros, needs: Micros },
    #[error("`{field}` is {ms} ms, and {what}")]
    OutOfRange { field: &'static str, ms: u64, what: &'static str },
    #[error("phase {phase} is scheduled until {} ms from now", .free.0.div_ceil(1000))]
    Overlaps { phase: String, free: Micros },
    #[error("{0} phases wait already")]
    TooMany(usize),
    #[error("nothing is changed now: {0}")]
    NoJournal(String),
    #[error("request id `{0}` was used for another request")]
    OtherRequest(String),
}

impl Refusal {
    /// Its name, for programs.
    #[must_use]
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

    /// Whether another change or another job is in the way, and not the request itself.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
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

    /// What a client is answered.
    #[must_use]
    pub fn answer(&self) -> Answer {
        Answer::PhaseRefused {
            conflict: self.is_conflict(),
            code: self.code().to_owned(),
            reason: self.to_string(),
            fix: self.fix(),
        }
    }

    /// What to do instead.
    #[must_use]
    pub fn fix(&self) -> String {
        let ms = |time: &Micros| time.0.div_ceil(1000);
        match self {
            Self::NoPlan => "apply one: lightloom ctl apply PLAN --phase NAME".into(),
            Self::NoSuchPhase { .. } => "name one of these".into(),
            Self::OtherPlan { .. } => {
                "read `GET /v1/phases` again, place ranks as that plan says, and send its `revision`"
                    .into()
            }
            Self::WaitsForConfirm(txn) => {
                format!("lightloom ctl confirm {txn}, or lightloom ctl rollback {txn}")
            }
            Self::LeaseHeld { left, .. } => {
                format!("ask again in {} ms, or let that job release its lease", ms(left))
            }
            Self::LeaseTooShort { needs, .. } => {
                format!("ask for a lease of at least {} ms: `in_ms` and `for_ms` together", ms(needs))
            }
            Self::OutOfRange { .. } => "write a time within that".into(),
            Self::Overlaps { free, .. } => {
                format!("write `in_ms` of at least {}, or release the lease first", ms(free))
            }
            Self::TooMany(_) => "ask again when the first of them has begun".into(),
            Self::NoJournal(_) => "see `lightloom ctl status`".into(),
            Self::OtherRequest(_) => "give each request an id of its own".into(),
        }
    }
}

/// What became of a phase that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It begins later.
    Waiting,
    /// Its circuits are on their way.
    Moving(Txn),
    /// Its circuits were read back and qualified; without a transaction they had light already.
    Lit(Option<Txn>),
    /// The circuits of before stay: the phase is too short for the way into it. This time would do.
    Kept(Micros),
    /// Nothing was made of it.
    Missed(Missed),
}

impl Standing {
    /// Whether nothing more comes of it.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Waiting | Self::Moving(_))
    }
}

/// Why nothing was made of a phase. The circuits of before have light.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missed {
    /// Its job gave up the lease.
    Released,
    /// The lease was over before it could begin.
    LeaseOver,
    /// Another change was on its way until its time was over.
    NoTime,
    /// Another plan is on the devices.
    OtherPlan,
    /// The change could not begin.
    Refused(Vec<String>),
    /// It began, and did not get there.
    Failed(Txn, TxnResult, Vec<String>),
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("the job released its lease"),
            Self::LeaseOver => f.write_str("the lease was over before it could begin"),
            Self::NoTime => {
                f.write_str("another change was on its way until the time for this was over")
            }
            Self::OtherPlan => f.write_str("another plan is on the devices since"),
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

/// A phase that was asked for, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booking {
    /// Who asked, under which id.
    pub asked: Asked,
    /// For what.
    pub wish: Wish,
    /// The plan then.
    pub plan_sha256: String,
    /// When it was asked for.
    pub at: Micros,
    /// How it stands.
    pub standing: Standing,
    /// When its transaction began.
    pub began: Option<Micros>,
    /// When the first light went dark.
    pub fired: Option<Micros>,
    /// When it was over, or acknowledged.
    pub ended: Option<Micros>,
    /// The phase that had light before.
    pub from: Option<String>,
    /// How long the way into it was expected to take.
    pub expected: Micros,
    /// How long the plan says that it is dark; `None` if it states no such change.
    pub stated: Option<Micros>,
}

impl Booking {
    /// From when on its circuits are wanted.
    #[must_use]
    pub fn wanted(&self) -> Micros {
        self.at + self.wish.within
    }

    /// When its least time is over.
    #[must_use]
    pub fn until(&self) -> Micros {
        self.wanted() + self.wish.least
    }

    /// From the first command that moves light until the last circuit was qualified.
    #[must_use]
    pub fn dark(&self) -> Option<Micros> {
        Some(self.ended? - self.fired?)
    }
}
