// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn daemon_without_devices_is_not_healthy() {
    let folder = tempfile::tempdir().unwrap();
    let idle = status(json!({"devices": [], "circuits": []}));
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, idle)]);
    let (code, shown, _) = run(&daemon, &["status", "--check"]);
    let starts = "NO DEVICES: this daemon drives no devices\n  list transceivers";
    assert!(code == 1 && shown.starts_with(starts) && !shown.contains("ALL IS WELL"), "{shown}");
}

#[test]
fn status_shows_problems_first_and_commands_to_run() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, quiet())]);
    let (code, shown, _) = run(&daemon, &["status"]);
    let calm = "ALL IS WELL\n\nversion 7, plan 0123456789ab, 12 journal records\n\
        circuits up: 1 of 1 (both ends)\n1 of 1 device in the desired state\n\
        device  state      position    identity or trouble\n\
        n1/b0   as-wanted  external-1  maker,module\n\nno transactions yet\n";
    assert_eq!((code, shown.as_str()), (0, calm));

    let silent = device("n3/b0", "unseen", Some("no answer within 2 s"));
    let wrong = status(json!({
        "attention": {"n2/b0": "slot 0 was read at 15"},
        "attention_next": {"n2/b0": "accept its position: lightloom ctl adopt n2/b0; or apply again"},
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
        "NO BYPASS LEFT, further faults are only reported: 10 automatic changes within an hour",
        "  find out why: lightloom ctl journal; then: lightloom ctl resume; or",
        "transaction 7 AWAITS CONFIRMATION: apply of plan 0123456789ab, by uid:0: 4 min 59 s left, until 01:00:00, \
         then it is undone",
        "  keep it: lightloom ctl confirm 7; undo it: lightloom ctl rollback 7",
        "n2/b0 NEEDS ACTION: slot 0 was read at 15",
        "lightloom ctl adopt n2/b0; or apply",
        "UNSEEN, 1 device: n3/b0 (no answer within 2 s)",
        "DRIFTED, 1 device out of step with the journal: n1/b0",
        "  see where: lightloom ctl drift; take what is lit as ours: lightloom ctl adopt n1/b0; it can be put \
         back when n3/b0 answers again\n",
        "NO LIGHT in 1 fibre: n3/b0.1 receives -99.0 dBm from n4/b1.1",
        "  check the fibre; bypass it: lightloom ctl fault n3/b0.1",
        "DEGRADED, 2 parts bypassed: n4/b1, n17 (since 1970-01-01 00:00:00: reported by uid:0)",
        "  when it works again:\n    lightloom ctl fault --repaired n4/b1\n    lightloom ctl fault --repaired n17\n",
        "automatic changes within the last hour: 10 of 10",
        "0 of 2 devices in the desired state",
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
    let next = "  circuits stay lit and devices are still read: free space or repair the disk, and lightloomd \
                resumes automatically; follow its state: lightloom ctl watch\n";
    assert!(shown.starts_with(&format!("{first}{next}")), "{shown}");
    assert!(shown.contains("in the desired state"), "devices are read on: {shown}");
}

#[test]
fn no_drift_is_reported_only_for_devices_that_were_read() {
    let folder = tempfile::tempdir().unwrap();
    let report = json!({"slots": [], "complete": true, "unseen": [], "journal_damage": null});
    let daemon = Daemon::plays(folder.path(), &[("/v1/drift", 200, report)]);
    let calm = "no drift: every device was read and matches the journal\n";
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
    let unknown = "no drift found, but the check is incomplete:\n\
        JOURNAL DAMAGED, the intended positions are unknown: /state/journal.log line 3 (byte 714): \
        it does not match its hash; 2 records before it can be read\n  move it away\n\
        UNSEEN, 1 device: ocs0\n  why: lightloom ctl status\n";
    assert_eq!((code, shown.as_str()), (1, unknown));
    let (code, shown, _) = run(&daemon, &["drift", "--format", "json"]);
    assert!(code == 1 && shown.contains("\"complete\": false"), "{shown}");

    let moved = json!({"device": "n3/b0", "slot": 0, "ledger": 1, "device_says": 15});
    let report = json!({"slots": [moved], "complete": true, "unseen": []});
    daemon.says("/v1/drift", 200, report);
    let (code, rows, _) = run(&daemon, &["drift", "--format", "csv"]);
    assert_eq!((code, rows.as_str()), (1, "device,slot,ledger,device_says\nn3/b0,0,1,15\n"));
    let (code, _, refusal) = run(&daemon, &["watch", "--format", "csv"]);
    assert!(code == 2 && refusal.contains("support csv and markdown"), "{refusal}");
    let (code, shown, _) = run(&daemon, &["drift"]);
    let table = "device  part     journal says  device says\n\
        n3/b0   group 0  external-1    loopback\n";
    assert_eq!((code, shown.as_str()), (1, table));
}

#[test]
fn another_controller_is_never_healthy() {
    let folder = tempfile::tempdir().unwrap();
    let contended = json!([{
        "device": "ocs0", "times": 3, "first_unix_ms": 1, "last_unix_ms": 3_600_000, "stopped": true,
        "evidence": "port 1 was restored to port 9 and changed to port 10 again, 3 times within 20 s",
        "next": "stop the other controller; or keep its setting: lightloom ctl adopt ocs0",
    }]);
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, quiet())]);
    daemon.says("/v1/status", 200, status(json!({"contended": contended})));
    let (_, shown, _) = run(&daemon, &["status"]);
    let said = "ANOTHER CONTROLLER changes ocs0: port 1 was restored to port 9 and changed to port 10 again, \
        3 times within 20 s, last at 01:00:00; restores are stopped\n  stop the other controller; or \
        keep its setting: lightloom ctl adopt ocs0\n";
    assert!(shown.starts_with(said), "{shown}");
    assert_eq!(run(&daemon, &["status", "--check"]).0, 1);
}

#[test]
fn crossed_cables_are_never_healthy() {
    let folder = tempfile::tempdir().unwrap();
    let end = |end: &str, lit_by: &str, should_be: &str| json!({"end": end, "lit_by": lit_by, "should_be": should_be});
    let crossed =
        json!([end("n1/b0.1", "n6/b1.1", "n5/b1.1"), end("n2/b0.1", "n5/b1.1", "n6/b1.1"),]);
    let expected = "CROSSED CABLES? 2 ends: n1/b0.1 is lit by n6/b1.1 instead of n5/b1.1, n2/b0.1 \
        is lit by n5/b1.1 instead of n6/b1.1\n  swap the cables of n1/b0.1 and n2/b0.1 back; find \
        swapped plugs: lightloom ctl commission FABRIC; or bypass: lightloom ctl fault n1/b0.1 \
        n2/b0.1\n";
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, quiet())]);
    assert_eq!(run(&daemon, &["status", "--check"]).0, 0);
    daemon.says("/v1/status", 200, status(json!({"crossed": crossed})));
    let (code, shown, _) = run(&daemon, &["status"]);
    assert!(code == 0 && shown.starts_with(expected) && !shown.contains("ALL IS WELL"), "{shown}");
    assert_eq!(run(&daemon, &["status", "--check"]).0, 1);

    let report = json!({"slots": [], "crossed": crossed, "complete": true, "unseen": []});
    daemon.says("/v1/drift", 200, report);
    let (code, shown, _) = run(&daemon, &["drift"]);
    assert!(code == 1 && shown.ends_with(expected), "{shown}");

    let past = json!({
        "txn": 3, "actor": "uid:0", "cause": "apply", "plan_sha256": "", "unix_ms": 0,
        "result": "committed", "state": "committed", "devices": [], "crossed": crossed,
    });
    daemon.says("/v1/confirm", 202, json!({"answer": "accepted", "txn": 3}));
    daemon.says("/v1/transactions/3", 200, past);
    let (code, shown, _) = run(&daemon, &["confirm", "3"]);
    assert_eq!((code, shown), (1, format!("transaction 3: committed, 0 devices, but {expected}")));
}

#[test]
fn missing_circuits_are_shown_with_the_command_to_restore_them() {
    let folder = tempfile::tempdir().unwrap();
    let fewer = |explained: bool| {
        let applied = json!({"plan_sha256": "fedc", "circuits": 2, "explained": explained});
        status(json!({ "applied": applied }))
    };
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, fewer(false))]);
    let (_, shown, _) = run(&daemon, &["status"]);
    let expected = "FEWER CIRCUITS: 1 of 2 possible circuits are lit, and no failed part explains the difference\n  \
        apply the rest of the plan: lightloom ctl apply --again --cut-light\n";
    assert!(shown.starts_with(expected), "{shown}");
    let line = "circuits up: 1 of 1 (both ends); the applied plan has 1 more\n";
    assert!(shown.contains(line), "{shown}");
    daemon.says("/v1/status", 200, fewer(true));
    let (_, shown, _) = run(&daemon, &["status"]);
    assert!(shown.starts_with("ALL IS WELL") && shown.contains(line), "{shown}");
    let (code, _, said) = run(&daemon, &["apply"]);
    assert!(code == 2 && said.contains("<PLAN>"), "{said}");
}

#[test]
fn shows_failed_parts_that_no_plan_bypasses() {
    let folder = tempfile::tempdir().unwrap();
    let lit =
        json!({"part": "n9", "since_unix_ms": null, "why": "reported by uid:0", "bypassed": false});
    let of = |plan: &str| status(json!({"plan_sha256": plan, "broken_parts": [lit]}));
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, of("0123456789abcdef"))]);
    let (_, shown, _) = run(&daemon, &["status"]);
    let expected = "NOT BYPASSED, 1 part at fault: n9 (reported by uid:0)\n  \
        bypass it: lightloom ctl fault n9\n";
    assert!(shown.starts_with(expected), "{shown}");
    let mut unplanned = of("");
    unplanned["circuits"] = json!([]);
    daemon.says("/v1/status", 200, unplanned);
    let (_, shown, _) = run(&daemon, &["status"]);
    let next = "  plan around it: lightloom plan FABRIC --fault n9; when it works again, apply any plan: lightloom ctl apply \
                PLAN --mode update\n";
    assert!(shown.contains(next), "{shown}");
    assert!(shown.contains("plan none, 12 journal records\ncircuits up: 0\n"));
}

#[test]
fn dark_planned_circuits_and_a_missing_plan_are_never_healthy() {
    let folder = tempfile::tempdir().unwrap();
    let dark = json!({
        "standing": 23, "circuits": 24, "ends": ["n3/b0.1"],
        "next": "light them again: lightloom ctl apply --again",
    });
    let unlit = status(json!({ "dark_circuits": dark }));
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, unlit)]);
    let (code, shown, _) = run(&daemon, &["status", "--check"]);
    let expected = "DARK CIRCUITS: 23 of 24 planned circuits are up at both ends; dark: n3/b0.1\n  \
        light them again: lightloom ctl apply --again\n";
    assert!(code == 1 && shown.starts_with(expected) && !shown.contains("ALL IS WELL"), "{shown}");

    let none = json!({"next": "light it: lightloom ctl apply PLAN"});
    let none = status(json!({"plan_sha256": "", "circuits": [], "no_plan": none}));
    daemon.says("/v1/status", 200, none);
    let (code, shown, _) = run(&daemon, &["status", "--check"]);
    let expected = "NO PLAN is applied: no circuit is lit\n  light it: lightloom ctl apply PLAN\n";
    assert!(code == 1 && shown.starts_with(expected) && !shown.contains("ALL IS WELL"), "{shown}");

    daemon.says(
        "/v1/status",
        200,
        status(json!({"other_fabric": "plan it again: lightloom plan ring.yaml"})),
    );
    let (code, shown, _) = run(&daemon, &["status", "--check"]);
    let expected = "ANOTHER FABRIC: the plan in force was made from a different fabric file, so faults cannot be \
                    bypassed\n  plan it again: lightloom plan ring.yaml\n";
    assert!(code == 1 && shown.starts_with(expected) && !shown.contains("ALL IS WELL"), "{shown}");
}

#[test]
fn suggests_no_refused_commands_without_a_journal() {
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
    assert!(!shown.contains("IN PROGRESS") && !shown.contains("ctl fault"), "{shown}");
}

#[test]
fn unwritable_audit_log_is_not_healthy() {
    let folder = tempfile::tempdir().unwrap();
    let full = status(json!({"audit_failure": "No space left on device"}));
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, full)]);
    let (code, shown, _) = run(&daemon, &["status", "--check"]);
    let first = "AUDIT LOG CANNOT BE WRITTEN, changes are refused: No space left on device\n";
    assert!(code == 1 && shown.starts_with(first), "{shown}");
    assert!(!shown.contains("ALL IS WELL"), "{shown}");
}

#[test]
fn undo_in_progress_is_shown_first_with_its_waits() {
    let folder = tempfile::tempdir().unwrap();
    let open = json!({
        "txn": 3, "actor": "policy:confirm-timeout", "cause": "2 was not confirmed in time", "kind": "confirm-timeout", "undoes": 2,
        "going_back": false, "devices": 4, "waits_for_ps": {"n24/b0": 3_000_000_000_000_u64},
    });
    let silent = device("n24/b0", "unseen", Some("no answer"));
    let undone = status(json!({"transaction": open, "devices": [silent]}));
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, undone)]);
    let (_, shown, _) = run(&daemon, &["status"]);
    let expected = "transaction 3 IN PROGRESS: undoes 2, which was not confirmed in time \
        (policy:confirm-timeout), 4 devices, going forward; waits for n24/b0, 3 s at most\n";
    assert!(shown.starts_with(expected), "{shown}");
    assert_eq!(shown.matches("IN PROGRESS").count(), 1, "{shown}");

    let deferred = json!({"what": "the undo of 2", "why": "it does not answer", "next": "check its management line and power"});
    let silent = device("n24/b0", "unseen", Some("no answer"));
    let waits = status(json!({"owed": {"n24/b0": deferred}, "devices": [silent]}));
    daemon.says("/v1/status", 200, waits);
    let (code, shown, _) = run(&daemon, &["status", "--check"]);
    let expected = "n24/b0 DEFERRED its part of the undo of 2: it does not answer\n  check its management line and power: lightloom ctl wait n24/b0\n";
    assert!(code == 1 && shown.starts_with(expected), "{shown}");
    assert!(!shown.contains("UNSEEN") && !shown.contains("NEEDS ACTION"), "{shown}");
}
