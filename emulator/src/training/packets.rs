// SPDX-License-Identifier: Apache-2.0
//! Evaluates a training step packet by packet and in closed form, under the same assumptions.
//!
//! A large job is reduced to an excerpt that fits in a packet budget: first replicas, then
//! micro-batches, then layers are removed. Both evaluations use links at their fitted rates.
//!
//! The closed form assumes that exchanges never share links, so it is compared with the step on
//! idle links. The rest of the simulated duration is contention.

use lightloom_engine::transport::Transport;
use lightloom_step::work::StepWork;
use lightloom_training::graph::{TaskGraph, TaskWork};
use lightloom_training::longest_path::play;
use lightloom_training::machine::{Cable, Domain, Machine};
use lightloom_training::mapping::Mapping;
use lightloom_training::network::{Efficiency, Network, Shape};
use lightloom_training::schedule::Pipeline;
use lightloom_training::step::{Job, OwnedJob};
use lightloom_training::tasks::{SimulatedRails, TaskPurpose, step_machine, step_tasks};
use lightloom_units::{BitsPerSecond, Picoseconds, SimTime, gcd};
use serde::Serialize;

use super::idle::{IdleTimes, packet_hops};
use super::replay::{ReuseError, RingReuse, replay};
use crate::run::{Progress, RunError};

/// Packet-hop limit of an excerpt that reuses times of idle rings.
pub const HOPS_BUDGET: f64 = 6e8;
const TASKS_BUDGET: f64 = 2e6;

/// Reasons why a job cannot be simulated packet by packet.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum PacketsError {
    #[error(
        "packet by packet, a TP group must fit in one domain: TP {tensor} does not fit {domain} \
         GPUs of {network} (use --tp {domain} or less)"
    )]
    SpansDomains { tensor: u32, domain: u32, network: String },
    #[error(
        "packet by packet, only TP groups use the links of a torus, and {what} {size} would use \
         those of {network} (use {what} 1 or another --arch)"
    )]
    InsideTorus { what: &'static str, size: u64, network: String },
    #[error(
        "packet by packet, interleaved stages require whole rounds of micro-batches: {micro_batches} is not a multiple of {stages} stages (nearest: {nearest})"
    )]
    PartialRound { micro_batches: u64, stages: u32, nearest: u64 },
    #[error(
        "even {layers} layers and {micro_batches} micro-batches need {needed:.1e} packet-hops, more than the limit of {budget:.1e}; help: reduce --seq or --ep",
        needed = *hops as f64, budget = HOPS_BUDGET
    )]
    TooLarge { layers: u32, micro_batches: u64, hops: u64 },
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Results of both evaluations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PacketStep {
    /// Simulated GPUs.
    pub gpus: u64,
    /// Simulated replicas.
    pub replicas: u32,
    /// Simulated layers.
    pub layers: u32,
    /// Micro-batches per replica.
    pub micro_batches: u64,
    /// Number of tasks in the graph.
    pub tasks: usize,
    /// Closed-form duration of the step, in seconds.
    pub analytic_seconds: f64,
    /// Simulated duration of the step, in seconds.
    pub packet_seconds: f64,
    /// The part of `packet_seconds` due to exchanges that share links, in seconds.
    pub contention_seconds: f64,
    /// `analytic ÷ (packets − contention) − 1`.
    pub difference: f64,
    /// Packets sent, counted once per link.
    pub packet_hops: u64,
    /// Number of collectives whose duration was reused.
    pub reused: u64,
}

/// A simulated excerpt.
#[derive(Clone, Debug)]
pub struct ExcerptRun {
    /// Results of both evaluations.
    pub step: PacketStep,
    /// The task graph.
    pub graph: TaskGraph,
    /// The machine.
    pub machine: Machine,
    /// Start and end time of each task.
    pub spans: Vec<(SimTime, SimTime)>,
}

struct JobExcerpt(OwnedJob);

impl JobExcerpt {
    fn of(job: &Job<'_>) -> Result<Self, PacketsError> {
        let mapping = job.mapping;
        let domain = job.network.domain_gpus;
        if mapping.tensor > domain {
            let network = job.network.name.clone();
            return Err(PacketsError::SpansDomains { tensor: mapping.tensor, domain, network });
        }
        if job.network.shape == Shape::Torus
            && let Some((what, group)) =
                job.other_groups().find(|(_, group)| job.network.is_inside(*group))
        {
            let (size, network) = (group.size, job.network.name.clone());
            return Err(PacketsError::InsideTorus { what, size, network });
        }
        // Keep all lanes of EP, and two replicas that communicate.
        let common = gcd(mapping.expert.into(), mapping.context.into()) as u32;
        let lanes_of_experts = mapping.expert / common;
        let replicas = lanes_of_experts.max(2).min(mapping.data).max(lanes_of_experts);
        let micro_batches = mapping.micro_batches(job.batch).max(1);
        let mapping = Mapping { data: replicas, ..mapping };
        let mut excerpt = Self(OwnedJob::of(&Job { mapping, ..*job }));
        excerpt.set_micro_batches(micro_batches);
        excerpt.refuse_partial_rounds(micro_batches)?;
        excerpt.shrink()?;
        Ok(excerpt)
    }

    fn set_micro_batches(&mut self, count: u64) {
        let Mapping { data, micro_batch, .. } = self.0.mapping;
        self.0.batch.sequences = count * u64::from(data) * u64::from(micro_batch);
    }

    fn micro_batches(&self) -> u64 {
        self.0.mapping.micro_batches(self.0.batch)
    }

    fn refuse_partial_rounds(&self, micro_batches: u64) -> Result<(), PacketsError> {
        let mapping = &self.0.mapping;
        let pipeline = Pipeline {
            schedule: mapping.schedule,
            stages: mapping.pipeline as usize,
            pieces: mapping.virtual_stages as usize,
            micro_batches: micro_batches as usize,
        };
        if mapping.virtual_stages == 1 || pipeline.walk(|_, _| ()) {
            return Ok(());
        }
        let stages = u64::from(mapping.pipeline);
        let nearest = ((micro_batches + stages / 2) / stages).max(1) * stages;
        Err(PacketsError::PartialRound { micro_batches, stages: mapping.pipeline, nearest })
    }

    fn shrink(&mut self) -> Result<(), PacketsError> {
        let round = u64::from(self.0.mapping.pipeline);
        let places = self.0.mapping.pipeline * self.0.mapping.virtual_stages;
        loop {
            let work = self.0.job().work();
            let (hops, tasks) = (cut_hops(&work), cut_tasks(&work));
            if hops <= HOPS_BUDGET && tasks <= TASKS_BUDGET {
                return Ok(());
            }
            let micro_batches = self.micro_batches();
            let layers = self.0.model.layers;
            if micro_batches > 2 * round {
                self.set_micro_batches((micro_batches / 2).div_ceil(round) * round);
            } else if layers > places {
                self.0.model.layers = (layers / 2).div_ceil(places) * places;
                let dense = self.0.model.feed_forward.experts.as_mut();
                if let Some(experts) = dense.filter(|e| e.dense_layers >= layers / 2) {
                    experts.dense_layers = 0;
                }
            } else if micro_batches > round {
                self.set_micro_batches(round);
            } else {
                let hops = hops as u64;
                return Err(PacketsError::TooLarge { layers, micro_batches, hops });
            }
        }
    }
}

/// Evaluates an excerpt of `job` packet by packet and in closed form.
pub fn run(job: &Job<'_>, progress: &mut dyn Progress) -> Result<ExcerptRun, PacketsError> {
    let excerpt = JobExcerpt::of(job)?;
    let micro_batches = excerpt.micro_batches();
    let step = excerpt.0;
    let (replicas, work) = (step.mapping.data, step.job().work());
    let (graph, _) = step_tasks(&work, SimulatedRails::First);
    let imbalance = job.expert_imbalance;
    let machine = step_machine(
        &work,
        &step.network,
        SimulatedRails::First,
        whole_links(&step.network),
        imbalance,
    );
    let rings = graph.tasks().iter().filter(|task| matches!(task.work, TaskWork::Ring { .. }));
    let without: f64 = rings.map(|task| packet_hops(&task.work, &machine)).sum();
    let timeline = match replay(&graph, &machine, RingReuse::IdleRings, progress) {
        // Other exchanges share the links of a ring, so simulate all of its packets.
        Err(RunError::Reuse(ReuseError::BusyRing { .. })) if without <= HOPS_BUDGET => {
            replay(&graph, &machine, RingReuse::Never, progress)?
        }
        other => other?,
    };
    let analytic_seconds = work.time().step_seconds;
    let packet_seconds = timeline.end.0 as f64 * 1e-12;
    let idle = play(&graph, &IdleTimes::of(&graph, &machine, &mut ())?.took);
    let idle_seconds = idle.iter().map(|span| span.1.0).max().unwrap_or(0) as f64 * 1e-12;
    let step = PacketStep {
        gpus: step.mapping.gpus(),
        replicas,
        layers: step.model.layers,
        micro_batches,
        tasks: graph.tasks().len(),
        analytic_seconds,
        packet_seconds,
        contention_seconds: packet_seconds - idle_seconds,
        difference: analytic_seconds / idle_seconds - 1.0,
        packet_hops: timeline.packet_hops,
        reused: timeline.reused,
    };
    Ok(ExcerptRun { step, graph, machine, spans: timeline.spans })
}

fn whole_links(network: &Network) -> [Cable; 2] {
    let [inside, between] = network.cable_seconds;
    let domain = match network.shape {
        Shape::Ring | Shape::Torus => (network.domain_rate / 2.0, inside),
        Shape::Switch => (network.domain_rate, inside / 2.0),
    };
    [domain, (network.scale_out_rate, between / 2.0)].map(|(bytes_per_second, seconds)| Cable {
        rate: BitsPerSecond((bytes_per_second * 8.0) as u64),
        delay: Picoseconds::from_secs_f64(seconds),
    })
}

fn links(network: &Network, efficiency: &Efficiency) -> [Cable; 2] {
    let transport = Transport::default();
    let data = transport.payload.0 as f64 / (transport.payload.0 + transport.header.0) as f64;
    let (domain_rate, domain_step) =
        (network.domain_rate * efficiency.domain, efficiency.domain_step_seconds);
    let domain = match network.shape {
        Shape::Ring | Shape::Torus => (domain_rate / 2.0, domain_step),
        Shape::Switch => (domain_rate, domain_step / 2.0),
    };
    let rail =
        (network.scale_out_rate * efficiency.scale_out, efficiency.scale_out_step_seconds / 2.0);
    [domain, rail].map(|(bytes_per_second, seconds)| Cable {
        rate: BitsPerSecond((bytes_per_second * 8.0 / data) as u64),
        delay: Picoseconds(((seconds * 1e12) as u64).max(1)),
    })
}

/// Returns the machine for a workload on `network`, with a single switch outside the domains.
///
/// # Errors
/// Fails if a group of `tensor` ranks does not fit in a domain.
pub fn machine(
    network: &Network,
    efficiency: &Efficiency,
    ranks: u32,
    tensor: u32,
) -> Result<Machine, PacketsError> {
    let domain = network.domain_gpus;
    if tensor > domain {
        let network = network.name.clone();
        return Err(PacketsError::SpansDomains { tensor, domain, network });
    }
    let [ring_link, rail_link] = links(network, efficiency);
    let mut rings = rows(ranks, tensor);
    rings.retain(|ring| tensor > 1 && ring.len() == tensor as usize);
    Ok(Machine {
        ranks,
        rings,
        domain: match network.shape {
            Shape::Switch => {
                let size = (domain / tensor * tensor).min(ranks.max(1));
                Domain::Switches { groups: rows(ranks, size) }
            }
            Shape::Ring | Shape::Torus => Domain::Cables,
        },
        ring_link,
        rails: vec![(0..ranks).collect()],
        rail_link,
        expert_imbalance: 0.0,
    })
}

pub(super) fn hops_of(bytes: f64) -> f64 {
    2.0 * (bytes / Transport::default().payload.0 as f64).ceil()
}

/// Counts the traffic between domains, and the first collective of each kind on a ring.
fn cut_hops(work: &StepWork) -> f64 {
    let mapping = &work.mapping;
    let lanes = f64::from(mapping.data * mapping.context);
    let rounds = work.micro_batches as f64;
    let layers = (0..work.layer_count()).map(|layer| {
        let own = work.layer(layer);
        let all = own.forward.stretches.iter().chain(&own.backward.stretches);
        let exchanges = all.filter_map(|one| Some((one.exchange?, f64::from(one.count))));
        exchanges.fold([0.0; 2], |[rings, others], (one, count)| {
            let hops = count * hops_of(one.bytes);
            let is_ring = one.purpose == TaskPurpose::Tensor;
            if is_ring { [rings + hops, others] } else { [rings, others + hops] }
        })
    });
    let [rings, others] = layers.fold([0.0, 0.0], |a, b| [f64::max(a[0], b[0]), a[1] + b[1]]);
    let transfers = 2.0 * f64::from(mapping.pipeline * mapping.virtual_stages);
    let transfers = transfers * work.transfer.map_or(0.0, |one| hops_of(one.bytes));
    let times = if work.is_sharded { rounds } else { 1.0 };
    let buckets = work.gather.iter().chain(&work.reduce).map(|one| hops_of(one.bytes));
    let replicas = times * f64::from(work.layer_count()) * buckets.sum::<f64>();
    2.0 * lanes * (rounds * (others + transfers) + replicas) + f64::from(mapping.tensor) * rings
}

fn cut_tasks(work: &StepWork) -> f64 {
    let mapping = &work.mapping;
    let lanes = f64::from(mapping.data * mapping.context);
    let of_layer = 24.0 + 4.0 * f64::from(mapping.context);
    lanes * work.micro_batches as f64 * f64::from(work.layer_count()) * of_layer
}

/// Returns consecutive ranks in rows of this size; the last row can be shorter.
fn rows(ranks: u32, size: u32) -> Vec<Vec<u32>> {
    let starts = (0..ranks).step_by(size as usize);
    starts.map(|first| (first..(first + size).min(ranks)).collect()).collect()
}
