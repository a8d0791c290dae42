// SPDX-License-Identifier: Apache-2.0
//! Definitions of metrics, extracted from the documentation pages so that each metric is defined
//! only once.

use super::document::{Cell, FigureTable};

/// The pages with their paths in the documentation.
const PAGES: [(&str, &str); 3] = [
    ("docs/metrics.md", include_str!("../../defined/metrics.md")),
    ("docs/compare.md", include_str!("../../defined/compare.md")),
    ("docs/cost.md", include_str!("../../defined/cost.md")),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    pub(super) name: &'static str,
    pub(super) text: String,
    pub(super) page: &'static str,
}

/// Returns the definition of a metric: the second cell of the table row that names it in the first
/// cell.
pub(super) fn definition(name: &'static str) -> Option<Definition> {
    let quoted = format!("`{name}`");
    PAGES.iter().find_map(|(page, text)| {
        let row = text.lines().find_map(|line| {
            let cells: Vec<&str> = line.strip_prefix("| ")?.split(" | ").collect();
            (cells.len() > 1 && cells[0].contains(&quoted))
                .then(|| cells[1].trim_end_matches(" |").trim())
        })?;
        Some(Definition { name, text: plain(row), page })
    })
}

/// Removes the Markdown markup of a line.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some(open) = rest.find('[') {
        let link = rest[open..]
            .split_once("](")
            .and_then(|(name, tail)| Some((name, tail.split_once(')')?.1)));
        text.push_str(&rest[..open]);
        match link {
            Some((name, tail)) => {
                text.push_str(&name[1..]);
                rest = tail;
            }
            None => {
                text.push('[');
                rest = &rest[open + 1..];
            }
        }
    }
    text.push_str(rest);
    text.replace('`', "").replace("**", "").trim_end_matches(" |").to_owned()
}

/// Returns the metrics used by the page, each with its definition and the derivation of our value.
pub(super) fn table(used: &[(&'static str, String)]) -> FigureTable {
    let mut table = FigureTable::new("definitions", "Formulas")
        .words("figure")
        .words("definition")
        .words("here")
        .words("defined in");
    for (name, here) in used {
        let found = definition(name);
        // A figure without a definition in the documentation is defined by its derivation.
        let (text, here, page) = match found {
            Some(found) => (found.text, here.as_str(), found.page),
            None => (here.clone(), "–", "–"),
        };
        table.row([Cell::text(*name), Cell::text(text), Cell::text(here), Cell::text(page)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_the_row_that_names_the_figure() {
        let waste = definition("waste_ratio").unwrap();
        assert!(waste.text.starts_with("gpus_wasted / T"), "{waste:?}");
        assert_eq!(waste.page, "docs/metrics.md");
        assert_eq!(definition("no_such_figure"), None);
    }

    #[test]
    fn removes_markdown_formatting() {
        assert_eq!(plain("a `b` **c** [d](e.md) [f] |"), "a b c d [f]");
    }
}
