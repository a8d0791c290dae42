// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn bypasses_a_node_without_power_without_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon(folder.path()).await;
        let node = node_in_use();
        let died = Instant::now();
        modules.fault(&format!("n{node} dead"));
        let past = rig.bypass_of_its_own().await;
        println!("n{node} lost its power; bypassed after {:.1?}", died.elapsed());
        assert_eq!(past.result, TxnResult::Committed, "{:?}", past.ends);
        assert!(died.elapsed() < Duration::from_secs(15), "long before the heartbeat");
        let broken = rig.look(faults).await;
        let of_node = |part: &Part| part.to_string().starts_with(&format!("n{node}/"));
        assert!(!broken.is_empty() && broken.iter().all(of_node), "{broken:?}");
        // The neighbours do not drift, because light from the failed node is ignored.
        let drifted = |runtime: &Runtime| {
            runtime
                .control
                .sightings()
                .devices()
                .values()
                .filter(|d| d.is_reachable() && !d.drift().is_empty())
                .count()
        };
        assert_eq!(rig.look(drifted).await, 0);
        let Answer::Refused { reasons } = rig.fault(&[], &broken).await else { panic!("repaired") };
        let wait =
            format!("lightloom ctl wait {0} && lightloom ctl fault --repaired {0}", broken[0]);
        assert!(reasons[0].contains("unreachable") && reasons[0].contains(&wait), "{reasons:?}");
        assert_eq!(rig.look(faults).await, broken);
    });
}

#[test]
fn bypasses_both_bundles_of_a_failed_node_in_one_change() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let rig = daemon(folder.path()).await;
        for kill in 1..=3 {
            // A module in loopback at the end of a ring has no neighbour that could report loss of
            // light.
            let used = move |runtime: &Runtime| {
                let plan = runtime.control.plan().unwrap();
                plan.circuits[kill - 1].a.bundle.node
            };
            let node = rig.look(used).await;
            let died = Instant::now();
            modules.fault(&format!("{node} dead"));
            let both = move |runtime: &Runtime| {
                let of_node = faults(runtime).into_iter().filter(|part| match part {
                    Part::Bundle(bundle) => bundle.node == node,
                    _ => false,
                });
                (of_node.count() == 2 && !runtime.control.transactions().is_busy()).then_some(())
            };
            rig.find("both bundles to be bypassed", both).await;
            println!("{node}: both bundles bypassed after {:.0?}", died.elapsed());
            let own = |runtime: &Runtime| {
                let history = runtime.control.ledger().history.iter();
                history.filter(|past| past.actor == "policy:fault").count()
            };
            assert_eq!(rig.look(own).await, kill, "one change for each dead node");
        }
    });
}

#[test]
fn bypasses_a_dark_fibre_between_healthy_modules() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let rig = daemon(folder.path()).await;
        let port = first_plan(&installed(NODES)).circuits[1].a;
        modules.fault(&format!("{} unplug {}", port.bundle, port.path));
        let past = rig.bypass_of_its_own().await;
        assert_eq!(past.result, TxnResult::Committed, "{:?}", past.ends);
        let broken = rig.look(faults).await;
        assert!(matches!(broken[..], [Part::Fibre(_)]), "{broken:?}");
    });
}

#[test]
fn report_policy_shows_a_dark_fibre_and_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let rig = daemon_that("report", folder.path()).await;
        let circuit = first_plan(&installed(NODES)).circuits[1];
        modules.fault(&format!("{} unplug {}", circuit.a.bundle, circuit.a.path));
        let both = |runtime: &Runtime| {
            let dark = view::status(runtime).dark_fibres;
            (dark.len() == 2).then_some(dark)
        };
        let dark = rig.find("the fibre to be missed at both ends", both).await;
        let ends = [circuit.a.to_string(), circuit.b.to_string()];
        assert!(dark.iter().all(|dark| ends.contains(&dark.near) && ends.contains(&dark.far)));
        assert!(dark.iter().all(|dark| !dark.far_is_down && dark.power_dbm < -14.0), "{dark:?}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(rig.look(faults).await.is_empty(), "nothing was done about it");
    });
}

#[test]
fn fibre_of_a_known_failed_part_is_not_reported_again() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon_that("report", folder.path()).await;
        let circuit = first_plan(&installed(NODES)).circuits[1];
        let (dead, near) = (circuit.a.bundle, circuit.b);
        modules.fault(&format!("{dead} dead"));
        let missed = |runtime: &Runtime| view::status(runtime).dark_fibres.into_iter().next();
        let dark = rig.find("its light to be missed", missed).await;
        assert!(dark.far_is_down, "{dark:?}");
        rig.fault(&[Part::Bundle(dead)], &[]).await;
        // The daemon retries a bypass that a busy machine has aborted.
        let bypassed = move |runtime: &Runtime| {
            let around = faults(runtime).contains(&Part::Bundle(dead));
            (around && !runtime.control.transactions().is_busy()).then_some(())
        };
        rig.find("the bypass of what was reported", bypassed).await;
        // The near end returns to the fibre, which is dark for a known reason.
        let to = Position(u32::from(near.path));
        let near = DeviceName::from(&*near.bundle.to_string());
        let target = SwitchState::from([(near, [(Slot(0), to)].into())]);
        rig.commit(Request::Apply(Apply { target, ..Apply::default() }), None).await;
        let seen = |runtime: &Runtime| {
            let dark =
                !runtime.control.sightings().dark_fibres(runtime.control.ledger()).is_empty();
            dark.then(|| view::status(runtime))
        };
        let status = rig.find("the near end to miss it again", seen).await;
        assert!(status.dark_fibres.is_empty(), "{:?}", status.dark_fibres);
        assert!(status.broken.contains(&dead.to_string()), "{:?}", status.broken);
    });
}

#[test]
fn node_bypassed_during_a_pending_plan_stays_bypassed_after_undo() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon(folder.path()).await;
        let (first, node) = (first_plan(&installed(NODES)), node_in_use());
        let named = Part::Node(lightloom_units::id::NodeId((node + 5) % 12));
        let plan = replan::next_plan(&installed(NODES), &first, &[named], &[]).unwrap();
        let apply = Apply {
            target: desired::paths(&plan, &rig.config.bundles).unwrap(),
            plan_sha256: replan::sha256_of(&plan),
            confirm_within: Some(Micros::from_secs(15)),
            ..Apply::default()
        };
        let answer = rig.ask(Request::Apply(apply), Some(plan)).await;
        rig.committed(&answer).await;
        modules.fault(&format!("n{node} dead"));
        let past = rig.bypass_of_its_own().await;
        assert_eq!(past.result, TxnResult::Committed, "{:?}", past.ends);
        let pending = |runtime: &Runtime| runtime.control.ledger().pending.is_some();
        assert!(rig.look(pending).await, "the plan goes on to wait");
        let undone = |runtime: &Runtime| {
            let mut history = runtime.control.ledger().history.iter();
            history.find(|past| past.actor == "policy:confirm-timeout").cloned()
        };
        let undone = rig.find("it to be undone", undone).await;
        assert_eq!(undone.result, TxnResult::Committed, "{:?}", undone.ends);
        let broken = rig.look(faults).await;
        let of_node = |part: &Part| part.to_string().starts_with(&format!("n{node}/"));
        assert!(!broken.is_empty() && broken.iter().all(of_node), "{broken:?}");
        let closed = |runtime: &Runtime| {
            let circuits = view::status(runtime).circuits;
            (!circuits.is_empty() && circuits.iter().all(|circuit| circuit.stands)).then_some(())
        };
        rig.find("the ring to be closed around it", closed).await;
    });
}

/// A module that the bypass must switch reports success but does not switch.
#[test]
fn bypasses_a_module_that_falsely_reports_success() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let rig = daemon(folder.path()).await;
        let (first, node) = (first_plan(&installed(NODES)), node_in_use());
        let dead = Part::Node(lightloom_units::id::NodeId(node));
        let around = replan::next_plan(&installed(NODES), &first, &[dead], &[]).unwrap();
        let moved = around.transceivers.iter().find(|now| {
            first.transceivers.iter().any(|was| was.bundle == now.bundle && was.path != now.path)
        });
        let liar = moved.unwrap().bundle;
        modules.fault(&format!("{liar} lie"));
        modules.fault(&format!("n{node} dead"));
        let of_node = move |part: &BrokenPart| part.part.starts_with(&format!("n{node}/"));
        let waits = move |runtime: &Runtime| {
            let broken = view::status(runtime).broken_parts;
            broken.into_iter().find(of_node)
        };
        // The node's neighbours may have bypassed it for loss of light before it counted as
        // unresponsive.
        let waits = rig.find("the dead node to be reported", waits).await;
        assert!(waits.bypassed || waits.why.contains("not yet bypassed: "), "{waits:?}");
        println!("{}: {}", waits.part, waits.why);

        let suspected = move |runtime: &Runtime| {
            let broken = view::status(runtime).broken_parts;
            broken.into_iter().find(|part| part.part == liar.to_string() && part.bypassed)
        };
        let suspect = rig.find("the liar to be gone around", suspected).await;
        assert!(
            suspect.why.starts_with("suspect: ") && suspect.why.contains("it reported success")
        );
        println!("{liar}: {}", suspect.why);
        let closed = move |runtime: &Runtime| {
            let status = view::status(runtime);
            let dead = |part: &BrokenPart| part.part.starts_with(&format!("n{node}/"));
            let around = status.broken_parts.iter().all(|part| part.bypassed)
                && status.broken_parts.iter().filter(|part| dead(part)).count() == 2;
            let stand = status.circuits.iter().all(|circuit| circuit.stands);
            (around && stand).then_some((status.bypass_budget.used, status.circuits.len()))
        };
        let (used, circuits) = rig.find("the ring to be closed around both", closed).await;
        assert!(circuits > 0 && used <= 4, "{used} changes of its own");
        println!("{circuits} circuits stand around both, {used} changes of its own counted");
    });
}

#[test]
fn safe_mode_refuses_a_plan_through_a_failed_part() {
    let folder = tempfile::tempdir().unwrap();
    let _modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon(folder.path()).await;
        let part = Part::Node(lightloom_units::id::NodeId(node_in_use()));
        let answer = rig.fault(&[part], &[]).await;
        rig.committed(&answer).await;
        let known = rig.look(|runtime: &Runtime| runtime.control.facts().failed_parts()).await;
        let broken = &known[&part.to_string()];
        assert!(broken.why == "reported by test" && broken.wall_ms > 0, "{known:?}");
        assert!(matches!(rig.fault(&[part], &[]).await, Answer::NothingToDo { .. }));

        let plan = first_plan(&installed(NODES));
        let target = desired::paths(&plan, &rig.config.bundles).unwrap();
        let apply = |mode| Apply {
            target: target.clone(),
            plan_sha256: replan::sha256_of(&plan),
            mode,
            ..Apply::default()
        };
        let answer = rig.ask(Request::Apply(apply(Mode::Safe)), Some(plan.clone())).await;
        let Answer::Refused { reasons } = &answer else { panic!("{answer:?}") };
        assert!(reasons[0].starts_with(&format!(
            "this plan uses {part}, which has a known fault: reported by test"
        )));
        assert!(reasons[1].contains(&format!("`--fault {part}`")), "{reasons:?}");
        let answer = rig.ask(Request::Apply(apply(Mode::Update)), Some(plan.clone())).await;
        rig.committed(&answer).await;
        assert!(
            rig.look(|runtime: &Runtime| runtime.control.facts().failed_parts()).await.is_empty(),
            "forgotten, as asked"
        );
        let never = rig.fault(&[], &[part]).await;
        let said = format!("{part} is not a known fault");
        assert_eq!(never, Answer::Refused { reasons: vec![said] });

        // Undoing a change also undoes the repair, so the fault is known again.
        let undo = Request::Rollback(Rollback { txn: Txn(3), ..Rollback::default() });
        let answer = rig.ask(undo, None).await;
        rig.committed(&answer).await;
        assert_eq!(
            rig.look(|runtime: &Runtime| runtime.control.facts().failed_parts()).await,
            known
        );
    });
}
