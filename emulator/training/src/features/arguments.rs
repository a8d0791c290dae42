// SPDX-License-Identifier: Apache-2.0
//! Features that arguments of Megatron-LM select, as on a command line or as keys of a configuration file.
//!
//! Source: `transformer_config.py` of Megatron-Core. Partial CUDA graphs of expert layers are not modelled and count as
//! none.

use std::collections::{BTreeMap, BTreeSet};

use super::{Feature, Features};

const ARGUMENTS: [&str; 8] = [
    "cuda_graph_impl",
    "moe_grouped_gemm",
    "use_transformer_engine_op_fuser",
    "moe_token_dispatcher_type",
    "moe_flex_dispatcher_backend",
    "moe_enable_deepep",
    "moe_expert_capacity_factor",
    "overlap_moe_expert_parallel_comm",
];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no argument selects features: use Megatron's {}", ARGUMENTS.join(", "))]
pub struct NoArguments;

impl Features {
    /// Reads `--key value`, `key: value` and `key=value`; the last of several values counts, and other keys are ignored.
    pub fn from_arguments(text: &str) -> Result<Self, NoArguments> {
        let text = text.replace("--", "\n");
        let found: BTreeMap<String, String> = text.lines().map(argument).collect();
        if !ARGUMENTS.iter().any(|key| found.contains_key(*key)) {
            return Err(NoArguments);
        }
        let [scope, dispatcher, backend] =
            ["cuda_graph_scope", "moe_token_dispatcher_type", "moe_flex_dispatcher_backend"]
                .map(|key| found.get(key).map_or("", String::as_str));
        let set: BTreeSet<&str> = found
            .iter()
            .filter(|(_, value)| !["", "false", "none", "null"].contains(&value.as_str()))
            .map(|(key, _)| key.as_str())
            .collect();
        let (is_partial, is_flex) = (scope.contains("moe"), dispatcher == "flex");
        let deep_ep = is_flex && ["", "deepep"].contains(&backend);
        let selected = [
            (Feature::Graphs, set.contains("cuda_graph_impl") && !is_partial),
            (Feature::GroupedExperts, set.contains("moe_grouped_gemm")),
            (Feature::FusedExperts, set.contains("use_transformer_engine_op_fuser")),
            (Feature::HybridEp, is_flex && backend == "hybridep"),
            (Feature::DeepEp, deep_ep || set.contains("moe_enable_deepep")),
            (Feature::TokenDrop, set.contains("moe_expert_capacity_factor")),
            (Feature::OverlappedDispatch, set.contains("overlap_moe_expert_parallel_comm")),
        ];
        let selected = selected.into_iter().filter(|(_, is_selected)| *is_selected);
        Ok(selected.fold(Self::NONE, |all, (feature, _)| all.with(feature)))
    }
}

fn argument(line: &str) -> (String, String) {
    let line = line.trim();
    let end = line.find([':', '=', ' ']).unwrap_or(line.len());
    let [key, value] = [&line[..end], &line[end..]].map(|text| {
        text.trim_matches(|one: char| one.is_whitespace() || "\"',:=\\".contains(one))
            .to_lowercase()
    });
    let key = key.rsplit('.').next().unwrap_or_default().replace('-', "_");
    // A flag without a value is on, but an empty key of a file is not.
    let is_flag = value.is_empty() && !line.contains(':');
    (key, if is_flag { "true".to_owned() } else { value })
}
