// SPDX-License-Identifier: Apache-2.0

use std::fmt::Write as _;

use lightloom_emulator::outcome::{JobStep, Outcome as Run};
use lightloom_units::Picoseconds;

use crate::table::{TextTable, rounded};

const COLUMNS: [&str; 19] = [
    "job",
    "step",
    "took",
    "closed form",
    "÷",
    "MFU",
    "compute",
    "generation",
    "TP",
    "PP",
    "DP",
    "CP",
    "EP",
    "samples",
    "weights",
    "contention",
    "transition",
    "fault",
    "restart",
];

pub(super) fn describe(result: &Run) -> String {
    let steps = result.steps.of_jobs();
    if steps.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(COLUMNS);
    steps.iter().for_each(|step| table.row(row(step)));
    let mut text = format!("{table}");
    if let Some(reused) = result.exchanges_reused.filter(|reused| *reused > 0) {
        let _ = writeln!(
            text,
            "{reused} identical exchanges around idle rings were simulated once and reused"
        );
    }
    text
}

fn row(step: &JobStep) -> Vec<String> {
    let took = step.took();
    let mut row = vec![
        step.job.clone(),
        step.index.to_string(),
        took.map_or("never ended".to_owned(), time),
        time(step.closed_form),
        took.map_or("-".to_owned(), |took| {
            format!("{:.3}", took.0 as f64 / step.closed_form.0.max(1) as f64)
        }),
        step.mfu.map_or("-".to_owned(), |mfu| format!("{:.1} %", 100.0 * mfu)),
    ];
    let Some(why) = step.why else {
        row.resize(COLUMNS.len(), "-".to_owned());
        return row;
    };
    let parts = [
        why.compute,
        why.generation,
        why.exposed.tp,
        why.exposed.pp,
        why.exposed.dp,
        why.exposed.cp,
        why.exposed.ep,
        why.exposed.samples,
        why.exposed.weights,
        why.contention,
        why.transition,
        why.fault,
        why.restart,
    ];
    row.extend(parts.map(time));
    row
}

fn time(time: Picoseconds) -> String {
    if time.0 == 0 { "-".to_owned() } else { rounded(time) }
}
