// SPDX-License-Identifier: Apache-2.0
//! The page for a browser: one file, styles and drawings inside, nothing fetched, no script.

use askama::Template;

use super::document::{Cell, Column, PageBlock, PageDocument};

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    report: &'a PageDocument,
    style: &'static str,
}

/// Renders the page.
pub(super) fn render(report: &PageDocument) -> String {
    let page = Page { report, style: include_str!("style.css") };
    page.render().expect("writing to a text does not fail")
}

/// Attributes of a cell: numbers stand to the right, and say which verdict they are.
fn class(cell: &Cell, column: &Column) -> &'static str {
    match cell {
        _ if column.is_numeric => "n",
        Cell::Text(text) if matches!(text.as_str(), "reproduced" | "passed") => "good",
        Cell::Text(text) if matches!(text.as_str(), "DIFFERS" | "FAILED") => "bad",
        // Hashes have no space to break at.
        Cell::Text(text) if text.len() == 64 && !text.contains(' ') => "hash",
        Cell::Text(text) if text.len() > 36 => "long",
        _ => "",
    }
}

/// The digits of a cell, and its unit.
fn parts(cell: &Cell) -> (String, &'static str) {
    match cell {
        Cell::Number(quantity) => quantity.parts(),
        other => (other.show(), ""),
    }
}
