// SPDX-License-Identifier: Apache-2.0
//! One self-contained page about a design, also as Markdown and CSV.
//!
//! ```text
//!   Results ──compose──▶ Report ──┬──▶ html      one file with styles and drawings, without scripts
//!   (known facts)     (sections,  ├──▶ markdown  the same tables and conclusions
//!                      tables,    └──▶ csv       every number: table,row,column,value,unit
//!                      drawings)
//! ```
//!
//! The page computes no results: shares, means and bounds come from the planner, the emulator and
//! the training model. It adds order, units, drawings and conclusions.

mod bars;
mod chart;
mod compose;
mod csv;
mod definitions;
mod document;
mod drawing;
mod html;
mod ink;
mod markdown;
mod quantity;
mod results;
mod sections;

pub use results::{
    Billed, BilledCause, BilledChange, BilledFailure, BilledLoss, BilledPart, BilledRun,
    BilledSeeds, Bought, Comparison, Cost, EmulatedCollective, EmulatedExpectation, EmulatedFault,
    EmulatedGroup, EmulatedPackets, EmulatedRun, EmulatedStep, EmulatedWhy, History, LiveRun,
    LiveStep, Lost, MonthFigure, Results, SourceFile, Subject, Swept, SweptRun, SweptSubject,
    TrainingResult, TrainingRow,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenderForm {
    Html,
    /// For a wiki or a pull request.
    Markdown,
    /// One long table for programs: `table,row,column,value,unit`.
    Csv,
}

#[must_use]
pub fn render(results: &Results<'_>, form: RenderForm) -> String {
    let report = compose::compose(results);
    match form {
        RenderForm::Html => html::render(&report),
        RenderForm::Markdown => markdown::render(&report),
        RenderForm::Csv => csv::render(&report),
    }
}
