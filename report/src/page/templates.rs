// SPDX-License-Identifier: Apache-2.0
//! Renders the page as one HTML file without scripts and external resources, or as Markdown.

use askama::Template;

use super::document::{Cell, Column, PageBlock, PageDocument, PictureKind};

#[derive(Template)]
#[template(path = "page.html")]
struct HtmlPage<'a> {
    report: &'a PageDocument,
    style: &'static str,
}

#[derive(Template)]
#[template(path = "page.md")]
struct MarkdownPage<'a> {
    report: &'a PageDocument,
}

pub(super) fn html(report: &PageDocument) -> String {
    let page = HtmlPage { report, style: include_str!("style.css") };
    page.render().expect("writing to a string cannot fail")
}

pub(super) fn markdown(report: &PageDocument) -> String {
    MarkdownPage { report }.render().expect("writing to a string cannot fail")
}

fn in_cell(text: impl std::fmt::Display) -> String {
    text.to_string().replace('|', "\\|").replace('\n', " ")
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn class(cell: &Cell, column: &Column) -> &'static str {
    match cell {
        _ if column.is_numeric => "n",
        Cell::Text(text) if matches!(text.as_str(), "reproduced" | "passed") => "good",
        Cell::Text(text) if matches!(text.as_str(), "DIFFERS" | "FAILED") => "bad",
        // A hash contains no spaces, so lines must be allowed to break within it.
        Cell::Text(text) if text.len() == 64 && !text.contains(' ') => "hash",
        Cell::Text(text) if text.len() > 36 => "long",
        _ => "",
    }
}

fn parts(cell: &Cell) -> (String, &'static str) {
    match cell {
        Cell::Number(quantity) => quantity.parts(),
        other => (other.show(), ""),
    }
}
