// SPDX-License-Identifier: Apache-2.0
//! The state folder of an earlier daemon opens in this one, with its plan, its journal and its bypass.

use crate::daemon_rig;
use std::path::Path;

use daemon_rig::ring::ring;
use daemon_rig::{Rig, on_a_runtime};
use lightloom_control::ledger::Past;
use lightloom_control::record::{Cause, TxnResult};
use lightloom_control::state::Txn;
use lightloom_daemon::runtime::Runtime;
use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::{Plan, digest};

/// Written by version 0.1.0 while plans were known by the hash of their bytes, on 32 emulated modules: adopt,
/// a plan with its confirm, the bypass of a node that died, its repair.
const STORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/daemon/tests/data/state-0.1.0");
/// The names it has for its plans: as applied, around the node, and after its repair.
const NAMES: [&str; 3] = [
    "05ff77156cf1ff8ee9e34c79fca505c2955f62e321e9222a96d2651ab52aa515",
    "b27d62f582c37f94785ca82e0a03db8cd15ca09b196b2e4f8d43c14e0afeab93",
    "5ed06306c324f4f9eaec7c23332dd91b3b8e62ba3f92365df824ea9916f96176",
];

/// The last transaction in its journal.
const LAST: Txn = Txn(3);

fn copy_state(to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for file in std::fs::read_dir(STORED).expect("the stored folder").flatten() {
        std::fs::copy(file.path(), to.join(file.file_name())).expect("a copy");
    }
}

#[test]
fn a_state_folder_of_0_1_0_opens_and_a_node_that_dies_is_bypassed() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    copy_state(&state);
    let text = std::fs::read(state.join("ring.yaml")).expect("the fabric");
    let mut none = |_: &str| Err(String::new());
    let (installed, _) =
        lightloom_fabric::file::load_any_version("ring.yaml", &text, &mut none, |_, _| ());
    let installed = installed.expect("it is one");
    let links = folder.path().join("links");
    let modules = ring(&links);
    let devices = format!(
        "policies: {{on_fault: bypass, on_drift: restore, heartbeat: 2s, poll_every: 200ms}}\nmodules:\n\
         - {{nodes: [0, 15], bundles: 2, serial: \"{}/n{{node}}-b{{bundle}}\"}}\n",
        links.display()
    );
    on_a_runtime(async {
        let rig = Rig::of_devices(&devices, folder.path(), Some(installed)).await;
        let opened = |runtime: &Runtime| {
            let ledger = runtime.control.controller().ledger();
            let plans: Vec<String> =
                ledger.history.iter().map(|past| past.plan_sha256.clone()).collect();
            (
                plans,
                ledger.plan_sha256.clone(),
                runtime.control.plan().cloned(),
                ledger.attention.is_empty(),
            )
        };
        let (plans, now, plan, well) = rig.look(opened).await;
        assert_eq!(plans, NAMES, "the journal");
        assert_eq!(now, NAMES[2]);
        assert!(well, "nothing needs attention");
        let plan = plan.expect("the plan in force is known");
        assert!(!plan.circuits.is_empty() && plan.faults.is_empty());
        // The modules were switched on anew: they are led back to where the journal has them.
        let as_intended = |runtime: &Runtime| {
            let mut devices = runtime.control.controller().devices().values();
            (devices.all(|device| device.up && device.drift.is_empty())
                && runtime.control.controller().ledger().open.is_none())
            .then_some(())
        };
        rig.find("every module where the journal has it", as_intended).await;

        let node = plan.circuits[0].a.bundle.node;
        modules.fault(&format!("{node} dead"));
        let of_now = |runtime: &Runtime| {
            let mut history = runtime.control.controller().ledger().history.iter().rev();
            let is_it = |past: &&Past| {
                past.txn > LAST && past.cause == Cause::Bypass && past.result != TxnResult::Aborted
            };
            history.find(is_it).cloned()
        };
        let past = rig.find("a bypass", of_now).await;
        assert_eq!((&past.cause, past.result), (&Cause::Bypass, TxnResult::Committed));
        assert_eq!(past.plan_before, NAMES[2]);
        // From here on a plan is known by its canonical digest.
        let file = state.join(format!("plan-{}.json", past.plan_sha256));
        let around: Plan =
            serde_json::from_slice(&std::fs::read(file).expect("it is kept")).expect("a plan");
        assert_eq!(digest(&around), past.plan_sha256);
        let broken = |part: &Part| matches!(part, Part::Bundle(bundle) if bundle.node == node);
        assert!(
            around.faults.iter().any(|part| broken(part) || *part == Part::Node(node)),
            "{:?}",
            around.faults
        );
        assert!(around.circuits.iter().all(|c| c.a.bundle.node != node && c.b.bundle.node != node));
    });
}
