// SPDX-License-Identifier: Apache-2.0
//! A job of the fabric that trains: how often, on which accelerator, from where it begins again; and what one step of it
//! computes and sends, from its mapping and the ranks of the plan.

use std::collections::BTreeMap;

use lightloom_fabric::fabric::{Fabric, Job as FabricJob};
use lightloom_fabric::file::{MappingFile, ShardingFile, StepFile};
use lightloom_fabric::model::{read_model, shipped_model};
use lightloom_fabric::plan::{Plan, Rank};
use lightloom_training::calibrated::compose;
use lightloom_training::calibration::{Precision, ZeroStage};
use lightloom_training::cards::Accelerator;
use lightloom_training::mapping::{Batch, Mapping, Recompute};
use lightloom_training::mfu::Convention;
use lightloom_training::model::Model;
use lightloom_training::network::Network;
use lightloom_training::reinforcement::{PoolStep, ReinforcementTasks, reinforcement_tasks};
use lightloom_training::schedule::Schedule;
use lightloom_training::step::{Job, OwnedJob, StepTime, step_time};
use lightloom_training::tasks::{SimulatedRails, step_tasks};
use lightloom_units::Picoseconds;

use super::Restart;
use super::pool::{Rollout, pool_step, trainer_of};

/// A job of the fabric that trains.
#[derive(Clone, Debug, PartialEq)]
pub struct Train {
    /// The job's name.
    pub job: String,
    /// How many steps.
    pub steps: u32,
    /// On what.
    pub accelerator: Accelerator,
    /// Whose constants: those of the software that the card is mostly used with, if `None`.
    pub constants: Option<String>,
    /// Tokens of a sequence: those of a micro-batch, if `None`.
    pub sequence: Option<u32>,
    /// How it generates, where its step is one of reinforcement learning.
    pub rollout: Rollout,
    /// Where groups that lost their state begin again.
    pub restart: Restart,
}

/// Why a job cannot be trained here.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TrainError {
    /// No such job.
    #[error("the fabric has no job `{job}`: write one of {}", names(jobs))]
    NoJob {
        /// The name.
        job: String,
        /// Those there are.
        jobs: Vec<String>,
    },
    /// A job without a model and a mapping.
    #[error(
        "job `{job}` says neither model nor mapping: write `step: {{training: {{model: llama-3.1-8b, pp: 2, tokens: 8192}}}}`, or \
         `step: {{rl: …}}`, at the job in the fabric file"
    )]
    NoMapping {
        /// The job.
        job: String,
    },
    /// A job whose GPUs have no places.
    #[error(
        "job `{job}` has no `tp`, so its GPUs have no places: write `gpus` and `tp` at the job in the fabric file"
    )]
    NoPlaces {
        /// The job.
        job: String,
    },
    /// A prompt that leaves no response.
    #[error(
        "the samples of job `{job}` have {tokens} tokens, and a prompt of {prompt} leaves none for a response: write a smaller `prompt`"
    )]
    Prompt {
        /// The job.
        job: String,
        /// Tokens of a prompt.
        prompt: u32,
        /// Tokens of a sample.
        tokens: u32,
    },
    /// A replica that heads cannot be shared out over.
    #[error(
        "the {heads} heads of the model of job `{job}` cannot be shared out over replicas of {gpus} GPUs: write a divisor of {heads} as \
         `replica_gpus`"
    )]
    Heads {
        /// The job.
        job: String,
        /// Heads of the model.
        heads: u32,
        /// GPUs of a replica.
        gpus: u32,
    },
    /// A replica that is too small.
    #[error(
        "a replica of {gpus} GPUs of job `{job}` does not hold the model and a sample of {tokens} tokens: write more `replica_gpus`, or \
         a smaller `longest`"
    )]
    Memory {
        /// The job.
        job: String,
        /// GPUs of a replica.
        gpus: u32,
        /// Tokens of the longest sample.
        tokens: u64,
    },
    /// A model that cannot be read.
    #[error("the model of job `{job}`: {error}")]
    Model {
        /// The job.
        job: String,
        /// What is wrong.
        error: String,
    },
    /// No such constants.
    #[error("{0}")]
    Constants(String),
    /// No group of it is in the plan.
    #[error(
        "no group of job `{job}` is in the plan: give it fewer GPUs, or the fabric fewer faults"
    )]
    NoGroups {
        /// The job.
        job: String,
    },
    /// A network whose packets cannot be followed from GPU to GPU.
    #[error("the network of this fabric does not reach single GPUs: take `hbd: {{khop: …}}`")]
    NoGpus,
    /// Sequences that do not fill a micro-batch.
    #[error(
        "sequences of {sequence} tokens do not fill a micro-batch of {tokens}: write a divisor of {tokens}"
    )]
    Sequence {
        /// Tokens of a sequence.
        sequence: u32,
        /// Tokens of a micro-batch.
        tokens: u32,
    },
}

fn names(jobs: &[String]) -> String {
    jobs.join(", ")
}

/// What one step of a job computes and sends.
#[derive(Clone, Debug)]
pub struct TrainStep {
    /// Place of the job in the fabric.
    pub job: u32,
    /// The step.
    pub owned: OwnedJob,
    /// What generates beside it. `None` if it only trains.
    pub pool: Option<PoolStep>,
    peak_flops: f64,
}

impl TrainStep {
    /// The step of `train` on `fabric`, its ranks where `plan` has them.
    ///
    /// # Errors
    /// What is missing.
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
        let mapping = mapping_of(train, job, raw, data)?;
        let (chip, framework) = train
            .accelerator
            .constants(train.constants.as_deref())
            .map_err(|error| TrainError::Constants(error.to_string()))?;
        let whole = compose(&chip, &framework);
        let mut calibration = whole;
        // The usual share is that of a transfer; collectives of a library reach their own.
        calibration.network.is_stated =
            raw.usable_share.to_bits() != calibration.network.scale_out.to_bits();
        calibration.network.scale_out = raw.usable_share;
        // Circuits for gradients come when those for micro-batches have gone.
        calibration.software.data_overlap &= fabric.dcn.circuits().is_none();
        if raw.sharding == ShardingFile::Sharded {
            calibration.software.sharding = ZeroStage::Everything;
        } else if calibration.software.sharding == ZeroStage::Everything {
            calibration.software.sharding = ZeroStage::Replicated;
        }
        let batch = Batch {
            sequences: u64::from(raw.micro_batches)
                * u64::from(mapping.data)
                * u64::from(mapping.micro_batch),
            tokens: u64::from(raw.tokens / mapping.micro_batch),
        };
        let compute = train.accelerator.compute();
        let owned = OwnedJob::of(&Job {
            model: &model_of(fabric, job, raw)?,
            network: &Network::of_fabric(fabric),
            compute: &compute,
            calibration: &calibration,
            precision: Precision::Bf16,
            expert_imbalance: 0.0,
            mapping,
            batch,
        });
        let of_job = |rl| {
            let decode = (&compute, &whole);
            pool_step((fabric, plan), (index, job, rl), &train.rollout, &owned, decode)
        };
        let pool = rl.map(of_job).transpose()?;
        Ok(Self { job: index, owned, pool, peak_flops: compute.peak_flops })
    }

    /// Its tasks.
    #[must_use]
    pub fn tasks(&self) -> ReinforcementTasks {
        match &self.pool {
            Some(pool) => reinforcement_tasks(&self.owned.job(), pool),
            None => {
                let (graph, purposes) = step_tasks(&self.owned.job().work(), SimulatedRails::All);
                ReinforcementTasks { graph, purposes, again: BTreeMap::new() }
            }
        }
    }

    /// Its closed form: the same step on idle links, without faults.
    #[must_use]
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

    /// Generation, and new weights, in closed form; none for a job that only trains.
    #[must_use]
    pub fn pool_seconds(&self) -> Option<[f64; 2]> {
        let pool = self.pool.as_ref()?;
        Some([pool.generation_seconds(), pool.weights_seconds(self.owned.card_rate())])
    }

    /// Its GPUs.
    #[must_use]
    pub fn gpus(&self) -> u64 {
        match &self.pool {
            Some(pool) => pool.leaves.len() as u64,
            None => self.owned.mapping.gpus(),
        }
    }

    /// Utilisation of its GPUs by a step that takes so long: model operations of training, attention over the full mask.
    #[must_use]
    pub fn mfu(&self, took: Picoseconds) -> f64 {
        let OwnedJob { model, mapping, batch, .. } = &self.owned;
        let (gpus, recompute, peak) = (self.gpus(), mapping.recompute, self.peak_flops);
        let seconds = took.as_secs_f64();
        Convention::MfuFull.utilisation(model, *batch, recompute, gpus, peak, seconds)
    }

    /// How long cables delay a step of an exchange on `fabric`, inside a domain and between domains.
    #[must_use]
    pub fn cables(fabric: &Fabric) -> [Picoseconds; 2] {
        // From GPU to GPU there is one cable, or two with the switch of an island between them.
        let inside = if fabric.hbd.ring().is_some() { 1 } else { 2 };
        [fabric.hbd_links.inside_latency * inside, fabric.dcn.link_latency() * 2]
    }
}

/// How many ranks a job has in a dimension.
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
        virtual_stages: 1,
        recompute: Recompute::None,
        schedule: Schedule::OneForwardOneBackward,
    })
}

fn model_of(fabric: &Fabric, job: &FabricJob, raw: &MappingFile) -> Result<Model, TrainError> {
    if let Some(model) = shipped_model(&raw.model) {
        return Ok(model);
    }
    let wrong = |error: String| TrainError::Model { job: job.name.clone(), error };
    let text = fabric.neighbour(&raw.model).map_err(wrong)?;
    let (model, mistakes) = read_model(&raw.model, text.as_bytes());
    let first = || mistakes.first().map(ToString::to_string).unwrap_or_default();
    model.ok_or_else(|| wrong(first()))
}
