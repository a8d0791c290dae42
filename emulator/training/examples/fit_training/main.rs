// SPDX-License-Identifier: Apache-2.0
//! Fits the constants that come with lightloom on the fitting part of tables of published runs, and prints them.
//!
//! `cargo run -p lightloom-training --example fit_training -- FOLDER ../shared/data/mfu_measured.csv …` writes
//! `chips.rs` and `frameworks.rs` into the folder; they are `emulator/training/src/calibrated/` after `cargo fmt`.
#![allow(clippy::print_stdout, clippy::disallowed_methods)] // a tool of the maintainers

mod start;

use std::fmt::Write;
use std::path::Path;

use lightloom_training::calibrated::compose;
use lightloom_training::fit::{Constants, fit};
use lightloom_training::runs::{Run, Runs};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("a folder");
    let tables: Vec<String> =
        arguments.map(|path| std::fs::read_to_string(path).expect("a table")).collect();
    let (runs, _) = Runs::read(&tables.iter().map(String::as_str).collect::<Vec<_>>());
    let testing = runs.testing();
    let part = |tests: bool| -> Vec<&Run> {
        runs.runs.iter().zip(&testing).filter(|(_, t)| **t == tests).map(|(run, _)| run).collect()
    };
    let start = Constants { chips: start::CHIPS.to_vec(), frameworks: start::FRAMEWORKS.to_vec() };
    let (fitting, judging) = (part(false), part(true));
    let fitted = fit(&start, &fitting, &mut |round, mean| {
        println!("round {round}: {:.2} %", 100.0 * mean);
    });
    write(Path::new(&folder), &fitted);
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

/// Writes the constants as source, three digits each.
fn write(folder: &Path, fitted: &Constants) {
    let mut chips = String::from(
        "// SPDX-License-Identifier: Apache-2.0\n//! Chips, written by the example `fit_training`; docs/mfu.md says on what.\n\n\
         use super::Chip;\nuse crate::network::Efficiency;\n\n\
         /// Every chip that constants were fitted on.\npub const CHIPS: &[Chip] = &[\n",
    );
    for chip in &fitted.chips {
        let mut chip = *chip;
        for value in chip.gemm.iter_mut().chain([
            &mut chip.lost_flops,
            &mut chip.attention,
            &mut chip.memory,
        ]) {
            round(value);
        }
        writeln!(chips, "{chip:?},").expect("a string");
    }
    let mut frameworks = String::from(
        "// SPDX-License-Identifier: Apache-2.0\n//! Frameworks, written by the example `fit_training`; docs/mfu.md says on what.\n\n\
         use super::Framework;\nuse crate::calibration::ContextExchange::{AllGather, Ring};\n\
         use crate::calibration::Sharding::{Everything, Gradients, Optimizer, Replicated};\n\
         use crate::calibration::Software;\n\n\
         /// Every framework whose constants come with lightloom.\npub const FRAMEWORKS: &[Framework] = &[\n",
    );
    for framework in &fitted.frameworks {
        let mut framework = *framework;
        let f = &mut framework;
        for value in [
            &mut f.gemm,
            &mut f.low,
            &mut f.attention,
            &mut f.memory,
            &mut f.expert,
            &mut f.expert_low,
            &mut f.launch,
            &mut f.expert_launch,
            &mut f.pipeline_exposed,
            &mut f.data_exposed,
            &mut f.gather_exposed,
            &mut f.jitter,
            &mut f.step_seconds,
        ]
        .into_iter()
        .chain(f.tensor_exposed.iter_mut())
        .chain(f.expert_exposed.iter_mut())
        {
            round(value);
        }
        writeln!(frameworks, "{framework:?},").expect("a string");
    }
    for (file, text) in [("chips.rs", chips), ("frameworks.rs", frameworks)] {
        std::fs::write(folder.join(file), text + "];\n").expect("the folder can be written");
    }
}

fn round(value: &mut f64) {
    *value = format!("{value:.2e}").parse().expect("a number");
}
