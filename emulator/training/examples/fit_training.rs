// SPDX-License-Identifier: Apache-2.0
//! Fits the shipped calibration constants again to tables of published runs, and prints the errors.
//!
//! `cargo run -p lightloom-training --example fit_training -- FOLDER 2026-11-22
//! ../shared/data/mfu_measured.csv …` writes `chips.csv` and `frameworks.csv` to FOLDER, normally
//! `emulator/training/src/calibrated/`.
#![allow(clippy::print_stdout, clippy::disallowed_methods)] // a tool of the maintainers

use std::path::Path;

use lightloom_training::calibrated::{CHIPS, Chip, FRAMEWORKS, Framework, compose};
use lightloom_training::fit::{Constants, fit};
use lightloom_training::runs::{MeasuredRun, Runs};
use serde::Serialize;
use serde_json::Value;

/// The packet emulation and the runs in the documentation depend on these shipped values.
const KEPT: [(&str, &str); 8] = [
    ("h100", "chip gemm bf16"),
    ("h100", "chip lost operations"),
    ("h100", "chip attention"),
    ("h100", "chip memory"),
    ("nemo-25.02", "gemm"),
    ("nemo-25.02", "attention"),
    ("nemo-25.02", "memory"),
    ("nemo-25.02", "step seconds"),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("a folder");
    let day = arguments.next().expect("the day");
    let tables: Vec<String> =
        arguments.map(|path| std::fs::read_to_string(path).expect("a table")).collect();
    let (runs, mistakes) = Runs::read(&tables.iter().map(String::as_str).collect::<Vec<_>>());
    mistakes.iter().for_each(|mistake| println!("{mistake}"));
    let testing = runs.testing();
    let part = |tests: bool| -> Vec<&MeasuredRun> {
        runs.runs.iter().zip(&testing).filter(|(_, t)| **t == tests).map(|(run, _)| run).collect()
    };
    let start = Constants { chips: CHIPS.to_vec(), frameworks: FRAMEWORKS.to_vec() };
    let (fitting, judging) = (part(false), part(true));
    let fitted = fit(&start, &fitting, &KEPT, &mut |round, mean| {
        println!("round {round}: {:.2} %", 100.0 * mean);
    });
    write(Path::new(&folder), &fitted, &day);
    for (name, runs) in [("fit", &fitting), ("test", &judging)] {
        for run in runs {
            let Some(error) = fitted.error(run) else { continue };
            let chip = run.request.card.chip_among(&fitted.chips);
            let framework =
                fitted.frameworks.iter().find(|known| known.name == run.software).expect("known");
            let found = run.compute_with(compose(&chip, framework)).expect("it was computed");
            let step = found.step;
            println!(
                "{name} {} {} {} {} {} {} | {} | {:.3} s {:+.1} % | comp {:.3} tp {:.3} cp {:.3} ep {:.3} bub {:.3} pp {:.3} dp {:.3} opt {:.3} jit {:.3}",
                if run.is_mixture() { "mixture" } else { "dense" },
                run.id,
                run.software,
                run.accelerator,
                run.model,
                run.request.precision.label(),
                found.mapping,
                run.measured_seconds,
                100.0 * error,
                step.compute_seconds,
                step.tensor_seconds,
                step.context_seconds,
                step.expert_seconds,
                step.bubble_seconds,
                step.transfer_seconds,
                step.data_seconds,
                step.optimizer_seconds,
                step.jitter_seconds
            );
        }
    }
}

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
