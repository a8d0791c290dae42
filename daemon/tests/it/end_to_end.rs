// SPDX-License-Identifier: Apache-2.0
//! Tests the real daemon over its API and sockets. Plans are applied to an optical switch over TCP,
//! confirmed, rolled back, interrupted by a kill and recovered.

use crate::over_sockets;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use over_sockets::{Daemon, Switch, circuits, wait_for};
use serde_json::{Value, json};

#[test]
fn wait_from_an_old_version_returns_immediately() {
    let (_switch, port) = Switch::serve();
    let daemon = Daemon::start(port);
    let before = daemon.get("/v1/status");
    let (_, answer) = daemon.apply("one", &json!(circuits(0, 16)), &json!({}));
    daemon.ends(&answer);
    let since = before["changes"].as_u64().unwrap();
    let asked = Instant::now();
    let after = daemon.get(&format!("/v1/status?wait_ms=60000&since={since}"));
    assert!(asked.elapsed() < Duration::from_secs(20), "it waited for another change");
    assert_ne!(after["version"], before["version"]);
    assert!(after["changes"].as_u64().unwrap() > since);
}

#[test]
fn applies_confirms_and_rolls_back_over_sockets() {
    let (switch, port) = Switch::serve();
    let daemon = Daemon::start(port);
    let (first, second) = (circuits(0, 16), circuits(1, 16));

    let diff = daemon.post("/v1/diff", &json!({"target": {"ocs0": first}})).1;
    assert_eq!(diff["moves"].as_array().unwrap().len(), 16);
    assert!(switch.circuits.lock().unwrap().is_empty(), "a preview moves nothing");
    let before = switch.received.lock().unwrap().len();
    let (code, answer) = daemon.apply("one", &json!(first), &json!({}));
    assert_eq!(code, 202, "{answer}");
    assert_eq!(daemon.ends(&answer)["result"], "committed");
    assert_eq!(*switch.circuits.lock().unwrap(), first);
    let sent = switch.received.lock().unwrap()[before..].to_vec();
    for request in diff["bytes"][0]["requests"].as_array().unwrap() {
        let request = request.as_str().unwrap();
        assert!(sent.iter().any(|line| line == request), "`{request}` was previewed, not sent");
    }

    // A repeated request takes effect once; a different one with the same id is refused.
    let again = daemon.apply("one", &json!(first), &json!({}));
    assert_eq!(again.1, answer);
    assert_eq!(daemon.apply("one", &json!(second), &json!({})).0, 409);

    let stale = daemon.apply("stale", &json!(second), &json!({"expected_version": 0}));
    assert_eq!(stale.0, 409, "{}", stale.1);

    // The change is undone without a confirmation. Until then, the daemon refuses other changes.
    let within = json!({"confirm_within_ms": 400});
    let (_, answer) = daemon.apply("two", &json!(second), &within);
    assert_eq!(daemon.ends(&answer)["result"], "committed");
    assert_eq!(*switch.circuits.lock().unwrap(), second);
    assert_eq!(daemon.apply("three", &json!(first), &json!({})).0, 409);
    wait_for("the rollback", || (*switch.circuits.lock().unwrap() == first).then_some(()));

    wait_for("the end", || daemon.get("/v1/status")["transaction"].is_null().then_some(()));
    let (_, answer) = daemon.apply("four", &json!(second), &json!({"confirm_within_ms": 60000}));
    daemon.ends(&answer);
    let confirm = json!({"request_id": "five", "txn": answer["txn"]});
    assert_eq!(daemon.post("/v1/confirm", &confirm).0, 200);
    assert!(daemon.get("/v1/status")["pending"].is_null());

    let undo = json!({"request_id": "six", "txn": answer["txn"]});
    let (_, answer) = daemon.post("/v1/rollback", &undo);
    assert_eq!(daemon.ends(&answer)["result"], "committed");
    assert_eq!(*switch.circuits.lock().unwrap(), first);
}

#[test]
fn detects_a_lying_switch_and_survives_garbage_output() {
    let (switch, port) = Switch::serve();
    let daemon = Daemon::start(port);
    switch.lies.store(true, Ordering::Relaxed);
    let (_, answer) = daemon.apply("lie", &json!(circuits(0, 4)), &json!({}));
    let end = daemon.ends(&answer);
    assert_eq!(end["result"], "rolled-back", "{end}");
    assert!(end["devices"][0]["detail"].as_str().unwrap().contains("it reported success"), "{end}");
    switch.lies.store(false, Ordering::Relaxed);

    switch.babbles.store(true, Ordering::Relaxed);
    thread::sleep(Duration::from_millis(500));
    assert!(switch.circuits.lock().unwrap().is_empty(), "noise never makes a circuit");
    switch.babbles.store(false, Ordering::Relaxed);
    wait_for("the switch to be seen again", || {
        (daemon.get("/v1/status")["devices"][0]["state"] == "as-wanted").then_some(())
    });
    let (_, answer) = daemon.apply("truth", &json!(circuits(0, 4)), &json!({}));
    assert_eq!(daemon.ends(&answer)["result"], "committed");
}

#[test]
fn kill_during_an_apply_ends_in_old_or_new_circuits() {
    let (switch, port) = Switch::serve();
    let mut daemon = Daemon::start(port);
    let plans = [circuits(0, 64), circuits(7, 64)];
    let (_, answer) = daemon.apply("start", &json!(plans[0]), &json!({}));
    daemon.ends(&answer);
    switch.switch_millis.store(15, Ordering::Relaxed);
    let mut ends = [0, 0];
    for round in 0..12_u64 {
        let now = *switch.circuits.lock().unwrap() == plans[1];
        let next = &plans[usize::from(!now)];
        let (code, answer) = daemon.apply(&format!("round{round}"), &json!(next), &json!({}));
        assert_eq!(code, 202, "{answer}");
        thread::sleep(Duration::from_millis(round * 5));
        daemon.kill();
        daemon.restart();
        wait_for("the recovery", || {
            daemon.get("/v1/status")["transaction"].is_null().then_some(())
        });
        let circuits = switch.circuits.lock().unwrap().clone();
        let end = plans.iter().position(|plan| *plan == circuits);
        ends[end.unwrap_or_else(|| panic!("mixed: {circuits:?}"))] += 1;
        wait_for("no drift", || {
            let drift = daemon.get("/v1/drift");
            (drift["complete"] == true && drift["slots"] == json!([])).then_some(())
        });
    }
    println!("12 kills, ends {ends:?}, none mixed");
}

#[test]
fn sees_drift_within_one_poll_and_adopts_it_without_a_move() {
    let (switch, port) = Switch::serve();
    let daemon = Daemon::start(port);
    let (_, answer) = daemon.apply("a", &json!(circuits(0, 3)), &json!({}));
    daemon.ends(&answer);
    switch.circuits.lock().unwrap().insert(9, 400);
    let seen = Instant::now();
    let drift = wait_for("the drift", || {
        let drift = daemon.get("/v1/drift")["slots"].clone();
        (!drift.as_array().unwrap().is_empty()).then_some(drift)
    });
    assert!(seen.elapsed() < Duration::from_millis(600), "polled every 200 ms");
    assert_eq!(drift[0]["device_says"], 400);
    let before = switch.circuits.lock().unwrap().clone();
    let adopt = json!({"request_id": "b", "devices": ["ocs0"]});
    let adopted = daemon.post("/v1/adopt", &adopt);
    assert_eq!(adopted, (200, json!({"answer": "adopted", "devices": 1, "slots": 4})));
    let drift = daemon.get("/v1/drift");
    assert_eq!(drift["slots"], json!([]));
    assert_eq!(drift["complete"], true);
    assert_eq!(*switch.circuits.lock().unwrap(), before);
}

#[test]
fn one_of_two_racing_clients_succeeds() {
    let (switch, port) = Switch::serve();
    let daemon = Daemon::start(port);
    let mut wins = 0;
    for round in 0..20_u32 {
        let version = daemon.get("/v1/status")["version"].clone();
        let target = |who: u32| json!(circuits(1 + (2 * round + who) % 11, 12));
        let answers: Vec<(u16, Value)> = thread::scope(|scope| {
            let ask = |who| {
                let (daemon, version) = (&daemon, &version);
                move || {
                    let id = format!("{round}-{who}");
                    daemon.apply(&id, &target(who), &json!({"expected_version": version}))
                }
            };
            let (one, two) = (scope.spawn(ask(0)), scope.spawn(ask(1)));
            vec![one.join().unwrap(), two.join().unwrap()]
        });
        let accepted: Vec<_> = answers.iter().filter(|(code, _)| *code == 202).collect();
        assert_eq!(accepted.len(), 1, "{answers:?}");
        assert!(answers.iter().any(|(code, _)| *code == 409), "{answers:?}");
        assert_eq!(daemon.ends(&accepted[0].1)["result"], "committed");
        wins += 1;
    }
    assert_eq!(switch.circuits.lock().unwrap().len(), 12);
    println!("{wins} races, one winner each");
}

#[test]
fn rejects_bad_requests_before_contacting_devices() {
    let (switch, port) = Switch::serve();
    let daemon = Daemon::start(port);
    let before = switch.received.lock().unwrap().iter().filter(|l| l.contains("conn:")).count();
    for target in [json!({"ocs9": {"1": 321}}), json!({"ocs0": {"1": 321, "2": 321}})] {
        let (code, answer) =
            daemon.post("/v1/apply", &json!({"request_id": "x", "target": target}));
        assert_eq!(code, 422, "{answer}");
    }
    // A preview applies the rules of the switch's driver.
    let (code, answer) = daemon.post("/v1/diff", &json!({"target": {"ocs0": {"1": 99}}}));
    let said = json!(["ocs0: egress ports are 321 to 640, not 99"]);
    assert_eq!((code, &answer["reasons"]), (422, &said), "{answer}");
    let plan = json!({"request_id": "p", "plan": {"schema": "lightloom.plan/v1"}});
    assert_eq!(daemon.post("/v1/apply", &plan).0, 422);
    assert_eq!(daemon.post("/v1/apply", &json!({"request_id": "", "target": {}})).0, 422);
    let overwrite = json!({"mode": "overwrite"});
    assert_eq!(daemon.apply("o", &json!(circuits(0, 2)), &overwrite).0, 422);
    for garbage in
        [&b"\x16\x03\x01\x02\x00"[..], b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", b"\0\0"]
    {
        let mut stream = UnixStream::connect(daemon.folder.path().join("lightloomd.sock")).unwrap();
        let _ = stream.write_all(garbage);
    }
    assert_eq!(
        daemon
            .talk("GET /v1/nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", &[])
            .unwrap()
            .0,
        404
    );
    let changed = switch.received.lock().unwrap().iter().any(|line| line.contains(":conn:add"));
    assert!(!changed, "a refused request reached the switch");
    let after = switch.received.lock().unwrap().iter().filter(|l| l.contains("conn:")).count();
    assert!(after >= before);
    let audit = std::fs::read_to_string(daemon.folder.path().join("audit.log")).unwrap();
    assert_eq!(audit.lines().count(), 5, "each request is on the record: {audit}");
}

#[test]
fn daemon_overhead_is_small_next_to_device_time() {
    let (switch, port) = Switch::serve();
    let daemon = Daemon::start(port);
    switch.switch_millis.store(20, Ordering::Relaxed);
    let (_, answer) = daemon.apply("lit", &json!(circuits(0, 320)), &json!({}));
    daemon.ends(&answer);
    let mut overheads_ms = Vec::new();
    for round in 1..=20_u32 {
        let started = Instant::now();
        let target = json!(circuits(round, 320));
        let (_, answer) = daemon.apply(&format!("{round}"), &target, &json!({}));
        assert_eq!(daemon.ends(&answer)["result"], "committed");
        // A permutation is first removed and then added, which takes two switching times.
        overheads_ms.push(started.elapsed().as_secs_f64() * 1e3 - 40.0);
    }
    overheads_ms.sort_by(f64::total_cmp);
    let (median, worst) = (overheads_ms[10], overheads_ms[19]);
    println!(
        "320 circuits: median {median:.1} ms, worst {worst:.1} ms over the device's 2 x 20 ms"
    );
    let memory = std::fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).unwrap();
    println!("{}", memory.lines().find(|line| line.starts_with("VmRSS")).unwrap());
}

#[test]
fn undoes_an_unconfirmed_apply_after_a_kill() {
    let (switch, port) = Switch::serve();
    let mut daemon = Daemon::start(port);
    let (first, second) = (circuits(0, 8), circuits(3, 8));
    let (_, answer) = daemon.apply("first", &json!(first), &json!({}));
    daemon.ends(&answer);
    let within = json!({"confirm_within_ms": 1500});
    let (_, answer) = daemon.apply("second", &json!(second), &within);
    assert_eq!(daemon.ends(&answer)["result"], "committed");
    daemon.kill();
    assert_eq!(*switch.circuits.lock().unwrap(), second, "a dead daemon moves nothing");
    thread::sleep(Duration::from_millis(2000));
    assert_eq!(*switch.circuits.lock().unwrap(), second);
    daemon.restart();
    wait_for("the rollback", || (*switch.circuits.lock().unwrap() == first).then_some(()));
    wait_for("its end", || daemon.get("/v1/status")["transaction"].is_null().then_some(()));
    let cause = daemon.get("/v1/journal")[0]["cause"].clone();
    assert_eq!(cause, format!("{} was not confirmed in time", answer["txn"]));
}

#[test]
fn transaction_state_shows_whether_the_change_is_final() {
    let (_switch, port) = Switch::serve();
    let daemon = Daemon::start(port);
    let state = |txn: u64| {
        let shown = daemon.get(&format!("/v1/transactions/{txn}"));
        (shown["result"].as_str().unwrap().to_owned(), shown["state"].as_str().unwrap().to_owned())
    };
    let of = |result: &str, state: &str| (result.to_owned(), state.to_owned());
    let (_, answer) = daemon.apply("one", &json!(circuits(0, 4)), &json!({}));
    daemon.ends(&answer);
    assert_eq!(state(1), of("committed", "committed"));
    let within = json!({"confirm_within_ms": 60_000});
    let (_, answer) = daemon.apply("two", &json!(circuits(1, 4)), &within);
    let shown = daemon.ends(&answer);
    assert_eq!(shown["state"], "confirm-pending", "{shown}");
    let left =
        shown["confirm_until_unix_ms"].as_u64().unwrap() - shown["unix_ms"].as_u64().unwrap();
    assert!((55_000..=65_000).contains(&left), "{shown}");
    assert!(daemon.get("/v1/status")["pending"]["until_unix_ms"].as_u64().is_some());
    daemon.post("/v1/confirm", &json!({"request_id": "yes", "txn": 2}));
    assert_eq!(state(2), of("committed", "confirmed"));
    let (_, answer) = daemon.post("/v1/rollback", &json!({"request_id": "no", "txn": 2}));
    daemon.ends(&answer);
    assert_eq!(state(2), of("undone", "undone"));
    assert_eq!(daemon.get("/v1/transactions/2")["undone_by"], 3);
    let (code, answer) =
        daemon.apply("zero", &json!(circuits(0, 4)), &json!({"confirm_within_ms": 0}));
    assert_eq!(code, 422, "{answer}");
}

#[test]
fn drift_lists_unreachable_devices_as_unseen() {
    let (_switch, port) = Switch::serve();
    let mut daemon = Daemon::start(port);
    let (_, answer) = daemon.apply("one", &json!(circuits(0, 4)), &json!({}));
    daemon.ends(&answer);
    daemon.kill();
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = Daemon::file(daemon.folder.path(), nowhere);
    std::fs::write(daemon.folder.path().join("daemon.yaml"), file).unwrap();
    daemon.child = Daemon::spawn(daemon.folder.path());
    let drift = wait_for("the daemon", || daemon.try_get("/v1/drift"));
    assert_eq!(drift["slots"], json!([]));
    assert_eq!(
        (&drift["complete"], &drift["unseen"]),
        (&json!(false), &json!(["ocs0"])),
        "{drift}"
    );
    assert_eq!(daemon.get("/v1/status")["unseen"], json!(["ocs0"]));
    wait_for("the refusal by the reason", || {
        let asked = Instant::now();
        let (code, answer) = daemon.apply("two", &json!(circuits(1, 4)), &json!({}));
        assert_eq!(code, 422, "{answer}");
        assert!(asked.elapsed() < Duration::from_secs(1), "refused at once");
        answer.to_string().contains("ocs0: unreachable (").then_some(())
    });
}

#[test]
fn reports_a_damaged_journal_in_every_view() {
    let (_switch, port) = Switch::serve();
    let mut daemon = Daemon::start(port);
    for (request, shift) in [("one", 0), ("two", 1)] {
        let (_, answer) = daemon.apply(request, &json!(circuits(shift, 4)), &json!({}));
        daemon.ends(&answer);
    }
    let log = daemon.get("/v1/log?last=3");
    let last = &log["records"][2];
    assert_eq!(
        (&last["what"], &last["txn"], &log["damage"]),
        (&json!("end"), &json!(2), &json!(null))
    );
    assert!(last["unix_ms"].as_u64().is_some_and(|ms| ms > 1_600_000_000_000), "{last}");
    assert_eq!(last["parts"], json!(["ocs0"]));
    daemon.kill();
    let file = daemon.folder.path().join("journal.log");
    let good = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = good.lines().collect();
    let damaged = lines.len() - 2;
    let text = good.replace(lines[damaged], &lines[damaged].replace("ocs0", "ocs1"));
    std::fs::write(&file, text).unwrap();
    let check = Command::new(env!("CARGO_BIN_EXE_lightloomd"))
        .arg("--check")
        .arg("--config")
        .arg(daemon.folder.path().join("daemon.yaml"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&check.stderr).into_owned();
    assert_eq!(check.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("line {}", damaged + 1)) && said.contains("adopt"), "{said}");
    daemon.child = Daemon::spawn(daemon.folder.path());
    wait_for("the daemon", || daemon.try_get("/v1/status"));
    let (status, log) = (daemon.get("/v1/status"), daemon.get("/v1/log"));
    for damage in
        [&status["journal_damage"], &daemon.get("/v1/drift")["journal_damage"], &log["damage"]]
    {
        assert_eq!((&damage["readable"], &damage["line"]), (&json!(damaged), &json!(damaged + 1)));
        assert!(damage["what_to_do"].as_str().unwrap().contains("adopt"), "{damage}");
    }
    assert_eq!(daemon.get("/v1/drift")["complete"], false);
    assert_eq!(log["readable"], json!(damaged));
    assert_eq!(daemon.apply("three", &json!(circuits(2, 4)), &json!({})).0, 422);
}

fn checked(folder: &Path, flag: &str) -> (Option<i32>, String) {
    let file = folder.join("daemon.yaml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_lightloomd"));
    let output = command.arg(flag).arg("--config").arg(file).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Rewrites a chain with another text, like an attacker who can compute SHA-256 but lacks the key.
fn forge(log: &str, from: &str, to: &str) -> String {
    use sha2::{Digest, Sha256};
    let mut hash = "0".repeat(64);
    let lines = log.lines().enumerate().map(|(index, line)| {
        let body = line.splitn(3, ' ').nth(2).unwrap().replace(from, to);
        let digest = Sha256::digest(format!("{hash}{}{body}", index + 1));
        hash = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{} {hash} {body}\n", index + 1)
    });
    lines.collect()
}

#[test]
fn detects_a_forged_audit_log_and_reports_an_unkeyed_one() {
    let (_switch, port) = Switch::serve();
    let mut daemon = Daemon::start(port);
    for (request, shift) in [("one", 0), ("two", 1)] {
        let (_, answer) = daemon.apply(request, &json!(circuits(shift, 4)), &json!({}));
        daemon.ends(&answer);
    }
    daemon.kill();
    let folder = daemon.folder.path().to_owned();
    let (log, key) = (folder.join("audit.log"), folder.join("audit.key"));
    let mode = std::fs::metadata(&key).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let (code, said) = checked(&folder, "--verify-audit");
    assert!(code == Some(0) && said.contains("2 lines, all keyed"), "{said}");
    assert_eq!(checked(&folder, "--check").0, Some(0));

    let good = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, forge(&good, "two", "six")).unwrap();
    for flag in ["--check", "--verify-audit"] {
        let (code, said) = checked(&folder, flag);
        assert!(code == Some(1) && said.contains("all 2 lines are unkeyed"), "{said}");
    }
    daemon.child = Daemon::spawn(&folder);
    wait_for("the daemon", || daemon.try_get("/v1/status"));
    assert_ne!(
        daemon.apply("three", &json!(circuits(2, 4)), &json!({})).0,
        202,
        "changes are refused"
    );
    daemon.kill();

    std::fs::write(&log, good.replacen("two", "six", 1)).unwrap();
    let (code, said) = checked(&folder, "--check");
    assert!(code == Some(1) && said.contains("line 2: does not match its hash"), "{said}");

    // The key is missing, and the log is unchanged or rewritten without a key.
    let secret = std::fs::read(&key).unwrap();
    for log_of_then in [good.clone(), forge(&good, "two", "six")] {
        std::fs::write(&log, log_of_then).unwrap();
        std::fs::remove_file(&key).unwrap();
        for flag in ["--check", "--verify-audit"] {
            let (code, said) = checked(&folder, flag);
            assert!(code == Some(1) && said.contains("is missing"), "{said}");
        }
        daemon.child = Daemon::spawn(&folder);
        wait_for("the daemon", || daemon.try_get("/v1/status"));
        let refused = daemon.apply("three", &json!(circuits(2, 4)), &json!({})).0;
        assert_ne!(refused, 202, "changes are refused");
        daemon.kill();
        assert!(!key.exists(), "no other is made in its place");
        std::fs::write(&key, &secret).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    // A log from a version without keys, with a journal that does not contain a key.
    std::fs::write(&log, forge(&good, "two", "two")).unwrap();
    std::fs::remove_file(&key).unwrap();
    std::fs::remove_file(folder.join("journal.log")).unwrap();
    daemon.child = Daemon::spawn(&folder);
    wait_for("the daemon", || daemon.try_get("/v1/status"));
    daemon.apply("four", &json!(circuits(2, 4)), &json!({}));
    daemon.kill();
    let (code, said) = checked(&folder, "--verify-audit");
    assert!(code == Some(0) && said.contains("lines 1 to 2 are unkeyed"), "{said}");
    assert!(said.contains("before line 3 was written; later lines are keyed"), "{said}");
}

#[test]
fn check_reports_readable_and_default_passwords() {
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    let file = format!(
        "state_dir: {0}\ndevices:\n- name: ocs0\n  driver:\n    tl1: {{tcp: \"127.0.0.1:1\", user: root, \
         password_file: {1}}}\n",
        folder.path().display(),
        password.display()
    );
    std::fs::write(folder.path().join("daemon.yaml"), file).unwrap();
    let with = |text: &str, mode| {
        std::fs::write(&password, text).unwrap();
        std::fs::set_permissions(&password, std::fs::Permissions::from_mode(mode)).unwrap();
        checked(folder.path(), "--check")
    };
    assert_eq!(with("kept to ourselves\n", 0o600).0, Some(0));
    let (code, said) = with("kept to ourselves\n", 0o644);
    let told = ["device ocs0, tl1/password_file", "all users (mode 0644)", "chmod o="];
    assert!(code == Some(1) && told.iter().all(|told| said.contains(told)), "{said}");
    let (code, said) = with("root\n", 0o600);
    let told = ["device ocs0", "vendor's default password", "change it on the device"];
    assert!(code == Some(1) && told.iter().all(|told| said.contains(told)), "{said}");
    for (text, wrong) in
        [("a;b", "';'"), ("a:b", "':'"), ("a\"b", "'\"'"), ("a\rb", "'\\r'"), ("aé", "'é'")]
    {
        let (code, said) = with(&format!("{text}\n"), 0o600);
        let named = ["device ocs0, tl1/password_file", "is not allowed in a TL1", wrong];
        assert!(code == Some(1) && named.iter().all(|part| said.contains(part)), "{said}");
        assert!(!said.contains(text), "the password itself is not shown: {said}");
    }
    std::fs::remove_file(&password).unwrap();
    let (code, said) = checked(folder.path(), "--check");
    assert!(code == Some(1) && said.contains("cannot read"), "{said}");
}

/// S9: 10,000 connections that send nothing or half of a request.
#[test]
fn ten_thousand_idle_clients_lock_out_no_client() {
    let (_switch, port) = Switch::serve();
    let daemon = Daemon::start(port);
    let socket = daemon.folder.path().join("lightloomd.sock");
    let mut idle = std::collections::VecDeque::new();
    let mut waits = Vec::new();
    for count in 0..10_000 {
        let mut stream = UnixStream::connect(&socket).unwrap();
        if count % 2 == 0 {
            let _ = stream.write_all(b"GET /v1/sta");
        }
        idle.push_back(stream);
        // The test process itself may open only this many connections.
        if idle.len() > 400 {
            idle.pop_front();
        }
        if count % 100 == 99 {
            let started = Instant::now();
            assert!(daemon.try_get("/v1/status").is_some());
            waits.push(started.elapsed());
        }
    }
    let files = std::fs::read_dir(format!("/proc/{}/fd", daemon.child.id())).unwrap().count();
    waits.sort();
    let (median, worst) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!(
        "10,000 idle clients: answers took {median:.1?}, worst {worst:.1?}; {files} files open"
    );
    assert!(files < 350, "{files} files are open");
    assert!(worst < Duration::from_secs(2), "{waits:?}");
}
