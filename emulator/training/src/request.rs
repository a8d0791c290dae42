// SPDX-License-Identifier: Apache-2.0
//! What a user asks of `lightloom mfu`, and what is answered: the one way from a model, a card and a fabric to figures,
//! for the command line and for whoever judges it by published runs.

use std::collections::BTreeMap;

use serde::Serialize;

use lightloom_fabric::provenance::{Inputs, Provenance};

use super::calibrated::{BANDS, Band, compose};
use super::calibration::{Calibration, ContextExchange, Precision, Software, ZeroStage};
use super::cards::{Accelerator, UnknownConstants};
use super::features::{self, Feature, Features, Recipe};
use super::fit;
use super::goodput::Goodput;
use super::mapping::{Batch, Recompute};
use super::mfu::Convention;
use super::model::Model;
use super::network::Network;
use super::schedule::Schedule;
use super::search::{Found, Limits, RECOMPUTE, Search};
use super::step::Compute;

/// The version of the document.
pub const SCHEMA: &str = "lightloom.mfu/v1";

/// Sequences, tokens and GPUs that a job may have.
pub const MOST: u64 = 100_000_000;
/// A degree that may be asked for.
const MOST_DEGREE: u32 = 1 << 20;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is trained.
    pub model: Model,
    /// On what.
    pub card: Accelerator,
    /// The work of a step.
    pub batch: Batch,
    /// Number format of the linear layers.
    pub precision: Precision,
    /// How much more than its share the fullest expert rank gets.
    pub expert_imbalance: f64,
    /// What counts as useful work.
    pub convention: Convention,
    /// Which mappings are tried.
    pub limits: Limits,
    /// Whose constants; those of the software that the card is mostly used with, if `None`.
    pub constants: Option<String>,
    /// Constants that a refit on a user's runs changed, by name.
    pub refitted: BTreeMap<String, f64>,
    /// What the software does other than its constants say.
    pub changes: Changes,
}

/// What the training software does other than the constants say; `None` if as they say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Changes {
    /// What replicas hold.
    pub sharding: Option<ZeroStage>,
    /// How keys and values travel.
    pub context_exchange: Option<ContextExchange>,
    /// Whether TP splits the sequence.
    pub sequence_parallel: Option<bool>,
    /// What its recipe says, if `None`.
    pub features: Option<Features>,
}

/// Why a request cannot be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// The chip lacks the number format.
    #[error("{card} has no {}: it has no peak for it; leave out --precision", precision.label())]
    NoFormat {
        /// Name of the card.
        card: String,
        /// The format.
        precision: Precision,
    },
    /// Nothing to do in a step, or more than any step has.
    #[error("--batch {sequences}, --seq {tokens}: write 1 to {MOST} for each")]
    Batch {
        /// Sequences.
        sequences: u64,
        /// Tokens of each.
        tokens: u64,
    },
    /// More than any job has.
    #[error("--{flag} {degree}: write at most {MOST_DEGREE}")]
    Degree {
        /// The option.
        flag: &'static str,
        /// As it is written.
        degree: u32,
    },
    /// No share.
    #[error("--imbalance is a share of at least 0, such as 0.2")]
    Imbalance,
    /// An option for mixtures.
    #[error("--{option}: {model} has no experts; leave it out")]
    NoExperts {
        /// The option as it is written.
        option: String,
        /// Name of the model.
        model: String,
    },
    /// Two orders of passes.
    #[error("--features dual-pipe is an order of passes, as zero-bubble is: leave out one of them")]
    TwoOrders,
    /// Nothing for both ends to share.
    #[error("--features dual-pipe: --pp {stages} is odd; write an even number of stages")]
    OddStages {
        /// Stages.
        stages: u32,
    },
    /// A refit names something else.
    #[error("no constant is called `{name}`: write the file of `lightloom calibrate` as it is")]
    NoConstant {
        /// As it is written.
        name: String,
    },
    /// No such constants.
    #[error(transparent)]
    Constants(#[from] UnknownConstants),
}

/// A request that can be computed.
#[derive(Clone, Debug)]
pub struct Prepared {
    request: Request,
    compute: Compute,
    calibration: Calibration,
    recipe: Option<&'static Recipe>,
}

/// An error of fewer runs says little of the next one.
const BAND_RUNS_LEAST: u32 = 5;

impl Request {
    /// Checks it and looks up its constants.
    ///
    /// # Errors
    /// If it cannot be computed: why.
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
        let of = (framework.name, &*self.card.name, &*self.model.name);
        let recipe = features::recipe(of.0, of.1, of.2, self.precision);
        let recipe = recipe.filter(|_| self.changes.features.is_none());
        software.features =
            self.changes.features.or(recipe.map(|recipe| recipe.features)).unwrap_or_default();
        if let Some(recompute) = recipe.and_then(|recipe| recipe.recompute)
            && self.limits.recompute.is_empty()
        {
            // What the recipe computes again, or more where that does not fit.
            self.limits.recompute =
                RECOMPUTE.into_iter().filter(|more| *more >= recompute).collect();
        }
        Ok(Prepared { compute: self.card.compute(), calibration, recipe, request: self })
    }

    /// Refuses what would change nothing.
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
            let is_odd = |stages: &&u32| !stages.is_multiple_of(2);
            if let Some(&stages) = self.limits.pipeline.iter().find(is_odd) {
                return Err(RequestError::OddStages { stages });
            }
        }
        Ok(())
    }
}

impl Limits {
    /// Refuses degrees beyond [`MOST_DEGREE`], whose products would be none.
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
    /// What was asked.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The constants in use.
    #[must_use]
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// The same with other constants.
    #[must_use]
    pub fn with_calibration(mut self, calibration: Calibration) -> Self {
        let software = self.calibration.software;
        self.calibration = Calibration { software, ..calibration };
        self
    }

    /// The search for mappings of `gpus` on `network`.
    #[must_use]
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

    /// The figures of a mapping that `search` found.
    #[must_use]
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
            recompute: mapping.recompute.label(),
            schedule: mapping.schedule.label(),
            step_seconds: step.step_seconds,
            validated: self
                .band(search.network)
                .filter(|_| mapping.tensor <= search.network.domain_gpus),
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
            goodput: None,
        }
    }

    /// What of a recomputation counts as operations. Beside a fused core, selective recomputation repeats norms and
    /// activation alone.
    fn counted_again(&self, recompute: Recompute) -> Recompute {
        let is_fused = self.calibration.software.flash_attention;
        if is_fused && recompute == Recompute::Selective { Recompute::None } else { recompute }
    }

    /// The error of the class of run; `None` if fewer than [`BAND_RUNS_LEAST`] published runs of it were kept back, or
    /// on another domain than the card's own, a card of other figures, or a hybrid, of which there are too few.
    fn band(&self, network: &Network) -> Option<Band> {
        let (name, request) = (self.calibration.name, &self.request);
        let is_mixture = request.model.feed_forward.experts.is_some();
        let own = request.card.network();
        let is_own = (name.chip == request.card.name || request.card.name.starts_with("a100"))
            && request.card.is_shipped()
            && request.model.state_space.is_none()
            && (own.shape, own.domain_gpus) == (network.shape, network.domain_gpus)
            && own.domain_rate <= 1.01 * network.domain_rate
            && network.domain_rate <= 1.01 * own.domain_rate;
        BANDS
            .iter()
            .find(|band| {
                band.chip == name.chip
                    && band.software == name.software
                    && band.is_mixture == is_mixture
            })
            .filter(|band| band.runs >= BAND_RUNS_LEAST && is_own && request.refitted.is_empty())
            .copied()
    }

    /// The document.
    #[must_use]
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
            constants_fitted_on_this_accelerator: self.calibration.name.chip == request.card.name
                && request.card.is_shipped(),
            software: self.calibration.software,
            features_from: self.recipe.map(|recipe| recipe.source),
            batch_sequences: request.batch.sequences,
            sequence_tokens: request.batch.tokens,
            mappings_tried,
            rows,
        }
    }
}

/// One mapping and its figures; `P` is what a run packet by packet gave.
#[derive(Debug, Serialize)]
pub struct Row<P> {
    /// Architecture or fabric.
    pub arch: String,
    /// GPUs.
    pub gpus: u64,
    /// TP.
    pub tp: u32,
    /// PP.
    pub pp: u32,
    /// DP.
    pub dp: u32,
    /// CP.
    pub cp: u32,
    /// EP.
    pub ep: u32,
    /// Sequences of a micro-batch.
    pub micro_batch: u32,
    /// Virtual stages.
    pub virtual_stages: u32,
    /// What is computed again.
    pub recompute: &'static str,
    /// Order of passes.
    pub schedule: &'static str,
    /// The step.
    pub step_seconds: f64,
    /// How far published runs of this class, which nothing was fitted on, are from what is computed for them; `None` if
    /// there are none: not validated.
    pub validated: Option<Band>,
    /// Utilisation, as a share.
    pub mfu: f64,
    /// What counts in it.
    pub mfu_convention: &'static str,
    /// On the fullest GPU.
    pub memory_bytes: u64,
    /// Computing on the slowest stage.
    pub compute_seconds: f64,
    /// TP exchange that is not hidden.
    pub tp_exposed_seconds: f64,
    /// CP exchange that is not hidden.
    pub cp_exposed_seconds: f64,
    /// EP exchange that is not hidden.
    pub ep_exposed_seconds: f64,
    /// DP exchange that is not hidden.
    pub dp_exposed_seconds: f64,
    /// Waiting in the pipeline.
    pub pp_bubble_seconds: f64,
    /// Pipeline transfers that are not hidden.
    pub pp_transfer_seconds: f64,
    /// Optimizer and what belongs to no micro-batch.
    pub optimizer_seconds: f64,
    /// Stragglers and congestion.
    pub jitter_seconds: f64,
    /// The same step packet by packet; `None` if that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<P>,
    /// What faults leave; `None` if that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput: Option<Goodput>,
}

/// The document that `lightloom mfu` writes.
#[derive(Debug, Serialize)]
pub struct MfuReport<P> {
    /// What it was made from.
    #[serde(flatten)]
    pub made: Provenance,
    /// Name of the model.
    pub model: String,
    /// Name of the card.
    pub accelerator: String,
    /// Number format.
    pub precision: Precision,
    /// Chip and software whose constants are in use.
    pub constants: String,
    /// The runs that the software's constants come from.
    pub constants_origin: &'static str,
    /// Constants that a refit changed, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub constants_refitted: BTreeMap<String, f64>,
    /// Whether the chip's constants are the card's own.
    pub constants_fitted_on_this_accelerator: bool,
    /// What the software does.
    pub software: Software,
    /// The recipe that its features come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features_from: Option<&'static str>,
    /// Sequences of a step.
    pub batch_sequences: u64,
    /// Tokens of a sequence.
    pub sequence_tokens: u64,
    /// Mappings that were tried.
    pub mappings_tried: usize,
    /// Fastest first for each number of GPUs.
    pub rows: Vec<Row<P>>,
}
