//! The task graph of one training step, and the machine it runs on.
//!
//! ```text
//!   layer:  all-gather ▶ compute ▶ reduce-scatter ▶ all-gather ▶ compute ▶ reduce-scatter     (ring of the stage)
//!   stage:  layers of each pass, passes in 1F1B order, transfers to and from its neighbours    (rail)
//!   step:   stages, then gradients round the replicas of a stage, then the optimizer           (rail)
//! ```
//! Nothing of TP is hidden behind computing here: the graph shows the exchange at its full length. The ranks
//! of a stage use one rail each, and all rails carry the same at the same time; one stands for all unless
//! [`Rails::All`] asks for every one.

use lightloom_fabric::units::{Bytes, Picoseconds};

use super::graph::{GraphError, Task, TaskGraph, TaskId, Work};
use super::replay::Machine;
use super::schedule::stage_order;
use super::step::{Job, Pieces};
use crate::collective::Kind;
use crate::engine::LinkSpec;

/// How many of the equal rails are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rails {
    /// The first stands for all.
    First,
    /// Each.
    All,
}

/// The graph of one step of `job` and its machine: `replicas` of the job's replicas in plain 1F1B, TP
/// rings of `ring_link` cables, rails of `rail_link` cables.
///
/// # Errors
/// Never for a job that has a stage, a replica and a micro-batch: the tasks are made in order.
pub fn step_graph(
    job: &Job<'_>,
    replicas: u32,
    rails: Rails,
    [ring_link, rail_link]: [LinkSpec; 2],
) -> Result<(TaskGraph, Machine), GraphError> {
    let mut maker = Maker {
        pieces: job.pieces(),
        tensor: job.mapping.tensor,
        stages: job.mapping.pipeline,
        layers: job.model.layers,
        replicas,
        rails: if rails == Rails::All { job.mapping.tensor } else { 1 },
        tasks: Vec::new(),
    };
    let micro_batches = job.mapping.micro_batches(job.batch) as usize;
    let last: Vec<TaskId> =
        (0..replicas).flat_map(|replica| maker.pipeline(replica, micro_batches)).collect();
    maker.gradients(&last);
    let machine = maker.machine(ring_link, rail_link);
    Ok((TaskGraph::new(maker.tasks)?, machine))
}

struct Maker {
    pieces: Pieces,
    tensor: u32,
    stages: u32,
    layers: u32,
    replicas: u32,
    rails: u32,
    tasks: Vec<Task>,
}

fn picoseconds(seconds: f64) -> Picoseconds {
    Picoseconds((seconds * 1e12).round() as u64)
}

impl Maker {
    fn ring(&self, replica: u32, stage: u32) -> u32 {
        replica * self.stages + stage
    }

    fn rank(&self, replica: u32, stage: u32, rail: u32) -> u32 {
        self.ring(replica, stage) * self.tensor + rail
    }

    fn machine(&self, ring_link: LinkSpec, rail_link: LinkSpec) -> Machine {
        let ring_count = self.replicas * self.stages;
        let ranks = ring_count * self.tensor;
        let rings = (0..ring_count).map(|ring| ring * self.tensor..(ring + 1) * self.tensor);
        let rails =
            (0..self.rails).map(|rail| (0..ring_count).map(move |ring| ring * self.tensor + rail));
        Machine {
            ranks,
            rings: rings.filter(|_| self.tensor > 1).map(Iterator::collect).collect(),
            ring_link,
            rails: rails.filter(|_| ring_count > 1).map(Iterator::collect).collect(),
            rail_link,
        }
    }

    fn add(&mut self, name: String, after: Vec<TaskId>, work: Work) -> TaskId {
        self.tasks.push(Task { name, after, work });
        TaskId(self.tasks.len() as u32 - 1)
    }

    /// The stages of one replica; the last task of each.
    fn pipeline(&mut self, replica: u32, micro_batches: usize) -> Vec<TaskId> {
        let stages = self.stages as usize;
        let orders: Vec<_> =
            (0..stages).map(|stage| stage_order(stages, stage, micro_batches)).collect();
        // By pass, stage and micro-batch: what must have come before a pass may begin.
        let mut forward: Vec<Vec<Option<Vec<TaskId>>>> = vec![vec![None; micro_batches]; stages];
        let mut backward = forward.clone();
        forward[0] = vec![Some(Vec::new()); micro_batches];
        let mut last: Vec<Option<TaskId>> = vec![None; stages];
        let mut next = vec![0; stages];
        let mut moved = true;
        while moved {
            moved = false;
            for stage in 0..stages {
                while let Some(&(is_forward, micro)) = orders[stage].get(next[stage]) {
                    let ready = if is_forward { &forward } else { &backward };
                    let Some(mut after) = ready[stage][micro].clone() else { break };
                    after.extend(last[stage]);
                    let end = self.pass(replica, stage as u32, micro, is_forward, after);
                    last[stage] = Some(end);
                    let arrived = self.hand_on(replica, stage as u32, micro, is_forward, end);
                    match (is_forward, stage + 1 == stages) {
                        (true, true) => backward[stage][micro] = Some(vec![end]),
                        (true, false) => forward[stage + 1][micro] = Some(arrived),
                        (false, _) if stage > 0 => backward[stage - 1][micro] = Some(arrived),
                        (false, _) => {}
                    }
                    next[stage] += 1;
                    moved = true;
                }
            }
        }
        last.into_iter().flatten().collect()
    }

    /// One pass of one micro-batch over the layers of a stage; its last task.
    fn pass(
        &mut self,
        replica: u32,
        stage: u32,
        micro: usize,
        is_forward: bool,
        after: Vec<TaskId>,
    ) -> TaskId {
        let label = if is_forward { "forward" } else { "backward" };
        let name = |what: &str| format!("{label} {what} r{replica} s{stage} m{micro}");
        let layers = self.layers * (stage + 1) / self.stages - self.layers * stage / self.stages;
        let pieces = self.pieces;
        let (seconds, output, gathers) = if is_forward {
            (pieces.layer_forward_seconds, pieces.output_forward_seconds, 2)
        } else {
            let gathers = pieces.backward_gathers;
            (pieces.layer_backward_seconds, pieces.output_backward_seconds, gathers)
        };
        let rank = self.rank(replica, stage, 0);
        let mut after = after;
        let is_last = stage + 1 == self.stages;
        if is_last && !is_forward {
            let work = Work::Compute { rank, took: picoseconds(output) };
            after = vec![self.add(name("output"), after, work)];
        }
        for _ in 0..layers * gathers {
            after = self.exchange(&name("gather"), Kind::AllGather, replica, stage, after);
            let work = Work::Compute { rank, took: picoseconds(seconds / f64::from(gathers)) };
            after = vec![self.add(name("compute"), after, work)];
            after = self.exchange(&name("scatter"), Kind::ReduceScatter, replica, stage, after);
        }
        if is_last && is_forward || after.len() != 1 {
            let took = if is_last { picoseconds(output) } else { Picoseconds::ZERO };
            after = vec![self.add(name("output"), after, Work::Compute { rank, took })];
        }
        after[0]
    }

    fn exchange(
        &mut self,
        name: &str,
        kind: Kind,
        replica: u32,
        stage: u32,
        after: Vec<TaskId>,
    ) -> Vec<TaskId> {
        if self.tensor == 1 {
            return after;
        }
        let ring = self.ring(replica, stage);
        let bytes = Bytes(self.pieces.exchange_bytes as u64);
        vec![self.add(name.to_owned(), after, Work::Ring { kind, ring, bytes })]
    }

    /// Hands the result of a pass to the next stage in its direction; the transfers that bring it.
    fn hand_on(
        &mut self,
        replica: u32,
        stage: u32,
        micro: usize,
        is_forward: bool,
        end: TaskId,
    ) -> Vec<TaskId> {
        let to = match (is_forward, stage) {
            (true, stage) if stage + 1 < self.stages => stage + 1,
            (false, stage) if stage > 0 => stage - 1,
            _ => return Vec::new(),
        };
        let bytes = Bytes(self.pieces.transfer_bytes as u64);
        (0..self.rails)
            .map(|rail| {
                let (from, to) = (self.rank(replica, stage, rail), self.rank(replica, to, rail));
                let name = format!("transfer r{replica} s{stage} m{micro} rail {rail}");
                self.add(name, vec![end], Work::Transfer { from, to, bytes })
            })
            .collect()
    }

    /// Gradients round the replicas of each stage, then the optimizer. `last` is by replica and stage.
    fn gradients(&mut self, last: &[TaskId]) {
        for stage in 0..self.stages {
            let ends: Vec<TaskId> =
                last.iter().skip(stage as usize).step_by(self.stages as usize).copied().collect();
            let mut after = ends.clone();
            if self.replicas > 1 {
                let bytes = Bytes(self.pieces.gradient_bytes as u64);
                after = (0..self.rails)
                    .map(|rail| {
                        let ranks = (0..self.replicas).map(|r| self.rank(r, stage, rail)).collect();
                        let work = Work::Across { kind: Kind::AllReduce, ranks, bytes };
                        self.add(format!("gradients s{stage} rail {rail}"), ends.clone(), work)
                    })
                    .collect();
            }
            let rank = self.rank(0, stage, 0);
            let took = picoseconds(self.pieces.optimizer_seconds);
            self.add(format!("optimizer s{stage}"), after, Work::Compute { rank, took });
        }
    }
}
