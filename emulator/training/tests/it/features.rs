// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use lightloom_training::calibration::Precision;
use lightloom_training::cards;
use lightloom_training::features::Features;
use lightloom_training::mapping::Batch;
use lightloom_training::mfu::Convention;
use lightloom_training::request::{Changes, Prepared, Request};
use lightloom_training::search::Limits;
use lightloom_training::step::StepTime;

/// Qwen3-30B on eight GB200, as in Megatron-Bridge's performance summaries.
fn request(software: &str, features: Option<&str>) -> Prepared {
    let limits = Limits {
        tensor: vec![1],
        context: vec![1],
        pipeline: vec![1],
        expert: vec![8],
        micro_batch: vec![4],
        virtual_stages: vec![1],
        ..Limits::default()
    };
    let changes = Changes {
        features: features.map(|words| words.parse().expect("features")),
        ..Changes::default()
    };
    let request = Request {
        model: cards::model("qwen3-30b-a3b").expect("shipped"),
        card: cards::accelerator("gb200").expect("shipped"),
        batch: Batch { sequences: 512, tokens: 4096 },
        precision: Precision::Mxfp8,
        expert_imbalance: 0.0,
        convention: Convention::MfuCausal,
        limits,
        constants: Some(software.to_owned()),
        refitted: BTreeMap::new(),
        changes,
    };
    request.prepare().expect("it can be computed")
}

fn step(prepared: &Prepared) -> StepTime {
    let network = prepared.request().card.network();
    prepared.search(8, &network).run().found.first().expect("it fits").step
}

/// Regression test: both containers took 8.66 s. Published are 26,373 and 40,706 tokens per second
/// and GPU (Megatron-Bridge, docs/performance-summary.md of v0.4.0 and of v0.5.0).
#[test]
fn newer_container_is_faster_by_its_recipe_features() {
    let [before, after] = ["megatron-bridge-26.02.01", "megatron-bridge-26.06"].map(|software| {
        let prepared = request(software, None);
        println!("{software}: {}", prepared.calibration().software.features);
        step(&prepared).step_seconds
    });
    let [published, later] = [26_373.0, 40_706.0].map(|rate| 512.0 * 4096.0 / 8.0 / rate);
    println!("{before:.2} s of {published:.2}, {after:.2} s of {later:.2}");
    assert!((after / later - 1.0).abs() < 0.1, "{after} of {later}");
    assert!((before / published - 1.0).abs() < 0.2, "{before} of {published}");
    assert!((after / before / (later / published) - 1.0).abs() < 0.15, "{after} and {before}");
}

#[test]
fn each_feature_reduces_its_own_cost() {
    let of = |features| step(&request("megatron-bridge-26.02.01", Some(features)));
    let plain = of("none");
    for features in [
        "grouped-experts",
        "grouped-experts,fused-experts",
        "hybrid-ep",
        "overlapped-dispatch,graphs",
    ] {
        let step = of(features).step_seconds;
        assert!(step < plain.step_seconds, "{features}: {step}");
    }
    assert!(plain.expert_seconds > 0.0);
    assert!(of("deep-ep").expert_seconds < 0.7 * plain.expert_seconds);
    assert!(of("overlapped-dispatch").expert_seconds.abs() < f64::EPSILON);
}

#[test]
fn features_round_trip_through_text() {
    let some: Features = "graphs,deep-ep".parse().expect("features");
    assert_eq!(some.to_string(), "graphs, deep-ep");
    assert_eq!(Features::NONE.to_string(), "none");
    assert_eq!("none".parse::<Features>().expect("none"), Features::NONE);
    let refused = "graph".parse::<Features>().unwrap_err().to_string();
    assert!(refused.contains("unknown feature `graph`") && refused.contains("grouped-experts"));
}

#[test]
fn features_follow_arguments_and_not_the_name_of_the_model() {
    let command = "pretrain_gpt.py --cuda-graph-impl local --moe-grouped-gemm \\\n --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep";
    let file = "model:\n  cuda_graph_impl: \"none\"\n  moe_grouped_gemm: true\n  moe_expert_capacity_factor: 1.0\n  overlap_moe_expert_parallel_comm: false\n";
    let launcher = "cfg.model.moe_token_dispatcher_type=flex\ncfg.model.cuda_graph_impl=transformer_engine\ncfg.model.cuda_graph_scope=[\"moe_router\"]";
    for (text, expected) in [
        (command, "graphs, grouped-experts, hybrid-ep"),
        (file, "grouped-experts, token-drop"),
        (launcher, "deep-ep"),
    ] {
        assert_eq!(Features::from_arguments(text).expect("arguments").to_string(), expected);
    }
    assert!(Features::from_arguments("hidden_size: 4096").is_err());
    let of = |name: &str| {
        let mut request = request("megatron-bridge-26.06", None).request().clone();
        request.model.name = name.to_owned();
        request.prepare().expect("it can be computed").calibration().software.features
    };
    assert_eq!(of("m"), of("qwen3-30b-a3b"));
    assert!(of("m").to_string().contains("hybrid-ep"));
}
