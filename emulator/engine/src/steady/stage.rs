// SPDX-License-Identifier: Apache-2.0
//! What traffic is put on: one engine, or many small ones that answer like one.

use lightloom_units::SimTime;

use crate::engine::{
    BatchId, Engine, EngineError, EngineSettings, Event, FlowGate, FlowId, FlowRecord, FlowSpec,
    LinkChange, LinkId, Network, PacketCount, PortCount, Probe, RouteError,
};
use crate::transport::Transport;

/// What can run flows over a network. Who drives it cannot tell an [`Engine`] from
/// [`IslandEngine`](super::IslandEngine) by anything but the time it takes; every method is that of [`Engine`].
pub trait Stage {
    /// What looks at packets.
    type Probe: Probe;

    /// See [`Engine::network`].
    fn network(&self) -> &Network;
    /// See [`Engine::transport`].
    fn transport(&self) -> &Transport {
        &self.settings().transport
    }
    /// See [`Engine::settings`].
    fn settings(&self) -> &EngineSettings;
    /// See [`Engine::now`].
    fn now(&self) -> SimTime;
    /// See [`Engine::add_batch`].
    fn add_batch(&mut self) -> BatchId;
    /// See [`Engine::add_flow`].
    ///
    /// # Errors
    /// Those of [`Engine::add_flow`].
    fn add_flow(&mut self, spec: FlowSpec) -> Result<FlowId, EngineError>;
    /// See [`Engine::add_gate`].
    ///
    /// # Errors
    /// Those of [`Engine::add_gate`].
    fn add_gate(&mut self, flow: FlowId, gate: FlowGate) -> Result<(), EngineError>;
    /// See [`Engine::cancel_flow`].
    fn cancel_flow(&mut self, flow: FlowId);
    /// See [`Engine::reroute_flow`].
    ///
    /// # Errors
    /// Those of [`Engine::reroute_flow`].
    fn reroute_flow(&mut self, flow: FlowId) -> Result<(), RouteError>;
    /// See [`Engine::flows_on_dark_links`].
    fn flows_on_dark_links(&self) -> Vec<FlowId>;
    /// See [`Engine::set_timer`].
    fn set_timer(&mut self, at: SimTime, token: u64);
    /// See [`Engine::change_link`].
    fn change_link(&mut self, at: SimTime, link: LinkId, change: LinkChange);
    /// See [`Engine::next_due`].
    fn next_due(&self) -> Option<SimTime>;
    /// See [`Engine::next_event`].
    fn next_event(&mut self, limit: SimTime) -> Option<Event>;
    /// See [`Engine::path`].
    fn path(&self, flow: FlowId) -> &[LinkId];
    /// See [`Engine::ways`].
    fn ways(&self, flow: FlowId) -> Vec<&[LinkId]>;
    /// See [`Engine::paths`].
    fn paths(&self, flow: FlowId) -> Vec<&[LinkId]>;
    /// Whether all of a flow's data takes the same links.
    fn takes_one_path(&self, flow: FlowId) -> bool;
    /// See [`Engine::record`].
    fn record(&self, flow: FlowId) -> FlowRecord;
    /// How many flows were added.
    fn flow_count(&self) -> usize;
    /// See [`Engine::port_count`].
    fn port_count(&self, link: LinkId) -> PortCount;
    /// See [`Engine::packets`].
    fn packets(&self) -> PacketCount;
    /// See [`Engine::hops`].
    fn hops(&self) -> u64;

    /// See [`Engine::probes`].
    fn probes(&self) -> impl Iterator<Item = &Self::Probe>;

    /// See [`Engine::records`].
    fn records(&self) -> impl Iterator<Item = FlowRecord> {
        (0..self.flow_count()).map(|index| self.record(FlowId::from_index(index)))
    }
    /// See [`Engine::run`].
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
    fn paths(&self, flow: FlowId) -> Vec<&[LinkId]> {
        Self::paths(self, flow).iter().collect()
    }
    fn takes_one_path(&self, flow: FlowId) -> bool {
        Self::paths(self, flow).len() == 1 && self.choices(flow).is_empty()
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
