// SPDX-License-Identifier: Apache-2.0
//! `step.yaml` runs the recorded step packet by packet, if every rank was profiled.

use super::cluster::ClusterDraft;
use super::{Draft, DraftPage, Sourced, fabric};
use crate::logs::Logs;

const MOST_RANKS: usize = 256;

pub(super) fn write(
    logs: &Logs,
    cluster: &ClusterDraft,
    path: &dyn Fn(&str) -> String,
    draft: &mut Draft,
) {
    let mut profiles = logs.profiles.iter();
    let profile = profiles
        .find(|profile| profile.world.map(|world| world as usize) == Some(profile.files.len()));
    let Some(profile) = profile else { return };
    let ranks = profile.files.len();
    if !(2..=MOST_RANKS.min(cluster.gpus() as usize)).contains(&ranks) {
        return;
    }
    let mut page = DraftPage::new(
        "step.yaml",
        "The recorded steps on this cluster, without faults: lightloom emulate step.yaml",
    );
    page.put(&format!(
        "kind: scenario\nversion: 2\nname: own-step\non: {{fabric: {}}}",
        fabric::NAME
    ));
    if let Some(seconds) = profile.step_seconds {
        let measured = Sourced::stated(
            format!("{seconds:.6} s"),
            "the measured step time, to compare with the result",
        );
        page.guess("step", &measured);
    }
    let gpus = cluster.gpus_per_node.value as usize;
    let hosts: Vec<String> =
        (0..ranks).map(|rank| format!("n{}/g{}", rank / gpus, rank % gpus)).collect();
    let order = Sourced::assumed(
        format!("{} to {}", hosts[0], hosts[ranks - 1]),
        "ranks fill hosts in order",
    );
    page.guess("traffic[0].hosts", &order);
    let files: Vec<String> = profile.files.iter().map(|file| format!("{:?}", path(file))).collect();
    page.put(&format!(
        "traffic:\n  - name: steps\n    run: {{recorded: [{}]}}\n    hosts: [{}]",
        files.join(", "),
        hosts.join(", ")
    ));
    page.end(draft);
}
