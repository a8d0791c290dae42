// SPDX-License-Identifier: Apache-2.0
//! Durations and sizes of one step, and its duration on idle links.

use serde::Serialize;

use crate::mapping::Mapping;
use crate::program::{Exchange, LayerProgram, PassSeconds};
use crate::schedule::{StageTime, dual_pipe_bubble, pipeline_bubble};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerWork {
    pub forward: LayerProgram,
    /// Includes recomputation but not weight gradients.
    pub backward: LayerProgram,
    /// Weight gradients, which a zero-bubble schedule postpones, in seconds.
    pub weight_gradient: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passes {
    pub forward: PassSeconds,
    pub backward: PassSeconds,
    pub weight_gradient: f64,
}

impl Passes {
    pub fn times(&self, times: f64) -> Self {
        Self::default().plus_times(self, times)
    }

    pub fn plus(&self, other: &Self) -> Self {
        self.plus_times(other, 1.0)
    }

    fn plus_times(&self, other: &Self, times: f64) -> Self {
        Self {
            forward: self.forward.plus_times(&other.forward, times),
            backward: self.backward.plus_times(&other.backward, times),
            weight_gradient: self.weight_gradient + other.weight_gradient * times,
        }
    }

    pub fn total(&self) -> f64 {
        self.forward.total() + self.backward.total()
    }

    fn stage_time(&self) -> StageTime {
        StageTime {
            forward_seconds: self.forward.total(),
            input_gradient_seconds: self.backward.total() - self.weight_gradient,
            weight_gradient_seconds: self.weight_gradient,
        }
    }

    /// Adds the seconds of sending, forward and backward.
    fn stage_time_with(&self, sends: [f64; 2]) -> StageTime {
        let mut time = self.stage_time();
        time.forward_seconds += sends[0];
        time.input_gradient_seconds += sends[1];
        time
    }
}

impl LayerWork {
    pub fn passes(&self) -> Passes {
        let mut backward = self.backward.seconds();
        backward.compute += self.weight_gradient;
        let weight_gradient = self.weight_gradient;
        Passes { forward: self.forward.seconds(), backward, weight_gradient }
    }
}

/// Data-parallel communication for one layer: common weights, and experts.
pub type Bucket = Vec<Exchange>;

#[derive(Clone, Debug, PartialEq)]
pub struct StepWork {
    pub mapping: Mapping,
    pub micro_batches: u64,
    /// Numbers of layers without experts, which come first, and with experts.
    pub layers: [u32; 2],
    /// Whether the first and last chunks have one layer fewer.
    pub has_balanced_ends: bool,
    pub layer: [LayerWork; 2],
    pub output: Passes,
    pub transfer: Option<Exchange>,
    /// Share of a transfer that does not overlap with the last layer of a pass.
    pub transfer_shown: f64,
    pub gather: Bucket,
    pub reduce: Bucket,
    /// Whether every pass exchanges weights and gradients.
    pub is_sharded: bool,
    pub data_shown: f64,
    pub optimizer_seconds: f64,
    pub jitter: f64,
    pub is_dual_pipe: bool,
}

/// Duration of a step. The parts add up to `step_seconds`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepTime {
    pub step_seconds: f64,
    pub compute_seconds: f64,
    pub tensor_seconds: f64,
    pub context_seconds: f64,
    pub expert_seconds: f64,
    pub bubble_seconds: f64,
    pub transfer_seconds: f64,
    pub data_seconds: f64,
    pub optimizer_seconds: f64,
    pub jitter_seconds: f64,
}

impl StepWork {
    pub fn layer_count(&self) -> u32 {
        self.layers[0] + self.layers[1]
    }

    pub fn layer(&self, layer: u32) -> &LayerWork {
        &self.layer[usize::from(layer >= self.layers[0])]
    }

    /// Returns the layers of chunk `place` of `places`. Without balanced ends, the last stage of an uneven pipeline has
    /// the remaining layers, and the first chunks of a stage have its remainder.
    pub fn layers_of(&self, place: u32, places: u32) -> std::ops::Range<u32> {
        let (layers, p) = (self.layer_count(), self.mapping.pipeline);
        let pieces = places / p;
        let inner = self.fullest_inner(self.extra_layers());
        let ends = u32::from(self.has_balanced_ends && places > 1);
        let of_place = |place: u32| {
            if self.is_uneven() {
                let stage = place % p;
                let before = (inner * stage).min(layers);
                let end = if stage + 1 == p { layers } else { (inner * (stage + 1)).min(layers) };
                let own = end - before;
                return own / pieces + u32::from(place / p < own % pieces);
            }
            let all = layers + 2 * ends;
            let own = all / places + u32::from(place < all % places);
            own - if place == 0 || place + 1 == places { ends.min(own) } else { 0 }
        };
        let first: u32 = (0..place).map(of_place).sum();
        first..(first + of_place(place)).min(layers)
    }

    fn is_uneven(&self) -> bool {
        let p = self.mapping.pipeline;
        p > 1 && !self.has_balanced_ends && !self.layer_count().is_multiple_of(p)
    }

    /// Returns the number of layers of the largest inner stage for which the last stage takes no
    /// longer, even with the work of `extra` additional layers.
    fn fullest_inner(&self, extra: f64) -> u32 {
        let (layers, p) = (self.layer_count(), self.mapping.pipeline);
        let enough = (layers.div_ceil(p)..=layers).find(|inner| {
            let last = (f64::from(*inner) - extra).max(0.0).floor();
            f64::from(inner * (p - 1)) + last >= f64::from(layers)
        });
        enough.unwrap_or(layers)
    }

    fn extra_layers(&self) -> f64 {
        self.output.total() / self.mean_layer().total()
    }

    fn mean_layer(&self) -> Passes {
        if self.layers[1] == 0 {
            return self.layer[0].passes();
        }
        let layers = f64::from(self.layer_count());
        let [dense, experts] = [0, 1]
            .map(|kind| self.layer[kind].passes().times(f64::from(self.layers[kind]) / layers));
        dense.plus(&experts)
    }

    fn layers_of_slowest(&self, extra: f64) -> [f64; 2] {
        let (layers, p) = (self.layer_count(), self.mapping.pipeline);
        if self.is_uneven() {
            let inner = self.fullest_inner(extra);
            return [inner, layers.saturating_sub(inner * (p - 1))].map(f64::from);
        }
        let ends = u32::from(self.has_balanced_ends);
        let inner = (layers + 2 * ends).div_ceil(p);
        [inner, inner - ends].map(f64::from)
    }

    pub fn time(&self) -> StepTime {
        let mapping = &self.mapping;
        let (p, m) = (f64::from(mapping.pipeline), self.micro_batches as f64);
        let layer = self.mean_layer();
        let (mean, slowest, sends) = self.stages(&layer);
        let transfer = self.transfer_seconds(&layer);
        // Use the mean of all stages except the slowest, so that the total equals the sum of all stages.
        let others = if mapping.pipeline > 1 {
            mean.times(p / (p - 1.0)).plus(&slowest.times(-1.0 / (p - 1.0)))
        } else {
            mean
        };
        let v = f64::from(mapping.virtual_stages);
        let bubble_seconds = self.bubble_seconds(others.stage_time());
        let with_transfers = self.bubble_seconds(others.stage_time_with([v * transfer; 2]));
        let transfer_seconds =
            m * (sends[0] + sends[1]) * transfer + with_transfers - bubble_seconds;
        let data_seconds = self.data_seconds(&mean, &layer);
        let busy = slowest.forward.plus_times(&slowest.backward, 1.0);
        let before_jitter = m * busy.total()
            + bubble_seconds
            + transfer_seconds
            + data_seconds
            + self.optimizer_seconds;
        let jitter_seconds = before_jitter * self.jitter;
        StepTime {
            step_seconds: before_jitter + jitter_seconds,
            compute_seconds: m * busy.compute,
            tensor_seconds: m * busy.tensor,
            context_seconds: m * busy.context,
            expert_seconds: m * busy.expert,
            bubble_seconds,
            transfer_seconds,
            data_seconds,
            optimizer_seconds: self.optimizer_seconds,
            jitter_seconds,
        }
    }

    pub fn mean_stage(&self) -> Passes {
        self.mean_of(&self.mean_layer())
    }

    fn mean_of(&self, layer: &Passes) -> Passes {
        let (layers, p) = (f64::from(self.layer_count()), f64::from(self.mapping.pipeline));
        layer.times(layers / p).plus(&self.output.times(1.0 / p))
    }

    /// Returns the mean and the slowest stage, and how often the slowest one sends in each direction per micro-batch.
    fn stages(&self, layer: &Passes) -> (Passes, Passes, [f64; 2]) {
        let mean = self.mean_of(layer);
        if self.mapping.pipeline == 1 {
            return (mean, mean, [0.0; 2]);
        }
        let [inner, last] = self.layers_of_slowest(self.output.total() / layer.total());
        let inner = layer.times(inner);
        let last = layer.times(last).plus(&self.output);
        let v = f64::from(self.mapping.virtual_stages);
        // The first stage does not send back from its first chunk.
        let back = if self.mapping.pipeline > 2 { v } else { v - 1.0 };
        if last.total() > inner.total() {
            (mean, last, [v - 1.0, v])
        } else {
            (mean, inner, [v, back])
        }
    }

    fn transfer_seconds(&self, layer: &Passes) -> f64 {
        let Some(transfer) = &self.transfer else { return 0.0 };
        let cover = layer.forward.total().min(layer.backward.total() - layer.weight_gradient);
        let [shown, hidden] = [self.transfer_shown, 1.0 - self.transfer_shown];
        transfer.part_seconds(shown) + (transfer.part_seconds(hidden) - cover).max(0.0)
    }

    /// Returns the exposed data-parallel communication: weights before the first layer of a pass,
    /// and gradients after its last layer.
    fn data_seconds(&self, stage: &Passes, layer: &Passes) -> f64 {
        let layers = (f64::from(self.layer_count()) / f64::from(self.mapping.pipeline)).max(1.0);
        let gather: f64 = self.gather.iter().map(|one| one.seconds).sum();
        let reduce: f64 = self.reduce.iter().map(|one| one.seconds).sum();
        // The output layer follows the last weights, and precedes the first gradients.
        let pass = layer.forward.total();
        let forward = self.shown(layers * gather, gather, pass, layers * pass);
        if self.is_sharded {
            // The first weights of a backward pass are gathered during the output layer.
            let part = layers * self.data_shown;
            let first = (gather - self.output.backward.total()).max(part * gather);
            let least = first + reduce.max(part * reduce);
            let (one, all) = (layer.backward.total(), stage.backward.total());
            let backward = self.shown(layers * (gather + reduce), least, one, all);
            return self.micro_batches as f64 * (forward + backward);
        }
        let is_split = self.mapping.is_zero_bubble();
        let pass = if is_split { layer.weight_gradient } else { layer.backward.total() };
        forward + self.shown(layers * reduce, reduce, pass, layers * pass)
    }

    /// Returns the part of `all` seconds that the pass does not hide: the exchange of one layer overlaps with all other
    /// layers of the pass.
    fn shown(&self, all: f64, least: f64, layer: f64, pass: f64) -> f64 {
        if self.data_shown >= 1.0 {
            return all;
        }
        (self.data_shown * all).max(least).max(all + layer - pass)
    }

    fn bubble_seconds(&self, others: StageTime) -> f64 {
        let Mapping { schedule, pipeline, virtual_stages, .. } = self.mapping;
        if pipeline > 1 && self.is_dual_pipe {
            return dual_pipe_bubble(pipeline, others);
        }
        pipeline_bubble(schedule, pipeline, virtual_stages, self.micro_batches, others)
    }
}
