// SPDX-License-Identifier: Apache-2.0
//! Losses of an earlier result of months, as its document has them: what each run cost each job.

use lightloom_units::SimTime;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::Restart;
use crate::stages::StageName;
use crate::substrate::AnyPart;

/// What a run cost a job that went on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunLoss {
    /// The job.
    pub job: String,
    /// Its GPUs.
    pub gpus: u64,
    /// At once, cause by cause, in the order in which they come.
    pub once: Vec<LossPart>,
    /// What each step takes longer from then on.
    pub slower_ps: i64,
}

/// A part of what was lost at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossPart {
    /// The cause.
    pub cause: String,
    /// The stage of an outage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageName>,
    /// How long.
    pub time_ps: i64,
}

/// A job of an earlier result.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct KnownJob {
    /// Its name.
    pub job: String,
    /// Its GPUs then.
    pub gpus: u64,
    /// A step without failures.
    pub step_ps: i64,
    /// Its closed form.
    pub closed_form_seconds: f64,
    /// What it did that had lost a node.
    pub answer: String,
    /// A step with a replica fewer, of an elastic job.
    #[serde(default)]
    pub step_with_fewer_ps: Option<i64>,
}

impl KnownJob {
    /// Whether it was elastic, as it is now: runs of such jobs say something else than those of others.
    pub(crate) fn fits(&self, restart: Restart) -> bool {
        (self.answer == "elastic") == matches!(restart, Restart::Elastic { .. })
    }
}

/// A run of an earlier result.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct KnownRun {
    /// The kind of part that failed.
    #[serde(deserialize_with = "named")]
    pub part: AnyPart,
    /// Nodes that were out already.
    pub out: usize,
    /// Which of the runs of this kind.
    pub number: u32,
    /// Nodes that failed at 0 s.
    pub failed_at_start: Vec<String>,
    /// The part that failed.
    pub fails: String,
    /// Its place among those of its kind.
    pub place: usize,
    /// When.
    pub at_ps: SimTime,
    /// What it cost each job that went on.
    pub losses: Vec<RunLoss>,
}

fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AnyPart, D::Error> {
    let name = String::deserialize(deserializer)?;
    AnyPart::named(&name).ok_or_else(|| de::Error::custom(format!("`{name}` is no kind of part")))
}

/// Losses of an earlier result of months.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct KnownLosses {
    /// The file, as the scenario names it.
    #[serde(skip)]
    pub file: String,
    /// SHA-256 of the fabric file of its runs.
    pub fabric_sha256: String,
    /// Who commanded in them.
    pub control: String,
    /// Its jobs.
    pub jobs: Vec<KnownJob>,
    /// Its runs.
    pub runs: Vec<KnownRun>,
}

impl KnownLosses {
    /// The job of this name.
    #[must_use]
    pub fn job(&self, name: &str) -> Option<&KnownJob> {
        self.jobs.iter().find(|job| job.job == name)
    }
}
