//! The judge: what the command line computes for every published run of `../shared/data`.
//!
//! `cargo test -p lightloom-training --test published_runs -- --nocapture` prints the mean absolute error by group.

#![allow(clippy::print_stdout, clippy::disallowed_methods)] // a judge reads its data and prints

use std::collections::BTreeMap;
use std::path::Path;

use lightloom_training::runs::{Run, Runs};

/// The tables, or nothing where they are not there.
fn tables() -> Option<Vec<String>> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let read = |name| std::fs::read_to_string(data.join(name)).ok();
    let tables = [read("mfu_measured.csv")?, read("mfu_measured_2.csv")?];
    Some(tables.into())
}

#[derive(Default)]
struct Errors {
    of: Vec<f64>,
    refused: usize,
}

impl Errors {
    fn mean(&self) -> f64 {
        self.of.iter().map(|error| error.abs()).sum::<f64>() / self.of.len().max(1) as f64
    }

    fn bias(&self) -> f64 {
        self.of.iter().sum::<f64>() / self.of.len().max(1) as f64
    }
}

fn classes(run: &Run, testing: bool) -> Vec<String> {
    let part = if testing { "test" } else { "fit" };
    let is_hopper = run.accelerator.starts_with('H');
    let kind = if run.is_mixture() { "mixture" } else { "dense" };
    let mut classes = vec![
        format!("1 all {part}"),
        format!("2 {kind} {part}"),
        format!("3 {} {} {part}", run.software, run.accelerator),
        format!("4 {} {} {} {part}", run.software, run.accelerator, run.model),
    ];
    if is_hopper {
        classes.push(format!("2 {kind} hopper {part}"));
    }
    if run.accelerator.starts_with("A100") {
        classes.push(format!("2 A100 {part}"));
    }
    classes
}

#[test]
fn published_runs_through_the_command_lines_own_path() {
    let Some(tables) = tables() else {
        println!("skipped: no ../shared/data");
        return;
    };
    let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
    let (runs, mistakes) = Runs::read(&tables);
    for mistake in &mistakes {
        println!("not computed: {mistake}");
    }
    let mut classes_of: BTreeMap<String, Errors> = BTreeMap::new();
    for (run, testing) in runs.runs.iter().zip(runs.testing()) {
        let outcome = run.compute();
        for class in classes(run, testing) {
            let errors = classes_of.entry(class).or_default();
            match &outcome {
                Ok(found) => {
                    errors.of.push(found.step.step_seconds / run.measured_seconds - 1.0);
                }
                Err(_) => errors.refused += 1,
            }
        }
        match outcome {
            Ok(found) => println!(
                "{} {} {} {} {}: {} measured {:.3} s, computed {:.3} s, {:+.1} %{}",
                run.id,
                run.software,
                run.accelerator,
                run.model,
                run.request.precision.label(),
                found.mapping,
                run.measured_seconds,
                found.step.step_seconds,
                100.0 * (found.step.step_seconds / run.measured_seconds - 1.0),
                if testing { "" } else { " (fit)" },
            ),
            Err(refused) => println!("refused: {refused}"),
        }
    }
    for (class, errors) in &classes_of {
        println!(
            "{class}: {} runs, mean absolute error {:.2} %, bias {:+.2} %, {} refused",
            errors.of.len(),
            100.0 * errors.mean(),
            100.0 * errors.bias(),
            errors.refused
        );
    }
}
