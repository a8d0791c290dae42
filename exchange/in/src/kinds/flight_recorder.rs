// SPDX-License-Identifier: Apache-2.0
//! Reads groups, collective sizes and unfinished collectives from PyTorch flight recorder dumps (JSON).
//!
//! The format is version 2.10 of the dump in `torch/csrc/distributed/c10d/FlightRecorder.hpp`.

use std::collections::BTreeMap;

use lightloom_training::exchange::{Exchange, Operation, Size};
use lightloom_training::kineto::element_bytes;
use serde::Deserialize;
use serde_json::Value;

use super::LogKind;
use crate::json::document;
use crate::logs::{LogFile, Logs, TrainingProfile};

pub(super) const KIND: LogKind = LogKind {
    name: "PyTorch flight recorder",
    from: "torch._C._distributed_c10d._dump_fr_trace_json(), with TORCH_FR_BUFFER_SIZE set",
    is: |text| {
        let is_profile = text.contains("\"traceEvents\"") || text.contains("\"schemaVersion\"");
        text.contains("\"collective_seq_id\"") || text.contains("\"pg_config\"") && !is_profile
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct RecordedGroup {
    name: String,
    desc: String,
    ranks: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RecordedCollective {
    process_group: Vec<String>,
    profiling_name: String,
    collective_seq_id: u64,
    input_sizes: Vec<Vec<u64>>,
    output_sizes: Vec<Vec<u64>>,
    /// Each tensor has a type; older versions write a single string.
    input_dtypes: Value,
    output_dtypes: Value,
    state: String,
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let Some(dump) = document::<RecorderDump>(file, logs) else { return };
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
        if let Some(exchange) = entry.exchange(size) {
            let ranks = exchange.members.len() as u32;
            *profile.exchanged.entry(ranks).or_default() += exchange.bytes;
        }
        if entry.state != "completed" && !entry.state.is_empty() {
            let (name, number) = (entry.profiling_name, entry.collective_seq_id);
            let trouble =
                format!("{name} number {number} in a group of {size} ranks did not complete");
            logs.problem(file.whole(), trouble, "sizes and groups are still used");
        }
    }
    profile.exchanged.remove(&0);
    logs.profiles.push(profile);
}

fn members(ranks: &Value) -> u32 {
    let text = ranks.as_str().map(str::to_owned).unwrap_or_else(|| ranks.to_string());
    text.split(',').filter(|rank| rank.chars().any(|c| c.is_ascii_digit())).count() as u32
}

impl RecordedCollective {
    /// Returns `None` for calls without tensors, such as the end of coalesced calls.
    fn exchange(&self, ranks: u32) -> Option<Exchange> {
        let operation = Operation::of_name(&self.profiling_name)?;
        let ranks = if operation.is_between_two() { 2 } else { ranks };
        let put_in = bytes(&self.input_sizes, &self.input_dtypes);
        let afterwards = bytes(&self.output_sizes, &self.output_dtypes);
        let size = match (put_in, afterwards) {
            (_, Some(bytes)) if operation.is_sized_by_output() => Size::Output(bytes),
            (Some(bytes), _) => Size::Input(bytes),
            (None, Some(bytes)) => Size::Output(bytes),
            (None, None) => return None,
        };
        Some(Exchange::new(operation, (0..ranks).collect(), size))
    }
}

fn bytes(sizes: &[Vec<u64>], dtypes: &Value) -> Option<u64> {
    let bytes = sizes.iter().enumerate().map(|(place, size)| {
        let listed = dtypes.as_array().map(|list| list.get(place).or(list.last()));
        let dtype = listed.unwrap_or(Some(dtypes)).and_then(Value::as_str).unwrap_or("Float");
        size.iter().product::<u64>() * element_bytes(dtype).unwrap_or(4)
    });
    (!sizes.is_empty()).then(|| bytes.sum())
}
