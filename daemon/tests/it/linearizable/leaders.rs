// SPDX-License-Identifier: Apache-2.0
//! The linearizability test with three daemons and a real etcd. The leader resigns, crashes, or is
//! suspended for longer than its lease. A single order of requests must explain the responses of
//! all three. The test is skipped with a note if etcd is not installed.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::checker::Line;
use super::{CLIENTS, Client, Explained, add_ends};
use crate::over_sockets::etcd::{self, etcd};
use crate::over_sockets::relay::{Passes, Relay};
use crate::over_sockets::{Switch, talk, wait_for};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Leaves,
    Dies,
    Sleeps,
    Way(Passes),
    EtcdSleeps,
    EtcdDies,
    EtcdIsFull,
}

use Change::{Dies, EtcdDies, EtcdIsFull, EtcdSleeps, Leaves, Sleeps, Way};

pub(crate) struct Daemons {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) url: String,
    pub(crate) etcd: Child,
    pub(crate) children: Vec<Child>,
    ways: Vec<Relay>,
}

impl Drop for Daemons {
    fn drop(&mut self) {
        if thread::panicking() {
            for number in 0..self.children.len() {
                let log = std::fs::read_to_string(self.folder.path().join(format!("{number}.log")));
                let log = log.unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(12).collect();
                println!("daemon {number}: {last:#?}, {:?}", self.children[number].try_wait());
            }
        }
        for child in self.children.iter_mut().chain([&mut self.etcd]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Daemons {
    pub(crate) fn start(port: u16, count: usize) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (etcd, url) = etcd(folder.path())?;
        let way = |_| Relay::to(url.trim_start_matches("http://"));
        let ways: Vec<Relay> = (0..count).map(way).collect();
        for (number, way) in ways.iter().enumerate() {
            let file = format!(
                "state_dir: {0}/{number}\npolicies: {{poll_every: 200ms}}\netcd: {{endpoints: [\"http://{1}\"], prefix: /t, \
                 name: d{number}, lease: 2s}}\ndevices:\n- name: ocs0\n  driver: {{scpi: {{tcp: \"127.0.0.1:{port}\"}}}}\n  limits: \
                 {{late_within: 100ms}}\n",
                folder.path().display(),
                way.at
            );
            std::fs::write(folder.path().join(format!("{number}.yaml")), file).unwrap();
        }
        let mut daemons = Self { folder, url, etcd, children: Vec::new(), ways };
        daemons.children = (0..count).map(|number| daemons.spawn(number)).collect();
        wait_for("a daemon that leads", || daemons.leads());
        Some(daemons)
    }

    pub(crate) fn spawn(&self, number: usize) -> Child {
        let log = self.folder.path().join(format!("{number}.log"));
        let log = std::fs::File::options().append(true).create(true).open(log).unwrap();
        Command::new(env!("CARGO_BIN_EXE_lightloomd"))
            .arg("--config")
            .arg(self.folder.path().join(format!("{number}.yaml")))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    pub(crate) fn sockets(&self) -> Vec<std::path::PathBuf> {
        let socket = |number: usize| self.folder.path().join(format!("{number}/lightloomd.sock"));
        (0..self.ways.len()).map(socket).collect()
    }

    pub(crate) fn leads(&self) -> Option<usize> {
        self.sockets().iter().position(|socket| {
            let request = "GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            let stream = std::os::unix::net::UnixStream::connect(socket).ok();
            let answer = stream.and_then(|stream| talk(stream, request, &[]));
            answer.is_some_and(|(code, _)| code == 200)
        })
    }

    fn restart(&mut self) {
        for number in 0..self.children.len() {
            if self.children[number].try_wait().unwrap().is_some() {
                self.children[number] = self.spawn(number);
            }
        }
    }

    fn fill(&self, is_full: bool) {
        let action = if is_full { "ACTIVATE" } else { "DEACTIVATE" };
        // The cluster has a single member, whose id is in the header of its responses.
        let ask = |path: &str, body: String| {
            let at = self.url.trim_start_matches("http://");
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let mut stream = std::net::TcpStream::connect(at).unwrap();
            stream.write_all((head + &body).as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        let status = ask("/v3/maintenance/status", "{}".into());
        let member = status.split("\"member_id\":\"").nth(1).unwrap().split('"').next().unwrap();
        let alarm =
            format!("{{\"action\":\"{action}\",\"memberID\":\"{member}\",\"alarm\":\"NOSPACE\"}}");
        let answer = ask("/v3/maintenance/alarm", alarm);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// Disturbs the leader for `lasts`, or until the disturbance ends.
    fn suffer(&mut self, change: Change, lasts: Duration) {
        let leads = wait_for("a daemon that leads", || self.leads());
        match change {
            Way(passes) => {
                self.ways[leads].set(passes);
                thread::sleep(lasts);
                self.ways[leads].set(Passes::AtOnce);
            }
            EtcdSleeps => {
                let pid = Pid::from_child(&self.etcd);
                kill_process(pid, Signal::STOP).unwrap();
                thread::sleep(lasts);
                kill_process(pid, Signal::CONT).unwrap();
            }
            EtcdDies => {
                self.etcd.kill().unwrap();
                self.etcd.wait().unwrap();
                thread::sleep(lasts / 2);
                self.etcd = etcd::again(self.folder.path(), &self.url);
            }
            EtcdIsFull => {
                self.fill(true);
                thread::sleep(lasts);
                self.fill(false);
            }
            Leaves | Dies | Sleeps => self.change(change),
        }
        // A daemon that lost its lease has exited.
        let restart = |daemons: &mut Self| {
            daemons.restart();
            daemons.leads()
        };
        wait_for("a daemon that leads again", || restart(self));
    }

    fn change(&mut self, change: Change) {
        let leads = wait_for("a daemon that leads", || self.leads());
        let signal = match change {
            Leaves => Signal::TERM,
            Dies => Signal::KILL,
            _ => Signal::STOP,
        };
        let pid = Pid::from_child(&self.children[leads]);
        kill_process(pid, signal).unwrap();
        if change == Sleeps {
            thread::sleep(Duration::from_millis(3_200));
            kill_process(pid, Signal::CONT).unwrap();
        }
        self.children[leads].wait().unwrap();
        self.children[leads] = self.spawn(leads);
    }
}

fn history(seed: u32, turns: u32, changes: &[Change]) -> Option<Vec<Line>> {
    let (switch, port) = Switch::serve();
    switch.switch_millis.store(3, Ordering::Relaxed);
    let mut daemons = Daemons::start(port, 3)?;
    let (history, ids, began) = (Mutex::new(Vec::new()), AtomicU32::new(1), Instant::now());
    let sockets = daemons.sockets();
    let client = |number| Client::new(sockets.clone(), began, &history, &ids, seed * 31 + number);
    let left = AtomicU32::new(1);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (mut client, left) = (client(number), &left);
            // Some clients soon time out and try another daemon; others wait for the suspended one.
            client.patience = (number % 2 == 1).then_some(Duration::from_millis(1_000));
            scope.spawn(move || {
                let mut turn = 0;
                // The clients continue for a while after the last change of the leader.
                while turn < turns || left.load(Ordering::Relaxed) > 0 {
                    client.turn();
                    turn += 1;
                    thread::sleep(Duration::from_millis(10));
                }
            });
        }
        for (number, change) in changes.iter().enumerate() {
            let number = u32::try_from(number).unwrap();
            thread::sleep(Duration::from_millis(u64::from(400 + (seed * 7 + number * 13) % 100)));
            daemons.change(*change);
        }
        thread::sleep(Duration::from_millis(400));
        left.store(0, Ordering::Relaxed);
    });
    let reader = client(CLIENTS);
    wait_for("the end", || reader.read());
    let mut lines = history.lock().unwrap().clone();
    add_ends(&mut lines, &reader);
    Some(lines)
}

fn is_linearizable(runs: u32, turns: u32, changes: &[Change]) {
    let mut all = Explained::default();
    for seed in 0..runs {
        let Some(history) = history(seed, turns, changes) else { return };
        all.add(seed, &history);
    }
    let Explained { lines, steps, accepted, broken } = all;
    println!(
        "{runs} histories of {CLIENTS} clients of three daemons, {changes:?} in each: {lines} lines, {accepted} changes, {broken} \
         requests without an answer; one order explains each ({steps} steps of the search)"
    );
    assert!(accepted >= runs as usize, "hardly anything happened");
}

#[test]
fn client_histories_are_linearizable_across_two_failovers() {
    is_linearizable(1, 5, &[Leaves, Dies]);
}

#[test]
#[ignore = "takes minutes"]
fn nightly_client_histories_are_linearizable_across_failovers() {
    is_linearizable(20, 40, &[Dies, Leaves, Sleeps, Dies, Sleeps]);
}

/// Runs random rounds of leader failures while clients change, confirm, undo and read. Acknowledged
/// changes must persist, refused changes must have no effect, and the status must match the light.
fn nothing_is_taken_back(rounds: u32, of: u32) {
    const KINDS: [Change; 9] = [
        Way(Passes::Late),
        EtcdSleeps,
        Dies,
        Way(Passes::Never),
        EtcdDies,
        Sleeps,
        EtcdIsFull,
        Way(Passes::Slowly),
        Leaves,
    ];
    let (mut all, mut counts) = (Explained::default(), [0; KINDS.len()]);
    let mut round = 0;
    while round < rounds {
        let (switch, port) = Switch::serve();
        switch.switch_millis.store(3, Ordering::Relaxed);
        let Some(mut daemons) = Daemons::start(port, 3) else { return };
        let (history, ids, began) = (Mutex::new(Vec::new()), AtomicU32::new(1), Instant::now());
        let sockets = daemons.sockets();
        let seed = round;
        let client =
            |number| Client::new(sockets.clone(), began, &history, &ids, seed * 31 + number);
        let left = AtomicU32::new(1);
        thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (mut client, left) = (client(number), &left);
                client.patience = Some(Duration::from_millis(6_000));
                scope.spawn(move || {
                    while left.load(Ordering::Relaxed) > 0 {
                        client.turn();
                        thread::sleep(Duration::from_millis(40));
                    }
                });
            }
            for _ in 0..of.min(rounds - round) {
                let kind = usize::try_from(round * 7 % 9).unwrap();
                counts[kind] += 1;
                thread::sleep(Duration::from_millis(u64::from(300 + round * 37 % 200)));
                daemons.suffer(
                    KINDS[kind],
                    Duration::from_millis(u64::from(700 + round * 389 % 2_600)),
                );
                round += 1;
            }
            thread::sleep(Duration::from_millis(400));
            left.store(0, Ordering::Relaxed);
        });
        let reader = client(CLIENTS);
        let status = wait_for("the end", || {
            reader.read()?;
            let status = reader.get("/v1/status")?;
            let stands =
                status["transaction"].is_null() && status["unseen"] == serde_json::json!([]);
            (stands && status["devices"][0]["state"] == "as-wanted").then_some(status)
        });
        let slots = status["devices"][0]["slots"].as_object().unwrap();
        let said = slots.iter().map(|(slot, to)| (slot.parse().unwrap(), to.as_u64().unwrap()));
        let lit = switch.circuits.lock().unwrap().clone();
        let lit: std::collections::BTreeMap<u32, u64> =
            lit.into_iter().map(|(from, to)| (from, u64::from(to))).collect();
        assert_eq!(said.collect::<std::collections::BTreeMap<u32, u64>>(), lit, "{status}");
        let mut lines = history.lock().unwrap().clone();
        add_ends(&mut lines, &reader);
        all.add(seed, &lines);
    }
    let Explained { lines, steps, accepted, broken } = all;
    println!(
        "{rounds} rounds, {counts:?} of {KINDS:?}: {lines} lines of {CLIENTS} clients, {accepted} changes, {broken} requests without \
         an answer; nothing that was acknowledged was taken back, nothing that was refused was kept ({steps} steps of the search)"
    );
    assert!(accepted >= rounds as usize, "hardly anything happened");
}

#[test]
fn acknowledged_changes_survive_two_rounds_of_faults() {
    nothing_is_taken_back(2, 2);
}

#[test]
#[ignore = "takes half an hour"]
fn nightly_acknowledged_changes_survive_over_rounds_of_faults() {
    let rounds = std::env::var("LIGHTLOOM_ROUNDS").map_or(200, |rounds| rounds.parse().unwrap());
    nothing_is_taken_back(rounds, 5);
}
