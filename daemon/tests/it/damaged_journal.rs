// SPDX-License-Identifier: Apache-2.0
//! Another program changes the journal's lines in a file, or its keys in etcd. A running leader
//! rewrites its journal. A daemon that detects the damage at its start reports it with a remedy,
//! reads devices, and refuses changes.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lightloom_testkit::cases;
use serde_json::{Value, json};

use crate::linearizable::leaders::Daemons;
use crate::over_sockets::{Daemon, Switch, circuits, talk, wait_for};

fn get(socket: &Path, path: &str) -> Option<(u16, String)> {
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let (code, body) = talk(UnixStream::connect(socket).ok()?, &head, &[])?;
    Some((code, String::from_utf8_lossy(&body).into_owned()))
}

fn status(socket: &Path) -> Option<Value> {
    let (code, body) = get(socket, "/v1/status")?;
    (code == 200).then(|| serde_json::from_str(&body).unwrap())
}

fn apply(socket: &Path, id: &str, shift: u32) -> (u16, String) {
    let body = json!({"request_id": id, "target": {"ocs0": circuits(shift, 4)}});
    let body = body.to_string();
    let head = format!(
        "POST /v1/apply HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let (code, body) = talk(UnixStream::connect(socket).unwrap(), &head, body.as_bytes()).unwrap();
    (code, String::from_utf8_lossy(&body).into_owned())
}

fn change(socket: &Path, name: &str, times: u32) {
    for number in 0..times {
        let (code, answer) = apply(socket, &format!("{name}{number}"), number % 2);
        assert_eq!(code, 202, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let (code, over) =
            get(socket, &format!("/v1/transactions/{}?wait_ms=20000", answer["txn"])).unwrap();
        assert!(code == 200 && over.contains("\"committed\""), "{over}");
    }
}

/// Checks that the status reports the damage, and that changes are refused.
fn is_said(socket: &Path, way_out: &str) -> String {
    let damaged = wait_for("a status with the damage", || {
        let status = status(socket)?;
        (!status["journal_damage"].is_null()).then_some(status["journal_damage"].clone())
    });
    let next = damaged["what_to_do"].as_str().unwrap().to_owned();
    assert!(next.contains(way_out), "{next}");
    wait_for("readings", || {
        let slots = status(socket)?["devices"][0]["slots"].as_object()?.len();
        (slots == 4).then_some(())
    });
    let (code, refused) = apply(socket, "refused", 2);
    assert!(code == 422 && refused.contains("the journal is damaged"), "{code} {refused}");
    assert!(refused.contains(way_out), "the refusal names it: {refused}");
    let (code, health) = get(socket, "/healthz").unwrap();
    assert!(code == 503 && health.contains(way_out), "{code} {health}");
    next
}

fn etcdctl(url: &str, words: &[&str]) -> Option<String> {
    let mut command = Command::new("etcdctl");
    let output = command.env("ETCDCTL_API", "3").args(["--endpoints", url]).args(words).output();
    let output = output.ok()?;
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

fn keys(url: &str) -> Option<Vec<String>> {
    let keys = etcdctl(url, &["get", "--prefix", "--keys-only", "/t/journal/0"])?;
    Some(keys.lines().filter(|key| !key.is_empty()).map(str::to_owned).collect())
}

const HOW: [&str; 6] =
    ["deleted", "changed", "head deleted", "head changed", "last deleted", "last cut"];

fn how_often() -> &'static [&'static str] {
    &HOW[..cases(1, HOW.len())]
}

fn damage(url: &str, how: &str) {
    let keys = keys(url).unwrap();
    let (some, last) = (&keys[keys.len() / 2], keys.last().unwrap());
    let value = |key: &str| etcdctl(url, &["get", "--print-value-only", key]).unwrap();
    let words: &[&str] = match how {
        "deleted" => &["del", some],
        "changed" => &["put", some, &value(some).replace("ocs0", "ocs1")],
        "head deleted" => &["del", "/t/head"],
        "head changed" => &["put", "/t/head", "7"],
        "last deleted" => &["del", last],
        _ => &["put", last, &value(last)[..60]],
    };
    etcdctl(url, words);
}

#[test]
fn reports_changed_etcd_records_and_documented_recovery_works() {
    let (_switch, port) = Switch::serve();
    let Some(mut daemons) = Daemons::start(port, 1) else { return };
    let url = daemons.url.clone();
    if keys(&url).is_none() {
        println!("skipped: no etcdctl");
        return;
    }
    let socket = daemons.sockets().remove(0);
    wait_for("readings", || (status(&socket)?["unseen"] == json!([])).then_some(()));
    let mut slowest = Duration::ZERO;
    for how in how_often() {
        change(&socket, how, 3);
        daemons.children[0].kill().unwrap();
        daemons.children[0].wait().unwrap();
        let died = Instant::now();
        damage(&url, how);
        daemons.children[0] = daemons.spawn(0);
        wait_for("a status", || status(&socket));
        slowest = slowest.max(died.elapsed());
        let way_out = is_said(&socket, "etcdctl del");
        // Run the commands that the status suggests.
        daemons.children[0].kill().unwrap();
        daemons.children[0].wait().unwrap();
        let commands: Vec<&str> = way_out.split('`').skip(1).step_by(2).collect();
        let deletes = commands.iter().filter_map(|command| command.strip_prefix("etcdctl "));
        for words in deletes.filter(|words| words.starts_with("del ")) {
            etcdctl(&url, &words.split(' ').collect::<Vec<_>>());
        }
        daemons.children[0] = daemons.spawn(0);
        wait_for("a journal", || {
            let status = status(&socket)?;
            (status["journal_damage"].is_null() && status["unseen"] == json!([])).then_some(())
        });
        let adopt = json!({"request_id": format!("adopt {how}"), "devices": ["ocs0"]}).to_string();
        let head = format!(
            "POST /v1/adopt HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            adopt.len()
        );
        let stream = UnixStream::connect(&socket).unwrap();
        assert_eq!(talk(stream, &head, adopt.as_bytes()).unwrap().0, 200);
    }
    println!(
        "{HOW:?} in etcd: a status {slowest:.1?} after the death of the leader at most, with its lease of 2 s"
    );
}

/// A running leader has the whole journal in memory, so it restores all records and responds soon.
#[test]
fn leader_rewrites_deleted_or_changed_etcd_records() {
    let (_switch, port) = Switch::serve();
    let Some(daemons) = Daemons::start(port, 1) else { return };
    let url = daemons.url.clone();
    if keys(&url).is_none() {
        println!("skipped: no etcdctl");
        return;
    }
    let socket = daemons.sockets().remove(0);
    wait_for("readings", || (status(&socket)?["unseen"] == json!([])).then_some(()));
    let mut slowest = Duration::ZERO;
    for how in how_often() {
        change(&socket, how, 2);
        let journal = || get(&socket, "/v1/log?last=1000").unwrap().1;
        let (before, began) = (journal(), Instant::now());
        let readable = |log: &str| -> u64 {
            serde_json::from_str::<Value>(log).unwrap()["readable"].as_u64().unwrap()
        };
        damage(&url, how);
        wait_for("it to be written anew", || {
            let log = journal();
            let whole = log.contains("\"damage\":null") && readable(&log) >= readable(&before);
            let well = status(&socket)?["journal_failure"].is_null();
            (whole && well && began.elapsed() > Duration::from_millis(100)).then_some(())
        });
        slowest = slowest.max(began.elapsed());
    }
    println!("{:?} in etcd under the leader: written anew within {slowest:.1?}", how_often());
}

#[test]
fn reports_a_changed_journal_file() {
    let (_switch, port) = Switch::serve();
    let mut daemon = Daemon::start(port);
    let socket = daemon.folder.path().join("lightloomd.sock");
    change(&socket, "a", 3);
    daemon.kill();
    let file = daemon.folder.path().join("journal.log");
    let good = std::fs::read_to_string(&file).unwrap();
    let good = good.trim_end_matches('\0');
    let lines: Vec<&str> = good.lines().collect();
    let without = |line: usize| {
        let mut left = lines.clone();
        left.remove(line);
        left.join("\n") + "\n"
    };
    let newer = r#"{"teleported":{"wall_ms":1}}"#;
    let ways = [
        ("deleted", without(lines.len() / 2), "should be number"),
        ("changed", good.replacen("committed", "committee", 1), "does not match its hash"),
        ("head", without(0), "should be number 1"),
        (
            "last",
            good[..good.len() - 20].to_owned() + "}}}}}}}}}}}}}}}}}}}\n",
            "does not match its hash",
        ),
        (
            "newer",
            good.to_owned() + &line_behind(lines.last().unwrap(), newer),
            "needs a newer version",
        ),
    ];
    for (how, text, reason) in ways {
        std::fs::write(&file, text).unwrap();
        let began = Instant::now();
        daemon.child = Daemon::spawn(daemon.folder.path());
        let damage = wait_for("a status", || status(&socket))["journal_damage"].clone();
        println!("{how} in a file: said {:.1?} after the start", began.elapsed());
        assert!(damage["reason"].as_str().unwrap().contains(reason), "{how}: {damage}");
        is_said(
            &socket,
            if how == "newer" {
                "that version of lightloomd or a later one"
            } else {
                "journal.log.damaged"
            },
        );
        daemon.kill();
    }
}

fn line_behind(last: &str, body: &str) -> String {
    use sha2::{Digest, Sha256};
    let mut words = last.trim_start_matches('+').split(' ');
    let (number, hash) = (words.next().unwrap().parse::<u64>().unwrap() + 1, words.next().unwrap());
    let hash = Sha256::digest(format!("{hash}{number}{body}"));
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{number} {hash} {body}\n")
}
