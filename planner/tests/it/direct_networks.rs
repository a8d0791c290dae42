// SPDX-License-Identifier: Apache-2.0
//! Tests direct cables between leaves: cables determine the time of traffic, and invalid networks
//! are rejected with the reason.

use crate::joint_fabric;
use joint_fabric::{fabric, faults};
use lightloom_fabric::document::{Style, render};
use lightloom_planner::check::check;
use lightloom_planner::{Options, load, plan};

fn file(dcn: &str, nodes: u32) -> String {
    format!(
        "kind: fabric\nversion: 2\nname: x\nhbd: {{none: {{nodes: {nodes}, gpus_per_node: 8}}}}\ndcn: {dcn}\njobs:\n  - {{name: j, gpus: \
         {}, tp: 8, step: {{training: {{model: llama-3.1-70b, pp: 2, tokens: 4096}}}}}}\n",
        8 * nodes
    )
}

/// Adds a switch within each node to the text of [`file`], so that tensor parallelism uses no
/// network interface.
fn in_domains(dcn: &str) -> String {
    file(dcn, 8).replace("none: {nodes: 8", "switch: {gpus: 8, nodes: 8")
}

#[test]
fn traffic_between_two_leaves_takes_the_time_of_their_cables() {
    let mut held_by_cables = 0;
    for cables in [1_u32, 3, 4] {
        let dcn = format!(
            "{{graph: {{leaves: 2, nodes_per_leaf: 4, links: [{{endpoints: [leaf1, leaf0], cables: {cables}}}]}}}}"
        );
        let fabric = fabric(&in_domains(&dcn));
        for broken in [&[][..], &["l1/up0"][..]] {
            let faults = faults(&fabric, broken);
            let left = cables - broken.len() as u32;
            let plan = plan(&fabric, &faults, Options::default());
            if left == 0 {
                assert!(plan.unwrap_err().to_string().contains("micro-batches"));
                continue;
            }
            let plan = plan.expect("a plan");
            check(&fabric, &faults, &plan).expect("it is sound");
            let sends = |phase: &&lightloom_fabric::plan::PhasePlan| phase.demand_bytes.0 > 0;
            assert!(plan.phases.iter().any(|phase| sends(&phase)));
            for phase in plan.phases.iter().filter(sends) {
                let rate = 0.85 * f64::from(left) * 400e9;
                let of_cables = phase.demand_bytes.0 as f64 * 8.0 / 2.0 / rate;
                let interface = phase.interface_ps.expect("ranks are known").as_secs_f64();
                let seconds = of_cables.max(interface);
                held_by_cables += usize::from(of_cables > interface);
                assert!((phase.duration_ps.as_secs_f64() / seconds - 1.0).abs() < 1e-9);
                assert!(phase.gap.abs() < 1e-9, "nothing is faster");
                assert!(phase.routes.iter().all(|route| route.via.is_empty()));
            }
        }
    }
    assert!(held_by_cables > 2, "{held_by_cables} phases are held up by cables");
}

#[test]
fn detects_a_route_over_a_missing_cable() {
    let fabric = fabric(&file("{torus: {sides: [4, 2], nodes_per_leaf: 1}}", 8));
    let faults = faults(&fabric, &[]);
    let sound = plan(&fabric, &faults, Options::default()).expect("a plan");
    check(&fabric, &faults, &sound).expect("it is sound");
    let refused = |change: &dyn Fn(&mut lightloom_fabric::plan::PhasePlan), words: &str| {
        let mut wrong = sound.clone();
        let phase = wrong.phases.iter_mut().find(|phase| !phase.routes.is_empty());
        change(phase.expect("a phase sends"));
        let found = check(&fabric, &faults, &wrong).expect_err("it is wrong");
        let shown: String = found.iter().map(|v| format!("{v}\n")).collect();
        assert!(shown.contains(words), "{words} in {shown}");
    };
    refused(&|phase| phase.routes[0].weight /= 2.0, "of the traffic");
    refused(&|phase| drop(phase.routes.remove(0)), "of the traffic");
    refused(
        &|phase| phase.routes[0].via = vec!["leaf7".parse().unwrap(); 2],
        "no working cable connects",
    );
    refused(&|phase| phase.lambda_upper_bound *= 1e3, "phases per second is not valid");
    refused(&|phase| phase.duration_ps.0 /= 2, "its routes need");
}

#[test]
fn rejects_invalid_networks_with_the_reason() {
    for (dcn, words) in [
        ("{torus: {sides: [4, 1]}}", "one to six sides of at least 2"),
        ("{torus: {sides: [64, 64]}}", "more than 2048 leaves"),
        (
            "{torus: {sides: [2, 2], nodes_per_leaf: 1}}",
            "8 nodes need 8 leaves of 1 nodes, but there are 4",
        ),
        ("{dragonfly: {groups: 2048, leaves_per_group: 2048}}", "more than 2048 leaves"),
        ("{dragonfly: {groups: 1, leaves_per_group: 4}}", "2"),
        (
            "{graph: {leaves: 3, links: [{endpoints: [leaf0, leaf1]}]}}",
            "leaf2 is not connected to leaf0",
        ),
        ("{graph: {leaves: 2, links: [{endpoints: [leaf0, leaf0]}]}}", "connected to itself"),
        ("{graph: {leaves: 2, links: [{endpoints: [leaf0, leaf5]}]}}", "leaf5 does not exist"),
        (
            "{graph: {leaves: 2, links: [{endpoints: [leaf0, leaf1]}, {endpoints: [leaf1, leaf0]}]}}",
            "connected twice",
        ),
        ("{torus: {sides: [2], link_rate: 0bps}}", "the rate of a link is zero"),
        ("{fat_tree: {core_oversubscription: 2}}", "which has no core"),
        ("{rails: {nics_per_gpu: 2}}", "unknown key `nics_per_gpu`"),
        ("{torus: {sides: [2], oversubscription: 2}}", "unknown key `oversubscription`"),
    ] {
        let text = file(dcn, 8);
        let (fabric, mistakes) = load("f.yaml", text.as_bytes(), &mut |_| Err(String::new()));
        let shown = render(&mistakes, Style::Plain);
        assert!(fabric.is_none() && shown.contains(words), "{dcn}: {words} in {shown}");
        let helps = mistakes.iter().all(|mistake| mistake.help.is_some());
        assert!(helps || shown.contains("expected"), "{shown}");
    }
}

#[test]
fn interfaces_and_core_rate_affect_the_step() {
    let seconds = |keys: &str| {
        let dcn = format!("{{fat_tree: {{nodes_per_tor: 1, tors_per_domain: 4{keys}}}}}");
        let fabric = fabric(&in_domains(&dcn));
        let plan = plan(&fabric, &faults(&fabric, &[]), Options::default()).expect("a plan");
        check(&fabric, &faults(&fabric, &[]), &plan).expect("it is sound");
        plan.metrics.step_time_ps.expect("a step").as_secs_f64()
    };
    let one = seconds("");
    assert!((seconds(", nics_per_gpu: 2") * 2.0 / one - 1.0).abs() < 1e-9);
    let (half, quarter) = (
        seconds(", core_oversubscription: 4"),
        seconds(", core_oversubscription: 4, nics_per_gpu: 2"),
    );
    assert!(half > one, "{half} {one}");
    assert!((quarter * 2.0 / half - 1.0).abs() < 1e-9, "{quarter} {half}");
}
