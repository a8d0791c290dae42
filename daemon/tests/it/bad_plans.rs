// SPDX-License-Identifier: Apache-2.0
//! Plans for another fabric, with manual edits or for unknown devices must be refused.

use lightloom_control::desired::{self, circuits::Switches};
use lightloom_control::state::SwitchState as Positions;
use lightloom_daemon::api::PlanDocument;
use lightloom_daemon::{config, start};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_planner::khop::{Method, plan, to_document};
use lightloom_units::seed::Seed;
use serde_json::{Value, json};

fn ring(nodes: u32, jobs: &str) -> Fabric {
    let text = format!(
        "kind: fabric\nversion: 2\nname: r\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: 2}}}}\njobs: [{jobs}]\n"
    );
    lightloom_fabric::file::load("ring.yaml", text.as_bytes()).0.unwrap()
}

const JOB: &str = "{name: j, gpus: 32, tp: 16}";

fn plan_for(fabric: &Fabric) -> Value {
    let none = FaultSet::none();
    let layout = plan(fabric, &none, Method::Scan).unwrap();
    serde_json::to_value(to_document(fabric, &none, Seed(1), &layout)).unwrap()
}

fn said(document: &Value, last_node: u32) -> Result<usize, String> {
    let file = format!(
        "state_dir: /nowhere\nmodules: [{{nodes: [0, {last_node}], bundles: 2, serial: x}}]\n"
    );
    let config = config::load("daemon.yaml", file.as_bytes()).0.unwrap();
    let installed = ring(16, JOB);
    let read = serde_json::from_value::<PlanDocument>(document.clone());
    let plan = read.map_err(|error| error.to_string())?.0?;
    let (none, nothing) = (Switches::new(), Positions::new());
    desired::prove(&plan, Some(&installed))
        .and_then(|()| desired::wanted(&plan, None, &config.bundles, &none, &nothing))
        .map(|wanted| wanted.target.len())
        .map_err(|reasons| reasons.join("\n"))
}

#[test]
fn accepts_a_matching_plan() {
    assert_eq!(said(&plan_for(&ring(16, JOB)), 15), Ok(32));
}

#[test]
fn rejects_plan_for_other_fabric() {
    for (nodes, job) in [(12, JOB), (20, JOB), (16, "{name: j, gpus: 16, tp: 8}")] {
        let error = said(&plan_for(&ring(nodes, job)), 15).unwrap_err();
        let theirs = format!(
            "for a different fabric of {nodes} nodes, 2 bundles per node, {} GPUs",
            nodes * 4
        );
        assert!(error.contains(&theirs), "{error}");
        assert!(
            error.contains("this daemon drives `r` of 16 nodes, 2 bundles per node, 64 GPUs"),
            "{error}"
        );
        assert_eq!(error.contains("same size"), nodes == 16, "{error}");
    }
}

#[test]
fn rejects_fabric_file_as_plan_and_suggests_the_command() {
    let fabric = json!({"name": "r", "hbd": {"khop": {"nodes": 16, "gpus_per_node": 4, "k": 2}}});
    let error = said(&fabric, 15).unwrap_err();
    assert!(error.contains("fabric file") && error.contains("lightloom plan"), "{error}");
}

#[test]
fn rejects_daemon_file_with_modules_outside_the_fabric() {
    let folder = tempfile::tempdir().unwrap();
    let file = "state_dir: /nowhere\nfabric: ring.yaml\nmodules:\n\
        - {nodes: [0, 99], bundles: 9, serial: x}\ndevices:\n- {name: n200/b0, driver: {ocstrx: {serial: y}}}\n";
    std::fs::write(folder.path().join("daemon.yaml"), file).unwrap();
    let fabric =
        "kind: fabric\nversion: 2\nname: r\nhbd: {khop: {nodes: 16, gpus_per_node: 4, k: 2}}\n";
    std::fs::write(folder.path().join("ring.yaml"), fabric).unwrap();
    let error = start::read_files(&folder.path().join("daemon.yaml")).unwrap_err().to_string();
    for line in [
        "error[LL0606]: n99 is not in the fabric",
        "daemon.yaml:4:11",
        "error[LL0606]: the fabric has fewer than 9 bundles per node",
        "daemon.yaml:4:29",
        "error[LL0606]: n200/b0 is not in the fabric",
        "daemon.yaml:6:10",
        "6 | - {name: n200/b0, driver: {ocstrx: {serial: y}}}",
        "  = help: the fabric `r` has nodes n0 to n15 with bundles b0 to b1 each",
    ] {
        assert!(error.contains(line), "{line} is not in:\n{error}");
    }
}

#[test]
fn rejects_management_inventory_with_unknown_names() {
    let folder = tempfile::tempdir().unwrap();
    let file = "state_dir: /nowhere\nmodules:\n- {nodes: [0, 3], bundles: 2, serial: x}\nmanagement:\n\
        - {name: ts0, kind: server, lines: [n0, n1/b1, n9, ocs7]}\n- {name: ts0, kind: server, lines: [n2]}\n";
    std::fs::write(folder.path().join("daemon.yaml"), file).unwrap();
    let error = start::read_files(&folder.path().join("daemon.yaml")).unwrap_err().to_string();
    for line in [
        "error[LL0607]: `n9` is neither a device nor a node with modules in this file",
        "daemon.yaml:5:48",
        "error[LL0607]: `ocs7` is neither a device nor a node with modules in this file",
        "daemon.yaml:5:52",
        "  = help: use a device name, such as `n0/b0`, or a node name, such as `n0`",
        "error[LL0601]: `ts0` is already defined",
        "daemon.yaml:6:10",
    ] {
        assert!(error.contains(line), "{line} is not in:\n{error}");
    }
}

#[test]
fn rejects_plan_edited_by_hand() {
    let good = plan_for(&ring(16, JOB));
    let lit = good["transceivers"].as_array().unwrap();
    let lit = lit.iter().position(|t| t["path"] == "external-1").unwrap();
    let mut changed = good.clone();
    changed["transceivers"][lit]["path"] = json!("external-2");
    let error = said(&changed, 15).unwrap_err();
    assert!(!error.is_empty());
    let mut short = good.clone();
    short["groups"][0]["ring"].as_array_mut().unwrap().pop();
    assert!(said(&short, 15).is_err());
    assert!(said(&json!({"schema": "lightloom.plan/v1"}), 15).unwrap_err().contains("not a plan"));
}

#[test]
fn rejects_plan_for_modules_without_configured_devices() {
    let error = said(&plan_for(&ring(16, JOB)), 14).unwrap_err();
    assert!(error.contains("n15/b0: no device is configured for it"), "{error}");
}
