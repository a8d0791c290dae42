// SPDX-License-Identifier: Apache-2.0
//! What was measured of an accelerator and its training software: shares of peak rates that real work
//! reaches, and which of its tricks the software uses.
//!
//! A set of constants belongs to one accelerator and one software generation, never to a row of a table.
//! docs/mfu.md lists them with how they were fitted; the test of the validation tables recomputes the
//! errors that they leave.

use serde::{Deserialize, Serialize};

use super::calibrated::FRAMEWORKS;
use super::features::Features;
use super::network::Efficiency;

pub use super::mapping::{ContextExchange, ZeroStage};

/// Number format of the matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// Sixteen bits (bf16 or fp16).
    Bf16,
    /// Eight bits in the linear layers with a scale for each tensor, sixteen in attention and output layer.
    Fp8,
    /// Eight bits in the linear layers with a scale for each block of 32 values.
    Mxfp8,
    /// Four bits in the linear layers, sixteen in attention and output layer.
    Nvfp4,
}

impl Precision {
    /// The word for it, on the command line and in results.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Mxfp8 => "mxfp8",
            Self::Nvfp4 => "nvfp4",
        }
    }

    /// Bytes of an operand of a linear layer.
    #[must_use]
    pub fn operand_bytes(self) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 | Self::Mxfp8 => 1.0,
            Self::Nvfp4 => 0.5,
        }
    }
}

/// Which tricks the training software uses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Software {
    /// TP splits the sequence outside the matrix products (all-gather and reduce-scatter instead of all-reduce).
    pub sequence_parallel: bool,
    /// Attention never writes the score matrix to memory.
    pub flash_attention: bool,
    /// First and last stage hold a layer less, for embedding and output layer.
    pub balanced_ends: bool,
    /// Pipeline transfers are split over the TP ranks.
    pub split_transfers: bool,
    /// Gradient and weight exchange hides behind the first forward and last backward pass.
    pub data_overlap: bool,
    /// What replicas hold.
    pub sharding: ZeroStage,
    /// Context-parallel exchange.
    pub context_exchange: ContextExchange,
    /// Bytes of a gradient on the wire.
    pub gradient_bytes: f64,
    /// Weights and gradients travel layer by layer, so that the steps of a ring are paid for each; all at once otherwise.
    pub layer_buckets: bool,
    /// Experts are cut by EP alone, which may span TP groups (expert-TP folding), and not by TP as well.
    pub folded_experts: bool,
    /// Bytes of a token's value on its way to an expert.
    pub dispatch_bytes: f64,
    /// What its recipe switches on, or the user.
    #[serde(skip_deserializing)]
    pub features: Features,
}

impl Software {
    /// Bytes of weight, gradient, master weight and two moments per weight, over `replicas`.
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

/// The constants of one accelerator and software generation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// The accelerator that the shares of peak come from, and the software.
    #[serde(serialize_with = "name")]
    pub name: ConstantsName,
    /// Which tricks it uses.
    pub software: Software,
    /// Share of peak that large matrix products reach in sixteen bits.
    pub gemm_efficiency: f64,
    /// Share of the eight-bit peak that large matrix products reach in eight bits.
    pub gemm_efficiency_fp8: f64,
    /// The same with a scale for each block.
    pub gemm_efficiency_mxfp8: f64,
    /// Share of the four-bit peak that large matrix products reach in four bits.
    pub gemm_efficiency_fp4: f64,
    /// Floating-point operations that a matrix product loses to its start and end.
    pub gemm_lost_flops: f64,
    /// Share of that efficiency that the products of experts reach in sixteen bits: they are grouped, padded,
    /// and wait for the fullest expert.
    pub expert_efficiency: f64,
    /// The same in eight bits and fewer.
    pub expert_efficiency_fp8: f64,
    /// Share of peak that the attention core reaches on what it computes.
    pub attention_efficiency: f64,
    /// Share of the memory rate that element-wise work reaches.
    pub memory_efficiency: f64,
    /// Seconds that a layer's forward pass takes at least, to launch its kernels.
    pub launch_seconds: f64,
    /// The same for a layer with experts: where the host waits for the routing, where it does not, and where the
    /// exchange of a micro-batch hides behind another.
    pub expert_launch_seconds: [f64; 3],
    /// Share of TP exchange inside a domain that is not hidden.
    pub tensor_exposed: f64,
    /// Share of TP exchange through network cards that is not hidden.
    pub tensor_exposed_across: f64,
    /// Share of EP exchange inside a domain that is not hidden.
    pub expert_exposed: f64,
    /// Share of EP exchange through network cards that is not hidden.
    pub expert_exposed_across: f64,
    /// Share of steady pipeline transfers that is not hidden.
    pub pipeline_exposed: f64,
    /// Share of DP exchange that slows the step although it overlaps.
    pub data_exposed: f64,
    /// The same of the exchange of every micro-batch with fully sharded states.
    pub gather_exposed: f64,
    /// Growth of the step with each doubling of the number of eight-GPU nodes (stragglers, congestion).
    pub jitter_per_doubling: f64,
    /// Seconds of a step that are none of the above.
    pub step_seconds: f64,
    /// What the links reach.
    pub network: Efficiency,
}

/// What a set of constants belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstantsName {
    /// The accelerator.
    pub chip: &'static str,
    /// The software and its version.
    pub software: &'static str,
}

impl ConstantsName {
    /// The runs that the software's constants come from.
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
