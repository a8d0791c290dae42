// SPDX-License-Identifier: Apache-2.0
//! `lightloom mfu --runs`: compares a user's measured steps with computed ones.

use std::path::Path;

use lightloom_fabric::provenance::{Inputs, Provenance};
use lightloom_training::runs::Runs;
use lightloom_training::runs::judge::Judged;
use lightloom_training::runs::page::ComparedRun;
use serde::Serialize;

use super::{Arguments, ChosenConstants, constants};
use crate::cards::read_runs;
use lightloom::output::{self, VerbOutcome};

const ALLOWED: f64 = 0.1;

#[derive(Serialize)]
struct Document {
    #[serde(flatten)]
    made: Provenance,
    runs: Vec<ComparedRun>,
    rows_not_computed: Vec<String>,
    /// Whether the error of a step exceeds 10 %, which `lightloom calibrate` can correct.
    calibrate: bool,
}

/// The outcome is a success if every step could be computed.
pub(super) fn run(arguments: &Arguments, path: &Path) -> anyhow::Result<VerbOutcome> {
    let mut inputs = Inputs::new();
    let text = read_runs(path, 0, &mut inputs)?;
    let (mut runs, mistakes) = Runs::read(&[&text]);
    let (name, refitted): ChosenConstants = constants(arguments.constants.as_deref(), &mut inputs)?;
    for run in runs.runs.iter_mut().filter(|_| name.is_some()) {
        run.request.constants.clone_from(&name);
        run.request.refitted.clone_from(&refitted);
        run.software = name.clone().unwrap_or_default();
    }
    let judged = runs.judge();
    let mut rows_not_computed: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    let refused = judged.iter().filter_map(|one| one.outcome.as_ref().err());
    rows_not_computed.extend(refused.map(ToString::to_string));
    for row in &rows_not_computed {
        output::note(&format!("{}: {row}", path.display()));
    }
    let document = Document {
        made: Provenance::of("lightloom.measured-steps/v1", inputs),
        runs: ComparedRun::of(&judged),
        calibrate: judged.iter().any(is_off),
        rows_not_computed,
    };
    arguments.result.show(&document, "runs", || shown(&judged, path))?;
    let is_good = document.rows_not_computed.is_empty();
    Ok(if is_good { VerbOutcome::Good } else { VerbOutcome::Bad })
}

fn is_off(one: &Judged<'_>) -> bool {
    one.error().is_some_and(|error| error.abs() > ALLOWED)
}

fn shown(judged: &[Judged<'_>], path: &Path) -> String {
    let mut text = String::new();
    for one in judged {
        let (Ok(found), Some(error)) = (&one.outcome, one.error()) else { continue };
        let (run, ours) = (one.run, found.step.step_seconds);
        text.push_str(&format!(
            "{}: measured {:.3} s, ours {ours:.3} s ({:+.1} %), {} on {} GPUs, {}, constants {}\n",
            run.id,
            run.measured_seconds,
            100.0 * error,
            run.model,
            run.gpus,
            found.mapping,
            run.software
        ));
    }
    if judged.iter().any(is_off) {
        text.push_str(&format!(
            "errors above 10 %: fit the constants to your runs with `lightloom calibrate {}`\n",
            path.display()
        ));
    }
    text
}
