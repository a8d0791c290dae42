// SPDX-License-Identifier: Apache-2.0
//! JUnit XML: a suite for each seed, in it a case for each expectation and one for each fault; where jobs train under
//! several seeds, what their steps lose as properties of one more suite.
//!
//! Times are simulated, so that a seed writes the same file again: of a suite that of its run, of a fault that until
//! everything it hit went on.
//!
//! A fault's case fails when an expectation about restoration fails because of it. So the file says "failed" exactly
//! when the exit status does.

use std::time::Duration;

use anyhow::Context;
use lightloom_emulator::outcome::{ExpectationResult, FaultResult};
use lightloom_emulator::sweep::{SeedRun, Subject, Sweep};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::ci::{replay_command, when};

/// The XML document.
///
/// # Errors
/// If it cannot be written as XML.
pub(crate) fn report(subject: &Subject, runs: &[SeedRun]) -> anyhow::Result<String> {
    let mut report = Report::new("lightloom");
    for run in runs {
        report.add_test_suite(suite(subject, run));
    }
    if runs.len() > 1 {
        report.add_test_suites(losses(subject, runs));
    }
    report.to_string().context("cannot write JUnit XML")
}

/// A suite without cases: what the steps of jobs lose over all seeds. `None` where no job trains.
fn losses(subject: &Subject, runs: &[SeedRun]) -> Option<TestSuite> {
    let rows = Sweep::distributions(runs);
    let mut suite = TestSuite::new(format!("{} ({} seeds)", subject.scenario, runs.len()));
    for row in &rows {
        for (rank, value) in
            [("p50", row.p50), ("p90", row.p90), ("p99", row.p99), ("max", row.max)]
        {
            let value = value.map_or("never ended".to_owned(), |value| value.to_string());
            suite.add_property((format!("{}_{rank}", row.figure.name()).as_str(), value.as_str()));
        }
        let seed = row.worst_seed.0.to_string();
        let name = format!("{}_worst_seed", row.figure.name());
        suite.add_property((name.as_str(), seed.as_str()));
    }
    (!rows.is_empty()).then_some(suite)
}

fn suite(subject: &Subject, run: &SeedRun) -> TestSuite {
    let mut suite = TestSuite::new(format!("{} (seed {})", subject.scenario, run.seed.0));
    let replay = replay_command(subject, run);
    for (name, value) in [
        ("seed", run.seed.0.to_string()),
        ("scenario", subject.file.clone()),
        ("fabric_sha256", subject.fabric_sha256.clone()),
        ("simulated_ps", run.simulated.0.to_string()),
        ("replay", replay.clone()),
    ] {
        suite.add_property((name, value.as_str()));
    }
    suite.set_time(Duration::from_nanos(run.simulated.0 / 1_000));
    let class = format!("lightloom.{}", subject.scenario);
    for result in &run.expectations {
        suite.add_test_case(expectation_case(result, run, &replay, &class));
    }
    for (number, fault) in run.faults.iter().enumerate() {
        suite.add_test_case(fault_case(number, fault, run, &replay, &class));
    }
    suite
}

fn expectation_case(
    result: &ExpectationResult,
    run: &SeedRun,
    replay: &str,
    class: &str,
) -> TestCase {
    let status = if result.passed {
        TestCaseStatus::success()
    } else {
        failure(&format!("{}: {}", result.expect, result.value), run, replay)
    };
    let mut case = TestCase::new(format!("expect {}", result.expect), status);
    case.set_classname(class);
    case.set_system_out(result.value.as_str());
    case
}

fn fault_case(
    number: usize,
    fault: &FaultResult,
    run: &SeedRun,
    replay: &str,
    class: &str,
) -> TestCase {
    let breached = run
        .expectations
        .iter()
        .filter(|result| !result.passed && result.breached_by.contains(&number))
        .map(|result| result.expect.as_str());
    let breached: Vec<&str> = breached.collect();
    let words = fault.to_string();
    let status = if breached.is_empty() {
        TestCaseStatus::success()
    } else {
        failure(&format!("{}: {words}", breached.join(", ")), run, replay)
    };
    let mut case =
        TestCase::new(format!("fault {} {} at {}", number, fault.what(), when(fault)), status);
    case.set_classname(class);
    if let (Some(at), Some(restored)) = (fault.at, fault.restored) {
        case.set_time(Duration::from_nanos(restored.since(at).0 / 1_000));
    }
    case.set_system_out(words);
    case
}

fn failure(message: &str, run: &SeedRun, replay: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(message);
    status.set_description(format!("{message}\nseed: {}\nreplay: {replay}\n", run.seed.0));
    status
}
