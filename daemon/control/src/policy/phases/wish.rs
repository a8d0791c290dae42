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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    NoPlan,
    NoSuchPhase { phase: String, known: String },
    OtherPlan { found: String, counted_on: String },
    WaitsForConfirm(Txn),
    LeaseHeld { job: String, actor: String, left: Micros },
    LeaseTooShort { lease: Micros, needs: Micros },
    OutOfRange { field: &'static str, ms: u64, what: &'static str },
    Overlaps { phase: String, free: Micros },
    TooMany(usize),
    NoJournal(String),
    OtherRequest(String),
}

impl Refusal {
    /// Gives the code, the reason and the remedy, with times rounded up to milliseconds.
    pub fn answer(&self) -> Answer {
        match self {
            Self::NoPlan => refused(
                "no-plan",
                "no plan with circuits is applied",
                "apply one: lightloom ctl apply PLAN --phase NAME",
            ),
            Self::NoSuchPhase { phase, known } => refused(
                "no-such-phase",
                format!("the plan has no phase `{phase}`; it has {known}"),
                "use one of these",
            ),
            Self::OtherPlan { found, counted_on } => conflict(
                "other-plan",
                format!("the plan in force is {found}, but the request expects {counted_on}"),
                "read `GET /v1/phases` again, place ranks as in that plan, and send its `revision`",
            ),
            Self::WaitsForConfirm(txn) => conflict(
                "waits-for-confirm",
                format!(
                    "transaction {txn} awaits confirmation, and no other change can start until then"
                ),
                format!("lightloom ctl confirm {txn}, or lightloom ctl rollback {txn}"),
            ),
            Self::LeaseHeld { job, actor, left } => conflict(
                "lease-held",
                format!("the job `{job}` of {actor} has the lease for another {} ms", ms(*left)),
                format!("retry in {} ms, or let that job release its lease", ms(*left)),
            ),
            Self::LeaseTooShort { lease, needs } => refused(
                "lease-too-short",
                format!("the lease of {} ms ends before the phase does", lease.0 / 1000),
                format!(
                    "request a lease of at least {} ms: `in_ms` and `for_ms` together",
                    ms(*needs)
                ),
            ),
            Self::OutOfRange { field, ms, what } => refused(
                "out-of-range",
                format!("`{field}` is {ms} ms, and {what}"),
                "use a shorter time",
            ),
            Self::Overlaps { phase, free } => conflict(
                "overlaps",
                format!("phase {phase} is scheduled until {} ms from now", ms(*free)),
                format!("use `in_ms` of at least {}, or release the lease first", ms(*free)),
            ),
            Self::TooMany(waiting) => conflict(
                "too-many",
                format!("{waiting} phases are already waiting"),
                "retry once the first of them has started",
            ),
            Self::NoJournal(why) => refused(
                "no-journal",
                format!("changes are currently refused: {why}"),
                "see `lightloom ctl status`",
            ),
            Self::OtherRequest(id) => conflict(
                "other-request",
                format!("request id `{id}` has already been used for a different request"),
                "use a different id for each request",
            ),
        }
    }
}

fn refused(code: &str, reason: impl Into<String>, fix: impl Into<String>) -> Answer {
    let (code, reason, fix) = (code.to_owned(), reason.into(), fix.into());
    Answer::PhaseRefused { conflict: false, code, reason, fix }
}

fn conflict(code: &str, reason: impl Into<String>, fix: impl Into<String>) -> Answer {
    let (code, reason, fix) = (code.to_owned(), reason.into(), fix.into());
    Answer::PhaseRefused { conflict: true, code, reason, fix }
}

const fn ms(time: Micros) -> u64 {
    time.0.div_ceil(1000)
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
