// SPDX-License-Identifier: Apache-2.0
//! Fits the shipped calibration constants again to the published runs of `published_runs`. The fit must find nothing
//! better.
//!
//! `LIGHTLOOM_BLESS=2026-11-22 LIGHTLOOM_NIGHT=1 cargo test --release -p lightloom-training --test it fit_again:: --
//! --nocapture` writes `chips.csv` and `frameworks.csv` with this date.

mod descent;

use std::path::Path;

use lightloom_training::calibrated::{CHIPS, Chip, FRAMEWORKS, Framework};
use lightloom_training::runs::MeasuredRun;
use serde::Serialize;
use serde_json::Value;

use crate::published_runs::published;
use descent::{Constants, fit};

/// The packet emulation and the runs in the documentation depend on these shipped values.
const KEPT: [(&str, &str); 7] = [
    ("h100", "chip gemm bf16"),
    ("h100", "chip lost operations"),
    ("h100", "chip attention"),
    ("h100", "chip memory"),
    ("nemo-25.02", "gemm"),
    ("nemo-25.02", "attention"),
    ("nemo-25.02", "memory"),
];

#[test]
fn shipped_constants_are_those_of_the_fit() {
    if std::env::var_os("LIGHTLOOM_NIGHT").is_none() {
        return;
    }
    let Some(runs) = published() else { return };
    let testing = runs.testing();
    let fitting = runs.runs.iter().zip(&testing).filter(|(_, tests)| !**tests);
    let fitting: Vec<&MeasuredRun> = fitting.map(|(run, _)| run).collect();
    let start = Constants { chips: CHIPS.to_vec(), frameworks: FRAMEWORKS.to_vec() };
    let mut means = Vec::new();
    let fitted = fit(&start, &fitting, &KEPT, &mut |round, mean| {
        println!("round {round}: {:.2} %", 100.0 * mean);
        means.push(mean);
    });
    if let Ok(day) = std::env::var("LIGHTLOOM_BLESS") {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/calibrated");
        return write(&folder, &fitted, &day);
    }
    let [Some(first), Some(last)] = [means.first(), means.last()] else { panic!("no round") };
    assert!(first - last < 0.005, "{means:?}: fit again with LIGHTLOOM_BLESS");
}

/// Writes three significant digits; `day` is the date of the fit.
fn write(folder: &Path, fitted: &Constants, day: &str) {
    let day: &'static str = String::leak(day.to_owned());
    let chips = fitted.chips.iter().map(|chip| Chip { fitted: day, ..*chip });
    let frameworks = fitted.frameworks.iter().map(|one| Framework { fitted: day, ..*one });
    for (file, table) in [("chips.csv", table(chips)), ("frameworks.csv", table(frameworks))] {
        std::fs::write(folder.join(file), table).expect("the folder can be written");
    }
}

fn table(rows: impl Iterator<Item = impl Serialize>) -> String {
    let mut lines = Vec::new();
    for row in rows {
        let row = serde_json::to_value(row).expect("plain values");
        let mut cells: Vec<(String, String)> = Vec::new();
        for (field, value) in row.as_object().expect("a row has fields") {
            match value {
                Value::Object(inner) => cells.extend(
                    inner.iter().map(|(name, value)| (format!("{field}.{name}"), cell(value))),
                ),
                value => cells.push((field.clone(), cell(value))),
            }
        }
        let (names, values): (Vec<_>, Vec<_>) = cells.into_iter().unzip();
        if lines.is_empty() {
            lines.push(names.join(","));
        }
        lines.push(values.join(","));
    }
    lines.join("\n") + "\n"
}

fn cell(value: &Value) -> String {
    match value {
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(" "),
        Value::Number(number) => {
            let value: f64 =
                format!("{:.2e}", number.as_f64().expect("finite")).parse().expect("a number");
            format!("{value:?}")
        }
        Value::String(text) if text.contains(',') => format!("\"{text}\""),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
