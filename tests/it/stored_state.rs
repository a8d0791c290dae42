// SPDX-License-Identifier: Apache-2.0
//! The current daemon opens the state folder of an earlier version with its plan, journal and
//! bypass.

use crate::daemon_rig;
use std::path::Path;
use std::sync::Arc;

use daemon_rig::ring::ring;
use daemon_rig::{Rig, on_a_runtime};
use lightloom_control::ledger::Past;
use lightloom_control::record::{Cause, TxnResult};
use lightloom_control::state::Txn;
use lightloom_daemon::runtime::Runtime;
use lightloom_daemon::view;
use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::{Plan, digest};

/// Written by version 0.1.0, which identified plans by the hash of their bytes, with 32 emulated
/// modules: adopt, a plan with confirmation, the bypass of a failed node, its repair.
const STORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/daemon/tests/data/state-0.1.0");
/// Its plan names: as applied, around the node, and after the repair.
const NAMES: [&str; 3] = [
    "05ff77156cf1ff8ee9e34c79fca505c2955f62e321e9222a96d2651ab52aa515",
    "b27d62f582c37f94785ca82e0a03db8cd15ca09b196b2e4f8d43c14e0afeab93",
    "5ed06306c324f4f9eaec7c23332dd91b3b8e62ba3f92365df824ea9916f96176",
];

const LAST: Txn = Txn(3);

fn copy_state(to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for file in std::fs::read_dir(STORED).expect("the stored folder").flatten() {
        std::fs::copy(file.path(), to.join(file.file_name())).expect("a copy");
    }
}

/// Opens such a folder without devices: the daemon loads the state and moves nothing.
async fn opened(folder: &Path) -> Rig {
    let text = std::fs::read(folder.join("state/ring.yaml")).expect("the fabric");
    let mut none = |_: &str| Err(String::new());
    let (installed, _) =
        lightloom_fabric::file::load_any_version("ring.yaml", &text, &mut none, |_, _| ());
    Rig::of_devices("", folder, installed).await
}

/// Files next to the journal are imported once and not used afterwards.
#[test]
fn imports_plans_and_reports_of_version_0_1_0_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    copy_state(&state);
    let reports = r#"{"n7":{"wall_ms":5,"why":"reported by uid:0"}}"#;
    std::fs::write(state.join("told.json"), reports).expect("a report");
    std::fs::write(state.join("journal.log.reserve"), [0; 100]).expect("a reserve");
    on_a_runtime(async {
        for life in 0..2 {
            let rig = opened(folder.path()).await;
            let (kept, reported, lost) = rig
                .look(|runtime: &Runtime| {
                    let ledger = runtime.control.controller().ledger();
                    let plans: Vec<String> = ledger.plans.keys().cloned().collect();
                    (plans, ledger.reported.clone(), view::status(runtime).lost)
                })
                .await;
            assert_eq!(kept.len(), NAMES.len(), "life {life}: {kept:?}");
            assert!(NAMES.iter().all(|name| kept.contains(&(*name).to_owned())), "{kept:?}");
            assert_eq!(reported["n7"].why, "reported by uid:0");
            assert!(lost.is_empty(), "{lost:?}");
            let left: Vec<String> = std::fs::read_dir(&state)
                .expect("the folder")
                .flatten()
                .filter_map(|file| file.file_name().into_string().ok())
                .filter(|name| {
                    name.contains("plan-") || name.contains("told.json") || name.contains("reserve")
                })
                .collect();
            assert!(left.is_empty(), "{left:?}");
            drop(rig);
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    });
}

/// Files that a power loss emptied, truncated or corrupted: each is named, nothing moves, and the
/// status is not good.
#[test]
fn names_unreadable_plans_and_reports_of_earlier_versions() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    copy_state(&state);
    let plan = state.join(format!("plan-{}.json", NAMES[2]));
    let good = std::fs::read(&plan).expect("the plan in force");
    let other = String::from_utf8(good.clone()).expect("text");
    let other = other.replace("lightloom.plan/v1", "lightloom.plan/v2").into_bytes();
    let wrong: [(&Path, &[u8]); 4] = [
        (&plan, b""),
        (&plan, &good[..good.len() / 2]),
        (&plan, &other),
        (&state.join("told.json"), b"\0\xff garbage"),
    ];
    on_a_runtime(async {
        for (file, bytes) in wrong {
            std::fs::remove_dir_all(&state).expect("the state of the time before");
            copy_state(&state);
            std::fs::write(file, bytes).expect("the damage");
            let rig = opened(folder.path()).await;
            let (lost, open, last) = rig
                .look(|runtime: &Runtime| {
                    let ledger = runtime.control.controller().ledger();
                    (view::status(runtime).lost, ledger.open.is_some(), ledger.last_txn)
                })
                .await;
            assert!(lost.iter().any(|lost| lost.what == file.display().to_string()), "{lost:?}");
            assert!(!open && last == LAST, "nothing moves");
            assert!(file.exists(), "it is kept");
            let checked = lightloom_daemon::start::check_journal(&rig.config);
            let why = checked.expect_err("it is found").to_string();
            assert!(why.contains(&file.display().to_string()), "{why}");
            drop(rig);
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    });
}

#[test]
fn opens_version_0_1_0_state_and_bypasses_a_failed_node() {
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
        // The modules were power-cycled, so they are restored to the journal's state.
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
        // From here on, the canonical digest identifies a plan.
        let name = past.plan_sha256.clone();
        let find = move |r: &Runtime| r.control.controller().ledger().plan_named(&name).cloned();
        let around: Arc<Plan> = rig.look(find).await.expect("it is kept");
        assert_eq!(digest(&*around), past.plan_sha256);
        let broken = |part: &Part| matches!(part, Part::Bundle(bundle) if bundle.node == node);
        assert!(
            around.faults.iter().any(|part| broken(part) || *part == Part::Node(node)),
            "{:?}",
            around.faults
        );
        assert!(around.circuits.iter().all(|c| c.a.bundle.node != node && c.b.bundle.node != node));
    });
}
