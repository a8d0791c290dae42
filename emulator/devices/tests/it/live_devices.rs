// SPDX-License-Identifier: Apache-2.0

#![expect(clippy::disallowed_methods, reason = "a live test connects to the devices")]
#![cfg(target_os = "linux")]
use crate::live;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use lightloom_devices::serve::Options;
use lightloom_firmware_api::message::{Arm, Reply, Request, TransactionId};
use lightloom_firmware_api::path::{DataPathPolicy, GroupOutcome, Groups, Path};
use live::{Client, Framed, Served, now};

const SECOND: Duration = Duration::from_secs(1);

fn arm(transaction: u32, path: u8) -> Request<'static> {
    let mut paths = [Path::DARK; 8];
    paths[0] = Path::external(path).unwrap();
    Request::Arm(Arm {
        transaction: TransactionId(transaction),
        policy: DataPathPolicy::Hot,
        paths,
    })
}

fn fire(transaction: u32) -> Request<'static> {
    Request::Fire { transaction: TransactionId(transaction), groups: Groups(1) }
}

fn switch(module: &mut Framed, transaction: u32, path: u8) -> Option<GroupOutcome> {
    std::thread::sleep(Duration::from_millis(2));
    module.send(&arm(transaction, path));
    module.reply(SECOND, |reply| matches!(reply, Reply::Armed(_))).filter(|&armed| armed)?;
    module.send(&fire(transaction));
    module.reply(SECOND, |reply| match reply {
        Reply::Fired(report) => report.outcomes[0],
        other => panic!("not a fire report: {other:?}"),
    })
}

#[test]
fn module_on_a_pty_switches_and_accepts_run_time_faults() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let options = Options {
        links: Some(folder.path().to_owned()),
        control: Some(control.clone()),
        eeproms: None,
    };
    let served = Served::start("transceivers:\n  - names: n0/b{0..1}\n", &options);
    let path = served.at("n0/b1", "frames");
    assert!(path.ends_with("/n0-b1"), "a link with a lasting name: {path}");

    let mut module = Framed::open(path);
    assert_eq!(switch(&mut module, 1, 2), Some(GroupOutcome::Success));
    let mut faults = BufReader::new(UnixStream::connect(&control).unwrap());
    let mut tell = |line: &str| {
        faults.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        faults.read_line(&mut answer).unwrap();
        answer
    };
    assert_eq!(tell("n0/b1 stuck"), "ok\n");
    assert_eq!(switch(&mut module, 2, 1), Some(GroupOutcome::HardwareFault));
    assert_eq!(tell("n0/b1 half-open"), "ok\n");
    module.send(&Request::Status);
    assert_eq!(module.reply(Duration::from_millis(200), |_| ()), None);
    assert_eq!(tell("n0/b1 clear"), "ok\n");
    assert_eq!(switch(&mut module, 3, 1), Some(GroupOutcome::Success));
    assert!(tell("n9 stuck").starts_with("error: device `n9` does not exist"));
    assert!(tell("n0/b1 explode").contains("`explode` is not a fault"));
}

#[test]
fn line_survives_client_reconnects() {
    let served = Served::start("transceivers:\n  - names: a\n", &Options::default());
    for transaction in 1..=3 {
        let mut module = Framed::open(served.at("a", "frames"));
        let path = 1 + (transaction % 2) as u8;
        assert_eq!(switch(&mut module, transaction, path), Some(GroupOutcome::Success));
    }
}

#[test]
fn module_on_a_pty_survives_garbage() {
    let served = Served::start("transceivers:\n  - names: a\n", &Options::default());
    let mut module = Framed::open(served.at("a", "frames"));
    let garbage: Vec<u8> =
        (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    module.client.write(&garbage);
    assert_eq!(switch(&mut module, 1, 1), Some(GroupOutcome::Success));
}

#[test]
fn switch_serves_scpi_and_tl1_over_tcp_and_pty() {
    let yaml = "switches:\n  - {name: ocs0, ingress: 24, egress: 24, scpi: '127.0.0.1:0', \
                tl1: '127.0.0.1:0', scpi_serial: true}\n";
    let served = Served::start(yaml, &Options::default());
    let scpi = Client::tcp(served.at("ocs0", "scpi"));
    let serial = Client::pty(served.at("ocs0", "scpi-serial"));
    let tl1 = Client::tcp(served.at("ocs0", "tl1"));

    let began = now();
    assert_eq!(scpi.say(":oxc:swit:conn:add (@1,2),(@25,26);*OPC?\n", "\n"), "1\n");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(18), "the mirrors take about 20 ms: {took:?}");
    assert_eq!(serial.say(":oxc:swit:conn:stat?\r", "\r"), "(@1,2),(@25,26)\r");
    assert!(tl1.say("ACT-USER::root:1::root;", ";").contains("M  1 COMPLD"));
    assert!(tl1.say("RTRV-PATCH:::2:;", ";").contains("   \"1,25\"\r\n   \"2,26\"\r\n;"));

    let second = Client::tcp(served.at("ocs0", "scpi"));
    assert!(second.is_closed(), "one client at a time");
    drop(scpi);
    let again = (0..50).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let next = Client::tcp(served.at("ocs0", "scpi"));
        let answer = next.say("*idn?\n", "\n");
        (!answer.is_empty()).then_some(answer)
    });
    assert!(again.unwrap().starts_with("Polatis,"));
}

#[test]
fn names_an_address_already_in_use() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let yaml = format!("switches:\n  - {{name: ocs7, ingress: 4, egress: 4, scpi: '{address}'}}\n");
    let (list, _) = lightloom_devices::load("devices.yaml", yaml.as_bytes());
    let error = lightloom_devices::serve::Server::start(list.unwrap(), &Options::default());
    let message = error.unwrap_err().to_string();
    assert!(message.contains("ocs7") && message.contains(&address.to_string()), "{message}");
}
