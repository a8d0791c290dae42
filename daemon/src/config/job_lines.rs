// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;

use lightloom_fabric::document::Check;
use lightloom_units::{Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::codes::BAD_JOB;

/// Phase requests in the line protocol of Opus's process groups. The protocol has no
/// authentication, so only the listed hosts are accepted.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobLinesFile {
    /// Address and port to listen on. Opus's shim connects to port 1234.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// Jobs that may request phases.
    pub jobs: Vec<JobHostsFile>,
}

/// A job.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobHostsFile {
    /// Name of the job in leases and in the audit log.
    pub name: String,
    /// Addresses of its hosts. A group belongs to the job of its host.
    #[schemars(with = "Vec<String>")]
    pub hosts: BTreeSet<IpAddr>,
    /// Phase of the plan for each communication backend of the job.
    pub phases: Vec<JobPhaseFile>,
}

/// The phase that a job needs for a communication backend.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobPhaseFile {
    /// Number of the backend in the job's requests, such as 2 for data parallelism.
    pub backend: u32,
    /// Name of the phase in the plan.
    pub phase: String,
    /// Minimum time that the job needs the circuits, and duration of its lease; 1 ms to one day.
    #[serde(rename = "for")]
    pub least: Text<Picoseconds>,
    /// Number of process groups that reach the phase together, such as one for each pipeline stage.
    /// The circuits change when all of them have asked. They must not share processes
    /// [default: 1].
    pub groups: Option<NonZeroUsize>,
}

impl JobLinesFile {
    pub(crate) fn check(&self, check: &mut Check<'_>) {
        let (mut hosts, mut phases) = (BTreeSet::new(), BTreeSet::new());
        for (index, job) in self.jobs.iter().enumerate() {
            if job.hosts.is_empty() || !job.hosts.iter().all(|host| hosts.insert(host)) {
                let path = format!("/job_lines/jobs/{index}/hosts");
                check
                    .error(BAD_JOB, &path, "the hosts do not identify this job")
                    .help("list at least one host, and each host in one job only");
            }
            for phase in &job.phases {
                let day = Picoseconds::from_millis(24 * 3_600_000);
                let is_time = (Picoseconds::from_millis(1)..=day).contains(&phase.least.0);
                if !is_time || !phases.insert((index, phase.backend)) {
                    let path = format!("/job_lines/jobs/{index}/phases");
                    check
                        .error(BAD_JOB, &path, "a phase is invalid")
                        .help("list each backend once, with a time from 1ms to 24h");
                }
            }
        }
    }
}
