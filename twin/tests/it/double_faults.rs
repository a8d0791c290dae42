// SPDX-License-Identifier: Apache-2.0
//! Two simultaneous faults determined by a seed. The shipped daemon violates no invariant, all
//! packets are accounted for, and groups that share nothing with the failed parts end at the same
//! picosecond as without faults.
//!
//! To run more seeds: `LIGHTLOOM_TWIN_SEEDS=1000 cargo test -p lightloom-twin --test it
//! double_faults:: -- --nocapture`.

use crate::scenes;
use std::collections::BTreeMap;

use lightloom_emulator::outcome::Outcome;
use lightloom_emulator::scenario::{RunStart, Scenario};
use lightloom_fabric::khop::Port;
use lightloom_testkit::cases;
use lightloom_units::id::{BundleId, NodeId};
use lightloom_units::seed::Seed;
use rand::RngExt;
use scenes::{read, ring, run_read, scene};

const NODES: u32 = 32;

fn seeds() -> u64 {
    let asked = std::env::var("LIGHTLOOM_TWIN_SEEDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(cases(50, 1_000))
}

fn faults(seed: u64) -> (String, Vec<String>) {
    let mut draws = Seed(seed).stream("double faults", 0);
    let mut text = Vec::new();
    let mut kinds = Vec::new();
    for turn in 0..2 {
        let node = draws.random_range(0..NODES);
        let bundle = draws.random_range(0..2);
        let at = 50 + turn * draws.random_range(0..40_000);
        let (part, effect) = match draws.random_range(0..8) {
            0 | 1 => (format!("n{node}"), "down".to_owned()),
            2 => (format!("n{node}/b{bundle}"), "down".to_owned()),
            3 => (format!("n{node}/b{bundle}.{}", draws.random_range(1..3)), "down".to_owned()),
            4 => (format!("n{node}/b{bundle}"), "stuck".to_owned()),
            5 => (format!("n{node}/b{bundle}"), "lies".to_owned()),
            6 => (format!("n{node}/b{bundle}"), "{late: 3ms}".to_owned()),
            _ => (
                format!("n{node}/b{bundle}.1"),
                "{flapping: {down: 2ms, up: 7ms, times: 3}}".to_owned(),
            ),
        };
        kinds.push(part.clone());
        text.push(format!("{{part: {part}, effect: {effect}, at: {at}us}}"));
    }
    (text.join(", "), kinds)
}

fn touched(scenario: &Scenario, part: &str) -> Vec<NodeId> {
    let lightloom_emulator::scenario::On::Fabric(fabric) = &scenario.on else { return Vec::new() };
    let part: lightloom_fabric::fault::Part = part.parse().unwrap();
    let node = part.node().unwrap();
    let bundles = (0..2).map(|bundle| BundleId { node, bundle });
    let ports = bundles.flat_map(|bundle| [1, 2].map(|path| Port { bundle, path }));
    ports.filter_map(|port| Some(fabric.hbd.peer(port)?.bundle.node)).chain([node]).collect()
}

fn check(seed: u64, outcome: &Outcome, start: &RunStart, touched: &[NodeId]) {
    let daemon = outcome.lightloomd.as_ref().unwrap();
    assert!(daemon.violations.is_empty(), "seed {seed}: {:?}", daemon.violations);
    let packets = &outcome.head.packets;
    let known = packets.delivered + packets.dropped + packets.lost + packets.in_flight;
    assert_eq!(packets.sent, known, "seed {seed}: {packets:?}");
    let (plan, _) = start.plan.as_deref().unwrap();
    let groups = plan.groups.iter().filter(|group| group.job.is_some());
    for (place, group) in groups.enumerate() {
        if group.ring.iter().any(|gpu| touched.contains(&gpu.node)) {
            continue;
        }
        let result = &outcome.groups[place];
        assert_eq!(result.end, result.end_without_faults, "seed {seed}: {result:?}");
        assert!(result.end.is_some(), "seed {seed}: {result:?}");
    }
}

#[test]
fn two_simultaneous_faults_keep_invariants_and_other_groups() {
    let fabric = ring(NODES, 96);
    let mut counts = BTreeMap::<&str, u64>::new();
    for seed in 0..seeds() {
        let (faults, parts) = faults(seed);
        let scenario = read(&fabric, &scene(seed, 20, "lightloomd", &faults)).unwrap();
        let (start, outcome) = run_read(&scenario, 1);
        let touched: Vec<NodeId> = parts.iter().flat_map(|part| touched(&scenario, part)).collect();
        check(seed, &outcome, &start, &touched);
        let daemon = outcome.lightloomd.as_ref().unwrap();
        for (name, count) in [
            ("bypasses", daemon.bypasses),
            ("false bypasses", daemon.false_bypasses),
            ("committed", daemon.committed),
            ("not committed", daemon.not_committed),
            (
                "faults with a timeline",
                outcome.faults.iter().filter(|f| !f.timeline.is_empty()).count() as u64,
            ),
        ] {
            *counts.entry(name).or_default() += count;
        }
    }
    println!("{} seeds: {counts:?}, 0 violations", seeds());
    assert!(counts["committed"] > 0);
}
