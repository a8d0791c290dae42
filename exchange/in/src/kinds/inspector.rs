// SPDX-License-Identifier: Apache-2.0
//! Reads communicators, the number of their hosts, and bandwidth from NCCL Inspector records.
//!
//! The format is defined by `plugins/profiler/inspector` of NVIDIA/nccl. From format 4.3, header and metadata are on a
//! separate line before the records. A time of 0 µs results in the bandwidth `inf` or `"nan"`. The size is the count
//! passed to the call.

use lightloom_training::exchange::{Exchange, Operation, Size};
use serde::Deserialize;
use serde_json::Value;

use super::LogKind;
use crate::json::{parse, records};
use crate::logs::{HostRecord, LogFile, Logs, TrainingProfile};

pub(super) const KIND: LogKind = LogKind {
    name: "NCCL Inspector",
    from: "NCCL_PROFILER_PLUGIN=libnccl-profiler-inspector.so NCCL_INSPECTOR_ENABLE=1",
    is: |text| text.contains("\"coll_perf\"") || text.contains("\"p2p_perf\""),
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

#[derive(Deserialize)]
struct InspectorRecord {
    header: Option<InspectorHeader>,
    metadata: Option<InspectorMetadata>,
    coll_perf: Option<InspectorCollective>,
    p2p_perf: Option<InspectorMessage>,
}

#[derive(Clone, Copy, Default, Deserialize)]
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct InspectorCollective {
    coll: String,
    coll_msg_size_bytes: u64,
    coll_busbw_gbs: Value,
}

#[derive(Deserialize)]
struct InspectorMessage {
    #[serde(default)]
    p2p_msg_size_bytes: u64,
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let mut profile = TrainingProfile::new(file.whole());
    let mut header = InspectorHeader::default();
    for record in records(file, logs) {
        let Some(read) = parse::<InspectorRecord>(file, &record, logs) else { continue };
        header = read.header.unwrap_or(header);
        let InspectorHeader { n_ranks, nnodes } = header;
        if n_ranks == 0 {
            continue;
        }
        profile.world = profile.world.max(Some(n_ranks));
        if nnodes > 0 && n_ranks.is_multiple_of(nnodes) {
            profile.ranks_per_host = profile.ranks_per_host.max(Some(n_ranks / nnodes));
        }
        if let Some(collective) = read.coll_perf {
            let operation = Operation::of_name(&collective.coll).unwrap_or(Operation::ALL_REDUCE);
            let size = Size::Count(collective.coll_msg_size_bytes);
            let exchange = Exchange::new(operation, (0..n_ranks).collect(), size);
            *profile.exchanged.entry(n_ranks).or_default() += exchange.bytes;
            let rate = collective.coll_busbw_gbs.as_f64().unwrap_or(0.0) * 1e9;
            let fastest = profile.bandwidth.entry(n_ranks).or_default();
            *fastest = fastest.max(rate);
        }
        if let Some(message) = read.p2p_perf {
            *profile.exchanged.entry(2).or_default() += message.p2p_msg_size_bytes;
        }
        let hostname = read.metadata.unwrap_or_default().hostname;
        if !hostname.is_empty() && !logs.hosts.contains_key(&hostname) {
            logs.host(&hostname, HostRecord::default());
        }
    }
    logs.profiles.push(profile);
}
