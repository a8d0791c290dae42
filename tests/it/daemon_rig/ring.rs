// SPDX-License-Identifier: Apache-2.0
//! A ring of emulated modules with a daemon. Fibres carry light only if both ends select them.

use std::path::Path;
use std::time::Duration;

use lightloom_control::replan;
use lightloom_daemon::runtime::Runtime;
use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::Plan;

use super::{Modules, Rig, first_plan, installed};

pub(crate) const NODES: u32 = 16;

pub(crate) fn ring(links: &Path) -> Modules {
    let names = format!("n{{0..{}}}/b{{0..1}}", NODES - 1);
    let list =
        format!("fabric: ring.yaml\ntransceivers:\n  - {{names: \"{names}\", powered_for: 2s}}\n");
    Modules::of_list(&list, links).0
}

pub(crate) async fn daemon(folder: &Path) -> Rig {
    daemon_that("bypass", folder).await
}

pub(crate) async fn daemon_that(on_fault: &str, folder: &Path) -> Rig {
    daemon_with(&usual(on_fault), folder).await
}

fn usual(on_fault: &str) -> String {
    format!("on_fault: {on_fault}, heartbeat: 20s")
}

pub(crate) async fn daemon_with(policies: &str, folder: &Path) -> Rig {
    let mut rig = daemon_again(policies, folder).await;
    rig.adopt_all().await;
    rig.apply_plan(&first_plan(&installed(NODES))).await;
    rig
}

pub(crate) async fn restarted(rig: Rig, on_fault: &str, folder: &Path) -> Rig {
    let requests = rig.requests;
    drop(rig);
    // The daemon exits when it has no callers.
    tokio::time::sleep(Duration::from_millis(200)).await;
    Rig { requests, ..daemon_again(&usual(on_fault), folder).await }
}

async fn daemon_again(policies: &str, folder: &Path) -> Rig {
    let links = folder.join("links");
    let file = format!(
        "policies: {{{policies}, poll_every: 200ms}}\nmodules:\n\
         - {{nodes: [0, {}], bundles: 2, serial: \"{}/n{{node}}-b{{bundle}}\"}}\n",
        NODES - 1,
        links.display()
    );
    Rig::of_devices(&file, folder, Some(installed(NODES))).await
}

pub(crate) fn plan_around(parts: &[Part]) -> Plan {
    let installed = installed(NODES);
    replan::next_plan(&installed, &first_plan(&installed), parts, &[]).unwrap()
}

pub(crate) fn faults(runtime: &Runtime) -> Vec<Part> {
    runtime.control.plan().map(|plan| plan.faults.clone()).unwrap_or_default()
}

pub(crate) fn node_in_use() -> u32 {
    first_plan(&installed(NODES)).circuits[1].a.bundle.node.0
}
