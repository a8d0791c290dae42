// SPDX-License-Identifier: Apache-2.0
//! Speed of the daemon with emulated devices in the same process. The default run only checks completion;
//! the figures of docs/reliability.md come from
//!
//! ```sh
//! cargo test --release --test it daemon_speed:: -- --ignored --nocapture --test-threads 1
//! LIGHTLOOM_STATE=. cargo test --release --test it daemon_speed:: -- --ignored --nocapture --test-threads 1
//! ```

use crate::daemon_rig;
use std::time::Instant;

use daemon_rig::times::{Times, state_folder};
use daemon_rig::{Modules, Rig, first_plan, installed, on_a_runtime};
use lightloom_control::controller::{Answer, Apply, Request};
use lightloom_control::mover::Limits;
use lightloom_control::state::{Move, Neighbours, Op, Position, Positions, Slot, SwitchState, Txn};
use lightloom_daemon::runtime::Call;
use lightloom_drivers::Session;
use lightloom_drivers::conversation::Conversation;
use lightloom_drivers::scpi::Scpi;
use lightloom_units::id::NodeId;
use tokio::sync::oneshot;

fn processor_ms() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// Measures the time from the report of a failed node to the first switching command.
fn time_of_bypasses(nodes: u32, rounds: u32) -> Times {
    let folder = state_folder();
    let _modules = Modules::serve(nodes, 2, &folder.path().join("links"));
    let mut fired = Times(Vec::new());
    on_a_runtime(async {
        let installed = installed(nodes);
        let mut rig = Rig::start(nodes, folder.path(), installed.clone()).await;
        rig.adopt_all().await;
        let plan = first_plan(&installed);
        rig.apply_plan(&plan).await;
        for round in 0..rounds {
            let node = NodeId(2 + round * 7 % (nodes - 4));
            let part = lightloom_fabric::fault::Part::Node(node);
            for repaired in [false, true] {
                let before = rig.shared.metrics.event_to_fired_seconds.get_sample_sum();
                let (answer, receiver) = oneshot::channel();
                let parts = vec![part];
                let (broken, repaired) = if repaired { (vec![], parts) } else { (parts, vec![]) };
                let asked = rig.asked();
                let broken = broken.into_iter().map(|part| (part, "reported".into())).collect();
                let call = Call::Fault { asked, broken, repaired, answer };
                rig.shared.calls.send(call).await.ok().unwrap();
                let answer = crate::daemon_rig::said(receiver.await.unwrap());
                if matches!(answer, Answer::Done | Answer::NothingToDo { .. }) {
                    continue;
                }
                rig.committed(&answer).await;
                let after = rig.shared.metrics.event_to_fired_seconds.get_sample_sum();
                fired.0.push((after - before) * 1e3);
            }
        }
        rig.show_journal();
    });
    fired
}

fn time_of_changes(nodes: u32) -> Times {
    let folder = state_folder();
    let _modules = Modules::serve(nodes, 2, &folder.path().join("links"));
    let mut times = Times(Vec::new());
    on_a_runtime(async {
        let mut rig = Rig::start(nodes, folder.path(), installed(nodes)).await;
        rig.adopt_all().await;
        let processor = processor_ms();
        for path in [1, 2, 1, 2, 1] {
            let devices = rig.config.drivers.keys();
            let target: SwitchState = devices
                .map(|device| (device.clone(), [(Slot(0), Position(path))].into()))
                .collect();
            assert_eq!(target.len(), 2 * nodes as usize);
            let started = Instant::now();
            let apply = Apply { target, plan_sha256: "none".into(), ..Apply::default() };
            let answer = rig.ask(Request::Apply(apply), None).await;
            rig.committed(&answer).await;
            times.0.push(started.elapsed().as_secs_f64() * 1e3);
        }
        let processor = (processor_ms() - processor) / 5.0;
        println!("processor time of daemon and modules: {processor:.1} ms a change of all");
        rig.show_journal();
    });
    times
}

fn circuits_of(round: u32, circuits: u32) -> Positions {
    (1..=circuits).map(|slot| (Slot(slot), Position(321 + (slot - 1 + round) % 320))).collect()
}

/// The device's own time: a bare client sends the commands that applying a plan sends, from the
/// arming read to the qualifying reads.
fn bare(at: &str, circuits: u32, rounds: u32) -> Times {
    use std::io::{BufRead, BufReader, Write};
    let stream = std::net::TcpStream::connect(at).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut answer = String::new();
    let mut times = Times(Vec::new());
    for round in 0..=rounds {
        let txn = Txn(round);
        let want = circuits_of(round, circuits);
        let dark = |(&slot, &from): (&Slot, &Position)| Move { slot, from, to: Position::DARK };
        let lit = |(&slot, &to): (&Slot, &Position)| Move { slot, from: Position::DARK, to };
        let before = if round == 0 { Positions::new() } else { circuits_of(round - 1, circuits) };
        let power: Vec<Slot> = want.keys().copied().collect();
        let add = want.iter().map(lit).collect();
        let mut ops = vec![Op::Arm { txn, want }];
        if round > 0 {
            ops.push(Op::Switch { txn, moves: before.iter().map(dark).collect() });
        }
        ops.push(Op::Switch { txn, moves: add });
        for _ in 0..Limits::default().power_samples {
            ops.push(Op::Observe { power: power.clone(), neighbours: Neighbours::Usual });
        }
        let lines = Session::new(Scpi::new(true)).preview(&ops).unwrap();
        let started = Instant::now();
        for line in lines {
            (&stream).write_all(&line).unwrap();
            answer.clear();
            reader.read_line(&mut answer).unwrap();
            let is_good = ["(", "0,", "1;0,"].iter().any(|good| answer.starts_with(good));
            assert!(is_good, "{answer}");
        }
        // The first round has nothing to remove.
        times.0.extend((round > 0).then(|| started.elapsed().as_secs_f64() * 1e3));
    }
    let moves = circuits_of(rounds, circuits);
    let moves =
        moves.iter().map(|(&slot, &from)| Move { slot, from, to: Position::DARK }).collect();
    let end = Session::new(Scpi::new(true)).preview(&[Op::Switch { txn: Txn(0), moves }]).unwrap();
    (&stream).write_all(&end[0]).unwrap();
    reader.read_line(&mut answer).unwrap();
    times
}

struct OfCircuits {
    bare: Times,
    /// Time from the request to the durable end.
    daemon: Times,
    /// The daemon's share, including the journal: all time in which no operation waits for a
    /// device.
    own: Times,
}

fn time_of_circuits(circuits: u32, rounds: u32) -> OfCircuits {
    let folder = state_folder();
    let (_switch, at) = Modules::switch(&folder.path().join("links"));
    let bare = bare(&at, circuits, rounds);
    let (mut daemon, mut own) = (Times(Vec::new()), Times(Vec::new()));
    on_a_runtime(async {
        let file = format!("devices:\n- {{name: ocs0, driver: {{scpi: {{tcp: \"{at}\"}}}}}}\n");
        let mut rig = Rig::of_devices(&file, folder.path(), None).await;
        let processor = processor_ms();
        for round in 0..=rounds {
            let target = SwitchState::from([("ocs0".into(), circuits_of(round, circuits))]);
            let on_device = rig.shared.metrics.operation_seconds.get_sample_sum();
            let started = Instant::now();
            let answer = rig.ask(Request::Apply(Apply { target, ..Apply::default() }), None).await;
            rig.committed(&answer).await;
            let passed = started.elapsed().as_secs_f64() * 1e3;
            let on_device = rig.shared.metrics.operation_seconds.get_sample_sum() - on_device;
            if round > 0 {
                daemon.0.push(passed);
                own.0.push(passed - on_device * 1e3);
            }
        }
        let processor = (processor_ms() - processor) / f64::from(rounds + 1);
        println!("processor time of daemon and switch: {processor:.2} ms a change");
        rig.show_journal();
    });
    OfCircuits { bare, daemon, own }
}

#[test]
fn drives_devices_of_every_kind() {
    assert!(time_of_bypasses(16, 2).0.len() >= 2);
    assert_eq!(time_of_changes(8).0.len(), 5);
    let times = time_of_circuits(16, 2);
    assert_eq!((times.daemon.0.len(), times.own.0.len()), (2, 2));
    assert!(times.own.0.iter().zip(&times.daemon.0).all(|(own, all)| own < all));
}

#[test]
#[ignore = "measures time"]
fn bypass_of_a_failed_node_is_fired_within_5_ms() {
    let fired = time_of_bypasses(32, 100);
    fired.show("fault known to bypass fired, 64 modules");
    assert!(fired.0.len() >= 100);
}

#[test]
#[ignore = "takes a thousand ptys and measures time"]
fn one_thousand_modules_change_within_a_second() {
    time_of_changes(500).show("1,000 modules, one change each");
}

#[test]
#[ignore = "measures time"]
fn circuits_change_in_the_time_the_switch_takes() {
    for circuits in [320, 1] {
        let OfCircuits { bare, daemon, own } = time_of_circuits(circuits, 100);
        bare.show(&format!("{circuits} circuits, the same lines from a bare client"));
        daemon.show(&format!("{circuits} circuits, the daemon"));
        own.show(&format!("{circuits} circuits, of which not on the device"));
    }
}
