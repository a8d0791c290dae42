// SPDX-License-Identifier: Apache-2.0
//! Reads the result of the script that `lightloom measure` prints.

use serde::Deserialize;

use super::{MeasuredAttention, MeasuredProduct, Operators};
use crate::calibration::Precision;
use crate::cards::{Accelerator, NumberFormat};
use crate::mapping::{Batch, Mapping, Recompute};
use crate::model::{Activation, Attention, FeedForward, Model};
use crate::step::{Job, step_time};
use lightloom_units::{BitsPerSecond, Picoseconds, Text};

/// Times of one GPU. Sections that predictions do not need are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct GpuResult {
    pub env: Environment,
    pub gemm: Vec<Product>,
    #[serde(default)]
    pub fp8: Vec<Product>,
    pub attention: Vec<Core>,
    pub train: Vec<Layers>,
    /// Parts that the script could not measure.
    #[serde(default)]
    pub errors: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Environment {
    pub gpu: String,
    pub torch: String,
    pub cuda: String,
    #[serde(default)]
    pub copy_gbps: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Median {
    pub ms: f64,
}

/// Durations with 16 bits (forward, gradients of inputs and weights), or with 8 bits and fast accumulation.
#[derive(Clone, Debug, Deserialize)]
pub struct Product {
    pub m: u32,
    pub k: u32,
    pub n: u32,
    fwd: Option<Median>,
    dgrad: Option<Median>,
    wgrad: Option<Median>,
    fast: Option<Median>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Core {
    pub b: u32,
    pub h: u32,
    pub s: u32,
    pub d: u32,
    pub fwd_ms: f64,
    pub fb_ms: f64,
}

/// A step of decoder layers, without embedding and output layer.
#[derive(Clone, Debug, Deserialize)]
pub struct Layers {
    pub shape: String,
    pub layers: u32,
    pub s: u64,
    pub b: u32,
    pub recompute: String,
    pub compile: bool,
    pub step_ms: f64,
    pub fwd_ms: Option<f64>,
    pub opt_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResultError {
    #[error("not a result of the script that `lightloom measure` prints: {0}")]
    Unreadable(String),
    #[error("unknown GPU `{0}`: choose a similar accelerator with --accelerator NAME")]
    UnknownGpu(String),
    #[error("`{0}` contains no usable times; the `errors` of the result show the reason")]
    Empty(&'static str),
}

impl GpuResult {
    pub fn read(text: &str) -> Result<Self, ResultError> {
        serde_json::from_str(text).map_err(|error| ResultError::Unreadable(error.to_string()))
    }

    /// Adds the measured operators to the card of the GPU. `is_eager` software runs norms and activations as separate
    /// kernels; their time is derived from the forward passes of layers.
    pub fn card(&self, own: &Accelerator, is_eager: bool) -> Result<Accelerator, ResultError> {
        let Environment { gpu, torch, cuda, copy_gbps } = &self.env;
        if !(*copy_gbps > 0.0 && *copy_gbps < 1e6) {
            return Err(ResultError::Empty("copy_gbps"));
        }
        let products: Vec<MeasuredProduct> =
            (self.gemm.iter().chain(&self.fp8)).flat_map(Product::measured).collect();
        if products.is_empty() {
            return Err(ResultError::Empty("gemm"));
        }
        let optimizer = self.train.iter().map(|row| 30.0 * row.weights() / (row.opt_ms / 1e3));
        let optimizer = median(optimizer).ok_or(ResultError::Empty("train"))?;
        let [copy_rate, optimizer_rate] = [copy_gbps * 1e9, optimizer]
            .map(|rate| Text(BitsPerSecond::from_gbps((8e-9 * rate).round() as u64)));
        let mut card = Accelerator {
            source: format!("{}; operators measured on {gpu}", own.source),
            operators: Some(Operators {
                measured: format!("{gpu}, PyTorch {torch}, CUDA {cuda}"),
                peak_tflops: own.peak_tflops.clone(),
                memory_rate: own.memory_rate,
                copy_rate,
                optimizer_rate,
                elementwise: 1.0,
                products,
                attention: self.cores(),
            }),
            ..own.clone()
        };
        if is_eager {
            let forward = self.train.iter().filter_map(|row| row.elementwise(&card));
            let elementwise = median(forward).ok_or(ResultError::Empty("train"))?;
            if let Some(operators) = &mut card.operators {
                operators.elementwise = (elementwise.max(1.0) * 100.0).round() / 100.0;
            }
        }
        Ok(card)
    }

    /// Keeps the fastest library for each shape.
    fn cores(&self) -> Vec<MeasuredAttention> {
        let mut cores: Vec<MeasuredAttention> = Vec::new();
        for row in self.attention.iter().filter(|row| row.fb_ms > row.fwd_ms) {
            let times = [row.fwd_ms, row.fb_ms - row.fwd_ms].map(time);
            let ([Some(forward), Some(backward)], Some(heads)) = (times, row.b.checked_mul(row.h))
            else {
                continue;
            };
            let (tokens, head_size) = (row.s, row.d);
            let core = MeasuredAttention { heads, tokens, head_size, forward, backward };
            match cores.iter_mut().find(|known| known.shape() == core.shape()) {
                Some(known) if known.forward.0 + known.backward.0 <= forward.0 + backward.0 => {}
                Some(known) => *known = core,
                None => cores.push(core),
            }
        }
        cores
    }
}

/// `None` if no kernel takes this long.
fn time(ms: f64) -> Option<Text<Picoseconds>> {
    (ms > 0.0 && ms < 1e6).then(|| Text(Picoseconds::from_secs_f64(ms / 1e3)))
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite() && *value > 0.0).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

impl Product {
    pub fn measured(&self) -> Vec<MeasuredProduct> {
        let Self { m, k, n, .. } = *self;
        [
            (NumberFormat::Bf16, [m, k, n], self.fwd),
            (NumberFormat::Bf16, [m, n, k], self.dgrad),
            (NumberFormat::Bf16, [n, m, k], self.wgrad),
            (NumberFormat::Fp8, [m, k, n], self.fast),
        ]
        .into_iter()
        .filter_map(|(format, [rows, inner, columns], median)| {
            let time = time(median?.ms).filter(|_| m.min(k).min(n) > 0)?;
            Some(MeasuredProduct { format, rows, inner, columns, time })
        })
        .collect()
    }
}

impl Layers {
    /// Returns the model whose layers were measured, with an empty vocabulary.
    pub fn model(&self) -> Model {
        let [hidden, query_heads, key_value_heads, width] = match &self.shape[..] {
            "70b" => [8192, 64, 8, 28672],
            _ => [4096, 32, 8, 14336],
        };
        Model {
            name: format!("{} layers of {}", self.layers, self.shape),
            source: "the measurement".to_owned(),
            layers: self.layers,
            hidden,
            vocabulary: 0,
            attention: Attention::Grouped {
                query_heads,
                key_value_heads,
                head_size: 128,
                query_rank: None,
            },
            feed_forward: FeedForward { width, activation: Activation::Swiglu, experts: None },
            state_space: None,
            window: None,
            prediction_depths: 0,
        }
    }

    fn weights(&self) -> f64 {
        let model = self.model();
        f64::from(self.layers) * (model.attention_parameters() + model.dense_parameters())
    }

    /// Returns the predicted seconds of this step.
    pub fn predicted(&self, card: &Accelerator) -> f64 {
        self.with_job(card, |job| step_time(job).step_seconds)
    }

    fn with_job<T>(&self, card: &Accelerator, ask: impl FnOnce(&Job<'_>) -> T) -> T {
        let is_full = self.recompute == "full";
        let recompute = if is_full { Recompute::Full } else { Recompute::None };
        let mapping = Mapping { micro_batch: self.b, recompute, ..Mapping::ONE_GPU };
        ask(&Job {
            model: &self.model(),
            mapping,
            batch: Batch { sequences: self.b.into(), tokens: self.s },
            compute: &card.compute(),
            network: &card.network(),
            calibration: &card.calibration(),
            precision: Precision::Bf16,
            expert_imbalance: 0.0,
        })
    }

    /// Compares the measured forward pass with predictions for one and two times the fused time.
    fn elementwise(&self, card: &Accelerator) -> Option<f64> {
        let measured = self.fwd_ms.filter(|_| !self.compile)? / 1e3;
        let [once, twice] = [1.0, 2.0].map(|elementwise| {
            let mut card = card.clone();
            if let Some(operators) = &mut card.operators {
                operators.elementwise = elementwise;
            }
            let layer = self.with_job(&card, |job| job.work().layer[0].forward.seconds().total());
            f64::from(self.layers) * layer
        });
        Some(1.0 + (measured - once) / (twice - once))
    }
}
