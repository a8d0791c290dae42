// SPDX-License-Identifier: Apache-2.0
//! A small k-hop ring over a fat-tree, shared by test scenarios.

use lightloom_emulator::outcome::{JobStep, Outcome};
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::scenario::{self, Scenario};
use lightloom_fabric::document::Diagnostic;

pub(crate) fn load(fabric: &str, text: &str) -> (Option<Scenario>, Vec<Diagnostic>) {
    let read = &mut |name: &str| match name {
        "fabric.yaml" => Ok(NamedFile { name: name.to_owned(), bytes: fabric.as_bytes().to_vec() }),
        _ => Err("no such file".to_owned()),
    };
    scenario::file::load("scenario.yaml", text.as_bytes(), read)
}

pub(crate) fn run(fabric: &str, text: &str) -> Outcome {
    let (loaded, mistakes) = load(fabric, text);
    let scenario = loaded.unwrap_or_else(|| panic!("{mistakes:?}"));
    lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap()
}

pub(crate) fn sum(step: &JobStep) -> u64 {
    let why = step.why.unwrap();
    let exposed = why.exposed;
    let exchange = exposed.tp.0 + exposed.pp.0 + exposed.dp.0 + exposed.cp.0 + exposed.ep.0;
    let of_pool = why.generation.0 + exposed.samples.0 + exposed.weights.0;
    let waiting = why.contention.0 + why.transition.0 + why.fault.0 + why.restart.0;
    why.compute.0 + exchange + of_pool + waiting
}

pub(crate) const FABRIC: &str = "
kind: fabric
version: 2
name: test
hbd: {khop: {nodes: 24, gpus_per_node: 4, k: 3}}
dcn: {fat_tree: {nodes_per_tor: 2, tors_per_domain: 6}}
transceiver: {software_delay: 20us}
jobs: [{name: train, gpus: 64, tp: 16}]
";
