// SPDX-License-Identifier: Apache-2.0

use lightloom_units::SimTime;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::Restart;
use crate::stages::StageName;
use crate::substrate::AnyPart;

/// Loss of a job that continued after a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunLoss {
    /// Job name.
    pub job: String,
    /// Number of GPUs of the job.
    pub gpus: u64,
    /// One-time losses by cause, in chronological order.
    pub once: Vec<LossPart>,
    /// Additional time per later step.
    pub slower_ps: i64,
}

/// Part of a one-time loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossPart {
    /// Cause.
    pub cause: String,
    /// Stage of an outage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageName>,
    /// Lost time.
    pub time_ps: i64,
}

/// A job of an earlier result.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct KnownJob {
    /// Job name.
    pub job: String,
    /// Number of GPUs in the earlier result.
    pub gpus: u64,
    /// Step time without failures.
    pub step_ps: i64,
    /// Closed form of the step time.
    pub closed_form_seconds: f64,
    /// Response to a lost node.
    pub answer: String,
    /// Step time of an elastic job with one replica fewer.
    #[serde(default)]
    pub step_with_fewer_ps: Option<i64>,
}

impl KnownJob {
    /// Losses of elastic jobs are not comparable with losses of other jobs.
    pub(crate) fn fits(&self, restart: Restart) -> bool {
        (self.answer == "elastic") == matches!(restart, Restart::Elastic(_))
    }
}

/// A run of an earlier result.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct KnownRun {
    /// Kind of the failed part.
    #[serde(deserialize_with = "named")]
    pub part: AnyPart,
    /// Number of nodes that had already failed.
    pub out: usize,
    /// Index of the run among all runs for its kind of part.
    pub number: u32,
    /// Nodes that failed at 0 s.
    pub failed_at_start: Vec<String>,
    /// Failed part.
    pub fails: String,
    /// Index of the part within its kind.
    pub place: usize,
    /// Time of the failure.
    pub at_ps: SimTime,
    /// Losses of each job that continued.
    pub losses: Vec<RunLoss>,
}

fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AnyPart, D::Error> {
    let name = String::deserialize(deserializer)?;
    AnyPart::named(&name)
        .ok_or_else(|| de::Error::custom(format!("`{name}` is not a kind of part")))
}

/// Losses measured for an earlier result.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct KnownLosses {
    /// File name as written in the scenario.
    #[serde(skip)]
    pub file: String,
    /// SHA-256 of the fabric file of the runs.
    pub fabric_sha256: String,
    /// Control plane of the runs.
    pub control: String,
    /// Jobs of the earlier result.
    pub jobs: Vec<KnownJob>,
    /// Runs of the earlier result.
    pub runs: Vec<KnownRun>,
}

impl KnownLosses {
    /// Returns the job with this name.
    pub fn job(&self, name: &str) -> Option<&KnownJob> {
        self.jobs.iter().find(|job| job.job == name)
    }
}
