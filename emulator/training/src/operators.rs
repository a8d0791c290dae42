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
    pub fn of_product(count: f64, [rows, inner, columns]: [f64; 3], format: NumberFormat) -> Self {
        let operands = format.bytes() * (rows * inner + inner * columns);
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
    /// Rows, inner width and columns of the nearest product, or heads, tokens and width of the nearest core.
    pub nearest: [u32; 3],
    /// Largest factor between the operator and this point, in operations or bytes.
    pub factor: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Points(Vec<Point>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    shape: [u32; 3],
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
                nearest = (distance, Some((point.shape, x.abs().max(y.abs()))));
            }
        }
        let (nearest, log_factor) = nearest.1?;
        Some(Estimate { ratio: (sum / weights).exp(), nearest, factor: log_factor.exp() })
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
    pub elementwise: f64,
    /// Number of measurements, and their source.
    pub origin: String,
}

impl OperatorTable {
    pub fn of(source: &Operators) -> Self {
        let rate = source.memory_rate.0.bytes_per_second();
        let times = source.products.iter().map(|product| product.time.0.as_secs_f64());
        let shortest = times.fold(f64::INFINITY, f64::min);
        let mut products: BTreeMap<NumberFormat, Points> = BTreeMap::new();
        for product in &source.products {
            let took = product.time.0.as_secs_f64();
            let Some(peak) = source.peak(product.format) else { continue };
            if took > LAUNCH_BOUND * shortest {
                let bound = product.size().roofline(peak, rate);
                let known = products.entry(product.format).or_default();
                known.0.push(Point::new(product.shape(), product.size(), took / bound));
            }
        }
        let peak = source.peak(NumberFormat::Bf16).unwrap_or(f64::NAN);
        let attention = [0, 1].map(|pass| {
            let cores = source.attention.iter().map(|core| {
                let took = [core.forward, core.backward][pass].0.as_secs_f64();
                let flops = [1.0, BACKWARD_FLOPS][pass] * core.size().flops;
                Point::new(core.shape(), core.size(), took / (flops / peak))
            });
            Points(cores.collect())
        });
        Self {
            products,
            attention,
            launch_seconds: shortest,
            copy_share: source.copy_rate.0.bytes_per_second() / rate,
            optimizer_share: source.optimizer_rate.0.bytes_per_second() / rate,
            elementwise: source.elementwise,
            origin: format!(
                "{} products and {} attention cores on {}",
                source.products.len(),
                source.attention.len(),
                source.measured
            ),
        }
    }

    /// `None` if no product of this format was measured.
    pub fn product(&self, size: Size, precision: Precision) -> Option<Estimate> {
        // No script measures scales per block.
        let is_measured = matches!(precision, Precision::Bf16 | Precision::Fp8);
        self.products.get(&precision.format()).filter(|_| is_measured)?.estimate(size)
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
    fn new(shape: [u32; 3], size: Size, ratio: f64) -> Self {
        Self { shape, flops: size.flops.ln(), bytes: size.bytes.ln(), ratio: ratio.ln() }
    }
}

impl MeasuredProduct {
    fn shape(&self) -> [u32; 3] {
        [self.rows, self.inner, self.columns]
    }

    pub fn size(&self) -> Size {
        Size::of_product(1.0, self.shape().map(f64::from), self.format)
    }
}

impl MeasuredAttention {
    fn shape(&self) -> [u32; 3] {
        [self.heads, self.tokens, self.head_size]
    }

    fn size(&self) -> Size {
        Size::of_attention(self.heads.into(), self.tokens.into(), self.head_size.into())
    }
}

impl Operators {
    fn peak(&self, format: NumberFormat) -> Option<f64> {
        self.peak_tflops.get(&format).map(|tera| tera * 1e12)
    }

    pub(super) fn check(&self, check: &mut Check<'_>) {
        let mut usable = vec![
            ("memory_rate".to_owned(), self.memory_rate.0.get() > 0),
            ("copy_rate".to_owned(), self.copy_rate.0.get() > 0),
            ("optimizer_rate".to_owned(), self.optimizer_rate.0.get() > 0),
            ("elementwise".to_owned(), self.elementwise > 0.0),
            ("peak_tflops".to_owned(), self.peak(NumberFormat::Bf16).is_some()),
        ];
        for (format, peak) in &self.peak_tflops {
            usable.push((format!("peak_tflops/{format}"), *peak > 0.0));
        }
        for (place, one) in self.products.iter().enumerate() {
            let least = one.rows.min(one.inner).min(one.columns);
            usable.push((format!("products/{place}"), least > 0 && one.time.0.0 > 0));
        }
        for (place, one) in self.attention.iter().enumerate() {
            let least = one.heads.min(one.tokens).min(one.head_size);
            let is_usable = least > 0 && one.forward.0.0.min(one.backward.0.0) > 0;
            usable.push((format!("attention/{place}"), is_usable));
        }
        for (key, _) in usable.iter().filter(|(_, is_usable)| !is_usable) {
            let message = "the values must be above 0, and `bf16` needs a peak";
            check.error(codes::BAD_VALUE, &format!("/operators/{key}"), message);
        }
    }
}
