// SPDX-License-Identifier: Apache-2.0
//! Communication between the ranks of a job: its bytes, and its exposed time.

use super::Job;
use super::passes::Passes;
use crate::calibration::{ContextExchange, ZeroStage};
use crate::features::Feature;
use crate::memory::weights_per_gpu;
use crate::network::Group;
use lightloom_collective::CollectiveKind;

impl Job<'_> {
    /// Returns the bytes that a micro-batch passes from one layer to the next, before TP.
    pub(super) fn activation_bytes(&self) -> f64 {
        2.0 * self.tokens() * f64::from(self.model.hidden)
    }

    /// Returns the communication of one forward pass over a layer: TP's exposed and total seconds,
    /// and EP's exposed seconds. `computing` of another micro-batch may hide the latter.
    pub(super) fn exchange(&self, is_expert: bool, computing: f64) -> ([f64; 2], f64) {
        let (mapping, calibration) = (&self.mapping, self.calibration);
        let features = calibration.software.features;
        let links = &calibration.network;
        let tensor_group = Group { size: mapping.tensor.into(), stride: 1 };
        let bytes = self.activation_bytes();
        // Four all-gathers or reduce-scatters, or two all-reduces. Experts not sharded by TP need
        // none around the feed-forward part.
        let shares = self.model.shares();
        let mixing = 2.0 * (shares.attention + shares.state_space);
        let is_whole = is_expert && !self.expert_layout().is_cut;
        let count = mixing + if is_whole { 0.0 } else { 2.0 * shares.feed_forward };
        let (kind, count) = if calibration.software.sequence_parallel {
            (CollectiveKind::AllGather, count)
        } else {
            (CollectiveKind::AllReduce, count / 2.0)
        };
        let all = count * self.network.collective(kind, tensor_group, bytes, links);
        let exposed = if self.network.is_inside(tensor_group) {
            calibration.tensor_exposed
        } else {
            calibration.tensor_exposed_across
        };
        let tensor = [all * exposed, all];
        let expert = if is_expert && mapping.expert > 1 {
            let layout = self.expert_layout();
            let group = Group { size: mapping.expert.into(), stride: layout.stride };
            let bytes = self.copied(group) * self.dispatch_bytes() * (1.0 + self.expert_imbalance);
            let once = self.network.collective(CollectiveKind::AllToAll, group, bytes, links);
            // Dispatched values may have fewer bits than returned ones.
            let ways = 1.0 + calibration.software.dispatch_bytes / 2.0;
            let exposed = if self.network.is_inside(group) {
                calibration.expert_exposed
            } else {
                calibration.expert_exposed_across
            };
            let all = shares.feed_forward * ways * once;
            if features.has(Feature::OverlappedDispatch) {
                (all - computing).max(0.0)
            } else {
                all * exposed
            }
        } else {
            0.0
        };
        (tensor, expert)
    }

    /// Returns the share of the dispatched values that are sent. With DeepEP or HybridEP a token is
    /// sent once to each rank or domain for all of its experts there, which are assumed to be
    /// uniformly distributed.
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

    /// Returns the bytes that a rank dispatches to experts on all ranks.
    pub(super) fn dispatch_bytes(&self) -> f64 {
        let top_k = self.model.feed_forward.experts.as_ref().map_or(0, |experts| experts.top_k);
        self.activation_bytes() / self.tensor() * f64::from(top_k)
    }

    pub(super) fn context_block(&self) -> f64 {
        let split = self.tensor().min(self.model.attention.key_value_width());
        let width = self.model.shares().attention * self.model.attention.key_value_width();
        2.0 * self.tokens() * width / split
    }

    /// Returns the exposed context-parallel communication of one forward and one backward pass over
    /// a layer.
    ///
    /// Backward, a ring passes on keys and values together with their gradients. With all-gather,
    /// keys and values are gathered again and their gradients reduced.
    pub(super) fn context_exchange(&self) -> [f64; 2] {
        let mapping = &self.mapping;
        if mapping.context == 1 {
            return [0.0; 2];
        }
        let links = &self.calibration.network;
        let group = Group { size: mapping.context.into(), stride: mapping.tensor.into() };
        let c = f64::from(mapping.context);
        let block = self.context_block();
        match self.calibration.software.context_exchange {
            ContextExchange::Ring => {
                let (core, core_backward) = self.attention_core();
                let exposed = |bytes: f64, core: f64| {
                    let step = self.network.neighbour(group, bytes, links);
                    (c - 1.0) * (step - core / c).max(0.0)
                };
                [exposed(block, core), exposed(2.0 * block, core_backward)]
            }
            ContextExchange::AllGather => {
                let all = block * c;
                let once = self.network.collective(CollectiveKind::AllGather, group, all, links);
                [once, 2.0 * once]
            }
            ContextExchange::AllToAll => {
                let kind = CollectiveKind::AllToAll;
                let once = |bytes: f64| self.network.collective(kind, group, bytes, links);
                let both = self.context_turns().map(once).iter().sum();
                [both, both]
            }
        }
    }

    /// Returns the bytes that a rank contributes to Ulysses' all-to-alls: queries, keys and values
    /// before the attention core, and its output after it.
    pub(super) fn context_turns(&self) -> [f64; 2] {
        let values = 2.0 * self.tokens() * self.model.attention.core_width() / 2.0 / self.tensor();
        [values + self.context_block(), values]
    }

    pub(super) fn transfer(&self) -> f64 {
        let mapping = &self.mapping;
        if mapping.pipeline == 1 {
            return 0.0;
        }
        let group = Group {
            size: mapping.pipeline.into(),
            stride: mapping.gpus() / u64::from(mapping.pipeline),
        };
        self.network.neighbour(group, self.transfer_bytes(), &self.calibration.network)
    }

    pub(super) fn transfer_bytes(&self) -> f64 {
        let split = if self.calibration.software.split_transfers { self.tensor() } else { 1.0 };
        self.activation_bytes() / split
    }

    /// Returns the duration of a step's DP communication during forward and during backward passes,
    /// before any overlap.
    pub(super) fn data_exchange(&self, micro_batches: f64) -> [f64; 2] {
        let (mapping, software) = (&self.mapping, &self.calibration.software);
        let links = &self.calibration.network;
        let (dense, experts) = weights_per_gpu(self.model, mapping, software);
        let replicas = u64::from(mapping.data) * u64::from(mapping.context);
        let all = Group { size: replicas, stride: mapping.tensor.into() };
        let layout = self.expert_layout();
        let expert_replicas =
            Group { size: layout.replicas, stride: layout.stride * u64::from(mapping.expert) };
        // One collective per layer, so the latency of a ring step is paid for every layer.
        let layers = (f64::from(self.model.layers) / f64::from(mapping.pipeline)).ceil();
        let pieces = if software.layer_buckets { layers } else { 1.0 };
        let in_pieces = |kind, group: Group, bytes: f64| {
            pieces * self.network.collective(kind, group, bytes / pieces, links)
        };
        let exchange = |kind, bytes: f64| {
            let experts =
                if experts > 0.0 { in_pieces(kind, expert_replicas, experts * bytes) } else { 0.0 };
            in_pieces(kind, all, dense * bytes) + experts
        };
        let gather = |bytes| exchange(CollectiveKind::AllGather, bytes);
        match software.sharding {
            ZeroStage::Replicated => {
                [0.0, exchange(CollectiveKind::AllReduce, software.gradient_bytes)]
            }
            ZeroStage::Optimizer | ZeroStage::Gradients => {
                [gather(2.0), gather(software.gradient_bytes)]
            }
            ZeroStage::Everything => {
                let weights = micro_batches * gather(2.0);
                [weights, weights + micro_batches * gather(software.gradient_bytes)]
            }
        }
    }

    /// Returns the exposed DP communication: the part longer than the passes it overlaps with, or
    /// the cost of contention.
    pub(super) fn exposed_data(
        &self,
        stage: &Passes,
        exchange: [f64; 2],
        micro_batches: f64,
    ) -> f64 {
        let software = &self.calibration.software;
        if !software.data_overlap {
            return exchange.iter().sum();
        }
        let (passes, exposed) = if software.sharding == ZeroStage::Everything {
            (micro_batches, self.calibration.gather_exposed)
        } else {
            (1.0, self.calibration.data_exposed)
        };
        let windows = [stage.forward.total(), stage.backward.total()];
        let beyond = |(exchange, window): (f64, f64)| (exchange - window * passes).max(0.0);
        let beyond: f64 = exchange.into_iter().zip(windows).map(beyond).sum();
        beyond.max(exposed * exchange.iter().sum::<f64>())
    }
}
