// SPDX-License-Identifier: Apache-2.0
//! What a fault cost a job that trains.

use std::fmt;

use lightloom_units::Picoseconds;
use serde::{Deserialize, Serialize};

/// Picoseconds of an hour.
const HOUR: f64 = 3.6e15;

/// What a fault cost a job: its steps beside those of the run without the fault. The causes add up to `late`; one that
/// takes less time than without is negative. Picoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLoss {
    /// The job.
    pub job: String,
    /// Its GPUs.
    pub gpus: u64,
    /// How much later its last step ended.
    #[serde(rename = "late_ps")]
    pub late: i64,
    /// Waiting for the control plane and for light, from the fault on.
    #[serde(rename = "outage_ps")]
    pub outage: i64,
    /// Work that was done and lost, and is done again.
    #[serde(rename = "redone_ps")]
    pub redone: i64,
    /// Sharing links with others.
    #[serde(rename = "contention_ps")]
    pub contention: i64,
    /// Waiting for circuits that move.
    #[serde(rename = "transition_ps")]
    pub transition: i64,
    /// Exchange, alone on its way.
    #[serde(rename = "exchange_ps")]
    pub exchange: i64,
    /// Computing.
    #[serde(rename = "compute_ps")]
    pub compute: i64,
    /// Generation: weights and caches that a replica fetches and works on before it goes on; absent where there is none.
    #[serde(rename = "generation_ps", default, skip_serializing_if = "is_nothing")]
    pub generation: i64,
}

fn is_nothing(time: &i64) -> bool {
    *time == 0
}

impl JobLoss {
    /// Whether the job was as without the fault.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.late == 0 && self.causes().iter().all(|(_, time)| *time == 0)
    }

    /// What it lost, in GPU-hours.
    #[must_use]
    pub fn gpu_hours(&self) -> f64 {
        self.late as f64 * self.gpus as f64 / HOUR
    }

    /// Each cause with its time; they add up.
    #[must_use]
    pub fn causes(&self) -> [(&'static str, i64); 7] {
        [
            ("outage", self.outage),
            ("work done again", self.redone),
            ("contention", self.contention),
            ("circuits that move", self.transition),
            ("exchange", self.exchange),
            ("compute", self.compute),
            ("generation", self.generation),
        ]
    }
}

/// One line: how late, and for what.
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

/// A time with its sign, where it is less than none.
fn signed(time: i64) -> String {
    let sign = if time < 0 { "-" } else { "" };
    format!("{sign}{}", Picoseconds(time.unsigned_abs()))
}
