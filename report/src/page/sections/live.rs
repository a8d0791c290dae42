// SPDX-License-Identifier: Apache-2.0
//! Measurements of a live demonstration, and the components that identify the plan by digest.

use super::super::bars::{Bar, Bars};
use super::super::document::{Cell, Figure, FigureTable, PageBlock, PageDocument, PageSection};
use super::super::quantity::{ShownQuantity, ShownUnit};
use super::super::results::LiveRun;

pub(in super::super) fn add(report: &mut PageDocument, live: &LiveRun) {
    report.answer.clone_from(&live.answer);
    let conclusion = "Emulated devices, the shipping daemon and, where one is installed, a real scheduler on this \
                      machine. Each time is measured on its clock.";
    let mut section = PageSection::new("live", "Step by step", conclusion);
    if let Some(lacks) = &live.lacks {
        section.blocks.push(PageBlock::Note(format!("No scheduler took part: {lacks}.")));
    }
    let seconds = |took_ms: f64| ShownQuantity::new(took_ms / 1e3, ShownUnit::Seconds);
    let bars = live.steps.iter().map(|step| Bar {
        name: step.name.clone(),
        ink: 1,
        start: 0.0,
        value: step.took_ms / 1e3,
        spread: None,
        label: seconds(step.took_ms).show(),
    });
    let bars =
        Bars { title: "How long each step took", unit: ShownUnit::Seconds, bars: bars.collect() };
    section.blocks.push(PageBlock::Figure(Figure {
        id: "live-bars",
        svg: bars.svg(),
        caption: "Light, drain and topology are counted from the death of the node, every other step from its own start."
            .to_owned(),
        data: vec![],
    }));
    let mut steps =
        FigureTable::new("live", "Steps").words("step").words("what was seen").numbers("took");
    for step in &live.steps {
        let cells = [Cell::text(&step.name), Cell::text(&step.found)];
        steps.row(cells.into_iter().chain([Cell::Number(seconds(step.took_ms))]));
    }
    section.blocks.push(PageBlock::Table(steps));
    let mut digests =
        FigureTable::new("digests", "One plan after the fault").words("where").words("plan");
    for (place, digest) in &live.digests {
        digests.row([Cell::text(place), Cell::text(digest)]);
    }
    section.blocks.push(PageBlock::Table(digests));
    report.sections.push(section);
}
