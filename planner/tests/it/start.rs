// SPDX-License-Identifier: Apache-2.0
//! States of parts at the start: failed, drained and absent nodes are counted apart.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::Part;
use lightloom_planner::check::check;
use lightloom_planner::{Options, load, plan};
use lightloom_units::id::NodeId;

fn building(name: &str) -> Fabric {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../topologies/buildings");
    let bytes = std::fs::read(format!("{folder}/{name}")).unwrap();
    load(name, &bytes, &mut |file| Err(format!("no {file}"))).0.unwrap()
}

#[test]
fn absent_nodes_are_neither_used_nor_counted() {
    let fabric = building("smaller-leaves.yaml");
    let mut faults = fabric.start.clone();
    assert_eq!(faults.remove(&fabric, Part::Node(NodeId(10))), Ok(false), "it is not installed");
    let whole = plan(&fabric, &faults, Options::default()).unwrap();
    assert_eq!(check(&fabric, &faults, &whole).map(|_| ()), Ok(()));
    assert!(whole.ranks.iter().all(|rank| !fabric.absent.contains(&rank.gpu.node)));
    let metrics = &whole.metrics;
    assert_eq!((metrics.gpus_total, metrics.gpus_faulty, metrics.gpus_used), (56, 0, 56));
}

#[test]
fn drained_nodes_are_wasted_and_have_not_failed() {
    let fabric = building("out-of-service.yaml");
    let mut faults = fabric.start.clone();
    faults.nodes.insert(NodeId(0));
    let whole = plan(&fabric, &faults, Options::default()).unwrap();
    assert_eq!(check(&fabric, &faults, &whole).map(|_| ()), Ok(()));
    let metrics = &whole.metrics;
    assert_eq!((metrics.gpus_total, metrics.gpus_faulty, metrics.gpus_wasted), (64, 16, 8));
}
