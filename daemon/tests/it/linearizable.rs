// SPDX-License-Identifier: Apache-2.0
//! Concurrent clients apply, confirm, undo, repeat and read while the daemon is killed with `kill
//! -9`. A single order of the requests must explain all responses of the API (linearizability).

mod checker;
pub(crate) mod leaders;

use crate::over_sockets;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use checker::{Did, Got, Line, Model, check};
use over_sockets::{Daemon, Switch, talk};
use serde_json::{Value, json};

const CLIENTS: u32 = 5;
const STEPS_MAX: u64 = 2_000_000;

struct Client<'a> {
    sockets: Vec<PathBuf>,
    at: Cell<usize>,
    /// How long the client waits for a response; `None` for no limit.
    patience: Option<Duration>,
    began: Instant,
    history: &'a Mutex<Vec<Line>>,
    ids: &'a AtomicU32,
    draw: u32,
    /// Number of requests for a change that were not turned away before they were decided.
    decided: Cell<u32>,
}

impl<'a> Client<'a> {
    fn new(
        sockets: Vec<PathBuf>,
        began: Instant,
        history: &'a Mutex<Vec<Line>>,
        ids: &'a AtomicU32,
        seed: u32,
    ) -> Self {
        let (at, decided) = (Cell::new(0), Cell::new(0));
        let draw = (seed + 1).wrapping_mul(2_654_435_769);
        Self { sockets, at, patience: None, began, history, ids, draw, decided }
    }

    fn below(&mut self, end: u32) -> u32 {
        self.draw ^= self.draw << 13;
        self.draw ^= self.draw >> 17;
        self.draw ^= self.draw << 5;
        self.draw % end
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap()
    }

    fn ask(&self, head: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        over_sockets::wait_for("a daemon that leads", || {
            let asked = UnixStream::connect(&self.sockets[self.at.get()]);
            let answer = asked.ok().map(|stream| {
                stream.set_read_timeout(self.patience).unwrap();
                talk(stream, head, body)
            });
            let leads = matches!(&answer, Some(Some((code, _))) if *code != 421);
            if !leads {
                self.at.set((self.at.get() + 1) % self.sockets.len());
            }
            // A standby does not execute requests.
            answer.filter(|answer| leads || answer.is_none())
        })
    }

    fn note(&self, sent: u64, answered: u64, did: Did) {
        self.history.lock().unwrap().push(Line { sent, answered, did });
    }

    fn get(&self, path: &str) -> Option<Value> {
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let (code, body) = self.ask(&head, &[])?;
        (code == 200).then(|| serde_json::from_slice(&body).ok())?
    }

    fn post(&self, path: &str, body: &Value, did: impl FnOnce(Got) -> Did) -> Got {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let sent = self.now();
        let answer = self.ask(&head, body.as_bytes());
        let answered = self.now();
        let got = match &answer {
            Some((202, body)) => {
                let answer: Value = serde_json::from_slice(body).unwrap();
                Got::Accepted(u32::try_from(answer["txn"].as_u64().unwrap()).unwrap())
            }
            Some((200, _)) => Got::Done,
            Some((409, _)) => Got::Refused,
            Some((503, body)) if is_not_known(body) => Got::Nothing,
            // The daemon is starting, has not read its switch yet, or is overloaded.
            Some((422 | 429 | 503, _)) => return Got::Refused,
            Some((code, body)) => panic!("{code}: {}", String::from_utf8_lossy(body)),
            None => Got::Nothing,
        };
        self.decided.set(self.decided.get() + 1);
        let answered = if got == Got::Nothing { u64::MAX } else { answered };
        self.note(sent, answered, did(got));
        got
    }

    fn read(&self) -> Option<(u64, Option<u32>)> {
        let sent = self.now();
        let status = self.get("/v1/status")?;
        // The status states that it may be outdated.
        if !status["journal_failure"].is_null() {
            return None;
        }
        let txn = |what: &str| status[what]["txn"].as_u64().map(|txn| u32::try_from(txn).unwrap());
        let (version, pending) = (status["version"].as_u64().unwrap(), txn("pending"));
        let did = Did::Read { version, open: txn("transaction"), pending };
        self.note(sent, self.now(), did);
        Some((version, pending))
    }

    fn change(&mut self, version: u64) {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let confirm = self.below(3) == 0;
        let expected = (self.below(2) == 0).then_some(version);
        let to: BTreeMap<u32, u32> = [(1, 321 + id % 320), (2, 321 + (id + 1) % 320)].into();
        let mut body = json!({"request_id": format!("r{id}"), "target": {"ocs0": to}});
        let more = body.as_object_mut().unwrap();
        more.extend(expected.map(|version| ("expected_version".into(), json!(version))));
        if confirm {
            more.insert("confirm_within_ms".into(), json!(600_000));
        }
        for _ in 0..=self.below(2) {
            let got = self.post("/v1/apply", &body, |got| Did::Apply {
                id,
                digest: id,
                expected,
                confirm,
                got,
            });
            if let Got::Accepted(txn) = got {
                self.wait(txn);
            }
        }
    }

    fn wait(&self, txn: u32) {
        if let Some(over) = self.get(&format!("/v1/transactions/{txn}?wait_ms=20000")) {
            self.note(0, self.now(), Did::End { txn, committed: committed(&over) });
        }
    }

    /// Takes this many turns, and more while kills are left. A slow machine turns more requests away
    /// while the daemon starts, so turns without a decision do not count.
    fn take_turns(&mut self, turns: u32, kills_left: &AtomicU32) {
        let mut taken = 0;
        while taken < turns || kills_left.load(Ordering::Relaxed) > 0 {
            let before = self.decided.get();
            self.turn();
            match self.decided.get() == before {
                true => thread::sleep(Duration::from_millis(5)),
                false => taken += 1,
            }
        }
    }

    fn turn(&mut self) {
        let Some((version, pending)) = self.read() else { return };
        let Some(txn) = pending else { return self.change(version) };
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let body = json!({"request_id": format!("r{id}"), "txn": txn});
        match self.below(4) {
            0 => self.change(version),
            1 => {
                let did = |got| Did::Rollback { id, txn, got };
                if let Got::Accepted(txn) = self.post("/v1/rollback", &body, did) {
                    self.wait(txn);
                }
            }
            _ => _ = self.post("/v1/confirm", &body, |got| Did::Confirm { id, txn, got }),
        }
    }
}

fn is_not_known(body: &[u8]) -> bool {
    String::from_utf8_lossy(body).contains("may or may not contain this request")
}

fn committed(over: &Value) -> bool {
    match over["result"].as_str().unwrap() {
        "committed" | "undone" => true,
        "aborted" | "rolled-back" => false,
        other => panic!("{other}: {over}"),
    }
}

/// Records the responses to clients while the daemon is killed `kills` times.
fn history(seed: u32, turns: u32, kills: u32) -> Vec<Line> {
    let (switch, port) = Switch::serve();
    switch.switch_millis.store(3, Ordering::Relaxed);
    let mut daemon = Daemon::start(port);
    let (history, ids, began) = (Mutex::new(Vec::new()), AtomicU32::new(1), Instant::now());
    let sockets = vec![daemon.folder.path().join("lightloomd.sock")];
    let client = |number| Client::new(sockets.clone(), began, &history, &ids, seed * 31 + number);
    let kills_left = &AtomicU32::new(kills);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = client(number);
            scope.spawn(move || client.take_turns(turns, kills_left));
        }
        for kill in 0..kills {
            let more = 10 + (seed * 7 + kill * 13) as usize % 30;
            let lines = history.lock().unwrap().len() + more;
            over_sockets::wait_for("enough requests before the kill", || {
                (history.lock().unwrap().len() >= lines).then_some(())
            });
            daemon.kill();
            daemon.restart();
            kills_left.fetch_sub(1, Ordering::Relaxed);
        }
    });
    let reader = client(CLIENTS);
    reader.read().unwrap();
    let mut lines = history.lock().unwrap().clone();
    add_ends(&mut lines, &reader);
    lines
}

/// Adds the end of each change: no later than the first response that shows it, or after the run.
fn add_ends(lines: &mut Vec<Line>, reader: &Client<'_>) {
    let mut ends = BTreeMap::<u32, Line>::new();
    lines.retain(|line| {
        let Did::End { txn, committed: acknowledged } = line.did else { return true };
        let over = reader.get(&format!("/v1/transactions/{txn}"));
        let over = over.map(|over| committed(&over));
        assert_eq!(over, Some(acknowledged), "transaction {txn} is not as it was acknowledged");
        let end = ends.entry(txn).or_insert_with(|| line.clone());
        // The change ended between its start and the first response that shows its end. Either of
        // two requests with the same id may have started it.
        (end.sent, end.answered) = (0, end.answered.min(line.answered));
        false
    });
    for txn in 1.. {
        let Some(over) = reader.get(&format!("/v1/transactions/{txn}")) else { break };
        let did = Did::End { txn, committed: committed(&over) };
        ends.entry(txn).or_insert_with(|| Line { sent: 0, answered: reader.now(), did });
    }
    lines.extend(ends.into_values());
}

/// Totals over histories that a single order of requests explains.
#[derive(Default)]
struct Explained {
    lines: usize,
    steps: u64,
    accepted: usize,
    broken: usize,
}

impl Explained {
    fn add(&mut self, seed: u32, history: &[Line]) {
        self.steps += check(&Model::default(), history, STEPS_MAX)
            .unwrap_or_else(|why| panic!("seed {seed}: no order explains it: {why}"));
        self.lines += history.len();
        self.broken += history.iter().filter(|line| line.answered == u64::MAX).count();
        self.accepted += history.iter().filter(|line| matches!(line.did, Did::End { .. })).count();
    }
}

fn is_linearizable(runs: u32, turns: u32, kills: u32) {
    let mut all = Explained::default();
    (0..runs).for_each(|seed| all.add(seed, &history(seed, turns, kills)));
    let Explained { lines, steps, accepted, broken } = all;
    println!(
        "{runs} histories of {CLIENTS} clients, {} kills: {lines} lines, {accepted} changes, {broken} requests \
         without an answer; one order explains each ({steps} steps of the search)",
        runs * kills
    );
    assert!(accepted >= runs as usize, "hardly anything happened");
}

#[test]
fn client_histories_are_linearizable() {
    is_linearizable(3, 25, 0);
}

#[test]
fn client_histories_are_linearizable_across_kills() {
    is_linearizable(3, 25, 3);
}

#[test]
#[ignore = "takes minutes"]
fn nightly_a_hundred_client_histories_are_linearizable() {
    is_linearizable(50, 40, 0);
    is_linearizable(50, 40, 6);
}

#[test]
fn checker_detects_answers_without_a_linear_order() {
    let line = |sent, answered, did| Line { sent, answered, did };
    let apply = |id, expected, got| Did::Apply { id, digest: id, expected, confirm: false, got };
    let read = |version, open| Did::Read { version, open, pending: None };
    let good = vec![
        line(0, 10, apply(1, Some(0), Got::Accepted(1))),
        line(5, 15, apply(2, Some(0), Got::Refused)),
        line(0, 30, Did::End { txn: 1, committed: true }),
        line(40, 50, read(1, None)),
    ];
    let judge = |lines: &[Line]| check(&Model::default(), lines, STEPS_MAX);
    assert!(judge(&good).is_ok());
    let wrong = [
        ("a read of the past", line(60, 70, read(0, None))),
        ("two winners of one version", line(5, 15, apply(3, Some(0), Got::Accepted(2)))),
        ("a refusal without a reason", line(60, 70, apply(3, Some(1), Got::Refused))),
        ("a request that acts twice", line(60, 70, apply(1, Some(0), Got::Accepted(2)))),
        ("a number out of order", line(60, 70, apply(3, None, Got::Accepted(7)))),
        ("an end twice", line(60, 70, Did::End { txn: 1, committed: true })),
        ("a confirm of nothing", line(60, 70, Did::Confirm { id: 9, txn: 1, got: Got::Done })),
    ];
    for (what, wrong) in wrong {
        let mut lines = good.clone();
        lines.push(wrong);
        assert!(judge(&lines).is_err(), "{what} is not found");
    }
    // A request without a response may or may not have been executed.
    let mut lines = good;
    lines.push(line(60, u64::MAX, apply(3, Some(1), Got::Nothing)));
    assert!(judge(&lines).is_ok());
    lines.push(line(80, 90, read(1, Some(2))));
    assert!(judge(&lines).is_ok());
}
