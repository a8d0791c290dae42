// SPDX-License-Identifier: Apache-2.0
//! Reports the ends of batches, and computes how soon a batch can end.

use lightloom_units::SimTime;

use super::flows::FlowState;
use super::{Engine, SimSpan};
use crate::engine::control::Act;
use crate::engine::flow::{BatchId, FlowId};
use crate::engine::probe::Probe;

/// With more open batches, checking each one costs more than processing two windows at a time saves.
const MOST_ASKED: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct FlowBatch {
    open: u32,
    latest: SimTime,
    flows: Vec<FlowId>,
    sending: usize,
    is_prompt: bool,
}

impl<P: Probe> Engine<P> {
    pub fn add_batch(&mut self) -> BatchId {
        self.batches.push(FlowBatch::default());
        BatchId::from_index(self.batches.len() - 1)
    }

    /// The end of a prompt batch is reported when the last byte arrives rather than after the
    /// shortest link delay, so windows are shorter. Panics with more than one shard, because a
    /// shard does not know the packets in flight in others.
    pub fn add_prompt_batch(&mut self) -> BatchId {
        assert!(self.shards.len() == 1, "prompt batches require a single thread");
        self.batches.push(FlowBatch { is_prompt: true, ..FlowBatch::default() });
        BatchId::from_index(self.batches.len() - 1)
    }

    pub(super) fn join_batch(&mut self, id: BatchId, flow: FlowId) {
        let batch = &mut self.batches[id.index()];
        if batch.open == 0 {
            self.open_batches.push(id);
        }
        batch.open += 1;
        batch.flows.push(flow);
    }

    pub(super) fn leave_batch(&mut self, batch: Option<BatchId>, at: SimTime) {
        let Some(id) = batch else { return };
        let batch = &mut self.batches[id.index()];
        batch.open -= 1;
        batch.latest = batch.latest.max(at);
        if batch.open == 0 {
            let reported = match batch.is_prompt {
                true => batch.latest.max(self.now),
                false => batch.latest + self.network.shortest_delay(),
            };
            self.control.plan(reported, Act::BatchDone(id, batch.latest));
            self.open_batches.retain(|open| *open != id);
        }
    }

    pub(super) fn until_prompt_end(&self, span: SimSpan) -> u64 {
        let is_prompt = |id: &&BatchId| self.batches[id.index()].is_prompt;
        let open = self.open_batches.iter().filter(is_prompt);
        let flows = open.flat_map(|id| &self.batches[id.index()].flows);
        let ends = flows.filter_map(|flow| self.soonest_end(&self.flows[flow.index()], span));
        ends.min().map_or(span.end, |end| span.end.min(end + 1))
    }

    /// When a flow ends, or earlier if packets are duplicated. `None` if it does not end in `span`.
    fn soonest_end(&self, flow: &FlowState, span: SimSpan) -> Option<u64> {
        let [shard] = &self.shards[..] else { return None };
        if flow.end.is_some() || !shard.senders[flow.sender.index as usize].has_sent_all() {
            return None;
        }
        let missing = shard.receivers[flow.receiver.index as usize].packets_missing() as usize;
        let vertex = self.layout.vertices[flow.name.ends.1.index()].index;
        shard.nth_arrival((&self.shared, span), (vertex, flow.receiver.index), missing)
    }

    pub(super) fn next_length(&mut self) -> u64 {
        let [shard] = &self.shards[..] else { return self.window };
        let by_pods = !shard.pods.is_empty() && shard.probe.may_leap() && self.trains.is_none();
        let twice = by_pods && self.open_batches.len() <= MOST_ASKED && self.all_batches_send();
        if twice { 2 * self.window } else { self.window }
    }

    fn all_batches_send(&mut self) -> bool {
        let (shards, flows) = (&self.shards, &self.flows);
        let sends = |id: &FlowId| {
            let flow = &flows[id.index()];
            let sender = &shards[flow.sender.shard as usize].senders[flow.sender.index as usize];
            flow.paths[0].len() > 1 && !sender.has_sent_all()
        };
        let batches = &mut self.batches;
        self.open_batches.iter().all(|id| {
            let batch = &mut batches[id.index()];
            while batch.flows.get(batch.sending).is_some_and(|flow| !sends(flow)) {
                batch.sending += 1;
            }
            batch.sending < batch.flows.len()
        })
    }
}
