// SPDX-License-Identifier: Apache-2.0
//! Reads step durations, groups and their communication from PyTorch profiles (Kineto).

use std::collections::BTreeMap;

use lightloom_training::graph::TaskWork;
use lightloom_training::kineto::{self, ProfiledJob, Profiles, RankProfile, is_kineto};

use super::LogKind;
use crate::logs::{LogFile, Logs, TrainingProfile};
use crate::problem::RECORD_SKIPPED;

pub(super) const KIND: LogKind = LogKind {
    name: "PyTorch profile (Kineto)",
    from: "torch.profiler: export_chrome_trace, with record_shapes=True",
    is: |text| is_kineto(text.as_bytes()) || text.contains("\"traceEvents\""),
    read,
};

fn read(files: &[LogFile<'_>], logs: &mut Logs) {
    let texts = files.iter().map(|file| RankProfile { name: file.name, text: file.bytes });
    let texts: Vec<RankProfile<'_>> = texts.collect();
    let mut profiles = Profiles::default();
    let errors = texts.iter().filter_map(|text| profiles.read_text(*text, texts.len()).err());
    // All files are read, because each may have facts about the job.
    let error = errors.fold(None, |first: Option<_>, error| first.or(Some(error)));
    let ProfiledJob { world, devices, product, groups, steps, step_seconds } = profiles.job.clone();
    // Sizes are per rank, so the first rank suffices if the ranks are inconsistent.
    let step = error.map_or_else(|| profiles.finish(), Err).or_else(|error| {
        logs.problem(files[0].whole(), error.to_string(), RECORD_SKIPPED);
        kineto::read(&texts[..1])
    });
    let mut profile = TrainingProfile {
        world,
        accelerators: Some(devices).filter(|devices| *devices > 0),
        product,
        groups,
        step_seconds,
        ..TrainingProfile::new(files[0].whole())
    };
    if let Ok(step) = step {
        profile.files = files.iter().map(|file| file.name.to_owned()).collect();
        for task in step.recorded.graph.tasks() {
            if let Some((ranks, bytes)) = exchanged(&task.work) {
                *profile.exchanged.entry(ranks.len() as u32).or_default() += bytes;
            }
        }
        let sharing = groups_by_size(&step.recorded.graph);
        for (size, bytes) in &mut profile.exchanged {
            let groups = sharing.get(size).copied().unwrap_or(1).max(1);
            *bytes /= groups * steps.max(1) as u64;
        }
    }
    logs.profiles.push(profile);
}

/// Omits messages between two ranks, because they are numerous and have no group.
fn exchanged(work: &TaskWork) -> Option<(&[u32], u64)> {
    match work {
        TaskWork::Across { ranks, .. } | TaskWork::Pairs { ranks, .. } => {
            Some((ranks, work.bytes().0))
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
