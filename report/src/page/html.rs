// SPDX-License-Identifier: Apache-2.0
//! The HTML page: one file with styles and drawings, without external resources or scripts.

use std::fmt::Write;

use askama::Template;

use super::document::{Cell, Column, PageBlock, PageDocument};
use super::drawing::escaped;

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    report: &'a PageDocument,
    style: &'static str,
}

pub(super) fn render(report: &PageDocument) -> String {
    let page = Page { report, style: include_str!("style.css") };
    page.render().expect("writing to a text does not fail")
}

/// Returns the CSS class of a cell: numbers are right-aligned, verdicts coloured.
fn class(cell: &Cell, column: &Column) -> &'static str {
    match cell {
        _ if column.is_numeric => "n",
        Cell::Text(text) if matches!(text.as_str(), "reproduced" | "passed") => "good",
        Cell::Text(text) if matches!(text.as_str(), "DIFFERS" | "FAILED") => "bad",
        // Hashes contain no space to break at.
        Cell::Text(text) if text.len() == 64 && !text.contains(' ') => "hash",
        Cell::Text(text) if text.len() > 36 => "long",
        _ => "",
    }
}

const BOOK: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/");

/// Turns documentation paths in a text into links.
fn linked(text: &str) -> String {
    let mut html = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("docs/") {
        let Some(length) = rest[start..].find(".md").map(|end| end + 3) else { break };
        let page = &rest[start..start + length];
        html.push_str(&escaped(&rest[..start]));
        if page.contains(char::is_whitespace) {
            html.push_str(&escaped(page));
        } else {
            let _ = write!(html, r#"<a href="{BOOK}{0}">{0}</a>"#, escaped(page));
        }
        rest = &rest[start + length..];
    }
    html + &escaped(rest)
}

/// Returns the digits of a cell and its unit.
fn parts(cell: &Cell) -> (String, &'static str) {
    match cell {
        Cell::Number(quantity) => quantity.parts(),
        other => (other.show(), ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_the_book_becomes_a_link() {
        let html = linked("<a> as docs/buy.md says (docs/how-to/architect.md).");
        assert!(html.starts_with("&lt;a&gt; as <a href=\"https://"), "{html}");
        assert!(html.contains("/blob/main/docs/buy.md\">docs/buy.md</a> says (<a "), "{html}");
        assert!(
            html.ends_with("docs/how-to/architect.md\">docs/how-to/architect.md</a>)."),
            "{html}"
        );
        assert_eq!(linked("docs/ and no.md"), "docs/ and no.md");
    }
}
