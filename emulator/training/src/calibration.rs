// SPDX-License-Identifier: Apache-2.0
//! Measured efficiency of an accelerator with its software: achieved shares of peak rates, and optimizations in use.
//!
//! Constants belong to one accelerator and one software generation, never to a single table row.
//! docs/mfu.md lists the constants and their fit; a test recomputes the remaining errors.

use serde::{Deserialize, Serialize};

use super::calibrated::FRAMEWORKS;
use super::cards::NumberFormat;
use super::features::Features;
use super::network::Efficiency;

pub use super::mapping::{ContextExchange, ZeroStage};

#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// bf16 or fp16.
    #[default]
    Bf16,
    /// 8 bits with a scale per tensor in the linear layers; attention and output layer use 16 bits.
    Fp8,
    /// 8 bits with a scale per block of 32 values in the linear layers.
    Mxfp8,
    /// 4 bits in the linear layers; attention and output layer use 16 bits.
    Nvfp4,
}

lightloom_units::display_as_serialized!(Precision);

impl Precision {
    /// Number format of the operands of linear layers.
    pub fn format(self) -> NumberFormat {
        match self {
            Self::Bf16 => NumberFormat::Bf16,
            Self::Fp8 | Self::Mxfp8 => NumberFormat::Fp8,
            Self::Nvfp4 => NumberFormat::Fp4,
        }
    }

    pub fn operand_bytes(self) -> f64 {
        self.format().bytes()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Software {
    /// TP splits the sequence outside the matrix products.
    pub sequence_parallel: bool,
    /// The score matrix is never written to memory.
    pub flash_attention: bool,
    /// The first and last stage hold one layer fewer, to balance embedding and output layer.
    pub balanced_ends: bool,
    pub split_transfers: bool,
    /// Gradients and weights are communicated during the first forward and the last backward pass.
    pub data_overlap: bool,
    pub sharding: ZeroStage,
    pub context_exchange: ContextExchange,
    pub gradient_bytes: f64,
    /// Weights and gradients are exchanged per layer, each with the latency of a ring. Otherwise,
    /// all layers share one exchange.
    pub layer_buckets: bool,
    /// Experts are sharded by EP only, which may span TP groups (expert-TP folding).
    pub folded_experts: bool,
    pub dispatch_bytes: f64,
    #[serde(skip_deserializing)]
    pub features: Features,
}

impl Software {
    /// Bytes per weight: weight, gradient, master weight and two moments, sharded over `replicas`.
    pub fn state_bytes(&self, replicas: f64) -> f64 {
        match self.sharding {
            ZeroStage::Replicated => 14.0 + self.gradient_bytes,
            ZeroStage::Optimizer => 2.0 + self.gradient_bytes + 12.0 / replicas,
            ZeroStage::Gradients => 2.0 + (12.0 + self.gradient_bytes) / replicas,
            ZeroStage::Everything => (14.0 + self.gradient_bytes) / replicas,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    pub name: ConstantsName,
    pub software: Software,
    /// Share of peak for large matrix products, in the order of [`Precision`].
    pub gemm_efficiency: [f64; 4],
    pub gemm_lost_flops: f64,
    /// Factor for 16-bit expert products, which are grouped and padded and wait for the most heavily loaded expert.
    pub expert_efficiency: f64,
    pub expert_efficiency_fp8: f64,
    /// Share of peak for the attention core, counting executed operations only.
    pub attention_efficiency: f64,
    pub memory_efficiency: f64,
    pub launch_seconds: f64,
    /// Minimum duration of an expert layer's forward pass: if the host waits for the routing, if not, and if overlapped.
    pub expert_launch_seconds: [f64; 3],
    /// Exposed share of TP communication, within a domain and over network cards.
    pub tensor_exposed: [f64; 2],
    /// Exposed share of EP communication, within a domain and over network cards.
    pub expert_exposed: [f64; 2],
    pub pipeline_exposed: f64,
    /// Share of overlapped DP communication that still slows the step.
    pub data_exposed: f64,
    pub gather_exposed: f64,
    /// Growth of the step time per doubling of the number of eight-GPU nodes (stragglers, congestion).
    pub jitter_per_doubling: f64,
    /// Host time per layer at the end of a step without CUDA graphs.
    pub optimizer_launch_seconds: f64,
    pub network: Efficiency,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstantsName {
    pub chip: &'static str,
    pub software: &'static str,
}

impl ConstantsName {
    pub fn origin(&self) -> &'static str {
        FRAMEWORKS
            .iter()
            .find(|framework| framework.name == self.software)
            .map_or("", |framework| framework.origin)
    }
}

impl std::fmt::Display for ConstantsName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.chip, self.software)
    }
}
