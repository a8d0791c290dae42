// SPDX-License-Identifier: Apache-2.0
//! Compares predictions from measured operators with other times of the same GPU in `../shared/data`, which the table
//! does not contain.
//!
//! `cargo test -p lightloom-training --test it one_gpu:: -- --nocapture` prints the errors.

use lightloom_training::calibration::Precision;
use lightloom_training::cards::{self, Accelerator, NumberFormat};
use lightloom_training::operators::OperatorTable;
use lightloom_training::operators::result::GpuResult;
use lightloom_training::step::{Replica, Server};
use serde::Deserialize;

use super::serving_rows::{self, mean};

#[derive(Deserialize)]
struct Serving {
    decode: Vec<Decode>,
    prefill: Vec<Prefill>,
}

#[derive(Deserialize)]
struct Decode {
    b: u32,
    ctx: u32,
    flash_ms: f64,
    cudnn_ms: f64,
}

#[derive(Deserialize)]
struct Prefill {
    b: u32,
    s: u32,
    ms: f64,
}

fn measured() -> Option<GpuResult> {
    let text = serving_rows::data("one_gpu_h200.json")?;
    Some(GpuResult::read(&text).expect("a result of the script"))
}

fn h200() -> Accelerator {
    cards::accelerator("h200").expect("a shipped accelerator")
}

fn report(name: &str, mut errors: Vec<f64>) -> [f64; 2] {
    errors.sort_by(f64::total_cmp);
    let both = [mean(&errors), errors[errors.len() / 2]];
    let [mean, median] = both.map(|error| 100.0 * error);
    println!("{name}: mean error {mean:.1} %, median {median:.1} % of {}", errors.len());
    both
}

#[test]
fn products_are_predicted_without_their_own_row() {
    let Some(result) = measured() else { return };
    let own = h200();
    let compute = own.compute();
    let mut errors = Vec::new();
    for place in 0..result.gemm.len() {
        let mut others = result.clone();
        let rows = [others.gemm.remove(place), others.fp8.remove(place)];
        let card = others.card(&own, false).expect("times");
        let table = OperatorTable::of(card.operators.as_ref().expect("operators"));
        for product in rows.iter().flat_map(|row| row.measured()) {
            let (precision, peak) = match product.format {
                NumberFormat::Bf16 => (Precision::Bf16, compute.peak_flops),
                NumberFormat::Fp8 | NumberFormat::Fp4 => (Precision::Fp8, compute.peak_flops_fp8),
            };
            let size = product.size();
            let estimate = table.product(size, precision).expect("points of this format");
            let seconds = estimate.ratio * size.roofline(peak, compute.memory_rate);
            let ours = seconds.max(table.launch_seconds);
            errors.push((ours / (product.time.0.0 as f64 / 1e12) - 1.0).abs());
        }
    }
    let [mean, median] = report("products", errors);
    assert!(mean < 0.08 && median < 0.042);
}

#[test]
fn steps_of_whole_layers_follow_from_their_operators() {
    let Some(result) = measured() else { return };
    let [fused, eager] = [false, true].map(|is_eager| result.card(&h200(), is_eager).unwrap());
    let error = |row: &lightloom_training::operators::result::Layers| {
        let card = if row.compile { &fused } else { &eager };
        (row.predicted(card) / (row.step_ms / 1e3) - 1.0).abs()
    };
    let errors: Vec<f64> = result.train.iter().map(error).collect();
    assert!(errors.iter().all(|error| *error < 0.1), "{errors:?}");
    let [mean, _] = report("steps", errors);
    assert!(mean < 0.042);
}

#[test]
fn prompts_and_decoding_follow_from_operators() {
    let Some(result) = measured() else { return };
    let text = serving_rows::data("one_gpu_h200.json").expect("read above");
    let serving: Serving = serde_json::from_str(&text).expect("sections of serving");
    let card = result.card(&h200(), true).expect("times");
    let mut model = cards::model("llama-3.1-8b").expect("a shipped model");
    model.layers = 8;
    let (compute, network, calibration) = (card.compute(), card.network(), card.calibration());
    let server = Server::from(&Replica {
        model: &model,
        compute: &compute,
        network: &network,
        calibration: &calibration,
        gpus: 1,
        host_seconds: 0.0,
    });
    let decode = |row: &Decode| {
        let cached = f64::from(row.b) * f64::from(row.ctx);
        let ours = server.decode_seconds(row.b) + cached * server.cached_token_seconds();
        (1e3 * ours / row.flash_ms.min(row.cudnn_ms) - 1.0).abs()
    };
    let prefill = |row: &Prefill| {
        (1e3 * f64::from(row.b) * server.prompt_seconds(row.s) / row.ms - 1.0).abs()
    };
    let [decode, _] = report("decoding", serving.decode.iter().map(decode).collect());
    let [prefill, _] = report("prompts", serving.prefill.iter().map(prefill).collect());
    assert!(decode < 0.07 && prefill < 0.025);
}

/// A GPU with twice the rates takes half the time, and a card without the format keeps its shares of peak.
#[test]
fn operators_scale_by_roofline() {
    let Some(result) = measured() else { return };
    let own = result.card(&h200(), false).expect("times");
    let mut twice = own.clone();
    twice.peak_tflops.values_mut().for_each(|peak| *peak *= 2.0);
    twice.memory_rate.0 = lightloom_units::BitsPerSecond(2 * own.memory_rate.0.get());
    for row in &result.train {
        let ratio = row.predicted(&twice) / row.predicted(&own);
        assert!((ratio - 0.5).abs() < 0.01, "{ratio} for {row:?}");
    }
}
