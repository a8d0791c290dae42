// SPDX-License-Identifier: Apache-2.0
//! Builds the task graph of a reinforcement learning step.
//!
//! ```text
//! pool      generate ▶ samples ▶ generate ▶ samples ▶ … ▶ the last ones ─────┐
//!                        │ one step off: for the next step                   ▼
//! trainer   forward passes and micro-batches ▶ gradients ▶ optimizer ▶ new weights ▶ replicas of another size
//! ```
//! The trainer has the first ranks and the pool the following ones, replica by replica. Replicas
//! generate in chunks and send finished samples after each chunk; [`batching`](crate::batching)
//! computes the duration of a chunk, which includes communication inside the replica.

use std::collections::BTreeMap;

use lightloom_fabric::file::SyncMethod;
use lightloom_units::{Bytes, Picoseconds};

use super::TrainingLoop;
use crate::batching::{ReplicaCosts, Request, StepCosts, serve};
use crate::graph::{Task, TaskGraph, TaskId, TaskPace, TaskWork};
use crate::network::Group;
use crate::step::Job;
use crate::tasks::{Before, SimulatedRails, StepTasks, TaskPurpose, step_after};

const CHUNKS: usize = 8;
/// A relay forwards weights in this many parts, so that it need not wait for all of them.
const PIECES: u64 = 8;
const SAMPLE_TOKEN_BYTES: u64 = 8;

/// Work of a replica between two transfers of samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    pub seconds: f64,
    pub samples: Vec<usize>,
    /// Additional time after a loss of memory, to reload weights and prefill cached tokens.
    pub again_seconds: f64,
}

#[derive(Clone, Debug)]
pub struct PoolStep {
    /// [`TrainingLoop::Asynchronous`] is not supported because its generation has no steps.
    pub training_loop: TrainingLoop,
    /// GPUs of a replica, first for most samples and then for the tail.
    pub replica_gpus: [u32; 2],
    pub tensor: u32,
    pub chunks: Vec<Vec<Chunk>>,
    /// Prompt and answer tokens of each sample, in the order of their ends.
    pub tokens: Vec<u64>,
    /// Leaf of each rank, starting with the trainer's ranks.
    pub leaves: Vec<u32>,
    pub method: SyncMethod,
    pub weight_bytes: u64,
    pub delta_share: f64,
    /// Cache bytes that each replica sends to the next one per step.
    pub moved_bytes: u64,
    pub pass_seconds: f64,
}

#[derive(Clone, Debug)]
pub struct ReinforcementTasks {
    pub graph: TaskGraph,
    pub purposes: Vec<TaskPurpose>,
    pub again: BTreeMap<TaskId, Picoseconds>,
}

/// Returns the chunks of each replica, and the tokens of the samples in the order of their ends.
/// `reload` is the time in seconds for a GPU to fetch its part of the weights.
pub fn generate(
    costs: &ReplicaCosts,
    replicas: u32,
    samples: &[Request],
    reload: f64,
) -> (Vec<Vec<Chunk>>, Vec<u64>) {
    let served = serve(costs, replicas, samples, 0);
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.retain(|one| served.ended[*one].is_finite());
    order.sort_by(|a, b| served.ended[*a].total_cmp(&served.ended[*b]));
    let tokens = order.iter().map(|one| samples[*one].tokens()).collect();
    let chunks = (0..replicas).map(|replica| {
        let own: Vec<usize> =
            (0..order.len()).filter(|at| served.replica[order[*at]] == replica).collect();
        let mut since = 0.0;
        let parts = (0..CHUNKS).map(|part| {
            let [first, end] = [part, part + 1].map(|part| own.len() * part / CHUNKS);
            let ended = own[first..end].last().map_or(since, |at| served.ended[order[*at]]);
            let held = own.iter().map(|at| order[*at]).filter(|one| {
                served.first[*one] <= since && served.ended[*one] > since && since > 0.0
            });
            let passes = held.map(|one| {
                let (begun, ends) = (served.first[one], served.ended[one]);
                let done = f64::from(samples[one].output) * (since - begun) / (ends - begun);
                costs.prompt_seconds(samples[one].prompt + done as u32)
            });
            let again_seconds = reload + passes.sum::<f64>();
            let chunk =
                Chunk { seconds: ended - since, samples: own[first..end].to_vec(), again_seconds };
            since = ended;
            chunk
        });
        parts.filter(|chunk| !chunk.samples.is_empty()).collect()
    });
    (chunks.collect(), tokens)
}

impl PoolStep {
    pub fn generation_seconds(&self) -> f64 {
        self.chunks
            .iter()
            .map(|chunks| chunks.iter().map(|chunk| chunk.seconds).sum::<f64>())
            .fold(0.0, f64::max)
    }

    /// Closed form without congestion, for the given training time and network card rate.
    pub fn step_seconds(&self, training: f64, card_rate: f64) -> f64 {
        let generation = self.generation_seconds();
        let both = match self.training_loop {
            TrainingLoop::Synchronous => generation + training,
            TrainingLoop::Streaming => super::streamed(&self.ended(), training),
            _ => generation.max(training),
        };
        both + self.weights_seconds(card_rate)
    }

    fn ended(&self) -> Vec<f64> {
        let mut ended = Vec::new();
        for chunks in &self.chunks {
            let mut end = 0.0;
            for chunk in chunks {
                end += chunk.seconds;
                ended.resize(ended.len() + chunk.samples.len(), end);
            }
        }
        ended.sort_unstable_by(f64::total_cmp);
        ended
    }

    /// Returns how long the busiest network card sends the new weights and, after a change of
    /// replica size, the weights that GPUs lack.
    pub fn weights_seconds(&self, card_rate: f64) -> f64 {
        let trainer = (self.leaves.len() - self.pool_gpus()) as u32;
        let both = [self.weights(trainer), self.reshard(trainer)].map(|transfers| {
            let (mut sent, mut received) = (vec![0; self.leaves.len()], vec![0; self.leaves.len()]);
            for one in transfers {
                // Transfers inside a TP group use its ring, not the network cards.
                if one.from / self.tensor != one.to / self.tensor {
                    sent[one.from as usize] += one.bytes.0;
                    received[one.to as usize] += one.bytes.0;
                }
            }
            sent.into_iter().chain(received).max().unwrap_or(0) as f64 / card_rate
        });
        both[0] + both[1]
    }

    fn pool_gpus(&self) -> usize {
        self.chunks.len() * self.replica_gpus[0] as usize
    }

    fn sent_bytes(&self) -> u64 {
        (self.weight_bytes as f64 * self.delta_share).round() as u64
    }

    fn weights(&self, trainer: u32) -> Vec<RankTransfer> {
        if self.method == SyncMethod::Shards {
            return self.shards(trainer);
        }
        let roots = by_leaf(&self.leaves, 0..trainer);
        let mut all = Vec::new();
        let pieces = if self.method == SyncMethod::Relay { PIECES } else { 1 };
        let replicas = self.chunks.len();
        for (shard, (_, senders)) in roots.iter().enumerate() {
            let holders: Vec<Vec<u32>> = (0..replicas)
                .map(|position| {
                    let replica = (position + shard) % replicas;
                    let leaves = by_leaf(&self.leaves, self.replica(trainer, replica));
                    let count = leaves.len();
                    leaves.into_iter().nth(shard % count).map(|(_, gpus)| gpus).unwrap_or_default()
                })
                .collect();
            let most = holders.iter().map(Vec::len).chain([senders.len()]).max().unwrap_or(1);
            let whole = (roots.len() * most) as u64 * pieces;
            for slice in 0..most as u64 * pieces {
                let number = shard as u64 * most as u64 * pieces + slice;
                let bytes = part(self.sent_bytes(), number, whole);
                let of = |gpus: &[u32]| gpus[(slice / pieces) as usize % gpus.len()];
                let first = all.len();
                for position in 0..replicas {
                    let parent = position.checked_sub(1).map(|before| before / 2);
                    let parent = parent.filter(|_| self.method == SyncMethod::Relay);
                    let from = parent.map_or(of(senders), |parent| of(&holders[parent]));
                    let after = parent.map(|parent| first + parent);
                    all.push(RankTransfer { from, to: of(&holders[position]), bytes, after });
                }
            }
        }
        all
    }

    /// Every GPU receives its slice in equal parts from all trainer ranks that have part of it.
    fn shards(&self, trainer: u32) -> Vec<RankTransfer> {
        let (size, tp) = (self.replica_gpus[0], self.tensor);
        let mut all = Vec::new();
        let holders = trainer / tp;
        let whole = u64::from(tp) * u64::from(size) * u64::from(holders);
        for replica in 0..self.chunks.len() {
            let mut at = 0;
            for (mine, to) in (0..).zip(self.replica(trainer, replica)) {
                for from in 0..trainer {
                    let tensor = from % tp;
                    let end = ((mine + 1) * tp).min((tensor + 1) * size);
                    let common = end.saturating_sub((mine * tp).max(tensor * size));
                    if common > 0 {
                        let bytes = span(self.sent_bytes(), [at, at + u64::from(common)], whole);
                        at += u64::from(common);
                        all.push(RankTransfer { from, to, bytes, after: None });
                    }
                }
            }
        }
        all
    }

    fn reshard(&self, trainer: u32) -> Vec<RankTransfer> {
        let [before, after] = self.replica_gpus;
        if before == after {
            return Vec::new();
        }
        let whole = u64::from(before) * u64::from(after);
        let mut all = Vec::new();
        for gpu in 0..self.pool_gpus() as u32 {
            let wanted = (gpu % after) * before..(gpu % after + 1) * before;
            for holder in (0..before).filter(|holder| *holder != gpu % before) {
                let end = wanted.end.min((holder + 1) * after);
                let common = end.saturating_sub(wanted.start.max(holder * after));
                if common > 0 {
                    let bytes = span(self.weight_bytes, [0, u64::from(common)], whole);
                    let from = trainer + gpu / before * before + holder;
                    all.push(RankTransfer { from, to: trainer + gpu, bytes, after: None });
                }
            }
        }
        all
    }

    fn replica(&self, trainer: u32, replica: usize) -> std::ops::Range<u32> {
        let first = trainer + replica as u32 * self.replica_gpus[0];
        first..first + self.replica_gpus[0]
    }
}

/// `after` is the index of the transfer that delivers its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RankTransfer {
    from: u32,
    to: u32,
    bytes: Bytes,
    after: Option<usize>,
}

/// Bytes of units `first` to `end` out of `whole`. The spans of a partition add up to `size`.
fn span(size: u64, [first, end]: [u64; 2], whole: u64) -> Bytes {
    let [first, end] =
        [first, end].map(|part| (u128::from(size) * u128::from(part) / u128::from(whole)) as u64);
    Bytes(end - first)
}

fn part(size: u64, number: u64, whole: u64) -> Bytes {
    span(size, [number, number + 1], whole)
}

fn by_leaf(leaves: &[u32], ranks: std::ops::Range<u32>) -> Vec<(u32, Vec<u32>)> {
    let mut all: Vec<(u32, Vec<u32>)> = Vec::new();
    for rank in ranks {
        let leaf = leaves[rank as usize];
        match all.iter_mut().find(|(of, _)| *of == leaf) {
            Some((_, ranks)) => ranks.push(rank),
            None => all.push((leaf, vec![rank])),
        }
    }
    all
}

/// `trainer` has the first ranks and `pool` the others, in TP groups of the trainer's size.
pub fn reinforcement_tasks(trainer: &Job<'_>, pool: &PoolStep) -> ReinforcementTasks {
    let mut writer = TaskWriter {
        pool,
        trainer: trainer.mapping.gpus() as u32,
        tensor: trainer.mapping.tensor,
        tasks: Vec::new(),
        again: BTreeMap::new(),
        last: Vec::new(),
    };
    let arrived = writer.generation(trainer);
    let inputs = writer.inputs(trainer, &arrived);
    let tasks = std::mem::take(&mut writer.tasks);
    let links = &trainer.calibration.network;
    let apart = Group::new(2, u64::MAX / 2);
    let pace = TaskPace::of(&trainer.network.neighbour(apart, 0.0, links).1);
    let before = Before { tasks, inputs, pass_seconds: pool.pass_seconds, pace };
    let StepTasks { tasks, purposes, mut paces, ends } =
        step_after(&trainer.work(), SimulatedRails::All, before);
    let first = tasks.len();
    writer.tasks = purposes.into_iter().zip(tasks).collect();
    writer.new_weights(&ends);
    writer.tasks[first..].iter().for_each(|_| paces.push(pace));
    let (purposes, tasks) = writer.tasks.into_iter().unzip();
    let graph = TaskGraph::new(tasks).expect("no task waits for itself").with_paces(paces);
    ReinforcementTasks { graph, purposes, again: writer.again }
}

struct TaskWriter<'p> {
    pool: &'p PoolStep,
    trainer: u32,
    tensor: u32,
    tasks: Vec<(TaskPurpose, Task)>,
    again: BTreeMap<TaskId, Picoseconds>,
    last: Vec<Vec<TaskId>>,
}

fn place(trainer: &Job<'_>, sample: usize) -> (usize, usize) {
    let mapping = &trainer.mapping;
    let lanes = (mapping.data * mapping.context) as usize;
    let group = sample / mapping.micro_batch as usize;
    let last = mapping.micro_batches(trainer.batch) as usize - 1;
    ((group / lanes).min(last), group % lanes)
}

impl TaskWriter<'_> {
    fn add(
        &mut self,
        purpose: TaskPurpose,
        name: String,
        after: Vec<TaskId>,
        work: TaskWork,
    ) -> TaskId {
        self.tasks.push((purpose, Task { name, after, work }));
        TaskId(self.tasks.len() as u32 - 1)
    }

    fn transfer(
        &mut self,
        purpose: TaskPurpose,
        after: Vec<TaskId>,
        sending: RankTransfer,
    ) -> TaskId {
        let RankTransfer { from, to, bytes, .. } = sending;
        let name = format!("{purpose:?} {from} to {to}").to_lowercase();
        self.add(purpose, name, after, TaskWork::Transfer { from, to, bytes })
    }

    fn join(&mut self, purpose: TaskPurpose, rank: u32, after: Vec<TaskId>) -> TaskId {
        let work = TaskWork::Compute { rank, took: Picoseconds::ZERO };
        self.add(purpose, format!("{purpose:?} there").to_lowercase(), after, work)
    }

    fn generation(&mut self, trainer: &Job<'_>) -> Vec<Option<TaskId>> {
        let pool = self.pool;
        let mut arrived = vec![None; pool.tokens.len()];
        let mut chunks: Vec<Vec<Vec<TaskId>>> = Vec::new();
        for (replica, own) in pool.chunks.iter().enumerate() {
            let ranks = pool.replica(self.trainer, replica);
            let mut done: Vec<Vec<TaskId>> = Vec::new();
            for (number, chunk) in own.iter().enumerate() {
                let after = done.last().cloned().unwrap_or_default();
                // No group starts a chunk before all groups have finished the previous one.
                let parts = ranks.clone().step_by(self.tensor as usize).map(|rank| {
                    let took = Picoseconds::from_secs_f64(chunk.seconds);
                    let name = format!("generate replica {replica} chunk {number}");
                    let work = TaskWork::Compute { rank, took };
                    let id = self.add(TaskPurpose::Generation, name, after.clone(), work);
                    self.again.insert(id, Picoseconds::from_secs_f64(chunk.again_seconds));
                    id
                });
                let parts: Vec<TaskId> = parts.collect();
                let from = ranks.start + number as u32 % pool.replica_gpus[0];
                self.hand_over(trainer, replica, from, &parts, chunk, &mut arrived);
                done.push(parts);
            }
            chunks.push(done);
        }
        self.last = chunks.iter().map(|own| own.last().cloned().unwrap_or_default()).collect();
        if pool.moved_bytes > 0 {
            self.move_caches(&chunks);
        }
        arrived
    }

    fn hand_over(
        &mut self,
        trainer: &Job<'_>,
        replica: usize,
        from: u32,
        parts: &[TaskId],
        chunk: &Chunk,
        arrived: &mut [Option<TaskId>],
    ) {
        let mut by_lane: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for sample in &chunk.samples {
            by_lane.entry(place(trainer, *sample).1).or_default().push(*sample);
        }
        for (lane, samples) in by_lane {
            let tokens: u64 = samples.iter().map(|sample| self.pool.tokens[*sample]).sum();
            let to = lane as u32 * self.tensor + replica as u32 % self.tensor;
            let bytes = Bytes(tokens * SAMPLE_TOKEN_BYTES);
            let sending = RankTransfer { from, to, bytes, after: None };
            let sent = self.transfer(TaskPurpose::Samples, parts.to_vec(), sending);
            samples.iter().for_each(|sample| arrived[*sample] = Some(sent));
        }
    }

    /// Half-way through its chunks, each replica sends part of its caches to the next one.
    fn move_caches(&mut self, chunks: &[Vec<Vec<TaskId>>]) {
        let (pool, size) = (self.pool, u64::from(self.pool.replica_gpus[0]));
        for (replica, own) in chunks.iter().enumerate().filter(|(_, own)| !own.is_empty()) {
            let next = (replica + 1) % chunks.len();
            let middle = (own.len() - 1) / 2;
            let pairs = pool.replica(self.trainer, replica).zip(pool.replica(self.trainer, next));
            let mut moved = Vec::new();
            for (number, (from, to)) in (0..).zip(pairs) {
                let bytes = part(pool.moved_bytes, number, size);
                let sending = RankTransfer { from, to, bytes, after: None };
                moved.push(self.transfer(TaskPurpose::Samples, own[middle].clone(), sending));
            }
            self.last[next].extend(moved);
        }
    }

    fn inputs(&mut self, trainer: &Job<'_>, arrived: &[Option<TaskId>]) -> Vec<Vec<Vec<TaskId>>> {
        let mapping = &trainer.mapping;
        let lanes = (mapping.data * mapping.context) as usize;
        match self.pool.training_loop {
            TrainingLoop::OneStepOff | TrainingLoop::Asynchronous => Vec::new(),
            TrainingLoop::Synchronous => {
                let mut all: Vec<TaskId> = arrived.iter().flatten().copied().collect();
                all.sort_unstable();
                all.dedup();
                let there = self.join(TaskPurpose::Samples, 0, all);
                vec![vec![vec![there]; lanes]]
            }
            TrainingLoop::Streaming => {
                let count = mapping.micro_batches(trainer.batch) as usize;
                let mut inputs: Vec<_> = (0..count).map(|_| vec![Vec::new(); lanes]).collect();
                for (sample, task) in arrived.iter().enumerate() {
                    let (micro, lane) = place(trainer, sample);
                    let waits: &mut Vec<TaskId> = &mut inputs[micro][lane];
                    waits.extend(task.filter(|task| !waits.contains(task)));
                }
                inputs
            }
        }
    }

    fn new_weights(&mut self, ends: &[Vec<TaskId>]) {
        let pool = self.pool;
        let size = pool.replica_gpus[0];
        let mut ids: Vec<TaskId> = Vec::new();
        let mut there: Vec<Vec<TaskId>> = vec![Vec::new(); pool.chunks.len()];
        for sending in pool.weights(self.trainer) {
            let to = ((sending.to - self.trainer) / size) as usize;
            let mut after = self.last[to].clone();
            match sending.after {
                Some(before) => after.push(ids[before]),
                None => after.extend(&ends[(sending.from / self.tensor) as usize]),
            }
            let sent = self.transfer(TaskPurpose::Weights, after, sending);
            there[to].push(sent);
            ids.push(sent);
        }
        let reshard = pool.reshard(self.trainer);
        if reshard.is_empty() {
            return;
        }
        let joins = there.into_iter().zip(0..).map(|(all, replica)| {
            self.join(TaskPurpose::Reshard, self.trainer + replica * size, all)
        });
        let joins: Vec<TaskId> = joins.collect();
        for sending in reshard {
            let mut after = [sending.from, sending.to]
                .map(|rank| joins[((rank - self.trainer) / size) as usize])
                .to_vec();
            after.dedup();
            self.transfer(TaskPurpose::Reshard, after, sending);
        }
    }
}
