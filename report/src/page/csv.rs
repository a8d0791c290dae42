// SPDX-License-Identifier: Apache-2.0
//! Writes every number of the report as `table,row,column,value,unit`. Values are unrounded, ratios are fractions, and
//! text has no unit. A row is named by its first cell, and duplicates are numbered like `khop:3#17`.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::document::{Cell, FigureTable, PageBlock, PageDocument};

pub(super) fn render(report: &PageDocument) -> String {
    let mut out = String::from("table,row,column,value,unit\n");
    for figure in &report.first.figures {
        let (value, unit) = (figure.quantity.value.to_string(), figure.quantity.unit.name());
        line(&mut out, "summary", figure.label, figure.definition.unwrap_or("value"), &value, unit);
    }
    for block in report.sections.iter().flat_map(|section| &section.blocks) {
        if let PageBlock::Table(table) | PageBlock::Data(table) = block {
            add(&mut out, table);
        }
    }
    out
}

fn add(out: &mut String, table: &FigureTable) {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let columns = unique(table.columns.iter().map(|column| column.heading.as_str()));
    for row in &table.rows {
        let name = row.first().map(Cell::show).unwrap_or_default();
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        let name = if *count == 1 { name } else { format!("{name}#{count}") };
        for (cell, column) in row.iter().zip(&columns).skip(1) {
            let (value, unit) = match cell {
                Cell::Text(text) => (text.clone(), ""),
                Cell::Number(quantity) => (quantity.value.to_string(), quantity.unit.name()),
                Cell::Shown { value: Some(value), unit, .. } => (value.to_string(), unit.as_str()),
                Cell::Shown { value: None, .. } | Cell::Missing => continue,
            };
            line(out, &table.id, &name, column, &value, unit);
        }
    }
}

fn unique<'a>(headings: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for heading in headings {
        let again = names.iter().filter(|name| name.split('#').next() == Some(heading)).count();
        names.push(if again == 0 {
            heading.to_owned()
        } else {
            format!("{heading}#{}", again + 1)
        });
    }
    names
}

fn line(out: &mut String, table: &str, row: &str, column: &str, value: &str, unit: &str) {
    let _ = writeln!(
        out,
        "{},{},{},{},{unit}",
        quoted(table),
        quoted(row),
        quoted(column),
        quoted(value)
    );
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::quantity::ShownUnit;

    #[test]
    fn repeated_rows_and_columns_are_numbered_and_text_is_quoted() {
        let mut table = FigureTable { id: "waste".to_owned(), ..FigureTable::default() };
        for heading in ["design", "from", "from", "note"] {
            table.column(heading.to_owned(), None);
        }
        for value in [0.25, 1e-9] {
            table.row(["a,b".into(), Cell::share(value), Cell::Missing, "say \"so\"".into()]);
        }
        let mut out = String::new();
        add(&mut out, &table);
        let expected = "waste,\"a,b\",from,0.25,fraction\nwaste,\"a,b\",note,\"say \"\"so\"\"\",\n\
                        waste,\"a,b#2\",from,0.000000001,fraction\nwaste,\"a,b#2\",note,\"say \"\"so\"\"\",\n";
        assert_eq!(out, expected);
        assert_eq!(unique(["x", "y", "x"].into_iter()), ["x", "y", "x#2"]);
        assert_eq!(ShownUnit::Watts.name(), "W");
    }
}
