// SPDX-License-Identifier: Apache-2.0
//! The daemon against emulated devices that fail, on real ptys and sockets: a node without power, a fibre
//! without light, garbage on a line, somebody else's hand on a switch.

use crate::daemon_rig;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use daemon_rig::ring::{NODES, daemon, daemon_that, faults, node_in_use, plan_around, ring};
use daemon_rig::{Modules, Rig, first_plan, installed, on_a_runtime};
use lightloom_control::change::Mode;
use lightloom_control::controller::{Answer, Apply, Request, Rollback};
use lightloom_control::record::TxnResult;
use lightloom_control::state::{DeviceName, Fabric, Micros, Position, Slot, Txn};
use lightloom_control::{bypass, desired};
use lightloom_daemon::runtime::Runtime;
use lightloom_daemon::view;
use lightloom_daemon_api::circuit::DarkCircuits;
use lightloom_daemon_api::device::DeviceState;
use lightloom_daemon_api::status::BrokenPart;
use lightloom_fabric::fabric::Fabric as Installed;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::Plan;
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;

#[test]
fn a_node_without_power_is_bypassed_without_being_told() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon(folder.path()).await;
        let node = node_in_use();
        let died = Instant::now();
        modules.fault(&format!("n{node} dead"));
        let past = rig.bypass_of_its_own().await;
        println!("n{node} lost its power; bypassed after {:.1?}", died.elapsed());
        assert_eq!(past.result, TxnResult::Committed, "{:?}", past.parts);
        assert!(died.elapsed() < Duration::from_secs(15), "long before the heartbeat");
        let broken = rig.look(faults).await;
        let of_node = |part: &Part| part.to_string().starts_with(&format!("n{node}/"));
        assert!(!broken.is_empty() && broken.iter().all(of_node), "{broken:?}");
        // Its neighbours go on without drift: nobody looks at it any more.
        let drifted = |runtime: &Runtime| {
            runtime
                .control
                .controller()
                .devices()
                .values()
                .filter(|d| d.up && !d.drift.is_empty())
                .count()
        };
        assert_eq!(rig.look(drifted).await, 0);
        // It does not work again before it answers, whoever says so.
        let Answer::Refused { reasons } = rig.fault(&[], &broken).await else { panic!("repaired") };
        let wait =
            format!("lightloom ctl wait {0} && lightloom ctl fault --repaired {0}", broken[0]);
        assert!(
            reasons[0].contains("cannot be talked to") && reasons[0].contains(&wait),
            "{reasons:?}"
        );
        assert_eq!(rig.look(faults).await, broken);
    });
}

/// What is down on one node is judged and moved as one: whichever neighbour is read first, it takes one change.
#[test]
fn both_bundles_of_a_dead_node_are_bypassed_by_one_change() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let rig = daemon(folder.path()).await;
        for kill in 1..=3 {
            // Of the first one module is in loopback, at the end of its ring: nobody misses its light.
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
                (of_node.count() == 2 && !runtime.control.controller().is_busy()).then_some(())
            };
            rig.find("both bundles to be bypassed", both).await;
            println!("{node}: both bundles bypassed after {:.0?}", died.elapsed());
            let own = |runtime: &Runtime| {
                let history = runtime.control.controller().ledger().history.iter();
                history.filter(|past| past.actor == "policy:fault").count()
            };
            assert_eq!(rig.look(own).await, kill, "one change for each dead node");
        }
    });
}

#[test]
fn a_fibre_without_light_between_modules_that_are_well_is_bypassed() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let rig = daemon(folder.path()).await;
        let port = first_plan(&installed(NODES)).circuits[1].a;
        modules.fault(&format!("{} unplug {}", port.bundle, port.path));
        let past = rig.bypass_of_its_own().await;
        assert_eq!(past.result, TxnResult::Committed, "{:?}", past.parts);
        let broken = rig.look(faults).await;
        assert!(matches!(broken[..], [Part::Fibre(_)]), "{broken:?}");
    });
}

#[test]
fn with_the_policy_to_report_a_dark_fibre_is_told_and_stays() {
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

/// A module dies, is told to be broken and gone around: what misses its light is explained by that.
#[test]
fn a_fibre_of_a_part_that_is_known_to_be_broken_is_not_told_again() {
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
        // One that a busy machine aborts is tried again automatically.
        let bypassed = move |runtime: &Runtime| {
            let around = faults(runtime).contains(&Part::Bundle(dead));
            (around && !runtime.control.controller().is_busy()).then_some(())
        };
        rig.find("the bypass of what was reported", bypassed).await;
        // Somebody turns the near end back to it: it is dark there, and everybody knows why.
        let to = Position(u32::from(near.path));
        let near = DeviceName::from(&*near.bundle.to_string());
        let target = Fabric::from([(near, [(Slot(0), to)].into())]);
        rig.commit(Request::Apply(Apply { target, ..Apply::default() }), None).await;
        let seen = |runtime: &Runtime| {
            let dark = !runtime.control.controller().dark_fibres().is_empty();
            dark.then(|| view::status(runtime))
        };
        let status = rig.find("the near end to miss it again", seen).await;
        assert!(status.dark_fibres.is_empty(), "{:?}", status.dark_fibres);
        assert!(status.broken.contains(&dead.to_string()), "{:?}", status.broken);
    });
}

/// A node dies while a plan waits for its confirm, and nobody confirms.
#[test]
fn a_dead_node_is_bypassed_while_a_plan_waits_and_stays_bypassed_when_that_is_undone() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon(folder.path()).await;
        let (first, node) = (first_plan(&installed(NODES)), node_in_use());
        let named = Part::Node(lightloom_units::id::NodeId((node + 5) % 12));
        let plan = bypass::next_plan(&installed(NODES), &first, &[named], &[]).unwrap();
        let apply = Apply {
            target: desired::paths(&plan, &rig.config.bundles).unwrap(),
            plan_sha256: bypass::sha256_of(&plan),
            confirm_within: Some(Micros::from_secs(15)),
            ..Apply::default()
        };
        let answer = rig.ask(Request::Apply(apply), Some(plan)).await;
        rig.committed(&answer).await;
        modules.fault(&format!("n{node} dead"));
        let past = rig.bypass_of_its_own().await;
        assert_eq!(past.result, TxnResult::Committed, "{:?}", past.parts);
        let pending = |runtime: &Runtime| runtime.control.controller().ledger().pending.is_some();
        assert!(rig.look(pending).await, "the plan goes on to wait");
        let undone = |runtime: &Runtime| {
            let mut history = runtime.control.controller().ledger().history.iter();
            history.find(|past| past.actor == "policy:confirm-timeout").cloned()
        };
        let undone = rig.find("it to be undone", undone).await;
        assert_eq!(undone.result, TxnResult::Committed, "{:?}", undone.parts);
        let broken = rig.look(faults).await;
        let of_node = |part: &Part| part.to_string().starts_with(&format!("n{node}/"));
        assert!(!broken.is_empty() && broken.iter().all(of_node), "{broken:?}");
        // Every circuit of the plan around it stands: the ring is closed.
        let closed = |runtime: &Runtime| {
            let circuits = view::status(runtime).circuits;
            (!circuits.is_empty() && circuits.iter().all(|circuit| circuit.stands)).then_some(())
        };
        rig.find("the ring to be closed around it", closed).await;
    });
}

/// A node dies, and a module that its bypass has to move says done and does nothing.
#[test]
fn a_module_that_lies_beside_a_dead_node_is_gone_around_too() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let rig = daemon(folder.path()).await;
        let (first, node) = (first_plan(&installed(NODES)), node_in_use());
        let dead = Part::Node(lightloom_units::id::NodeId(node));
        let around = bypass::next_plan(&installed(NODES), &first, &[dead], &[]).unwrap();
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
        // Its neighbours may have missed its light, and been led around it, before its silence was told.
        let waits = rig.find("the dead node to be told", waits).await;
        assert!(waits.bypassed || waits.why.contains("not yet bypassed: "), "{waits:?}");
        println!("{}: {}", waits.part, waits.why);

        let suspected = move |runtime: &Runtime| {
            let broken = view::status(runtime).broken_parts;
            broken.into_iter().find(|part| part.part == liar.to_string() && part.bypassed)
        };
        let suspect = rig.find("the liar to be gone around", suspected).await;
        assert!(suspect.why.starts_with("suspect: ") && suspect.why.contains("it said done"));
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

/// A plan made without the node that the daemon went around: mode safe names it and says what to do.
#[test]
fn a_plan_that_forgets_a_broken_part_is_refused_in_mode_safe() {
    let folder = tempfile::tempdir().unwrap();
    let _modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon(folder.path()).await;
        let part = Part::Node(lightloom_units::id::NodeId(node_in_use()));
        let answer = rig.fault(&[part], &[]).await;
        rig.committed(&answer).await;
        let known = rig.look(|runtime: &Runtime| runtime.control.broken()).await;
        let broken = &known[&part.to_string()];
        assert!(broken.why == "told by test" && broken.wall_ms > 0, "{known:?}");
        assert!(matches!(rig.fault(&[part], &[]).await, Answer::NothingToDo { .. }));

        let plan = first_plan(&installed(NODES));
        let target = desired::paths(&plan, &rig.config.bundles).unwrap();
        let apply = |mode| Apply {
            target: target.clone(),
            plan_sha256: bypass::sha256_of(&plan),
            mode,
            ..Apply::default()
        };
        let answer = rig.ask(Request::Apply(apply(Mode::Safe)), Some(plan.clone())).await;
        let Answer::Refused { reasons } = &answer else { panic!("{answer:?}") };
        assert!(reasons[0].starts_with(&format!("{part} is known to be broken: told by test")));
        assert!(reasons[1].contains(&format!("`--fault {part}`")), "{reasons:?}");
        let answer = rig.ask(Request::Apply(apply(Mode::Update)), Some(plan.clone())).await;
        rig.committed(&answer).await;
        assert!(
            rig.look(|runtime: &Runtime| runtime.control.broken()).await.is_empty(),
            "forgotten, as asked"
        );
        let never = rig.fault(&[], &[part]).await;
        let said = format!("{part} is not known to be broken");
        assert_eq!(never, Answer::Refused { reasons: vec![said] });

        // What was undone is known again.
        let undo = Request::Rollback(Rollback { txn: Txn(3), ..Rollback::default() });
        let answer = rig.ask(undo, None).await;
        rig.committed(&answer).await;
        assert_eq!(rig.look(|runtime: &Runtime| runtime.control.broken()).await, known);
    });
}

/// Repairs move no ring of a job: where faults have led these apart, fewer circuits are lit than were applied.
#[test]
fn after_repairs_the_circuits_that_are_missing_from_the_applied_plan_are_told() {
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

        let (sha256, again) = rig.look(|r: &Runtime| r.control.applied_last()).await.unwrap();
        assert_eq!((&sha256, &again.circuits), (&bypass::sha256_of(&plan), &plan.circuits));
        rig.apply_plan(&again).await;
        let status = rig.look(view::status).await;
        assert_eq!((status.circuits.len(), status.applied), (plan.circuits.len(), None));
    });
}

/// A module that lost its place and was adopted so: nothing drifts, but a circuit of the plan is dark.
#[test]
fn a_circuit_of_the_plan_that_was_adopted_away_is_told_and_lit_again() {
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
            let seen = &runtime.control.controller().devices()[&of];
            (seen.up && !seen.drift.is_empty()).then_some(())
        };
        rig.find("it to stand elsewhere", lost).await;
        let status = rig.look(view::status).await;
        assert_eq!(status.dark_circuits, None, "the drift explains it");
        let answer = rig.ask(Request::Adopt(vec![device]), None).await;
        assert!(matches!(answer, Answer::Adopted { .. }), "{answer:?}");
        let status = rig.look(view::status).await;
        let all = plan.circuits.len();
        let dark = DarkCircuits {
            standing: all - 1,
            circuits: all,
            ends: vec![end.to_string()],
            next: "light them again: lightloom ctl apply --again".into(),
        };
        assert_eq!(status.dark_circuits, Some(dark));
        assert_eq!(rig.look(view::circuits_dark).await, 1);
        tokio::time::sleep(Duration::from_secs(3)).await; // a module takes no switch right after its power
        rig.apply_plan(&plan).await;
        let status = rig.look(view::status).await;
        assert!(status.dark_circuits.is_none() && status.no_plan.is_none());

        // To before any plan: nothing is lit, and that is said.
        let back = Request::Rollback(Rollback { txn: Txn(1), ..Rollback::default() });
        let answer = rig.ask(back, None).await;
        rig.committed(&answer).await;
        let status = rig.look(view::status).await;
        assert!(status.plan_sha256.is_empty() && status.circuits.is_empty());
        assert_eq!(status.no_plan.unwrap().next, "light it: lightloom ctl apply PLAN");
    });
}

/// Past its deadline a change is undone, and a module of it is silent: no confirm is asked for any more.
#[test]
fn an_undo_that_waits_for_a_silent_module_is_told_instead_of_the_confirm() {
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
            plan_sha256: bypass::sha256_of(&plan),
            confirm_within: Some(Micros::from_secs(4)),
            ..Apply::default()
        };
        let answer = rig.ask(Request::Apply(apply), Some(plan)).await;
        rig.committed(&answer).await;
        assert_eq!(rig.look(view::status).await.pending.unwrap().txn, 2);
        // One that has been silent for longer than it is waited for is left out at once.
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
        let owed = |runtime: &Runtime| {
            let status = view::status(runtime);
            status.transaction.is_none().then_some(status)
        };
        let status = rig.find("its end", owed).await;
        let name = silent.to_string();
        assert!(!status.attention.contains_key(&name), "{:?}", status.attention);
        let owed = status.owed.get(&name).unwrap_or_else(|| panic!("{:?}", status.owed));
        assert_eq!(owed.what, "the undoing of 2");
        assert!(owed.why.contains("brought back when it answers again"), "{owed:?}");
    });
}

/// Two nodes, and the plan made around them, whose repair one after the other brings back fewer circuits than
/// a plan of the whole ring has.
fn a_pair_whose_repair_leaves_fewer_circuits(
    installed: &Installed,
    all: usize,
) -> ([Part; 2], Plan) {
    let pairs = (0..32).flat_map(|a| (a + 1..32).map(move |b| [a, b]));
    let fewer = |pair: [u32; 2]| {
        let parts = pair.map(|node| Part::Node(NodeId(node)));
        let faults = FaultSet::of(installed, parts).unwrap();
        let plan = bypass::plan_anew(installed, &faults, Seed(0)).ok()?;
        let repaired = parts.iter().try_fold(plan.clone(), |plan, part| {
            bypass::next_plan(installed, &plan, &[], &[*part]).ok()
        })?;
        (repaired.circuits.len() < all).then_some((parts, plan))
    };
    pairs.into_iter().find_map(fewer).expect("some repair leaves fewer circuits")
}

/// A plan made around parts that are repaired later is no plan to go back to.
#[test]
fn applying_again_never_takes_for_broken_what_was_repaired_since() {
    let folder = tempfile::tempdir().unwrap();
    let _modules = Modules::serve(32, 2, &folder.path().join("links"));
    on_a_runtime(async {
        let installed = installed(32);
        let all = first_plan(&installed).circuits.len();
        let (parts, plan) = a_pair_whose_repair_leaves_fewer_circuits(&installed, all);
        let mut rig = Rig::start(32, folder.path(), installed).await;
        rig.adopt_all().await;
        rig.apply_plan(&plan).await;
        let (sha256, _) = rig.look(|r: &Runtime| r.control.applied_last()).await.unwrap();
        assert_eq!(sha256, bypass::sha256_of(&plan), "nothing was repaired yet");
        for part in parts {
            let answer = rig.fault(&[], &[part]).await;
            rig.committed(&answer).await;
        }
        let status = rig.look(view::status).await;
        assert!(status.circuits.len() < all && status.broken.is_empty(), "{:?}", status.broken);
        let applied = status.applied.unwrap();
        assert!(!applied.explained && applied.circuits == all, "{applied:?}");
        let (_, again) = rig.look(|r: &Runtime| r.control.applied_last()).await.unwrap();
        assert!(again.faults.is_empty(), "{:?}", again.faults);
        rig.apply_plan(&again).await;
        let status = rig.look(view::status).await;
        assert_eq!((status.circuits.len(), status.applied, status.broken.len()), (all, None, 0));
    });
}

/// What was told to be broken after a change is still broken when the change is undone.
#[test]
fn a_rollback_goes_around_what_was_found_broken_since() {
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
                move |r: &Runtime| r.control.way_back(&back)
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
        assert!(broken.why == "told by test" && broken.bypassed, "{broken:?}");
        let of_node = |end: &str| end.starts_with(&format!("{node}/"));
        let circuits = &status.circuits;
        assert!(!circuits.is_empty() && circuits.iter().all(|c| c.stands), "{circuits:?}");
        assert!(!circuits.iter().any(|c| of_node(&c.a) || of_node(&c.b)), "{circuits:?}");

        // To before any plan: nothing is lit there, and the part is known to be broken all the same.
        let back = Rollback { txn: Txn(1), ..Rollback::default() };
        let answer = rig.ask(Request::Rollback(back), None).await;
        rig.committed(&answer).await;
        let status = rig.look(view::status).await;
        assert!(status.plan_sha256.is_empty() && status.circuits.is_empty());
        let [broken] = &status.broken_parts[..] else { panic!("{:?}", status.broken_parts) };
        assert!(broken.part == node.to_string() && !broken.bypassed, "{broken:?}");
    });
}

/// Where no plan stood there is none to lead around a broken part: light on it is refused.
#[test]
fn a_rollback_that_would_light_a_broken_part_is_refused() {
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
        let first = format!("{part} is known to be broken: told by test, and ");
        assert!(reasons[0].starts_with(&first), "{reasons:?}");
        assert!(reasons[1].contains("--repaired PART"), "{reasons:?}");

        // What waits for its own confirm cannot be asked for while another is waited for.
        let answer = rig.fault(&[], &[Part::Bundle(part)]).await;
        rig.committed(&answer).await;
        let confirm_within = Some(Micros::from_secs(60));
        let back = Rollback { txn: Txn(4), confirm_within, around: None };
        let answer = rig.ask(Request::Rollback(back.clone()), None).await;
        rig.committed(&answer).await;
        let pending = rig.look(view::status).await.pending.unwrap();
        assert_eq!(Answer::Accepted { txn: Txn(pending.txn) }, answer);
        let again = Rollback { txn: Txn(pending.txn), ..back };
        let answer = rig.ask(Request::Rollback(again), None).await;
        assert!(matches!(&answer, Answer::Conflict { reason } if reason.contains("leave")));
    });
}

/// Two cables plugged in the wrong way round: there is light everywhere, and it is somebody else's.
#[test]
fn crossed_cables_fail_qualification_and_name_both_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon(folder.path()).await;
        let plan = first_plan(&installed(NODES));
        let (one, other) = (plan.circuits[1], plan.circuits[3]);
        let dark = Fabric::from_iter([one.a, one.b, other.a, other.b].map(|port| {
            (
                DeviceName::from(port.bundle.to_string().as_str()),
                [(Slot(0), Position::LOOPBACK)].into(),
            )
        }));
        let answer =
            rig.ask(Request::Apply(Apply { target: dark, ..Apply::default() }), None).await;
        rig.committed(&answer).await;
        let cross = format!("{} cross {} {}", one.a.bundle, one.a.path, other.a);
        modules.fault(&cross);

        let target = desired::paths(&plan, &rig.config.bundles).unwrap();
        let apply = |mode| Apply { target: target.clone(), mode, ..Apply::default() };
        let Answer::Accepted { txn } = rig.ask(Request::Apply(apply(Mode::Safe)), None).await
        else {
            panic!("not accepted")
        };
        let past = move |runtime: &Runtime| {
            let mut history = runtime.control.controller().ledger().history.iter();
            history.find(|past| past.txn == txn).cloned()
        };
        let past = rig.find("the end", past).await;
        assert_eq!(past.result, TxnResult::RolledBack, "{:?}", past.parts);
        let device = DeviceName::from(one.a.bundle.to_string().as_str());
        let said = &past.parts[&device].detail;
        let expected = format!("group 0 is lit by {} and should be by {}", other.b, one.b);
        assert!(said.contains(&expected), "{said}");
        println!("{device}: {said}");

        modules.fault(&cross);
        let answer = rig.ask(Request::Apply(apply(Mode::Safe)), None).await;
        rig.committed(&answer).await;
    });
}

/// Somebody swaps two cables of a ring at rest: nothing moves, there is light everywhere, and all four ends
/// say that it is somebody else's.
#[test]
fn cables_crossed_at_rest_are_told_and_nothing_is_blamed() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon(folder.path()).await;
        let plan = first_plan(&installed(NODES));
        let (one, other) = (plan.circuits[1], plan.circuits[3]);
        let cross = format!("{} cross {} {}", one.a.bundle, one.a.path, other.a);
        assert!(rig.look(view::drift).await.crossed.is_empty());
        modules.fault(&cross);
        let four = |runtime: &Runtime| {
            let crossed = view::status(runtime).crossed;
            (crossed.len() == 4).then_some(crossed)
        };
        let crossed = rig.find("all four ends to be told", four).await;
        let end = crossed.iter().find(|end| end.end == one.a.to_string()).unwrap();
        assert_eq!((&*end.lit_by, &*end.should_be), (&*other.b.to_string(), &*one.b.to_string()));
        let status = rig.look(view::status).await;
        let device = status.devices.iter().find(|d| d.name == one.a.bundle.to_string()).unwrap();
        assert_eq!(device.state, DeviceState::Crossed);
        assert_eq!(rig.look(view::drift).await.crossed, crossed);
        let metric = rig.shared.metrics.crossed_ends.with_label_values(&[&device.name]);
        assert!((metric.get() - 1.0).abs() < f64::EPSILON);

        // The same plan once more moves nothing, and does not pass over it.
        rig.apply_plan(&plan).await;
        let last = |runtime: &Runtime| {
            let past = runtime.control.controller().ledger().history.back().unwrap();
            view::transaction(runtime, past)
        };
        assert_eq!(rig.look(last).await.crossed, crossed);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(rig.look(faults).await.is_empty(), "no fibre is taken for dark");

        modules.fault(&cross);
        let none = |runtime: &Runtime| view::status(runtime).crossed.is_empty().then_some(());
        rig.find("it to be right again", none).await;
    });
}

/// Crossed with a fibre that only one end looks into: one end is dark, and the other says whose light it
/// sees instead. That is not a dark fibre.
#[test]
fn an_end_that_is_dark_for_crossed_cables_is_told_with_that_cause() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon_that("report", folder.path()).await;
        let plan = first_plan(&installed(NODES));
        let (one, other) = (plan.circuits[1], plan.circuits[3]);
        let aside = other.b.bundle.to_string();
        let target =
            Fabric::from([(aside.as_str().into(), [(Slot(0), Position::LOOPBACK)].into())]);
        let answer = rig.ask(Request::Apply(Apply { target, ..Apply::default() }), None).await;
        rig.committed(&answer).await;
        modules.fault(&format!("{} cross {} {}", one.a.bundle, one.a.path, other.a));
        let dark = |runtime: &Runtime| view::status(runtime).dark_fibres.pop();
        let dark = rig.find("the dark end", dark).await;
        assert_eq!((&*dark.near, &*dark.far), (&*one.a.to_string(), &*one.b.to_string()));
        assert_eq!(dark.far_lit_by, Some(other.a.to_string()), "never as a fibre without light");
        // The other end that is lit by another is seen with its own next read.
        let both = [one.b.to_string(), other.a.to_string()];
        let crossed = move |runtime: &Runtime| {
            let crossed = view::status(runtime).crossed;
            let seen = |end: &String| crossed.iter().any(|crossed| crossed.end == *end);
            both.iter().all(seen).then_some(())
        };
        rig.find("both ends to name who lights them", crossed).await;
    });
}

#[test]
fn garbage_on_a_line_is_counted_and_survived() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon(folder.path()).await;
        modules.fault("n3/b0 garble 3%");
        let down = |runtime: &Runtime| {
            let up = |d: &str| runtime.control.controller().devices()[&DeviceName::from(d)].up;
            (!up("n3/b0") && up("n4/b0")).then_some(())
        };
        rig.find("the garbled module to be given up, and no other", down).await;
        let noise = rig.shared.metrics.device_noise.with_label_values(&["n3/b0"]);
        rig.find("the garbage to be counted", move |_| (noise.get() > 0.0).then_some(())).await;
        modules.fault("n3/b0 clear");
        let back = |runtime: &Runtime| {
            let seen = &runtime.control.controller().devices()[&DeviceName::from("n3/b0")];
            (seen.up && seen.observed.is_some() && seen.drift.is_empty()).then_some(())
        };
        rig.find("it to be seen again, as it stood", back).await;
        let target = Fabric::from([("n3/b0".into(), [(Slot(0), Position(2))].into())]);
        let answer = rig.ask(Request::Apply(Apply { target, ..Apply::default() }), None).await;
        rig.committed(&answer).await;
    });
}

#[test]
fn a_circuit_that_somebody_else_makes_is_seen_within_one_poll() {
    let folder = tempfile::tempdir().unwrap();
    let list = "switches:\n  - {name: ocs0, ingress: 8, egress: 8, scpi: '127.0.0.1:0', \
                tl1: '127.0.0.1:0', switching: 5ms}\n";
    let (_switch, at) = Modules::of_list(list, &folder.path().join("links"));
    on_a_runtime(async {
        let file = format!(
            "policies: {{poll_every: 300ms}}\ndevices:\n- {{name: ocs0, driver: {{scpi: {{tcp: \"{}\"}}}}}}\n",
            at[0]
        );
        let mut rig = Rig::of_devices(&file, folder.path(), None).await;
        let circuits = [(Slot(1), Position(9)), (Slot(2), Position(10))].into();
        let target = Fabric::from([("ocs0".into(), circuits)]);
        let answer = rig.ask(Request::Apply(Apply { target, ..Apply::default() }), None).await;
        rig.committed(&answer).await;

        let stream = TcpStream::connect(&at[1]).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        for line in ["ACT-USER::root:1::root;", "ENT-PATCH::3,11:2:;"] {
            (&stream).write_all(line.as_bytes()).unwrap();
            // Messages that nobody asked for may come first.
            let mut reply = Vec::new();
            while !String::from_utf8_lossy(&reply).contains("COMPLD") {
                assert!(reader.read_until(b';', &mut reply).unwrap() > 0);
                assert!(reply.len() < 4096, "{}", String::from_utf8_lossy(&reply));
            }
        }
        let moved = Instant::now();
        let drift = |runtime: &Runtime| {
            let drift = &runtime.control.controller().devices()[&DeviceName::from("ocs0")].drift;
            (!drift.is_empty()).then(|| drift.clone())
        };
        let drift = rig.find("the drift", drift).await;
        println!("drift seen {:.0?} after the move, polled every 300 ms", moved.elapsed());
        assert_eq!((drift[0].slot, drift[0].observed), (Slot(3), Position(11)));
        assert!(moved.elapsed() < Duration::from_secs(3), "one poll, and a busy machine");
    });
}

#[test]
fn who_waits_for_a_change_does_not_wake_himself_by_looking() {
    let folder = tempfile::tempdir().unwrap();
    let list = "switches:\n  - {name: ocs0, ingress: 8, egress: 8, scpi: '127.0.0.1:0'}\n";
    let (_switch, at) = Modules::of_list(list, &folder.path().join("links"));
    on_a_runtime(async {
        let file = format!(
            "policies: {{poll_every: 10s}}\ndevices:\n- {{name: ocs0, driver: {{scpi: {{tcp: \"{}\"}}}}}}\n",
            at[0]
        );
        let rig = Rig::of_devices(&file, folder.path(), None).await;
        let before = *rig.shared.changes.borrow();
        for _ in 0..1000 {
            rig.look(|_| ()).await;
        }
        let changes = *rig.shared.changes.borrow() - before;
        assert!(changes < 20, "{changes} changes by 1,000 looks");
    });
}

#[test]
fn plans_are_kept_in_the_journal_and_files_of_earlier_versions_go() {
    let folder = tempfile::tempdir().unwrap();
    let _modules = ring(&folder.path().join("links"));
    let state = folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let old = state.join(format!("plan-{}.json", "0".repeat(64)));
    std::fs::write(&old, "{}").unwrap();
    on_a_runtime(async {
        let installed = installed(16);
        let mut rig = Rig::start(16, folder.path(), installed.clone()).await;
        assert!(!old.exists(), "no record speaks of it");
        rig.adopt_all().await;
        rig.apply_plan(&first_plan(&installed)).await;
        let plan =
            rig.look(|runtime| runtime.control.controller().ledger().plan_sha256.clone()).await;
        assert!(!state.join(format!("plan-{plan}.json")).exists());
        let kept = rig.look(move |r| r.control.controller().ledger().plans.contains_key(&plan));
        assert!(kept.await);
    });
}
