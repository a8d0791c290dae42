// SPDX-License-Identifier: Apache-2.0
//! A program requests phases over plain HTTP, an operator requests them with `lightloom ctl phase`,
//! and minimal clients read the light paths of emulated switches.

use crate::failing_disk::{Failing, Fault, Plan};
use crate::phases_rig as rig;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use rig::{Rig, Third};
use serde_json::{Value, json};

fn asked(id: &str, phase: &str, in_ms: u64, for_ms: u64, job: &str) -> Value {
    let lease_ms = in_ms + for_ms;
    json!({"request_id": id, "phase": phase, "in_ms": in_ms, "for_ms": for_ms, "lease_ms": lease_ms, "job": job})
}

fn became(rig: &Rig, id: &str) -> Value {
    let (code, status) = rig.http("GET", &format!("/v1/phase/{id}?wait_ms=30000"), &Value::Null);
    assert_eq!(code, 200, "{status}");
    status
}

fn refused(rig: &Rig, body: &Value) -> (u16, String) {
    let (code, answer) = rig.http("POST", "/v1/phase", body);
    assert_eq!(answer["answer"], "phase-refused", "{answer}");
    assert!(!answer["reason"].as_str().unwrap().is_empty(), "{answer}");
    assert!(!answer["fix"].as_str().unwrap().is_empty(), "{answer}");
    (code, answer["code"].as_str().unwrap().to_owned())
}

#[test]
fn job_receives_its_phase_or_the_reason_for_refusal() {
    let rig = Rig::start(Third::Tl1).unwrap();
    let dark = asked("a", "weights", 0, 60_000, "train");
    assert_eq!(refused(&rig, &dark), (422, "no-plan".into()));
    rig.ctl(&["apply", "PLAN", "--phase", "experts"]);
    let experts = rig.lit();

    let (code, answer) = rig.http("POST", "/v1/phase", &dark);
    assert_eq!((code, &answer["answer"]), (202, &json!("booked")), "{answer}");
    let status = became(&rig, "a");
    assert_eq!((&status["state"], &status["lit"]), (&json!("lit"), &json!("weights")), "{status}");
    assert_eq!(status["next"]["phase"], "experts", "{status}");
    let weights = rig.lit();
    assert_ne!(weights, experts);
    // The switches take 150 ms in each of three stages.
    let dark_ms = status["dark_ms"].as_f64().unwrap();
    assert!((450.0..5_000.0).contains(&dark_ms), "{status}");
    // A retry takes effect once, and a different request with its id is refused.
    assert_eq!(rig.http("POST", "/v1/phase", &dark).0, 202);
    let other = asked("a", "experts", 0, 60_000, "train");
    assert_eq!(refused(&rig, &other), (409, "other-request".into()));

    let other = asked("b", "experts", 0, 60_000, "infer");
    assert_eq!(refused(&rig, &other), (409, "lease-held".into()));
    let back = json!({"request_id": "r", "job": "train"});
    assert_eq!(rig.http("POST", "/v1/phase/release", &back).1["answer"], "done");

    // The phase is too short to pay for the transitions, and the answer states the required
    // duration.
    let short = asked("c", "experts", 0, 1, "infer");
    assert_eq!(rig.http("POST", "/v1/phase", &short).0, 202);
    let status = became(&rig, "c");
    assert_eq!((&status["state"], &status["lit"]), (&json!("kept"), &json!("weights")), "{status}");
    let needs = status["needs_ms"].as_f64().unwrap();
    assert!(needs > 1.0 && status["reason"].as_str().unwrap().contains("too short"), "{status}");
    assert_eq!(rig.lit(), weights, "no light moved");
    let enough = asked("d", "experts", 0, needs.ceil() as u64 * 2, "infer");
    rig.http("POST", "/v1/phase", &enough);
    assert_eq!(became(&rig, "d")["state"], "lit");
    assert_eq!(rig.lit(), experts);
}

#[test]
fn rejected_phase_has_a_code_reason_and_fix() {
    let rig = Rig::start(Third::Tl1).unwrap();
    rig.ctl(&["apply", "PLAN", "--phase", "experts"]);
    let lit = rig.lit();
    let with = |field: &str, value: Value| {
        let mut body = asked("x", "weights", 0, 60_000, "train");
        body["lease_ms"] = json!(3_600_000);
        body[field] = value;
        refused(&rig, &body)
    };
    assert_eq!(with("phase", json!("sync")), (422, "no-such-phase".into()));
    assert_eq!(with("revision", json!("0123456789abcdef")), (409, "other-plan".into()));
    assert_eq!(with("lease_ms", json!(10)), (422, "lease-too-short".into()));
    assert_eq!(with("for_ms", json!(0)), (422, "out-of-range".into()));
    assert_eq!(with("in_ms", json!(3_600_001)), (422, "out-of-range".into()));
    let (code, answer) = rig.http("POST", "/v1/phase", &json!({"phase": "weights"}));
    assert_eq!(code, 422);
    assert!(answer["reasons"][0].as_str().unwrap().contains("`request_id` is missing"), "{answer}");

    // A waiting request blocks others; the digest identifies the plan.
    let (_, phases) = rig.http("GET", "/v1/phases", &Value::Null);
    assert_eq!((&phases["lit"], &phases["waiting"]), (&json!("experts"), &json!([])), "{phases}");
    let mut ahead = asked("ahead", "weights", 30_000, 60_000, "train");
    ahead["revision"] = json!(&phases["revision"].as_str().unwrap()[..8]);
    assert_eq!(rig.http("POST", "/v1/phase", &ahead).0, 202);
    assert_eq!(with("in_ms", json!(40_000)), (409, "overlaps".into()));
    let said = rig.ctl(&["phase"]);
    assert!(said.contains("phase experts has light"), "{said}");
    assert!(said.contains("weights waits for job train"), "{said}");
    let said = rig.ctl_in_vain(&["phase", "weights", "--for", "5m"]);
    assert!(said.contains("refused (lease-held): the job `train` of uid:"), "{said}");
    let said = rig.ctl(&["phase", "--release", "--job", "train"]);
    assert!(said.contains("released: lit circuits stay up"), "{said}");
    assert_eq!(became(&rig, "ahead")["reason"], "the job released its lease");
    assert_eq!(rig.lit(), lit, "no light moved");

    let said = rig.ctl(&["phase", "weights", "--for", "5m"]);
    assert!(said.contains("phase weights has light: transaction 2, dark for"), "{said}");
    assert!(said.contains("the next phase is experts: its transition takes"), "{said}");
    let said = rig.ctl_in_vain(&["phase", "experts", "--for", "1ms"]);
    assert!(said.contains("phase experts was not set up, weights stays up: 1 ms is"), "{said}");
    let journal = rig.ctl(&["journal"]);
    assert!(journal.contains("phase weights in the plan's 3 stages from experts"), "{journal}");
}

#[test]
fn phase_requested_ahead_starts_in_time() {
    let rig = Rig::start(Third::Tl1).unwrap();
    rig.ctl(&["apply", "PLAN", "--phase", "experts"]);
    for (id, phase) in [("1", "weights"), ("2", "experts")] {
        rig.http("POST", "/v1/phase", &asked(id, phase, 0, 60_000, "train"));
        assert_eq!(became(&rig, id)["state"], "lit");
    }
    let experts = rig.lit();
    let began = Instant::now();
    let wanted = Duration::from_secs(5);
    rig.http("POST", "/v1/phase", &asked("3", "weights", 5_000, 60_000, "train"));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(rig.lit(), experts, "the circuits in use keep their light until it is time");
    let status = became(&rig, "3");
    let at = began.elapsed();
    assert_eq!(status["state"], "lit", "{status}");
    let late = Duration::from_secs(2);
    assert!(at < wanted + late, "acknowledged after {at:?}: {status}");
}

#[test]
fn phase_requested_during_a_change_follows_it() {
    let rig = Rig::start(Third::Tl1).unwrap();
    rig.ctl(&["apply", "PLAN", "--phase", "experts"]);
    let experts = rig.lit();
    assert_eq!(rig.http("POST", "/v1/phase", &asked("a", "weights", 0, 60_000, "train")).0, 202);
    std::thread::sleep(Duration::from_millis(100));
    assert_ne!(rig.lit(), experts, "it is on its way");
    rig.restart();
    let other = asked("other", "experts", 0, 1_000, "other");
    assert_eq!(refused(&rig, &other), (409, "lease-held".into()), "a lease outlives the daemon");
    assert_eq!(rig.http("POST", "/v1/phase", &asked("b", "experts", 0, 60_000, "train")).0, 202);
    let status = became(&rig, "b");
    assert_eq!((&status["state"], &status["txn"]), (&json!("lit"), &json!(3)), "{status}");
    assert_eq!(rig.lit(), experts);
    let (code, _) = rig.http("GET", "/v1/phase/a", &Value::Null);
    assert_eq!(code, 404, "what waits is asked for again");
}

#[test]
fn failing_or_slow_before_hook_stops_the_change() {
    let rig = Rig::start(Third::Tl1).unwrap();
    let dark = rig.lit();
    let heard = rig.path("heard");
    let script = format!("cat > {heard}; echo the job is busy >&2; exit 3");
    rig.with(&format!("hooks: {{before: {{command: [sh, -c, '{script}'], within: 20s}}}}\n"));
    let said = rig.refused(&rig.plan(), &["--phase", "experts"]);
    assert!(
        said.contains("the hook `before` refused the change") && said.contains("the job is busy"),
        "{said}"
    );
    let heard: Value = serde_json::from_slice(&std::fs::read(heard).unwrap()).unwrap();
    assert_eq!((&heard["hook"], &heard["change"]["verb"]), (&json!("before"), &json!("apply")));
    assert_eq!(heard["change"]["devices"], json!(["ocs0", "ocs1", "ocs2"]), "{heard}");
    rig.with("hooks: {before: {command: [sleep, '60'], within: 200ms}}\n");
    let said = rig.refused(&rig.plan(), &["--phase", "experts"]);
    assert!(said.contains("`sleep 60` did not finish within 200 ms and was killed"), "{said}");
    assert_eq!(rig.lit(), dark, "no light moved");
    rig.with("hooks: {before: {command: ['true']}}\n");
    rig.ctl(&["apply", "PLAN", "--phase", "experts"]);
}

fn loopback(rig: &Rig) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, socket) = (listener.local_addr().unwrap(), rig.socket());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(daemon) = std::os::unix::net::UnixStream::connect(&socket) else { return };
            let (mut to, mut from) = (daemon.try_clone().unwrap(), daemon);
            let (mut asked, mut answered) = (client.try_clone().unwrap(), client);
            std::thread::spawn(move || std::io::copy(&mut asked, &mut to));
            std::thread::spawn(move || std::io::copy(&mut from, &mut answered));
        }
    });
    format!("http://{at}")
}

/// The loop of docs/phases.md runs with a minimal torch stand-in and without certificates.
#[test]
fn documented_loop_receives_its_phases() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/phases.md"));
    let page = page.unwrap();
    let code = page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let lines =
        code.lines().filter(|line| !line.contains("TLS.load") && !line.starts_with("import torch"));
    let rig = Rig::start(Third::Tl1).unwrap();
    rig.ctl(&["apply", "PLAN", "--phase", "weights"]);
    let code = lines.collect::<Vec<_>>().join("\n").replace(
        "DAEMON, TLS = \"https://lightloomd:8443\", ssl.create_default_context(cafile=\"ca.pem\")",
        &format!("DAEMON, TLS = \"{}\", None", loopback(&rig)),
    );
    let code = code.replace("60_000", "600_000").replace("2_000", "60_000");
    let torch = "class dist:\n    get_rank = staticmethod(lambda: 0)\n    barrier = staticmethod(lambda: None)\n    \
                 all_reduce = staticmethod(lambda grad: None)\nclass Any:\n    grad = None\n    \
                 def __call__(self, *_): return self\n    def __getattr__(self, _): return self\n    \
                 def __iter__(self): return iter([])\n";
    let run = "\nfor _ in range(2): step(Any(), Any(), Any())\n";
    let python =
        std::process::Command::new("python3").args(["-c", &[torch, &code, run].concat()]).output();
    let Ok(said) = python else {
        eprintln!("skipped: no python3");
        return;
    };
    assert!(said.status.success() && said.stdout.is_empty(), "{said:?}");
    let journal = rig.ctl(&["journal"]);
    assert_eq!(journal.matches("phase experts in the plan's").count(), 2, "{journal}");
    assert_eq!(journal.matches("phase weights in the plan's").count(), 2, "{journal}");
}

#[test]
fn another_plan_ends_the_lease_and_drops_waiting_phases() {
    let rig = Rig::start(Third::Tl1).unwrap();
    rig.ctl(&["apply", "PLAN", "--phase", "experts"]);
    let waits = asked("w", "weights", 60_000, 60_000, "train");
    assert_eq!(rig.http("POST", "/v1/phase", &waits).0, 202);
    rig.ctl(&["rollback", "1", "--cut-light"]);
    assert_eq!(became(&rig, "w")["reason"], "another plan has been applied since");
    assert_eq!(rig.http("GET", "/v1/phases", &Value::Null).1["lease"], Value::Null);
    assert_eq!(refused(&rig, &asked("y", "weights", 0, 60_000, "other")), (422, "no-plan".into()));
}

/// The disk fails at each write of a phase. The job receives `lit` only if the journal says `committed`, both
/// immediately and later.
#[test]
fn phase_is_acknowledged_only_after_its_end_is_stored() {
    let rig = Rig::start(Third::Tl1).unwrap();
    let state = |id: &str, wait_ms: u32| {
        let (code, status) =
            rig.http("GET", &format!("/v1/phase/{id}?wait_ms={wait_ms}"), &Value::Null);
        if code == 200 { status } else { Value::Null }
    };
    let failure = || rig.http("GET", "/v1/status", &Value::Null).1["journal_failure"].clone();
    rig.ctl(&["apply", "PLAN", "--phase", "experts"]);
    let (mut failed, mut acknowledged) = (0, 0);
    for (number, fault) in [Fault::Sync, Fault::Write(ErrorKind::Other)].into_iter().enumerate() {
        for after in 0..5 {
            let id = format!("{number}-{after}");
            let disk = Plan::default();
            let fails = disk.clone();
            rig.restart_on(Box::new(move |file: &Path| Failing::open(file, fails)));
            let lit = rig.http("GET", "/v1/phases", &Value::Null).1["lit"].clone();
            let phase = if lit == "weights" { "experts" } else { "weights" };
            *disk.lock().unwrap() = Some((fault, after));
            let mut body = asked(&id, phase, 0, 60_000, "train");
            body["lease_ms"] = json!(60_000);
            let _booked_or_not_known = rig.http("POST", "/v1/phase", &body);
            // Wait until the phase has ended or a record could not be stored.
            let until = Instant::now() + Duration::from_secs(20);
            let is_over =
                |status: &Value| ["lit", "missed"].iter().any(|state| status["state"] == *state);
            while !is_over(&state(&id, 50)) && failure().is_null() {
                assert!(Instant::now() < until, "{}", state(&id, 0));
            }
            let said = state(&id, 0);
            failed += u32::from(!failure().is_null());
            *disk.lock().unwrap() = None;
            let until = Instant::now() + Duration::from_secs(20);
            let at_rest = || {
                let status = rig.http("GET", "/v1/status", &Value::Null).1;
                status["journal_failure"].is_null() && status["transaction"].is_null()
            };
            while !at_rest() {
                assert!(Instant::now() < until, "not at rest");
                std::thread::sleep(Duration::from_millis(20));
            }
            for said in [said, state(&id, 0)].iter().filter(|said| said["state"] == "lit") {
                let Some(txn) = said["txn"].as_u64() else { continue };
                let (code, over) =
                    rig.http("GET", &format!("/v1/transactions/{txn}"), &Value::Null);
                assert!(
                    code == 200 && over["result"] == "committed",
                    "{fault:?} {after}: {said}, and then {over}"
                );
                acknowledged += 1;
            }
            rig.ctl(&["phase", "--release", "--job", "train"]);
        }
    }
    println!(
        "a disk that failed at {failed} points of phases: {acknowledged} acknowledgements, none taken back"
    );
    assert!(failed > 3 && acknowledged > 0, "{failed} {acknowledged}");
}
