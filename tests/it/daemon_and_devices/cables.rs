// SPDX-License-Identifier: Apache-2.0
//! Crossed cables, noise and other operators' changes are attributed to the right part.

use super::*;
use lightloom_daemon::file_storage::FileStorage;

/// Every port receives light, but from the wrong port.
#[test]
fn crossed_cables_fail_qualification_and_name_both_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon(folder.path()).await;
        let plan = first_plan(&installed(NODES));
        let (one, other) = (plan.circuits[1], plan.circuits[3]);
        let dark = SwitchState::from_iter([one.a, one.b, other.a, other.b].map(|port| {
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
            let mut history = runtime.control.ledger().history.iter();
            history.find(|past| past.txn == txn).cloned()
        };
        let past = rig.find("the end", past).await;
        assert_eq!(past.result, TxnResult::RolledBack, "{:?}", past.ends);
        let device = DeviceName::from(one.a.bundle.to_string().as_str());
        let said = &past.ends[&device].detail;
        let expected = format!("group 0 is lit by {} instead of {}", other.b, one.b);
        assert!(said.contains(&expected), "{said}");
        println!("{device}: {said}");

        modules.fault(&cross);
        let answer = rig.ask(Request::Apply(apply(Mode::Safe)), None).await;
        rig.committed(&answer).await;
    });
}

/// No path is switched, and every port receives light, but all four ends report the wrong
/// neighbour.
#[test]
fn crossed_cables_at_rest_are_reported_without_blaming_a_part() {
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
        let crossed = rig.find("all four ends to be reported", four).await;
        let end = crossed.iter().find(|end| end.end == one.a.to_string()).unwrap();
        assert_eq!((&*end.lit_by, &*end.should_be), (&*other.b.to_string(), &*one.b.to_string()));
        let status = rig.look(view::status).await;
        let device = status.devices.iter().find(|d| d.name == one.a.bundle.to_string()).unwrap();
        assert_eq!(device.state, DeviceState::Crossed);
        assert_eq!(rig.look(view::drift).await.crossed, crossed);
        let metric = rig.shared.metrics.crossed_ends.with_label_values(&[&device.name]);
        assert!((metric.get() - 1.0).abs() < f64::EPSILON);

        // Applying the plan again changes nothing and reports the cables again.
        rig.apply_plan(&plan).await;
        let last = |runtime: &Runtime| {
            let past = runtime.control.ledger().history.back().unwrap();
            view::transaction(&runtime.into(), past)
        };
        assert_eq!(rig.look(last).await.crossed, crossed);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(rig.look(faults).await.is_empty(), "no fibre is taken for dark");

        modules.fault(&cross);
        let none = |runtime: &Runtime| view::status(runtime).crossed.is_empty().then_some(());
        rig.find("it to be right again", none).await;
    });
}

/// One end of the crossed cable is not selected and therefore dark, which must not be reported as a
/// dark fibre.
#[test]
fn dark_end_of_crossed_cables_is_reported_with_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon_that("report", folder.path()).await;
        let plan = first_plan(&installed(NODES));
        let (one, other) = (plan.circuits[1], plan.circuits[3]);
        let aside = other.b.bundle.to_string();
        let target =
            SwitchState::from([(aside.as_str().into(), [(Slot(0), Position::LOOPBACK)].into())]);
        let answer = rig.ask(Request::Apply(Apply { target, ..Apply::default() }), None).await;
        rig.committed(&answer).await;
        modules.fault(&format!("{} cross {} {}", one.a.bundle, one.a.path, other.a));
        let dark = |runtime: &Runtime| view::status(runtime).dark_fibres.pop();
        let dark = rig.find("the dark end", dark).await;
        assert_eq!((&*dark.near, &*dark.far), (&*one.a.to_string(), &*one.b.to_string()));
        assert_eq!(dark.far_lit_by, Some(other.a.to_string()), "never as a fibre without light");
        // The other end reports the wrong light at its next read.
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
fn counts_and_survives_garbage_on_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = daemon(folder.path()).await;
        modules.fault("n3/b0 garble 3%");
        let down = |runtime: &Runtime| {
            let up = |d: &str| {
                runtime.control.sightings().devices()[&DeviceName::from(d)].is_reachable()
            };
            (!up("n3/b0") && up("n4/b0")).then_some(())
        };
        rig.find("the garbled module to be given up, and no other", down).await;
        let noise = rig.shared.metrics.device_noise.with_label_values(&["n3/b0"]);
        rig.find("the garbage to be counted", move |_| (noise.get() > 0.0).then_some(())).await;
        modules.fault("n3/b0 clear");
        let back = |runtime: &Runtime| {
            let seen = &runtime.control.sightings().devices()[&DeviceName::from("n3/b0")];
            (seen.is_read() && seen.drift().is_empty()).then_some(())
        };
        rig.find("it to be seen again, as it stood", back).await;
        let target = SwitchState::from([("n3/b0".into(), [(Slot(0), Position(2))].into())]);
        let answer = rig.ask(Request::Apply(Apply { target, ..Apply::default() }), None).await;
        rig.committed(&answer).await;
    });
}

#[test]
fn sees_a_circuit_of_another_client_within_one_poll() {
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
        let target = SwitchState::from([("ocs0".into(), circuits)]);
        let answer = rig.ask(Request::Apply(Apply { target, ..Apply::default() }), None).await;
        rig.committed(&answer).await;

        let stream = TcpStream::connect(&at[1]).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        for line in ["ACT-USER::root:1::root;", "ENT-PATCH::3,11:2:;"] {
            (&stream).write_all(line.as_bytes()).unwrap();
            let mut reply = Vec::new();
            while !String::from_utf8_lossy(&reply).contains("COMPLD") {
                assert!(reader.read_until(b';', &mut reply).unwrap() > 0);
                assert!(reply.len() < 4096, "{}", String::from_utf8_lossy(&reply));
            }
        }
        let moved = Instant::now();
        let drift = |runtime: &Runtime| {
            let drift = runtime.control.sightings().devices()[&DeviceName::from("ocs0")].drift();
            (!drift.is_empty()).then(|| drift.to_vec())
        };
        let drift = rig.find("the drift", drift).await;
        println!("drift seen {:.0?} after the move, polled every 300 ms", moved.elapsed());
        assert_eq!((drift[0].slot, drift[0].observed), (Slot(3), Position(11)));
        assert!(moved.elapsed() < Duration::from_secs(3), "one poll, and a busy machine");
    });
}

#[test]
fn waiting_for_a_change_does_not_wake_on_own_reads() {
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

/// A host that is listed twice gives a module two names. The second name stays unreachable and refers to the
/// first, until the first is gone.
#[test]
fn module_with_two_names_moves_under_one() {
    let folder = tempfile::tempdir().unwrap();
    let links = |name: &str| folder.path().join(name);
    let first = Modules::serve(1, 1, &links("first"));
    let _second = Modules::serve(1, 1, &links("second"));
    on_a_runtime(async {
        let mut devices = "policies: {poll_every: 100ms}\ndevices:\n".to_owned();
        for (device, links) in [("n0/b0", links("first")), ("n1/b0", links("second"))] {
            let at = links.join("n0-b0");
            devices += &format!(
                "- {{name: {device}, driver: {{ocstrx: {{serial: {}}}}}}}\n",
                at.display()
            );
        }
        let mut rig = Rig::not_seen_yet(&devices, folder.path(), None, |file| {
            Ok(Box::new(FileStorage::open(file)?))
        });
        let status = move |runtime: &Runtime, name: &str| {
            let devices = view::status(runtime).devices;
            devices.into_iter().find(|device| device.name == name).unwrap()
        };
        let refused = rig.find("one of the two to be refused", move |runtime| {
            let two = ["n0/b0", "n1/b0"].map(|name| status(runtime, name));
            let [up, down]: [Vec<_>; 2] =
                [true, false].map(|up| two.iter().filter(|d| d.up == up).collect());
            let (up, down) = (up.first()?, down.first()?);
            let why = down.trouble.clone().filter(|why| why.contains("E0000000"))?;
            Some((up.name.clone(), down.name.clone(), why))
        });
        let (up, down, why) = refused.await;
        assert!(why.starts_with(&format!("{up} has the same serial number")), "{why}");
        let target = SwitchState::from([(down.as_str().into(), [(Slot(0), Position(1))].into())]);
        let answer = rig.ask(Request::Apply(Apply { target, ..Apply::default() }), None).await;
        assert!(
            matches!(&answer, Answer::Refused { reasons } if reasons[0].contains("the same module")),
            "{answer:?}"
        );
        if up == "n0/b0" {
            first.fault("n0/b0 dead");
            rig.find("the other to be talked to", move |runtime| {
                status(runtime, "n1/b0").up.then_some(())
            })
            .await;
        }
    });
}
