// SPDX-License-Identifier: Apache-2.0

mod against;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use indexmap::{IndexMap, IndexSet};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use lightloom_fabric::provenance::{Inputs, VERSION};

use against::Earlier;

use crate::files;
use crate::output::{self, WrongUsage};

#[derive(Clone, Debug, Args)]
pub struct ResultArguments {
    /// Output format
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: ResultFormat,
    /// Print this table of the result, such as `faults`, as CSV or Markdown [default: the main
    /// table]
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,
    /// Compare with an earlier JSON result of this verb, and list all values that differ
    #[arg(long, value_name = "FILE", value_parser = against::earlier, conflicts_with = "format")]
    against: Option<Earlier>,
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
    pub fn document(&self) -> Option<&Path> {
        self.output.as_deref().filter(|_| !self.keeps_rows())
    }

    fn keeps_rows(&self) -> bool {
        let ending = self.output.as_ref().and_then(|path| path.extension());
        ending.is_some_and(|ending| ending == "csv")
    }

    /// `rows` is the name of the main table.
    pub fn show(
        &self,
        result: &impl Serialize,
        rows: &str,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let keeps_rows = self.keeps_rows();
        let format = match self.format {
            ResultFormat::Text if self.table.is_some() && !keeps_rows => ResultFormat::Csv,
            format => format,
        };
        if let Some(table) = &self.table {
            has_table(result, table)?;
            if format == ResultFormat::Json && !keeps_rows {
                let message = "--table selects rows, but --format json prints the whole result";
                return Err(WrongUsage(message.to_owned()).into());
            }
        }
        let rows = self.table.as_deref().unwrap_or(rows);
        if let Some(path) = &self.output {
            let kept = if keeps_rows {
                csv_of(result, rows)?
            } else {
                serde_json::to_string_pretty(result)? + "\n"
            };
            files::write(path, kept.as_bytes())?;
        }
        format.print(result, rows, text)?;
        if let Some(earlier) = &self.against {
            output::print(&earlier.differences(&Tree::of(result)?)?)?;
        }
        Ok(())
    }
}

impl ResultFormat {
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

fn has_table(result: &impl Serialize, table: &str) -> anyhow::Result<()> {
    let document = Tree::of(result)?;
    if document.rows(table).is_some() {
        return Ok(());
    }
    let known = document.tables().join(", ");
    Err(WrongUsage(format!("the result has no table `{table}`: use one of {known}")).into())
}

/// One column per value that occurs in any row, in document order. Nested tables are omitted and listed in a note.
pub fn csv_of(result: &impl Serialize, rows: &str) -> anyhow::Result<String> {
    let document = Tree::of(result)?;
    let rows = match document.rows(rows) {
        Some(rows) => rows,
        None => vec![Row::of(&document.without(&ABOUT))],
    };
    let columns: IndexSet<&str> =
        rows.iter().flat_map(|row| &row.cells).map(|(name, _)| name.as_str()).collect();
    let tables: IndexSet<&str> =
        rows.iter().flat_map(|row| &row.tables).map(String::as_str).collect();
    if !tables.is_empty() {
        let tables = tables.into_iter().collect::<Vec<_>>().join(", ");
        output::note(&format!("the CSV omits these tables, which --table prints: {tables}"));
    }
    if columns.is_empty() {
        return Ok(String::new());
    }
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(&columns)?;
    for row in &rows {
        csv.write_record(columns.iter().map(|column| {
            let cell = row.cells.iter().find(|(name, _)| name == column);
            cell.map_or("", |(_, value)| value)
        }))?;
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

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Tree {
    List(Vec<Tree>),
    Fields(IndexMap<String, Tree>),
    Plain(Value),
}

impl Tree {
    fn of(result: &impl Serialize) -> anyhow::Result<Self> {
        Ok(serde_json::from_str(&serde_json::to_string(result)?)?)
    }

    /// The rows of a table of the document, or of its rows: the faults of all runs of a sweep. These
    /// begin with the first value of the row that contains them, such as the seed.
    fn rows(&self, table: &str) -> Option<Vec<Row>> {
        match (self.field(table), self) {
            (Some(Self::List(rows)), _) | (None, Self::List(rows)) => {
                return Some(rows.iter().map(Row::of).collect());
            }
            (Some(fields @ Self::Fields(_)), _) => return Some(vec![Row::of(fields)]),
            _ => {}
        }
        self.lists().find_map(|(_, outer)| {
            let has = outer.iter().any(|row| matches!(row.field(table), Some(Self::List(_))));
            has.then(|| outer.iter().flat_map(|row| row.inner_rows(table)).collect())
        })
    }

    fn inner_rows(&self, table: &str) -> Vec<Row> {
        let (Self::Fields(fields), Some(Self::List(inner))) = (self, self.field(table)) else {
            return Vec::new();
        };
        let label = fields.iter().find_map(|(name, value)| Some((name.clone(), value.text()?)));
        let rows = inner.iter().map(|row| {
            let mut labelled = Row::default();
            labelled.cells.extend(label.clone());
            labelled.add(String::new(), row);
            labelled
        });
        rows.collect()
    }

    fn lists(&self) -> impl Iterator<Item = (&str, &[Self])> {
        let fields = match self {
            Self::Fields(fields) => Some(fields),
            Self::List(_) | Self::Plain(_) => None,
        };
        fields.into_iter().flatten().filter_map(|(name, value)| match value {
            Self::List(rows) if matches!(rows.first(), Some(Self::Fields(_))) => {
                Some((name.as_str(), rows.as_slice()))
            }
            _ => None,
        })
    }

    fn tables(&self) -> Vec<&str> {
        let names = self.lists().flat_map(|(name, rows)| {
            let inner = rows.iter().flat_map(Self::lists).map(|(inner, _)| inner);
            std::iter::once(name).chain(inner)
        });
        names.collect::<IndexSet<&str>>().into_iter().collect()
    }

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
    fn rows_of_an_inner_table_begin_with_the_label_of_their_outer_row() {
        let document = json!({"seeds": "0..1", "runs": [
            {"seed": 0, "took": true, "faults": [{"part": "n1"}, {"part": "n2", "restored_ps": 5}]},
            {"seed": 1, "took": true, "faults": []},
            {"seed": 2, "took": false, "faults": [{"part": "n3"}]},
        ]});
        assert_eq!(
            csv_of(&document, "faults").unwrap(),
            "seed,part,restored_ps\n0,n1,\n0,n2,5\n2,n3,\n"
        );
        let unknown = super::has_table(&document, "fault").unwrap_err().to_string();
        assert_eq!(unknown, "the result has no table `fault`: use one of runs, faults");
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
