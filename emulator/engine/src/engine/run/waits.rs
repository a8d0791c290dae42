// SPDX-License-Identifier: Apache-2.0
//! Diagnoses unfinished flows: why a flow waits, and how large a port's backlog is.

use lightloom_units::{Bytes, SimTime};

use super::Engine;
use crate::engine::flow::FlowId;
use crate::engine::layout::Place;
use crate::engine::network::LinkId;
use crate::engine::probe::Probe;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowWait {
    Start,
    Dark(LinkId),
    Messages(FlowId),
    Paused(LinkId),
    Turn(LinkId),
    Acknowledgements,
}

impl<P: Probe> Engine<P> {
    /// What a flow waits for, and when its last acknowledgement arrived (`None` if nothing is in flight).
    #[must_use]
    pub fn awaits(&self, flow: FlowId) -> (FlowWait, Option<SimTime>) {
        let state = &self.flows[flow.index()];
        let Place { shard, index } = state.sender;
        let shard = &self.shards[shard as usize];
        let sender = &shard.senders[index as usize];
        let since = sender.silent_since().map(SimTime);
        let first = state.paths[0][0];
        let is_dark = |link: &&LinkId| !self.is_up(**link) || !self.is_up(link.reverse());
        let awaited =
            sender.waits.gates.iter().map(|(receiver, _)| &shard.receivers[*receiver as usize]);
        let what = if !sender.started {
            FlowWait::Start
        } else if let Some(dark) = state.paths.links().iter().find(is_dark) {
            FlowWait::Dark(*dark)
        } else if since.is_some() {
            FlowWait::Acknowledgements
        } else if let Some(late) = awaited.filter(|_| !sender.enlisted).find(|end| !end.is_done()) {
            FlowWait::Messages(FlowId(late.flow))
        } else if self.port(first).paused & (1 << sender.priority) != 0 {
            FlowWait::Paused(first)
        } else {
            FlowWait::Turn(first)
        };
        (what, since)
    }

    #[must_use]
    pub fn backlog(&self, link: LinkId) -> Bytes {
        let Place { shard, index } = self.layout.ports[link.index()];
        let shard = &self.shards[shard as usize];
        let vertex = self.layout.vertices[self.network.link(link).from.index()].index as usize;
        let port = &shard.ports[index as usize];
        let Some(switch) = &shard.switches[vertex] else { return port.backlog(self.now.0) };
        let (waiting, end) = switch.stands_before(index - shard.vertices[vertex].first_port);
        Bytes(waiting) + port.backlog_until(end, self.now.0)
    }
}
