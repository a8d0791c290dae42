// SPDX-License-Identifier: Apache-2.0
//! A training job on the fabric: its number of steps, accelerator and restart policy, and the
//! computation and traffic of one step, which follow from its mapping and the plan's ranks.

use std::collections::BTreeMap;

use lightloom_engine::transport::Transport;
use lightloom_fabric::fabric::{Fabric, Job as FabricJob};
use lightloom_fabric::file::{MappingFile, ShardingFile, StepFile};
use lightloom_fabric::hbd::Grouping;
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
use lightloom_training::step::{BareStep, Job, StepTime};
use lightloom_training::step_graph::{SimulatedRails, step_tasks};
use lightloom_units::{Bytes, Picoseconds};

use super::Restart;
use super::pool::{Rollout, pool_step, trainer_of};

/// A training job on the fabric.
#[derive(Clone, Debug, PartialEq)]
pub struct Train {
    /// The job's name.
    pub job: String,
    /// The number of steps.
    pub steps: u32,
    /// The accelerator.
    pub accelerator: Accelerator,
    /// The fitted constants to use. `None` selects those for the software most commonly used with the accelerator.
    pub constants: Option<String>,
    /// Number of tokens in a sequence. `None` means one sequence per micro-batch.
    pub sequence: Option<u32>,
    /// How it generates samples, if it is a reinforcement-learning job.
    pub rollout: Rollout,
    /// Where groups with lost state restart.
    pub restart: Restart,
}

/// Why a job cannot be trained here.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TrainError {
    /// The job does not exist.
    #[error("the fabric has no job `{job}`: write one of {}", names(jobs))]
    NoJob {
        /// The name.
        job: String,
        /// The existing jobs.
        jobs: Vec<String>,
    },
    /// The job has no model or mapping.
    #[error(
        "job `{job}` says neither model nor mapping: write `step: {{training: {{model: llama-3.1-8b, pp: 2, tokens: 8192}}}}`, or \
         `step: {{rl: …}}`, at the job in the fabric file"
    )]
    NoMapping {
        /// The job.
        job: String,
    },
    /// The GPUs of the job have no places.
    #[error(
        "job `{job}` has no `tp`, so its GPUs have no places: write `gpus` and `tp` at the job in the fabric file"
    )]
    NoPlaces {
        /// The job.
        job: String,
    },
    /// The prompt leaves no tokens for a response.
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
    /// The model's heads cannot be divided over the GPUs in a replica.
    #[error(
        "the {heads} heads of the model of job `{job}` cannot be shared out over replicas of {gpus} GPUs: write a divisor of {heads} as \
         `replica_gpus`"
    )]
    Heads {
        /// The job.
        job: String,
        /// The number of heads of the model.
        heads: u32,
        /// GPUs of a replica.
        gpus: u32,
    },
    /// The replica is too small.
    #[error(
        "a replica of {gpus} GPUs of job `{job}` does not hold the model and a sample of {tokens} tokens: write more `replica_gpus`, or \
         a smaller `longest`"
    )]
    Memory {
        /// The job.
        job: String,
        /// GPUs of a replica.
        gpus: u32,
        /// Number of tokens in the longest sample.
        tokens: u64,
    },
    /// The model cannot be read.
    #[error("the model of job `{job}`: {error}")]
    Model {
        /// The job.
        job: String,
        /// The error.
        error: String,
    },
    /// The constants do not exist.
    #[error("{0}")]
    Constants(String),
    /// The plan has no group of the job.
    #[error(
        "no group of job `{job}` is in the plan: give it fewer GPUs, or the fabric fewer faults"
    )]
    NoGroups {
        /// The job.
        job: String,
    },
    /// The network does not carry packets from GPU to GPU.
    #[error("the network of this fabric does not reach single GPUs: take `hbd: {{khop: …}}`")]
    NoGpus,
    /// The sequences do not fill a micro-batch.
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

/// The computation and traffic of one step of a job.
#[derive(Clone, Debug)]
pub struct TrainStep {
    /// The index of the job in the fabric.
    pub job: u32,
    /// The training step.
    pub bare: BareStep,
    /// The generation pool. `None` if the job only trains.
    pub pool: Option<PoolStep>,
    peak_flops: f64,
}

impl TrainStep {
    /// Returns the step of `train` on `fabric`, with the ranks of `plan`.
    ///
    /// # Errors
    /// Fails if the job, its model or its constants are missing, or if the step does not match the plan.
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
        calibration.network.scale_out = raw.usable_share;
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
        let bare = BareStep::of(&Job {
            model: &model_of(fabric, job, raw)?,
            network: &network_of(fabric, job.tp),
            compute: &compute,
            calibration: &calibration,
            precision: Precision::Bf16,
            expert_imbalance: 0.0,
            mapping,
            batch,
        });
        let of_job = |rl| {
            let decode = (&compute, &whole);
            pool_step((fabric, plan), (index, job, rl), &train.rollout, &bare, decode)
        };
        let pool = rl.map(of_job).transpose()?;
        Ok(Self { job: index, bare, pool, peak_flops: compute.peak_flops })
    }

    /// Returns its tasks.
    #[must_use]
    pub fn tasks(&self) -> ReinforcementTasks {
        match &self.pool {
            Some(pool) => reinforcement_tasks(&self.bare.job(), pool),
            None => {
                let (graph, purposes) = step_tasks(&self.bare.job(), SimulatedRails::All);
                ReinforcementTasks { graph, purposes, again: BTreeMap::new() }
            }
        }
    }

    /// Returns its closed form, without overlap, stragglers or faults.
    #[must_use]
    pub fn closed_form(&self) -> StepTime {
        let mut time = self.bare.time();
        if let Some(pool) = &self.pool {
            let mapping = &self.bare.mapping;
            let passes = mapping.micro_batches(self.bare.batch) + u64::from(mapping.pipeline) - 1;
            let passes = pool.pass_seconds * passes as f64;
            time.compute_seconds += passes;
            time.step_seconds =
                pool.step_seconds(time.step_seconds + passes, self.bare.card_rate());
        }
        time
    }

    /// Returns the closed forms of generation and of weight transfer, in seconds. `None` for a job
    /// that only trains.
    #[must_use]
    pub fn pool_seconds(&self) -> Option<[f64; 2]> {
        let pool = self.pool.as_ref()?;
        Some([pool.generation_seconds(), pool.weights_seconds(self.bare.card_rate())])
    }

    /// Returns its number of GPUs.
    #[must_use]
    pub fn gpus(&self) -> u64 {
        match &self.pool {
            Some(pool) => pool.leaves.len() as u64,
            None => self.bare.mapping.gpus(),
        }
    }

    /// Returns the model FLOPs utilisation of a step that takes `took`. Attention counts over the
    /// full mask.
    #[must_use]
    pub fn mfu(&self, took: Picoseconds) -> f64 {
        let BareStep { model, mapping, batch, .. } = &self.bare;
        let (gpus, recompute, peak) = (self.gpus(), mapping.recompute, self.peak_flops);
        let seconds = took.as_secs_f64();
        Convention::MfuFull.utilisation(model, *batch, recompute, gpus, peak, seconds)
    }

    /// Returns the share of links that the job's software can use under `transport`, and the delay that it adds.
    #[must_use]
    pub fn pace(&self, fabric: &Fabric, transport: &Transport) -> LinkShare {
        let share =
            transport.payload.0 as f64 / (transport.payload.0 + transport.header.0).max(1) as f64;
        let links = &self.bare.calibration.network;
        let lag = |seconds: f64, there: Picoseconds| {
            Picoseconds(((seconds * 1e12) as u64).saturating_sub(there.0))
        };
        // Between two GPUs there is one cable, or two through an island's switch.
        let cables = if fabric.hbd.ring().is_some() { 1 } else { 2 };
        let scale_out_lag = lag(links.scale_out_step_seconds, fabric.dcn.link_latency() * 2);
        let has_domain = fabric.hbd.grouping() != Grouping::Anywhere;
        let inside = fabric.hbd_links.inside_latency * cables;
        LinkShare {
            has_domain,
            domain: (share / links.domain).max(1.0),
            scale_out: (share / links.scale_out).max(1.0),
            domain_lag: if has_domain {
                lag(links.domain_step_seconds, inside)
            } else {
                scale_out_lag
            },
            scale_out_lag,
        }
    }
}

/// How a job's software slows down its links. The software does not fill them, which is modelled as
/// additional bytes, and each step of an exchange takes additional time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkShare {
    /// Whether there is a domain. Without one, TP also goes over the network.
    has_domain: bool,
    domain: f64,
    scale_out: f64,
    /// Delay of each step of an exchange inside the domain.
    pub(crate) domain_lag: Picoseconds,
    /// Delay of each step of an exchange over the network.
    pub(crate) scale_out_lag: Picoseconds,
}

impl LinkShare {
    /// Returns the effective bytes of an exchange inside the domain.
    pub(crate) fn inside(&self, bytes: Bytes) -> Bytes {
        if !self.has_domain {
            return self.across(bytes);
        }
        Bytes((bytes.0 as f64 * self.domain) as u64)
    }

    /// Returns the effective bytes of an exchange over the network.
    pub(crate) fn across(&self, bytes: Bytes) -> Bytes {
        Bytes((bytes.0 as f64 * self.scale_out) as u64)
    }
}

/// Returns the number of ranks that a job has in a dimension.
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

/// Returns the network for the closed form. In an island, as on a ring, only TP stays inside.
fn network_of(fabric: &Fabric, tp: u32) -> Network {
    let network = Network::of_fabric(fabric);
    match fabric.hbd.grouping() {
        Grouping::Island { .. } => Network { domain_gpus: tp, ..network },
        Grouping::Line | Grouping::Anywhere => network,
    }
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
