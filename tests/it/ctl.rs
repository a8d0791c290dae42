// SPDX-License-Identifier: Apache-2.0
//! `lightloom ctl` against a daemon that is played by the test: what people are told, and what scripts see.

use crate::programs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

/// Answers each path with a status code and a document, until it goes away.
struct Daemon {
    socket: PathBuf,
    heard: Arc<Mutex<Vec<u8>>>,
    answers: Arc<Mutex<Vec<(String, u16, Value)>>>,
}

impl Daemon {
    fn plays(folder: &Path, answers: &[(&str, u16, Value)]) -> Self {
        let socket = folder.join("lightloomd.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let own =
            |(path, code, body): &(&str, u16, Value)| ((*path).to_owned(), *code, body.clone());
        let answers = Arc::new(Mutex::new(answers.iter().map(own).collect()));
        let kept = Arc::clone(&answers);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let last = Arc::clone(&heard);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                answer(&client.unwrap(), &kept, &last);
            }
        });
        Self { socket, heard, answers }
    }

    /// The last body it was sent.
    fn heard(&self) -> Value {
        serde_json::from_slice(&self.heard.lock().unwrap()).unwrap()
    }

    /// From now on this answer instead.
    fn says(&self, path: &str, code: u16, body: Value) {
        let mut answers = self.answers.lock().unwrap();
        answers.retain(|(known, ..)| known != path);
        answers.push((path.to_owned(), code, body));
    }

    /// Nobody listens any more at its socket.
    fn goes_away(&self) {
        std::fs::remove_file(&self.socket).unwrap();
    }
}

fn answer(
    mut client: &UnixStream,
    answers: &Mutex<Vec<(String, u16, Value)>>,
    heard: &Mutex<Vec<u8>>,
) {
    let mut reader = BufReader::new(client);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
    if !first.contains("HTTP/") {
        let _ = write!(client, "HTTP/1.1 400 Bad Request\r\n\r\n");
        return;
    }
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(bytes) = line.strip_prefix("Content-Length: ") {
            length = bytes.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body).unwrap();
    *heard.lock().unwrap() = body;
    let path = first.split(' ').nth(1).unwrap();
    let path = path.split('?').next().unwrap();
    let known = answers.lock().unwrap();
    let found = known.iter().find(|(known, ..)| known == path);
    let (code, body) = found.map_or((404, json!("nothing here")), |(_, c, b)| (*c, b.clone()));
    let _ = write!(client, "HTTP/1.1 {code} x\r\nConnection: close\r\n\r\n{body}");
}

fn ctl(daemon: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(programs::lightloom());
    command.arg("ctl").args(arguments).arg("--socket").arg(daemon).env("TZ", "UTC");
    command
}

fn run(daemon: &Daemon, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = ctl(&daemon.socket, arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn device(name: &str, state: &str, trouble: Option<&str>) -> Value {
    json!({
        "name": name, "identity": "maker,module", "up": state != "unseen", "trouble": trouble,
        "state": state, "slots": {"0": 1}, "power_dbm": {}, "drift": [],
    })
}

fn quiet() -> Value {
    json!({
        "daemon": "0.1.0", "version": 7, "plan_sha256": "0123456789abcdef", "transaction": null,
        "pending": null, "attention": {}, "held": [], "journal_records": 12,
        "journal_failure": null, "circuits": [{"a": "n1/b0.1", "b": "n2/b1.1", "stands": true}],
        "journal_damage": null, "broken": [], "broken_parts": [], "unseen": [],
        "bypass_budget": {"used": 0, "per_hour": 10}, "devices": [device("n1/b0", "as-wanted", None)], "transactions": [],
    })
}

/// A status with these fields changed.
fn status(changes: Value) -> Value {
    let mut status = quiet();
    for (key, value) in changes.as_object().unwrap() {
        status[key] = value.clone();
    }
    status
}

#[test]
fn a_status_says_what_is_wrong_first_and_what_to_type() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, quiet())]);
    let (code, shown, _) = run(&daemon, &["status"]);
    let calm = "ALL IS WELL\n\nversion 7, plan 0123456789ab, 12 journal records\n\
        circuits that stand at both ends: 1 of 1\n1 of 1 device as wanted\n\
        device  state      stands at   identity or trouble\n\
        n1/b0   as-wanted  external-1  maker,module\n\nno transactions yet\n";
    assert_eq!((code, shown.as_str()), (0, calm));

    let silent = device("n3/b0", "unseen", Some("no answer within 2 s"));
    let wrong = status(json!({
        "attention": {"n2/b0": "slot 0 was read at 15"},
        "attention_next": {"n2/b0": "take it as it stands: lightloom ctl adopt n2/b0; or apply again"},
        "pending": {"txn": 7, "seconds_left": 299.0, "until_unix_ms": 3_600_000},
        "broken_parts": [
            {"part": "n17", "since_unix_ms": 0, "why": "reported by uid:0"},
            {"part": "n4/b1", "since_unix_ms": null, "why": ""},
        ],
        "dark_fibres": [{"near": "n3/b0.1", "far": "n4/b1.1", "power_dbm": -99.0}],
        "bypass_budget": {"used": 10, "per_hour": 10},
        "devices": [silent, device("n1/b0", "drifted", None)],
        "drifted_next": "take what is lit as ours: lightloom ctl adopt n1/b0; it can be put back when n3/b0 answers again",
        "transactions": [{
            "txn": 7, "actor": "uid:0", "summary": "apply of plan 0123456789ab", "unix_ms": 0,
            "result": "committed", "state": "confirm-pending", "confirm_until_unix_ms": 3_600_000,
            "devices": [{"device": "n1/b0", "verdict": "applied", "detail": ""}],
        }],
    }));
    daemon.says("/v1/status", 200, wrong);
    let (code, shown, _) = run(&daemon, &["status"]);
    assert_eq!(code, 0, "{shown}");
    let lines = [
        "NO BYPASS LEFT, what breaks now is only reported: the daemon changed something automatically 10 times within an hour",
        "  find out why, then: lightloom ctl resume; or",
        "transaction 7 WAITS FOR ITS CONFIRM: apply of plan 0123456789ab, by uid:0: 4 min 59 s left, until 01:00:00, \
         then it is undone",
        "  keep it: lightloom ctl confirm 7; undo it: lightloom ctl rollback 7",
        "n2/b0 NEEDS A PERSON: slot 0 was read at 15",
        "lightloom ctl adopt n2/b0; or apply",
        "UNSEEN, 1 device: n3/b0 (no answer within 2 s)",
        "DRIFTED, 1 device elsewhere than the journal says: n1/b0",
        "  see where: lightloom ctl drift; take what is lit as ours: lightloom ctl adopt n1/b0; it can be put \
         back when n3/b0 answers again\n",
        "NO LIGHT in 1 fibre: n3/b0.1 sees -99.0 dBm of n4/b1.1",
        "  look at the fibre; bypass it: lightloom ctl fault n3/b0.1",
        "BROKEN, the plan goes around 2 parts: n4/b1, n17 (since 1970-01-01 00:00:00: reported by uid:0)",
        "  when it works again:\n    lightloom ctl fault --repaired n4/b1\n    lightloom ctl fault --repaired n17\n",
        "changes by the daemon itself within the last hour: 10 of 10",
        "0 of 2 devices as wanted",
        "who    what                        result",
        "  7  1970-01-01 00:00:00  uid:0  apply of plan 0123456789ab  committed, to confirm before 01:00:00  n1/b0",
    ];
    let places: Vec<usize> =
        lines.iter().map(|l| shown.find(l).unwrap_or_else(|| panic!("no {l}\n{shown}"))).collect();
    assert!(places.is_sorted(), "{shown}");
    assert!(!shown.contains("ALL IS WELL"));

    daemon.says("/v1/status", 200, status(json!({"journal_failure": "disk full"})));
    let (_, shown, _) = run(&daemon, &["status"]);
    let first = "JOURNAL CANNOT BE WRITTEN, changes are refused: disk full\n";
    let next = "  the light stays as it is and devices are read on: free space or repair the disk, and lightloomd \
                goes on automatically\n";
    assert!(shown.starts_with(&format!("{first}{next}")), "{shown}");
    assert!(shown.contains("as wanted"), "devices are read on: {shown}");
}

#[test]
fn no_drift_is_said_only_of_what_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let report = json!({"slots": [], "complete": true, "unseen": [], "journal_damage": null});
    let daemon = Daemon::plays(folder.path(), &[("/v1/drift", 200, report)]);
    let calm = "no drift: every device was read and stands as the journal says\n";
    assert_eq!(run(&daemon, &["drift"]), (0, calm.to_owned(), String::new()));

    let damage = json!({
        "file": "/state/journal.log", "line": 3, "byte": 714, "readable": 2,
        "reason": "it does not match its hash", "what_to_do": "move it away",
    });
    let report = json!({
        "slots": [], "complete": false, "unseen": ["ocs0"], "journal_damage": damage,
    });
    daemon.says("/v1/drift", 200, report);
    let (code, shown, _) = run(&daemon, &["drift"]);
    let unknown = "no drift where it can be seen, but that is not everywhere:\n\
        JOURNAL DAMAGED, what should stand where is not known: /state/journal.log line 3 (byte 714): \
        it does not match its hash; 2 records before it can be read\n  move it away\n\
        UNSEEN, 1 device: ocs0\n  why: lightloom ctl status\n";
    assert_eq!((code, shown.as_str()), (1, unknown));
    let (code, shown, _) = run(&daemon, &["drift", "--format", "json"]);
    assert!(code == 1 && shown.contains("\"complete\": false"), "{shown}");

    let moved = json!({"device": "n3/b0", "slot": 0, "ledger": 1, "device_says": 15});
    let report = json!({"slots": [moved], "complete": true, "unseen": []});
    daemon.says("/v1/drift", 200, report);
    let (code, shown, _) = run(&daemon, &["drift"]);
    let table = "device  part     journal says  device says\n\
        n3/b0   group 0  external-1    loopback\n";
    assert_eq!((code, shown.as_str()), (1, table));
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

#[test]
fn an_apply_that_waits_for_its_confirm_says_until_when_and_what_to_type() {
    let folder = tempfile::tempdir().unwrap();
    let past = json!({
        "txn": 3, "actor": "uid:0", "cause": "apply", "plan_sha256": "", "unix_ms": 0,
        "result": "committed", "devices": [{"device": "ocs0", "verdict": "applied", "detail": ""}],
        "state": "confirm-pending", "confirm_until_unix_ms": now_ms() + 299_900,
    });
    let daemon = Daemon::plays(
        folder.path(),
        &[
            ("/v1/apply", 202, json!({"answer": "accepted", "txn": 3})),
            ("/v1/transactions/3", 200, past),
        ],
    );
    let plan = folder.path().join("plan.json");
    std::fs::write(&plan, "{\"target\": {\"ocs0\": {\"1\": 25}}}").unwrap();
    let plan = plan.display().to_string();
    let (code, shown, _) = run(&daemon, &["apply", &plan, "--confirm-within", "5m"]);
    assert_eq!(code, 0);
    let (first, second) = shown.split_once('\n').unwrap();
    assert_eq!(first, "transaction 3: committed, 1 device");
    assert!(second.starts_with("confirm 3 before "), "{shown}");
    let end = " (in 5 min) with `lightloom ctl confirm 3`, or it is undone\n";
    assert!(second.ends_with(end), "{shown}");
}

#[test]
fn a_transaction_that_did_not_commit_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let past = json!({
        "txn": 9, "actor": "uid:0", "cause": "apply", "plan_sha256": "", "unix_ms": 0,
        "result": "aborted", "devices": [
            {"device": "n3/b0", "verdict": "refused", "detail": "switch element stuck"},
            {"device": "n4/b0", "verdict": "untouched", "detail": ""},
        ],
    });
    let accepted = json!({"answer": "accepted", "txn": 9});
    let answers = [("/v1/rollback", 202, accepted), ("/v1/transactions/9", 200, past)];
    let daemon = Daemon::plays(folder.path(), &answers);
    let (code, shown, _) = run(&daemon, &["rollback", "2"]);
    let expected = "transaction 9: aborted, 2 devices\n\
        device  verdict  why\nn3/b0   refused  switch element stuck\n\
        untouched: n4/b0\n\
        nothing moved: mend what is named, then apply again\n";
    assert_eq!((code, shown.as_str()), (1, expected));
}

#[test]
fn an_apply_that_cuts_light_is_refused_until_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let cut = |circuit: &str, cuts_light: bool| json!({"device": "ocs0", "slot": 1, "from": 9, "to": 10, "goes_dark": circuit, "cuts_light": cuts_light});
    let moves = json!([cut("ocs0 1-9", true), cut("ocs0 1-9", true), cut("ocs0 2-10", false)]);
    let past = json!({
        "txn": 3, "actor": "uid:0", "cause": "apply", "plan_sha256": "", "unix_ms": 0,
        "result": "committed", "state": "committed", "devices": [],
    });
    let answers = [
        ("/v1/diff", 200, preview(moves)),
        ("/v1/apply", 202, json!({"answer": "accepted", "txn": 3})),
        ("/v1/transactions/3", 200, past),
    ];
    let daemon = Daemon::plays(folder.path(), &answers);
    let plan = folder.path().join("plan.json");
    std::fs::write(&plan, "{\"target\": {\"ocs0\": {\"1\": 10}}}").unwrap();
    let plan = plan.display().to_string();
    let (code, _, said) = run(&daemon, &["apply", &plan]);
    let refused = "refused: this cuts 1 circuit with light: ocs0 1-9; with --dry-run it shows what moves, with \
                   --cut-light it is done\n";
    assert_eq!((code, said.as_str()), (1, refused));
    assert_eq!(run(&daemon, &["apply", &plan, "--cut-light"]).0, 0);
}

/// A preview of nothing but what is known to be broken.
fn preview(moves: Value) -> Value {
    let told = json!({"part": "n9", "since_unix_ms": 0, "why": "told by uid:0", "bypassed": true});
    json!({
        "version": 7, "confirmation": "", "moves": moves, "waves": 1, "dark_links_max": 1,
        "broken": [told], "forgets": [{"part": "n5", "since_unix_ms": null, "why": "", "bypassed": true}],
        "bytes": [{"device": "n1/b0", "requests": ["00 01"], "trouble": null}],
    })
}

#[test]
fn another_controller_is_never_well() {
    let folder = tempfile::tempdir().unwrap();
    let contended = json!([{
        "device": "ocs0", "times": 3, "first_unix_ms": 1, "last_unix_ms": 3_600_000, "stopped": true,
        "evidence": "port 1 was restored to port 9 and changed to port 10 again, 3 times within 20 s",
        "next": "stop the other controller; or keep what it sets: lightloom ctl adopt ocs0",
    }]);
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, quiet())]);
    daemon.says("/v1/status", 200, status(json!({"contended": contended})));
    let (_, shown, _) = run(&daemon, &["status"]);
    let said = "ANOTHER CONTROLLER changes ocs0: port 1 was restored to port 9 and changed to port 10 again, \
        3 times within 20 s, last at 01:00:00; nothing is restored on it now\n  stop the other controller; or \
        keep what it sets: lightloom ctl adopt ocs0\n";
    assert!(shown.starts_with(said), "{shown}");
    assert_eq!(run(&daemon, &["status", "--check"]).0, 1);
}

#[test]
fn crossed_cables_are_never_well() {
    let folder = tempfile::tempdir().unwrap();
    let end = |end: &str, lit_by: &str, should_be: &str| json!({"end": end, "lit_by": lit_by, "should_be": should_be});
    let crossed =
        json!([end("n1/b0.1", "n6/b1.1", "n5/b1.1"), end("n2/b0.1", "n5/b1.1", "n6/b1.1"),]);
    let told = "CROSSED CABLES? 2 ends: n1/b0.1 is lit by n6/b1.1 and should be by n5/b1.1, n2/b0.1 is lit by \
        n5/b1.1 and should be by n6/b1.1\n  swap the cables of n1/b0.1 and n2/b0.1 back; or go around: \
        lightloom ctl fault n1/b0.1 n2/b0.1\n";
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, quiet())]);
    assert_eq!(run(&daemon, &["status", "--check"]).0, 0);
    daemon.says("/v1/status", 200, status(json!({"crossed": crossed})));
    let (code, shown, _) = run(&daemon, &["status"]);
    assert!(code == 0 && shown.starts_with(told) && !shown.contains("ALL IS WELL"), "{shown}");
    assert_eq!(run(&daemon, &["status", "--check"]).0, 1);

    let report = json!({"slots": [], "crossed": crossed, "complete": true, "unseen": []});
    daemon.says("/v1/drift", 200, report);
    let (code, shown, _) = run(&daemon, &["drift"]);
    assert!(code == 1 && shown.ends_with(told), "{shown}");

    let past = json!({
        "txn": 3, "actor": "uid:0", "cause": "apply", "plan_sha256": "", "unix_ms": 0,
        "result": "committed", "state": "committed", "devices": [], "crossed": crossed,
    });
    daemon.says("/v1/confirm", 202, json!({"answer": "accepted", "txn": 3}));
    daemon.says("/v1/transactions/3", 200, past);
    let (code, shown, _) = run(&daemon, &["confirm", "3"]);
    assert_eq!((code, shown), (1, format!("transaction 3: committed, 0 devices, but {told}")));
}

#[test]
fn fewer_circuits_than_were_applied_are_told_with_the_way_to_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let fewer = |explained: bool| {
        let applied = json!({"plan_sha256": "fedc", "circuits": 2, "explained": explained});
        status(json!({ "applied": applied }))
    };
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, fewer(false))]);
    let (_, shown, _) = run(&daemon, &["status"]);
    let told = "FEWER CIRCUITS: 1 of the 2 circuits that could be lit, and no broken part explains it\n  \
        get the rest: lightloom ctl apply --again --cut-light\n";
    assert!(shown.starts_with(told), "{shown}");
    let line = "circuits that stand at both ends: 1 of 1; the applied plan has 2\n";
    assert!(shown.contains(line), "{shown}");
    daemon.says("/v1/status", 200, fewer(true));
    let (_, shown, _) = run(&daemon, &["status"]);
    assert!(shown.starts_with("ALL IS WELL") && shown.contains(line), "{shown}");
    let (code, _, said) = run(&daemon, &["apply"]);
    assert!(code == 2 && said.contains("<PLAN>"), "{said}");
}

#[test]
fn parts_are_named_with_commas_or_spaces_and_a_bypass_is_shown_before_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::plays(folder.path(), &[("/v1/faults/diff", 200, preview(json!([])))]);
    for parts in [
        &["n9,n10"][..],
        &["n9", "n10"],
        &["n9,", "n10"],
        &["n9,,n10,"],
        &["--repaired", "n9,n10"],
        &["--repaired", "n9", "n10"],
    ] {
        let arguments = [&["fault", "--dry-run"], parts].concat();
        let (code, shown, _) = run(&daemon, &arguments);
        assert!(code == 0 && shown.starts_with("nothing has to move"), "{shown}");
        let heard = daemon.heard();
        let key = if parts[0] == "--repaired" { "repaired" } else { "broken" };
        assert_eq!(heard[key], json!(["n9", "n10"]), "{heard}");
    }
    let (code, _, said) = run(&daemon, &["fault", "n7", "--repaired", "n7"]);
    assert!(code == 2 && said.contains("n7 cannot be broken and work again at once"), "{said}");
    let (code, _, said) = run(&daemon, &["fault", ","]);
    assert!(code == 2 && said.contains("name a part"), "{said}");
}

#[test]
fn a_socket_of_somebody_else_is_told_at_once_with_what_to_type() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("other");
    let listener = UnixListener::bind(&socket).unwrap();
    let told = |how: &str| {
        let began = Instant::now();
        let output = ctl(&socket, &["status"]).output().unwrap();
        assert!(began.elapsed() < Duration::from_millis(2500), "{:?}", began.elapsed());
        let said = String::from_utf8(output.stderr).unwrap();
        let other =
            format!("is not the socket of lightloomd: {how}. Name lightloomd's with --socket");
        assert!(output.status.code() == Some(1) && said.contains(&other), "{said}");
    };
    told("it does not answer");
    std::thread::spawn(move || {
        let mut clients = Vec::new();
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let _ = client.write_all(b"error: `GET` is no device\n");
            clients.push(client);
        }
    });
    told("its answers are not HTTP");

    let daemon = Daemon::plays(folder.path(), &[]);
    let control = daemon.socket.display().to_string();
    let fault = ["device", "fault", "--control", &control, "n1/b0", "lie"];
    let output = Command::new(programs::lightloom()).args(fault).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("is the socket of lightloomd, not of the devices: name the one"),
        "{said}"
    );
}

#[test]
fn a_rollback_is_shown_before_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let one = json!({
        "device": "n1/b0", "slot": 0, "from": 15, "to": 1, "wave": 1, "domain": "n1",
        "goes_dark": null, "comes_up": "n1/b0.1 - n2/b1.1", "answer_within_ps": 2_000_000_000_000u64,
    });
    let path = "/v1/rollback/diff";
    let daemon = Daemon::plays(folder.path(), &[(path, 200, preview(json!([one])))]);
    let (code, shown, _) = run(&daemon, &["rollback", "2", "--dry-run"]);
    let expected = "1 move on 1 device in 1 wave, against version 7\n\
        at most 1 link dark at a time\n\
        around what is known to be broken: n9 (since 1970-01-01 00:00:00: told by uid:0)\n\
        TAKEN TO WORK AGAIN: n5\n\n\
        wave  device  part     from      to          goes dark  comes up           failure domain\n   \
        1  n1/b0   group 0  loopback  external-1          -  n1/b0.1 - n2/b1.1  n1\n\n\
        no circuit goes dark\n\nbytes to 1 device: n1/b0\n  00 01\n";
    assert_eq!((code, shown.as_str()), (0, expected));

    let mut last = preview(json!([]));
    let undone = [(3, "bypass of n9", "policy:fault"), (1, "apply of plan 0123456789ab", "uid:0")];
    let undone = undone.map(|(txn, what, who)| json!({"txn": txn, "summary": what, "actor": who}));
    last["undoes"] = json!(undone);
    last["restores"] = json!([]);
    last["plan_sha256"] = json!("");
    last["no_plan_after"] = json!(true);
    last["circuits"] = json!({"before": 24, "after": 0});
    last["crossed"] = json!([{"end": "n1/b0.1", "lit_by": "n6/b1.1", "should_be": "n5/b1.1"}]);
    daemon.says(path, 200, last);
    let (_, shown, _) = run(&daemon, &["rollback", "1", "--dry-run"]);
    let expected = "nothing has to move: every device stands there already\n\
        undoes: 3 (bypass of n9, by policy:fault); 1 (apply of plan 0123456789ab, by uid:0)\n\
        NO PLAN remains after it: what breaks is not bypassed until one is applied\n\
        circuits that stand at both ends: 24 now, 0 after it\n\
        CROSSED CABLES? 1 end: n1/b0.1 is lit by n6/b1.1 and should be by n5/b1.1\n  \
        look where the cables lead; or go around: lightloom ctl fault n1/b0.1\n\
        around what is known to be broken: n9 (since 1970-01-01 00:00:00: told by uid:0)\n\
        TAKEN TO WORK AGAIN: n5\n";
    assert_eq!(shown, expected);

    daemon.says(path, 200, preview(json!([])));
    let (_, shown, _) = run(&daemon, &["rollback", "2", "--dry-run"]);
    let expected = "nothing has to move: every device stands there already\n\
        around what is known to be broken: n9 (since 1970-01-01 00:00:00: told by uid:0)\n\
        TAKEN TO WORK AGAIN: n5\n";
    assert_eq!(shown, expected);
}

#[test]
fn a_plan_that_was_let_through_says_which_broken_parts_it_forgot() {
    let folder = tempfile::tempdir().unwrap();
    let past = json!({
        "txn": 3, "actor": "uid:0", "cause": "apply", "plan_sha256": "", "unix_ms": 0,
        "result": "committed", "state": "committed", "devices": [], "repaired": ["n9", "n20/b0"],
    });
    let accepted = json!({"answer": "accepted", "txn": 3});
    let answers = [("/v1/apply", 202, accepted), ("/v1/transactions/3", 200, past)];
    let daemon = Daemon::plays(folder.path(), &answers);
    let plan = folder.path().join("plan.json");
    std::fs::write(&plan, "{\"target\": {}}").unwrap();
    let plan = plan.display().to_string();
    let (_, shown, _) = run(&daemon, &["apply", &plan, "--mode", "update"]);
    let expected = "transaction 3: committed, 0 devices\n\
        n9, n20/b0 taken to work again, as this plan has it; if not: lightloom ctl fault n9 n20/b0\n";
    assert_eq!(shown, expected);
}

#[test]
fn a_broken_part_that_no_plan_goes_around_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let lit =
        json!({"part": "n9", "since_unix_ms": null, "why": "told by uid:0", "bypassed": false});
    let told = |plan: &str| status(json!({"plan_sha256": plan, "broken_parts": [lit]}));
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, told("0123456789abcdef"))]);
    let (_, shown, _) = run(&daemon, &["status"]);
    let expected = "BROKEN, and no plan goes around 1 part: n9 (told by uid:0)\n  \
        bypass it: lightloom ctl fault n9\n";
    assert!(shown.starts_with(expected), "{shown}");
    let mut unplanned = told("");
    unplanned["circuits"] = json!([]);
    daemon.says("/v1/status", 200, unplanned);
    let (_, shown, _) = run(&daemon, &["status"]);
    let next = "  apply a plan made with --fault n9; when it works again: lightloom ctl fault --repaired n9\n";
    assert!(shown.contains(next), "{shown}");
    assert!(
        shown.contains("plan none, 12 journal records\ncircuits that stand at both ends: none")
    );
}

#[test]
fn one_dead_node_is_repaired_with_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let part = |name: &str, bypassed: bool| json!({"part": name, "why": "", "bypassed": bypassed});
    let told = |parts: &[&str], bypassed: bool| {
        let parts: Vec<Value> = parts.iter().map(|name| part(name, bypassed)).collect();
        status(json!({ "broken_parts": parts }))
    };
    let daemon = Daemon::plays(folder.path(), &[]);
    let next = |status: Value| {
        daemon.says("/v1/status", 200, status);
        let (_, shown, _) = run(&daemon, &["status"]);
        shown.split("\n\n").next().unwrap().split_once("\n  ").unwrap().1.to_owned()
    };
    let node = "when it works again: lightloom ctl fault --repaired n17";
    assert_eq!(next(told(&["n17", "n17/b0", "n17/b1"], true)), node);
    assert_eq!(next(told(&["n17/b0", "n17/b1"], true)), node);
    assert_eq!(
        next(told(&["n17/b0", "n17/b1", "n17/b0.2", "n1/b0"], true)),
        "when it works again:\n    lightloom ctl fault --repaired n1/b0\n    \
         lightloom ctl fault --repaired n17"
    );
    // A node is not told to be broken that is known by its modules alone.
    let bypass = |parts| next(told(parts, false));
    assert_eq!(bypass(&["n17", "n17/b0"]), "bypass it: lightloom ctl fault n17");
    assert_eq!(bypass(&["n17/b0", "n17/b1"]), "bypass it: lightloom ctl fault n17/b0 n17/b1");
}

#[test]
fn circuits_of_the_plan_that_do_not_stand_are_never_well_and_neither_is_no_plan() {
    let folder = tempfile::tempdir().unwrap();
    let dark = json!({
        "standing": 23, "circuits": 24, "ends": ["n3/b0.1"],
        "next": "light them again: lightloom ctl apply --again",
    });
    let unlit = status(json!({ "dark_circuits": dark }));
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, unlit)]);
    let (code, shown, _) = run(&daemon, &["status", "--check"]);
    let told = "DARK CIRCUITS: 23 of 24 circuits of the plan stand at both ends: not n3/b0.1\n  \
        light them again: lightloom ctl apply --again\n";
    assert!(code == 1 && shown.starts_with(told) && !shown.contains("ALL IS WELL"), "{shown}");

    let none = json!({"next": "light it: lightloom ctl apply PLAN"});
    let none = status(json!({"plan_sha256": "", "circuits": [], "no_plan": none}));
    daemon.says("/v1/status", 200, none);
    let (code, shown, _) = run(&daemon, &["status", "--check"]);
    let told = "NO PLAN is applied: no circuit is lit\n  light it: lightloom ctl apply PLAN\n";
    assert!(code == 1 && shown.starts_with(told) && !shown.contains("ALL IS WELL"), "{shown}");

    daemon.says(
        "/v1/status",
        200,
        status(json!({"other_fabric": "plan it again: lightloom plan ring.yaml"})),
    );
    let (code, shown, _) = run(&daemon, &["status", "--check"]);
    let told = "ANOTHER FABRIC: the plan on the devices was made from another file than lightloomd has read: \
        nothing that breaks can be bypassed\n  plan it again: lightloom plan ring.yaml\n";
    assert!(code == 1 && shown.starts_with(told) && !shown.contains("ALL IS WELL"), "{shown}");
}

#[test]
fn without_a_journal_nothing_is_offered_that_would_be_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = json!({
        "txn": 3, "actor": "uid:0", "cause": "apply", "summary": "apply of plan 4a28", "undoes": null,
        "going_back": false, "devices": 4, "waits_for_ps": {},
    });
    let broken =
        json!([{"part": "n6/b0", "bypassed": false, "since_unix_ms": null, "why": "silent"}]);
    let failed = json!({
        "journal_failure": "No space left on device", "transaction": open, "broken_parts": broken,
        "devices": [device("n6/b0", "unseen", Some("no answer"))],
    });
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, status(failed))]);
    let (code, shown, _) = run(&daemon, &["status", "--check"]);
    assert!(code == 1 && shown.starts_with("JOURNAL CANNOT BE WRITTEN, changes"), "{shown}");
    assert!(!shown.contains("ON ITS WAY") && !shown.contains("ctl fault"), "{shown}");
}

#[test]
fn an_audit_log_that_cannot_be_written_is_not_all_well() {
    let folder = tempfile::tempdir().unwrap();
    let full = status(json!({"audit_failure": "No space left on device"}));
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, full)]);
    let (code, shown, _) = run(&daemon, &["status", "--check"]);
    let first = "AUDIT LOG CANNOT BE WRITTEN, changes are refused: No space left on device\n";
    assert!(code == 1 && shown.starts_with(first), "{shown}");
    assert!(!shown.contains("ALL IS WELL"), "{shown}");
}

/// Plays a daemon that has no place for the first connections, no room for the next, and then answers.
#[test]
fn a_request_that_finds_no_place_or_no_room_is_sent_again_under_its_id() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("lightloomd.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (heard, answers) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    answers.lock().unwrap().push(("/v1/confirm".to_owned(), 200, json!({"answer": "done"})));
    let (kept, bodies) = (Arc::clone(&heard), Arc::clone(&heard));
    std::thread::spawn(move || {
        for (count, client) in listener.incoming().enumerate() {
            let client = client.unwrap();
            match count {
                // Closed with the request unread: the client sees a reset.
                0 | 1 => drop(client),
                2 => {
                    let all = Mutex::new(Vec::new());
                    let busy = Mutex::new(vec![(
                        "/v1/confirm".to_owned(),
                        429,
                        json!({"answer": "refused", "reasons": ["no room"]}),
                    )]);
                    answer(&client, &busy, &all);
                    kept.lock().unwrap().push(all.into_inner().unwrap());
                }
                _ => {
                    let all = Mutex::new(Vec::new());
                    answer(&client, &answers, &all);
                    kept.lock().unwrap().push(all.into_inner().unwrap());
                }
            }
        }
    });
    let daemon = Daemon { socket, heard: Arc::default(), answers: Arc::default() };
    let (code, shown, noted) = run(&daemon, &["confirm", "7"]);
    assert_eq!((code, shown.as_str()), (0, "transaction 7 is confirmed: it stays\n"), "{noted}");
    assert!(noted.contains("refused: no room; asking again in "), "{noted}");
    let bodies = bodies.lock().unwrap();
    assert!(bodies.len() == 2 && bodies[0] == bodies[1], "the same request, id and all");
}

#[test]
fn an_undo_on_its_way_comes_first_and_says_what_it_undoes_and_whom_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let open = json!({
        "txn": 3, "actor": "policy:confirm-timeout", "cause": "2 was not confirmed in time", "kind": "confirm-timeout", "undoes": 2,
        "going_back": false, "devices": 4, "waits_for_ps": {"n24/b0": 3_000_000_000_000_u64},
    });
    let silent = device("n24/b0", "unseen", Some("no answer"));
    let undone = status(json!({"transaction": open, "devices": [silent]}));
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, undone)]);
    let (_, shown, _) = run(&daemon, &["status"]);
    let told = "transaction 3 ON ITS WAY: undoes 2, which was not confirmed in time \
        (policy:confirm-timeout), 4 devices, going forward; waits for n24/b0, 3 s at most\n";
    assert!(shown.starts_with(told), "{shown}");
    assert_eq!(shown.matches("ON ITS WAY").count(), 1, "{shown}");

    let owed = json!({"what": "the undoing of 2", "why": "it does not answer", "next": "look at its line"});
    let silent = device("n24/b0", "unseen", Some("no answer"));
    let waits = status(json!({"owed": {"n24/b0": owed}, "devices": [silent]}));
    daemon.says("/v1/status", 200, waits);
    let (code, shown, _) = run(&daemon, &["status", "--check"]);
    let told =
        "n24/b0 IS OWED its part of the undoing of 2: it does not answer\n  look at its line\n";
    assert!(code == 1 && shown.starts_with(told), "{shown}");
    assert!(!shown.contains("UNSEEN") && !shown.contains("NEEDS A PERSON"), "{shown}");
}

#[test]
fn no_usage_line_shows_the_socket_as_if_it_had_to_be_typed() {
    let typed = |words: &[&str]| {
        let mut command = Command::new(programs::lightloom());
        command.arg("ctl").args(words).env("LIGHTLOOM_SOCKET", "/nowhere/lightloomd.sock");
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    for words in [&["apply"][..], &["confirm"], &["adopt"], &["fault", "--what"]] {
        let (code, said) = typed(words);
        assert!(code == Some(2) && said.contains("Usage: lightloom ctl "), "{said}");
        assert!(!said.contains("--socket"), "{said}");
    }
    let (_, help) = typed(&["confirm", "--help"]);
    assert!(help.contains("Usage: lightloom ctl confirm [OPTIONS] <TXN>\n"), "{help}");
    let default = "[default: what LIGHTLOOM_SOCKET says, or else /run/lightloom/lightloomd.sock]";
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains(&format!("--socket <PATH> The daemon's socket {default}")), "{help}");
    // The environment names it all the same.
    let (_, said) = typed(&["status"]);
    assert!(said.contains("/nowhere/lightloomd.sock"), "{said}");
}

/// A program that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_watch_outlives_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, quiet())]);
    let file = |name: &str| folder.path().join(name);
    let shown = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    let mut command = ctl(&daemon.socket, &["watch"]);
    command.stdout(std::fs::File::create(file("out")).unwrap());
    command.stderr(std::fs::File::create(file("err")).unwrap());
    let mut watch = Running(command.stdin(Stdio::null()).spawn().unwrap());
    until("the first page", || shown("out").contains("version 7"));

    daemon.goes_away();
    until("that it is away", || shown("err").contains("DAEMON AWAY since "));
    std::thread::sleep(Duration::from_millis(2500));
    assert!(watch.0.try_wait().unwrap().is_none(), "it goes on: {}", shown("err"));
    assert_eq!(shown("err").matches("DAEMON AWAY").count(), 1, "said once: {}", shown("err"));

    let back = status(json!({"version": 8}));
    let _daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, back)]);
    until("the page after it", || shown("out").contains("version 8"));
    assert!(shown("err").ends_with("lightloomd is back\n"), "{}", shown("err"));
}

#[test]
fn a_wait_says_what_it_waits_for_and_ends_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nobody.sock");
    let output = ctl(&nowhere, &["wait", "--for", "1500ms"]).output().unwrap();
    let noted = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let (first, last) = noted.split_once('\n').unwrap();
    assert!(first.starts_with("waiting, ") && first.contains("is it running?"), "{noted}");
    assert!(last.starts_with("error: cannot reach lightloomd"), "{noted}");

    let silent = device("n3/b0", "unseen", Some("no answer within 2 s"));
    let unread = status(json!({"devices": [silent]}));
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, unread)]);
    let (code, _, noted) = run(&daemon, &["wait", "--for", "1500ms"]);
    assert_eq!(code, 1);
    assert!(noted.contains(" left: not read yet: n3/b0 (no answer within 2 s)\n"), "{noted}");
    assert!(noted.ends_with("not read within 2 s: n3/b0 (no answer within 2 s)\n"), "{noted}");

    // What is dead and gone around is not waited for; what is only dead is.
    let dead = |bypassed: bool| {
        let silent = ["n3/b0", "n3/b1"].map(|name| device(name, "unseen", Some("no answer")));
        let part = json!({"part": "n3", "why": "told by uid:0", "bypassed": bypassed});
        let mut devices = silent.to_vec();
        devices.push(device("n1/b0", "as-wanted", None));
        status(json!({"devices": devices, "broken_parts": [part]}))
    };
    daemon.says("/v1/status", 200, dead(true));
    let told = "1 device read; n3/b0, n3/b1 cannot be read, and the plan goes around them\n";
    assert_eq!(run(&daemon, &["wait", "--for", "1s"]), (0, told.to_owned(), String::new()));
    daemon.says("/v1/status", 200, dead(false));
    let (code, _, noted) = run(&daemon, &["wait", "--for", "500ms"]);
    let told = "not read within 1 s: n3/b0 (no answer), n3/b1 (no answer)\n";
    assert!(code == 1 && noted.ends_with(told), "{noted}");
    // Who is named is waited for all the same, and nobody waits for a device that there is not.
    daemon.says("/v1/status", 200, dead(true));
    let (code, _, noted) = run(&daemon, &["wait", "n3", "--for", "500ms"]);
    assert!(code == 1 && noted.ends_with(told), "{noted}");
    let read = (0, "read: n1, n1/b0\n".to_owned(), String::new());
    assert_eq!(run(&daemon, &["wait", "n1,n1/b0"]), read);
    let (code, _, noted) = run(&daemon, &["wait", "n99"]);
    assert!(
        code == 1 && noted.contains("n99: no such device or node is configured here"),
        "{noted}"
    );
    // One that was not even tried yet may be alive.
    let mut young = dead(true);
    young["devices"][0]["trouble"] = Value::Null;
    daemon.says("/v1/status", 200, young);
    let (code, _, noted) = run(&daemon, &["wait", "--for", "500ms"]);
    assert!(code == 1 && noted.ends_with("not read within 1 s: n3/b0\n"), "{noted}");
}
