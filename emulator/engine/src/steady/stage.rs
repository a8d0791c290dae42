// SPDX-License-Identifier: Apache-2.0

use lightloom_units::SimTime;

use crate::engine::{
    BatchId, Engine, EngineError, EngineSettings, Event, FlowGate, FlowId, FlowRecord, FlowSpec,
    LinkChange, LinkId, Network, PacketCount, Paths, PortCount, Probe, RouteError,
};
use crate::transport::Transport;

/// Implementations produce the same results and differ only in speed. [`Engine`] documents the methods.
pub trait Stage {
    type Probe: Probe;

    fn network(&self) -> &Network;
    fn transport(&self) -> &Transport {
        &self.settings().transport
    }
    fn settings(&self) -> &EngineSettings;
    fn now(&self) -> SimTime;
    fn add_batch(&mut self) -> BatchId;
    fn add_flow(&mut self, spec: FlowSpec) -> Result<FlowId, EngineError>;
    fn add_gate(&mut self, flow: FlowId, gate: FlowGate) -> Result<(), EngineError>;
    fn cancel_flow(&mut self, flow: FlowId);
    fn reroute_flow(&mut self, flow: FlowId) -> Result<(), RouteError>;
    fn flows_on_dark_links(&self) -> Vec<FlowId>;
    fn set_timer(&mut self, at: SimTime, token: u64);
    fn change_link(&mut self, at: SimTime, link: LinkId, change: LinkChange);
    fn next_due(&self) -> Option<SimTime>;
    fn next_event(&mut self, limit: SimTime) -> Option<Event>;
    fn path(&self, flow: FlowId) -> &[LinkId];
    fn ways(&self, flow: FlowId) -> Vec<&[LinkId]>;
    fn paths(&self, flow: FlowId) -> Paths;
    fn takes_one_path(&self, flow: FlowId) -> bool;
    fn record(&self, flow: FlowId) -> FlowRecord;
    fn flow_count(&self) -> usize;
    fn port_count(&self, link: LinkId) -> PortCount;
    fn packets(&self) -> PacketCount;
    fn hops(&self) -> u64;

    fn probes(&self) -> impl Iterator<Item = &Self::Probe>;

    fn records(&self) -> impl Iterator<Item = FlowRecord> {
        (0..self.flow_count()).map(|index| self.record(FlowId::from_index(index)))
    }
    fn run(&mut self, limit: SimTime) {
        while self.next_event(limit).is_some() {}
    }
}

impl<P: Probe> Stage for Engine<P> {
    type Probe = P;

    fn probes(&self) -> impl Iterator<Item = &P> {
        Self::probes(self)
    }
    fn network(&self) -> &Network {
        Self::network(self)
    }
    fn settings(&self) -> &EngineSettings {
        Self::settings(self)
    }
    fn now(&self) -> SimTime {
        Self::now(self)
    }
    fn add_batch(&mut self) -> BatchId {
        Self::add_batch(self)
    }
    fn add_flow(&mut self, spec: FlowSpec) -> Result<FlowId, EngineError> {
        Self::add_flow(self, spec)
    }
    fn add_gate(&mut self, flow: FlowId, gate: FlowGate) -> Result<(), EngineError> {
        Self::add_gate(self, flow, gate)
    }
    fn cancel_flow(&mut self, flow: FlowId) {
        Self::cancel_flow(self, flow);
    }
    fn reroute_flow(&mut self, flow: FlowId) -> Result<(), RouteError> {
        Self::reroute_flow(self, flow)
    }
    fn flows_on_dark_links(&self) -> Vec<FlowId> {
        Self::flows_on_dark_links(self)
    }
    fn set_timer(&mut self, at: SimTime, token: u64) {
        Self::set_timer(self, at, token);
    }
    fn change_link(&mut self, at: SimTime, link: LinkId, change: LinkChange) {
        Self::change_link(self, at, link, change);
    }
    fn next_due(&self) -> Option<SimTime> {
        Self::next_due(self)
    }
    fn next_event(&mut self, limit: SimTime) -> Option<Event> {
        Self::next_event(self, limit)
    }
    fn path(&self, flow: FlowId) -> &[LinkId] {
        Self::path(self, flow)
    }
    fn ways(&self, flow: FlowId) -> Vec<&[LinkId]> {
        Self::ways(self, flow)
    }
    fn paths(&self, flow: FlowId) -> Paths {
        Self::paths(self, flow)
    }
    fn takes_one_path(&self, flow: FlowId) -> bool {
        Self::takes_one_path(self, flow)
    }
    fn record(&self, flow: FlowId) -> FlowRecord {
        Self::record(self, flow)
    }
    fn flow_count(&self) -> usize {
        self.records().size_hint().0
    }
    fn port_count(&self, link: LinkId) -> PortCount {
        Self::port_count(self, link)
    }
    fn packets(&self) -> PacketCount {
        Self::packets(self)
    }
    fn hops(&self) -> u64 {
        Self::hops(self)
    }
}
