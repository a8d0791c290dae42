// SPDX-License-Identifier: Apache-2.0
//! The report as Markdown, with the same sections, conclusions and tables. Captions replace
//! drawings; their numbers are in the CSV, and also here if there are few.

use std::fmt::Write;

use super::document::{Figure, FigureTable, PageBlock, PageDocument};

/// Maximum number of rows of a drawing's numbers.
const MOST_ROWS: usize = 60;

pub(super) fn render(report: &PageDocument) -> String {
    let mut out = format!("# {}\n\n{}\n", report.title, report.lead);
    if !report.answer.is_empty() {
        let _ = writeln!(out, "\n**{}**", report.answer);
    }
    if !report.headlines.is_empty() {
        out.push_str("\n| figure | value | beside it |\n| --- | ---: | --- |\n");
    }
    for headline in &report.headlines {
        let _ = writeln!(
            out,
            "| {} | {} | {} |",
            headline.label,
            headline.quantity.show(),
            escaped(&headline.beside)
        );
    }
    for section in &report.sections {
        let _ = writeln!(out, "\n## {}\n\n{}", section.title, section.conclusion);
        for block in &section.blocks {
            add(&mut out, block);
        }
    }
    let _ = writeln!(out, "\n---\n\n{}", report.footer);
    out
}

fn add(out: &mut String, block: &PageBlock) {
    match block {
        PageBlock::Figure(Figure { caption, data, .. }) => {
            let _ = writeln!(out, "\n{caption}");
            data.iter()
                .filter(|table| table.rows.len() <= MOST_ROWS)
                .for_each(|table| add_table(out, table));
        }
        PageBlock::Table(table) => add_table(out, table),
        PageBlock::Note(note) => _ = writeln!(out, "\n{note}"),
        PageBlock::Folded { summary, tables } => {
            let _ = writeln!(out, "\n### {summary}");
            tables.iter().for_each(|table| add_table(out, table));
        }
    }
}

fn add_table(out: &mut String, table: &FigureTable) {
    out.push('\n');
    if !table.title.is_empty() {
        let _ = writeln!(out, "**{}**\n", escaped(&table.title));
    }
    for column in &table.columns {
        let _ = write!(out, "| {} ", escaped(&column.heading));
    }
    out.push_str("|\n");
    for column in &table.columns {
        out.push_str(if column.is_numeric { "| ---: " } else { "| --- " });
    }
    out.push_str("|\n");
    for row in &table.rows {
        for cell in row {
            let _ = write!(out, "| {} ", escaped(&cell.show()));
        }
        out.push_str("|\n");
    }
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
