//! What the judge of published runs computes is what a user gets who types the run's words.

#![allow(clippy::print_stdout)] // it says what it skips

use std::path::Path;
use std::process::Command;

use lightloom_training::runs::{Run, Runs};
use serde_json::Value;

fn typed(run: &Run, folder: &Path) -> Value {
    let model = folder.join(format!("{}.model.yaml", run.id));
    let text = serde_json::to_string(&run.request.model).expect("dimensions are plain");
    std::fs::write(&model, text).expect("the folder is ours");
    let card = folder.join(format!("{}.card.yaml", run.id));
    let text = serde_json::to_string(&run.request.card).expect("figures are plain");
    std::fs::write(&card, text).expect("the folder is ours");
    let output = Command::new(env!("CARGO_BIN_EXE_lightloom"))
        .arg("mfu")
        .args(run.words(&model.to_string_lossy(), &card.to_string_lossy()))
        .args(["--format", "json"])
        .output()
        .expect("the command runs");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        panic!("{}: {}", run.id, String::from_utf8_lossy(&output.stderr));
    })
}

#[test]
fn typed_words_give_what_the_judge_computes() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let read = |name| std::fs::read_to_string(data.join(name));
    let (Ok(first), Ok(second)) = (read("mfu_measured.csv"), read("mfu_measured_2.csv")) else {
        println!("skipped: no ../shared/data");
        return;
    };
    let (runs, _) = Runs::read(&[&first, &second]);
    let folder = tempfile::tempdir().expect("a folder of our own");
    // One row in thirteen: every source, in a few seconds.
    for run in runs.runs.iter().step_by(13) {
        let Ok(found) = run.compute() else { continue };
        let report = typed(run, folder.path());
        let seconds = report["rows"][0]["step_seconds"].as_f64().expect("a row");
        let ours = found.step.step_seconds;
        assert!((seconds / ours - 1.0).abs() < 1e-9, "{}: {seconds} against {ours}", run.id);
    }
}
