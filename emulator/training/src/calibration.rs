// SPDX-License-Identifier: Apache-2.0
//! Measured efficiency of an accelerator and its training software: achieved shares of peak rates,
//! and the optimizations that the software uses.
//!
//! A set of constants belongs to one accelerator and one software generation, never to a single row
//! of a table. docs/mfu.md lists the constants and their fit; a test recomputes the remaining
//! errors from the validation tables.

use serde::{Deserialize, Serialize};

use super::calibrated::FRAMEWORKS;
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
    /// 16 bits (bf16 or fp16).
    #[default]
    Bf16,
    /// 8 bits with a scale per tensor in the linear layers, 16 bits in attention and output layer.
    Fp8,
    /// 8 bits with a scale per block of 32 values in the linear layers.
    Mxfp8,
    /// 4 bits in the linear layers, 16 bits in attention and output layer.
    Nvfp4,
}

impl Precision {
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Mxfp8 => "mxfp8",
            Self::Nvfp4 => "nvfp4",
        }
    }

    #[must_use]
    pub fn operand_bytes(self) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 | Self::Mxfp8 => 1.0,
            Self::Nvfp4 => 0.5,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Software {
    /// TP splits the sequence outside the matrix products (all-gather and reduce-scatter instead of
    /// all-reduce).
    pub sequence_parallel: bool,
    /// Attention never writes the score matrix to memory.
    pub flash_attention: bool,
    /// The first and the last stage hold one layer fewer, which balances the embedding and the output
    /// layer.
    pub balanced_ends: bool,
    pub split_transfers: bool,
    /// Gradient and weight communication overlaps the first forward and the last backward pass.
    pub data_overlap: bool,
    pub sharding: ZeroStage,
    pub context_exchange: ContextExchange,
    pub gradient_bytes: f64,
    /// Weights and gradients are exchanged layer by layer, and each exchange pays the latency of a
    /// ring. Otherwise there is one exchange for all layers.
    pub layer_buckets: bool,
    /// Experts are sharded by EP only, which may span TP groups (expert-TP folding), and not also
    /// by TP.
    pub folded_experts: bool,
    /// Bytes per value of a token sent to an expert.
    pub dispatch_bytes: f64,
    #[serde(skip_deserializing)]
    pub features: Features,
}

impl Software {
    /// Returns the bytes per weight of weight, gradient, master weight and two moments, sharded
    /// over `replicas`.
    #[must_use]
    pub fn state_bytes(&self, replicas: f64) -> f64 {
        match self.sharding {
            ZeroStage::Replicated => 14.0 + self.gradient_bytes,
            ZeroStage::Optimizer => 2.0 + self.gradient_bytes + 12.0 / replicas,
            ZeroStage::Gradients => 2.0 + (12.0 + self.gradient_bytes) / replicas,
            ZeroStage::Everything => (14.0 + self.gradient_bytes) / replicas,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Calibration {
    #[serde(serialize_with = "name")]
    pub name: ConstantsName,
    pub software: Software,
    /// Share of peak that large matrix products reach with 16 bits.
    pub gemm_efficiency: f64,
    /// Share of the 8-bit peak that large matrix products reach.
    pub gemm_efficiency_fp8: f64,
    /// Share of the 8-bit peak that large matrix products with block scales reach.
    pub gemm_efficiency_mxfp8: f64,
    /// Share of the 4-bit peak that large matrix products reach.
    pub gemm_efficiency_fp4: f64,
    /// Floating-point operations that a matrix product loses to ramp-up and tail.
    pub gemm_lost_flops: f64,
    /// Factor on that efficiency for expert products with 16 bits. These products are grouped,
    /// padded and wait for the fullest expert.
    pub expert_efficiency: f64,
    /// Factor on that efficiency for expert products with 8 bits or fewer.
    pub expert_efficiency_fp8: f64,
    /// Share of peak that the attention core reaches, counting only the operations that it
    /// executes.
    pub attention_efficiency: f64,
    /// Share of the memory bandwidth that element-wise work reaches.
    pub memory_efficiency: f64,
    /// Minimum duration of a layer's forward pass, spent launching its kernels.
    pub launch_seconds: f64,
    /// Minimum duration of an expert layer's forward pass in three cases: the host waits for the
    /// routing, it does not wait, or the communication of a micro-batch overlaps another one.
    pub expert_launch_seconds: [f64; 3],
    /// Exposed share of TP communication inside a domain.
    pub tensor_exposed: f64,
    /// Exposed share of TP communication through network cards.
    pub tensor_exposed_across: f64,
    /// Exposed share of EP communication inside a domain.
    pub expert_exposed: f64,
    /// Exposed share of EP communication through network cards.
    pub expert_exposed_across: f64,
    pub pipeline_exposed: f64,
    /// Share of overlapped DP communication that still slows the step.
    pub data_exposed: f64,
    /// Share of overlapped communication per micro-batch that still slows the step, with fully
    /// sharded states.
    pub gather_exposed: f64,
    /// Growth of the step with each doubling of the number of eight-GPU nodes (stragglers,
    /// congestion).
    pub jitter_per_doubling: f64,
    pub step_seconds: f64,
    pub network: Efficiency,
}

/// The accelerator and the software version that a set of constants belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstantsName {
    pub chip: &'static str,
    pub software: &'static str,
}

impl ConstantsName {
    /// Returns the runs that the software's constants were fitted to.
    #[must_use]
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

fn name<S: serde::Serializer>(name: &ConstantsName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(name)
}
