// SPDX-License-Identifier: Apache-2.0
//! The daemon keeps faults reported by an operator until they are bypassed, even across restarts and rollbacks.

use crate::daemon_rig;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use daemon_rig::ring::{
    NODES, daemon_that, daemon_with, faults, node_in_use, plan_around, restarted, ring,
};
use daemon_rig::{Rig, first_plan, installed, on_a_runtime};
use lightloom_control::controller::{Answer, Request, Rollback};
use lightloom_control::ledger::Past;
use lightloom_control::record::{Failed, TxnResult};
use lightloom_control::state::Txn;
use lightloom_daemon::runtime::Runtime;
use lightloom_daemon::{api, serve, view};
use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::Plan;
use lightloom_units::id::{BundleId, NodeId};

fn reported() -> Part {
    Part::Node(NodeId(node_in_use()))
}

fn moved() -> BundleId {
    let (first, next) = (first_plan(&installed(NODES)), plan_around(&[reported()]));
    let mut moved = next.transceivers.iter().filter(|now| {
        first.transceivers.iter().any(|was| was.bundle == now.bundle && was.path != now.path)
    });
    moved.find(|moved| moved.bundle.node != NodeId(node_in_use())).unwrap().bundle
}

async fn end(rig: &Rig, answer: &Answer) -> Past {
    let Answer::Accepted { txn } = *answer else { panic!("{answer:?}") };
    let over = move |runtime: &Runtime| {
        let mut history = runtime.control.ledger().history.iter();
        history.find(|past| past.txn == txn).cloned()
    };
    rig.find("its end", over).await
}

async fn tell_in_vain(rig: &mut Rig, modules: &daemon_rig::Modules) {
    modules.fault(&format!("{} half-open", moved()));
    let answer = rig.fault(&[reported()], &[]).await;
    let past = end(rig, &answer).await;
    assert_eq!(past.result, TxnResult::Aborted, "{:?}", past.ends);
}

async fn written(rig: &Rig) -> BTreeMap<String, Failed> {
    rig.look(|runtime: &Runtime| runtime.control.ledger().reported.clone()).await
}

#[test]
fn reported_fault_is_kept_until_its_bypass_is_possible() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon_that("report", folder.path()).await;
        // The bypass of another node must switch the modules of this node.
        let first = first_plan(&installed(NODES));
        let part = Part::Node(NodeId(node_in_use()));
        let next = plan_around(&[part]);
        let moves = |node: u32| {
            let paths = |plan: &Plan| -> Vec<_> {
                let of_node = plan.transceivers.iter().filter(|t| t.bundle.node == NodeId(node));
                of_node.map(|t| (t.bundle, t.path)).collect()
            };
            node != node_in_use() && paths(&next).len() == 2 && paths(&first) != paths(&next)
        };
        let dead = (0..NODES).find(|node| moves(*node)).unwrap();
        modules.fault(&format!("n{dead} dead"));
        let answer = rig.fault(&[part], &[]).await;
        let Answer::Accepted { txn } = answer else { panic!("{answer:?}") };
        let over = move |runtime: &Runtime| {
            let mut history = runtime.control.ledger().history.iter();
            history.find(|past| past.txn == txn).cloned()
        };
        let past = rig.find("its end", over).await;
        assert_eq!(past.result, TxnResult::Aborted, "{:?}", past.ends);
        let status = rig.look(view::status).await;
        let kept = status.broken_parts.iter().find(|broken| broken.part == part.to_string());
        assert!(kept.is_some_and(|kept| !kept.bypassed), "{:?}", status.broken_parts);
        let answer = rig.fault(&[Part::Node(NodeId(dead))], &[]).await;
        rig.committed(&answer).await;
        assert_eq!(rig.look(faults).await.len(), 2);
        let status = rig.look(view::status).await;
        assert!(status.broken_parts.iter().all(|broken| broken.bypassed));
    });
}

#[test]
fn reported_fault_is_retried_automatically() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        // A bypass that an unanswered request prevents is retried after a heartbeat.
        let mut rig = daemon_with("on_fault: bypass, heartbeat: 4s", folder.path()).await;
        tell_in_vain(&mut rig, &modules).await;
        let reason = |runtime: &Runtime| {
            let parts = view::status(runtime).broken_parts;
            parts.into_iter().find(|broken| broken.part == reported().to_string())
        };
        let kept = rig.look(reason).await.unwrap();
        assert!(!kept.bypassed && kept.why.starts_with("reported by test; not yet bypassed: "));
        println!("{}: {}", kept.part, kept.why);
        modules.fault(&format!("{} clear", moved()));
        let past = rig.bypass_of_its_own().await;
        assert_eq!(past.result, TxnResult::Committed, "{:?}", past.ends);
        assert_eq!(rig.look(faults).await, [reported()], "and nothing else");
        let kept = rig.look(reason).await.unwrap();
        assert!(kept.bypassed && kept.why == "reported by test", "{kept:?}");
        assert!(written(&rig).await.is_empty(), "its bypass keeps it from now on");
    });
}

#[test]
fn reported_faults_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon_that("report", folder.path()).await;
        tell_in_vain(&mut rig, &modules).await;
        modules.fault(&format!("{} clear", moved()));
        let mut rig = restarted(rig, "report", folder.path()).await;
        let broken = rig.look(|runtime: &Runtime| runtime.control.facts().failed_parts()).await;
        assert_eq!(broken[&reported().to_string()].why, "reported by test", "{broken:?}");
        assert!(
            !rig.look(|runtime: &Runtime| runtime.control.facts().is_bypassed(reported())).await
        );
        let answer = rig.fault(&[reported()], &[]).await;
        rig.committed(&answer).await;
        let rig = restarted(rig, "report", folder.path()).await;
        assert_eq!(rig.look(faults).await, [reported()]);
        let status = rig.look(view::status).await;
        assert!(
            status.broken_parts.iter().all(|part| part.bypassed && part.why == "reported by test")
        );
    });
}

/// The plan already bypassed the node when the operator reported it.
#[test]
fn reported_fault_named_by_a_plan_survives_its_undo() {
    let folder = tempfile::tempdir().unwrap();
    let _modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon_that("report", folder.path()).await;
        let other = Part::Node(first_plan(&installed(NODES)).circuits[8].a.bundle.node);
        assert_ne!(other, reported());
        rig.apply_plan(&plan_around(&[reported(), other])).await;
        let known = rig.fault(&[reported()], &[]).await;
        assert!(matches!(known, Answer::NothingToDo { .. }), "{known:?}");
        assert_eq!(written(&rig).await[&reported().to_string()].why, "reported by test");
        let mut rig = restarted(rig, "report", folder.path()).await;

        let undo = Request::Rollback(Rollback { txn: Txn(2), ..Rollback::default() });
        let answer = rig.ask(undo.clone(), None).await;
        rig.committed(&answer).await;
        assert_eq!(rig.look(faults).await, [reported()], "what only the plan named works again");
        let status = rig.look(view::status).await;
        let [broken] = &status.broken_parts[..] else { panic!("{:?}", status.broken_parts) };
        assert!(broken.bypassed && broken.why == "reported by test", "{broken:?}");

        let again = rig.ask(undo, None).await;
        let said = "transaction 2 was already undone by 3".to_owned();
        assert_eq!(again, Answer::Refused { reasons: vec![said] });

        let answer = rig.fault(&[], &[reported()]).await;
        rig.committed(&answer).await;
        assert!(
            rig.look(|runtime: &Runtime| runtime.control.facts().failed_parts()).await.is_empty()
        );
        assert!(written(&rig).await.is_empty());
    });
}

/// The node was reported while a plan that bypasses it awaited a confirmation.
#[test]
fn undo_at_the_deadline_bypasses_faults_reported_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let _modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon_that("report", folder.path()).await;
        let other = Part::Node(first_plan(&installed(NODES)).circuits[8].a.bundle.node);
        rig.apply_plan_within(&plan_around(&[reported(), other]), Duration::from_secs(2)).await;
        let known = rig.fault(&[reported()], &[]).await;
        assert!(matches!(known, Answer::NothingToDo { .. }), "{known:?}");
        let undone = |runtime: &Runtime| {
            let past = runtime.control.ledger().history.back()?;
            (past.actor == "policy:confirm-timeout").then_some(past.result)
        };
        assert_eq!(rig.find("it to be undone", undone).await, TxnResult::Committed);
        assert_eq!(rig.look(faults).await, [reported()]);
    });
}

/// The wrong light is no longer visible after the bypass.
#[test]
fn bypass_of_crossed_cables_keeps_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon_that("report", folder.path()).await;
        let plan = first_plan(&installed(NODES));
        let (one, other) = (plan.circuits[1], plan.circuits[3]);
        modules.fault(&format!("{} cross {} {}", one.a.bundle, one.a.path, other.a));
        let four = |runtime: &Runtime| (view::status(runtime).crossed.len() == 4).then_some(());
        rig.find("all four ends to be reported", four).await;
        let answer = rig.fault(&[Part::Fibre(one.b), Part::Fibre(other.a)], &[]).await;
        rig.committed(&answer).await;
        let status = rig.look(view::status).await;
        assert!(status.crossed.is_empty(), "that light is not read any more");
        let broken: BTreeMap<String, String> =
            status.broken_parts.into_iter().map(|broken| (broken.part, broken.why)).collect();
        let seen = |end, lit_by, should_be| {
            format!(
                "reported by test; {end} was lit by {lit_by} instead of {should_be}: crossed \
                 cables?"
            )
        };
        let ends = [(one.b, other.a, one.a), (other.a, one.b, other.b)];
        let why: Vec<String> = ends.map(|(end, by, should)| seen(end, by, should)).into();
        assert_eq!(broken.len(), 2, "{broken:?}");
        for why in &why {
            assert!(
                broken.values().any(|said| said.starts_with(why.as_str())),
                "{why}: {broken:?}"
            );
        }
        println!("{broken:?}");
    });
}

async fn ctl(socket: &Path, words: &str) -> (i32, String) {
    let mut ctl = Command::new(crate::programs::lightloom());
    ctl.arg("ctl").args(words.split(' ')).env("LIGHTLOOM_SOCKET", socket);
    let output = tokio::task::spawn_blocking(move || ctl.output().unwrap()).await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    println!("$ lightloom ctl {words}\n{said}{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), said)
}

/// The suggested command must work verbatim; a node's name selects its modules.
#[test]
fn aborted_bypass_suggests_a_working_command() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let rig = daemon_that("report", folder.path()).await;
        let socket = folder.path().join("socket");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o660)).unwrap();
        tokio::spawn(serve::unix(listener, api::router(rig.shared.clone())));

        let adopted = ctl(&socket, "adopt n3 n5/b0").await;
        let said = "adopted: 3 paths and cross-connects on 3 devices; nothing moved\n";
        assert_eq!(adopted, (0, said.to_owned()));
        assert_eq!(ctl(&socket, "adopt n3 n99").await.0, 1, "there is no such node");

        let silent = moved();
        modules.fault(&format!("{silent} half-open"));
        let (code, said) = ctl(&socket, &format!("fault {}", reported())).await;
        let hint = "nothing moved, and the fault is still recorded; to bypass the unreachable devices as well: lightloom ctl ";
        assert!(code == 1 && said.contains("aborted"), "{said}");
        let (_, words) = said.split_once(hint).unwrap_or_else(|| panic!("no hint: {said}"));
        assert_eq!(words, format!("fault {silent}\n"));
        let (code, said) = ctl(&socket, words.trim_end()).await;
        assert!(code == 0 && said.contains("committed"), "{said}");
        let broken = rig.look(faults).await;
        assert!(
            broken.contains(&reported()) && broken.contains(&Part::Bundle(silent)),
            "{broken:?}"
        );
    });
}
