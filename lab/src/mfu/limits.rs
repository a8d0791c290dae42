// SPDX-License-Identifier: Apache-2.0
//! Options of `lightloom mfu` for the mappings to try and the training software.

use lightloom::choice::{OptionValue, one_of};
use lightloom_training::calibration::{ContextExchange, ZeroStage};
use lightloom_training::features::Features;
use lightloom_training::mapping::Recompute;
use lightloom_training::request::Changes;
use lightloom_training::schedule::Schedule;
use lightloom_training::search::Limits;

/// Degrees to try. Without an option, all degrees that divide are tried.
#[derive(Debug, clap::Args)]
pub(crate) struct LimitArguments {
    /// Tensor-parallel degrees to try.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=1 << 20))]
    tp: Vec<u32>,
    /// Context-parallel degrees to try.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=1 << 20))]
    cp: Vec<u32>,
    /// Pipeline stages to try.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=1 << 20))]
    pp: Vec<u32>,
    /// Expert-parallel degrees to try.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=1 << 20))]
    ep: Vec<u32>,
    /// Micro-batches to try, in sequences.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=1 << 20))]
    micro_batch: Vec<u32>,
    /// Virtual stages to try.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=1 << 20))]
    virtual_stages: Vec<u32>,
    /// Kinds of recomputation to try.
    #[arg(long, value_delimiter = ',', value_name = "WHAT", value_parser = one_of(RECOMPUTED))]
    recompute: Vec<Recompute>,
    /// Schedules to try [default: 1f1b, or interleaved where --virtual-stages is above 1].
    #[arg(long, value_delimiter = ',', value_name = "ORDER", value_parser = one_of(SCHEDULES))]
    schedule: Vec<Schedule>,
    /// Training state sharded over replicas: 0 none, 1 the optimizer, 2 also the gradients, 3
    /// everything (FSDP) [default: from the constants, 1].
    #[arg(long, value_name = "STAGE", value_parser = lightloom::number::whole::<u8>(0..=3))]
    zero: Option<u8>,
    /// How context parallelism exchanges keys and values [default: from the constants, ring].
    #[arg(long, value_name = "HOW", value_parser = one_of(EXCHANGES))]
    cp_exchange: Option<ContextExchange>,
    /// Shard tokens over TP outside the matrix products, with all-gather and reduce-scatter instead
    /// of all-reduce [default: from the constants, yes].
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no)]
    sequence_parallel: Option<bool>,
    /// Software features to use instead of the software's default: `none`, or some of graphs,
    /// grouped-experts, fused-experts, deep-ep, hybrid-ep, token-drop, overlapped-dispatch,
    /// dual-pipe, node-limited; or a file with Megatron's arguments (command line or YAML).
    #[arg(long, value_name = "WORD,…|FILE", value_parser = features)]
    features: Option<Features>,
}

fn features(text: &str) -> Result<Features, String> {
    match std::fs::read_to_string(text) {
        Ok(arguments) => {
            Features::from_arguments(&arguments).map_err(|error| format!("{text}: {error}"))
        }
        Err(_) => text.parse::<Features>().map_err(|error| error.to_string()),
    }
}

const RECOMPUTED: &[OptionValue<Recompute>] = &[
    (Recompute::None, "none", "Nothing"),
    (Recompute::Selective, "selective", "The attention core"),
    (Recompute::Full, "full", "Whole layers"),
];

const SCHEDULES: &[OptionValue<Schedule>] = &[
    (
        Schedule::OneForwardOneBackward,
        "1f1b",
        "One forward, one backward; interleaved if a stage has several virtual stages",
    ),
    (Schedule::ZeroBubble, "zero-bubble", "Weight gradients fill the bubble (ZB-H1)"),
];

const EXCHANGES: &[OptionValue<ContextExchange>] = &[
    (ContextExchange::Ring, "ring", "Block by block, overlapping with the attention core"),
    (ContextExchange::AllGather, "all-gather", "All at once before the attention core"),
    (
        ContextExchange::Ulysses,
        "ulysses",
        "All-to-all: each rank gets whole sequences of a few heads",
    ),
];

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("expected `yes` or `no`".to_owned()),
    }
}

impl LimitArguments {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            tensor: self.tp.clone(),
            context: self.cp.clone(),
            pipeline: self.pp.clone(),
            expert: self.ep.clone(),
            micro_batch: self.micro_batch.clone(),
            virtual_stages: self.virtual_stages.clone(),
            recompute: self.recompute.clone(),
            schedule: self.schedule.clone(),
        }
    }

    pub(crate) fn changes(&self) -> Changes {
        Changes {
            sharding: self.zero.map(|stage| match stage {
                0 => ZeroStage::Replicated,
                1 => ZeroStage::Optimizer,
                2 => ZeroStage::Gradients,
                _ => ZeroStage::Everything,
            }),
            context_exchange: self.cp_exchange,
            sequence_parallel: self.sequence_parallel,
            features: self.features,
        }
    }
}
