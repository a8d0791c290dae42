// SPDX-License-Identifier: Apache-2.0
//! Communication between ranks, and its overlap.

use super::Job;
use crate::calibration::{ContextExchange, ZeroStage};
use crate::features::Feature;
use crate::mapping::Mapping;
use crate::memory::weights_per_gpu;
use crate::network::{Group, Reach, Shape};
use lightloom_collective::CollectiveKind;
use lightloom_step::program::{Exchange, LayerProgram, Overlap, Stretch};
use lightloom_step::tasks::TaskPurpose;
use lightloom_step::work::Bucket;

impl Job<'_> {
    /// Returns the bytes that a micro-batch passes from one layer to the next, before TP.
    pub(super) fn activation_bytes(&self) -> f64 {
        2.0 * self.tokens() * f64::from(self.model.hidden)
    }

    /// Returns a group. Only TP groups use the rings of a domain, because each ring is closed around one TP group.
    pub(super) fn group(&self, size: u64, stride: u64) -> Group {
        let group = Group::new(size, stride);
        let is_tensor = group == Group::new(self.mapping.tensor.into(), 1);
        if self.network.shape == Shape::Ring && !is_tensor {
            return Group { reach: Reach::Cards, ..group };
        }
        group
    }

    pub fn other_groups(&self) -> impl Iterator<Item = (&'static str, Group)> {
        let groups = [
            ("CP", self.context_group()),
            ("EP", self.expert_group()),
            ("DP", self.replica_group()),
            ("PP", self.stage_group()),
        ];
        groups.into_iter().filter(|(_, group)| group.size > 1)
    }

    fn context_group(&self) -> Group {
        self.group(self.mapping.context.into(), self.mapping.tensor.into())
    }

    fn expert_group(&self) -> Group {
        self.group(self.mapping.expert.into(), self.expert_layout().stride)
    }

    fn replica_group(&self) -> Group {
        let Mapping { data, context, tensor, .. } = self.mapping;
        self.group(u64::from(data) * u64::from(context), tensor.into())
    }

    fn stage_group(&self) -> Group {
        let stages = u64::from(self.mapping.pipeline);
        self.group(stages, self.mapping.gpus() / stages)
    }

    /// Returns the exchanges before the first product of a half-layer and after the second, with whole-layer sizes.
    pub(super) fn tensor_exchanges(&self) -> [Option<Exchange>; 2] {
        if self.mapping.tensor == 1 {
            return [None; 2];
        }
        let group = Group::new(self.mapping.tensor.into(), 1);
        let bytes = self.activation_bytes();
        if self.calibration.software.sequence_parallel {
            let [scatter, gather] = CollectiveKind::HALVES;
            [gather, scatter]
                .map(|kind| Some(self.collective(TaskPurpose::Tensor, kind, group, bytes)))
        } else {
            let whole =
                self.collective(TaskPurpose::Tensor, CollectiveKind::AllReduce, group, bytes);
            [None, Some(whole)]
        }
    }

    pub(super) fn tensor_shown(&self, exchange: &Exchange) -> f64 {
        self.calibration.tensor_exposed[usize::from(!self.network.is_inside(exchange.group))]
    }

    /// Returns the exchanges to experts on other ranks and back, with the exposed share. `None` without EP.
    pub(super) fn expert_exchange(&self) -> Option<([Exchange; 2], f64)> {
        let (mapping, calibration) = (&self.mapping, self.calibration);
        if mapping.expert < 2 {
            return None;
        }
        let group = self.expert_group();
        let bytes = self.copied(group) * self.dispatch_bytes() * (1.0 + self.expert_imbalance);
        let whole = self.collective(TaskPurpose::Expert, CollectiveKind::PAIRWISE, group, bytes);
        let whole = whole.part(self.model.shares().feed_forward);
        let shown = match calibration.software.features.has(Feature::OverlappedDispatch) {
            true => 0.0,
            false => calibration.expert_exposed[usize::from(!self.network.is_inside(group))],
        };
        // Dispatched values may have fewer bits than returned values.
        Some(([whole.part(calibration.software.dispatch_bytes / 2.0), whole], shown))
    }

    fn collective(
        &self,
        purpose: TaskPurpose,
        kind: CollectiveKind,
        group: Group,
        bytes: f64,
    ) -> Exchange {
        let links = &self.calibration.network;
        let (seconds, pace) = self.network.exchange(kind, group, bytes, links);
        let cables = self.network.cable_seconds;
        Exchange { purpose, kind: Some(kind), group, bytes, seconds, pace, cables }.part(1.0)
    }

    fn neighbour(&self, purpose: TaskPurpose, group: Group, bytes: f64) -> Exchange {
        let (seconds, pace) = self.network.neighbour(group, bytes, &self.calibration.network);
        let cables = self.network.cable_seconds;
        Exchange { purpose, kind: None, group, bytes, seconds, pace, cables }.part(1.0)
    }

    fn copied(&self, group: Group) -> f64 {
        let features = self.calibration.software.features;
        let top_k = self.model.feed_forward.experts.as_ref().map_or(1, |experts| experts.top_k);
        if !features.has_any(&[Feature::DeepEp, Feature::HybridEp]) {
            return 1.0;
        }
        let inside = self.network.inside(group);
        let places = if inside == group.size { group.size } else { group.size / inside } as f64;
        let reached = places * (1.0 - (1.0 - 1.0 / places).powf(f64::from(top_k)));
        let most = if features.has(Feature::NodeLimited) { 4.0 } else { f64::INFINITY };
        reached.min(most) / f64::from(top_k)
    }

    pub(super) fn dispatch_bytes(&self) -> f64 {
        let top_k = self.model.feed_forward.experts.as_ref().map_or(0, |experts| experts.top_k);
        self.activation_bytes() / self.tensor() * f64::from(top_k)
    }

    pub(super) fn context_block(&self) -> f64 {
        let split = self.tensor().min(self.model.attention.key_value_width());
        let width = self.model.shares().attention * self.model.attention.key_value_width();
        2.0 * self.tokens() * width / split
    }

    /// In the backward pass of CP, keys and values are passed or gathered again with their gradients.
    pub(super) fn core_with_contexts(
        &self,
        seconds: f64,
        is_backward: bool,
        to: &mut LayerProgram,
    ) {
        let mapping = &self.mapping;
        let core = Stretch::compute("core", seconds);
        if mapping.context == 1 {
            return to.push(core);
        }
        let group = self.context_group();
        let (c, block) = (f64::from(mapping.context), self.context_block());
        let whole = |kind, bytes: f64| {
            Stretch::exchange(self.collective(TaskPurpose::Context, kind, group, bytes))
        };
        let [scatter, gather] = CollectiveKind::HALVES;
        match self.calibration.software.context_exchange {
            ContextExchange::Ring => {
                let bytes = if is_backward { 2.0 * block } else { block };
                let block = self.neighbour(TaskPurpose::Context, group, bytes);
                let share = Stretch { seconds: seconds / c, ..core };
                let passed = share.covered(block, 0.0, Overlap::Before);
                to.push(Stretch { count: mapping.context - 1, ..passed });
                to.push(share);
            }
            ContextExchange::AllGather => {
                to.push(whole(gather, block * c));
                to.push(core);
                if is_backward {
                    to.push(whole(scatter, block * c));
                }
            }
            ContextExchange::Ulysses => {
                // The backward pass reverses this order.
                let [into, out] = self.context_turns();
                let turns = if is_backward { [out, into] } else { [into, out] };
                to.push(whole(CollectiveKind::PAIRWISE, turns[0]));
                to.push(core);
                to.push(whole(CollectiveKind::PAIRWISE, turns[1]));
            }
        }
    }

    /// Ulysses' all-to-alls: queries, keys and values before the attention core, output after it.
    pub(super) fn context_turns(&self) -> [f64; 2] {
        let values = 2.0 * self.tokens() * self.model.attention.core_width() / 2.0 / self.tensor();
        [values + self.context_block(), values]
    }

    pub(super) fn transfer(&self) -> Option<Exchange> {
        let mapping = &self.mapping;
        if mapping.pipeline == 1 {
            return None;
        }
        let group = self.stage_group();
        let split = if self.calibration.software.split_transfers { self.tensor() } else { 1.0 };
        Some(self.neighbour(TaskPurpose::Pipeline, group, self.activation_bytes() / split))
    }

    pub(super) fn data_buckets(&self) -> [Bucket; 2] {
        let (mapping, software) = (&self.mapping, &self.calibration.software);
        let (dense, experts) = weights_per_gpu(self.model, mapping, software);
        let all = self.replica_group();
        let layout = self.expert_layout();
        let expert_replicas =
            self.group(layout.replicas, layout.stride * u64::from(mapping.expert));
        // Each layer has its own collective and incurs the latency of every ring step.
        let layers = f64::from(self.model.layers) / f64::from(mapping.pipeline);
        let pieces = if software.layer_buckets { layers.ceil() } else { 1.0 };
        let exchange = |kind, bytes: f64| {
            let both = [(all, dense), (expert_replicas, experts)].into_iter();
            let sent = both.filter(|(group, weights)| group.size > 1 && *weights > 0.0);
            let of_layer = sent.map(|(group, weights)| {
                let bytes = weights * bytes / pieces;
                self.collective(TaskPurpose::Data, kind, group, bytes).part(pieces / layers)
            });
            of_layer.filter(|one| !one.is_empty()).collect()
        };
        let gradients = |kind| exchange(kind, software.gradient_bytes);
        if software.sharding == ZeroStage::Replicated {
            return [Vec::new(), gradients(CollectiveKind::AllReduce)];
        }
        let [scatter, gather] = CollectiveKind::HALVES;
        [exchange(gather, 2.0), gradients(scatter)]
    }
}
