// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use lightloom_fabric::fabric::{Fabric, Job as FabricJob};
use lightloom_fabric::file::{MappingFile, ShardingFile, StepFile};
use lightloom_fabric::model::{read_model, shipped_model};
use lightloom_fabric::plan::{Plan, Rank};
use lightloom_training::calibration::{Calibration, Precision, Software, ZeroStage};
use lightloom_training::cards::Accelerator;
use lightloom_training::features::Feature;
use lightloom_training::mapping::{Batch, Mapping, Recompute};
use lightloom_training::mfu::Convention;
use lightloom_training::model::Model;
use lightloom_training::network::Network;
use lightloom_training::reinforcement::{PoolStep, ReinforcementTasks, reinforcement_tasks};
use lightloom_training::request::{Changes, Prepared, Request};
use lightloom_training::schedule::Schedule;
use lightloom_training::search::Limits;
use lightloom_training::step::{Job, OwnedJob, StepTime, step_time};
use lightloom_training::tasks::{SimulatedRails, step_tasks};
use lightloom_units::Picoseconds;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Restart;
use super::pool::{Rollout, leaves, pool_step, trainer_of};

/// A training job of the fabric.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TrainFile")]
pub struct Train {
    /// Name of a job with `step: {training: …}` or `step: {rl: …}` in the fabric file, which
    /// defines its model and mapping.
    pub job: String,
    /// Number of steps.
    #[serde(default = "once")]
    #[schemars(range(min = 1, max = 1000))]
    pub steps: u32,
    /// Name of a built-in accelerator.
    #[serde(default = "h100")]
    pub accelerator: String,
    /// Software stack, or chip and stack, for the performance constants, such as h100/nemo-25.02
    /// [default: the most common one for the accelerator].
    #[serde(default)]
    pub constants: Option<String>,
    /// Tokens per sequence [default: the tokens of a micro-batch].
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub sequence: Option<u32>,
    /// Model chunks per pipeline stage; 1 is plain 1F1B.
    #[serde(default = "once")]
    #[schemars(range(min = 1, max = 256))]
    pub virtual_stages: u32,
    /// Activations recomputed in the backward pass [default: as in the software's recipe].
    #[serde(default)]
    pub recompute: Option<Recompute>,
    /// Number format of the linear layers.
    #[serde(default)]
    pub precision: Precision,
    /// Sample generation of a reinforcement learning job.
    #[serde(default)]
    pub rollout: Option<Rollout>,
    /// Response to the loss of a node.
    #[serde(default)]
    pub restart: Restart,
    /// The accelerator. Set by the file reader.
    #[serde(skip)]
    pub card: Option<Accelerator>,
}

fn once() -> u32 {
    1
}

fn h100() -> String {
    "h100".to_owned()
}

impl Train {
    fn card(&self) -> &Accelerator {
        self.card.as_ref().expect("the file reader sets the accelerator")
    }
}

/// Reasons why a job cannot be trained on this fabric.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum TrainError {
    #[error("job `{job}` does not exist in the fabric; help: use one of {}", names(jobs))]
    NoJob { job: String, jobs: Vec<String> },
    #[error(
        "job `{job}` has neither model nor mapping; help: add `step: {{training: {{model: \
         llama-3.1-8b, pp: 2, tokens: 8192}}}}`, or `step: {{rl: …}}`, to the job in the fabric \
         file"
    )]
    NoMapping { job: String },
    #[error(
        "job `{job}` has no `tp`, so its GPUs cannot be placed; help: add `gpus` and `tp` to the job in the fabric file"
    )]
    NoPlaces { job: String },
    #[error(
        "the samples of job `{job}` have {tokens} tokens, and a prompt of {prompt} leaves none for a response; help: reduce `prompt`"
    )]
    Prompt { job: String, prompt: u32, tokens: u32 },
    #[error(
        "the {heads} heads of the model of job `{job}` cannot be divided among replicas of {gpus} \
         GPUs; help: use a divisor of {heads} as `replica_gpus`"
    )]
    Heads { job: String, heads: u32, gpus: u32 },
    #[error(
        "a replica of {gpus} GPUs of job `{job}` cannot store the model and a sample of {tokens} tokens; help: increase `replica_gpus`, or \
         reduce `longest`"
    )]
    Memory { job: String, gpus: u32, tokens: u64 },
    #[error("the model of job `{job}`: {error}")]
    Model { job: String, error: String },
    #[error("{0}")]
    Constants(String),
    #[error("the plan contains no group of job `{job}`; help: reduce its GPUs or the faults")]
    NoGroups { job: String },
    #[error(
        "job `{job}` cannot have {pieces} virtual stages: {layers} layers and {micro_batches} micro-batches require a `pp` of at least 2 that \
         divides the micro-batches, and `pp` × `virtual_stages` that divides the layers"
    )]
    Interleaved { job: String, pieces: u32, stages: u32, micro_batches: u32, layers: u32 },
    #[error(
        "the recipe of job `{job}` starts micro-batches at both ends of the pipeline (dual-pipe), which cannot be simulated packet by packet; help: use other \
         `constants`"
    )]
    DualPipe { job: String },
    #[error(
        "the network of this fabric does not reach individual GPUs; help: use `hbd: {{khop: …}}`"
    )]
    NoGpus,
    #[error(
        "a micro-batch of {tokens} tokens cannot be divided into sequences of {sequence}; help: use a divisor of {tokens}"
    )]
    Sequence { sequence: u32, tokens: u32 },
}

fn names(jobs: &[String]) -> String {
    jobs.join(", ")
}

/// Computation and traffic of one step.
#[derive(Clone, Debug)]
pub struct TrainStep {
    /// Index of the job in the fabric.
    pub job: u32,
    /// Training step.
    pub owned: OwnedJob,
    /// Generation pool. `None` for training-only jobs.
    pub pool: Option<PoolStep>,
    peak_flops: f64,
}

impl TrainStep {
    /// Derives a step of `train` from the fabric and the ranks of `plan`.
    ///
    /// # Errors
    /// Fails if the job, its model or its constants are missing, or if the plan does not match.
    pub fn of(train: &Train, fabric: &Fabric, plan: &Plan) -> Result<Self, TrainError> {
        let place = fabric.jobs.iter().position(|job| job.name == train.job);
        let place = place.ok_or_else(|| TrainError::NoJob {
            job: train.job.clone(),
            jobs: fabric.jobs.iter().map(|job| format!("`{}`", job.name)).collect(),
        })?;
        let (job, index) = (&fabric.jobs[place], place as u32);
        let (raw, rl) = match &job.step {
            Some(StepFile::Training(raw)) => (raw.clone(), None),
            Some(StepFile::Rl(rl)) if job.is_placed() => (trainer_of(rl), Some(rl)),
            Some(StepFile::Rl(_)) => return Err(TrainError::NoPlaces { job: job.name.clone() }),
            _ => return Err(TrainError::NoMapping { job: job.name.clone() }),
        };
        let raw = &raw;
        let data = match rl {
            Some(_) => raw.dp.unwrap_or(1),
            None => count(plan, index, |rank| rank.dp),
        };
        let model = model_of(fabric, job, raw)?;
        let mut mapping = mapping_of(train, job, raw, data)?;
        let prepared = prepared(train, &model, raw)?;
        let whole = *prepared.calibration();
        let calibration = calibration_of(whole, raw, fabric);
        let recipe = prepared.request().limits.recompute.first().copied();
        mapping.recompute = train.recompute.or(recipe).unwrap_or(Recompute::None);
        refuse_schedule(train, &mapping, &calibration.software, model.layers, raw.micro_batches)?;
        let batch = Batch {
            sequences: u64::from(raw.micro_batches)
                * u64::from(mapping.data)
                * u64::from(mapping.micro_batch),
            tokens: u64::from(raw.tokens / mapping.micro_batch),
        };
        let card = train.card();
        let compute = card.compute();
        let owned = OwnedJob::of(&Job {
            model: &model,
            network: &Network::of_fabric(fabric),
            compute: &compute,
            calibration: &calibration,
            precision: train.precision,
            expert_imbalance: 0.0,
            mapping,
            batch,
        });
        let leaves = leaves(fabric, plan, index);
        let pool = rl
            .map(|rl| {
                pool_step(&leaves, job, rl, &train.rollout.unwrap_or_default(), &owned, &whole)
            })
            .transpose()?;
        let peak = card.peak_flops(train.precision);
        Ok(Self { job: index, owned, pool, peak_flops: peak.unwrap_or(compute.peak_flops) })
    }

    /// Returns the tasks.
    pub fn tasks(&self) -> ReinforcementTasks {
        match &self.pool {
            Some(pool) => reinforcement_tasks(&self.owned.job(), pool),
            None => {
                let (graph, purposes) = step_tasks(&self.owned.job().work(), SimulatedRails::All);
                ReinforcementTasks { graph, purposes, again: BTreeMap::new() }
            }
        }
    }

    /// Returns the closed-form time of the step on idle links without faults.
    pub fn closed_form(&self) -> StepTime {
        let mut time = step_time(&self.owned.job());
        if let Some(pool) = &self.pool {
            let mapping = &self.owned.mapping;
            let passes = mapping.micro_batches(self.owned.batch) + u64::from(mapping.pipeline) - 1;
            let passes = pool.pass_seconds * passes as f64;
            time.compute_seconds += passes;
            time.step_seconds =
                pool.step_seconds(time.step_seconds + passes, self.owned.card_rate());
        }
        time
    }

    /// Returns closed-form seconds of generation and weight transfer. `None` for training-only jobs.
    pub fn pool_seconds(&self) -> Option<[f64; 2]> {
        let pool = self.pool.as_ref()?;
        Some([pool.generation_seconds(), pool.weights_seconds(self.owned.card_rate())])
    }

    /// Returns the number of GPUs.
    pub fn gpus(&self) -> u64 {
        match &self.pool {
            Some(pool) => pool.leaves.len() as u64,
            None => self.owned.mapping.gpus(),
        }
    }

    /// Returns the model FLOPs utilisation for a step time. Counts attention over the full mask.
    pub fn mfu(&self, took: Picoseconds) -> f64 {
        let OwnedJob { model, mapping, batch, .. } = &self.owned;
        let (gpus, recompute, peak) = (self.gpus(), mapping.recompute, self.peak_flops);
        let seconds = took.as_secs_f64();
        Convention::MfuFull.utilisation(model, *batch, recompute, gpus, peak, seconds)
    }
}

fn count(plan: &Plan, job: u32, of: fn(&Rank) -> u32) -> u32 {
    let own = plan.ranks.iter().filter(|rank| rank.job == Some(job));
    own.map(of).max().map_or(0, |last| last + 1)
}

fn mapping_of(
    train: &Train,
    job: &FabricJob,
    raw: &MappingFile,
    data: u32,
) -> Result<Mapping, TrainError> {
    if data == 0 {
        return Err(TrainError::NoGroups { job: job.name.clone() });
    }
    let sequence = train.sequence.unwrap_or(raw.tokens);
    if sequence == 0 || !raw.tokens.is_multiple_of(sequence) {
        return Err(TrainError::Sequence { sequence, tokens: raw.tokens });
    }
    Ok(Mapping {
        tensor: job.tp,
        context: raw.cp,
        pipeline: raw.pp,
        data,
        expert: raw.ep,
        micro_batch: raw.tokens / sequence,
        virtual_stages: train.virtual_stages,
        recompute: Recompute::None,
        schedule: Schedule::OneForwardOneBackward,
    })
}

/// Uses the constants and features of `lightloom mfu`.
fn prepared(train: &Train, model: &Model, raw: &MappingFile) -> Result<Prepared, TrainError> {
    let is_sharded = raw.sharding == ShardingFile::Sharded;
    let request = Request {
        model: model.clone(),
        card: train.card().clone(),
        batch: Batch { sequences: 1, tokens: 1 },
        precision: train.precision,
        expert_imbalance: 0.0,
        convention: Convention::MfuFull,
        limits: Limits::default(),
        constants: train.constants.clone(),
        refitted: BTreeMap::new(),
        changes: Changes {
            sharding: is_sharded.then_some(ZeroStage::Everything),
            ..Changes::default()
        },
    };
    request.prepare().map_err(|error| TrainError::Constants(error.to_string()))
}

fn calibration_of(whole: Calibration, raw: &MappingFile, fabric: &Fabric) -> Calibration {
    let mut calibration = whole;
    let (network, software) = (&mut calibration.network, &mut calibration.software);
    if raw.states_share() && raw.usable_share.to_bits() != network.scale_out.to_bits() {
        (network.is_stated, network.scale_out) = (true, raw.usable_share);
    }
    software.data_overlap &= fabric.dcn.circuits().is_none();
    if raw.sharding == ShardingFile::Replicated && software.sharding == ZeroStage::Everything {
        software.sharding = ZeroStage::Replicated;
    }
    calibration
}

fn refuse_schedule(
    train: &Train,
    mapping: &Mapping,
    software: &Software,
    layers: u32,
    micro_batches: u32,
) -> Result<(), TrainError> {
    let (job, stages, pieces) = (train.job.clone(), mapping.pipeline, mapping.virtual_stages);
    if stages > 1 && software.features.has(Feature::DualPipe) {
        return Err(TrainError::DualPipe { job });
    }
    let layers = layers + if software.balanced_ends { 2 } else { 0 };
    let is_cut = layers.is_multiple_of(stages * pieces) && micro_batches.is_multiple_of(stages);
    if pieces > 1 && (stages == 1 || !is_cut) {
        return Err(TrainError::Interleaved { job, pieces, stages, micro_batches, layers });
    }
    Ok(())
}

fn model_of(fabric: &Fabric, job: &FabricJob, raw: &MappingFile) -> Result<Model, TrainError> {
    if let Some(model) = shipped_model(&raw.model) {
        return Ok(model);
    }
    let model = fabric.neighbour(&raw.model).and_then(|text| {
        let (model, mistakes) = read_model(&raw.model, text.as_bytes());
        model.ok_or_else(|| mistakes.first().map(ToString::to_string).unwrap_or_default())
    });
    model.map_err(|error| TrainError::Model { job: job.name.clone(), error })
}
