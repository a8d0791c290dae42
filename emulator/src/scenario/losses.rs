// SPDX-License-Identifier: Apache-2.0

use lightloom_units::SimTime;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

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

/// A trained job of a result. Earlier results lack some figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    /// Name of the job.
    pub job: String,
    /// Number of GPUs.
    pub gpus: u64,
    /// Step time without failures, in seconds.
    #[serde(default)]
    pub step_seconds: f64,
    /// Step time without failures, in picoseconds.
    pub step_ps: i64,
    /// Closed form of the step time, in seconds.
    pub closed_form_seconds: f64,
    /// Model FLOPs utilisation of a step without failures.
    #[serde(default)]
    pub mfu: f64,
    /// Checkpoint interval in steps.
    #[serde(default)]
    pub saved_every_steps: u32,
    /// First response to a lost node, or `restart` if the job reads a checkpoint immediately.
    pub answer: String,
    /// Number of data-parallel replicas.
    #[serde(default)]
    pub replicas: u32,
    /// Step time of an elastic job with one replica fewer, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_with_fewer_seconds: Option<f64>,
    /// Step time of an elastic job with one replica fewer, in picoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_with_fewer_ps: Option<i64>,
}

impl JobRow {
    /// Losses of elastic jobs are not comparable with losses of other jobs.
    pub(crate) fn fits(&self, restart: Restart) -> bool {
        (self.answer == "elastic") == matches!(restart, Restart::Elastic(_))
    }
}

/// A run that measures the losses due to one failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Kind of the failing part.
    #[serde(serialize_with = "by_name", deserialize_with = "named")]
    pub part: AnyPart,
    /// Number of nodes that have already failed.
    pub out: usize,
    /// Index of the run among all runs for its kind of part.
    pub number: u32,
}

/// A finished run, with the inputs that reproduce it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownRun {
    /// The case.
    #[serde(flatten)]
    pub case: Case,
    /// Nodes that fail at 0 s.
    pub failed_at_start: Vec<String>,
    /// Name of the failing part.
    pub fails: String,
    /// Index of the failing part within its kind.
    pub place: usize,
    /// Time of the failure.
    pub at_ps: SimTime,
    /// Losses of each job that continued.
    pub losses: Vec<RunLoss>,
}

fn by_name<S: Serializer>(part: &AnyPart, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(part.name())
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
    pub jobs: Vec<JobRow>,
    /// Runs of the earlier result.
    pub runs: Vec<KnownRun>,
}

impl KnownLosses {
    /// Returns the job with this name.
    pub fn job(&self, name: &str) -> Option<&JobRow> {
        self.jobs.iter().find(|job| job.job == name)
    }
}
