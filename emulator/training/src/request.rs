// SPDX-License-Identifier: Apache-2.0
//! Requests and results of `lightloom mfu`, also used for validation against published runs.

use std::collections::BTreeMap;

use serde::Serialize;

use lightloom_fabric::provenance::{Inputs, Provenance};

use super::bands::{self, Class, Interval, Predicted};
use super::calibrated::compose;
use super::calibration::{Calibration, ContextExchange, Precision, Software, ZeroStage};
use super::cards::{Accelerator, UnknownConstants};
use super::features::{self, Feature, Features, Recipe};
use super::fit;
use super::mapping::{Batch, Recompute};
use super::mfu::Convention;
use super::model::Model;
use super::network::Network;
use super::schedule::Schedule;
use super::search::{Found, Limits, RECOMPUTE, Search};
use super::step::{Compute, StepOperator};

pub const SCHEMA: &str = "lightloom.mfu/v1";

pub const MOST: u64 = 100_000_000;
const MOST_DEGREE: u32 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Request {
    pub model: Model,
    pub card: Accelerator,
    pub batch: Batch,
    pub precision: Precision,
    /// Additional tokens of the most heavily loaded expert rank, relative to an equal share; 0.2 means 20 %.
    pub expert_imbalance: f64,
    pub convention: Convention,
    pub limits: Limits,
    /// `None` for the software most used with the card.
    pub constants: Option<String>,
    pub refitted: BTreeMap<String, f64>,
    pub changes: Changes,
}

/// Deviations from the behaviour of the calibrated software; `None` means no deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Changes {
    pub sharding: Option<ZeroStage>,
    pub context_exchange: Option<ContextExchange>,
    pub sequence_parallel: Option<bool>,
    pub features: Option<Features>,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    #[error("{card} has no peak for {precision}: omit --precision")]
    NoFormat { card: String, precision: Precision },
    #[error("--batch {sequences}, --seq {tokens}: use 1 to {MOST} for each")]
    Batch { sequences: u64, tokens: u64 },
    #[error("--{flag} {degree}: use at most {MOST_DEGREE}")]
    Degree { flag: &'static str, degree: u32 },
    #[error("--imbalance must be a share of at least 0, such as 0.2")]
    Imbalance,
    #[error("--{option}: {model} has no experts; omit it")]
    NoExperts { option: String, model: String },
    #[error("--features dual-pipe and zero-bubble are alternative schedules: omit one of them")]
    TwoOrders,
    #[error("--features dual-pipe: --pp {stages} is odd; use an even number of stages")]
    OddStages { stages: u32 },
    #[error("unknown constant `{name}`: use the file of `lightloom calibrate` unchanged")]
    NoConstant { name: String },
    #[error(transparent)]
    Constants(#[from] UnknownConstants),
}

#[derive(Clone, Debug)]
pub struct Prepared {
    request: Request,
    compute: Compute,
    calibration: Calibration,
    recipe: Option<&'static Recipe>,
}

impl Request {
    pub fn prepare(mut self) -> Result<Prepared, RequestError> {
        if self.card.peak_flops(self.precision).is_none() {
            let (card, precision) = (self.card.name.clone(), self.precision);
            return Err(RequestError::NoFormat { card, precision });
        }
        let Batch { sequences, tokens } = self.batch;
        if [sequences, tokens].iter().any(|number| !(1..=MOST).contains(number)) {
            return Err(RequestError::Batch { sequences, tokens });
        }
        self.limits.check()?;
        self.check_effects()?;
        if !(0.0..=100.0).contains(&self.expert_imbalance) {
            return Err(RequestError::Imbalance);
        }
        let usual = self.card.usual_software(self.changes.sharding);
        let (chip, framework) =
            self.card.constants(Some(self.constants.as_deref().unwrap_or(usual)))?;
        let (mut chip, mut framework) = (chip, framework);
        for (name, value) in &self.refitted {
            if !fit::set(&mut chip, &mut framework, name, *value) {
                return Err(RequestError::NoConstant { name: name.clone() });
            }
        }
        let mut calibration = compose(&chip, &framework);
        let software = &mut calibration.software;
        software.sharding = self.changes.sharding.unwrap_or(software.sharding);
        software.context_exchange =
            self.changes.context_exchange.unwrap_or(software.context_exchange);
        software.sequence_parallel =
            self.changes.sequence_parallel.unwrap_or(software.sequence_parallel);
        let recipe = features::recipe(framework.name, chip.name, &self.model, self.precision);
        let recipe = recipe.filter(|_| self.changes.features.is_none());
        software.features =
            self.changes.features.or(recipe.map(|recipe| recipe.features)).unwrap_or_default();
        if let Some(recompute) = recipe.and_then(|recipe| recipe.recompute)
            && self.limits.recompute.is_empty()
        {
            self.limits.recompute = at_least(recompute);
        }
        Ok(Prepared { compute: self.card.compute(), calibration, recipe, request: self })
    }

    fn check_effects(&self) -> Result<(), RequestError> {
        let features = self.changes.features.unwrap_or_default();
        if self.model.feed_forward.experts.is_none() {
            let degree = self.limits.expert.iter().find(|degree| **degree > 1);
            let imbalance = Some(self.expert_imbalance).filter(|share| *share > 0.0);
            let option = (degree.map(|degree| format!("ep {degree}")))
                .or(imbalance.map(|share| format!("imbalance {share}")))
                .or(features.of_experts().map(|word| format!("features {word}")));
            if let Some(option) = option {
                return Err(RequestError::NoExperts { option, model: self.model.name.clone() });
            }
        }
        if features.has(Feature::DualPipe) {
            if self.limits.schedule.contains(&Schedule::ZeroBubble) {
                return Err(RequestError::TwoOrders);
            }
            if let Some(&stages) =
                self.limits.pipeline.iter().find(|stages| !stages.is_multiple_of(2))
            {
                return Err(RequestError::OddStages { stages });
            }
        }
        Ok(())
    }
}

/// Returns `recompute`, and more for insufficient memory.
pub(crate) fn at_least(recompute: Recompute) -> Vec<Recompute> {
    RECOMPUTE.into_iter().filter(|more| *more >= recompute).collect()
}

impl Limits {
    /// Larger degrees would overflow when multiplied.
    fn check(&self) -> Result<(), RequestError> {
        for (flag, degrees) in [
            ("tp", &self.tensor),
            ("cp", &self.context),
            ("pp", &self.pipeline),
            ("ep", &self.expert),
            ("micro-batch", &self.micro_batch),
            ("virtual-stages", &self.virtual_stages),
        ] {
            if let Some(&degree) = degrees.iter().find(|degree| **degree > MOST_DEGREE) {
                return Err(RequestError::Degree { flag, degree });
            }
        }
        Ok(())
    }
}

impl Prepared {
    pub fn request(&self) -> &Request {
        &self.request
    }

    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    pub fn with_calibration(mut self, calibration: Calibration) -> Self {
        let software = self.calibration.software;
        self.calibration = Calibration { software, ..calibration };
        self
    }

    pub fn search<'s>(&'s self, gpus: u64, network: &'s Network) -> Search<'s> {
        let request = &self.request;
        Search {
            model: &request.model,
            batch: request.batch,
            gpus,
            compute: &self.compute,
            network,
            calibration: &self.calibration,
            precision: request.precision,
            expert_imbalance: request.expert_imbalance,
            limits: request.limits.clone(),
        }
    }

    pub fn row<P>(&self, search: &Search<'_>, found: &Found) -> Row<P> {
        let (mapping, step, request) = (&found.mapping, &found.step, &self.request);
        let peak = request.card.peak_flops(request.precision).unwrap_or(self.compute.peak_flops);
        Row {
            arch: search.network.name.clone(),
            gpus: search.gpus,
            tp: mapping.tensor,
            pp: mapping.pipeline,
            dp: mapping.data,
            cp: mapping.context,
            ep: mapping.expert,
            micro_batch: mapping.micro_batch,
            virtual_stages: mapping.virtual_stages,
            recompute: mapping.recompute,
            schedule: mapping.schedule.label(),
            step_seconds: step.step_seconds,
            expected: self.expected(search, found),
            mfu: request.convention.utilisation(
                &request.model,
                request.batch,
                self.counted_again(mapping.recompute),
                search.gpus,
                peak,
                step.step_seconds,
            ),
            mfu_convention: request.convention.label(),
            memory_bytes: found.memory.total_bytes() as u64,
            compute_seconds: step.compute_seconds,
            tp_exposed_seconds: step.tensor_seconds,
            cp_exposed_seconds: step.context_seconds,
            ep_exposed_seconds: step.expert_seconds,
            dp_exposed_seconds: step.data_seconds,
            pp_bubble_seconds: step.bubble_seconds,
            pp_transfer_seconds: step.transfer_seconds,
            optimizer_seconds: step.optimizer_seconds,
            jitter_seconds: step.jitter_seconds,
            packets: None,
        }
    }

    /// With a fused core, selective recomputation repeats only norms and activation, which are not counted.
    fn counted_again(&self, recompute: Recompute) -> Recompute {
        let is_fused = self.calibration.software.flash_attention;
        if is_fused && recompute == Recompute::Selective { Recompute::None } else { recompute }
    }

    /// Returns the interval of a step. No run resembles steps in domains other than the card's own, and those with
    /// modified cards, refitted constants or hybrid models.
    fn expected(&self, search: &Search<'_>, found: &Found) -> Option<Interval> {
        let (name, request, network) = (self.calibration.name, &self.request, search.network);
        let own = request.card.network();
        let is_validated = (name.chip == request.card.name
            || request.card.name.starts_with("a100"))
            && request.card.is_shipped()
            && request.refitted.is_empty()
            && request.model.state_space.is_none()
            && found.mapping.tensor <= network.domain_gpus
            && (own.shape, own.domain_gpus) == (network.shape, network.domain_gpus)
            && own.domain_rate <= 1.01 * network.domain_rate
            && network.domain_rate <= 1.01 * own.domain_rate;
        let is_mixture = request.model.feed_forward.experts.is_some();
        let predicted = Predicted::of(&found.step, search.gpus);
        let class = Class { chip: name.chip, software: name.software, is_mixture };
        bands::interval(class, is_validated, predicted)
    }

    pub fn report<P>(
        &self,
        rows: Vec<Row<P>>,
        mappings_tried: usize,
        inputs: Inputs,
    ) -> MfuReport<P> {
        let request = &self.request;
        MfuReport {
            made: Provenance::of(SCHEMA, inputs),
            model: request.model.name.clone(),
            accelerator: request.card.name.clone(),
            precision: request.precision,
            constants: self.calibration.name.to_string(),
            constants_origin: self.calibration.name.origin(),
            constants_refitted: request.refitted.clone(),
            operators_measured: self.compute.operators.as_ref().map(|table| table.origin.clone()),
            constants_fitted_on_this_accelerator: self.calibration.name.chip == request.card.name
                && request.card.is_shipped(),
            software: self.calibration.software,
            features_from: self.recipe.map(|recipe| &*recipe.source),
            batch_sequences: request.batch.sequences,
            sequence_tokens: request.batch.tokens,
            mappings_tried,
            rows,
            operators: Vec::new(),
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Row<P> {
    pub arch: String,
    pub gpus: u64,
    pub tp: u32,
    pub pp: u32,
    pub dp: u32,
    pub cp: u32,
    pub ep: u32,
    pub micro_batch: u32,
    pub virtual_stages: u32,
    pub recompute: Recompute,
    pub schedule: &'static str,
    pub step_seconds: f64,
    pub expected: Option<Interval>,
    pub mfu: f64,
    pub mfu_convention: &'static str,
    pub memory_bytes: u64,
    pub compute_seconds: f64,
    pub tp_exposed_seconds: f64,
    pub cp_exposed_seconds: f64,
    pub ep_exposed_seconds: f64,
    pub dp_exposed_seconds: f64,
    pub pp_bubble_seconds: f64,
    pub pp_transfer_seconds: f64,
    pub optimizer_seconds: f64,
    pub jitter_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<P>,
}

#[derive(Debug, Serialize)]
pub struct MfuReport<P> {
    #[serde(flatten)]
    pub made: Provenance,
    pub model: String,
    pub accelerator: String,
    pub precision: Precision,
    pub constants: String,
    pub constants_origin: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub constants_refitted: BTreeMap<String, f64>,
    pub constants_fitted_on_this_accelerator: bool,
    /// Points that matrix products and attention cores are interpolated from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operators_measured: Option<String>,
    pub software: Software,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features_from: Option<&'static str>,
    pub batch_sequences: u64,
    pub sequence_tokens: u64,
    pub mappings_tried: usize,
    /// Rows for each number of GPUs, fastest first.
    pub rows: Vec<Row<P>>,
    /// Operators of the fastest row, slowest first, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operators: Vec<StepOperator>,
}
