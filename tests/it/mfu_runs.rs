// SPDX-License-Identifier: Apache-2.0
//! Evaluating published runs produces the same figures as the command line with their parameters.

use std::path::Path;
use std::process::Command;

use lightloom_training::calibration::{ContextExchange, ZeroStage};
use lightloom_training::cards;
use lightloom_training::request::Changes;
use lightloom_training::runs::{MeasuredRun, Runs};
use serde_json::Value;

/// Converts a run back to command-line arguments.
fn words(run: &MeasuredRun, model_file: &str, accelerator_file: &str) -> Vec<String> {
    let request = &run.request;
    let is_shipped =
        cards::model(&request.model.name).is_ok_and(|shipped| shipped == request.model);
    let model = if is_shipped { &request.model.name } else { model_file };
    let is_shipped =
        cards::accelerator(&request.card.name).is_ok_and(|shipped| shipped == request.card);
    let card = if is_shipped { &request.card.name } else { accelerator_file };
    let mut words = vec![
        ("model", model.to_owned()),
        ("accelerator", card.to_owned()),
        ("gpus", run.gpus.to_string()),
        ("batch", request.batch.sequences.to_string()),
        ("seq", request.batch.tokens.to_string()),
        ("precision", request.precision.to_string()),
    ];
    words.extend(request.constants.clone().map(|constants| ("constants", constants)));
    let limits = &request.limits;
    for (flag, degrees) in [
        ("tp", &limits.tensor),
        ("cp", &limits.context),
        ("pp", &limits.pipeline),
        ("ep", &limits.expert),
        ("micro-batch", &limits.micro_batch),
        ("virtual-stages", &limits.virtual_stages),
    ] {
        words.push((flag, list(degrees.iter().map(ToString::to_string))));
    }
    words.push(("recompute", list(limits.recompute.iter().map(ToString::to_string))));
    words.retain(|(_, value)| !value.is_empty());
    let Changes { sharding, features, context_exchange, .. } = &request.changes;
    words.extend(sharding.map(|sharding| ("zero", stage(sharding).to_owned())));
    words.extend(features.map(|all| ("features", all.to_string().replace(' ', ""))));
    words.extend(context_exchange.map(|exchange| ("cp-exchange", how(exchange).to_owned())));
    words.into_iter().flat_map(|(flag, value)| [format!("--{flag}"), value]).collect()
}

fn list(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(",")
}

fn stage(sharding: ZeroStage) -> &'static str {
    match sharding {
        ZeroStage::Replicated => "0",
        ZeroStage::Optimizer => "1",
        ZeroStage::Gradients => "2",
        ZeroStage::Everything => "3",
    }
}

fn how(exchange: ContextExchange) -> &'static str {
    match exchange {
        ContextExchange::Ring => "ring",
        ContextExchange::AllGather => "all-gather",
        ContextExchange::Ulysses => "ulysses",
    }
}

fn typed(run: &MeasuredRun, folder: &Path) -> Value {
    let model = folder.join(format!("{}.model.yaml", run.id));
    let text = serde_json::to_string(&run.request.model).expect("dimensions are plain");
    std::fs::write(&model, text).expect("the folder is ours");
    let card = folder.join(format!("{}.card.yaml", run.id));
    let text = serde_json::to_string(&run.request.card).expect("figures are plain");
    std::fs::write(&card, text).expect("the folder is ours");
    let output = Command::new(crate::programs::lightloom())
        .arg("mfu")
        .args(words(run, &model.to_string_lossy(), &card.to_string_lossy()))
        .args(["--format", "json"])
        .output()
        .expect("the command runs");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        panic!("{}: {}", run.id, String::from_utf8_lossy(&output.stderr));
    })
}

#[test]
fn command_line_results_match_the_judge() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let read = |name| std::fs::read_to_string(data.join(name));
    let (Ok(first), Ok(second)) = (read("mfu_measured.csv"), read("mfu_measured_2.csv")) else {
        println!("skipped: no ../shared/data");
        return;
    };
    let (runs, _) = Runs::read(&[&first, &second]);
    let folder = tempfile::tempdir().expect("a folder of our own");
    // One row in thirteen covers every source in a few seconds.
    for run in runs.runs.iter().step_by(13) {
        let Ok(found) = run.compute() else { continue };
        let report = typed(run, folder.path());
        let seconds = report["rows"][0]["step_seconds"].as_f64().expect("a row");
        let ours = found.step.step_seconds;
        assert!((seconds / ours - 1.0).abs() < 1e-9, "{}: {seconds} against {ours}", run.id);
    }
}

fn tables() -> Option<String> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let tables = ["measured", "measured_2", "measured_3"]
        .map(|name| format!("mfu_{name}.csv"))
        .map(|name| data.join(name));
    if !tables.iter().all(|table| table.exists()) {
        println!("skipped: no ../shared/data");
        return None;
    }
    Some(tables.map(|table| table.display().to_string()).join(","))
}

#[test]
fn validation_command_reproduces_its_page_and_rows() {
    let Some(tables) = tables() else { return };
    let [page, rows] = ["markdown", "csv"].map(|format| {
        let output = Command::new(crate::programs::lightloom())
            .args(["reproduce", "mfu", "--format", format, "--runs", &tables])
            .output()
            .expect("the command runs");
        String::from_utf8(output.stdout).expect("text")
    });
    crate::documentation::agrees("validation-mfu.md", &page);
    crate::documentation::agrees("validation-mfu.csv", &rows);
    // The mean error of the rows is also on the front page, with the number of runs.
    let mut reader = csv::Reader::from_reader(rows.as_bytes());
    let tests: Vec<f64> = reader
        .deserialize()
        .map(|row| row.expect("a row of the columns that the test reads"))
        .filter(|row: &Row| row.used_to == "test")
        .map(|row| row.error_percent.abs())
        .collect();
    let mean = tests.iter().sum::<f64>() / tests.len() as f64;
    let stated = format!("{mean:.1} % mean absolute error on {} test runs", tests.len());
    assert!(
        page.contains(&format!("**{stated}.**")),
        "docs/validation-mfu.md does not say `{stated}`"
    );
    let front =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/index.md"));
    let front = front.expect("a front page").replace("<!-- ledger: mfu-error -->", "");
    assert!(front.contains(&stated), "docs/index.md does not say `{stated}`");
}

#[test]
fn validation_command_reproduces_the_collectives_page() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let names =
        ["measured", "measured_2", "nccl_tests"].map(|name| format!("collectives_{name}.csv"));
    let names = names.into_iter().chain(["expert_exchange_deepep.csv".to_owned()]);
    let tables: Vec<_> = names.map(|name| data.join(name)).collect();
    if !tables.iter().all(|table| table.exists()) {
        println!("skipped: no ../shared/data");
        return;
    }
    let tables: Vec<_> = tables.iter().map(|table| table.display().to_string()).collect();
    let tables = tables.join(",");
    let output = Command::new(crate::programs::lightloom())
        .args(["reproduce", "collectives", "--format", "markdown", "--runs", &tables])
        .output()
        .expect("the command runs");
    let page = String::from_utf8(output.stdout).expect("text");
    crate::documentation::agrees("validation-collectives.md", &page);
}

#[derive(serde::Deserialize)]
struct Row {
    used_to: String,
    error_percent: f64,
}

#[test]
fn user_runs_refit_the_constants_with_held_out_runs() {
    let folder = tempfile::tempdir().expect("a folder of our own");
    let runs = folder.path().join("runs.csv");
    // Matrix products reach only 0.85 of the fitted performance.
    let slower = folder.path().join("slower.json");
    let constants =
        r#"{"schema": "lightloom.constants/v1", "base": "nemo-25.02", "refitted": {"gemm": 0.85}}"#;
    std::fs::write(&slower, constants).expect("the folder is ours");
    let mut table = String::from(
        "id,software,accelerator,num_accel,model,precision,seq,gbs_seqs,mbs,tp,pp,vpp,cp,recompute,step_time_s\n",
    );
    for (model, gpus, tp, pp) in
        [("llama-3.1-8b", 8, 1, 1), ("llama-3.1-8b", 16, 2, 1), ("llama-3.1-70b", 64, 4, 4)]
    {
        for batch in [128, 256] {
            let words = format!(
                "mfu --model {model} --accelerator h100 --gpus {gpus} --batch {batch} --seq 8192 \
                 --tp {tp} --pp {pp} --cp 1 --ep 1 --micro-batch 1 --virtual-stages 1 --recompute full --format json"
            );
            let output = Command::new(crate::programs::lightloom())
                .args(words.split_whitespace())
                .arg("--constants")
                .arg(&slower)
                .output()
                .expect("the command runs");
            let report: Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
            let seconds = report["rows"][0]["step_seconds"].as_f64().expect("a step");
            table.push_str(&format!(
                "{model}-{gpus}-{batch},nemo-25.02,h100,{gpus},{model},bf16,8192,{batch},1,{tp},{pp},1,1,full,{seconds}\n"
            ));
        }
    }
    std::fs::write(&runs, &table).expect("the folder is ours");
    let out = folder.path().join("ours.json");
    let output = Command::new(crate::programs::lightloom())
        .args(["calibrate", "--format", "json", "--out"])
        .args([&out, &runs])
        .output()
        .expect("the command runs");
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let [before, after] = [0, 1].map(|at| report["kept_back_error"][at].as_f64().expect("a share"));
    assert!(before > 0.08 && after < 0.01, "{report}");
    let gemm = report["changed"]["gemm"][1].as_f64();
    assert!(gemm.is_some_and(|gemm| (gemm - 0.85).abs() < 0.005), "{report}");
    assert!(
        report["stands_in_for"]["gemm"][0].is_string(),
        "the chip's share is the same: {report}"
    );
    assert!(report["kept_back_runs"].as_u64() >= Some(2), "{report}");
    let left = report["not_determined"].as_array().expect("names");
    assert!(left.contains(&"expert low".into()), "dense runs say nothing of experts: {report}");

    let words = "--model llama-3.1-8b --gpus 8 --batch 128 --tp 1 --pp 1 --cp 1 --recompute full --micro-batch 1";
    let output = Command::new(crate::programs::lightloom())
        .arg("mfu")
        .args(words.split_whitespace())
        .arg("--constants")
        .arg(&out)
        .output()
        .expect("the command runs");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        shown.contains("no published run resembles it"),
        "{shown}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
