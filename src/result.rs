//! How a verb shows its result and where it keeps it: text, JSON, or its rows as comma-separated values.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::Value;

use crate::files;
use crate::output;

/// Flatten it into the arguments of a verb whose result is one document with rows.
#[derive(Clone, Debug, Args)]
pub(crate) struct ResultArguments {
    /// How to show the result.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: ResultFormat,
    /// Keep the result in this file, too: its rows if the name ends in .csv, else the JSON document.
    #[arg(short, long, value_name = "FILE", value_parser = files::destination)]
    output: Option<PathBuf>,
}

/// The forms of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ResultFormat {
    /// Aligned tables with units, for people.
    #[default]
    Text,
    /// One JSON document, for programs.
    Json,
    /// The rows alone, for spreadsheets: nested values get names with dots.
    Csv,
}

impl ResultArguments {
    /// Shows `result` and keeps it; `rows` is the name of its main table.
    ///
    /// # Errors
    /// If standard output or the file cannot be written.
    pub(crate) fn show(
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
        match self.format {
            ResultFormat::Text => output::print(&text()),
            ResultFormat::Json => output::print_json(result),
            ResultFormat::Csv => output::print(&csv_of(result, rows)?),
        }
    }
}

/// The rows of a table of the document: a column for each value that any row has.
fn csv_of(result: &impl Serialize, rows: &str) -> anyhow::Result<String> {
    let document = serde_json::to_value(result)?;
    let rows: Vec<Vec<(String, String)>> = match document.get(rows) {
        Some(Value::Array(rows)) => rows.iter().map(cells).collect(),
        _ => vec![cells(&document)],
    };
    let mut columns: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flatten() {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(&columns)?;
    for row in &rows {
        let cell = |column: &&str| row.iter().find(|(name, _)| name == column);
        csv.write_record(columns.iter().map(|column| cell(column).map_or("", |(_, value)| value)))?;
    }
    Ok(String::from_utf8(csv.into_inner()?)?)
}

/// Each value of a row with its name; lists of plain values are separated by blanks, other lists stay JSON.
fn cells(row: &Value) -> Vec<(String, String)> {
    let mut cells = Vec::new();
    flatten(String::new(), row, &mut cells);
    cells
}

fn flatten(name: String, value: &Value, cells: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let dot = if name.is_empty() { "" } else { "." };
                flatten(format!("{name}{dot}{field}"), value, cells);
            }
        }
        Value::Array(values)
            if values.iter().all(|value| !value.is_object() && !value.is_array()) =>
        {
            let plain: Vec<String> = values.iter().map(plain).collect();
            cells.push((name, plain.join(" ")));
        }
        value => cells.push((name, plain(value))),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::csv_of;

    #[test]
    fn rows_with_different_values_share_their_columns() {
        let document = json!({"rows": [
            {"arch": "khop:3", "queue": {"p50": 1}, "share": [1, 2.5]},
            {"arch": "a, \"b\"", "more": null, "parts": [{"name": "x"}]},
        ]});
        assert_eq!(
            csv_of(&document, "rows").unwrap(),
            "arch,queue.p50,share,more,parts\nkhop:3,1,1 2.5,,\n\"a, \"\"b\"\"\",,,,\"[{\"\"name\"\":\"\"x\"\"}]\"\n"
        );
    }

    #[test]
    fn a_document_without_the_table_is_one_row() {
        assert_eq!(
            csv_of(&json!({"servers": 3, "days": 1.5}), "rows").unwrap(),
            "days,servers\n1.5,3\n"
        );
    }
}
