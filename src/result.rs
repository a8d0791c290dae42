// SPDX-License-Identifier: Apache-2.0

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use lightloom_fabric::provenance::{Inputs, VERSION};

use crate::files;
use crate::output;

#[derive(Clone, Debug, Args)]
pub struct ResultArguments {
    /// Output format
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: ResultFormat,
    /// Also write the result to this file: its rows if the name ends in .csv, otherwise the JSON
    /// document
    #[arg(short, long, value_name = "FILE", value_parser = files::destination)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ResultFormat {
    /// Aligned tables with units
    #[default]
    Text,
    /// One JSON document
    Json,
    /// Only the rows, for spreadsheets; nested values get dotted names
    Csv,
    /// Only the rows as a Markdown table, for pages and issues
    Markdown,
}

#[derive(Debug, Serialize)]
pub struct ResultDocument<T> {
    schema: &'static str,
    version: &'static str,
    #[serde(skip_serializing_if = "Inputs::is_empty")]
    inputs: Inputs,
    #[serde(flatten)]
    result: T,
}

impl<T> ResultDocument<T> {
    pub fn new(schema: &'static str, inputs: Inputs, result: T) -> Self {
        Self { schema, version: VERSION, inputs, result }
    }
}

const ABOUT: [&str; 3] = ["schema", "version", "inputs"];

impl ResultArguments {
    /// `rows` is the name of the main table.
    pub fn show(
        &self,
        result: &impl Serialize,
        rows: &str,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        if let Some(path) = &self.output {
            let kept = if path.extension().is_some_and(|ending| ending == "csv") {
                csv_of(result, rows)?
            } else {
                serde_json::to_string_pretty(result)? + "\n"
            };
            files::write(path, kept.as_bytes())?;
        }
        self.format.print(result, rows, text)
    }
}

impl ResultFormat {
    /// `rows` is the name of the main table.
    pub fn print(
        self,
        result: &impl Serialize,
        rows: &str,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        match self {
            Self::Text => output::print(&text()),
            Self::Json => output::print_json(result),
            Self::Csv => output::print(&csv_of(result, rows)?),
            Self::Markdown => output::print(&markdown_of(&csv_of(result, rows)?)?),
        }
    }
}

/// One column per value that occurs in any row, in document order. Nested tables are omitted and
/// listed in a note.
pub fn csv_of(result: &impl Serialize, rows: &str) -> anyhow::Result<String> {
    let document: Tree = serde_json::from_str(&serde_json::to_string(result)?)?;
    let rows = match (document.field(rows), &document) {
        (Some(Tree::List(rows)), _) | (None, Tree::List(rows)) => {
            rows.iter().map(Row::of).collect()
        }
        _ => vec![Row::of(&document.without(&ABOUT))],
    };
    let mut columns: Vec<&str> = Vec::new();
    let mut tables: Vec<&str> = Vec::new();
    for row in &rows {
        let place = |names: &mut Vec<_>, name| {
            if !names.contains(&name) {
                names.push(name);
            }
        };
        row.cells.iter().for_each(|(name, _)| place(&mut columns, name.as_str()));
        row.tables.iter().for_each(|name| place(&mut tables, name.as_str()));
    }
    if !tables.is_empty() {
        output::note(&format!("the CSV omits these separate tables: {}", tables.join(", ")));
    }
    if columns.is_empty() {
        return Ok(String::new());
    }
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(&columns)?;
    for row in &rows {
        let cell = |column: &&str| row.cells.iter().find(|(name, _)| name == column);
        csv.write_record(columns.iter().map(|column| cell(column).map_or("", |(_, value)| value)))?;
    }
    Ok(String::from_utf8(csv.into_inner()?)?)
}

fn markdown_of(csv: &str) -> anyhow::Result<String> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(csv.as_bytes());
    let mut text = String::new();
    for (number, record) in reader.records().enumerate() {
        let record = record?;
        let cells: Vec<String> = record.iter().map(|cell| cell.replace('|', "\\|")).collect();
        text += &format!("| {} |\n", cells.join(" | "));
        if number == 0 {
            text += &format!("|{}\n", " --- |".repeat(cells.len()));
        }
    }
    Ok(text)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Tree {
    List(Vec<Tree>),
    Fields(IndexMap<String, Tree>),
    Plain(Value),
}

impl Tree {
    fn without(self, names: &[&str]) -> Self {
        match self {
            Self::Fields(mut fields) => {
                fields.retain(|name, _| !names.contains(&name.as_str()));
                Self::Fields(fields)
            }
            other => other,
        }
    }

    fn field(&self, name: &str) -> Option<&Self> {
        let Self::Fields(fields) = self else { return None };
        fields.get(name)
    }

    fn text(&self) -> Option<String> {
        match self {
            Self::Plain(Value::Null) => Some(String::new()),
            Self::Plain(Value::String(text)) => Some(text.clone()),
            Self::Plain(value) => Some(value.to_string()),
            Self::List(_) | Self::Fields(_) => None,
        }
    }
}

#[derive(Default)]
struct Row {
    cells: Vec<(String, String)>,
    tables: Vec<String>,
}

impl Row {
    fn of(row: &Tree) -> Self {
        let mut flat = Self::default();
        flat.add(String::new(), row);
        flat
    }

    fn add(&mut self, name: String, value: &Tree) {
        match value {
            Tree::Plain(_) => self.cells.push((name, value.text().unwrap_or_default())),
            Tree::Fields(fields) => {
                for (field, value) in fields {
                    let dot = if name.is_empty() { "" } else { "." };
                    self.add(format!("{name}{dot}{field}"), value);
                }
            }
            Tree::List(values) => match values.iter().map(Tree::text).collect::<Option<Vec<_>>>() {
                Some(plain) => self.cells.push((name, plain.join(" "))),
                None => self.tables.push(name),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::json;

    use super::{csv_of, markdown_of};

    #[test]
    fn markdown_table_has_a_rule_and_escapes_bars() {
        let markdown = markdown_of("arch,note\nkhop:3,a|b\n").unwrap();
        assert_eq!(markdown, "| arch | note |\n| --- | --- |\n| khop:3 | a\\|b |\n");
    }

    #[test]
    fn rows_with_different_values_share_their_columns() {
        let document = json!({"rows": [
            {"arch": "khop:3", "queue": {"p50": 1}, "share": [1, 2.5]},
            {"arch": "a, \"b\"", "more": null, "parts": [{"name": "x"}]},
        ]});
        assert_eq!(
            csv_of(&document, "rows").unwrap(),
            "arch,queue.p50,share,more\nkhop:3,1,1 2.5,\n\"a, \"\"b\"\"\",,,\n"
        );
    }

    #[test]
    fn columns_follow_the_order_of_the_document() {
        #[derive(Serialize)]
        struct Trace {
            servers: u32,
            days: f64,
        }
        let trace = Trace { servers: 3, days: 1.5 };
        assert_eq!(csv_of(&trace, "rows").unwrap(), "servers,days\n3,1.5\n");
    }
}
