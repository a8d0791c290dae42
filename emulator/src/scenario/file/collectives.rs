// SPDX-License-Identifier: Apache-2.0

use lightloom_collective::{CollectiveKind, Directions};
use lightloom_fabric::document::Check;
use lightloom_units::{Bytes, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::codes;
use crate::scenario::Collective;
use crate::substrate::PacketSwitches;

/// A collective operation. Sizes follow nccl-tests: the whole buffer of one rank.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CollectiveFile {
    /// On each group's ring, in both directions; every rank receives the sum.
    AllReduce(RingFile),
    /// On each group's ring, in both directions; every rank receives its part of the sum.
    ReduceScatter(RingFile),
    /// On each group's ring, in both directions; every rank receives all parts.
    AllGather(RingFile),
    /// Between the groups of a job over the data-centre network: same-rank GPUs first reduce below
    /// their ToR, then between ToRs, then distribute below their ToR.
    DataParallelAllReduce(RingFile),
}

/// A collective.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RingFile {
    /// Name in reports.
    pub name: String,
    /// Buffer size of one rank, at least one byte.
    pub bytes: Text<Bytes>,
    /// Number of repetitions, 1 to 1,000.
    #[serde(default = "once")]
    #[schemars(range(min = 1, max = 1000))]
    pub repeat: u32,
    /// Priority at switches with priority queues, 0 (lowest) to 6. Only for collectives between
    /// groups, because rings do not cross switches.
    #[serde(default)]
    #[schemars(range(min = 0, max = 6))]
    pub priority: u8,
    /// Directions around a group's ring: `both`, each with half of the data, or `one`.
    #[serde(default)]
    pub directions: Directions,
}

fn once() -> u32 {
    1
}

pub(super) fn lower(
    raw: &[CollectiveFile],
    switches: &PacketSwitches,
    check: &mut Check<'_>,
) -> Vec<Collective> {
    let mut collectives: Vec<Collective> = Vec::new();
    for (index, file) in raw.iter().enumerate() {
        let (kind, key, ring) = match file {
            CollectiveFile::AllReduce(ring) => (CollectiveKind::AllReduce, "all_reduce", ring),
            CollectiveFile::ReduceScatter(ring) => {
                (CollectiveKind::ReduceScatter, "reduce_scatter", ring)
            }
            CollectiveFile::AllGather(ring) => (CollectiveKind::AllGather, "all_gather", ring),
            CollectiveFile::DataParallelAllReduce(ring) => {
                (CollectiveKind::AllReduce, "data_parallel_all_reduce", ring)
            }
        };
        let is_between_groups = matches!(file, CollectiveFile::DataParallelAllReduce(_));
        let path = format!("/collectives/{index}/{key}");
        if ring.bytes.0 == Bytes::ZERO {
            check
                .error(
                    codes::NOTHING_TO_RUN,
                    &format!("{path}/bytes"),
                    "the collective has a size of 0 bytes",
                )
                .help("write `64MiB`");
        }
        if is_between_groups && ring.directions == Directions::One {
            let message = "a reduction between groups always uses both directions";
            check
                .error(codes::NOTHING_TO_RUN, &format!("{path}/directions"), message)
                .help("leave it out");
        }
        if collectives.iter().any(|before| before.name == ring.name) {
            let message = format!("another collective is also called `{}`", ring.name);
            check
                .error(codes::COLLECTIVE_TWICE, &format!("{path}/name"), message)
                .help("use a different name, or `repeat`");
        }
        refuse_priority(is_between_groups, ring, &path, switches, check);
        collectives.push(Collective {
            name: ring.name.clone(),
            kind,
            is_between_groups,
            bytes: ring.bytes.0,
            repeat: ring.repeat,
            priority: ring.priority,
            directions: ring.directions,
        });
    }
    collectives
}

fn refuse_priority(
    is_between_groups: bool,
    ring: &RingFile,
    path: &str,
    switches: &PacketSwitches,
    check: &mut Check<'_>,
) {
    if ring.priority > 0 && !is_between_groups {
        let message = "rings do not cross switches, so a priority has no effect";
        check.error(codes::NO_EFFECT, &format!("{path}/priority"), message).help("leave it out");
    } else if ring.priority > 0 && !switches.have_priorities() {
        refuse_without_priorities(&format!("{path}/priority"), check);
    }
}

pub(super) fn refuse_without_priorities(path: &str, check: &mut Check<'_>) {
    check
        .error(
            codes::NO_EFFECT,
            path,
            "these switches have only one queue per port, so a priority has no effect",
        )
        .help("write `switches: {schedule: strict}`, or leave it out")
        .depends_on("/switches");
}
