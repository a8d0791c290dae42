// SPDX-License-Identifier: Apache-2.0
//! Converts a run back to command-line arguments.

use super::MeasuredRun;
use crate::calibration::{ContextExchange, ZeroStage};
use crate::cards;
use crate::request::Changes;

impl MeasuredRun {
    pub fn words(&self, model_file: &str, accelerator_file: &str) -> Vec<String> {
        let request = &self.request;
        let is_shipped =
            cards::model(&request.model.name).is_ok_and(|shipped| shipped == request.model);
        let model = if is_shipped { &request.model.name } else { model_file };
        let is_shipped =
            cards::accelerator(&request.card.name).is_ok_and(|shipped| shipped == request.card);
        let card = if is_shipped { &request.card.name } else { accelerator_file };
        let mut words = vec![
            ("model", model.to_owned()),
            ("accelerator", card.to_owned()),
            ("gpus", self.gpus.to_string()),
            ("batch", request.batch.sequences.to_string()),
            ("seq", request.batch.tokens.to_string()),
            ("precision", request.precision.label().to_owned()),
        ];
        words.extend(request.constants.clone().map(|constants| ("constants", constants)));
        let limits = &request.limits;
        for (flag, degrees) in [
            ("tp", &limits.tensor),
            ("cp", &limits.context),
            ("pp", &limits.pipeline),
            ("ep", &limits.expert),
            ("micro-batch", &limits.micro_batch),
            ("virtual-stages", &limits.virtual_stages),
        ] {
            words.push((flag, list(degrees.iter().map(ToString::to_string))));
        }
        words
            .push(("recompute", list(limits.recompute.iter().map(|what| what.label().to_owned()))));
        words.retain(|(_, value)| !value.is_empty());
        let Changes { sharding, features, context_exchange, .. } = &request.changes;
        words.extend(sharding.map(|sharding| ("zero", stage(sharding).to_owned())));
        words.extend(features.map(|all| ("features", all.to_string().replace(' ', ""))));
        words.extend(context_exchange.map(|exchange| ("cp-exchange", how(exchange).to_owned())));
        words.into_iter().flat_map(|(flag, value)| [format!("--{flag}"), value]).collect()
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
