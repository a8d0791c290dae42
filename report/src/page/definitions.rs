// SPDX-License-Identifier: Apache-2.0
//! Extracts definitions of metrics from the documentation, so that each is defined only once.

use super::document::{FigureTable, PageBlock, PageDocument};
use super::tables;

const PAGES: [(&str, &str); 3] = [
    ("docs/metrics.md", include_str!("../../defined/metrics.md")),
    ("docs/compare.md", include_str!("../../defined/compare.md")),
    ("docs/cost.md", include_str!("../../defined/cost.md")),
];

const OTHERS: &str = include_str!("../../templates/definitions.txt");

fn definition(name: &str) -> Option<(String, &'static str)> {
    let quoted = format!("`{name}`");
    let found = PAGES.iter().find_map(|(page, text)| {
        let row = text.lines().find_map(|line| {
            let cells: Vec<&str> = line.strip_prefix("| ")?.split(" | ").collect();
            (cells.len() > 1 && cells[0].contains(&quoted)).then(|| cells[1])
        })?;
        Some((plain(row.trim_end_matches(" |").trim()), *page))
    });
    found.or_else(|| {
        let mut cells = OTHERS.lines().map(|line| line.split(" | "));
        let mut row = cells.find(|row| row.clone().next() == Some(name))?.skip(1);
        Some((row.next()?.to_owned(), row.next()?))
    })
}

fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, tail)) = rest.split_once('[') {
        text.push_str(before);
        rest = tail;
        if let Some((name, target)) = tail.split_once("](")
            && let Some((_, after)) = target.split_once(')')
        {
            text.push_str(name);
            rest = after;
        } else {
            text.push('[');
        }
    }
    text.push_str(rest);
    text.replace('`', "").replace("**", "")
}

pub(super) fn table(report: &PageDocument) -> FigureTable {
    let figures = report.first.figures.iter().filter_map(|figure| figure.definition);
    let blocks = report.sections.iter().flat_map(|section| &section.blocks);
    let tables = blocks.filter_map(|block| match block {
        PageBlock::Table(table) => Some(table),
        _ => None,
    });
    let columns = tables.flat_map(|table| &table.columns).filter_map(|column| column.definition);
    let mut names: Vec<&str> = Vec::new();
    for name in figures.chain(columns) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let rows = names.into_iter().map(|name| {
        let (text, page) = definition(name).expect("every figure is defined");
        (name, text, page)
    });
    tables::table("definitions", rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_the_row_that_names_the_figure() {
        let (text, page) = definition("waste_ratio").unwrap();
        assert!(text.starts_with("gpus_wasted / T"), "{text}");
        assert_eq!(page, "docs/metrics.md");
        assert_eq!(definition("no_such_figure"), None);
    }

    #[test]
    fn crossing_traffic_is_defined_in_words() {
        let (text, _) = definition("cross_tor_share").unwrap();
        assert!(text.starts_with("fraction of the hops of inner"), "{text}");
    }

    #[test]
    fn removes_markdown_formatting() {
        assert_eq!(plain("a `b` **c** [d](e.md) [f]"), "a b c d [f]");
    }
}
