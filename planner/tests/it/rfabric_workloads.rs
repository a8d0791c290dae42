// SPDX-License-Identifier: Apache-2.0
//! All workloads of the file format: bytes are recomputed from the formulas, and error messages are
//! checked.

use lightloom_fabric::document::{Style, render};
use lightloom_fabric::model::MODEL_FILES;
use lightloom_planner::rfabric::phases::Phase;
use lightloom_planner::{joint, load};
use lightloom_units::Picoseconds;

const SHIPPED: &str = include_str!("../../../topologies/rfabric-workloads.yaml");

fn no_file(name: &str) -> Result<String, String> {
    Err(format!("cannot read {name}"))
}

fn phases(text: &str) -> Vec<Phase> {
    phases_beside(text, &mut no_file)
}

fn phases_beside(text: &str, read: &mut dyn FnMut(&str) -> Result<String, String>) -> Vec<Phase> {
    let (fabric, mistakes) = load("f.yaml", text.as_bytes(), read);
    assert!(mistakes.is_empty(), "{}", render(&mistakes, Style::Plain));
    joint::phases(&fabric.expect("a sound file"), &[]).expect("a sound step")
}

/// Qwen2.5-72B: 80 layers of width 8192, keys and values for 8 of 64 heads of 128, three matrices
/// of 29568, a vocabulary of 152064, and two norms per layer.
fn weight_bytes() -> f64 {
    let (h, width) = (8192.0, 29568.0);
    let attention = 2.0 * h * h + 2.0 * h * 8.0 * 128.0;
    2.0 * (80.0 * (attention + 3.0 * h * width + 2.0 * h) + 2.0 * 152_064.0 * h)
}

/// 80 layers, keys and values, 8 heads of 128 elements, two bytes each.
const CACHE_BYTES: f64 = 80.0 * 2.0 * 8.0 * 128.0 * 2.0;

#[test]
fn every_workload_sends_the_bytes_in_its_formula() {
    let phases = phases(SHIPPED);
    let expected = [
        // Eight rings of eight ranks: each rank sends 2·7/8 of an eighth of the weights.
        ("gradients", 8.0 * 8.0 * 2.0 * 7.0 / 8.0 * weight_bytes() / 8.0),
        // Each of four replicas receives the weights once.
        ("weights", 4.0 * weight_bytes()),
        // Each token has four bytes, and its log-probability another four.
        ("samples", 8e6),
        // The batch limit allows 12 samples on two instances, so the six samples on the other two
        // move.
        ("sample-migration", 6.0 * 4096.0 * CACHE_BYTES),
        // Heads stay below a leaf. Each of 16 GPUs gathers an eighth of the heads from the other
        // group.
        ("sparse-attention", 80.0 * 16.0 * 2.0 * 4.0 * 0.1 * 0.25 * 262_144.0 * 128.0 * 2.0),
        // Each of eight GPUs sends query, keys and values of 1024 tokens to the server and gets the
        // output back.
        ("core-attention", 80.0 * 8.0 * 1024.0 * (64.0 + 16.0 + 64.0) * 128.0 * 2.0),
        // One byte per element goes to the feed-forward part, and two come back.
        ("attention-feed-forward", 1000.0 * 3.0 * 7168.0 * 61.0 * 1024.0),
        ("prefill-decode", 3000.0 * CACHE_BYTES),
        // The query moves because it is smaller than the cache. The output and the log-sum-exp are
        // returned.
        ("prefix-pool", 80.0 * 64.0 * 64.0 * (2.0 * 128.0 * 2.0 + 4.0)),
        ("pipeline", 2.0 * 800.0 * 16384.0),
        // 0.01 is below 2/16, so this is an all-gather of compressed tensors.
        ("compressed-gradients", 16.0 * 15.0 * 0.01 * 1e9),
        ("stragglers", 4.0 * 2.0 * 3.0 / 4.0 * 1e9),
        ("elastic-join", 2.0 * weight_bytes()),
    ];
    assert_eq!(phases.len(), expected.len());
    for (phase, (name, bytes)) in phases.iter().zip(expected) {
        assert_eq!(phase.name, name);
        let ratio = phase.demand.total().0 as f64 / bytes;
        assert!((ratio - 1.0).abs() < 1e-5, "{name}: {} and not {bytes}", phase.demand.total().0);
    }
    let stragglers = &phases[11];
    assert_eq!(stragglers.slack, Picoseconds::from_millis(100));
}

#[test]
fn sharded_training_gathers_weights_twice_and_scatters_gradients_once() {
    let sharded =
        phases(&SHIPPED.replace("part: data_parallel", "part: data_parallel, sharding: sharded"));
    let ratio = sharded[0].demand.total().0 as f64 / phases(SHIPPED)[0].demand.total().0 as f64;
    assert!((ratio - 1.5).abs() < 1e-5, "three halves of an all-reduce: {ratio}");
}

fn refusal(from: &str, to: &str) -> String {
    assert!(SHIPPED.contains(from), "{from}");
    let text = SHIPPED.replacen(from, to, 1);
    let (fabric, mistakes) = load("f.yaml", text.as_bytes(), &mut no_file);
    assert!(fabric.is_none(), "refused: {to}");
    render(&mistakes, Style::Plain)
}

#[test]
fn rejects_mismatched_workloads_with_location_and_fix() {
    for (from, to, parts) in [
        (
            "place: {gpus: 64}, tp: 8",
            "place: {gpus: 64}, tp: 7",
            ["64 is not a multiple of 7", "f.yaml:22:", "help: use a divisor of 64"],
        ),
        (
            "pool: {first_leaf: leaf8, gpus: 64}",
            "pool: {first_leaf: leaf9, gpus: 64}",
            ["64 GPUs starting at leaf9 need 8 leaves", "f.yaml:25:", "help: use fewer GPUs"],
        ),
        (
            "to: {first_leaf: leaf5}",
            "to: {first_leaf: leaf16}",
            [
                "fewer than 1 leaves starting at leaf16",
                "f.yaml:",
                "help: use at least 1 leaf from leaf0 to leaf15",
            ],
        ),
        (
            "to: {first_leaf: leaf5}",
            "to: {leaves: 2}",
            [
                "leaf0 is both a sender and a receiver",
                "f.yaml:",
                "help: use disjoint sets of senders and receivers",
            ],
        ),
        (
            "gpu: 8, tokens",
            "gpu: 16, tokens",
            ["prefill GPU 16 does not exist", "f.yaml:", "help: use 0 to 15"],
        ),
        (
            "model: qwen2.5-72b",
            "model: qwen2.5-7b",
            [
                "model `qwen2.5-7b` does not exist",
                "f.yaml:22:",
                "help: did you mean `qwen2.5-72b`?",
            ],
        ),
        (
            "model: qwen2.5-72b",
            "model: mine.yaml",
            ["cannot read mine.yaml", "f.yaml:22:", "help: use one of deepseek-v3,"],
        ),
    ] {
        let said = refusal(from, to);
        let mut rest = said.as_str();
        for part in parts {
            let at = rest.find(part).unwrap_or_else(|| panic!("no `{part}` in order in\n{said}"));
            rest = &rest[at + part.len()..];
        }
    }
}

#[test]
fn custom_model_file_determines_its_bytes() {
    let (_, text) = MODEL_FILES.iter().find(|(name, _)| *name == "qwen2.5-72b").expect("shipped");
    let half =
        text.replace("layers: 80", "layers: 40").replace("vocabulary: 152064", "vocabulary: 1");
    let own = SHIPPED.replace("model: qwen2.5-72b", "model: cards/mine.yaml");
    let mut read = |name: &str| {
        assert_eq!(name, "cards/mine.yaml");
        Ok(half.clone())
    };
    let bytes = |phases: &[Phase], phase: usize| phases[phase].demand.total().0 as f64;
    let (own, shipped) = (phases_beside(&own, &mut read), phases(SHIPPED));
    assert_eq!(bytes(&own, 7) * 2.0, bytes(&shipped, 7), "half the layers, half the cache");
    assert!(
        (0.45..0.5).contains(&(bytes(&own, 1) / bytes(&shipped, 1))),
        "and less than half the weights"
    );

    let mut wrong = |_: &str| Ok(text.replace("hidden: 8192", "hidden: 0"));
    let (none, mistakes) =
        load("f.yaml", SHIPPED.replacen("qwen2.5-72b", "mine.yaml", 1).as_bytes(), &mut wrong);
    assert!(none.is_none());
    let said = render(&mistakes, Style::Plain);
    assert!(said.contains("mine.yaml:4:9") && said.contains("help: use at least 1"), "{said}");
}
