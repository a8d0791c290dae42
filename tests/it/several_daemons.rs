// SPDX-License-Identifier: Apache-2.0
//! Three daemons, a real etcd and an emulated optical switch: whoever leads dies, is asked to leave, is paused, or loses etcd.
//! A raw SCPI session, which is none of them, says where the light is; skipped by name where etcd is not installed.

#[path = "../../daemon/tests/it/over_sockets/etcd.rs"]
mod etcd;

use crate::daemon_rig::Modules;
use crate::programs;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use lightloom_testkit::cases;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Asks how a daemon is.
const STATUS: &str = "GET /v1/status HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n";
/// How long anything may take here.
const PATIENCE: Duration = Duration::from_secs(30);

struct Hall {
    folder: tempfile::TempDir,
    etcd: Child,
    switch: Modules,
    scpi: String,
    daemons: BTreeMap<&'static str, Child>,
}

impl Drop for Hall {
    fn drop(&mut self) {
        for child in self.daemons.values_mut().chain([&mut self.etcd]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Hall {
    fn open() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (etcd, url) = etcd::etcd(folder.path())?;
        let list = "switches:\n  - {name: ocs0, ingress: 8, egress: 8, tl1: '127.0.0.1:0', scpi: '127.0.0.1:0', switching: \
                    20ms}\n";
        let (switch, at) = Modules::of_list(list, &folder.path().join("links"));
        let password = folder.path().join("password");
        std::fs::write(&password, "root\n").unwrap();
        std::fs::set_permissions(&password, std::fs::Permissions::from_mode(0o600)).unwrap();
        let (tl1, scpi) = by_protocol(&at);
        for name in ["a", "b", "c"] {
            let file = format!(
                "state_dir: {0}/{name}\npolicies: {{poll_every: 100ms}}\netcd: {{endpoints: [\"{url}\"], prefix: /lightloom/t, \
                 name: {name}, lease: 2s}}\ndevices:\n- name: ocs0\n  driver:\n    tl1: {{tcp: \"{tl1}\", user: root, password_file: \
                 {0}/password, allow_default_password: true}}\n",
                folder.path().display()
            );
            std::fs::write(folder.path().join(format!("{name}.yaml")), file).unwrap();
        }
        let mut hall = Self { folder, etcd, switch, scpi, daemons: BTreeMap::new() };
        ["a", "b", "c"].into_iter().for_each(|name| hall.start(name));
        hall.leader(None);
        Some(hall)
    }

    fn start(&mut self, name: &'static str) {
        let log = std::fs::File::options()
            .append(true)
            .create(true)
            .open(self.folder.path().join(format!("{name}.log")))
            .unwrap();
        let child = Command::new(programs::folder().join("lightloomd"))
            .args([
                "--config",
                &self.folder.path().join(format!("{name}.yaml")).display().to_string(),
            ])
            .stderr(log)
            .spawn()
            .unwrap();
        self.daemons.insert(name, child);
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name).join("lightloomd.sock")
    }

    /// The status code and body of one request to one daemon, if it answers.
    fn ask(&self, name: &str, request: &str) -> Option<(u16, Value)> {
        let mut stream = UnixStream::connect(self.socket(name)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).ok()?;
        answer(&mut stream)
    }

    fn status(&self, name: &str) -> Option<Value> {
        let (code, body) = self.ask(name, STATUS)?;
        (code == 200).then_some(body)
    }

    /// Which daemon leads, once one other than `not` does, and how long that took.
    fn leader(&self, not: Option<&str>) -> (&'static str, Duration) {
        let began = Instant::now();
        loop {
            let mut others = self.daemons.keys().filter(|name| Some(**name) != not);
            if let Some(name) = others.find(|name| self.status(name).is_some()) {
                return (name, began.elapsed());
            }
            assert!(began.elapsed() < PATIENCE, "no daemon leads: {}", self.logs());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn logs(&self) -> String {
        let log = |name: &&str| {
            std::fs::read_to_string(self.folder.path().join(format!("{name}.log")))
                .unwrap_or_default()
        };
        self.daemons.keys().map(log).collect()
    }

    /// `lightloom ctl` at all sockets: it finds who leads.
    fn ctl(&self, arguments: &[&str]) -> std::process::Output {
        let sockets: Vec<String> =
            self.daemons.keys().map(|name| self.socket(name).display().to_string()).collect();
        Command::new(programs::lightloom())
            .args(["ctl", "--socket", &sockets.join(",")])
            .args(arguments)
            .output()
            .unwrap()
    }

    /// Joins port 1 with this one; whether it was committed.
    fn apply(&self, egress: u32) -> bool {
        let file = self.folder.path().join(format!("to-{egress}.json"));
        std::fs::write(&file, format!("{{\"target\": {{\"ocs0\": {{\"1\": {egress}}}}}}}"))
            .unwrap();
        self.ctl(&["apply", &file.display().to_string(), "--cut-light"]).status.success()
    }

    fn signal(&self, name: &str, signal: Signal) {
        kill_process(Pid::from_child(&self.daemons[name]), signal).unwrap();
    }

    fn kill(&mut self, name: &str) {
        let child = self.daemons.get_mut(name).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Where the light of port 1 goes, by the switch's own word.
    fn light(&self) -> u32 {
        let mut stream = TcpStream::connect(&self.scpi).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b":oxc:swit:conn:port? 1\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.trim().trim_matches('"').parse().unwrap_or_else(|_| panic!("{line}"))
    }

    fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < PATIENCE, "not {what}: {}", self.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The addresses at which a switch speaks TL1 and SCPI.
fn by_protocol(at: &[String]) -> (String, String) {
    let speaks_scpi = |at: &&String| {
        let mut stream = TcpStream::connect(at.as_str()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        stream.write_all(b"*idn?\n").unwrap();
        let mut first = [0];
        matches!(stream.read(&mut first), Ok(1))
    };
    let scpi = at.iter().find(speaks_scpi).expect("it speaks SCPI").clone();
    (at.iter().find(|at| **at != scpi).expect("and TL1").clone(), scpi)
}

fn answer(stream: &mut UnixStream) -> Option<(u16, Value)> {
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let code = text.split(' ').nth(1)?.parse().ok()?;
    let body = text.split_once("\r\n\r\n")?.1;
    Some((code, serde_json::from_str(body).unwrap_or_default()))
}

#[test]
fn another_daemon_leads_after_a_death_and_after_a_request() {
    let Some(mut hall) = Hall::open() else { return };
    assert!(hall.apply(9), "{}", hall.logs());
    let (first, _) = hall.leader(None);
    let (code, body) = ["a", "b", "c"]
        .into_iter()
        .find(|name| *name != first)
        .and_then(|other| hall.ask(other, STATUS))
        .unwrap();
    assert_eq!(code, 421);
    assert!(body.to_string().contains(&format!("standing by: {first} leads; ask there")), "{body}");

    hall.signal(first, Signal::TERM);
    let (second, handed_over) = hall.leader(Some(first));
    assert_eq!(hall.status(second).unwrap()["version"], 1);
    hall.daemons.get_mut(first).unwrap().wait().unwrap();
    hall.start(first);

    hall.kill(second);
    let (third, taken_over) = hall.leader(Some(second));
    println!("handed over in {handed_over:?}, taken over in {taken_over:?}");
    assert_eq!(hall.status(third).unwrap()["version"], 1);
    assert!(hall.apply(10), "{}", hall.logs());
    assert_eq!(hall.light(), 10);
}

/// A leader that was stopped for longer than its lease wakes with a request to move light before it: it moves none.
#[test]
fn a_leader_that_slept_sends_nothing_when_it_wakes() {
    let Some(hall) = Hall::open() else { return };
    assert!(hall.apply(9), "{}", hall.logs());
    let (old, _) = hall.leader(None);
    hall.signal(old, Signal::STOP);
    let body = "{\"request_id\":\"late\",\"target\":{\"ocs0\":{\"1\":12}},\"cut_light\":true}";
    let mut late = UnixStream::connect(hall.socket(old)).unwrap();
    late.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        late,
        "POST /v1/apply HTTP/1.1\r\nHost: l\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut others = hall.daemons.keys().filter(|name| **name != old);
    hall.until("taken over", |hall| others.clone().any(|name| hall.status(name).is_some()));
    let new = others.find(|name| hall.status(name).is_some()).unwrap();
    hall.signal(old, Signal::CONT);
    let answered = answer(&mut late);
    assert!(answered.as_ref().is_none_or(|(code, _)| *code >= 400), "{answered:?}");
    hall.until("ended", |hall| hall.status(old).is_none());
    assert_eq!(hall.light(), 9);
    assert_eq!(hall.status(new).unwrap()["version"], 1);
}

#[test]
fn without_etcd_light_stays_and_is_read_and_nothing_moves() {
    let Some(hall) = Hall::open() else { return };
    assert!(hall.apply(9), "{}", hall.logs());
    let (leads, _) = hall.leader(None);
    kill_process(Pid::from_child(&hall.etcd), Signal::STOP).unwrap();
    let failure = |hall: &Hall| {
        let status = hall.status(leads)?;
        status["journal_failure"].as_str().map(str::to_owned)
    };
    hall.until("said", |hall| failure(hall).is_some());
    let why = failure(&hall).unwrap();
    assert!(why.contains("etcd does not renew the lease of this daemon"), "{why}");
    assert!(!hall.apply(10));
    assert_eq!(hall.light(), 9);
    kill_process(Pid::from_child(&hall.etcd), Signal::CONT).unwrap();
    hall.until("led again", |hall| hall.status(leads).is_none());
    hall.leader(Some(leads));
    assert!(hall.apply(10), "{}", hall.logs());
    assert_eq!(hall.light(), 10);
}

/// etcd that fell silent while a change was written left the leader unable to write for good, and `committed` was
/// answered for what the next leader undid.
#[test]
fn what_etcd_did_not_take_is_not_acknowledged_and_the_leader_goes_on() {
    let Some(hall) = Hall::open() else { return };
    assert!(hall.apply(9), "{}", hall.logs());
    for (egress, after) in [(10, 10), (11, 30), (12, 50)] {
        let before = hall.status(hall.leader(None).0).unwrap()["version"].as_u64().unwrap();
        let committed = std::thread::scope(|scope| {
            let applying = scope.spawn(|| hall.apply(egress));
            std::thread::sleep(Duration::from_millis(after));
            kill_process(Pid::from_child(&hall.etcd), Signal::STOP).unwrap();
            std::thread::sleep(Duration::from_millis(1_300));
            kill_process(Pid::from_child(&hall.etcd), Signal::CONT).unwrap();
            applying.join().unwrap()
        });
        let settled = |hall: &Hall| {
            let status = hall.daemons.keys().find_map(|name| hall.status(name))?;
            let is_over = status["transaction"].is_null() && status["journal_failure"].is_null();
            is_over.then(|| status["version"].as_u64().unwrap())
        };
        hall.until("settled", |hall| settled(hall).is_some());
        let version = settled(&hall).unwrap();
        assert!(!committed || version > before, "{version} after {before}: {}", hall.logs());
        hall.until("taken", |hall| hall.apply(egress));
        assert_eq!(hall.light(), egress);
    }
}

/// A leader whose key was deleted lived on beside the next one, and `ctl` took its refusals.
#[test]
fn a_leader_without_its_key_ends_and_a_lost_record_is_written_anew() {
    let Some(mut hall) = Hall::open() else { return };
    assert!(hall.apply(9), "{}", hall.logs());
    let url = std::fs::read_to_string(hall.folder.path().join("a.yaml")).unwrap();
    let url = url.split('"').nth(1).unwrap().to_owned();
    let etcdctl = |words: &[&str]| {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &url]).args(words);
        match command.output() {
            Ok(output) => output.status.success(),
            Err(_) => false,
        }
    };
    if !etcdctl(&["endpoint", "health"]) {
        println!("skipped: no etcdctl");
        return;
    }
    // As a store that came back with older data.
    let (leads, _) = hall.leader(None);
    assert!(etcdctl(&["del", "/lightloom/t/journal/0000000000000000/0000000000000003"]));
    assert!(!hall.apply(10) || hall.status(leads).unwrap()["version"] == 2, "{}", hall.logs());
    hall.until("written anew", |hall| hall.apply(11));
    hall.kill(leads);
    let (next, _) = hall.leader(Some(leads));
    assert_eq!(hall.light(), 11);
    assert!(hall.status(next).unwrap()["version"].as_u64().unwrap() >= 2, "{}", hall.logs());

    assert!(etcdctl(&["del", "/lightloom/t/leader"]));
    let status = hall.daemons.get_mut(next).unwrap().wait().unwrap();
    assert_eq!(status.code(), Some(1), "{}", hall.logs());
    hall.leader(Some(next));
    assert!(hall.apply(12), "{}", hall.logs());

    let (last, _) = hall.leader(None);
    assert!(etcdctl(&["del", "/lightloom/t/head"]));
    hall.kill(last);
    hall.start(last);
    hall.until("refused", |hall| hall.logs().contains("is missing in etcd beside a journal"));
}

#[test]
fn daemons_of_another_fabric_are_refused_by_name() {
    let Some(mut hall) = Hall::open() else { return };
    let file = hall.folder.path().join("c.yaml");
    let ring = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/ring-32.yaml");
    let text = std::fs::read_to_string(&file)
        .unwrap()
        .replace("policies:", &format!("fabric: {ring}\npolicies:"));
    std::fs::write(file, text.split("devices:").next().unwrap()).unwrap();
    hall.kill("c");
    hall.start("c");
    let status = hall.daemons.get_mut("c").unwrap().wait().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(
        hall.logs()
            .contains("`/lightloom/t` in etcd is of fabric ``, and this daemon's is `ring-32`"),
        "{}",
        hall.logs()
    );
}

/// The leader dies at any instant of a change: what was acknowledged is there, light is where the one that leads says, and
/// everything can be changed again.
#[test]
#[ignore = "a lease of 2 s for each of its deaths"]
fn a_leader_that_dies_at_any_step_loses_nothing_that_was_acknowledged() {
    let Some(mut hall) = Hall::open() else { return };
    let (mut acknowledged, mut light, mut slowest) = (0, 0, Duration::ZERO);
    let deaths: u32 =
        std::env::var("LIGHTLOOM_KILLS").map_or(cases(10, 50), |kills| kills.parse().unwrap());
    for death in 0..deaths {
        let egress = 9 + death % 8;
        let (leads, _) = hall.leader(None);
        // Spread evenly over the change, which takes some 60 ms.
        let dies_after = Duration::from_micros(u64::from(death) * 55_619 % 90_000);
        let committed = std::thread::scope(|scope| {
            let applying = scope.spawn(|| hall.apply(egress));
            std::thread::sleep(dies_after);
            hall.signal(leads, Signal::KILL);
            applying.join().unwrap()
        });
        hall.daemons.get_mut(leads).unwrap().wait().unwrap();
        let (next, took) = hall.leader(Some(leads));
        slowest = slowest.max(took);
        hall.until("settled", |hall| {
            let status = hall.status(next).unwrap_or_default();
            status["transaction"].is_null()
                && status["attention"].as_object().is_some_and(serde_json::Map::is_empty)
        });
        let version = hall.status(next).unwrap()["version"].as_u64().unwrap();
        assert!(version >= acknowledged, "{version} after {acknowledged}: {}", hall.logs());
        if committed {
            assert!(version > acknowledged, "{}", hall.logs());
            light = egress;
        }
        acknowledged = version;
        let now = hall.light();
        assert!(now == light || now == egress, "{now}, {light} before and {egress} asked for");
        light = now;
        hall.start(leads);
    }
    println!(
        "{deaths} deaths, taken over in {slowest:?} at most, {acknowledged} changes acknowledged"
    );
    let _ = &hall.switch;
}
