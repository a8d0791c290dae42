// SPDX-License-Identifier: Apache-2.0
//! Fabrics and scenarios with the shipped daemon, written inline.

use lightloom_emulator::outcome::{FaultResult, Outcome, StageName};
use lightloom_emulator::run::IslandReuse;
use lightloom_emulator::scenario::file::{NamedFile, load};
use lightloom_emulator::scenario::{RunStart, Scenario, plan};
use lightloom_emulator::{RunSettings, emulate_with};
use lightloom_twin::make_control;
use lightloom_units::Picoseconds;

/// A ring of nodes with four GPUs and two bundles each, and a job on `gpus` GPUs in groups of four
/// nodes.
pub(crate) fn ring(nodes: u32, gpus: u32) -> String {
    format!(
        "kind: fabric\nversion: 2\nname: ring\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: 2}}}}\n\
         jobs:\n  - {{name: pretrain, gpus: {gpus}, tp: 16}}\n"
    )
}

/// Repeated all-reduces of 1 MiB, with this control plane and these faults.
pub(crate) fn scene(seed: u64, repeat: u32, control: &str, faults: &str) -> String {
    format!(
        "kind: scenario\nversion: 2\nname: twin\non: {{fabric: ring.yaml}}\nseed: {seed}\ncollectives:\n  \
         - all_reduce: {{name: tensor, bytes: 1MiB, repeat: {repeat}}}\nfaults: [{faults}]\ncontrol: {control}\n"
    )
}

pub(crate) fn read(fabric: &str, text: &str) -> Result<Scenario, String> {
    let trace = include_bytes!("../../../../topologies/traces/synthetic.json");
    let mut neighbour = |name: &str| -> Result<NamedFile, String> {
        let bytes =
            if name.ends_with(".json") { trace.to_vec() } else { fabric.as_bytes().to_vec() };
        Ok(NamedFile { name: name.to_owned(), bytes })
    };
    let (scenario, mistakes) = load("twin.yaml", text.as_bytes(), &mut neighbour);
    scenario.ok_or_else(|| mistakes.iter().map(|one| format!("{one:?}\n")).collect())
}

pub(crate) fn run(fabric: &str, text: &str, threads: usize) -> Outcome {
    run_read(&read(fabric, text).unwrap(), threads).1
}

pub(crate) fn run_read(scenario: &Scenario, threads: usize) -> (RunStart, Outcome) {
    let start = plan(scenario).unwrap();
    let settings = RunSettings {
        threads,
        watch: Default::default(),
        sharing: IslandReuse::Reuse,
        series: None,
    };
    let outcome = emulate_with(scenario, &start, settings, &make_control, &mut ()).unwrap().outcome;
    (start, outcome)
}

pub(crate) fn took(fault: &FaultResult, stage: StageName) -> Option<Picoseconds> {
    fault.timeline.iter().find(|one| one.stage == stage).map(|one| one.took)
}
