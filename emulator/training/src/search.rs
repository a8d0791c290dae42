// SPDX-License-Identifier: Apache-2.0
//! Finds the fastest mapping of a model onto GPUs that fits their memory.
//!
//! The search covers every TP, CP, PP, EP, micro-batch, number of virtual stages and recomputation
//! that satisfies the divisibility rules, with DP as the rest. Candidates are evaluated in
//! parallel; the number of threads does not affect the result.

use rayon::prelude::*;
use serde::Serialize;

use super::calibration::{Calibration, Precision};
use super::features::Feature;
use super::mapping::{Batch, Mapping, MappingRefusal, Recompute, nearest_divisor};
use super::memory::{GpuMemory, memory};
use super::mfu::Convention;
use super::model::Model;
use super::network::Network;
use super::schedule::Schedule;
use super::step::{Compute, Job, PlainStep, StepTime};

/// Share of memory available to a job; the rest is for the runtime and fragmentation.
pub const USABLE_MEMORY: f64 = 0.95;

#[derive(Clone, Debug)]
pub struct Search<'a> {
    pub model: &'a Model,
    pub batch: Batch,
    pub gpus: u64,
    pub compute: &'a Compute,
    pub network: &'a Network,
    pub calibration: &'a Calibration,
    pub precision: Precision,
    pub expert_imbalance: f64,
    pub limits: Limits,
}

/// Degrees to try. An empty list means all valid divisors.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    pub tensor: Vec<u32>,
    pub context: Vec<u32>,
    pub pipeline: Vec<u32>,
    pub expert: Vec<u32>,
    pub micro_batch: Vec<u32>,
    pub virtual_stages: Vec<u32>,
    pub recompute: Vec<Recompute>,
    /// An empty list means 1F1B, which the calibrated software uses.
    pub schedule: Vec<Schedule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Found {
    pub mapping: Mapping,
    pub step: StepTime,
    pub memory: GpuMemory,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SearchOutcome {
    pub found: Vec<Found>,
    pub tried: usize,
    pub closest: Option<(Mapping, MappingRefusal)>,
}

const TENSOR: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const CONTEXT: [u32; 6] = [1, 2, 4, 8, 16, 32];
const MICRO_BATCH: [u32; 4] = [1, 2, 4, 8];
pub(crate) const RECOMPUTE: [Recompute; 3] =
    [Recompute::None, Recompute::Selective, Recompute::Full];
const SCHEDULE: [Schedule; 1] = [Schedule::OneForwardOneBackward];

const MOST_COUNTS: usize = 40;

fn or_all(given: &[u32], all: impl IntoIterator<Item = u32>) -> Vec<u32> {
    if given.is_empty() { all.into_iter().collect() } else { given.to_vec() }
}

fn divisors(whole: u64, most: u64) -> impl Iterator<Item = u32> {
    (1..=whole.min(most))
        .filter(move |divisor| whole.is_multiple_of(*divisor))
        .filter_map(|divisor| u32::try_from(divisor).ok())
}

impl Search<'_> {
    pub fn candidates(&self) -> Vec<Mapping> {
        let mut all = Vec::new();
        for tensor in or_all(&self.limits.tensor, TENSOR) {
            for context in or_all(&self.limits.context, CONTEXT) {
                let cut = u64::from(tensor) * u64::from(context);
                if cut == 0 || !self.gpus.is_multiple_of(cut) {
                    continue;
                }
                let rest = self.gpus / cut;
                let most = u64::from(self.model.layers) + 2;
                // DualPipe requires an even number of stages.
                let is_dual = self.limits.pipeline.is_empty()
                    && self.calibration.software.features.has(Feature::DualPipe);
                for pipeline in or_all(&self.limits.pipeline, divisors(rest, most)) {
                    if pipeline > 0
                        && rest.is_multiple_of(pipeline.into())
                        && (!is_dual || pipeline.is_multiple_of(2))
                    {
                        self.with_stages(tensor, context, pipeline, &mut all);
                    }
                }
            }
        }
        all
    }

    fn with_stages(&self, tensor: u32, context: u32, pipeline: u32, all: &mut Vec<Mapping>) {
        let data = self.gpus / (u64::from(tensor) * u64::from(context) * u64::from(pipeline));
        let Ok(data) = u32::try_from(data) else { return };
        let experts = self.model.feed_forward.experts.as_ref().map_or(1, |experts| experts.count);
        for expert in or_all(&self.limits.expert, divisors(experts.into(), u64::MAX)) {
            for micro_batch in or_all(&self.limits.micro_batch, MICRO_BATCH) {
                let degrees =
                    Mapping { tensor, context, pipeline, data, expert, ..Mapping::ONE_GPU };
                let mapping = Mapping { micro_batch, ..degrees };
                if !self.cut_refusals(&mapping).is_empty() {
                    continue;
                }
                for virtual_stages in self.virtual_stages(pipeline) {
                    self.with_passes(Mapping { virtual_stages, ..mapping }, all);
                }
            }
        }
    }

    fn with_passes(&self, mapping: Mapping, all: &mut Vec<Mapping>) {
        let limits = &self.limits;
        let recompute =
            if limits.recompute.is_empty() { &RECOMPUTE[..] } else { &limits.recompute[..] };
        let schedules =
            if limits.schedule.is_empty() { &SCHEDULE[..] } else { &limits.schedule[..] };
        for &schedule in schedules {
            // ZB-H1 does not support interleaving.
            if schedule == Schedule::OneForwardOneBackward || mapping.virtual_stages == 1 {
                all.extend(recompute.iter().map(|&recompute| Mapping {
                    recompute,
                    schedule,
                    ..mapping
                }));
            }
        }
    }

    /// Chunks have equal numbers of layers, where embedding and output layer count as one layer each or not at all.
    fn virtual_stages(&self, pipeline: u32) -> Vec<u32> {
        if pipeline == 1 {
            return vec![1];
        }
        let layers = self.model.layers;
        if !self.limits.virtual_stages.is_empty() {
            let given = self.limits.virtual_stages.iter().copied();
            return given.filter(|stages| stages.saturating_mul(pipeline) <= layers + 2).collect();
        }
        // Uneven chunks are seldom the fastest, so they are tried only on request.
        (1..=(layers + 2) / pipeline)
            .filter(|virtual_stages| {
                let pieces = pipeline * virtual_stages;
                *virtual_stages == 1
                    || layers.is_multiple_of(pieces)
                    || (layers + 2).is_multiple_of(pieces)
            })
            .collect()
    }

    pub fn with_job<T>(&self, mapping: Mapping, look: impl FnOnce(&Job<'_>) -> T) -> T {
        let mut calibration = *self.calibration;
        // If two more layers would divide evenly, each end stage holds one layer fewer.
        let pieces = mapping.pipeline * mapping.virtual_stages;
        calibration.software.balanced_ends = !self.model.layers.is_multiple_of(pieces)
            && (self.model.layers + 2).is_multiple_of(pieces);
        look(&Job {
            model: self.model,
            mapping,
            batch: self.batch,
            compute: self.compute,
            network: self.network,
            calibration: &calibration,
            precision: self.precision,
            expert_imbalance: self.expert_imbalance,
        })
    }

    pub fn evaluate(&self, mapping: Mapping) -> Found {
        let plain = self.with_job(mapping, |job| job.plain_step());
        self.evaluate_with(mapping, &plain)
    }

    fn evaluate_with(&self, mapping: Mapping, plain: &PlainStep) -> Found {
        self.with_job(mapping, |job| Found {
            mapping,
            step: job.work_of(plain).time(),
            memory: memory(job),
        })
    }

    pub(crate) fn mfu(&self, found: &Found, peak_flops: f64) -> f64 {
        let (again, seconds) = (found.mapping.recompute, found.step.step_seconds);
        let convention = Convention::MfuFull;
        convention.utilisation(self.model, self.batch, again, self.gpus, peak_flops, seconds)
    }

    fn cut_refusals(&self, mapping: &Mapping) -> Vec<MappingRefusal> {
        let context_exchange = self.calibration.software.context_exchange;
        mapping.refusals(self.model, self.batch, context_exchange)
    }

    /// Returns all reasons why `mapping` is not possible, with memory last.
    pub fn refusals(&self, mapping: Mapping) -> Vec<MappingRefusal> {
        let mut refusals = self.cut_refusals(&mapping);
        if refusals.is_empty() {
            refusals.extend(self.memory_refusal(&self.evaluate(mapping)));
        }
        refusals
    }

    fn memory_refusal(&self, found: &Found) -> Option<MappingRefusal> {
        let needed = found.memory.total_bytes();
        let usable = self.compute.memory_bytes * USABLE_MEMORY;
        (needed > usable).then_some(MappingRefusal::Memory {
            needed_bytes: needed as u64,
            available_bytes: usable as u64,
            over_bytes: (needed - usable) as u64,
        })
    }

    pub fn run(&self) -> SearchOutcome {
        let candidates = self.candidates();
        // Candidates that differ only in recomputation and virtual stages are consecutive.
        let alike: Vec<&[Mapping]> = candidates
            .chunk_by(|a, b| {
                *a == Mapping { virtual_stages: a.virtual_stages, recompute: a.recompute, ..*b }
            })
            .collect();
        let evaluated = alike.par_iter().flat_map_iter(|alike| {
            let plain = self.with_job(alike[0], |job| job.plain_step());
            alike.iter().map(move |mapping| self.evaluate_with(*mapping, &plain))
        });
        let all: Vec<Found> = evaluated.collect();
        let (mut found, unfit): (Vec<Found>, Vec<Found>) =
            all.into_iter().partition(|found| self.memory_refusal(found).is_none());
        // Times are positive, so their bits are in the same order.
        found.sort_by_cached_key(|found| found.step.step_seconds.to_bits());
        let closest = unfit
            .iter()
            .min_by(|a, b| a.memory.total_bytes().total_cmp(&b.memory.total_bytes()))
            .filter(|_| found.is_empty())
            .and_then(|found| Some((found.mapping, self.memory_refusal(found)?)));
        SearchOutcome { found, tried: candidates.len(), closest }
    }

    /// The first entry of each limit, or 1. Fails if TP·CP·PP is zero or does not divide the number of GPUs.
    pub fn wanted(&self) -> Result<Mapping, MappingRefusal> {
        let asked = self.asked();
        let by = [asked.tensor, asked.context, asked.pipeline].map(u64::from).iter().product();
        if by == 0 {
            return Err(MappingRefusal::Zero { what: "TP×CP×PP" });
        }
        if !self.gpus.is_multiple_of(by) {
            return Err(MappingRefusal::Division {
                of: "GPUs",
                whole: self.gpus,
                what: "TP×CP×PP",
                by,
                remainder: self.gpus % by,
                nearest: nearest_divisor(self.gpus, by),
            });
        }
        Ok(Mapping { data: u32::try_from(self.gpus / by).unwrap_or(u32::MAX), ..asked })
    }

    /// DP is left at 1.
    pub fn asked(&self) -> Mapping {
        let first = |list: &[u32]| list.first().copied().unwrap_or(1);
        let limits = &self.limits;
        Mapping {
            tensor: first(&limits.tensor),
            context: first(&limits.context),
            pipeline: first(&limits.pipeline),
            data: 1,
            expert: first(&limits.expert),
            micro_batch: first(&limits.micro_batch),
            virtual_stages: first(&limits.virtual_stages),
            recompute: limits.recompute.first().copied().unwrap_or(Recompute::None),
            schedule: limits.schedule.first().copied().unwrap_or(SCHEDULE[0]),
        }
    }

    pub fn nearest_gpus(&self) -> Option<(u64, Found)> {
        let asked = self.asked();
        let cut: u64 =
            [asked.tensor, asked.context, asked.pipeline].map(u64::from).iter().product();
        let mut counts: Vec<u64> = divisors(self.batch.sequences, u64::MAX)
            .filter_map(|replicas| u64::from(replicas).checked_mul(cut.max(1)))
            .flat_map(|least| (0..=12).filter_map(move |k| least.checked_mul(1 << k)))
            .filter(|gpus| *gpus != self.gpus)
            .collect();
        counts.sort_unstable_by_key(|gpus| (gpus.abs_diff(self.gpus), *gpus));
        counts.dedup();
        counts.truncate(MOST_COUNTS);
        counts.into_iter().find_map(|gpus| {
            let outcome = Self { gpus, ..self.clone() }.run();
            Some((gpus, *outcome.found.first()?))
        })
    }

    pub fn without_limits(&self) -> Self {
        Self { limits: Limits::default(), ..self.clone() }
    }

    /// Distance is measured in doublings of the degrees; ties go to the faster mapping.
    pub fn nearest(&self, wanted: Mapping) -> Option<Found> {
        let free = self.without_limits();
        // The outcome is sorted by time, so the first of equal distances is the fastest.
        free.run()
            .found
            .into_iter()
            .min_by(|a, b| distance(&a.mapping, &wanted).total_cmp(&distance(&b.mapping, &wanted)))
    }
}

fn distance(one: &Mapping, other: &Mapping) -> f64 {
    let doublings = [
        (one.tensor, other.tensor),
        (one.context, other.context),
        (one.pipeline, other.pipeline),
        (one.expert, other.expert),
        (one.micro_batch, other.micro_batch),
        (one.virtual_stages, other.virtual_stages),
    ]
    .map(|(a, b)| (f64::from(a.max(1)) / f64::from(b.max(1))).log2().abs());
    doublings.iter().sum::<f64>() + f64::from(u8::from(one.recompute != other.recompute))
}

#[cfg(test)]
mod tests {
    use super::super::architecture::architecture;
    use super::super::cards;
    use super::*;

    fn search_on<T>(gpus: u64, limits: Limits, look: impl FnOnce(&Search<'_>) -> T) -> T {
        let model = cards::model("llama-3.1-70b").unwrap();
        let card = cards::accelerator("h100").unwrap();
        let network = architecture("khop:3").unwrap();
        look(&Search {
            model: &model,
            batch: Batch { sequences: 256, tokens: 8192 },
            gpus,
            compute: &card.compute(),
            network: &network,
            calibration: &card.calibration(),
            precision: Precision::Bf16,
            expert_imbalance: 0.0,
            limits,
        })
    }

    #[test]
    fn search_matches_exhaustive_evaluation() {
        search_on(64, Limits::default(), |search| {
            let best = search.run().found[0];
            let mut fastest: Option<Found> = None;
            for mapping in search.candidates() {
                let found = search.evaluate(mapping);
                if search.refusals(mapping).is_empty()
                    && fastest.is_none_or(|other| found.step.step_seconds < other.step.step_seconds)
                {
                    fastest = Some(found);
                }
            }
            assert_eq!(Some(best), fastest);
            assert_eq!(best.mapping.gpus(), 64);
        });
    }

    #[test]
    fn non_dividing_degree_error_suggests_the_nearest() {
        let limits = Limits { tensor: vec![7], ..Limits::default() };
        search_on(1024, limits, |search| {
            assert!(search.run().found.is_empty());
            let refusal = search.wanted().unwrap_err().to_string();
            assert!(refusal.contains("remainder 2") && refusal.ends_with("is 8"), "{refusal}");
            assert_eq!(search.nearest(search.asked()).unwrap().mapping.tensor, 8);
        });
    }

    #[test]
    fn mapping_beyond_memory_states_the_excess() {
        let limits =
            Limits { tensor: vec![1], pipeline: vec![1], context: vec![1], ..Limits::default() };
        search_on(256, limits, |search| {
            let outcome = search.run();
            assert!(outcome.found.is_empty());
            let (mapping, refusal) = outcome.closest.unwrap();
            let MappingRefusal::Memory { needed_bytes, available_bytes, over_bytes } = refusal
            else {
                panic!("{refusal}")
            };
            assert_eq!(needed_bytes - available_bytes, over_bytes);
            let near = search.nearest(mapping).unwrap();
            assert!(search.refusals(near.mapping).is_empty());
        });
    }

    #[test]
    fn non_dividing_gpu_count_suggests_a_dividing_one() {
        let limits = Limits { tensor: vec![8], ..Limits::default() };
        search_on(1000, limits, |search| {
            assert!(search.run().found.is_empty());
            let (gpus, found) = search.nearest_gpus().unwrap();
            assert_eq!((gpus, found.mapping.gpus(), found.mapping.tensor), (1024, 1024, 8));
        });
    }

    #[test]
    fn parts_of_a_step_add_up() {
        search_on(512, Limits::default(), |search| {
            for mapping in search.candidates() {
                let step = search.evaluate(mapping).step;
                let parts = step.compute_seconds
                    + step.tensor_seconds
                    + step.context_seconds
                    + step.expert_seconds
                    + step.bubble_seconds
                    + step.transfer_seconds
                    + step.data_seconds
                    + step.optimizer_seconds
                    + step.jitter_seconds;
                assert!((parts / step.step_seconds - 1.0).abs() < 1e-9, "{mapping}");
            }
        });
    }
}
