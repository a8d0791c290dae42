// SPDX-License-Identifier: Apache-2.0
//! Starting values of the fit, from data sheets, benchmarks of single operations and earlier fits.

use lightloom_training::calibrated::{Chip, Framework};
use lightloom_training::calibration::{ContextExchange, Software, ZeroStage};
use lightloom_training::features::Features;

pub(crate) const CHIPS: &[Chip] =
    &[A100, H100, H100_96GB, B200, B300, GB200, GB300, TPU_V4, TPU_V5E, TPU_V5P, TPU_V6E];

const H100_96GB: Chip = Chip { name: "h100-96gb", gemm: [0.65, 0.55, 0.55, 0.5], ..H100 };
const B200: Chip = Chip { name: "b200", gemm: [0.70, 0.60, 0.60, 0.45], ..H100 };
const B300: Chip = Chip { name: "b300", ..B200 };
const GB200: Chip = Chip { name: "gb200", host: 0.65, ..B200 };
const GB300: Chip = Chip { name: "gb300", host: 0.65, ..B200 };
const TPU_V4: Chip = Chip { name: "tpuv4", gemm: [0.75; 4], ..H100 };
const TPU_V5E: Chip = Chip { name: "tpuv5e", ..TPU_V4 };
const TPU_V5P: Chip = Chip { name: "tpuv5p", ..TPU_V4 };
const TPU_V6E: Chip = Chip { name: "tpuv6e", ..TPU_V4 };

const A100: Chip = Chip {
    name: "a100",
    fitted: "",
    gemm: [0.87, 0.75, 0.75, 0.75],
    lost_flops: 1.0e10,
    attention: 0.5,
    memory: 0.757,
    host: 1.0,
};

const H100: Chip = Chip {
    name: "h100",
    fitted: "",
    gemm: [0.753, 0.71, 0.71, 0.71],
    lost_flops: 1.71e9,
    attention: 0.534,
    memory: 0.670,
    host: 1.0,
};

pub(crate) const FRAMEWORKS: &[Framework] = &[
    NEMO_25_02,
    LLAMA_3,
    MEGATRON_DEEPSPEED,
    MEGATRON_LM_2022,
    MEGATRON_LM_2021,
    LLM_FOUNDRY,
    TORCHTITAN,
    NANOTRON,
    MAXTEXT,
    HAI_LLM,
    MEGATRON_BRIDGE_25_09,
    MEGATRON_BRIDGE_25_11,
    MEGATRON_BRIDGE_26_02,
    MEGATRON_BRIDGE_26_02_01,
    MEGATRON_BRIDGE_26_04_01,
    MEGATRON_BRIDGE_26_06,
];

const NEMO_25_02: Framework = Framework {
    name: "nemo-25.02",
    origin: "NVIDIA DGX Cloud recipes v25.03 on H100",
    fitted: "",
    software: Software {
        sequence_parallel: true,
        flash_attention: true,
        balanced_ends: false,
        split_transfers: true,
        data_overlap: true,
        sharding: ZeroStage::Optimizer,
        context_exchange: ContextExchange::Ring,
        gradient_bytes: 2.0,
        layer_buckets: true,
        folded_experts: false,
        dispatch_bytes: 2.0,
        features: Features::NONE,
    },
    gemm: 1.0,
    low: 1.0,
    attention: 1.0,
    memory: 1.0,
    expert: 0.738,
    expert_low: 0.540,
    launch: 1e-4,
    expert_launch: [1e-3; 3],
    tensor_exposed: [0.181, 1.0],
    expert_exposed: [0.210, 0.210],
    pipeline_exposed: 0.097,
    data_exposed: 0.127,
    gather_exposed: 0.127,
    jitter: 0.00542,
    step_seconds: 0.033,
};

const LLAMA_3: Framework = Framework {
    name: "llama-3",
    origin: "the Llama 3 paper (arXiv 2407.21783), table 4, on H100",
    software: Software {
        balanced_ends: true,
        sharding: ZeroStage::Gradients,
        context_exchange: ContextExchange::AllGather,
        ..NEMO_25_02.software
    },
    gemm: 0.8234,
    low: 0.8234,
    tensor_exposed: [1.0, 1.0],
    jitter: 0.00044,
    ..NEMO_25_02
};

const MEGATRON_DEEPSPEED: Framework = Framework {
    name: "megatron-deepspeed",
    origin: "the vTrain repository's iterations on A100",
    fitted: "",
    software: Software {
        sequence_parallel: false,
        flash_attention: false,
        split_transfers: false,
        data_overlap: false,
        sharding: ZeroStage::Replicated,
        ..NEMO_25_02.software
    },
    gemm: 1.0,
    low: 1.0,
    attention: 1.0,
    memory: 1.0,
    expert: 0.8,
    expert_low: 0.8,
    launch: 2e-3,
    expert_launch: [2e-3; 3],
    tensor_exposed: [0.845, 1.0],
    expert_exposed: [1.0, 1.0],
    pipeline_exposed: 0.159,
    data_exposed: 1.0,
    gather_exposed: 1.0,
    jitter: 0.00125,
    step_seconds: 0.300,
};

const MEGATRON_LM_2022: Framework = Framework {
    name: "megatron-lm-2022",
    origin: "Korthikanti et al. 2022 (arXiv 2205.05198), table 5, on A100",
    software: Software {
        sequence_parallel: true,
        split_transfers: true,
        ..MEGATRON_DEEPSPEED.software
    },
    gemm: 0.9736,
    memory: 0.996,
    launch: 1e-4,
    expert_launch: [1e-3; 3],
    tensor_exposed: [1.0, 1.0],
    jitter: 1e-4,
    step_seconds: 0.095,
    ..MEGATRON_DEEPSPEED
};

const MEGATRON_LM_2021: Framework = Framework {
    name: "megatron-lm-2021",
    origin: "Narayanan et al. 2021 (arXiv 2104.04473), table 1, on A100",
    ..MEGATRON_DEEPSPEED
};

const LLM_FOUNDRY: Framework = Framework {
    name: "llm-foundry",
    origin: "MosaicML llm-foundry's benchmark tables, on A100 and H100",
    software: Software { sharding: ZeroStage::Everything, ..NEMO_25_02.software },
    ..NEMO_25_02
};

const TORCHTITAN: Framework = Framework {
    name: "torchtitan",
    origin: "torchtitan's benchmark pages, on H100 with 96 GB",
    software: Software { sharding: ZeroStage::Everything, ..NEMO_25_02.software },
    ..NEMO_25_02
};

const NANOTRON: Framework = Framework {
    name: "nanotron",
    origin: "nanotron's benchmark summary, on H100",
    software: Software { data_overlap: false, gradient_bytes: 4.0, ..NEMO_25_02.software },
    ..NEMO_25_02
};

const MAXTEXT: Framework = Framework {
    name: "maxtext",
    origin: "MaxText's performance tables, on TPU",
    software: Software { sharding: ZeroStage::Everything, ..NEMO_25_02.software },
    ..NEMO_25_02
};

const HAI_LLM: Framework = Framework {
    name: "hai-llm",
    origin: "DeepSeek-V3's own framework (arXiv 2505.09343), on H800",
    software: Software {
        sharding: ZeroStage::Optimizer,
        folded_experts: true,
        dispatch_bytes: 1.0,
        ..NEMO_25_02.software
    },
    ..NEMO_25_02
};

const MEGATRON_BRIDGE_26_02_01: Framework = Framework {
    name: "megatron-bridge-26.02.01",
    origin: "NVIDIA Megatron-Bridge's performance summary, container 26.02.01",
    software: Software { folded_experts: true, ..NEMO_25_02.software },
    expert_launch: [2.5e-3; 3],
    expert_exposed: [0.3, 0.8],
    ..NEMO_25_02
};

const MEGATRON_BRIDGE_26_06: Framework = Framework {
    name: "megatron-bridge-26.06",
    origin: "earlier containers of NVIDIA Megatron-Bridge",
    ..MEGATRON_BRIDGE_26_02_01
};

const MEGATRON_BRIDGE_26_04_01: Framework =
    Framework { name: "megatron-bridge-26.04.01", ..MEGATRON_BRIDGE_26_06 };

const MEGATRON_BRIDGE_26_02: Framework = Framework {
    name: "megatron-bridge-26.02",
    origin: "NVIDIA Megatron-Bridge's performance summary, container 26.02",
    ..MEGATRON_BRIDGE_26_02_01
};

const MEGATRON_BRIDGE_25_11: Framework = Framework {
    name: "megatron-bridge-25.11",
    origin: "NVIDIA Megatron-Bridge's performance summary, container 25.11",
    ..MEGATRON_BRIDGE_26_02_01
};

const MEGATRON_BRIDGE_25_09: Framework = Framework {
    name: "megatron-bridge-25.09",
    origin: "NVIDIA Megatron-Bridge's performance summary, container 25.09",
    ..MEGATRON_BRIDGE_26_02_01
};
