// SPDX-License-Identifier: Apache-2.0
//! `calibrate` recovers the constants behind computed step times.

use lightloom_testkit::cases;
use lightloom_training::calibrated::{Chip, FRAMEWORKS, Framework, compose};
use lightloom_training::fit;
use lightloom_training::runs::refit::{Refit, RefitFile, SCHEMA};
use lightloom_training::runs::{MeasuredRun, Runs};

const HEAD: &str = "id,accelerator,precision,seq,software,tp,cp,vpp,model,num_accel,gbs_seqs,pp,ep,mbs,recompute,step_time_s\n";

/// Model, GPUs, sequences, PP, EP, micro-batch.
const MIXTURES: [(&str, u64, u64, u32, u32, u32); 8] = [
    ("qwen3-30B-a3B", 8, 512, 1, 8, 8),
    ("qwen3-30B-a3B", 16, 1024, 1, 8, 4),
    ("qwen3-235B-a22B", 256, 8192, 4, 32, 2),
    ("qwen3-235B-a22B", 128, 4096, 4, 32, 1),
    ("deepseek-v3-671B", 256, 4096, 4, 32, 1),
    ("deepseek-v3-671B", 512, 8192, 4, 64, 1),
    ("gpt-oss-120B", 64, 1280, 1, 16, 4),
    ("gpt-oss-120B", 32, 640, 1, 16, 2),
];

fn computed(table: &str, changes: &[(&str, f64)]) -> Runs {
    let (mut runs, mistakes) = Runs::read(&[table]);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    for run in &mut runs.runs {
        let (mut chip, mut framework) = shipped(&run.software, &run.accelerator.to_lowercase());
        for (name, value) in changes {
            assert!(fit::set(&mut chip, &mut framework, name, *value), "{name}");
        }
        let found = run.compute_with(compose(&chip, &framework)).expect("it fits");
        run.measured_seconds = found.step.step_seconds;
    }
    runs
}

fn shipped(software: &str, chip: &str) -> (Chip, Framework) {
    let card = lightloom_training::cards::accelerator(chip).expect("shipped");
    let (chip, framework) = card.constants(Some(software)).expect("shipped");
    assert!(FRAMEWORKS.iter().any(|known| known.name == framework.name));
    (chip, framework)
}

fn mixtures() -> String {
    let row = |(place, (model, gpus, batch, pp, ep, micro)): (
        usize,
        &(&str, u64, u64, u32, u32, u32),
    )| {
        format!(
            "x{place},GB300,mxfp8,4096,megatron-bridge-26.02.01,1,1,1,{model},{gpus},{batch},{pp},{ep},{micro},full,1\n"
        )
    };
    MIXTURES.iter().enumerate().map(row).fold(HEAD.to_owned(), |table, row| table + &row)
}

fn refit(runs: &Runs) -> Refit {
    runs.refit().expect("enough runs of one pair")
}

#[test]
fn refit_recovers_the_two_constants_behind_the_step_times() {
    let refit = refit(&computed(&mixtures(), &[("expert low", 0.85), ("EP exposed inside", 0.05)]));
    println!("{refit:?}");
    assert!(refit.fitting_error[1] < 1e-3, "{refit:?}");
    assert!(refit.kept_back_error[0] > 0.2 && refit.kept_back_error[1] < 1e-3, "{refit:?}");
    for (name, value) in [("expert low", 0.85), ("EP exposed inside", 0.05)] {
        let after = refit.changed.get(name).map(|[_, after]| after / value);
        assert!(after.is_some_and(|share| (share - 1.0).abs() < 0.01), "{name}: {refit:?}");
    }
    assert_eq!(refit.changed.len(), 2, "{refit:?}");
}

/// Runs of one chip and software that depend on nearly every constant: precision, model, GPUs,
/// sequences, and TP, PP, CP, EP and micro-batch. Fitting and testing models alternate in
/// alphabetical order, so similar models have adjacent names.
const MIXED: [(&str, &str, u64, u64, [u32; 5]); 24] = [
    ("bf16", "llama-3.1-8b", 8, 128, [1, 1, 1, 1, 1]),
    ("fp8", "llama-3.1-8b", 64, 512, [2, 2, 1, 1, 2]),
    ("mxfp8", "llama-3.1-8b", 128, 512, [4, 1, 2, 1, 1]),
    ("nvfp4", "llama-3.1-8b", 16, 128, [1, 1, 1, 1, 2]),
    ("bf16", "llama-3.1-8b", 256, 256, [1, 4, 1, 1, 1]),
    ("bf16", "llama-3.1-405b", 512, 256, [8, 8, 1, 1, 1]),
    ("mxfp8", "llama-3.1-405b", 1024, 1024, [4, 8, 2, 1, 1]),
    ("bf16", "llama-3.1-405b", 1024, 256, [128, 4, 1, 1, 1]),
    ("nvfp4", "llama-3.1-405b", 1024, 256, [8, 16, 1, 1, 1]),
    ("bf16", "qwen3-30b-a3b", 8, 512, [1, 1, 1, 8, 8]),
    ("mxfp8", "qwen3-30b-a3b", 32, 512, [1, 1, 1, 32, 4]),
    ("bf16", "qwen3-30b-a3b", 256, 512, [1, 2, 1, 128, 1]),
    ("fp8", "qwen3-30b-a3b", 64, 512, [1, 1, 1, 16, 1]),
    ("bf16", "qwen3-30b-a3b", 16, 64, [1, 1, 1, 16, 1]),
    ("bf16", "llama-3.1-70b", 64, 128, [4, 4, 1, 1, 1]),
    ("fp8", "llama-3.1-70b", 128, 512, [2, 4, 1, 1, 1]),
    ("mxfp8", "llama-3.1-70b", 128, 512, [4, 1, 2, 1, 1]),
    ("nvfp4", "llama-3.1-70b", 64, 128, [1, 4, 1, 1, 2]),
    ("bf16", "deepseek-v3", 512, 2048, [1, 8, 1, 64, 1]),
    ("mxfp8", "deepseek-v3", 1024, 4096, [1, 4, 1, 128, 1]),
    ("fp8", "deepseek-v3", 256, 4096, [1, 8, 1, 32, 1]),
    ("bf16", "qwen3-235b-a22b", 256, 4096, [1, 4, 1, 32, 2]),
    ("mxfp8", "qwen3-235b-a22b", 512, 2048, [1, 4, 1, 128, 1]),
    ("fp8", "qwen3-235b-a22b", 128, 512, [2, 4, 1, 16, 1]),
];

fn mixed() -> String {
    let row = |(place, (format, model, gpus, batch, [tp, pp, cp, ep, micro])): (
        usize,
        &(&str, &str, u64, u64, [u32; 5]),
    )| {
        format!(
            "m{place},GB300,{format},4096,megatron-bridge-26.02.01,{tp},{cp},1,{model},{gpus},{batch},{pp},{ep},{micro},full,1\n"
        )
    };
    MIXED.iter().enumerate().map(row).fold(HEAD.to_owned(), |table, row| table + &row)
}

fn steps(fitting: &[&MeasuredRun], changes: &[(&str, f64)]) -> Vec<f64> {
    let (mut chip, mut framework) = shipped(&fitting[0].software, "gb300");
    for (name, value) in changes {
        assert!(fit::set(&mut chip, &mut framework, name, *value), "{name}");
    }
    let step =
        |run: &&MeasuredRun| run.compute_with(compose(&chip, &framework)).expect("it fits").step;
    fitting.iter().map(|run| step(run).step_seconds.ln()).collect()
}

/// Length of the component of `vector` orthogonal to `others`.
fn beyond(vector: &[f64], others: &[&[f64]]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut basis: Vec<Vec<f64>> = Vec::new();
    let reduced = |vector: &[f64], basis: &[Vec<f64>]| {
        basis.iter().fold(vector.to_vec(), |left, one| {
            let along = dot(&left, one);
            left.iter().zip(one).map(|(a, b)| a - along * b).collect()
        })
    };
    for other in others {
        let left = reduced(other, &basis);
        let length = dot(&left, &left).sqrt();
        if length > 1e-9 {
            basis.push(left.iter().map(|one| one / length).collect());
        }
    }
    let left = reduced(vector, &basis);
    (dot(&left, &left) / left.len() as f64).sqrt()
}

/// Half-way on a logarithmic scale from the shipped value to the farther limit.
fn target(constant: &fit::Constant) -> f64 {
    let (mut chip, mut framework) = shipped("megatron-bridge-26.02.01", "gb300");
    let start = constant.of(&mut chip, &mut framework).ln();
    let [low, high] = constant.limits.map(f64::ln);
    let far = if start - low > high - start { low } else { high };
    f64::midpoint(start, far).exp()
}

/// Whether the runs determine `changes`: each has an effect of over one percent that the other
/// changes and any one further constant cannot imitate.
fn is_identifiable(fitting: &[&MeasuredRun], changes: &[(&str, f64)]) -> bool {
    let at = steps(fitting, changes);
    let (mut chip, mut framework) = shipped("megatron-bridge-26.02.01", "gb300");
    let slope = |constant: &fit::Constant, chip: &mut Chip, framework: &mut Framework| {
        let own = changes.iter().find(|(name, _)| *name == constant.name);
        let value = own.map_or(*constant.of(chip, framework), |(_, value)| *value);
        let mut moved = changes.to_vec();
        moved.retain(|(name, _)| *name != constant.name);
        moved.push((constant.name, value * 1.001));
        let with = steps(fitting, &moved);
        with.iter().zip(&at).map(|(a, b)| (a - b) / 0.001).collect::<Vec<f64>>()
    };
    let slopes: Vec<(&str, Vec<f64>)> =
        fit::all().map(|one| (one.name, slope(one, &mut chip, &mut framework))).collect();
    let of = |name: &str| &slopes.iter().find(|(one, _)| *one == name).expect("a constant").1[..];
    changes.iter().all(|(name, value)| {
        let constant = fit::all().find(|one| one.name == *name).expect("a constant");
        let before = *constant.of(&mut chip, &mut framework);
        let others: Vec<&[f64]> =
            changes.iter().filter(|(other, _)| other != name).map(|(other, _)| of(other)).collect();
        slopes.iter().filter(|(other, _)| !changes.iter().any(|(one, _)| one == other)).all(
            |(_, more)| {
                let mut span = others.clone();
                span.push(more);
                beyond(of(name), &span) * (value / before).ln().abs() > 0.01
            },
        )
    })
}

/// If the runs determine `changes`, asserts that a refit recovers them and returns true.
fn recovers(changes: &[(&str, f64)]) -> bool {
    let runs = computed(&mixed(), changes);
    let testing = runs.second_models();
    let fitting: Vec<&MeasuredRun> =
        runs.runs.iter().zip(&testing).filter(|(_, tests)| !**tests).map(|(run, _)| run).collect();
    let refit = refit(&runs);
    assert_eq!(refit.fitting_runs, fitting.len());
    assert!(refit.fitting_error[1] < 5e-3, "{changes:?}: {refit:?}");
    let is_identifiable = is_identifiable(&fitting, changes);
    for (name, value) in changes {
        let is_recovered =
            refit.changed.get(name).is_some_and(|[_, after]| (after / value - 1.0).abs() < 0.01);
        let is_named = refit.stands_in_for.values().flatten().any(|other| other == name);
        if is_identifiable {
            assert!(is_recovered && !is_named, "{name} of {changes:?}: {refit:?}");
            let [low, high] = refit.intervals[name];
            assert!((low * 0.99..=high * 1.01).contains(value), "{changes:?}: {refit:?}");
        }
    }
    if is_identifiable {
        assert_eq!(refit.changed.len(), changes.len(), "{changes:?}: {refit:?}");
        assert!(refit.kept_back_error[1] < 0.01, "{changes:?}: {refit:?}");
    }
    is_identifiable
}

#[test]
fn refit_recovers_every_determined_constant() {
    let determined: Vec<&str> = fit::all()
        .filter(|constant| recovers(&[(constant.name, target(constant))]))
        .map(|constant| constant.name)
        .collect();
    println!("{determined:?}");
    assert!(determined.len() >= 9, "{determined:?}");
}

const PAIRS_OF: [&str; 8] = [
    "gemm",
    "low",
    "expert",
    "expert low",
    "EP exposed inside",
    "EP exposed across",
    "chip gemm bf16",
    "chip gemm fp8",
];

#[test]
fn refit_recovers_every_determined_pair_of_constants() {
    let constants: Vec<&fit::Constant> =
        fit::all().filter(|one| cases(PAIRS_OF.contains(&one.name), true)).collect();
    let pairs =
        (0..constants.len()).flat_map(|one| (one + 1..constants.len()).map(move |two| (one, two)));
    let (mut tried, mut determined) = (0, 0);
    for (one, two) in pairs.step_by(cases(4, 1)) {
        let [one, two] = [constants[one], constants[two]];
        tried += 1;
        determined += usize::from(recovers(&[(one.name, target(one)), (two.name, target(two))]));
    }
    println!("{determined} of {tried} pairs");
    assert!(cases(2, 10) * determined >= tried, "{determined} of {tried}");
}

#[test]
fn refit_names_constants_the_runs_cannot_distinguish() {
    let refit = refit(&computed(&mixtures(), &[("chip attention", 0.3)]));
    println!("{refit:?}");
    // The two constants are factors of one share, so the software's constant changes by the ratio
    // of the chip's.
    let [before, after] = refit.changed["attention"];
    let (chip, _) = shipped("megatron-bridge-26.02.01", "gb300");
    assert!((after / before / (0.3 / chip.attention) - 1.0).abs() < 0.01, "{refit:?}");
    assert_eq!(refit.stands_in_for["attention"], ["chip attention"], "{refit:?}");
    assert!(refit.at_limit.is_empty() && refit.fitting_error[1] < 1e-3, "{refit:?}");
}

#[test]
fn refit_reports_constants_at_their_limit() {
    let refit = refit(&computed(&mixtures(), &[("expert low", 1.6)]));
    println!("{refit:?}");
    assert!((refit.changed["expert low"][1] - 1.0).abs() < 1e-6, "{refit:?}");
    assert!(refit.at_limit.contains(&"expert low"), "{refit:?}");
    assert!(refit.not_determined.contains(&"chip gemm fp4"), "{refit:?}");
    assert!(!refit.not_determined.contains(&"expert low"), "{refit:?}");
}

#[test]
fn rejects_impossible_steps_with_their_line() {
    let row = |name: &str, gpus: &str, seconds: &str| {
        format!(
            "{name},h100,bf16,8192,nemo-25.02,1,1,1,llama-3.1-8b,{gpus},128,1,1,1,full,{seconds}\n"
        )
    };
    let table = HEAD.to_owned()
        + &row("fine", "8", "4")
        + "\n"
        + &[("8", "-4"), ("8", "0"), ("8", "1e300"), ("8", "nan"), ("8", "inf"), ("0", "4")]
            .map(|(gpus, seconds)| row("x", gpus, seconds))
            .concat();
    let (runs, mistakes) = Runs::read(&[&table]);
    assert_eq!(runs.runs.len(), 1, "{mistakes:?}");
    for (line, mistake) in (4..).zip(&mistakes) {
        let text = mistake.to_string();
        assert!(text.starts_with(&format!("line {line}, row x: ")), "{text}");
        assert!(text.contains(": use "), "{text}");
    }
    assert_eq!(mistakes.len(), 6, "{mistakes:?}");
}

#[test]
fn rejects_constants_beyond_their_limits() {
    for (name, value) in [("gemm", -1.0), ("gemm", 0.0), ("gemm", 1e-300), ("memory", -0.5)] {
        let refitted = [(name.to_owned(), value)].into();
        let file = RefitFile { schema: SCHEMA.to_owned(), base: "nemo-25.02".to_owned(), refitted };
        let text = file.check().expect_err("it cannot be").to_string();
        assert!(text.starts_with(&format!("/refitted/{name} is {value}: use 0.5 to ")), "{text}");
    }
}
