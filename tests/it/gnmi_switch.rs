// SPDX-License-Identifier: Apache-2.0
//! Tests the gNMI driver and the emulated switch over sockets. The independent client pygnmi also
//! drives the switch (skipped unless installed: `pip install pygnmi`).

use crate::consumers;
use crate::daemon_rig as rig;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lightloom_control::state::{DeviceName, Op, Outcome, Position, Slot, Txn};
use lightloom_control::state::{Move, Neighbours};
use lightloom_daemon::driver::alone::Alone;
use lightloom_daemon::driver::stream::Address;
use lightloom_drivers::gnmi::{Gnmi, Settings};
use rig::{Modules, Rig};

fn list(ports: u32, more: &str) -> String {
    format!(
        "switches:\n  - {{name: ocs0, ingress: {ports}, egress: {ports}, switching: 5ms, \
         gnmi: {{listen: '127.0.0.1:0'{more}}}}}\n"
    )
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn driver(at: &str) -> Alone {
    Alone::speaking(Address::Tcp(at.into()), Gnmi::new(Settings::plain(at)))
}

fn moves(ports: u32) -> Vec<Move> {
    let to = |slot| Position(2 * ports + 1 - slot);
    (1..=ports).map(|slot| Move { slot: Slot(slot), from: Position::DARK, to: to(slot) }).collect()
}

const READ: Op = Op::Observe { power: Vec::new(), neighbours: Neighbours::Usual };

#[test]
fn pygnmi_drives_the_emulated_switch() {
    let folder = tempfile::tempdir().unwrap();
    let (_switch, at) = Modules::of_list(&list(8, ""), folder.path());
    let (host, port) = at[0].rsplit_once(':').unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/consumers/gnmi_switch.py");
    let said = consumers::consumer(
        "pygnmi",
        &["python3", "-c", "import pygnmi"],
        &["timeout", "60", "python3", script, host, port],
        folder.path(),
    );
    if let Some(said) = said {
        print!("{said}");
        assert!(said.ends_with("all as expected\n"), "{said}");
    }
}

#[test]
fn driver_sets_512_circuits_and_reads_them_back_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let (_switch, at) = Modules::of_list(&list(512, ""), folder.path());
    runtime().block_on(async {
        let mut driver = driver(&at[0]);
        let identity = driver.connect().await.unwrap();
        let expected =
            "ocp-ocs-optical-switch 0.8.0, 512 by 512 ports, notifies on change, no election id";
        assert_eq!(identity, expected);
        assert!(matches!(driver.run(&READ).await, Outcome::Done(_)));
        let op = Op::Switch { txn: Txn(1), moves: moves(512) };
        let started = Instant::now();
        assert_eq!(driver.run(&op).await, Outcome::Done(None));
        let seen = loop {
            match driver.run(&READ).await {
                Outcome::Done(Some(seen)) if seen.tuning.is_empty() => break seen,
                Outcome::Done(Some(_)) => tokio::time::sleep(Duration::from_millis(1)).await,
                other => panic!("{other:?}"),
            }
        };
        let took = started.elapsed();
        let expected: BTreeMap<_, _> = moves(512).iter().map(|m| (m.slot, m.to)).collect();
        assert_eq!(seen.positions, expected);
        println!("512 circuits in one Set, at rest after 5 ms, read back over TCP: {took:?}");
        assert!(took < Duration::from_secs(1), "{took:?}");
    });
}

#[test]
fn unsupported_switch_is_named_and_not_moved() {
    for (more, expected) in [
        (", model_version: 0.9.0", "is version `0.9.0`, but this driver implements 0.8.0"),
        (", ports: any", "expected exactly one port group that is INPUT-ONLY"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (_switch, at) = Modules::of_list(&list(8, more), folder.path());
        let why = runtime().block_on(driver(&at[0]).connect()).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let other = "switches:\n  - {name: ocs0, ingress: 8, egress: 8, scpi: '127.0.0.1:0'}\n";
    let (_switch, at) = Modules::of_list(other, folder.path());
    assert!(runtime().block_on(driver(&at[0]).connect()).is_err(), "SCPI is not gNMI");
}

/// Either the state is read back correctly, or the operation fails.
#[test]
fn read_back_detects_false_success() {
    for (fault, stands) in
        [("lie", None), ("misdirect", Some(Position(11))), ("clear", Some(Position(10)))]
    {
        let folder = tempfile::tempdir().unwrap();
        let (switch, at) = Modules::of_list(&list(8, ""), folder.path());
        runtime().block_on(async {
            let mut driver = driver(&at[0]);
            driver.connect().await.unwrap();
            assert!(matches!(driver.run(&READ).await, Outcome::Done(_)));
            switch.fault(&format!("ocs0 {fault}"));
            let to = Position(10);
            let moves = vec![Move { slot: Slot(1), from: Position::DARK, to }];
            assert_eq!(driver.run(&Op::Switch { txn: Txn(1), moves }).await, Outcome::Done(None));
            tokio::time::sleep(Duration::from_millis(30)).await;
            let Outcome::Done(Some(seen)) = driver.run(&READ).await else { panic!() };
            assert_eq!(seen.positions.get(&Slot(1)).copied(), stands, "{fault}");
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let (switch, at) = Modules::of_list(&list(8, ""), folder.path());
    runtime().block_on(async {
        let mut driver = driver(&at[0]);
        driver.connect().await.unwrap();
        assert!(matches!(driver.run(&READ).await, Outcome::Done(_)));
        switch.fault("ocs0 stuck");
        let moves = vec![Move { slot: Slot(1), from: Position::DARK, to: Position(10) }];
        let said = driver.run(&Op::Switch { txn: Txn(1), moves }).await;
        let expected = "lightloom-in-1-out-2 is FAILED: the mirror of `in-1` is stuck";
        assert_eq!(said, Outcome::Failed(expected.into()));
    });
}

/// Polls are a minute apart, so the subscription must report it.
#[test]
fn subscription_reports_changes_of_another_controller_immediately() {
    let folder = tempfile::tempdir().unwrap();
    let (_switch, at) = Modules::of_list(&list(8, ""), folder.path());
    runtime().block_on(async {
        let file = format!(
            "devices:\n- {{name: ocs0, driver: {{gnmi: {{tcp: \"{}\", plaintext: true}}}}}}\n",
            at[0]
        );
        let rig = Rig::of_devices(&file, folder.path(), None).await;
        let mut other = driver(&at[0]);
        other.connect().await.unwrap();
        assert!(matches!(other.run(&READ).await, Outcome::Done(_)));
        let moves = vec![Move { slot: Slot(3), from: Position::DARK, to: Position(9) }];
        assert_eq!(other.run(&Op::Switch { txn: Txn(1), moves }).await, Outcome::Done(None));
        rig.find("the other's circuit", |runtime| {
            let seen = &runtime.control.sightings().devices()[&DeviceName::from("ocs0")];
            let read = seen.observed()?;
            read.positions.contains_key(&Slot(3)).then_some(())
        })
        .await;
    });
}

#[test]
fn connection_requires_tls_or_explicit_plaintext() {
    let file = |text: &str| {
        let file = format!(
            "state_dir: x\ndevices:\n- {{name: ocs0, driver: {{gnmi: {{tcp: 'h:1'{text}}}}}}}\n"
        );
        let (config, mistakes) = lightloom_daemon::config::load("daemon.yaml", file.as_bytes());
        let config = config.unwrap_or_else(|| panic!("{mistakes:?}"));
        let (_, (driver, _)) = config.drivers.iter().next().unwrap();
        driver.protocol().check().map_err(|(_, error)| error.to_string())
    };
    assert!(file("").unwrap_err().contains("anyone on the network could switch circuits"));
    assert!(file(", plaintext: true").is_ok());
    assert!(file(", tls: {ca: /nowhere.pem}").unwrap_err().contains("cannot read /nowhere.pem"));
    assert!(file(", plaintext: true, tls: {ca: x}").unwrap_err().contains("either"));
}
