// SPDX-License-Identifier: Apache-2.0
//! The same over three daemons and a real etcd: whoever leads is asked to leave, dies, or sleeps for longer than its lease
//! and wakes. One order of the requests explains every answer of all of them. Skipped by name where etcd is not installed.

use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::checker::Line;
use super::{CLIENTS, Client, Explained, add_ends};
use crate::over_sockets::etcd::etcd;
use crate::over_sockets::{Switch, talk, wait_for};

/// What happens to the daemon that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Leaves,
    Dies,
    Sleeps,
}

use Change::{Dies, Leaves, Sleeps};

struct Daemons {
    folder: tempfile::TempDir,
    etcd: Child,
    children: Vec<Child>,
}

impl Drop for Daemons {
    fn drop(&mut self) {
        if thread::panicking() {
            for number in 0..3 {
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
    fn start(port: u16) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (etcd, url) = etcd(folder.path())?;
        for number in 0..3 {
            let file = format!(
                "state_dir: {0}/{number}\npolicies: {{poll_every: 200ms}}\netcd: {{endpoints: [\"{url}\"], prefix: /t, \
                 name: d{number}, lease: 2s}}\ndevices:\n- name: ocs0\n  driver: {{scpi: {{tcp: \"127.0.0.1:{port}\"}}}}\n  limits: \
                 {{late_within: 100ms}}\n",
                folder.path().display()
            );
            std::fs::write(folder.path().join(format!("{number}.yaml")), file).unwrap();
        }
        let mut daemons = Self { folder, etcd, children: Vec::new() };
        daemons.children = (0..3).map(|number| daemons.spawn(number)).collect();
        wait_for("a daemon that leads", || daemons.leads());
        Some(daemons)
    }

    fn spawn(&self, number: usize) -> Child {
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

    fn sockets(&self) -> Vec<std::path::PathBuf> {
        let socket = |number: usize| self.folder.path().join(format!("{number}/lightloomd.sock"));
        (0..3).map(socket).collect()
    }

    fn leads(&self) -> Option<usize> {
        self.sockets().iter().position(|socket| {
            let request = "GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            let stream = std::os::unix::net::UnixStream::connect(socket).ok();
            let answer = stream.and_then(|stream| talk(stream, request, &[]));
            answer.is_some_and(|(code, _)| code == 200)
        })
    }

    /// That happens to the daemon that leads, and another does.
    fn change(&mut self, change: Change) {
        let leads = wait_for("a daemon that leads", || self.leads());
        let signal = match change {
            Leaves => Signal::TERM,
            Dies => Signal::KILL,
            Sleeps => Signal::STOP,
        };
        let pid = Pid::from_child(&self.children[leads]);
        kill_process(pid, signal).unwrap();
        if change == Sleeps {
            // Longer than its lease.
            thread::sleep(Duration::from_millis(3_200));
            kill_process(pid, Signal::CONT).unwrap();
        }
        self.children[leads].wait().unwrap();
        self.children[leads] = self.spawn(leads);
    }
}

/// What clients were answered while the leader changed so.
fn history(seed: u32, turns: u32, changes: &[Change]) -> Option<Vec<Line>> {
    let (switch, port) = Switch::serve();
    switch.switch_millis.store(3, Ordering::Relaxed);
    let mut daemons = Daemons::start(port)?;
    let (history, ids, began) = (Mutex::new(Vec::new()), AtomicU32::new(1), Instant::now());
    let sockets = daemons.sockets();
    let client = |number| Client::new(sockets.clone(), began, &history, &ids, seed * 31 + number);
    let left = AtomicU32::new(1);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (mut client, left) = (client(number), &left);
            // Some ask another daemon while the one that sleeps has the requests of the others.
            client.patience = (number % 2 == 1).then_some(Duration::from_millis(1_000));
            scope.spawn(move || {
                let mut turn = 0;
                // Until the last change of the leader is over, and some more.
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
fn one_order_explains_every_answer_over_two_changes_of_the_leader() {
    is_linearizable(1, 5, &[Leaves, Dies]);
}

#[test]
#[ignore = "takes minutes"]
fn nightly_one_order_explains_every_answer_over_changes_of_the_leader() {
    is_linearizable(20, 40, &[Dies, Leaves, Sleeps, Dies, Sleeps]);
}
