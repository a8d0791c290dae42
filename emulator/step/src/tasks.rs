// SPDX-License-Identifier: Apache-2.0
//! Converts a step to tasks with dependencies, and builds its machine.
//!
//! A *lane* is one of the `replicas × CP` TP groups of a stage. Overlap in the layer programs
//! ([`crate::program`]) becomes dependencies. Each rank of a lane uses one rail, and all rails
//! carry the same traffic, so [`SimulatedRails::First`] simulates only one.

mod exchange;

use lightloom_units::Picoseconds;

use crate::graph::{Task, TaskGraph, TaskId, TaskPace, TaskPaces, TaskWork};
use crate::machine::{Cable, Domain, Machine};
use crate::network::{Network, Shape};
use crate::program::{LayerProgram, Overlap, Stretch};
use crate::schedule::{Pass, PassKind, Pipeline};
use crate::work::StepWork;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedRails {
    First,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskPurpose {
    Compute,
    Tensor,
    Context,
    Expert,
    Pipeline,
    Data,
    Generation,
    Samples,
    Weights,
    Reshard,
}

#[derive(Clone, Debug)]
pub struct Before {
    pub tasks: Vec<(TaskPurpose, Task)>,
    /// Dependencies of the first pass of each micro-batch and lane. May be shorter than the number of micro-batches.
    pub inputs: Vec<Vec<Vec<TaskId>>>,
    /// Additional forward passes before each micro-batch, in seconds.
    pub pass_seconds: f64,
    pub pace: TaskPace,
}

#[derive(Clone, Debug)]
pub struct StepTasks {
    pub tasks: Vec<Task>,
    pub purposes: Vec<TaskPurpose>,
    pub paces: TaskPaces,
    pub ends: Front,
}

/// Returns the tasks of one step and their purposes. TP group `stage · lanes + lane` is a ring, with `lane = replica ·
/// CP + context rank`. Its rank `r` is rank `ring · TP + r`. Panics if the stages would wait for each other because
/// interleaved stages do not divide the micro-batches.
pub fn step_tasks(work: &StepWork, rails: SimulatedRails) -> (TaskGraph, Vec<TaskPurpose>) {
    let StepTasks { tasks, purposes, paces, .. } = {
        let (tasks, inputs, pace) = (Vec::new(), Vec::new(), TaskPace::BARE);
        step_after(work, rails, Before { tasks, inputs, pass_seconds: 0.0, pace })
    };
    let graph = TaskGraph::new(tasks).expect("tasks are created in order");
    (graph.with_paces(paces), purposes)
}

/// Like [`step_tasks`], but after other tasks.
pub fn step_after(work: &StepWork, rails: SimulatedRails, before: Before) -> StepTasks {
    let mut maker = Maker::new(work, rails);
    before.tasks.iter().for_each(|_| maker.paces.push(before.pace));
    (maker.purposes, maker.tasks) = before.tasks.into_iter().unzip();
    (maker.inputs, maker.pass_seconds) = (before.inputs, before.pass_seconds);
    maker.step()
}

pub fn step_machine(
    work: &StepWork,
    network: &Network,
    rails: SimulatedRails,
    [domain, rail]: [Cable; 2],
    expert_imbalance: f64,
) -> Machine {
    let maker = Maker::new(work, rails);
    let (tensor, rings) = (work.mapping.tensor, work.mapping.pipeline * maker.lanes);
    let per = (1..=(network.domain_gpus / tensor).clamp(1, rings))
        .rev()
        .find(|per| rings.is_multiple_of(*per))
        .unwrap_or(1);
    let tensor_rings = (0..rings).map(|ring| (ring * tensor..(ring + 1) * tensor).collect());
    let rails = (0..maker.rails).map(|rail| (0..rings).map(|ring| ring * tensor + rail).collect());
    Machine {
        ranks: rings * tensor,
        rings: if tensor > 1 { tensor_rings.collect() } else { Vec::new() },
        domain: match network.shape {
            Shape::Switch => Domain::Switches {
                groups: (0..rings)
                    .step_by(per as usize)
                    .map(|ring| (ring * tensor..(ring + per) * tensor).collect())
                    .collect(),
            },
            Shape::Ring | Shape::Torus => Domain::Cables,
        },
        ring_link: domain,
        rails: if rings > 1 { rails.collect() } else { Vec::new() },
        rail_link: rail,
        expert_imbalance,
    }
}

struct Maker<'w> {
    work: &'w StepWork,
    lanes: u32,
    rails: u32,
    tasks: Vec<Task>,
    purposes: Vec<TaskPurpose>,
    paces: TaskPaces,
    inputs: Vec<Front>,
    pass_seconds: f64,
    streams: Vec<Front>,
    weights: Vec<Front>,
}

pub type Front = Vec<Vec<TaskId>>;

fn join(mut front: Front, other: &Front) -> Front {
    for (own, other) in front.iter_mut().zip(other) {
        own.extend(other.iter().filter(|task| !own.contains(task)).copied().collect::<Vec<_>>());
    }
    front
}

#[derive(Clone, Copy)]
struct StagePass {
    stage: u32,
    pass: Pass,
}

struct PassEnds {
    end: Front,
    sent: Option<Front>,
}

impl<'w> Maker<'w> {
    fn new(work: &'w StepWork, rails: SimulatedRails) -> Self {
        let mapping = &work.mapping;
        let lanes = mapping.data * mapping.context;
        Self {
            work,
            lanes,
            rails: if rails == SimulatedRails::All { mapping.tensor } else { 1 },
            tasks: Vec::new(),
            purposes: Vec::new(),
            paces: TaskPaces::default(),
            inputs: Vec::new(),
            pass_seconds: 0.0,
            streams: vec![vec![Vec::new(); lanes as usize]; mapping.pipeline as usize],
            weights: Vec::new(),
        }
    }
}

impl Maker<'_> {
    fn ring(&self, stage: u32, lane: u32) -> u32 {
        stage * self.lanes + lane
    }

    fn add(
        &mut self,
        purpose: TaskPurpose,
        name: String,
        after: Vec<TaskId>,
        work: TaskWork,
        pace: TaskPace,
    ) -> TaskId {
        self.purposes.push(purpose);
        self.paces.push(pace);
        self.tasks.push(Task { name, after, work });
        TaskId(self.tasks.len() as u32 - 1)
    }

    fn step(mut self) -> StepTasks {
        let mapping = self.work.mapping;
        let pipeline = Pipeline {
            schedule: mapping.schedule,
            stages: mapping.pipeline as usize,
            pieces: mapping.virtual_stages as usize,
            micro_batches: self.work.micro_batches as usize,
        };
        let places = pipeline.stages * pipeline.pieces;
        let nothing: Front = vec![Vec::new(); self.lanes as usize];
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
            let front = join(last[stage].clone(), inputs);
            let next = match pass.kind {
                PassKind::Forward if place + 1 < places => Some(place + 1),
                PassKind::Backward | PassKind::InputGradient => place.checked_sub(1),
                _ => None,
            };
            let to = next.map(|next| (next % pipeline.stages) as u32);
            let slot = StagePass { stage: stage as u32, pass };
            let PassEnds { end, sent } = self.pass(slot, place, places, to, front);
            let arrives = sent.unwrap_or_else(|| end.clone());
            match (pass.kind, next) {
                (PassKind::Forward, Some(next)) => forward[next][micro] = arrives,
                (PassKind::Forward, None) => backward[place][micro] = arrives,
                (_, Some(next)) => backward[next][micro] = arrives,
                (_, None) => {}
            }
            last[stage] = end;
        });
        assert!(is_whole, "stages wait for each other");
        let stages = last.into_iter().enumerate();
        let ends = stages.flat_map(|(stage, front)| self.finish(stage as u32, front)).collect();
        let Self { tasks, purposes, paces, .. } = self;
        StepTasks { tasks, purposes, paces, ends }
    }

    fn pass(
        &mut self,
        slot: StagePass,
        place: usize,
        places: usize,
        to: Option<u32>,
        mut front: Front,
    ) -> PassEnds {
        let work = self.work;
        let layers: Vec<u32> = work.layers_of(place as u32, places as u32).collect();
        let is_last = place + 1 == places;
        let (output, is_split) = (&work.output, work.mapping.is_zero_bubble());
        match slot.pass.kind {
            PassKind::Forward => {
                front = self.gathered(slot, &layers, front);
                front = self.compute("passes", slot, self.pass_seconds, front);
                let mut passed = self.layers(slot, to, &layers, front);
                if is_last {
                    passed.end = self.compute("end", slot, output.forward.total(), passed.end);
                }
                passed
            }
            PassKind::WeightGradient => {
                if is_last {
                    front = self.compute("weight gradient", slot, output.weight_gradient, front);
                }
                for (at, layer) in layers.iter().rev().enumerate() {
                    let seconds = work.layer(*layer).weight_gradient;
                    front = self.compute("weight gradient", slot, seconds, front);
                    front = self.reduced(slot, at, layers.len(), front);
                }
                PassEnds { end: front, sent: None }
            }
            PassKind::Backward | PassKind::InputGradient => {
                if work.is_sharded {
                    front = self.gathered(slot, &layers, front);
                }
                let later = if is_split { output.weight_gradient } else { 0.0 };
                if is_last {
                    front = self.compute("begin", slot, output.backward.total() - later, front);
                }
                let layers: Vec<u32> = layers.into_iter().rev().collect();
                let mut passed = self.layers(slot, to, &layers, front);
                if work.is_sharded {
                    passed.end = self.shown_gradients(slot.stage, layers.len(), passed.end);
                }
                passed
            }
        }
    }

    fn layers(
        &mut self,
        slot: StagePass,
        to: Option<u32>,
        layers: &[u32],
        mut front: Front,
    ) -> PassEnds {
        let work = self.work;
        let transfer = work.transfer.filter(|_| to.is_some_and(|to| to != slot.stage));
        let (mut hidden, is_forward) = (None, slot.pass.kind == PassKind::Forward);
        for (at, layer) in layers.iter().enumerate() {
            if at + 1 == layers.len()
                && let (Some(transfer), Some(to)) = (&transfer, to)
            {
                let part = transfer.part(1.0 - work.transfer_shown);
                hidden = Some(self.hand_on(slot.stage, to, &part, &front));
            }
            let own = work.layer(*layer);
            front = self.wait_for_weights(slot, at, front);
            if is_forward {
                front = self.program(slot, &own.forward, front);
                continue;
            }
            front = self.program(slot, &own.backward, front);
            if !work.mapping.is_zero_bubble() {
                front = self.compute("weight gradient", slot, own.weight_gradient, front);
                front = self.reduced(slot, at, layers.len(), front);
            }
        }
        let (Some(transfer), Some(to)) = (&transfer, to) else {
            return PassEnds { end: front, sent: None };
        };
        let shown = if hidden.is_some() { work.transfer_shown } else { 1.0 };
        let mut after = front.clone();
        if let Some(hidden) = &hidden {
            after = join(after, hidden);
        }
        let sent = self.hand_on(slot.stage, to, &transfer.part(shown), &after);
        PassEnds { end: join(front, &sent), sent: Some(sent) }
    }

    fn program(&mut self, slot: StagePass, program: &LayerProgram, mut front: Front) -> Front {
        let mut beside = front.clone();
        let (mut name, mut pending) = ("", 0.0);
        for stretch in &program.stretches {
            let Some(exchange) = &stretch.exchange else {
                name = if pending == 0.0 { stretch.name } else { name };
                pending += f64::from(stretch.count) * stretch.seconds;
                continue;
            };
            front = self.compute(name, slot, std::mem::take(&mut pending), front);
            if stretch.cover == Overlap::Beside {
                let [shown, hidden] = stretch.parts(exchange);
                beside = self.exchange(slot.stage, &hidden, beside);
                front = self.exchange(slot.stage, &shown, front);
                continue;
            }
            for _ in 0..stretch.count {
                front = self.covered(slot, stretch, front);
            }
        }
        front = self.compute(name, slot, pending, front);
        join(front, &beside)
    }

    fn covered(&mut self, slot: StagePass, stretch: &Stretch, mut front: Front) -> Front {
        let Some(exchange) = &stretch.exchange else { return front };
        let [shown, hidden] = stretch.parts(exchange);
        if stretch.cover == Overlap::Before {
            front = self.exchange(slot.stage, &shown, front);
        }
        let covered = self.exchange(slot.stage, &hidden, front.clone());
        front = self.compute(stretch.name, slot, stretch.seconds, front);
        front = join(front, &covered);
        if stretch.cover == Overlap::After {
            front = self.exchange(slot.stage, &shown, front);
        }
        front
    }

    fn compute(&mut self, what: &str, slot: StagePass, seconds: f64, front: Front) -> Front {
        let took = Picoseconds::from_secs_f64(seconds * (1.0 + self.work.jitter));
        if took == Picoseconds::ZERO {
            return front;
        }
        let (StagePass { stage, pass }, tensor) = (slot, self.work.mapping.tensor);
        let direction = if pass.kind == PassKind::Forward { "forward" } else { "backward" };
        let lanes = front.into_iter().enumerate().map(|(lane, after)| {
            let name = format!("{direction} {what} s{stage} lane {lane} m{}", pass.micro_batch);
            let rank = self.ring(stage, lane as u32) * tensor;
            let work = TaskWork::Compute { rank, took };
            vec![self.add(TaskPurpose::Compute, name, after, work, TaskPace::BARE)]
        });
        lanes.collect()
    }

    fn finish(&mut self, stage: u32, front: Front) -> Front {
        let work = self.work;
        let pass = Pass { kind: PassKind::WeightGradient, piece: 0, micro_batch: 0 };
        let mut front = front;
        let layers = self.stage_layers(stage);
        if !work.is_sharded {
            front = self.shown_gradients(stage, layers, front);
        }
        front = self.compute("optimizer", StagePass { stage, pass }, work.optimizer_seconds, front);
        if !work.is_sharded && work.data_shown >= 1.0 {
            front = self.bucket(stage, &work.gather, layers as f64, front);
        }
        front
    }

    fn stage_layers(&self, stage: u32) -> usize {
        let mapping = &self.work.mapping;
        let places = mapping.pipeline * mapping.virtual_stages;
        let own = (0..mapping.virtual_stages)
            .map(|piece| self.work.layers_of(piece * mapping.pipeline + stage, places).len());
        own.sum()
    }
}
