// SPDX-License-Identifier: Apache-2.0
//! Steps of jobs that train, for people: each with its closed form, and where its time went.

use std::fmt::Write as _;

use lightloom_emulator::outcome::{JobStep, Outcome as Run};
use lightloom_units::Picoseconds;

use crate::table::TextTable;

/// A line for each step of each job; nothing without jobs that train.
pub(super) fn describe(result: &Run) -> String {
    let steps = result.steps.of_jobs();
    if steps.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new([
        "job",
        "step",
        "took",
        "closed form",
        "÷",
        "MFU",
        "compute",
        "TP",
        "PP",
        "DP",
        "CP",
        "EP",
        "contention",
        "transition",
        "fault",
        "restart",
    ]);
    for step in steps {
        table.row(row(step));
    }
    let mut text = format!("{table}");
    if let Some(reused) = result.exchanges_reused.filter(|reused| *reused > 0) {
        let _ = writeln!(
            text,
            "{reused} exchanges round idle rings took the time of an equal one, found once packet by packet"
        );
    }
    text.push_str(&unaffected(result));
    text
}

fn row(step: &JobStep) -> Vec<String> {
    let took = step.took();
    let ratio = |took: Picoseconds| took.0 as f64 / step.closed_form.0.max(1) as f64;
    let mut row = vec![
        step.job.clone(),
        step.index.to_string(),
        took.map_or("never ended".to_owned(), time),
        time(step.closed_form),
        took.map_or("-".to_owned(), |took| format!("{:.3}", ratio(took))),
        step.mfu.map_or("-".to_owned(), |mfu| format!("{:.1} %", 100.0 * mfu)),
    ];
    let Some(why) = step.why else {
        row.resize(16, "-".to_owned());
        return row;
    };
    let parts = [
        why.compute,
        why.exposed.tp,
        why.exposed.pp,
        why.exposed.dp,
        why.exposed.cp,
        why.exposed.ep,
        why.contention,
        why.transition,
        why.fault,
        why.restart,
    ];
    row.extend(parts.map(time));
    row
}

/// Milliseconds to the microsecond, so that the parts can be added up by hand.
fn time(time: Picoseconds) -> String {
    match time.0 {
        0 => "0".to_owned(),
        some => format!("{:.3}ms", some as f64 / 1e9),
    }
}

/// Which groups ended every step at the same picosecond as without faults.
fn unaffected(result: &Run) -> String {
    if result.faults.is_empty() {
        return String::new();
    }
    let same = |group: &&lightloom_emulator::outcome::GroupResult| {
        group.end.is_some() && group.end == group.end_without_faults
    };
    let groups: Vec<String> =
        result.groups.iter().filter(same).map(|group| group.group.to_string()).collect();
    format!(
        "{} of {} groups ended at the same picosecond as without faults{}{}\n",
        groups.len(),
        result.groups.len(),
        if groups.is_empty() { "" } else { ": " },
        groups.join(" "),
    )
}
