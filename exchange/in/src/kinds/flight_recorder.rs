// SPDX-License-Identifier: Apache-2.0
//! JSON dumps of PyTorch's flight recorder: groups of ranks, collective sizes, and unfinished
//! collectives.
//!
//! Source: `torch/csrc/distributed/c10d/FlightRecorder.hpp`, version 2.10 of the dump: `pg_config`
//! with the ranks of each group as text, `entries` with `profiling_name`, `process_group` (name and
//! description), `input_sizes`, `input_dtypes`, `collective_seq_id`, `state`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::LogKind;
use crate::logs::{LogFile, Logs, TrainingProfile};
use crate::problem::LogTrouble;

pub(super) const KIND: LogKind = LogKind {
    name: "PyTorch flight recorder",
    from: "torch._C._distributed_c10d._dump_fr_trace_json(), with TORCH_FR_BUFFER_SIZE set",
    is: |file| {
        file.head().contains("\"pg_config\"") || file.head().contains("\"collective_seq_id\"")
    },
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

#[derive(Deserialize)]
struct RecorderDump {
    #[serde(default)]
    pg_config: BTreeMap<String, RecordedGroup>,
    #[serde(default)]
    entries: Vec<RecordedCollective>,
}

#[derive(Deserialize)]
struct RecordedGroup {
    #[serde(default)]
    name: String,
    #[serde(default)]
    desc: String,
    /// A list, or its text form.
    #[serde(default)]
    ranks: Value,
}

#[derive(Deserialize)]
struct RecordedCollective {
    /// Name and description of its group.
    #[serde(default)]
    process_group: Vec<String>,
    #[serde(default)]
    profiling_name: String,
    #[serde(default)]
    collective_seq_id: u64,
    #[serde(default)]
    input_sizes: Vec<Vec<u64>>,
    #[serde(default)]
    input_dtypes: Vec<String>,
    #[serde(default)]
    state: String,
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let dump: RecorderDump = match serde_json::from_slice(file.bytes) {
        Ok(dump) => dump,
        Err(error) => {
            let trouble = LogTrouble::Malformed(error.to_string());
            return logs.problem(file.line(error.line().max(1)), trouble);
        }
    };
    let mut profile = TrainingProfile::new(file.whole());
    let mut size_of: BTreeMap<String, u32> = BTreeMap::new();
    for (key, group) in dump.pg_config {
        let size = members(&group.ranks);
        let name = if group.name.is_empty() { key } else { group.name };
        let called = if group.desc.is_empty() { name.clone() } else { group.desc };
        profile.groups.insert(called, size);
        size_of.insert(name, size);
    }
    profile.world = size_of.values().copied().max().filter(|world| *world > 0);
    for entry in dump.entries {
        let size =
            entry.process_group.first().and_then(|name| size_of.get(name)).copied().unwrap_or(0);
        *profile.exchanged.entry(size).or_default() += bytes(&entry);
        if entry.state != "completed" && !entry.state.is_empty() {
            let (name, number) = (entry.profiling_name, entry.collective_seq_id);
            logs.problem(file.whole(), LogTrouble::Hang { name, number, ranks: size as usize });
        }
    }
    profile.exchanged.remove(&0);
    logs.profiles.push(profile);
}

fn members(ranks: &Value) -> u32 {
    let text = ranks.as_str().map(str::to_owned).unwrap_or_else(|| ranks.to_string());
    text.split(',').filter(|rank| rank.chars().any(|c| c.is_ascii_digit())).count() as u32
}

fn bytes(entry: &RecordedCollective) -> u64 {
    let of_types = entry.input_dtypes.iter().map(String::as_str).chain(std::iter::repeat("Float"));
    let sizes = entry.input_sizes.iter().zip(of_types);
    sizes.map(|(size, dtype)| size.iter().product::<u64>() * element(dtype)).sum()
}

/// Returns the bytes per element, by c10 scalar type name.
fn element(dtype: &str) -> u64 {
    match dtype {
        "Byte" | "Char" | "Bool" | "Float8_e4m3fn" | "Float8_e5m2" => 1,
        "Half" | "BFloat16" | "Short" => 2,
        "Double" | "Long" | "ComplexFloat" => 8,
        _ => 4,
    }
}
