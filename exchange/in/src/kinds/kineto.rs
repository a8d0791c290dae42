// SPDX-License-Identifier: Apache-2.0
//! Reads step durations, groups and their communication from PyTorch profiles (Kineto).
//!
//! `lightloom_training::kineto` reads the communication. This module reads the marked steps (`ProfilerStep#4`),
//! `distributedInfo` with `pg_config`, and `deviceProperties`, the accelerators visible on the host.

use std::collections::BTreeMap;

use lightloom_training::graph::TaskWork;
use lightloom_training::kineto::{RankProfile, is_kineto};
use serde::Deserialize;

use super::LogKind;
use crate::logs::{LogFile, Logs, TrainingProfile};
use crate::problem::LogTrouble;

pub(super) const KIND: LogKind = LogKind {
    name: "PyTorch profile (Kineto)",
    from: "torch.profiler: export_chrome_trace, with record_shapes=True",
    is: |text| is_kineto(text.as_bytes()) || text.contains("\"traceEvents\""),
    read,
};

#[derive(Deserialize)]
struct ProfileDocument {
    #[serde(rename = "distributedInfo")]
    info: Option<DistributedInfo>,
    #[serde(default, rename = "deviceProperties")]
    devices: Vec<ProfiledDevice>,
    #[serde(default, rename = "traceEvents")]
    events: Vec<MarkedEvent>,
}

#[derive(Deserialize)]
struct DistributedInfo {
    world_size: Option<u32>,
    #[serde(default)]
    pg_config: Vec<ProfiledGroup>,
}

#[derive(Deserialize)]
struct ProfiledDevice {
    #[serde(default)]
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProfiledGroup {
    pg_name: String,
    pg_desc: String,
    pg_size: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MarkedEvent {
    name: String,
    cat: String,
    dur: f64,
}

fn read(files: &[LogFile<'_>], logs: &mut Logs) {
    let profiles: Vec<RankProfile<'_>> =
        files.iter().map(|file| RankProfile { name: file.name, text: file.bytes }).collect();
    let mut found: Vec<(TrainingProfile, usize)> = Vec::new();
    for file in files {
        let document: ProfileDocument = match serde_json::from_slice(file.bytes) {
            Ok(document) => document,
            Err(error) => {
                logs.problem(file.line(error.line()), LogTrouble::Malformed(error.to_string()));
                continue;
            }
        };
        found.push(profile(file, document));
    }
    let Some((mut first, steps)) = found.into_iter().reduce(joined) else { return };
    // Sizes are per rank, so the first rank suffices if the ranks are inconsistent.
    let step = lightloom_training::kineto::read(&profiles).or_else(|error| {
        logs.problem(files[0].whole(), LogTrouble::Malformed(error.to_string()));
        lightloom_training::kineto::read(&profiles[..1])
    });
    match step {
        Ok(step) => {
            first.files = files.iter().map(|file| file.name.to_owned()).collect();
            for task in step.recorded.graph.tasks() {
                if let Some((ranks, bytes)) = exchanged(&task.work) {
                    *first.exchanged.entry(ranks.len() as u32).or_default() += bytes;
                }
            }
            let sharing = groups_by_size(&step.recorded.graph);
            for (size, bytes) in &mut first.exchanged {
                let groups = sharing.get(size).copied().unwrap_or(1).max(1);
                *bytes /= groups * steps.max(1) as u64;
            }
        }
        Err(error) => logs.problem(files[0].whole(), LogTrouble::Malformed(error.to_string())),
    }
    logs.profiles.push(first);
}

/// Omits messages between two ranks, because they are numerous and have no group.
fn exchanged(work: &TaskWork) -> Option<(&[u32], u64)> {
    match work {
        TaskWork::Across { ranks, bytes, .. } => Some((ranks, bytes.0)),
        TaskWork::Pairs { ranks, bytes } => {
            Some((ranks, bytes.iter().sum::<u64>() / ranks.len().max(1) as u64))
        }
        TaskWork::Compute { .. } | TaskWork::Ring { .. } | TaskWork::Transfer { .. } => None,
    }
}

fn groups_by_size(graph: &lightloom_training::graph::TaskGraph) -> BTreeMap<u32, u64> {
    let mut groups: BTreeMap<u32, std::collections::BTreeSet<&[u32]>> = BTreeMap::new();
    for task in graph.tasks() {
        if let Some((ranks, _)) = exchanged(&task.work) {
            groups.entry(ranks.len() as u32).or_default().insert(ranks);
        }
    }
    groups.into_iter().map(|(size, groups)| (size, groups.len() as u64)).collect()
}

fn profile(file: &LogFile<'_>, document: ProfileDocument) -> (TrainingProfile, usize) {
    let mut profile = TrainingProfile::new(file.whole());
    // The profile contains each marked step twice, for the host and for the device.
    let is_step = |event: &&MarkedEvent| {
        event.name.starts_with("ProfilerStep#") && event.cat != "gpu_user_annotation"
    };
    let mut steps: Vec<f64> =
        document.events.iter().filter(is_step).map(|event| event.dur / 1e6).collect();
    steps.sort_by(f64::total_cmp);
    profile.step_seconds = steps.get(steps.len() / 2).copied();
    let (devices, product) = (document.devices.len() as u32, document.devices.into_iter().next());
    profile.accelerators = product.map(|product| (devices, product.name));
    if let Some(info) = document.info {
        profile.world = info.world_size;
        for ProfiledGroup { pg_name, pg_desc, pg_size } in info.pg_config {
            let name = if pg_desc.is_empty() || pg_desc == "undefined" { pg_name } else { pg_desc };
            profile.groups.insert(name, pg_size);
        }
    }
    (profile, steps.len())
}

fn joined(a: (TrainingProfile, usize), b: (TrainingProfile, usize)) -> (TrainingProfile, usize) {
    let ((mut one, steps), (other, more)) = (a, b);
    one.world = one.world.or(other.world);
    one.accelerators = one.accelerators.or(other.accelerators);
    one.groups.extend(other.groups);
    one.step_seconds = match (one.step_seconds, other.step_seconds) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    };
    (one, steps.max(more))
}
