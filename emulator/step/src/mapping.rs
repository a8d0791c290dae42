// SPDX-License-Identifier: Apache-2.0
//! Parallel mappings of a training job onto GPUs, and their validation.

use lightloom_fabric::model::{Attention, Model};
use serde::{Deserialize, Serialize};

use super::schedule::Schedule;

/// Degrees of parallelism. The dimensions from innermost (neighbouring GPUs) to outermost are TP,
/// CP, DP and PP, with EP inside DP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Mapping {
    pub tensor: u32,
    pub context: u32,
    pub pipeline: u32,
    pub data: u32,
    /// GPUs that share the experts of a layer (EP); must divide DP·CP.
    pub expert: u32,
    pub micro_batch: u32,
    /// Model chunks per pipeline stage (interleaved schedule); 1 is plain 1F1B.
    pub virtual_stages: u32,
    pub recompute: Recompute,
    pub schedule: Schedule,
}

/// Activations that the backward pass recomputes instead of storing.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Recompute {
    /// Nothing.
    None,
    /// Recomputes attention scores, or norms and activations if the core is fused.
    Selective,
    /// Everything.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroStage {
    /// Every replica stores the full state (ZeRO-0).
    Replicated,
    /// Optimizer states are sharded (ZeRO-1, distributed optimizer).
    Optimizer,
    /// Optimizer states and gradients are sharded (ZeRO-2).
    Gradients,
    /// Everything is sharded (ZeRO-3, FSDP).
    Everything,
}

/// Exchange of keys and values between context-parallel ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContextExchange {
    /// Block by block around a ring, overlapped with computation on the previous block.
    Ring,
    AllGather,
    /// All-to-all of queries, keys and values, so that each rank has whole sequences of a few heads.
    #[serde(rename = "all-to-all")]
    Ulysses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Batch {
    pub sequences: u64,
    pub tokens: u64,
}

impl Batch {
    pub fn total_tokens(self) -> f64 {
        self.sequences as f64 * self.tokens as f64
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingRefusal {
    #[error("{what} is 0: every degree must be at least 1")]
    Zero { what: &'static str },
    #[error(
        "{whole} {of} cannot be divided by {what} {by} (remainder {remainder}): the nearest {what} that divides it is {nearest}"
    )]
    Division {
        of: &'static str,
        whole: u64,
        what: &'static str,
        by: u64,
        remainder: u64,
        nearest: u64,
    },
    #[error(
        "zero-bubble does not support interleaving with {virtual_stages} virtual stages: use 1"
    )]
    Interleaved { virtual_stages: u32 },
    #[error(
        "needs {:.1} GB on the GPU with the highest memory use, {:.1} GB more than the {:.1} GB \
         that a job may fill",
        *needed_bytes as f64 / 1e9, *over_bytes as f64 / 1e9, *available_bytes as f64 / 1e9
    )]
    Memory { needed_bytes: u64, available_bytes: u64, over_bytes: u64 },
}

pub fn nearest_divisor(whole: u64, to: u64) -> u64 {
    (1..=whole.isqrt())
        .filter(|least| whole.is_multiple_of(*least))
        .flat_map(|least| [least, whole / least])
        .min_by_key(|divisor| (divisor.abs_diff(to), *divisor))
        .unwrap_or(1)
}

impl std::fmt::Display for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "TP {} CP {} PP {} DP {} EP {}, micro-batch {}, {} virtual stages, recompute {}, {}",
            self.tensor,
            self.context,
            self.pipeline,
            self.data,
            self.expert,
            self.micro_batch,
            self.virtual_stages,
            self.recompute,
            self.schedule.label(),
        )
    }
}

lightloom_units::display_as_serialized!(Recompute);

impl Mapping {
    pub const ONE_GPU: Self = Self {
        tensor: 1,
        context: 1,
        pipeline: 1,
        data: 1,
        expert: 1,
        micro_batch: 1,
        virtual_stages: 1,
        recompute: Recompute::None,
        schedule: Schedule::OneForwardOneBackward,
    };

    pub fn gpus(&self) -> u64 {
        [self.tensor, self.context, self.pipeline, self.data].map(u64::from).iter().product()
    }

    pub fn is_zero_bubble(&self) -> bool {
        self.schedule == Schedule::ZeroBubble
    }

    pub fn micro_batches(&self, batch: Batch) -> u64 {
        batch.sequences / (u64::from(self.data) * u64::from(self.micro_batch))
    }

    /// Returns all reasons other than memory why the mapping does not fit `model`. `context_exchange` is the CP method.
    pub fn refusals(
        &self,
        model: &Model,
        batch: Batch,
        context_exchange: ContextExchange,
    ) -> Vec<MappingRefusal> {
        let mut refusals: Vec<MappingRefusal> = [
            ("TP", self.tensor),
            ("CP", self.context),
            ("PP", self.pipeline),
            ("DP", self.data),
            ("EP", self.expert),
            ("micro-batch", self.micro_batch),
            ("virtual stages", self.virtual_stages),
        ]
        .into_iter()
        .filter(|(_, degree)| *degree == 0)
        .map(|(what, _)| MappingRefusal::Zero { what })
        .collect();
        if !refusals.is_empty() {
            return refusals;
        }
        let (tensor, data) = (u64::from(self.tensor), u64::from(self.data));
        let pieces = u64::from(self.pipeline) * u64::from(self.virtual_stages);
        let heads = u64::from(model.attention.heads());
        let mut divisions = vec![("attention heads", heads, "TP", tensor)];
        if context_exchange == ContextExchange::Ulysses && self.context > 1 {
            // With Ulysses, each CP rank has whole sequences of its share of the heads.
            divisions.push(("attention heads", heads, "TP×CP", tensor * u64::from(self.context)));
        }
        if let Attention::Grouped { key_value_heads, .. } = model.attention
            && u64::from(key_value_heads) > tensor
        {
            divisions.push(("key-value heads", key_value_heads.into(), "TP", tensor));
        }
        let micro_batches = data * u64::from(self.micro_batch);
        divisions.extend([
            ("feed-forward width", model.feed_forward.width.into(), "TP", tensor),
            ("tokens of a sequence", batch.tokens, "CP×TP", u64::from(self.context) * tensor),
            ("sequences of a step", batch.sequences, "DP×micro-batch", micro_batches),
        ]);
        if let Some(experts) = &model.feed_forward.experts {
            divisions.push(("experts", experts.count.into(), "EP", self.expert.into()));
        }
        // Experts not sharded by TP can be distributed over TP ranks.
        let ranks = data * u64::from(self.context);
        let (ranks, what) = if u64::from(self.expert) > ranks && tensor > 1 {
            (ranks * tensor, "TP×CP×DP")
        } else {
            (ranks, "DP×CP")
        };
        divisions.push((what, ranks, "EP", self.expert.into()));
        // Embedding and output layer can each count as a layer, and chunks can be uneven.
        let layers = u64::from(model.layers);
        if pieces > layers + 2 {
            divisions.push(("layers", layers, "PP×virtual stages", pieces));
        }
        for (of, whole, what, by) in divisions {
            if !whole.is_multiple_of(by) {
                let (remainder, nearest) = (whole % by, nearest_divisor(whole, by));
                refusals.push(MappingRefusal::Division { of, whole, what, by, remainder, nearest });
            }
        }
        if self.is_zero_bubble() && self.virtual_stages > 1 {
            refusals.push(MappingRefusal::Interleaved { virtual_stages: self.virtual_stages });
        }
        refusals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_suggests_the_nearest_divisor() {
        assert_eq!(nearest_divisor(96, 7), 6);
        assert_eq!(nearest_divisor(96, 100), 96);
        assert_eq!(nearest_divisor(126, 16), 14);
        assert_eq!(nearest_divisor(5, 3), 1);
        assert_eq!(nearest_divisor(0, 3), 1);
        assert_eq!(nearest_divisor(99_999_989, 7), 1);
    }
}
