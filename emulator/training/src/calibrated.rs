//! The constants in use, one set per accelerator and software generation. Fitted by
//! `cargo run --release -p lightloom-training --example fit_training`; docs/mfu.md says on what.

use super::calibration::{Calibration, ContextExchange, Sharding, Software};
use super::network::Efficiency;

/// A100 with Megatron-DeepSpeed: no sequence parallelism, no fused attention, nothing overlapped.
pub const A100_MEGATRON_DEEPSPEED: Calibration = Calibration {
    name: "a100/megatron-deepspeed",
    software: Software {
        sequence_parallel: false,
        flash_attention: false,
        balanced_ends: false,
        split_transfers: false,
        data_overlap: false,
        sharding: Sharding::Replicated,
        context_exchange: ContextExchange::Ring,
        gradient_bytes: 2.0,
    },
    gemm_efficiency: 0.87,
    gemm_efficiency_fp8: 0.75,
    gemm_lost_flops: 1.0e10,
    expert_efficiency: 0.8,
    expert_efficiency_fp8: 0.8,
    attention_efficiency: 0.5,
    memory_efficiency: 0.757,
    launch_seconds: 2e-3,
    tensor_exposed: 0.845,
    expert_exposed: 1.0,
    pipeline_exposed: 0.159,
    data_exposed: 1.0,
    jitter_per_doubling: 0.00125,
    step_seconds: 0.300,
    network: Efficiency {
        domain: 0.77,
        scale_out: 0.736,
        domain_step_seconds: 5e-6,
        scale_out_step_seconds: 20e-6,
    },
};

/// A100 with Megatron-LM of 2022: sequence parallelism and selective recomputation.
pub const A100_MEGATRON_LM_2022: Calibration = Calibration {
    name: "a100/megatron-lm-2022",
    software: Software {
        sequence_parallel: true,
        split_transfers: true,
        ..A100_MEGATRON_DEEPSPEED.software
    },
    gemm_efficiency: 0.847,
    memory_efficiency: 0.754,
    tensor_exposed: 1.0,
    step_seconds: 0.095,
    launch_seconds: 0.0,
    jitter_per_doubling: 0.0,
    ..A100_MEGATRON_DEEPSPEED
};

/// H100 with NeMo 25.02, as in NVIDIA's DGX Cloud recipes.
pub const H100_NEMO_25_02: Calibration = Calibration {
    name: "h100/nemo-25.02",
    software: Software {
        sequence_parallel: true,
        flash_attention: true,
        balanced_ends: false,
        split_transfers: true,
        data_overlap: true,
        sharding: Sharding::Optimizer,
        context_exchange: ContextExchange::Ring,
        gradient_bytes: 2.0,
    },
    gemm_efficiency: 0.753,
    gemm_efficiency_fp8: 0.71,
    gemm_lost_flops: 1.71e9,
    expert_efficiency: 0.738,
    expert_efficiency_fp8: 0.540,
    attention_efficiency: 0.534,
    memory_efficiency: 0.670,
    launch_seconds: 0.0,
    tensor_exposed: 0.181,
    expert_exposed: 0.210,
    pipeline_exposed: 0.097,
    data_exposed: 0.127,
    jitter_per_doubling: 0.00542,
    step_seconds: 0.033,
    network: Efficiency {
        domain: 0.82,
        scale_out: 0.85,
        domain_step_seconds: 3e-6,
        scale_out_step_seconds: 15e-6,
    },
};

/// H100 over RoCE with the software of the Llama 3 paper.
pub const H100_LLAMA_3: Calibration = Calibration {
    name: "h100/llama-3",
    software: Software {
        balanced_ends: true,
        sharding: Sharding::Gradients,
        context_exchange: ContextExchange::AllGather,
        ..H100_NEMO_25_02.software
    },
    gemm_efficiency: 0.620,
    tensor_exposed: 1.0,
    jitter_per_doubling: 0.00044,
    ..H100_NEMO_25_02
};
