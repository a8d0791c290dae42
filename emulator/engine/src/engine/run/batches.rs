// SPDX-License-Identifier: Apache-2.0
//! Batches of flows, whose ends are reported.

use lightloom_units::{Picoseconds, SimTime};

use crate::engine::control::Act;
use crate::engine::flow::{BatchId, FlowId};

/// With more open batches, checking each one costs more than processing two windows at a time saves.
const MOST_ASKED: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct FlowBatches {
    all: Vec<FlowBatch>,
    open: Vec<BatchId>,
}

#[derive(Clone, Debug, Default)]
struct FlowBatch {
    open: u32,
    latest: SimTime,
    flows: Vec<FlowId>,
    sending: usize,
    is_prompt: bool,
}

impl FlowBatches {
    pub(super) fn add(&mut self, is_prompt: bool) -> BatchId {
        self.all.push(FlowBatch { is_prompt, ..FlowBatch::default() });
        BatchId::from_index(self.all.len() - 1)
    }

    pub(super) fn join(&mut self, id: BatchId, flow: FlowId) {
        let batch = &mut self.all[id.index()];
        if batch.open == 0 {
            self.open.push(id);
        }
        batch.open += 1;
        batch.flows.push(flow);
    }

    /// Returns the report of the batch's end if this was its last open flow.
    pub(super) fn leave(
        &mut self,
        id: BatchId,
        at: SimTime,
        now: SimTime,
        delay: Picoseconds,
    ) -> Option<(SimTime, Act)> {
        let batch = &mut self.all[id.index()];
        batch.open -= 1;
        batch.latest = batch.latest.max(at);
        if batch.open > 0 {
            return None;
        }
        self.open.retain(|open| *open != id);
        let reported = if batch.is_prompt { batch.latest.max(now) } else { batch.latest + delay };
        Some((reported, Act::BatchDone(id, batch.latest)))
    }

    pub(super) fn prompt_flows(&self) -> impl Iterator<Item = &FlowId> {
        let open = self.open.iter().map(|id| &self.all[id.index()]);
        open.filter(|batch| batch.is_prompt).flat_map(|batch| &batch.flows)
    }

    /// Whether every open batch has a flow that still sends. False if there are too many to check.
    pub(super) fn all_send(&mut self, sends: impl Fn(&FlowId) -> bool) -> bool {
        let Self { all, open } = self;
        open.len() <= MOST_ASKED
            && open.iter().all(|id| {
                let batch = &mut all[id.index()];
                while batch.flows.get(batch.sending).is_some_and(|flow| !sends(flow)) {
                    batch.sending += 1;
                }
                batch.sending < batch.flows.len()
            })
    }
}
