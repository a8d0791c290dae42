// SPDX-License-Identifier: Apache-2.0
//! Converts a run back to command-line arguments.

use super::MeasuredRun;
use crate::calibration::{ContextExchange, ZeroStage};
use crate::cards;

impl MeasuredRun {
    pub fn words(&self, model_file: &str, accelerator_file: &str) -> Vec<String> {
        let request = &self.request;
        let is_shipped =
            cards::model(&request.model.name).is_ok_and(|shipped| shipped == request.model);
        let model = if is_shipped { &request.model.name } else { model_file };
        let mut words: Vec<String> = Vec::new();
        let mut add = |flag: &str, value: String| words.extend([format!("--{flag}"), value]);
        add("model", model.to_owned());
        let is_shipped =
            cards::accelerator(&request.card.name).is_ok_and(|shipped| shipped == request.card);
        let card = if is_shipped { &request.card.name } else { accelerator_file };
        add("accelerator", card.to_owned());
        add("gpus", self.gpus.to_string());
        add("batch", request.batch.sequences.to_string());
        add("seq", request.batch.tokens.to_string());
        add("precision", request.precision.label().to_owned());
        if let Some(constants) = &request.constants {
            add("constants", constants.clone());
        }
        let limits = &request.limits;
        for (flag, degrees) in [
            ("tp", &limits.tensor),
            ("cp", &limits.context),
            ("pp", &limits.pipeline),
            ("ep", &limits.expert),
            ("micro-batch", &limits.micro_batch),
            ("virtual-stages", &limits.virtual_stages),
        ] {
            if !degrees.is_empty() {
                add(flag, list(degrees.iter().map(ToString::to_string)));
            }
        }
        if !limits.recompute.is_empty() {
            add("recompute", list(limits.recompute.iter().map(|what| what.label().to_owned())));
        }
        if let Some(sharding) = request.changes.sharding {
            add("zero", stage(sharding).to_owned());
        }
        if let Some(features) = request.changes.features {
            add("features", features.to_string().replace(' ', ""));
        }
        if let Some(exchange) = request.changes.context_exchange {
            add("cp-exchange", how(exchange).to_owned());
        }
        words
    }
}

fn list(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(",")
}

fn stage(sharding: ZeroStage) -> &'static str {
    match sharding {
        ZeroStage::Replicated => "0",
        ZeroStage::Optimizer => "1",
        ZeroStage::Gradients => "2",
        ZeroStage::Everything => "3",
    }
}

fn how(exchange: ContextExchange) -> &'static str {
    match exchange {
        ContextExchange::Ring => "ring",
        ContextExchange::AllGather => "all-gather",
        ContextExchange::Ulysses => "ulysses",
    }
}
