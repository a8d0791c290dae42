// SPDX-License-Identifier: Apache-2.0
//! Reads measured steps from logs of MLPerf Training.
//!
//! According to `mlperf_logging/mllog` of mlcommons/logging, a line contains `:::MLLOG ` and a JSON object with `key`,
//! `value` and `metadata`. The values of `tracked_stats` are defined by the submitter: `train_step_time` or
//! `train_step_timing` is in seconds, and `throughput` is in samples per second. The first value includes the start.

use serde::Deserialize;
use serde_json::Value;

use super::LogKind;
use crate::logs::{LogFile, Logs, TrainingProfile};
use crate::problem::RECORD_SKIPPED;

const MARK: &str = ":::MLLOG ";
/// Of a host with a DGX or HGX board, as in `64xNVIDIA DGX H100`.
const GPUS_PER_BOARD: u32 = 8;

pub(super) const KIND: LogKind = LogKind {
    name: "MLPerf training log",
    from: "a result file of MLPerf Training (result_0.txt)",
    is: |text| text.contains(MARK),
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

#[derive(Deserialize)]
struct MllogEntry {
    key: String,
    #[serde(default)]
    value: Value,
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let mut profile = TrainingProfile::new(file.whole());
    let (mut seconds, mut throughput) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(file.text().lines()) {
        let Some((_, entry)) = line.split_once(MARK) else { continue };
        // Other output may follow the object.
        let entry = serde_json::Deserializer::from_str(entry).into_iter::<MllogEntry>().next();
        let MllogEntry { key, value } = match entry {
            Some(Ok(entry)) => entry,
            Some(Err(error)) => {
                logs.problem(file.line(number), error.to_string(), RECORD_SKIPPED);
                continue;
            }
            None => continue,
        };
        match &*key {
            "submission_platform" => {
                let platform = value.as_str().unwrap_or_default();
                let hosts = platform.split_once('x').and_then(|(hosts, product)| {
                    let has_board = product.contains("DGX ") || product.contains("HGX ");
                    hosts.parse::<u32>().ok().filter(|_| has_board)
                });
                profile.world = hosts.map(|hosts| hosts.saturating_mul(GPUS_PER_BOARD));
                profile.product = Some(platform.to_owned());
            }
            "global_batch_size" => profile.batch = value.as_u64(),
            "max_sequence_length" | "sequence_length" => profile.sequence = value.as_u64(),
            "tracked_stats" => {
                let times = ["train_step_time", "train_step_timing"];
                seconds.extend(times.iter().find_map(|key| value[*key].as_f64()));
                throughput.extend(value["throughput"].as_f64().filter(|rate| *rate > 0.0));
            }
            _ => {}
        }
    }
    profile.step_seconds = after_start(seconds);
    if profile.step_seconds.is_none() {
        let batch = profile.batch.map(|batch| batch as f64);
        profile.step_seconds = batch.zip(after_start(throughput)).map(|(batch, rate)| batch / rate);
        profile.step_rule = Some("global_batch_size ÷ the median throughput in samples per second");
    }
    logs.profiles.push(profile);
}

fn after_start(mut values: Vec<f64>) -> Option<f64> {
    if values.len() > 1 {
        values.remove(0);
    }
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
