// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn apply_awaiting_confirm_shows_deadline_and_command() {
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
fn uncommitted_transaction_shows_the_next_step() {
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
        nothing moved: fix the listed devices, then apply again: lightloom ctl apply PLAN\n";
    assert_eq!((code, shown.as_str()), (1, expected));
}

#[test]
fn apply_that_cuts_light_requires_an_option() {
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
    let refused = "refused: this would cut 1 circuit with light: ocs0 1-9; preview it with --dry-run, or allow it with --cut-light\n";
    assert_eq!((code, said.as_str()), (1, refused));
    assert_eq!(run(&daemon, &["apply", &plan, "--cut-light"]).0, 0);
}

fn preview(moves: Value) -> Value {
    let broken =
        json!({"part": "n9", "since_unix_ms": 0, "why": "reported by uid:0", "bypassed": true});
    json!({
        "version": 7, "confirmation": "", "moves": moves, "waves": 1, "dark_links_max": 1,
        "broken": [broken], "forgets": [{"part": "n5", "since_unix_ms": null, "why": "", "bypassed": true}],
        "bytes": [{"device": "n1/b0", "requests": ["00 01"], "trouble": null}],
    })
}

#[test]
fn accepts_part_lists_and_previews_a_bypass() {
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
        assert!(code == 0 && shown.starts_with("no change needed"), "{shown}");
        let heard = daemon.heard();
        let key = if parts[0] == "--repaired" { "repaired" } else { "broken" };
        assert_eq!(heard[key], json!(["n9", "n10"]), "{heard}");
    }
    let (code, _, said) = run(&daemon, &["fault", "n7", "--repaired", "n7"]);
    assert!(code == 2 && said.contains("n7 is listed both as failed and as repaired"), "{said}");
    let (code, _, said) = run(&daemon, &["fault", ","]);
    assert!(code == 2 && said.contains("no part given"), "{said}");
}

#[test]
fn previews_a_rollback() {
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
        known faults afterwards: n9 (since 1970-01-01 00:00:00: reported by uid:0)\n\
        TREATED AS REPAIRED: n5\n\n\
        wave  device  part     from      to          comes up           failure domain\n   \
        1  n1/b0   group 0  loopback  external-1  n1/b0.1 - n2/b1.1  n1\n\n\
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
    let expected = "no change needed: every device is already in position\n\
        undoes: 3 (bypass of n9, by policy:fault); 1 (apply of plan 0123456789ab, by uid:0)\n\
        NO PLAN remains afterwards: faults are not bypassed until a plan is applied\n\
        circuits up: 24 now, 0 afterwards\n\
        CROSSED CABLES? 1 end: n1/b0.1 is lit by n6/b1.1 instead of n5/b1.1\n  \
        trace the cables; find swapped plugs: lightloom ctl commission FABRIC; or bypass: lightloom ctl fault n1/b0.1\n\
        known faults afterwards: n9 (since 1970-01-01 00:00:00: reported by uid:0)\n\
        TREATED AS REPAIRED: n5\n";
    assert_eq!(shown, expected);

    daemon.says(path, 200, preview(json!([])));
    let (_, shown, _) = run(&daemon, &["rollback", "2", "--dry-run"]);
    let expected = "no change needed: every device is already in position\n\
        known faults afterwards: n9 (since 1970-01-01 00:00:00: reported by uid:0)\n\
        TREATED AS REPAIRED: n5\n";
    assert_eq!(shown, expected);
}

#[test]
fn accepted_plan_lists_the_failed_parts_it_uses() {
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
        this plan treats n9, n20/b0 as repaired; if that is wrong: lightloom ctl fault n9 n20/b0\n";
    assert_eq!(shown, expected);
}

#[test]
fn one_command_repairs_a_failed_node() {
    let folder = tempfile::tempdir().unwrap();
    let part = |name: &str, bypassed: bool| json!({"part": name, "why": "", "bypassed": bypassed});
    let broken = |parts: &[&str], bypassed: bool| {
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
    assert_eq!(next(broken(&["n17", "n17/b0", "n17/b1"], true)), node);
    assert_eq!(next(broken(&["n17/b0", "n17/b1"], true)), node);
    assert_eq!(
        next(broken(&["n17/b0", "n17/b1", "n17/b0.2", "n1/b0"], true)),
        "when it works again:\n    lightloom ctl fault --repaired n1/b0\n    \
         lightloom ctl fault --repaired n17"
    );
    // A node is listed as failed only if it was reported itself.
    let bypass = |parts| next(broken(parts, false));
    assert_eq!(bypass(&["n17", "n17/b0"]), "bypass it: lightloom ctl fault n17");
    assert_eq!(bypass(&["n17/b0", "n17/b1"]), "bypass it: lightloom ctl fault n17/b0 n17/b1");
}

#[test]
fn request_is_repeated_with_its_id_when_the_daemon_is_busy() {
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
    assert_eq!(
        (code, shown.as_str()),
        (0, "transaction 7 is confirmed and will not be rolled back\n"),
        "{noted}"
    );
    assert!(noted.contains("refused: no room; retrying in "), "{noted}");
    let bodies = bodies.lock().unwrap();
    assert!(bodies.len() == 2 && bodies[0] == bodies[1], "the same request, id and all");
}
