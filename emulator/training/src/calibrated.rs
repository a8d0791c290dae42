//! The constants in use. What a chip's kernels and links reach ([`Chip`]) and what a framework's version makes of it
//! ([`Framework`]) are fitted apart, so that a pair nobody measured can be composed of the two. docs/mfu.md says on what.

mod table;

use super::calibration::{Calibration, Name, Software};
use super::network::Efficiency;

pub use table::{
    A100_MEGATRON_DEEPSPEED, A100_MEGATRON_LM_2022, CHIPS, FRAMEWORKS, H100_LLAMA_3,
    H100_NEMO_25_02,
};

/// What the kernels and links of a chip reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chip {
    /// Name of its card.
    pub name: &'static str,
    /// Shares of peak of large matrix products in sixteen bits, eight, eight with block scales, and four.
    pub gemm: [f64; 4],
    /// Operations that a matrix product loses to its start and end.
    pub lost_flops: f64,
    /// Share of peak of the fused attention core.
    pub attention: f64,
    /// Share of the memory rate.
    pub memory: f64,
    /// What links reach.
    pub network: Efficiency,
}

/// What the version of a framework makes of a chip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Framework {
    /// Name and version: `nemo-25.02`.
    pub name: &'static str,
    /// What its constants come from.
    pub origin: &'static str,
    /// Which tricks it uses.
    pub software: Software,
    /// Matrix products against the chip's.
    pub gemm: f64,
    /// Matrix products in eight and four bits, besides.
    pub low: f64,
    /// The attention core against the chip's.
    pub attention: f64,
    /// Element-wise work against the chip's.
    pub memory: f64,
    /// Experts' products against dense ones in sixteen bits.
    pub expert: f64,
    /// The same in eight bits and fewer.
    pub expert_low: f64,
    /// Seconds to launch a dense layer's forward pass.
    pub launch: f64,
    /// Seconds to launch the forward pass of a layer with experts.
    pub expert_launch: f64,
    /// Exposed share of TP exchange inside a domain and through network cards.
    pub tensor_exposed: [f64; 2],
    /// Exposed share of EP exchange inside a domain and through network cards.
    pub expert_exposed: [f64; 2],
    /// Exposed share of steady pipeline transfers.
    pub pipeline_exposed: f64,
    /// Exposed share of DP exchange that is hidden.
    pub data_exposed: f64,
    /// The same with fully sharded states.
    pub gather_exposed: f64,
    /// Growth with each doubling of nodes.
    pub jitter: f64,
    /// Seconds of a step beside all else.
    pub step_seconds: f64,
}

/// The constants of `framework` on `chip`.
#[must_use]
pub const fn compose(chip: &Chip, framework: &Framework) -> Calibration {
    let low = framework.gemm * framework.low;
    Calibration {
        name: Name { chip: chip.name, software: framework.name },
        software: framework.software,
        gemm_efficiency: chip.gemm[0] * framework.gemm,
        gemm_efficiency_fp8: chip.gemm[1] * low,
        gemm_efficiency_mxfp8: chip.gemm[2] * low,
        gemm_efficiency_fp4: chip.gemm[3] * low,
        gemm_lost_flops: chip.lost_flops,
        expert_efficiency: framework.expert,
        expert_efficiency_fp8: framework.expert_low,
        attention_efficiency: chip.attention * framework.attention,
        memory_efficiency: chip.memory * framework.memory,
        launch_seconds: framework.launch,
        expert_launch_seconds: framework.expert_launch,
        tensor_exposed: framework.tensor_exposed[0],
        tensor_exposed_across: framework.tensor_exposed[1],
        expert_exposed: framework.expert_exposed[0],
        expert_exposed_across: framework.expert_exposed[1],
        pipeline_exposed: framework.pipeline_exposed,
        data_exposed: framework.data_exposed,
        gather_exposed: framework.gather_exposed,
        jitter_per_doubling: framework.jitter,
        step_seconds: framework.step_seconds,
        network: chip.network,
    }
}

impl Chip {
    /// This chip as one called `name` whose best matrix products were measured at `best` of its peaks in sixteen and
    /// eight bits, when this one's were measured at `own`: the shares of peak scale alike.
    #[must_use]
    pub fn adapted(&self, own: [f64; 2], best: [f64; 2]) -> Self {
        let [bf16, low] = [best[0] / own[0], best[1] / own[1]];
        let [a, b, c, d] = self.gemm;
        Self { gemm: [a * bf16, b * low, c * low, d * low], ..*self }
    }
}
