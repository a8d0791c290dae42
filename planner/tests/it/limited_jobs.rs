// SPDX-License-Identifier: Apache-2.0
//! Jobs that may only use some nodes, or that run with fewer GPUs if not all fit.

use std::collections::BTreeSet;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_planner::check::{Violation, check};
use lightloom_planner::{Options, joint, load, plan};
use lightloom_units::id::NodeId;

fn fabric(hbd: &str, jobs: &str) -> Fabric {
    let order = if hbd.starts_with("khop") { "deployment: {order: sequential}\n" } else { "" };
    let text =
        format!("kind: fabric\nversion: 2\nname: f\nhbd: {{{hbd}}}\n{order}jobs: [{jobs}]\n");
    let (fabric, mistakes) = load("f.yaml", text.as_bytes(), &mut |_| Err(String::new()));
    fabric.unwrap_or_else(|| panic!("{text}: {mistakes:?}"))
}

const DOMAINS: [&str; 3] = [
    "khop: {nodes: 24, gpus_per_node: 4, k: 2, shape: line}",
    "switch: {nodes: 24, gpus_per_node: 4, gpus: 16}",
    "none: {nodes: 24, gpus_per_node: 4}",
];

#[test]
fn groups_of_a_bound_job_stay_on_its_nodes() {
    for hbd in DOMAINS {
        let jobs =
            "{name: train, gpus: 48, tp: 8}, {name: eval, gpus: 16, tp: 8, nodes: [n0..n3, n8]}";
        let mut fabric = fabric(hbd, jobs);
        let faults = FaultSet::none();
        let planned = plan(&fabric, &faults, Options::default()).unwrap();
        assert_eq!(check(&fabric, &faults, &planned).map(|_| ()), Ok(()), "{hbd}");
        let own: BTreeSet<u32> = planned
            .groups
            .iter()
            .filter(|group| group.job == Some(1))
            .flat_map(|group| group.nodes.iter().map(|node| node.0))
            .collect();
        assert!(own.iter().all(|node| [0, 1, 2, 3, 8].contains(node)), "{hbd}: {own:?}");
        assert_eq!(planned.metrics.gpus_used, 64);
        fabric.jobs[1].nodes = Some([NodeId(20)].into());
        let found = check(&fabric, &faults, &planned).unwrap_err();
        assert!(matches!(found[0], Violation::NodeOfOthers { .. }), "{found:?}");
        // A replan keeps the limit or refuses.
        fabric.jobs[1].nodes = Some(own.iter().map(|node| NodeId(*node)).collect());
        let mut faults = FaultSet::none();
        faults.nodes.insert(NodeId(*own.first().unwrap()));
        if let Ok(next) = joint::replan(&fabric, &planned, &faults, false, Options::default()) {
            assert_eq!(check(&fabric, &faults, &next.plan).map(|_| ()), Ok(()), "{hbd}");
        }
    }
}

#[test]
fn job_shrinks_to_its_least_size_and_no_further() {
    for hbd in DOMAINS {
        let fabric = fabric(hbd, "{name: train, gpus: 96, least: 64, tp: 8}");
        let gpus = |failed: u32| {
            let mut faults = FaultSet::none();
            faults.nodes.extend((0..failed).map(|node| NodeId(2 * node)));
            let planned = plan(&fabric, &faults, Options::default())?;
            assert_eq!(check(&fabric, &faults, &planned).map(|_| ()), Ok(()), "{hbd}");
            Ok::<u64, lightloom_planner::PlanError>(planned.metrics.gpus_used)
        };
        assert_eq!(gpus(0).unwrap(), 96);
        assert!((64..96).contains(&gpus(3).unwrap()), "{hbd}");
        assert!(gpus(10).unwrap_err().to_string().contains("requests 64 GPUs"), "{hbd}");
    }
}

#[test]
fn limits_that_cannot_hold_are_named_with_their_place() {
    let mistakes = |start: &str, jobs: &str| {
        let text = format!(
            "kind: fabric\nversion: 2\nname: f\nhbd: {{none: {{nodes: 8, gpus_per_node: 4}}}}\n\
             start: {{failed: [{start}]}}\njobs: [{jobs}]\n"
        );
        let (_, mistakes) = load("f.yaml", text.as_bytes(), &mut |_| Err(String::new()));
        let text =
            mistakes.iter().map(|one| format!("{one}; {}", one.help.as_deref().unwrap_or("")));
        text.collect::<Vec<_>>().join("\n")
    };
    let bound = "{name: a, gpus: 8, tp: 4, nodes: [n2..n3, n9]}";
    let text = mistakes("n3", bound);
    assert!(text.contains("job `a` needs 8 GPUs, but its nodes have 4"), "{text}");
    assert!(text.contains("n3, n9") && text.contains("repair them in `start`"), "{text}");
    assert_eq!(mistakes("", "{name: a, gpus: 8, tp: 4, nodes: [n2..n3]}"), "");
    let text = mistakes("", "{name: a, gpus: 8, least: 12, tp: 4}");
    assert!(text.contains("cannot run with 12 GPUs") && text.contains("up to 8"), "{text}");
}
