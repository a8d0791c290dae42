// SPDX-License-Identifier: Apache-2.0

use std::fmt;

use lightloom_units::Picoseconds;
use serde::{Deserialize, Serialize};

const HOUR: f64 = 3.6e15;

/// Loss of a job due to a fault, in picoseconds. The causes add up to `late`, and the `late` values
/// of all faults add up to the job's total delay. Only `contention` can be negative.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLoss {
    /// Name of the job.
    pub job: String,
    /// Number of GPUs.
    pub gpus: u64,
    /// Delay of the last step.
    #[serde(rename = "late_ps")]
    pub late: i64,
    /// Time waiting for the control plane and for light after the fault.
    #[serde(rename = "outage_ps")]
    pub outage: i64,
    /// Time spent redoing lost work.
    #[serde(rename = "redone_ps")]
    pub redone: i64,
    /// Change in contention. Absorbs other causes that took less time than without faults.
    #[serde(rename = "contention_ps")]
    pub contention: i64,
    /// Time waiting for circuit changes.
    #[serde(rename = "transition_ps")]
    pub transition: i64,
    /// Exchange time without contention.
    #[serde(rename = "exchange_ps")]
    pub exchange: i64,
    /// Computation time.
    #[serde(rename = "compute_ps")]
    pub compute: i64,
    /// Generation time, including fetched weights and caches. Absent without generation.
    #[serde(rename = "generation_ps", default, skip_serializing_if = "is_nothing")]
    pub generation: i64,
}

fn is_nothing(time: &i64) -> bool {
    *time == 0
}

impl JobLoss {
    pub(crate) fn settle(&mut self) {
        let mut shorter = 0;
        for part in
            [&mut self.transition, &mut self.exchange, &mut self.compute, &mut self.generation]
        {
            shorter += (*part).min(0);
            *part = (*part).max(0);
        }
        self.contention += shorter;
        self.late = self.causes().iter().map(|(_, time)| time).sum();
    }

    /// Returns `true` if the fault cost the job no time.
    pub fn is_nothing(&self) -> bool {
        self.late == 0 && self.causes().iter().all(|(_, time)| *time == 0)
    }

    /// Returns the loss in GPU-hours.
    pub fn gpu_hours(&self) -> f64 {
        self.late as f64 * self.gpus as f64 / HOUR
    }

    /// Returns the time of each cause. The times add up to `late`.
    pub fn causes(&self) -> [(&'static str, i64); 7] {
        [
            ("outage", self.outage),
            ("work done again", self.redone),
            ("change in contention", self.contention),
            ("circuit changes", self.transition),
            ("exchange", self.exchange),
            ("compute", self.compute),
            ("generation", self.generation),
        ]
    }
}

impl fmt::Display for JobLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gpu_seconds = self.gpu_hours() * 3600.0;
        write!(
            f,
            "{} lost {} of {} GPUs ({gpu_seconds:.3} GPU-seconds)",
            self.job,
            signed(self.late),
            self.gpus
        )?;
        let causes = self.causes().into_iter().filter(|(_, time)| *time != 0);
        for (at, (cause, time)) in causes.enumerate() {
            let sign = if at == 0 { ": " } else { ", " };
            write!(f, "{sign}{cause} {}", signed(time))?;
        }
        Ok(())
    }
}

fn signed(time: i64) -> String {
    let sign = if time < 0 { "-" } else { "" };
    format!("{sign}{}", Picoseconds(time.unsigned_abs()))
}
