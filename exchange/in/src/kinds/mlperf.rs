// SPDX-License-Identifier: Apache-2.0
//! MLPerf Training logs: measured steps with their batch.
//!
//! Source: result logs of MLPerf Training 3.1 to 5.1: `:::MLLOG` anywhere in a line, then a JSON
//! object with `key`, `value` and `metadata`. `tracked_stats` has `train_step_time` in seconds, or
//! `throughput` in samples per second. The first value of a run includes its start.

use serde::Deserialize;
use serde_json::Value;

use super::LogKind;
use crate::logs::{LogFile, Logs, TrainingProfile};
use crate::problem::LogTrouble;

const MARK: &str = ":::MLLOG";

pub(super) const KIND: LogKind = LogKind {
    name: "MLPerf Training log",
    from: "a result log of MLPerf Training (lines with `:::MLLOG`)",
    is: |text| text.contains(MARK),
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

#[derive(Deserialize)]
struct MlperfLine {
    key: String,
    #[serde(default)]
    value: Value,
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let mut profile = TrainingProfile::new(file.whole());
    let mut seconds = Vec::new();
    for (number, line) in file.text().lines().enumerate() {
        let Some((_, json)) = line.split_once(MARK) else { continue };
        // Other text may follow on the line.
        let mut values = serde_json::Deserializer::from_str(json).into_iter::<MlperfLine>();
        let line = match values.next() {
            Some(Ok(line)) => line,
            Some(Err(error)) => {
                let trouble = LogTrouble::Malformed(error.to_string());
                logs.problem(file.line(number + 1), trouble);
                continue;
            }
            None => continue,
        };
        match &*line.key {
            "global_batch_size" => profile.batch = line.value.as_u64(),
            "max_sequence_length" => profile.sequence = line.value.as_u64(),
            "tracked_stats" => {
                let step = line.value["train_step_time"].as_f64();
                let rate = line.value["throughput"].as_f64().filter(|rate| *rate > 0.0);
                let of_rate = || Some(profile.batch? as f64 / rate?);
                seconds.extend(step.or_else(of_rate));
            }
            _ => {}
        }
    }
    let mut steady = seconds.split_off(seconds.len().min(1));
    steady.sort_by(f64::total_cmp);
    profile.step_seconds = steady.get(steady.len() / 2).or(seconds.first()).copied();
    logs.profiles.push(profile);
}
