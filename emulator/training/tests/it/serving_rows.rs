// SPDX-License-Identifier: Apache-2.0
//! Compares closed loops with published serving results in `../shared/data`, which no constant is fitted to.
//!
//! `cargo test -p lightloom-training --test it serving_rows:: -- --nocapture` prints the errors.

use std::path::Path;

use lightloom_training::calibration::Precision;
use lightloom_training::cards::{self, Accelerator};
use lightloom_training::operators::result::GpuResult;
use lightloom_training::rollout::Lengths;
use lightloom_training::serving::{Layout, Load, Objective, ServingJob, ServingResult};
use lightloom_training::step::Formats;
use lightloom_units::seed::Seed;
use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Deserialize)]
struct Row {
    model: String,
    accelerator: String,
    precision: Precision,
    tp: u32,
    #[serde(alias = "concurrency")]
    requests: u32,
    isl: u32,
    osl: u32,
    per_gpu_output_tokens_s: Option<f64>,
    measured_ttft_ms: Option<f64>,
    measured_tpot_ms: Option<f64>,
}

impl Row {
    fn served(&self) -> ServingResult {
        self.served_by(cards::accelerator(&self.accelerator).expect("a shipped accelerator"))
    }

    fn served_by(&self, card: Accelerator) -> ServingResult {
        let equal = |mean: u32| Lengths { mean: mean.into(), sigma: 0.0, most: mean };
        // The first table prints the number of requests sent at once, the second requests in flight.
        let times = if self.per_gpu_output_tokens_s.is_some() { 1 } else { 8 };
        let job = ServingJob {
            model: cards::model(&self.model).expect("a shipped model"),
            network: card.network(),
            card,
            gpus: self.tp,
            load: Load::Closed { concurrency: self.requests, requests: times * self.requests },
            lengths: [self.isl, self.osl].map(equal),
            batch: 2048,
            prompt_tokens: 8192,
            host_seconds: 0.0,
            formats: Formats { weights: self.precision, cache_value_bytes: 1.0 },
            tries_attention_ffn: false,
            layout: Some(Layout::Colocated { replica_gpus: self.tp }),
            objective: Objective { first_seconds: 1e3, token_seconds: 1e3 },
            seed: Seed(1),
        };
        *job.report().first().expect("the layout fits")
    }
}

pub(crate) fn data(name: &str) -> Option<String> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let text = std::fs::read_to_string(data.join(name));
    text.inspect_err(|_| println!("skipped: no ../shared/data")).ok()
}

pub(crate) fn rows<R: DeserializeOwned>(name: &str) -> Option<Vec<R>> {
    let text = data(name)?;
    let rows = csv::Reader::from_reader(text.as_bytes()).into_deserialize();
    Some(rows.map(|row| row.expect("a row of the columns above")).collect())
}

fn error(ours: f64, measured: f64) -> f64 {
    (ours / measured - 1.0).abs()
}

pub(crate) fn mean(errors: &[f64]) -> f64 {
    errors.iter().sum::<f64>() / errors.len() as f64
}

fn on_the_page(figure: &str) {
    println!("{figure}");
    let page = include_str!("../../../../docs/rl.md");
    assert!(page.contains(figure), "docs/rl.md does not say {figure}");
}

#[test]
fn throughput_of_published_loads_stays_within_its_error() {
    let Some(rows) = rows::<Row>("serving_measured.csv") else { return };
    let error = |row: &Row, served: ServingResult| {
        let ours = served.tokens_per_second / f64::from(row.tp);
        error(ours, row.per_gpu_output_tokens_s.expect("a rate"))
    };
    let errors: Vec<f64> = rows.iter().map(|row| error(row, row.served())).collect();
    on_the_page(&format!("{:.1} % of the throughput", 100.0 * mean(&errors)));
    assert!(mean(&errors) < 0.122, "{errors:?}");

    // Operators of one H200, measured with another software.
    let h200 = cards::accelerator("h200").expect("a shipped accelerator");
    let result = GpuResult::read(&data("one_gpu_h200.json").expect("next to the rows"));
    let measured = result.and_then(|result| result.card(&h200, false)).expect("times");
    let rows = rows.iter().filter(|row| row.accelerator == "h200");
    let errors: Vec<f64> = rows.map(|row| error(row, row.served_by(measured.clone()))).collect();
    on_the_page(&format!("{:.1} % of the throughput on an H200", 100.0 * mean(&errors)));
    assert!(mean(&errors) < 0.045, "{errors:?}");
}

#[test]
fn latencies_of_published_closed_loops_stay_within_their_errors() {
    let Some(rows) = rows::<Row>("serving_measured_2.csv") else { return };
    let (mut tokens, mut firsts) = (Vec::new(), Vec::new());
    for row in &rows {
        let served = row.served();
        let [first, token] =
            [row.measured_ttft_ms, row.measured_tpot_ms].map(|ms| ms.expect("a time") / 1e3);
        tokens.push(error(served.tpot_p50_seconds.expect("several tokens"), token));
        firsts.push(error(served.ttft_mean_seconds, first));
    }
    firsts.sort_by(f64::total_cmp);
    let median = firsts[firsts.len() / 2];
    on_the_page(&format!("{:.1} % of the TPOT", 100.0 * mean(&tokens)));
    on_the_page(&format!("{:.1} % of the mean TTFT", 100.0 * median));
    assert!(mean(&tokens) < 0.105 && median < 0.32, "{tokens:?} {firsts:?}");
}
