// SPDX-License-Identifier: Apache-2.0
//! Writes JUnit XML with one suite per seed and one case per expectation and per fault. With
//! several seeds and training jobs, another suite lists the time lost by steps as properties.
//!
//! Times are simulated, so a seed always produces the same file. The time of a suite is the
//! duration of its run, and the time of a fault is the time until all affected traffic has resumed.
//!
//! A fault's case fails if the fault violates an expectation about restoration. If the run hit an unintended limit, the
//! case `ended` fails. The file therefore contains a failure exactly if the exit status is not 0.

use std::time::Duration;

use lightloom_emulator::outcome::{ExpectationResult, FaultResult};
use lightloom_emulator::sweep::{SeedRun, Sweep, SweepSubject};

use super::ci::{replay_command, when};
use crate::junit::{self, JunitCase, JunitEnd, Suite};

pub(super) fn report(subject: &SweepSubject, runs: &[SeedRun]) -> String {
    let mut suites: Vec<Suite> = runs.iter().map(|run| suite(subject, run)).collect();
    if runs.len() > 1 {
        suites.extend(losses(subject, runs));
    }
    junit::document("lightloom", &suites)
}

fn losses(subject: &SweepSubject, runs: &[SeedRun]) -> Option<Suite> {
    let rows = Sweep::distributions(runs);
    let mut suite = Suite::new(format!("{} ({} seeds)", subject.scenario, runs.len()));
    for row in &rows {
        for (rank, value) in
            [("p50", row.p50), ("p90", row.p90), ("p99", row.p99), ("max", row.max)]
        {
            let value = value.map_or("never ended".to_owned(), |value| value.to_string());
            suite.property(&format!("{}_{rank}", row.figure), &value);
        }
        let seed = row.worst_seed.0.to_string();
        let name = format!("{}_worst_seed", row.figure);
        suite.property(&name, &seed);
    }
    (!rows.is_empty()).then_some(suite)
}

fn suite(subject: &SweepSubject, run: &SeedRun) -> Suite {
    let mut suite = Suite::new(format!("{} (seed {})", subject.scenario, run.seed.0));
    let replay = replay_command(subject, run);
    for (name, value) in [
        ("seed", run.seed.0.to_string()),
        ("scenario", subject.file.clone()),
        ("fabric_sha256", subject.fabric_sha256.clone()),
        ("simulated_ps", run.simulated.0.to_string()),
        ("replay", replay.clone()),
    ] {
        suite.property(name, &value);
    }
    suite.took(Duration::from_nanos(run.simulated.0 / 1_000));
    let class = format!("lightloom.{}", subject.scenario);
    for result in &run.expectations {
        suite.add(expectation_case(result, run, &replay, &class));
    }
    if let Some(stop) = &run.stop {
        let ended = failure(&format!("the run ended at {stop}"), run, &replay);
        suite.add(JunitCase::new("ended", &class, ended));
    }
    for (number, fault) in run.faults.iter().enumerate() {
        suite.add(fault_case(number, fault, run, &replay, &class));
    }
    suite
}

fn expectation_case(
    result: &ExpectationResult,
    run: &SeedRun,
    replay: &str,
    class: &str,
) -> JunitCase {
    let ended = if result.passed {
        JunitEnd::Well
    } else {
        failure(&format!("{}: {}", result.expect, result.value), run, replay)
    };
    JunitCase::new(format!("expect {}", result.expect), class, ended).printed(result.value.as_str())
}

fn fault_case(
    number: usize,
    fault: &FaultResult,
    run: &SeedRun,
    replay: &str,
    class: &str,
) -> JunitCase {
    let breached = run
        .expectations
        .iter()
        .filter(|result| !result.passed && result.breached_by.contains(&number))
        .map(|result| result.expect.as_str());
    let breached: Vec<&str> = breached.collect();
    let words = fault.to_string();
    let ended = if breached.is_empty() {
        JunitEnd::Well
    } else {
        failure(&format!("{}: {words}", breached.join(", ")), run, replay)
    };
    let name = format!("fault {} {} at {}", number, fault.what(), when(fault));
    let case = JunitCase::new(name, class, ended).printed(words);
    match (fault.at, fault.restored) {
        (Some(at), Some(restored)) => case.took(Duration::from_nanos(restored.since(at).0 / 1_000)),
        _ => case,
    }
}

fn failure(message: &str, run: &SeedRun, replay: &str) -> JunitEnd {
    let known = format!("{message}\nseed: {}\nreplay: {replay}\n", run.seed.0);
    JunitEnd::Failed(message.to_owned(), known)
}
