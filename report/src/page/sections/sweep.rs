// SPDX-License-Identifier: Apache-2.0
//! A scenario over many seeds: losses of its job steps.

use super::super::document::{Cell, FigureTable, PageBlock, PageDocument, PageSection};
use super::super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::super::results::{Lost, Swept};
use super::timeline;

const SECONDS_PER_PS: f64 = 1e-12;

pub(in super::super) fn add(report: &mut PageDocument, swept: &Swept, index: usize) {
    let mut section = PageSection::new(
        if index == 0 { "seeds" } else { "more-seeds" },
        format!("Seeds: {}", swept.subject.scenario),
        conclusion(swept),
    );
    if !swept.distributions.is_empty() {
        section.blocks.push(PageBlock::Table(table(swept)));
        section.blocks.push(PageBlock::Note(
            "Against the run without faults under the same seed. So many of all seeds lose no more (nearest rank); `–` where a \
             job never ends its steps."
                .to_owned(),
        ));
    }
    if !swept.expectations.is_empty() {
        section.blocks.push(PageBlock::Table(expectations(swept)));
    }
    if !swept.recoveries.is_empty() {
        section.blocks.push(PageBlock::Table(recoveries(swept)));
    }
    let faults = swept.runs.iter().flat_map(|run| run.faults.iter().map(|fault| (run.seed, fault)));
    if let Some((seed, fault)) = faults.max_by_key(|(_, fault)| fault.delay_ps) {
        let of = format!(" under seed {seed}, of {} seeds the longest wait", swept.runs.len());
        section.blocks.extend(timeline::of_worst("seeds-fault", fault, &of));
    }
    report.sections.push(section);
}

fn expectations(swept: &Swept) -> FigureTable {
    let mut table = FigureTable::new("seeds-expectations", "Expectations over all seeds")
        .words("expected")
        .numbers("seeds passed")
        .numbers("failed")
        .numbers("nearest to failing: seed")
        .words("found there");
    for row in &swept.expectations {
        table.row([
            Cell::text(&row.expect),
            Cell::number(row.passed as f64, ShownUnit::Count),
            Cell::number(row.failed as f64, ShownUnit::Count),
            Cell::maybe(row.worst_seed.map(|seed| seed as f64), ShownUnit::Count),
            Cell::text(row.worst_value.as_deref().unwrap_or("–")),
        ]);
    }
    table
}

fn recoveries(swept: &Swept) -> FigureTable {
    let mut table =
        FigureTable::new("seeds-recoveries", "From a fault until what it took is restored")
            .words("fault")
            .numbers("faults")
            .numbers("recovered")
            .numbers("P50")
            .numbers("P99")
            .numbers("longest")
            .numbers("at seed");
    for row in &swept.recoveries {
        let time = |ps: Option<u64>| {
            Cell::maybe(ps.map(|ps| ps as f64 * SECONDS_PER_PS), ShownUnit::Seconds)
        };
        table.row([
            Cell::text(&row.kind),
            Cell::number(row.faults as f64, ShownUnit::Count),
            Cell::number(row.recovered as f64, ShownUnit::Count),
            time(row.p50_ps),
            time(row.p99_ps),
            time(row.max_ps),
            Cell::maybe(row.worst_seed.map(|seed| seed as f64), ShownUnit::Count),
        ]);
    }
    table
}

fn conclusion(swept: &Swept) -> String {
    let passed = swept.runs.iter().filter(|run| run.passed).count();
    let [passed, all] = [passed, swept.runs.len()].map(|count| fixed(count as f64, 0));
    let verdict = format!("{passed} of {all} seeds passed.");
    let time = swept.distributions.iter().find(|row| row.figure == "time_lost_ps");
    let Some(time) = time else { return verdict };
    let show = |time: Option<f64>| match time {
        Some(time) => ShownQuantity::new(time * SECONDS_PER_PS, ShownUnit::Seconds).show(),
        None => "all there is".to_owned(),
    };
    format!(
        "{verdict} Half of them lose at most {} of a job's time, 99 of 100 at most {}; seed {} loses most: {}.",
        show(time.p50),
        show(time.p99),
        time.worst_seed,
        show(time.max),
    )
}

fn table(swept: &Swept) -> FigureTable {
    let mut table = FigureTable::new("seeds", "What the steps of jobs lose")
        .words("lost")
        .numbers("P50")
        .numbers("P90")
        .numbers("P99")
        .numbers("highest")
        .numbers("at seed");
    for row in &swept.distributions {
        let (words, unit, factor) = meaning(row);
        let cell = |value: Option<f64>| Cell::maybe(value.map(|value| value * factor), unit);
        table.row([
            Cell::text(words),
            cell(row.p50),
            cell(row.p90),
            cell(row.p99),
            cell(row.max),
            Cell::number(row.worst_seed as f64, ShownUnit::Count),
        ]);
    }
    table
}

/// Returns the description of a quantity with its unit and scale factor.
fn meaning(row: &Lost) -> (&str, ShownUnit, f64) {
    match row.figure.as_str() {
        "time_lost_ps" => ("time in all steps", ShownUnit::Seconds, SECONDS_PER_PS),
        "worst_step_lost_ps" => ("time in one step", ShownUnit::Seconds, SECONDS_PER_PS),
        "goodput_lost" => ("goodput", ShownUnit::Share, 1.0),
        "groups_affected" => ("groups affected", ShownUnit::Count, 1.0),
        other => (other, ShownUnit::Count, 1.0),
    }
}
