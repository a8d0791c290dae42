// SPDX-License-Identifier: Apache-2.0

use super::*;

/// Repairs do not move rings of jobs, so separated rings keep fewer circuits than were applied.
#[test]
fn circuits_missing_from_the_applied_plan_are_reported_after_repairs() {
    let folder = tempfile::tempdir().unwrap();
    let _modules = Modules::serve(32, 2, &folder.path().join("links"));
    on_a_runtime(async {
        let installed = installed(32);
        let plan = first_plan(&installed);
        let mut rig = Rig::start(32, folder.path(), installed).await;
        rig.adopt_all().await;
        rig.apply_plan(&plan).await;
        assert_eq!(rig.look(view::status).await.applied, None, "it is on the devices");
        let parts = ["n4", "n28"].map(|part| part.parse().unwrap());
        for part in parts {
            let answer = rig.fault(&[part], &[]).await;
            rig.committed(&answer).await;
        }
        let applied = rig.look(view::status).await.applied.unwrap();
        assert!(applied.explained && applied.circuits == plan.circuits.len(), "{applied:?}");
        for part in parts {
            let answer = rig.fault(&[], &[part]).await;
            rig.committed(&answer).await;
        }
        let status = rig.look(view::status).await;
        assert_eq!(
            (status.circuits.len(), plan.circuits.len()),
            (21, 24),
            "no ring of a job moves"
        );
        let applied = status.applied.unwrap();
        assert!(!applied.explained && applied.circuits == plan.circuits.len(), "{applied:?}");

        let (sha256, again) =
            rig.look(|r: &Runtime| r.control.facts().applied_last()).await.unwrap();
        assert_eq!((&sha256, &again.circuits), (&replan::sha256_of(&plan), &plan.circuits));
        rig.apply_plan(&again).await;
        let status = rig.look(view::status).await;
        assert_eq!((status.circuits.len(), status.applied), (plan.circuits.len(), None));
    });
}

/// After the adoption of a wrong position there is no drift, but a circuit of the plan is dark.
#[test]
fn planned_circuit_lost_by_adoption_is_reported_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon_that("report", folder.path()).await;
        assert_eq!(rig.look(view::status).await.dark_circuits, None);
        let plan = first_plan(&installed(NODES));
        let end = plan.circuits[1].a;
        let device = DeviceName::from(&*end.bundle.to_string());
        let of = device.clone();
        modules.fault(&format!("{device} reboot"));
        let lost = move |runtime: &Runtime| {
            let seen = &runtime.control.sightings().devices()[&of];
            (seen.is_reachable() && !seen.drift().is_empty()).then_some(())
        };
        rig.find("it to stand elsewhere", lost).await;
        let status = rig.look(view::status).await;
        assert_eq!(status.dark_circuits, None, "the drift explains it");
        let adopt = Adopt::from(vec![device]);
        let answer = rig.ask(Request::Adopt(adopt.clone()), None).await;
        let asks = |answer: &Answer| format!("{answer:?}").contains("--against-plan");
        assert!(matches!(answer, Answer::Refused { .. }) && asks(&answer), "{answer:?}");
        let adopt = Adopt { against_plan: true, ..adopt };
        let answer = rig.ask(Request::Adopt(adopt), None).await;
        assert!(matches!(answer, Answer::Adopted { .. }), "{answer:?}");
        let status = rig.look(view::status).await;
        let all = plan.circuits.len() + status.loopbacks.len();
        let dark = DarkCircuits {
            standing: all - 1,
            circuits: all,
            ends: vec![end.to_string()],
            elsewhere: Vec::new(),
            next: "light them again: lightloom ctl apply --restore".into(),
        };
        assert_eq!(status.dark_circuits, Some(dark));
        assert_eq!(rig.look(view::circuits_dark).await, 1);
        tokio::time::sleep(Duration::from_secs(3)).await; // A module accepts no switch right after power-on.
        rig.apply_plan(&plan).await;
        let status = rig.look(view::status).await;
        assert!(status.dark_circuits.is_none() && status.no_plan.is_none());

        // Without a plan, all light is off, and the status reports it.
        let back = Request::Rollback(Rollback { txn: Txn(1), ..Rollback::default() });
        let answer = rig.ask(back, None).await;
        rig.committed(&answer).await;
        let status = rig.look(view::status).await;
        assert!(status.plan_sha256.is_empty() && status.circuits.is_empty());
        assert_eq!(status.no_plan.unwrap().next, "apply one: lightloom ctl apply PLAN");
    });
}

/// The undo at the deadline waits for an unreachable module, and confirmation is no longer
/// requested.
#[test]
fn undo_awaiting_an_unreachable_module_replaces_the_confirm() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon_that("report", folder.path()).await;
        let plan = plan_around(&[Part::Node(lightloom_units::id::NodeId(node_in_use()))]);
        let first = first_plan(&installed(NODES));
        let moved = plan.transceivers.iter().find(|now| {
            first.transceivers.iter().any(|was| was.bundle == now.bundle && was.path != now.path)
        });
        let silent = moved.unwrap().bundle;
        let apply = Apply {
            target: desired::paths(&plan, &rig.config.bundles).unwrap(),
            plan_sha256: replan::sha256_of(&plan),
            confirm_within: Some(Micros::from_secs(4)),
            ..Apply::default()
        };
        let answer = rig.ask(Request::Apply(apply), Some(plan)).await;
        rig.committed(&answer).await;
        assert_eq!(rig.look(view::status).await.pending.unwrap().txn, 2);
        // Modules that have been unreachable for long are skipped immediately.
        let soon = |runtime: &Runtime| {
            view::status(runtime).pending.filter(|pending| pending.seconds_left < 0.1)
        };
        rig.find("the deadline to be near", soon).await;
        modules.fault(&format!("{silent} half-open"));
        let name = silent.to_string();
        let open = move |runtime: &Runtime| {
            let status = view::status(runtime);
            let open = status.transaction.as_ref().filter(|open| open.undoes == Some(2));
            open.is_some_and(|open| open.waits_for_ps.contains_key(&name)).then_some(status)
        };
        let status = rig.find("the undo", open).await;
        assert!(status.pending.is_none(), "a confirm would be refused: {:?}", status.pending);
        let over = |runtime: &Runtime| {
            let status = view::status(runtime);
            status.transaction.is_none().then_some(status)
        };
        let status = rig.find("its end", over).await;
        let name = silent.to_string();
        assert!(!status.attention.contains_key(&name), "{:?}", status.attention);
        let deferred = status.owed.get(&name).unwrap_or_else(|| panic!("{:?}", status.owed));
        assert_eq!(deferred.what, "the undo of 2");
        assert!(deferred.why.contains("restored automatically when it answers"), "{deferred:?}");
    });
}

/// Two nodes whose repair, one after the other, restores fewer circuits than a new plan for the
/// whole ring.
fn a_pair_whose_repair_leaves_fewer_circuits(installed: &Fabric, all: usize) -> ([Part; 2], Plan) {
    let pairs = (0..32).flat_map(|a| (a + 1..32).map(move |b| [a, b]));
    let fewer = |pair: [u32; 2]| {
        let parts = pair.map(|node| Part::Node(NodeId(node)));
        let faults = FaultSet::of(installed, parts).unwrap();
        let plan = replan::plan_anew(installed, &faults, Seed(0)).ok()?;
        let repaired = parts.iter().try_fold(plan.clone(), |plan, part| {
            replan::next_plan(installed, &plan, &[], &[*part]).ok()
        })?;
        (repaired.circuits.len() < all).then_some((parts, plan))
    };
    pairs.into_iter().find_map(fewer).expect("some repair leaves fewer circuits")
}

#[test]
fn applying_again_treats_repaired_parts_as_healthy() {
    let folder = tempfile::tempdir().unwrap();
    let _modules = Modules::serve(32, 2, &folder.path().join("links"));
    on_a_runtime(async {
        let installed = installed(32);
        let all = first_plan(&installed).circuits.len();
        let (parts, plan) = a_pair_whose_repair_leaves_fewer_circuits(&installed, all);
        let mut rig = Rig::start(32, folder.path(), installed).await;
        rig.adopt_all().await;
        rig.apply_plan(&plan).await;
        let (sha256, _) = rig.look(|r: &Runtime| r.control.facts().applied_last()).await.unwrap();
        assert_eq!(sha256, replan::sha256_of(&plan), "nothing was repaired yet");
        for part in parts {
            let answer = rig.fault(&[], &[part]).await;
            rig.committed(&answer).await;
        }
        let status = rig.look(view::status).await;
        assert!(status.circuits.len() < all && status.broken.is_empty(), "{:?}", status.broken);
        let applied = status.applied.unwrap();
        assert!(!applied.explained && applied.circuits == all, "{applied:?}");
        let (_, again) = rig.look(|r: &Runtime| r.control.facts().applied_last()).await.unwrap();
        assert!(again.faults.is_empty(), "{:?}", again.faults);
        rig.apply_plan(&again).await;
        let status = rig.look(view::status).await;
        assert_eq!((status.circuits.len(), status.applied, status.broken.len()), (all, None, 0));
    });
}

#[test]
fn rollback_bypasses_faults_found_since() {
    let folder = tempfile::tempdir().unwrap();
    let _modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon(folder.path()).await;
        let node = Part::Node(lightloom_units::id::NodeId(node_in_use()));
        let other = first_plan(&installed(NODES)).circuits[8].a.bundle;
        assert_ne!(Part::Node(other.node), node);
        rig.apply_plan(&plan_around(&[Part::Node(other.node)])).await;
        let answer = rig.fault(&[node], &[]).await;
        rig.committed(&answer).await;

        let back = Rollback { txn: Txn(2), ..Rollback::default() };
        let (apply, plan) = rig
            .look({
                let back = back.clone();
                move |r: &Runtime| r.control.facts().way_back(&back)
            })
            .await
            .unwrap();
        assert_eq!(plan.unwrap().faults, [node], "what the undone plan named works again");
        let answer = rig.ask(Request::Rollback(back), None).await;
        rig.committed(&answer).await;
        assert_eq!(rig.look(faults).await, [node]);
        let status = rig.look(view::status).await;
        assert_eq!(status.plan_sha256, apply.plan_sha256);
        let [broken] = &status.broken_parts[..] else { panic!("{:?}", status.broken_parts) };
        assert!(broken.why == "reported by test" && broken.bypassed, "{broken:?}");
        let of_node = |end: &str| end.starts_with(&format!("{node}/"));
        let circuits = &status.circuits;
        assert!(!circuits.is_empty() && circuits.iter().all(|c| c.stands), "{circuits:?}");
        assert!(!circuits.iter().any(|c| of_node(&c.a) || of_node(&c.b)), "{circuits:?}");

        // Without a plan, all light is off, and the daemon still knows the failed part.
        let back = Rollback { txn: Txn(1), ..Rollback::default() };
        let answer = rig.ask(Request::Rollback(back), None).await;
        rig.committed(&answer).await;
        let status = rig.look(view::status).await;
        assert!(status.plan_sha256.is_empty() && status.circuits.is_empty());
        let [broken] = &status.broken_parts[..] else { panic!("{:?}", status.broken_parts) };
        assert!(broken.part == node.to_string() && !broken.bypassed, "{broken:?}");
    });
}

/// The rollback leaves no plan and therefore no bypass, so light on a failed part is refused.
#[test]
fn rejects_a_rollback_that_would_light_a_failed_part() {
    let folder = tempfile::tempdir().unwrap();
    let _modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon(folder.path()).await;
        let plan = first_plan(&installed(NODES));
        let target = desired::paths(&plan, &rig.config.bundles).unwrap();
        let mut one_less = target.clone();
        let part = plan.circuits[1].a.bundle;
        one_less.insert(part.to_string().as_str().into(), [(Slot(0), Position::LOOPBACK)].into());
        for target in [one_less, target] {
            let answer = rig.ask(Request::Apply(Apply { target, ..Apply::default() }), None).await;
            rig.committed(&answer).await;
        }
        let by_hand = rig.look(view::status).await;
        assert!(by_hand.plan_sha256.is_empty());
        assert_eq!(by_hand.circuits.len(), plan.circuits.len(), "lit without a plan");
        rig.apply_plan(&plan_around(&[])).await;
        let answer = rig.fault(&[Part::Bundle(part)], &[]).await;
        rig.committed(&answer).await;
        let back = Rollback { txn: Txn(4), ..Rollback::default() };
        let answer = rig.ask(Request::Rollback(back), None).await;
        let Answer::Refused { reasons } = &answer else { panic!("{answer:?}") };
        let first = format!("{part} is known to be faulty: reported by test, and ");
        assert!(reasons[0].starts_with(&first), "{reasons:?}");
        assert!(reasons[1].contains("--repaired PART"), "{reasons:?}");

        let answer = rig.fault(&[], &[Part::Bundle(part)]).await;
        rig.committed(&answer).await;
        let confirm_within = Some(Micros::from_secs(60));
        let back = Rollback { txn: Txn(4), confirm_within, avoiding: None };
        let answer = rig.ask(Request::Rollback(back.clone()), None).await;
        rig.committed(&answer).await;
        let pending = rig.look(view::status).await.pending.unwrap();
        assert_eq!(Answer::Accepted { txn: Txn(pending.txn) }, answer);
        let again = Rollback { txn: Txn(pending.txn), ..back };
        let answer = rig.ask(Request::Rollback(again), None).await;
        assert!(matches!(&answer, Answer::Conflict { reason } if reason.contains("omit")));
    });
}

#[test]
fn journal_keeps_plans() {
    let folder = tempfile::tempdir().unwrap();
    let _modules = ring(&folder.path().join("links"));
    let state = folder.path().join("state");
    on_a_runtime(async {
        let installed = installed(16);
        let mut rig = Rig::start(16, folder.path(), installed.clone()).await;
        rig.adopt_all().await;
        rig.apply_plan(&first_plan(&installed)).await;
        let plan = rig.look(|runtime| runtime.control.ledger().plan_sha256.clone()).await;
        assert!(!state.join(format!("plan-{plan}.json")).exists());
        let kept = rig.look(move |r| r.control.ledger().plans.contains_key(&plan));
        assert!(kept.await);
    });
}
