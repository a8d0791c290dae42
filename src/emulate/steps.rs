// SPDX-License-Identifier: Apache-2.0

use std::fmt::Write as _;

use lightloom_emulator::outcome::{JobStep, Outcome as Run, WhyResult};
use lightloom_units::Picoseconds;

use crate::table::{TextTable, rounded};

type StepPart = fn(&WhyResult) -> Picoseconds;

/// The parts of a step's time, with their headings.
const PARTS: [(&str, StepPart); 13] = [
    ("compute", |why| why.compute),
    ("generation", |why| why.generation),
    ("TP", |why| why.exposed.tp),
    ("PP", |why| why.exposed.pp),
    ("DP", |why| why.exposed.dp),
    ("CP", |why| why.exposed.cp),
    ("EP", |why| why.exposed.ep),
    ("samples", |why| why.exposed.samples),
    ("weights", |why| why.exposed.weights),
    ("contention", |why| why.contention),
    ("transition", |why| why.transition),
    ("fault", |why| why.fault),
    ("restart", |why| why.restart),
];

pub(super) fn describe(result: &Run) -> String {
    let steps = result.steps.of_jobs();
    if steps.is_empty() {
        return String::new();
    }
    let mut text = table(steps).to_string();
    if let Some(reused) = result.exchanges_reused.filter(|reused| *reused > 0) {
        let _ = writeln!(
            text,
            "{reused} identical exchanges around idle rings were simulated once and reused"
        );
    }
    text
}

fn table(steps: &[JobStep]) -> TextTable {
    let mut table = TextTable::of(steps)
        .column("job", |step| step.job.clone())
        .column("step", |step| step.index)
        .column("took", |step| step.took().map_or("never ended".to_owned(), time))
        .column("closed form", |step| time(step.closed_form))
        .column("÷", |step| {
            step.took().map_or("-".to_owned(), |took| {
                format!("{:.3}", took.0 as f64 / step.closed_form.0.max(1) as f64)
            })
        })
        .column("MFU", |step| {
            step.mfu.map_or("-".to_owned(), |mfu| format!("{:.1} %", 100.0 * mfu))
        });
    for (heading, part) in PARTS {
        table =
            table.column(heading, |step| step.why.map_or("-".to_owned(), |why| time(part(&why))));
    }
    table.table()
}

fn time(time: Picoseconds) -> String {
    if time.0 == 0 { "-".to_owned() } else { rounded(time) }
}
