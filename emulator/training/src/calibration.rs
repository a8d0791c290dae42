//! What was measured of an accelerator and its training software: shares of peak rates that real work
//! reaches, and which of its tricks the software uses.
//!
//! A set of constants belongs to one accelerator and one software generation, never to a row of a table.
//! docs/mfu.md lists them with how they were fitted; the test of the validation tables recomputes the
//! errors that they leave.

use serde::Serialize;

use super::network::Efficiency;

/// Number format of the matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// Sixteen bits (bf16 or fp16).
    Bf16,
    /// Eight bits in the linear layers, sixteen in attention and output layer.
    Fp8,
}

/// What each replica holds of the training state (ZeRO stages).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharding {
    /// All of it (ZeRO-0).
    Replicated,
    /// Its share of the optimizer states (ZeRO-1, distributed optimizer).
    Optimizer,
    /// Its share of optimizer states and gradients (ZeRO-2).
    Gradients,
    /// Its share of everything (ZeRO-3, FSDP).
    Everything,
}

/// How keys and values of other ranks come to a rank in context parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContextExchange {
    /// Block by block round a ring, while the previous block is worked on.
    Ring,
    /// All at once before attention, exposed.
    AllGather,
    /// All-to-all of queries, keys and values, so that each rank has whole sequences of few heads (Ulysses).
    AllToAll,
}

/// Which tricks the training software uses.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    pub sharding: Sharding,
    /// Context-parallel exchange.
    pub context_exchange: ContextExchange,
    /// Bytes of a gradient on the wire.
    pub gradient_bytes: f64,
}

impl Software {
    /// Bytes of weight, gradient, master weight and two moments per weight, over `replicas`.
    #[must_use]
    pub fn state_bytes(&self, replicas: f64) -> f64 {
        match self.sharding {
            Sharding::Replicated => 18.0,
            Sharding::Optimizer => 6.0 + 12.0 / replicas,
            Sharding::Gradients => 2.0 + 16.0 / replicas,
            Sharding::Everything => 18.0 / replicas,
        }
    }
}

/// The constants of one accelerator and software generation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Name: `h100/nemo-25.02`.
    pub name: &'static str,
    /// Which tricks it uses.
    pub software: Software,
    /// Share of peak that large matrix products reach in sixteen bits.
    pub gemm_efficiency: f64,
    /// Share of the eight-bit peak that large matrix products reach in eight bits.
    pub gemm_efficiency_fp8: f64,
    /// Floating-point operations that a matrix product loses to its start and end.
    pub gemm_lost_flops: f64,
    /// Share of that efficiency that the products of experts reach in sixteen bits: they are grouped, padded,
    /// and wait for the fullest expert.
    pub expert_efficiency: f64,
    /// The same in eight bits.
    pub expert_efficiency_fp8: f64,
    /// Share of peak that the attention core reaches on what it computes.
    pub attention_efficiency: f64,
    /// Share of the memory rate that element-wise work reaches.
    pub memory_efficiency: f64,
    /// Seconds that a layer's forward pass takes at least, to launch its kernels.
    pub launch_seconds: f64,
    /// Share of TP exchange that is not hidden.
    pub tensor_exposed: f64,
    /// Share of EP exchange that is not hidden.
    pub expert_exposed: f64,
    /// Share of steady pipeline transfers that is not hidden.
    pub pipeline_exposed: f64,
    /// Share of DP exchange that slows the step although it overlaps.
    pub data_exposed: f64,
    /// Growth of the step with each doubling of the number of eight-GPU nodes (stragglers, congestion).
    pub jitter_per_doubling: f64,
    /// Seconds of a step that are none of the above.
    pub step_seconds: f64,
    /// What the links reach.
    pub network: Efficiency,
}

impl Calibration {
    /// These constants for a chip whose best matrix products were measured at `best` of its peaks in sixteen and
    /// eight bits, when the constants' own chip was measured at `own`: the shares of peak scale alike.
    #[must_use]
    pub fn adapted(&self, own: [f64; 2], best: [f64; 2]) -> Self {
        Self {
            gemm_efficiency: self.gemm_efficiency / own[0] * best[0],
            gemm_efficiency_fp8: self.gemm_efficiency_fp8 / own[1] * best[1],
            ..self.clone()
        }
    }
}
