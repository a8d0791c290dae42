// SPDX-License-Identifier: Apache-2.0
//! Generation in a reinforcement learning step: the time that a pool of GPUs needs for samples of
//! different lengths, and when to change the size of its replicas.
//!
//! ```text
//! all samples ──replicas of g GPUs──▶ half left ──others?──▶ a quarter left ──others?──▶ … ──▶ the last sample
//! ```
//! At each of these points the pool may change its replica size. Every GPU then fetches the weights that it lacks, and
//! caches move. Small replicas generate the most tokens per GPU while batches are full; large ones are faster for the
//! long samples of the tail.

use lightloom_units::seed::Seed;
use rand::RngExt;
use serde::{Deserialize, Serialize};

use crate::batching::{ReplicaCosts, Request, StepCosts, serve, serve_until};

#[derive(Clone, Debug)]
pub struct Pool {
    pub gpus: u32,
    /// Costs per replica size, smallest first. Sizes divide the number of GPUs.
    pub sizes: Vec<ReplicaCosts>,
    pub change: ChangeCost,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangeCost {
    pub weight_bytes: f64,
    pub cache_bytes: f64,
    /// Rate for weights, and for caches that stay in the replica's domain, in bytes per second and GPU.
    pub inside_rate: f64,
    /// Rate for caches exchanged with another replica, in bytes per second and GPU.
    pub across_rate: f64,
    pub software_seconds: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Stage {
    pub replica_gpus: u32,
    pub samples: usize,
    pub change_seconds: f64,
    pub seconds: f64,
    pub moved_bytes: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Generation {
    pub stages: Vec<Stage>,
    pub seconds: f64,
    pub tokens: u64,
    pub busy_share: f64,
    #[serde(skip)]
    pub ended: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    pub mean: f64,
    /// Standard deviation of the logarithm; 0 for equal lengths.
    pub sigma: f64,
    pub most: u32,
}

impl Lengths {
    /// Each `index` has its own random stream.
    pub fn draw(self, count: usize, seed: Seed, index: u64) -> Vec<u32> {
        let mut stream = seed.stream("rollout.lengths", index);
        let centre = self.mean.ln() - self.sigma * self.sigma / 2.0;
        let lengths = (0..count).map(|_| {
            let (u, v): (f64, f64) = (stream.random(), stream.random());
            let normal = (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos();
            let length = (centre + self.sigma * normal).exp().round();
            (length as u32).clamp(1, self.most.max(1))
        });
        lengths.collect()
    }
}

pub fn samples(prompt: u32, lengths: &[u32]) -> Vec<Request> {
    lengths.iter().map(|output| Request { prompt, output: *output, ..Request::default() }).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    Shared,
    Even,
}

impl Pool {
    fn replicas(&self, size: usize) -> u32 {
        self.gpus / self.sizes[size].gpus
    }

    fn lacks(&self, [from, to]: [u32; 2]) -> f64 {
        let lack = (0..from.max(to)).map(|gpu| {
            let held = (gpu % from) as f64 / f64::from(from);
            let wanted = (gpu % to) as f64 / f64::from(to);
            let [held_end, wanted_end] =
                [held + 1.0 / f64::from(from), wanted + 1.0 / f64::from(to)];
            let common = (held_end.min(wanted_end) - held.max(wanted)).max(0.0);
            1.0 / f64::from(to) - common
        });
        lack.fold(0.0, f64::max)
    }

    fn change(&self, [from, to]: [usize; 2], left: &[Request]) -> (Vec<Request>, Stage) {
        let [old, new] = [from, to].map(|size| self.sizes[size].gpus);
        let replicas = self.replicas(to) as usize;
        let most = left.len().div_ceil(replicas.max(1));
        let (mut held, mut placed) = (vec![0; replicas], left.to_vec());
        let mut moved = Vec::new();
        // Samples stay with their cache until its replica has its full share.
        for (at, one) in placed.iter_mut().enumerate() {
            let home = one.replica.map(|replica| (replica * old / new) as usize % replicas);
            match home.filter(|home| held[*home] < most && one.done > 0) {
                Some(home) => {
                    held[home] += 1;
                    one.replica = Some(home as u32);
                }
                None => moved.push(at),
            }
        }
        let (mut out, mut into) = (vec![0.0; self.replicas(from) as usize], vec![0.0; replicas]);
        for at in moved {
            let one = &mut placed[at];
            let free = (0..replicas).min_by_key(|replica| held[*replica]).unwrap_or(0);
            held[free] += 1;
            if let (Some(was), true) = (one.replica, one.done > 0) {
                let bytes = self.cached(one);
                out[was as usize] += bytes / f64::from(old);
                into[free] += bytes / f64::from(new);
            }
            one.replica = Some(free as u32);
        }
        let most_moved = out.iter().chain(&into).copied().fold(0.0, f64::max);
        let away = out.iter().sum::<f64>() * f64::from(old);
        let all: f64 = left.iter().filter(|one| one.done > 0).map(|one| self.cached(one)).sum();
        // Resharding attention heads moves even the caches that stay in their replica.
        let (weights, stays) = match from == to {
            true => (0.0, 0.0),
            false => (self.lacks([old, new]) * self.change.weight_bytes, all - away),
        };
        let inside = weights + stays / f64::from(self.gpus);
        let is_nothing = from == to && away == 0.0;
        let change_seconds = inside / self.change.inside_rate
            + most_moved / self.change.across_rate
            + if is_nothing { 0.0 } else { self.change.software_seconds };
        let stage = Stage {
            replica_gpus: new,
            samples: left.len(),
            change_seconds,
            seconds: 0.0,
            moved_bytes: weights * f64::from(self.gpus) + stays + away,
        };
        (placed, stage)
    }

    fn cached(&self, one: &Request) -> f64 {
        self.change.cache_bytes * (f64::from(one.prompt) + f64::from(one.done))
    }

    pub(crate) fn able<'p>(&'p self, samples: &'p [Request]) -> impl Iterator<Item = usize> + 'p {
        let longest = samples.iter().map(Request::tokens).max().unwrap_or(0);
        (0..self.sizes.len()).filter(move |size| {
            self.gpus >= self.sizes[*size].gpus && self.sizes[*size].cache_tokens >= longest
        })
    }
}

#[derive(Clone, Debug, Default)]
struct Course {
    so_far: Generation,
    busy: f64,
    size: Option<usize>,
    left: Vec<Request>,
}

impl Course {
    fn begin(samples: &[Request]) -> Self {
        Self { left: samples.to_vec(), ..Self::default() }
    }

    fn go_on(&mut self, pool: &Pool, size: usize, stop: usize, is_spread: bool) {
        let mut stage = Stage {
            replica_gpus: pool.sizes[size].gpus,
            samples: self.left.len(),
            ..Stage::default()
        };
        if let (Some(from), true) = (self.size, is_spread) {
            (self.left, stage) = pool.change([from, size], &self.left);
        }
        let served = serve(&pool.sizes[size], pool.replicas(size), &self.left, stop);
        stage.seconds = served.seconds;
        let begin = self.so_far.seconds + stage.change_seconds;
        let ended = served.ended.iter().filter(|end| end.is_finite()).map(|end| begin + end);
        self.so_far.ended.extend(ended);
        self.so_far.seconds += stage.seconds + stage.change_seconds;
        self.so_far.tokens += served.tokens;
        self.busy += served.busy * f64::from(pool.sizes[size].gpus);
        self.left = served.left;
        self.size = Some(size);
        match self.so_far.stages.last_mut() {
            Some(last) if !is_spread => last.seconds += stage.seconds,
            _ => self.so_far.stages.push(stage),
        }
        self.so_far.busy_share = self.busy / (self.so_far.seconds * f64::from(pool.gpus));
    }

    fn end(mut self) -> Generation {
        self.so_far.ended.sort_unstable_by(f64::total_cmp);
        self.so_far
    }

    fn moves(&self, pool: &Pool) -> Vec<(usize, bool)> {
        let stays = self.size.into_iter().map(|size| (size, false));
        let is_spread = self.size.is_some();
        stays.chain(pool.able(&self.left).map(|size| (size, is_spread))).collect()
    }

    /// Returns the first move of the fastest sequence with at most one further change, at one of `stops`.
    fn best_move(&self, pool: &Pool, stops: &[usize]) -> Option<(usize, bool)> {
        let mut best: Option<(f64, (usize, bool))> = None;
        for first in self.moves(pool) {
            let mut course = self.clone();
            for (at, stop) in stops.iter().enumerate() {
                course.go_on(pool, first.0, *stop, first.1 && at == 0);
                let ends = course.moves(pool).into_iter().map(|second| {
                    let mut end = course.clone();
                    end.go_on(pool, second.0, 0, second.1);
                    end.so_far.seconds
                });
                let end = if course.left.is_empty() {
                    course.so_far.seconds
                } else {
                    ends.fold(f64::INFINITY, f64::min)
                };
                if best.is_none_or(|(seconds, _)| end < seconds) {
                    best = Some((end, first));
                }
                if course.left.is_empty() {
                    break;
                }
            }
        }
        best.map(|(_, first)| first)
    }
}

pub fn fixed(
    pool: &Pool,
    size: usize,
    samples: &[Request],
    dispatch: Dispatch,
) -> Option<Generation> {
    pool.able(samples).find(|able| *able == size)?;
    let mut samples = samples.to_vec();
    if dispatch == Dispatch::Even {
        for (at, one) in samples.iter_mut().enumerate() {
            one.replica = Some(at as u32 % pool.replicas(size));
        }
    }
    let mut course = Course::begin(&samples);
    course.go_on(pool, size, 0, false);
    Some(course.end())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReplicaDeath {
    pub at_seconds: f64,
    pub samples: usize,
    pub tokens: u64,
    pub seconds: f64,
    pub later_seconds: f64,
}

/// Simulates the failure of one replica of a fixed size. The others take over its samples and prefill
/// the tokens generated so far. `None` without another replica or if generation ends before `at`.
pub fn death(pool: &Pool, size: usize, samples: &[Request], at: f64) -> Option<ReplicaDeath> {
    let whole = fixed(pool, size, samples, Dispatch::Shared)?;
    let (costs, replicas) = (&pool.sizes[size], pool.replicas(size));
    let dead = replicas.checked_sub(1).filter(|rest| *rest > 0 && at < whole.seconds)?;
    let before = serve_until(costs, replicas, samples, at);
    let mut death = ReplicaDeath { at_seconds: at, ..ReplicaDeath::default() };
    let mut left = before.left;
    for one in &mut left {
        if one.replica == Some(dead) {
            death.samples += 1;
            death.tokens += u64::from(one.prompt) + u64::from(one.done);
            let output = one.output - one.done;
            *one = Request { prompt: one.prompt + one.done, output, ..Request::default() };
        }
    }
    left.retain(|one| one.output > 0);
    left.sort_by_key(|one| one.replica.is_none());
    let after = serve(costs, dead, &left, 0);
    death.seconds = before.seconds.max(at) + after.seconds;
    death.later_seconds = death.seconds - whole.seconds;
    Some(death)
}

fn points(samples: usize, count: u32) -> Vec<usize> {
    let mut all: Vec<usize> = (1..=count).map(|power| samples >> power).collect();
    all.retain(|left| *left > 0);
    all.dedup();
    all
}

/// Change points of [`adaptive`], down to a 64th of the samples.
const POINTS: u32 = 6;

/// Changes the replica size as samples end, based on the lengths `seen` in earlier steps.
pub fn adaptive(pool: &Pool, samples: &[Request], seen: &[u32]) -> Option<Generation> {
    let mut sorted = seen.to_vec();
    sorted.sort_unstable();
    let mut course = Course::begin(samples);
    let mut stops = points(samples.len(), POINTS);
    stops.push(0);
    for at in 0..stops.len() {
        let left = course
            .left
            .iter()
            .enumerate()
            .map(|(at, one)| Request { output: likely(&sorted, one.done, at), ..*one })
            .collect();
        let expected = Course { left, ..course.clone() };
        let (size, is_spread) = expected.best_move(pool, &stops[at..])?;
        course.go_on(pool, size, stops[at], is_spread);
        if course.left.is_empty() {
            break;
        }
    }
    Some(course.end())
}

/// Predicts the length of a sample with `done` tokens. Samples are spread over the longer lengths.
fn likely(sorted: &[u32], done: u32, at: usize) -> u32 {
    let longer = &sorted[sorted.partition_point(|length| *length <= done)..];
    // Multiples of the golden ratio cover the interval evenly for any count.
    let place = (at as f64 * 0.618_033_988_749_894_9).fract();
    let found = longer.get((place * longer.len() as f64) as usize).copied();
    found.unwrap_or_else(|| done.saturating_add(done / 8 + 1))
}

impl Pool {
    fn least(&self, of: impl Fn(&ReplicaCosts) -> f64) -> f64 {
        self.sizes.iter().map(of).fold(f64::INFINITY, f64::min)
    }
}

/// Returns the time of the longest sample on an otherwise empty replica of the fastest size.
pub fn longest_seconds(pool: &Pool, samples: &[Request]) -> f64 {
    let alone = samples.iter().map(|one| {
        pool.least(|size| {
            let done = one.done.max(1);
            let prompt = if one.done > 0 { 0.0 } else { size.prompt_seconds(one.prompt) };
            let cached = u64::from(one.prompt) + u64::from(done);
            prompt + size.steps_seconds(u64::from(one.output.saturating_sub(done)), 1, cached)
        })
    });
    alone.fold(0.0, f64::max)
}

/// Total work divided by the GPUs, with each part at its most efficient size.
pub fn least_work_seconds(pool: &Pool, samples: &[Request]) -> f64 {
    let token = pool.least(|size| {
        let batches = size.decode.iter().enumerate().skip(1);
        let of = batches.map(|(batch, seconds)| seconds / batch as f64 * f64::from(size.gpus));
        of.fold(f64::INFINITY, f64::min)
    });
    let read = pool.least(|size| size.cached_token * f64::from(size.gpus));
    let work = samples.iter().map(|one| {
        let done = one.done.max(1);
        let steps = f64::from(one.output.saturating_sub(done));
        let cached = f64::from(one.prompt) + f64::from(done);
        let prompt = match one.done {
            0 => pool.least(|size| size.prompt_seconds(one.prompt) * f64::from(size.gpus)),
            _ => 0.0,
        };
        prompt + steps * token + read * (steps * cached + steps * (steps - 1.0) / 2.0)
    });
    work.sum::<f64>() / f64::from(pool.gpus)
}

#[cfg(test)]
mod tests;
