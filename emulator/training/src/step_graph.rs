// SPDX-License-Identifier: Apache-2.0
//! Builds the task graph of one training step, and the machine it runs on.
//!
//! ```text
//!   half a layer:  all-gather ▶ compute ▶ reduce-scatter, with CP's exchange round the attention core
//!                  and EP's before and after the experts          (ring of the TP group; data-centre network)
//!   pass:          the layers of a piece of a stage, transfers from and to its neighbours
//!   step:          passes in the order of the schedule, then gradients of the replicas, optimizer, weights
//! ```
//! A *lane* is one TP group of a stage; a stage has `replicas × CP` lanes. All communication is in
//! the graph with its full duration. Communication overlaps with computing only where the order of
//! the passes allows it, and for CP's blocks during the core.
//!
//! The ranks of a lane use one rail each, and all rails carry the same traffic at the same time.
//! Therefore one rail represents all of them, unless [`SimulatedRails::All`] is chosen.

mod exchange;

use lightloom_collective::CollectiveKind;
use lightloom_units::{Bytes, Picoseconds};

use super::calibration::{ContextExchange, ZeroStage};
use super::graph::{Task, TaskGraph, TaskId, TaskWork};
use super::machine::{Cable, Domain, Machine};
use super::network::Shape;
use super::schedule::{Pass, PassKind, Pipeline};
use super::step::{ForwardBackward, Job, StepPieces};

/// How many of the equal rails to emulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedRails {
    First,
    All,
}

/// Purpose of a task in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskPurpose {
    Compute,
    Tensor,
    Context,
    Expert,
    Pipeline,
    Data,
    Generation,
    /// Transfer of samples to the trainer, or of caches between replicas.
    Samples,
    Weights,
    /// Transfer of weights between GPUs whose replicas change size.
    Reshard,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    pub(crate) tasks: Vec<(TaskPurpose, Task)>,
    /// Dependencies of the first pass of each micro-batch and lane. May be shorter than the number
    /// of micro-batches.
    pub(crate) inputs: Vec<Vec<Vec<TaskId>>>,
    /// Seconds of additional forward passes before each micro-batch.
    pub(crate) pass_seconds: f64,
}

/// Returns the tasks of one step of `job` and their purposes. TP group `stage · lanes + lane` is a
/// ring, where `lane` is `replica · CP + context rank`. Its member `r` is rank `ring · TP + r`.
///
/// # Panics
/// If EP does not divide `DP × CP`, or the schedule makes stages wait for each other (interleaved
/// stages with a number of micro-batches that is not a multiple of the stages).
#[must_use]
pub fn step_tasks(job: &Job<'_>, rails: SimulatedRails) -> (TaskGraph, Vec<TaskPurpose>) {
    let (tasks, dimensions, _) = step_after(job, rails, Before::default());
    (TaskGraph::new(tasks).expect("tasks are made in order"), dimensions)
}

/// Like [`step_tasks`], after other tasks. Also returns by TP group the tasks that end last.
pub(crate) fn step_after(
    job: &Job<'_>,
    rails: SimulatedRails,
    before: Before,
) -> (Vec<Task>, Vec<TaskPurpose>, Front) {
    let mut maker = Maker::new(job, rails);
    (maker.dimensions, maker.tasks) = before.tasks.into_iter().unzip();
    (maker.inputs, maker.pass_seconds) = (before.inputs, before.pass_seconds);
    maker.step()
}

/// Returns the machine of that step, with `domain` cables inside TP groups and `rail` cables
/// between them.
///
/// # Panics
/// If EP does not divide `DP × CP`.
#[must_use]
pub fn step_machine(job: &Job<'_>, rails: SimulatedRails, [domain, rail]: [Cable; 2]) -> Machine {
    Maker::new(job, rails).machine(domain, rail)
}

struct Maker<'j> {
    job: &'j Job<'j>,
    pieces: StepPieces,
    lanes: u32,
    rails: u32,
    tasks: Vec<Task>,
    dimensions: Vec<TaskPurpose>,
    inputs: Vec<Front>,
    pass_seconds: f64,
}

/// For each lane, the tasks that must end before its next task.
pub(crate) type Front = Vec<Vec<TaskId>>;

pub(crate) fn picoseconds(seconds: f64) -> Picoseconds {
    Picoseconds((seconds * 1e12).round() as u64)
}

/// Divides `lanes` into groups of `size` lanes that are `stride` apart.
fn groups(lanes: u32, size: u32, stride: u32) -> impl Iterator<Item = Vec<u32>> {
    (0..lanes)
        .filter(move |lane| (lane / stride).is_multiple_of(size))
        .map(move |first| (0..size).map(|place| first + place * stride).collect())
}

impl<'j> Maker<'j> {
    fn new(job: &'j Job<'j>, rails: SimulatedRails) -> Self {
        let mapping = &job.mapping;
        let lanes = mapping.data * mapping.context;
        assert!(lanes.is_multiple_of(mapping.expert), "EP divides the lanes");
        Self {
            job,
            pieces: job.pieces(),
            lanes,
            rails: if rails == SimulatedRails::All { mapping.tensor } else { 1 },
            tasks: Vec::new(),
            dimensions: Vec::new(),
            inputs: Vec::new(),
            pass_seconds: 0.0,
        }
    }
}

impl Maker<'_> {
    /// Returns the TP group of a lane. Stages are outermost, so the lanes of different stages are
    /// far apart.
    fn ring(&self, stage: u32, lane: u32) -> u32 {
        stage * self.lanes + lane
    }

    fn rank(&self, stage: u32, lane: u32, rail: u32) -> u32 {
        self.ring(stage, lane) * self.job.mapping.tensor + rail
    }

    fn add(
        &mut self,
        dimension: TaskPurpose,
        name: String,
        after: Vec<TaskId>,
        work: TaskWork,
    ) -> TaskId {
        self.dimensions.push(dimension);
        self.tasks.push(Task { name, after, work });
        TaskId(self.tasks.len() as u32 - 1)
    }

    fn step(mut self) -> (Vec<Task>, Vec<TaskPurpose>, Front) {
        let mapping = self.job.mapping;
        let pipeline = Pipeline {
            schedule: mapping.schedule,
            stages: mapping.pipeline as usize,
            pieces: mapping.virtual_stages as usize,
            micro_batches: mapping.micro_batches(self.job.batch) as usize,
        };
        let places = pipeline.stages * pipeline.pieces;
        let nothing: Front = vec![Vec::new(); self.lanes as usize];
        // Tasks that deliver the input of a pass, by position and micro-batch.
        let mut forward = vec![vec![nothing.clone(); pipeline.micro_batches]; places];
        let mut backward = forward.clone();
        for (micro, inputs) in std::mem::take(&mut self.inputs).into_iter().enumerate() {
            forward[0][micro] = inputs;
        }
        let mut last = vec![nothing; pipeline.stages];
        let is_whole = pipeline.walk(|stage, pass| {
            let (place, micro) = (pass.piece * pipeline.stages + stage, pass.micro_batch);
            let inputs = match pass.kind {
                PassKind::Forward => &forward[place][micro],
                PassKind::WeightGradient => &Vec::new(),
                PassKind::Backward | PassKind::InputGradient => &backward[place][micro],
            };
            let mut front = last[stage].clone();
            for (front, input) in front.iter_mut().zip(inputs) {
                front.extend(input);
            }
            let end = self.pass(stage as u32, place, places, pass, front);
            match pass.kind {
                PassKind::Forward if place + 1 == places => backward[place][micro] = end.clone(),
                PassKind::Forward => {
                    let to = (place + 1) % pipeline.stages;
                    forward[place + 1][micro] = self.hand_on(stage as u32, to as u32, &end);
                }
                PassKind::Backward | PassKind::InputGradient if place > 0 => {
                    let to = (place - 1) % pipeline.stages;
                    backward[place - 1][micro] = self.hand_on(stage as u32, to as u32, &end);
                }
                _ => {}
            }
            last[stage] = end;
        });
        assert!(is_whole, "stages wait for each other");
        let stages = last.into_iter().enumerate();
        let ends = stages.flat_map(|(stage, front)| self.finish(stage as u32, front)).collect();
        (self.tasks, self.dimensions, ends)
    }

    /// Adds one pass of one micro-batch over the layers of a chunk. Returns the last task of each
    /// lane.
    fn pass(
        &mut self,
        stage: u32,
        place: usize,
        places: usize,
        pass: Pass,
        mut front: Front,
    ) -> Front {
        let layers = self.job.layers_of(place as u32, places as u32);
        let is_last = place + 1 == places;
        let (output, gradients) = (self.pieces.output, self.job.mapping.is_zero_bubble());
        if pass.kind == PassKind::WeightGradient {
            let own = layers.map(|layer| self.pieces.layer(self.job, layer).weight_gradient).sum();
            let seconds: f64 = own;
            let seconds = seconds + if is_last { output.weight_gradient } else { 0.0 };
            return self.compute("weight gradient", stage, pass, seconds, front);
        }
        self.gather_weights(stage, &mut front);
        if pass.kind == PassKind::Forward {
            if self.pass_seconds > 0.0 {
                front = self.compute("passes", stage, pass, self.pass_seconds, front);
            }
            for layer in layers {
                front = self.layer_forward(stage, pass, layer, front);
            }
            let seconds = if is_last { output.forward } else { 0.0 };
            return self.compute("end", stage, pass, seconds, front);
        }
        let later = |seconds: f64, weight: f64| if gradients { seconds - weight } else { seconds };
        let seconds = if is_last { later(output.backward, output.weight_gradient) } else { 0.0 };
        front = self.compute("begin", stage, pass, seconds, front);
        for layer in layers.rev() {
            if self.pieces.is_recomputed {
                front = self.layer_forward(stage, pass, layer, front);
            }
            front = self.layer_backward(stage, pass, layer, front);
        }
        self.scatter_gradients(stage, front)
    }

    fn layer_forward(&mut self, stage: u32, pass: Pass, layer: u32, front: Front) -> Front {
        let parts = self.pieces.layer(self.job, layer);
        let front = self.half(stage, pass, front, |maker, front| {
            let front = maker.compute("attention", stage, pass, parts.attention.forward, front);
            maker.core(stage, pass, parts.core.forward, false, front)
        });
        self.half(stage, pass, front, |maker, front| {
            let front = maker.experts("dispatch", stage, parts.is_expert, front);
            let seconds = parts.feed_forward.forward;
            let front = maker.compute("feed-forward", stage, pass, seconds, front);
            maker.experts("combine", stage, parts.is_expert, front)
        })
    }

    fn layer_backward(&mut self, stage: u32, pass: Pass, layer: u32, front: Front) -> Front {
        let parts = self.pieces.layer(self.job, layer);
        let is_split = self.job.mapping.is_zero_bubble();
        // The work that ZB-H1 delays is subtracted from both halves in proportion.
        let later = if is_split { parts.weight_gradient } else { 0.0 };
        let both = parts.attention.backward + parts.feed_forward.backward;
        let now = |half: ForwardBackward| half.backward * (1.0 - later / both);
        let front = self.half(stage, pass, front, |maker, front| {
            let front = maker.experts("combine gradient", stage, parts.is_expert, front);
            let seconds = now(parts.feed_forward);
            let front = maker.compute("feed-forward", stage, pass, seconds, front);
            maker.experts("dispatch gradient", stage, parts.is_expert, front)
        });
        self.half(stage, pass, front, |maker, front| {
            let front = maker.core(stage, pass, parts.core.backward, true, front);
            maker.compute("attention", stage, pass, now(parts.attention), front)
        })
    }

    /// Adds TP communication before and after half a layer.
    fn half(
        &mut self,
        stage: u32,
        pass: Pass,
        front: Front,
        work: impl FnOnce(&mut Self, Front) -> Front,
    ) -> Front {
        let front = self.tensor_exchange(CollectiveKind::AllGather, stage, pass, front);
        let front = work(self, front);
        self.tensor_exchange(CollectiveKind::ReduceScatter, stage, pass, front)
    }

    fn compute(&mut self, what: &str, stage: u32, pass: Pass, seconds: f64, front: Front) -> Front {
        let took = picoseconds(seconds);
        let (kind, micro) = (pass.kind, pass.micro_batch);
        let lanes = front.into_iter().enumerate().map(|(lane, after)| {
            if took == Picoseconds::ZERO && after.len() == 1 {
                return after;
            }
            let name = match kind {
                PassKind::Forward => format!("forward {what} s{stage} lane {lane} m{micro}"),
                PassKind::WeightGradient => format!("{what} s{stage} lane {lane} m{micro}"),
                _ => format!("backward {what} s{stage} lane {lane} m{micro}"),
            };
            let rank = self.rank(stage, lane as u32, 0);
            vec![self.add(TaskPurpose::Compute, name, after, TaskWork::Compute { rank, took })]
        });
        lanes.collect()
    }

    fn core(
        &mut self,
        stage: u32,
        pass: Pass,
        seconds: f64,
        is_backward: bool,
        front: Front,
    ) -> Front {
        let context = self.job.mapping.context;
        if context == 1 {
            return self.compute("core", stage, pass, seconds, front);
        }
        let block = self.pieces.context_block_bytes;
        let cut: Vec<Vec<u32>> = groups(self.lanes, context, 1).collect();
        let what = (TaskPurpose::Context, "CP");
        match self.job.calibration.software.context_exchange {
            ContextExchange::Ring => {
                let bytes = Bytes(if is_backward { 2.0 * block } else { block } as u64);
                self.core_in_blocks(stage, pass, seconds, bytes, front)
            }
            ContextExchange::AllGather => {
                let bytes = block * f64::from(context);
                let front =
                    self.spanning(what, CollectiveKind::AllGather, stage, &cut, bytes, front);
                let front = self.compute("core", stage, pass, seconds, front);
                if !is_backward {
                    return front;
                }
                self.spanning(what, CollectiveKind::ReduceScatter, stage, &cut, bytes, front)
            }
            ContextExchange::AllToAll => {
                // Queries, keys and values before the core, its output after it; reversed in the
                // backward pass.
                let [into, out] = self.pieces.context_turn_bytes;
                let (first, second) = if is_backward { (out, into) } else { (into, out) };
                let front = self.across(what, CollectiveKind::AllToAll, stage, &cut, first, front);
                let front = self.compute("core", stage, pass, seconds, front);
                self.across(what, CollectiveKind::AllToAll, stage, &cut, second, front)
            }
        }
    }

    /// Adds the gradient communication of a stage, the optimizer, and the gathering of weights if
    /// replicas share the optimizer states.
    fn finish(&mut self, stage: u32, front: Front) -> Front {
        let software = &self.job.calibration.software;
        let (sharding, gradient_bytes) = (software.sharding, software.gradient_bytes);
        let pass = Pass { kind: PassKind::WeightGradient, piece: 0, micro_batch: 0 };
        let first = match sharding {
            ZeroStage::Replicated => Some(CollectiveKind::AllReduce),
            ZeroStage::Optimizer | ZeroStage::Gradients => Some(CollectiveKind::ReduceScatter),
            ZeroStage::Everything => None,
        };
        let mut front = front;
        if let Some(kind) = first.filter(|_| self.lanes > 1) {
            front = self.replicas(kind, stage, gradient_bytes, front);
        }
        let seconds = self.pieces.optimizer_seconds;
        front = self.compute("optimizer", stage, pass, seconds, front);
        if first == Some(CollectiveKind::ReduceScatter) && self.lanes > 1 {
            return self.replicas(CollectiveKind::AllGather, stage, 2.0, front);
        }
        front
    }

    fn machine(&self, domain_link: Cable, rail_link: Cable) -> Machine {
        let (tensor, stages) = (self.job.mapping.tensor, self.job.mapping.pipeline);
        let rings = stages * self.lanes;
        let network = self.job.network;
        let domain = match network.shape {
            Shape::Switch => Domain::Switches {
                // Domains do not span stages here, so a rank's domain is that of its lane.
                groups: (0..stages)
                    .flat_map(|stage| {
                        let per = (network.domain_gpus / tensor).clamp(1, self.lanes);
                        let starts = (0..self.lanes).step_by(per as usize);
                        starts.map(move |lane| {
                            let end = (lane + per).min(self.lanes);
                            self.rank(stage, lane, 0)..self.rank(stage, end, 0)
                        })
                    })
                    .map(Iterator::collect)
                    .collect(),
            },
            Shape::Ring | Shape::Torus => Domain::Cables,
        };
        let of_ring = |ring: u32| (ring * tensor..(ring + 1) * tensor).collect();
        let rails = (0..self.rails).map(|rail| (0..rings).map(move |ring| ring * tensor + rail));
        Machine {
            ranks: rings * tensor,
            rings: (0..rings).filter(|_| tensor > 1).map(of_ring).collect(),
            domain,
            ring_link: domain_link,
            rails: rails.filter(|_| rings > 1).map(Iterator::collect).collect(),
            rail_link,
            expert_imbalance: self.job.expert_imbalance,
        }
    }
}
