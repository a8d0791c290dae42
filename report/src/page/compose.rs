// SPDX-License-Identifier: Apache-2.0
//! Composes a report from results: selects its sections and their order.

use super::definitions;
use super::document::{Cell, FigureTable, Headline, PageBlock, PageDocument, PageSection};
use super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::results::{Results, Subject};
use super::sections::{bill, buy, cost, fabric, live, published, run, sweep, training, waste};

/// Definitions referenced by the page, each with the derivation of our value.
pub(super) type Used = Vec<(&'static str, String)>;

pub(super) fn compose(results: &Results<'_>) -> PageDocument {
    let mut report =
        PageDocument { title: title(results), lead: lead(results), ..PageDocument::default() };
    let mut used = Used::new();
    if let Some(bought) = &results.bought {
        buy::add(&mut report, &mut used, bought);
    }
    if let Some(billed) = results.bills.first().filter(|_| report.answer.is_empty()) {
        report.answer = bill::short_answer(billed);
    }
    for (index, billed) in results.bills.iter().enumerate() {
        bill::add(&mut report, billed, index);
    }
    if let Some(live) = &results.live {
        live::add(&mut report, live);
    }
    fabric::add(&mut report, &mut used, &results.subject);
    if let Some(comparison) = &results.comparison {
        waste::add(&mut report, &mut used, comparison);
    }
    if let Some(costs) = &results.cost {
        cost::add(&mut report, &mut used, costs, results.comparison.as_ref());
    }
    for (index, emulated) in results.runs.iter().enumerate() {
        run::add(&mut report, emulated, index);
    }
    for (index, swept) in results.sweeps.iter().enumerate() {
        sweep::add(&mut report, swept, index);
    }
    for (index, training) in results.training.iter().enumerate() {
        training::add(&mut report, training, index);
    }
    published::add(&mut report, &results.claims);
    if !used.is_empty() {
        report.sections.push(formulas(&used));
    }
    report.sections.push(sources(results));
    // External runs have their own seeds.
    report.footer = match results.is_of_runs_alone() {
        true => format!("lightloom {}", results.version),
        false => format!("lightloom {}, seed {}", results.version, results.seed),
    };
    report
}

fn title(results: &Results<'_>) -> String {
    match &results.subject {
        Subject::Fabric { fabric, .. } => fabric.name.clone(),
        Subject::PlanAlone { .. } => "Plan".to_owned(),
        Subject::None if results.bought.is_some() => "What to buy".to_owned(),
        Subject::None if results.is_bill_alone() => "What failures cost".to_owned(),
        Subject::None if results.is_of_runs_alone() => "What was run".to_owned(),
        Subject::None => "Designs compared".to_owned(),
    }
}

fn lead(results: &Results<'_>) -> String {
    match &results.subject {
        Subject::Fabric { fabric, faults, .. } => fabric::lead(fabric, faults),
        Subject::PlanAlone { plan } => {
            format!(
                "A plan of {} GPUs whose fabric file was not given.",
                fixed(plan.metrics.gpus_total as f64, 0)
            )
        }
        Subject::None if results.bought.is_some() => {
            "Designs side by side, for the size of the buy file.".to_owned()
        }
        Subject::None if results.is_bill_alone() => {
            "GPU-hours that failures cost, by cause; each loss from runs, packet by packet."
                .to_owned()
        }
        Subject::None if results.is_of_runs_alone() => {
            "Results of lightloom, as their files say.".to_owned()
        }
        Subject::None => "No fabric was given: the designs stand side by side.".to_owned(),
    }
}

/// Adds a headline in one line.
pub(super) fn headline(
    report: &mut PageDocument,
    label: &'static str,
    (value, unit): (f64, ShownUnit),
    beside: String,
    definition: &'static str,
) {
    report.headlines.push(Headline {
        label,
        quantity: ShownQuantity::new(value, unit),
        beside,
        definition,
    });
}

fn formulas(used: &Used) -> PageSection {
    let mut section = PageSection::new(
        "formulas",
        "Formulas",
        "Where every figure comes from: its definition, and what went into it here.",
    );
    section.blocks.push(PageBlock::Table(definitions::table(used)));
    section
}

fn sources(results: &Results<'_>) -> PageSection {
    let seed = match results.is_of_runs_alone() {
        true => String::new(),
        false => format!(" with seed {}", results.seed),
    };
    let conclusion = format!(
        "Made by lightloom {}{seed}. The same command on the same files makes the same page, byte for byte.",
        results.version
    );
    let mut section = PageSection::new("sources", "Sources", conclusion);
    let mut table = FigureTable::new("sources", "Input files")
        .words("file")
        .words("read as")
        .words("SHA-256")
        .numbers("size");
    for source in &results.sources {
        table.row([
            Cell::text(&source.name),
            Cell::text(source.kind),
            Cell::text(&source.sha256),
            Cell::number(source.bytes as f64, ShownUnit::Bytes),
        ]);
    }
    section.blocks.push(PageBlock::Table(table));
    for source in &results.sources {
        if let Some(plan) = &source.plan {
            section.blocks.push(PageBlock::Note(format!("{} is plan {plan}.", source.name)));
        }
    }
    section.blocks.push(PageBlock::Note(format!("Command: {}", results.command)));
    for missing in &results.would_add {
        section.blocks.push(PageBlock::Note(missing.clone()));
    }
    section
}
