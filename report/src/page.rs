// SPDX-License-Identifier: Apache-2.0
//! One self-contained page about a design, also as Markdown and CSV.
//!
//! ```text
//!   Results ──compose──▶ PageDocument ──┬──▶ html      one file with styles and pictures, without scripts
//!   (known facts)     (first screen,    ├──▶ markdown  the same verdicts and tables
//!                      sections)        └──▶ csv       every number: table,row,column,value,unit
//! ```

mod compose;
mod csv;
mod definitions;
mod document;
mod picture;
mod quantity;
mod results;
mod sections;
mod tables;
mod templates;

pub use results::{
    Billed, Bought, Comparison, Cost, EmulatedRun, History, LIVE_SCHEMA, LiveRun, LiveStep,
    Results, SourceFile, Subject, Swept, TrainingResult,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenderForm {
    Html,
    Markdown,
    Csv,
}

pub fn render(results: &Results<'_>, form: RenderForm) -> String {
    let report = compose::compose(results);
    match form {
        RenderForm::Html => templates::html(&report),
        RenderForm::Markdown => templates::markdown(&report),
        RenderForm::Csv => csv::render(&report),
    }
}
