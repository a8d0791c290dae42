// SPDX-License-Identifier: Apache-2.0
//! Tables of results, declared in `templates/tables.txt`.

use serde::Serialize;
use serde_json::Value;

use super::document::{Cell, Column, FigureTable};
use super::quantity::{ShownUnit, fixed};

const DECLARED: &str = include_str!("../../templates/tables.txt");

struct ColumnSpec {
    heading: &'static str,
    path: &'static str,
    kind: &'static str,
    definition: Option<&'static str>,
}

pub(super) fn table<T: Serialize>(id: &str, results: impl IntoIterator<Item = T>) -> FigureTable {
    let (title, specs) = declared(id).unwrap_or_else(|| panic!("{id} is declared"));
    let columns = specs.iter().map(|spec| Column {
        heading: spec.heading.to_owned(),
        definition: spec.definition,
        is_numeric: !matches!(spec.kind, "text" | "list" | "passed" | "yes" | "confidence"),
    });
    let mut table = FigureTable {
        id: id.to_owned(),
        title: title.to_owned(),
        columns: columns.collect(),
        rows: Vec::new(),
    };
    for result in results {
        let row = serde_json::to_value(result).expect("results are JSON");
        table.row(specs.iter().map(|spec| cell(&row, spec)));
    }
    table
}

fn declared(id: &str) -> Option<(&'static str, Vec<ColumnSpec>)> {
    let mut lines = DECLARED.lines().skip_while(|line| {
        line.strip_prefix("= ").and_then(|head| head.split(" | ").next()) != Some(id)
    });
    let (_, title) = lines.next()?.split_once(" | ")?;
    let columns = lines.map_while(|line| {
        let mut parts = line.split(" | ");
        let (heading, path, kind) = (parts.next()?, parts.next()?, parts.next()?);
        Some(ColumnSpec { heading, path, kind, definition: parts.next() })
    });
    Some((title, columns.collect()))
}

fn at<'a>(row: &'a Value, path: &str) -> Option<&'a Value> {
    row.pointer(&format!("/{path}")).filter(|value| !value.is_null())
}

fn cell(row: &Value, ColumnSpec { path, kind, .. }: &ColumnSpec) -> Cell {
    if *kind == "length" {
        return Cell::count(at(row, path).and_then(Value::as_array).map_or(0, Vec::len) as u64);
    }
    if let Some((end, start)) = path.split_once(" - ") {
        let [end, start] = [end, start].map(|path| at(row, path).and_then(Value::as_u64));
        return Cell::time(end.zip(start).map(|(end, start)| end.saturating_sub(start)));
    }
    let Some(value) = at(row, path) else { return Cell::Missing };
    if *kind == "as shown" {
        let [unit, text] =
            [1, 2].map(|index: usize| value[index].as_str().unwrap_or_default().to_owned());
        return Cell::Shown { value: value[0].as_f64(), unit, text };
    }
    match value {
        Value::String(text) if text == "recalled-reproduced" => "not verified".into(),
        Value::String(text) => text.as_str().into(),
        Value::Bool(is_so) => match (*kind, is_so) {
            ("passed", true) => "passed".into(),
            ("passed", false) => "FAILED".into(),
            (_, true) => "yes".into(),
            (_, false) => "no".into(),
        },
        Value::Array(all) => {
            let names = all.iter().filter_map(Value::as_str);
            names.collect::<Vec<_>>().join(", ").into()
        }
        Value::Object(all) => Cell::time(all.values().filter_map(Value::as_u64).sum::<u64>()),
        _ => value.as_f64().map_or(Cell::Missing, |value| number(value, kind)),
    }
}

fn in_own_unit(value: f64, unit: &str, decimals: usize) -> Cell {
    Cell::Shown { value: Some(value), unit: unit.to_owned(), text: fixed(value, decimals) }
}

fn number(value: f64, kind: &'static str) -> Cell {
    let unit = match kind {
        "million USD" => return in_own_unit(value / 1e6, kind, 1),
        "MW" | "PFLOP-years" => return in_own_unit(value, kind, 1),
        "GPU-hours" => {
            let decimals = if value.abs() < 0.1 && value != 0.0 { 5 } else { 1 };
            return in_own_unit(value, kind, decimals);
        }
        "rate" => {
            let text = format!("{}\u{a0}/s", fixed(value, 3));
            return Cell::Shown { value: Some(value), unit: "1/s".to_owned(), text };
        }
        "ps" => return Cell::number(value * 1e-12, ShownUnit::Seconds),
        "ms" => return Cell::number(value * 1e-3, ShownUnit::Seconds),
        "s" => ShownUnit::Seconds,
        "share" => ShownUnit::Share,
        "times" => ShownUnit::Times,
        "bytes" => ShownUnit::Bytes,
        "GPUs" => ShownUnit::Gpus,
        "nodes" => ShownUnit::Nodes,
        "days" => ShownUnit::Days,
        "USD" => ShownUnit::Usd,
        "USD per GB/s" => ShownUnit::UsdPerBandwidth,
        "GB/s" => ShownUnit::Bandwidth,
        "W" => ShownUnit::Watts,
        "parts per GPU" => ShownUnit::PartsPerGpu,
        _ => ShownUnit::Count,
    };
    Cell::number(value, unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_table_is_declared_with_columns() {
        let heads = DECLARED.lines().filter_map(|line| line.strip_prefix("= "));
        for head in heads {
            let id = head.split(" | ").next().unwrap();
            let (title, columns) = declared(id).unwrap();
            assert!(!title.is_empty() && columns.len() >= 2, "{id}");
        }
        assert!(declared("no such table").is_none());
    }

    #[test]
    fn cells_are_shown_by_their_kind() {
        let fault = json!({"parts": ["n1", "n2"], "at_ps": 1_000_000, "detected_ps": 3_000_000,
            "groups_affected": ["g0"], "gpus_affected": 8, "gpus_lost": 4});
        let shown: Vec<String> = table("faults", [fault]).rows[0].iter().map(Cell::show).collect();
        let expected =
            ["n1, n2", "1.00\u{a0}µs", "2.00\u{a0}µs", "–", "–", "1", "8\u{a0}GPUs", "4\u{a0}GPUs"];
        assert_eq!(shown, expected);
        let expectation = json!({"expect": "a", "value": "b", "passed": false});
        assert_eq!(table("expectations", [expectation]).rows[0][2].show(), "FAILED");
        let step = json!({"index": 2, "why": {"exposed_ps": {"tp": 1, "weights": 2}}});
        assert_eq!(table("steps", [step]).rows[0][7], Cell::time(3));
    }
}
