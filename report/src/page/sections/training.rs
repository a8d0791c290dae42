// SPDX-License-Identifier: Apache-2.0
//! Training model results: breakdown of a step's time.

use super::super::bars::{Bar, Bars};
use super::super::document::{Cell, Figure, FigureTable, PageBlock, PageDocument, PageSection};
use super::super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::super::results::{TrainingResult, TrainingRow};

const MOST_ROWS: usize = 20;

pub(in super::super) fn add(report: &mut PageDocument, training: &TrainingResult, index: usize) {
    let conclusion = training.rows.first().map_or("No mapping fits.".to_owned(), |best| {
        format!(
            "On {} GPUs {} reaches {} ({}): {} a step, with TP {}, PP {}, DP {}. {} mappings were tried.",
            fixed(best.gpus as f64, 0),
            best.arch,
            ShownQuantity::share(best.mfu).show(),
            best.mfu_convention,
            ShownQuantity::new(best.step_seconds, ShownUnit::Seconds).show(),
            best.tp,
            best.pp,
            best.dp,
            fixed(training.mappings_tried as f64, 0)
        )
    });
    let title = format!("Training {} on {}", training.model, training.accelerator);
    let id = if index == 0 { "training" } else { "more-training" };
    let mut section = PageSection::new(id, title, conclusion);
    section.blocks.extend(training.rows.first().map(|best| step(best, index)));
    section.blocks.push(PageBlock::Table(mappings(training)));
    section.blocks.push(PageBlock::Note(format!(
        "A step is {} sequences of {} tokens.",
        fixed(training.batch_sequences as f64, 0),
        fixed(training.sequence_tokens as f64, 0)
    )));
    report.sections.push(section);
}

/// Returns the breakdown of the best mapping's step.
fn step(best: &TrainingRow, index: usize) -> PageBlock {
    let parts = [
        ("compute", 1, best.compute_seconds),
        ("TP exposed", 3, best.tp_exposed_seconds),
        ("CP exposed", 3, best.cp_exposed_seconds),
        ("EP exposed", 3, best.ep_exposed_seconds),
        ("DP exposed", 3, best.dp_exposed_seconds),
        ("PP bubble", 4, best.pp_bubble_seconds),
        ("PP transfer", 3, best.pp_transfer_seconds),
        ("optimizer", 6, best.optimizer_seconds),
        ("jitter", 7, best.jitter_seconds),
    ];
    let bar = |(name, ink, seconds): (&str, u8, f64)| Bar {
        name: name.to_owned(),
        ink,
        start: 0.0,
        value: seconds,
        spread: None,
        label: ShownQuantity::new(seconds, ShownUnit::Seconds).show(),
    };
    let bars = parts.into_iter().filter(|(_, _, seconds)| *seconds > 0.0).map(bar).collect();
    PageBlock::Figure(Figure {
        id: if index == 0 { "training-step" } else { "more-training-step" },
        svg: Bars { title: "time of a step", unit: ShownUnit::Seconds, bars }.svg(),
        caption: "Where the time of the best mapping's step goes: what is exposed is not hidden behind computing.".to_owned(),
        data: vec![],
    })
}

fn mappings(training: &TrainingResult) -> FigureTable {
    let mut table = FigureTable::new("training", "Best mappings")
        .words("design")
        .numbers("GPUs")
        .words("TP·PP·DP·CP·EP")
        .numbers("MFU")
        .numbers("step")
        .numbers("compute")
        .numbers("TP exposed")
        .numbers("DP exposed")
        .numbers("PP bubble")
        .numbers("memory");
    for row in training.rows.iter().take(MOST_ROWS) {
        table.row([
            Cell::text(&row.arch),
            Cell::number(row.gpus as f64, ShownUnit::Gpus),
            Cell::text(format!("{}·{}·{}·{}·{}", row.tp, row.pp, row.dp, row.cp, row.ep)),
            Cell::share(row.mfu),
            Cell::number(row.step_seconds, ShownUnit::Seconds),
            Cell::number(row.compute_seconds, ShownUnit::Seconds),
            Cell::number(row.tp_exposed_seconds, ShownUnit::Seconds),
            Cell::number(row.dp_exposed_seconds, ShownUnit::Seconds),
            Cell::number(row.pp_bubble_seconds, ShownUnit::Seconds),
            Cell::number(row.memory_bytes as f64, ShownUnit::Bytes),
        ]);
    }
    table
}
