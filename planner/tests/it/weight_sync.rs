// SPDX-License-Identifier: Apache-2.0
//! Methods of sending new weights: bytes received, bytes across the cut, duration, and the
//! recommended method.

use crate::joint_fabric;
use joint_fabric::{fabric, faults};
use lightloom_fabric::file::SyncMethod;
use lightloom_fabric::plan::{MethodTimes, SyncChoice};
use lightloom_planner::check::check;
use lightloom_planner::joint::sync::compare;
use lightloom_planner::rfabric::workload::card::ModelCard;
use lightloom_planner::{Options, plan};

fn by_leaf(sync: &str, replica: u32, oversubscription: u32) -> String {
    format!(
        "kind: fabric\nversion: 2\nname: x\ndcn: {{reconfigurable_fat_tree: {{leaves: 8, gpus_per_leaf: 16, \
         circuit_rate: 400Gbps, electrical: {{rate_per_leaf: 6.4Tbps, oversubscription: {oversubscription}}}, \
         banks: [{{name: core, switches: 4, ports_per_switch: 16, ports_per_leaf: 2}}], \
         timing: {{control: 1ms, switching: 10ms}}}}}}\n\
         jobs: [{{name: rl, step: {{rl: {{model: llama-3.1-8b, trainer_gpus: 64, generation_gpus: 64, tp: 8, pp: 2, \
         samples: 64, tokens_per_sample: 4096, replica_gpus: {replica}, {sync}}}}}}}]\n"
    )
}

fn on_rings(sync: &str) -> String {
    format!(
        "kind: fabric\nversion: 2\nname: x\nhbd: {{khop: {{nodes: 32, gpus_per_node: 4, k: 2}}}}\n\
         dcn: {{leaf_spine: {{nodes_per_leaf: 4}}}}\n\
         jobs: [{{name: rl, gpus: 96, tp: 8, step: {{rl: {{model: llama-3.1-8b, trainer_gpus: 32, generation_gpus: 64, \
         tp: 8, pp: 2, samples: 64, tokens_per_sample: 4096, replica_gpus: 16, {sync}}}}}}}]\n"
    )
}

fn choice(text: &str) -> SyncChoice {
    let fabric = fabric(text);
    let none = faults(&fabric, &[]);
    let plan = plan(&fabric, &none, Options::default()).expect("a plan");
    if let Err(found) = check(&fabric, &none, &plan) {
        panic!("{text}: {found:?}");
    }
    let mut found = compare(&fabric, &none, &plan, Options::default());
    assert_eq!(found.len(), 1);
    found.remove(0)
}

fn all_bytes(method: &MethodTimes) -> u64 {
    method.ring_bytes.0 + method.leaf_bytes.0 + method.demand_bytes.0
}

fn weights() -> u64 {
    ModelCard::named("llama-3.1-8b").expect("it is shipped").weight_bytes().0
}

#[test]
fn every_replica_receives_its_share_and_the_fastest_method_wins() {
    for (text, replicas) in [
        (by_leaf("migrated_share: 0", 16, 4), 4),
        (by_leaf("weight_sync: {method: shards}", 8, 1), 8),
        (by_leaf("weight_sync: {delta_share: 0.02}", 32, 8), 2),
        (on_rings("weight_sync: {method: broadcast, delta_share: 0.013}"), 4),
        (on_rings("weight_sync: {method: shards}"), 4),
        (on_rings("weight_sync: {method: relay, delta_share: 0.5}"), 4),
    ] {
        let choice = choice(&text);
        let size = (weights() as f64 * choice.delta_share).round() as u64;
        for method in &choice.methods {
            assert_eq!(all_bytes(method), replicas * size, "{text} {method:?}");
            let copies = if method.method == SyncMethod::Relay { 1 } else { replicas };
            assert_eq!(method.trainer_bytes.0, copies * size, "{text} {method:?}");
        }
        let time = |wanted| {
            choice.methods.iter().find(|method| Some(method.method) == wanted).expect("a method")
        };
        let planned = choice.methods.iter().filter_map(|method| method.planned_ps).min();
        assert_eq!(time(choice.best).planned_ps, planned, "{choice:?}");
        let packets = choice.methods.iter().filter_map(|method| method.packets_ps).min();
        assert_eq!(time(choice.best_on_packets).packets_ps, packets, "{choice:?}");
    }
}

/// The single replica is in the other half of a non-blocking packet network. Each of its leaves
/// receives a quarter of the weights at the rate of its GPUs' interfaces. No network is faster than
/// all uplinks of that half together.
#[test]
fn leaf_rate_limits_the_transfer_to_a_single_replica() {
    let choice = choice(&by_leaf("slack: {}", 64, 1));
    for method in &choice.methods {
        let packets = method.packets_ps.expect("served").as_secs_f64();
        let by_hand = weights() as f64 * 8.0 / (4.0 * 6.4e12);
        assert!((packets / by_hand - 1.0).abs() < 1e-6, "{method:?}: {packets} {by_hand}");
    }
    for (replica, oversubscription) in [(64, 8), (16, 4), (8, 8)] {
        let found = self::choice(&by_leaf("slack: {}", replica, oversubscription));
        for method in &found.methods {
            // The trainer's four leaves have uplinks and, with planned circuits, 8 circuits per
            // leaf.
            let core = 4.0 * 6.4e12 / f64::from(oversubscription);
            let least = method.trainer_bytes.0 as f64 * 8.0;
            let [packets, planned] = [method.packets_ps, method.planned_ps]
                .map(|time| time.expect("served").as_secs_f64());
            assert!(packets >= least / core * (1.0 - 1e-9), "{method:?}");
            assert!(planned >= least / (core + 4.0 * 8.0 * 400e9) * (1.0 - 1e-9), "{method:?}");
            assert!(planned <= packets * (1.0 + 1e-9), "{method:?}");
        }
    }
}

#[test]
fn documented_figures_match_the_shipped_step() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let read = |file: &str| std::fs::read_to_string(format!("{root}/{file}")).unwrap();
    let choice = choice(&read("topologies/rfabric-2048.yaml"));
    let page = read("docs/rfabric.md").replace('\n', " ");
    let of = |wanted| choice.methods.iter().find(|method| method.method == wanted).unwrap();
    let [relay, broadcast, shards] = SyncMethod::ALL.map(of);
    let ms = |time: Option<lightloom_units::Picoseconds>| time.unwrap().as_secs_f64() * 1e3;
    assert_eq!(broadcast.planned_ps, shards.planned_ps);
    let without_slack = shards.change_pays_from_without_slack.unwrap();
    for said in [
        format!("broadcast and shards take {:.1} ms", ms(shards.planned_ps)),
        format!("relay takes {:.2} times as long", ms(relay.planned_ps) / ms(shards.planned_ps)),
        format!("every method takes {:.1} ms", ms(relay.packets_ps)),
        format!("at least {:.0} % of the bytes", 100.0 * without_slack),
    ] {
        assert!(page.contains(&said), "{said}");
    }
    assert_eq!(shards.change_pays_from, Some(0.0));
}
