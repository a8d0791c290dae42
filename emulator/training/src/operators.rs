// SPDX-License-Identifier: Apache-2.0
//! Operators measured on one GPU, and their interpolation.
//!
//! ```text
//! ratio of a point = measured time ÷ roofline time of the measured GPU
//! ratio of a query = geometric mean of the points' ratios, weighted by 1 ÷ distance²
//! time of a query  = its ratio × the roofline time of the card
//! ```
//! Distances are Euclidean in the logarithms of operations and bytes. Products that take about as long as the shortest
//! one wait for their launch and say nothing about the kernel, so they only set the launch time.

use std::collections::BTreeMap;

use lightloom_fabric::document::{Check, codes};
use lightloom_units::{BitsPerSecond, Picoseconds, Text};
use serde::{Deserialize, Serialize};

use super::calibration::Precision;
use super::cards::NumberFormat;

pub mod result;

/// Measured operators of an accelerator file, written by `lightloom measure`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Operators {
    /// Measured GPU, software and source.
    pub measured: String,
    /// Peak dense TFLOP/s of the measured GPU. Another accelerator uses the times scaled by roofline.
    pub peak_tflops: BTreeMap<NumberFormat, f64>,
    /// Memory bandwidth of the measured GPU.
    pub memory_rate: Text<BitsPerSecond>,
    /// Bytes read and written per second by a large copy.
    pub copy_rate: Text<BitsPerSecond>,
    /// Bytes per second of the optimizer, at 30 bytes per weight.
    pub optimizer_rate: Text<BitsPerSecond>,
    /// Time of norms, activations and additions relative to fused kernels at the copy rate.
    pub elementwise: f64,
    /// Matrix products.
    pub products: Vec<MeasuredProduct>,
    /// Causal attention cores with 16 bits.
    pub attention: Vec<MeasuredAttention>,
}

/// A matrix product of `rows`×`inner` by `inner`×`columns`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredProduct {
    /// Number format of the operands; the result has 16 bits.
    pub format: NumberFormat,
    /// Rows of the first operand and of the result.
    pub rows: u32,
    /// Columns of the first operand.
    pub inner: u32,
    /// Columns of the result.
    pub columns: u32,
    /// Median duration.
    pub time: Text<Picoseconds>,
}

/// A causal attention core, whose key heads equal its query heads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredAttention {
    /// Query heads, times sequences.
    pub heads: u32,
    /// Tokens per sequence.
    pub tokens: u32,
    /// Width of a head.
    pub head_size: u32,
    /// Duration of the forward pass.
    pub forward: Text<Picoseconds>,
    /// Duration of the backward pass.
    pub backward: Text<Picoseconds>,
}

/// Operations and bytes of an operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    pub flops: f64,
    pub bytes: f64,
}

impl Size {
    pub fn of_product(count: f64, [rows, inner, columns]: [f64; 3], precision: Precision) -> Self {
        let operands = precision.operand_bytes() * (rows * inner + inner * columns);
        Self {
            flops: 2.0 * count * rows * inner * columns,
            bytes: count * (operands + 2.0 * rows * columns),
        }
    }

    /// Half of the score matrix; queries, keys, values and results are read or written once.
    fn of_attention(heads: f64, tokens: f64, head_size: f64) -> Self {
        Self {
            flops: 2.0 * heads * tokens * tokens * head_size,
            bytes: 8.0 * heads * tokens * head_size,
        }
    }

    /// Returns the lower bound of the duration.
    pub fn roofline(self, peak_flops: f64, memory_rate: f64) -> f64 {
        (self.flops / peak_flops).max(self.bytes / memory_rate)
    }
}

/// An estimate, and how far it is from the measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Duration relative to the roofline.
    pub ratio: f64,
    /// Place of the nearest point in the file's list.
    pub nearest: usize,
    /// Largest factor between the operator and this point, in operations or bytes.
    pub factor: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Points(Vec<Point>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    place: usize,
    flops: f64,
    bytes: f64,
    ratio: f64,
}

/// Keeps the weight of an exact match finite.
const SMALLEST_DISTANCE: f64 = 0.003;
/// Products up to this multiple of the shortest wait for their launch.
const LAUNCH_BOUND: f64 = 1.7;

impl Points {
    fn estimate(&self, size: Size) -> Option<Estimate> {
        let (flops, bytes) = (size.flops.ln(), size.bytes.ln());
        let (mut sum, mut weights) = (0.0, 0.0);
        let mut nearest = (f64::INFINITY, None);
        for point in &self.0 {
            let (x, y) = (point.flops - flops, point.bytes - bytes);
            let distance = x * x + y * y;
            let weight = 1.0 / (distance + SMALLEST_DISTANCE);
            sum += weight * point.ratio;
            weights += weight;
            if distance < nearest.0 {
                nearest = (distance, Some((point.place, x.abs().max(y.abs()))));
            }
        }
        let (place, log_factor) = nearest.1?;
        Some(Estimate { ratio: (sum / weights).exp(), nearest: place, factor: log_factor.exp() })
    }
}

/// Points of [`Operators`], ready for interpolation.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorTable {
    products: BTreeMap<NumberFormat, Points>,
    attention: [Points; 2],
    /// Seconds between the starts of two kernels without CUDA graphs.
    pub launch_seconds: f64,
    /// Shares of the memory bandwidth.
    pub copy_share: f64,
    pub optimizer_share: f64,
    pub source: Operators,
}

impl OperatorTable {
    pub fn of(source: &Operators) -> Self {
        let rate = source.memory_rate.0.bytes_per_second();
        let times = source.products.iter().map(|product| product.time.0.as_secs_f64());
        let shortest = times.fold(f64::INFINITY, f64::min);
        let mut products: BTreeMap<NumberFormat, Points> = BTreeMap::new();
        for (place, product) in source.products.iter().enumerate() {
            let took = product.time.0.as_secs_f64();
            let Some(peak) = source.peak(product.format) else { continue };
            if took > LAUNCH_BOUND * shortest {
                let bound = product.size().roofline(peak, rate);
                let known = products.entry(product.format).or_default();
                known.0.push(Point::new(place, product.size(), took / bound));
            }
        }
        let peak = source.peak(NumberFormat::Bf16).unwrap_or(f64::NAN);
        let attention = [0, 1].map(|pass| {
            let point = |(place, core): (usize, &MeasuredAttention)| {
                let took = [core.forward, core.backward][pass].0.as_secs_f64();
                let flops = [1.0, BACKWARD_FLOPS][pass] * core.size().flops;
                Point::new(place, core.size(), took / (flops / peak))
            };
            Points(source.attention.iter().enumerate().map(point).collect())
        });
        Self {
            products,
            attention,
            launch_seconds: shortest,
            copy_share: source.copy_rate.0.bytes_per_second() / rate,
            optimizer_share: source.optimizer_rate.0.bytes_per_second() / rate,
            source: source.clone(),
        }
    }

    pub fn origin(&self) -> String {
        let Operators { measured, products, attention, .. } = &self.source;
        format!("{} products and {} attention cores on {measured}", products.len(), attention.len())
    }

    /// `None` if no product of this format was measured.
    pub fn product(&self, size: Size, precision: Precision) -> Option<Estimate> {
        let format = match precision {
            Precision::Bf16 => NumberFormat::Bf16,
            Precision::Fp8 => NumberFormat::Fp8,
            // No script measures scales per block.
            Precision::Mxfp8 | Precision::Nvfp4 => return None,
        };
        self.products.get(&format)?.estimate(size)
    }

    /// Returns the estimates of both passes, relative to the time at peak.
    pub fn attention(&self, heads: f64, tokens: f64, head_size: f64) -> Option<[Estimate; 2]> {
        let size = Size::of_attention(heads, tokens, head_size);
        let [forward, backward] = &self.attention;
        Some([forward.estimate(size)?, backward.estimate(size)?])
    }
}

/// The backward pass has five products, because scores are recomputed, and the forward pass two.
pub(crate) const BACKWARD_FLOPS: f64 = 2.5;

impl Point {
    fn new(place: usize, size: Size, ratio: f64) -> Self {
        Self { place, flops: size.flops.ln(), bytes: size.bytes.ln(), ratio: ratio.ln() }
    }
}

impl MeasuredProduct {
    pub fn size(&self) -> Size {
        let precision = match self.format {
            NumberFormat::Bf16 => Precision::Bf16,
            NumberFormat::Fp8 => Precision::Fp8,
            NumberFormat::Fp4 => Precision::Nvfp4,
        };
        Size::of_product(1.0, [self.rows, self.inner, self.columns].map(f64::from), precision)
    }
}

impl MeasuredAttention {
    fn size(&self) -> Size {
        Size::of_attention(self.heads.into(), self.tokens.into(), self.head_size.into())
    }
}

impl Operators {
    fn peak(&self, format: NumberFormat) -> Option<f64> {
        self.peak_tflops.get(&format).map(|tera| tera * 1e12)
    }

    pub(super) fn check(&self, check: &mut Check<'_>) {
        let mut positive = |path: String, is_positive: bool| {
            if !is_positive {
                check.error(
                    codes::BAD_VALUE,
                    &path,
                    "the values must be above 0, and `bf16` needs a peak".to_owned(),
                );
            }
        };
        for (name, rate) in [
            ("memory_rate", self.memory_rate),
            ("copy_rate", self.copy_rate),
            ("optimizer_rate", self.optimizer_rate),
        ] {
            positive(format!("/operators/{name}"), rate.0.get() > 0);
        }
        positive("/operators/elementwise".to_owned(), self.elementwise > 0.0);
        positive("/operators/peak_tflops".to_owned(), self.peak(NumberFormat::Bf16).is_some());
        for (format, peak) in &self.peak_tflops {
            positive(format!("/operators/peak_tflops/{}", format.name()), *peak > 0.0);
        }
        for (place, one) in self.products.iter().enumerate() {
            let least = [one.rows, one.inner, one.columns].into_iter().min();
            let is_positive = least > Some(0) && one.time.0.0 > 0;
            positive(format!("/operators/products/{place}"), is_positive);
        }
        for (place, one) in self.attention.iter().enumerate() {
            let least = [one.heads, one.tokens, one.head_size].into_iter().min();
            let is_positive = least > Some(0) && one.forward.0.0.min(one.backward.0.0) > 0;
            positive(format!("/operators/attention/{place}"), is_positive);
        }
    }
}
