// SPDX-License-Identifier: Apache-2.0
//! NCCL Inspector records: sizes of a job's communicators, the number of hosts they span, and their
//! bandwidth.
//!
//! Source: `ext-profiler/inspector/README.md` of NVIDIA/nccl, output format 4.0: one JSON object
//! per collective, `header` {id, rank, n_ranks, nnodes}, `metadata` {hostname}, `coll_perf` {coll,
//! coll_sn, coll_msg_size_bytes, coll_busbw_gbs}.

use serde::Deserialize;

use super::LogKind;
use crate::json::{parse, records};
use crate::logs::{HostRecord, LogFile, Logs, TrainingProfile};

pub(super) const KIND: LogKind = LogKind {
    name: "NCCL Inspector",
    from: "NCCL_PROFILER_PLUGIN=libnccl-profiler-inspector.so NCCL_INSPECTOR_ENABLE=1",
    is: |file| file.head().contains("\"coll_perf\""),
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

#[derive(Deserialize)]
struct InspectorRecord {
    header: InspectorHeader,
    #[serde(default)]
    metadata: InspectorMetadata,
    coll_perf: InspectorCollective,
}

#[derive(Deserialize)]
struct InspectorHeader {
    n_ranks: u32,
    #[serde(default)]
    nnodes: u32,
}

#[derive(Default, Deserialize)]
struct InspectorMetadata {
    #[serde(default)]
    hostname: String,
}

#[derive(Deserialize)]
struct InspectorCollective {
    #[serde(default)]
    coll_msg_size_bytes: u64,
    #[serde(default)]
    coll_busbw_gbs: f64,
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let mut profile = TrainingProfile::new(file.whole());
    for record in records(file, logs) {
        let Some(read) = parse::<InspectorRecord>(file, record, logs) else { continue };
        let InspectorHeader { n_ranks, nnodes } = read.header;
        profile.world = profile.world.max(Some(n_ranks));
        if nnodes > 0 && n_ranks.is_multiple_of(nnodes) {
            profile.ranks_per_host = profile.ranks_per_host.max(Some(n_ranks / nnodes));
        }
        let InspectorCollective { coll_msg_size_bytes, coll_busbw_gbs } = read.coll_perf;
        *profile.exchanged.entry(n_ranks).or_default() += coll_msg_size_bytes;
        let fastest = profile.bandwidth.entry(n_ranks).or_default();
        *fastest = fastest.max(coll_busbw_gbs * 1e9);
        if !read.metadata.hostname.is_empty() && !logs.hosts.contains_key(&read.metadata.hostname) {
            logs.host(&read.metadata.hostname, HostRecord::default());
        }
    }
    logs.profiles.push(profile);
}
