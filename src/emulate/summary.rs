// SPDX-License-Identifier: Apache-2.0

use std::fmt::Write as _;

use lightloom_emulator::sweep::{ExpectationTally, SeedRun, Sweep, SweepSubject};

use super::ci::{replay_command, when};

const MOST_LISTED: usize = 10;

pub(crate) fn markdown(subject: &SweepSubject, runs: &[SeedRun]) -> String {
    let failed: Vec<&SeedRun> = runs.iter().filter(|run| !run.passed).collect();
    let verdict = if failed.is_empty() { "✅ passed" } else { "❌ failed" };
    let mut text = format!("## {verdict}: {} ", subject.scenario);
    match runs {
        [run] => {
            let _ = writeln!(text, "(seed {})\n", run.seed.0);
            one_run(&mut text, run);
        }
        _ => {
            let _ = writeln!(text, "({} of {} seeds)\n", runs.len() - failed.len(), runs.len());
            many_runs(&mut text, subject, runs);
        }
    }
    for run in failed.iter().take(MOST_LISTED) {
        let sentences: Vec<String> = run
            .expectations
            .iter()
            .filter(|result| !result.passed)
            .map(|result| format!("{} ({})", result.expect, result.value))
            .chain(run.stop.iter().map(|stop| format!("the run ended at {stop}")))
            .collect();
        let _ = writeln!(text, "- seed {}: {}", run.seed.0, escaped(&sentences.join("; ")));
        let _ = writeln!(text, "  `{}`", replay_command(subject, run));
    }
    if failed.len() > MOST_LISTED {
        let _ = writeln!(text, "- and {} more seeds", failed.len() - MOST_LISTED);
    }
    text.push('\n');
    text
}

fn one_run(text: &mut String, run: &SeedRun) {
    text.push_str("| expectation | found | |\n| --- | --- | --- |\n");
    for result in &run.expectations {
        let mark = if result.passed { "✅" } else { "❌" };
        let _ =
            writeln!(text, "| {} | {} | {mark} |", escaped(&result.expect), escaped(&result.value));
    }
    text.push_str("\n| fault | effect |\n| --- | --- |\n");
    for fault in &run.faults {
        let _ = writeln!(
            text,
            "| {} at {} | {} |",
            fault.what(),
            when(fault),
            escaped(&fault.to_string())
        );
    }
    text.push('\n');
}

fn many_runs(text: &mut String, subject: &SweepSubject, runs: &[SeedRun]) {
    text.push_str("| expectation | passed | failed | worst seed | found there |\n| --- | --- | --- | --- | --- |\n");
    for ExpectationTally { expect, passed, failed, worst_seed, worst_value } in Sweep::tally(runs) {
        let (expect, found) = (escaped(&expect), escaped(&worst_value));
        let _ = writeln!(text, "| {expect} | {passed} | {failed} | {} | {found} |", worst_seed.0);
    }
    text.push('\n');
    losses(text, runs);
    if let Some(worst) = Sweep::worst(runs) {
        let what = match worst.passed {
            true => "Nearest to failing: seed",
            false => "Most failures: seed",
        };
        let _ = writeln!(text, "{what} {}, `{}`\n", worst.seed.0, replay_command(subject, worst));
    }
}

fn losses(text: &mut String, runs: &[SeedRun]) {
    let rows = Sweep::distributions(runs);
    if rows.is_empty() {
        return;
    }
    text.push_str("| over all seeds | P50 | P90 | P99 | highest | at seed |\n| --- | --- | --- | --- | --- | --- |\n");
    for row in &rows {
        let [p50, p90, p99, max] =
            [row.p50, row.p90, row.p99, row.max].map(|value| row.figure.show(value));
        let (words, seed) = (row.figure.words(), row.worst_seed.0);
        let _ = writeln!(text, "| {words} | {p50} | {p90} | {p99} | {max} | {seed} |");
    }
    text.push('\n');
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}
