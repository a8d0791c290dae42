// SPDX-License-Identifier: Apache-2.0
//! Consecutive phases on 16 emulated optical switches (six with SCPI, five with TL1, five SONiC
//! databases) under random faults. After each phase, raw protocol clients read every switch, and a
//! minimal reader of the plan computes the expected state; neither shares code with drivers or
//! exports. `LIGHTLOOM_PHASES=1000` selects the long run, and `LIGHTLOOM_PHASES_QUIET=1` selects a
//! run without faults that reports times.

use crate::phases_at_scale as scale;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use scale::{Draws, Rig, SWITCHES, expected, ports_shared};
use serde_json::{Value, json};

const PHASES: usize = 40;
/// Long enough for any transition, even under faults.
const FOR_MS: u64 = 3_600_000;

fn phases() -> usize {
    std::env::var("LIGHTLOOM_PHASES").map_or(PHASES, |count| count.parse().unwrap())
}

/// These faults of emulated switches end automatically or with `clear`.
const FAULTS: [&str; 8] = [
    "late 30ms",
    "defer 200ms",
    "lie",
    "stuck",
    "half-open",
    "slow 20",
    "reboot",
    "reboot-in-commit",
];

struct Tally {
    became: BTreeMap<String, usize>,
    faults: BTreeMap<String, usize>,
    took_ms: Vec<f64>,
    looks: usize,
}

fn ask(rig: &Rig, number: usize, phase: &str) -> Value {
    let id = format!("phase-{number}");
    let body = json!({"request_id": id, "phase": phase, "for_ms": FOR_MS, "lease_ms": FOR_MS, "job": "train"});
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let (code, answer) = rig.http("POST", "/v1/phase", &body);
        if code == 202 {
            break;
        }
        // After a second, the rate limit accepts the request.
        assert_eq!(code, 429, "{answer}");
        assert!(Instant::now() < until, "{answer}");
        std::thread::sleep(Duration::from_millis(500));
    }
    loop {
        let (code, status) =
            rig.http("GET", &format!("/v1/phase/{id}?wait_ms=50000"), &Value::Null);
        assert_eq!(code, 200, "{status}");
        if !matches!(status["state"].as_str(), Some("waiting" | "moving")) {
            return status;
        }
    }
}

fn must_be_lit(rig: &Rig, plan: &Value, phase: &str, when: &str) {
    for ocs in 0..SWITCHES {
        let (found, wanted) = (rig.lit(ocs), expected(plan, phase, ocs));
        assert_eq!(found, wanted, "{when}: ocs{ocs} in phase {phase}");
    }
}

fn recovered(rig: &Rig, phase: &str) {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        rig.ctl(&["wait", "--for", "60s"]);
        let again = ["apply", "--again", "--phase", phase, "--mode", "update", "--cut-light"];
        let (good, said) = rig.try_ctl(&again);
        if good {
            return;
        }
        assert!(Instant::now() < until, "{said}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn run(rig: &Rig, count: usize, faults: bool) -> Tally {
    let plan = rig.plan();
    let names: Vec<&str> =
        plan["phases"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    rig.ctl(&["apply", "PLAN", "--phase", names[0]]);
    must_be_lit(rig, &plan, names[0], "at first");
    let mut draws = Draws::new(7);
    let (became, faulted) = (BTreeMap::new(), BTreeMap::new());
    let mut tally = Tally { became, faults: faulted, took_ms: Vec::new(), looks: 0 };
    let (over, mut lit) = (AtomicBool::new(false), names[0]);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) {
                for ocs in 0..SWITCHES {
                    let found = rig.lit(ocs);
                    let shared = ports_shared(&found);
                    assert!(shared.is_empty(), "ocs{ocs}: {shared:?} in two circuits: {found}");
                    looks += 1;
                }
                std::thread::sleep(Duration::from_millis(if faults { 20 } else { 500 }));
            }
            looks
        });
        for number in 0..count {
            let others: Vec<&str> = names.iter().copied().filter(|name| *name != lit).collect();
            let phase = others[draws.below(others.len())];
            let fault = (faults && draws.below(100) < 25).then(|| {
                let ocs = draws.below(SWITCHES);
                (ocs, rig.disturb(ocs, FAULTS[draws.below(FAULTS.len())]))
            });
            let status = ask(rig, number, phase);
            if let Some((ocs, fault)) = &fault {
                rig.mend(*ocs);
                *tally.faults.entry(fault.clone()).or_default() += 1;
            }
            let state = status["state"].as_str().unwrap();
            *tally.became.entry(state.to_owned()).or_default() += 1;
            if state == "lit" {
                lit = phase;
                tally.took_ms.push(status["took_ms"].as_f64().unwrap());
            } else {
                assert!(fault.is_some(), "phase {number} without a fault: {status}");
                recovered(rig, lit);
            }
            must_be_lit(rig, &plan, lit, &format!("after phase {number}, {fault:?}, {status}"));
            assert!(!watcher.is_finished(), "the watcher found a port in two circuits");
        }
        over.store(true, Ordering::Relaxed);
        tally.looks = watcher.join().unwrap();
    });
    tally
}

#[test]
fn every_phase_lights_fully_or_rolls_back_under_faults() {
    if std::env::var_os("LIGHTLOOM_PHASES_QUIET").is_some() {
        return;
    }
    let Some(rig) = Rig::start() else { return };
    let Tally { became, faults, looks, .. } = run(&rig, phases(), true);
    println!("{} phases: {became:?}; faults {faults:?}; {looks} looks", phases());
    assert!(became["lit"] * 2 > phases(), "{became:?}");

    // A phase whose switches stop answering is no longer reported as lit.
    let plan = rig.plan();
    let phase = plan["phases"][0]["name"].as_str().unwrap();
    recovered(&rig, phase);
    assert_eq!(ask(&rig, phases(), phase)["state"], "lit");
    (0..SWITCHES).for_each(|ocs| drop(rig.disturb(ocs, "half-open")));
    let until = Instant::now() + Duration::from_secs(60);
    for number in phases() + 1.. {
        let status = ask(&rig, number, phase);
        if status["state"] != "lit" {
            assert!(status["reason"].as_str().unwrap().contains("does not answer"), "{status}");
            break;
        }
        assert!(Instant::now() < until, "{status}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// In each stage of a transition, all switches need their switching time once, in parallel. The
/// remaining time is the daemon's share.
#[test]
fn daemon_overhead_is_small_next_to_switching_time() {
    if std::env::var_os("LIGHTLOOM_PHASES_QUIET").is_none() {
        return;
    }
    let Some(rig) = Rig::start() else { return };
    let Tally { mut took_ms, became, .. } = run(&rig, phases(), false);
    took_ms.sort_by(f64::total_cmp);
    let at = |share: f64| took_ms[((took_ms.len() - 1) as f64 * share).round() as usize];
    println!(
        "{} phases {became:?}: p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms, most {:.1} ms",
        took_ms.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
    println!("{}", rig.device_times());
}
