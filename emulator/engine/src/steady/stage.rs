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
    fn find_paths_ahead(&mut self, _specs: &[&FlowSpec]) {}
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

/// Implements methods of [`Stage`] with the type's own methods of the same names.
macro_rules! forward {
    ($($name:ident [$($borrow:tt)+] ($self:ident $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;)*) => {$(
        fn $name($($borrow)+ $self $(, $argument: $type)*) $(-> $result)? {
            Self::$name($self $(, $argument)*)
        }
    )*};
}

impl<P: Probe> Stage for Engine<P> {
    type Probe = P;

    fn probes(&self) -> impl Iterator<Item = &P> {
        Self::probes(self)
    }
    forward! {
        network[&](self) -> &Network;
        settings[&](self) -> &EngineSettings;
        now[&](self) -> SimTime;
        add_batch[&mut](self) -> BatchId;
        find_paths_ahead[&mut](self, specs: &[&FlowSpec]);
        add_flow[&mut](self, spec: FlowSpec) -> Result<FlowId, EngineError>;
        add_gate[&mut](self, flow: FlowId, gate: FlowGate) -> Result<(), EngineError>;
        cancel_flow[&mut](self, flow: FlowId);
        reroute_flow[&mut](self, flow: FlowId) -> Result<(), RouteError>;
        flows_on_dark_links[&](self) -> Vec<FlowId>;
        set_timer[&mut](self, at: SimTime, token: u64);
        change_link[&mut](self, at: SimTime, link: LinkId, change: LinkChange);
        next_due[&](self) -> Option<SimTime>;
        next_event[&mut](self, limit: SimTime) -> Option<Event>;
        path[&](self, flow: FlowId) -> &[LinkId];
        ways[&](self, flow: FlowId) -> Vec<&[LinkId]>;
        paths[&](self, flow: FlowId) -> Paths;
        takes_one_path[&](self, flow: FlowId) -> bool;
        record[&](self, flow: FlowId) -> FlowRecord;
        flow_count[&](self) -> usize;
        port_count[&](self, link: LinkId) -> PortCount;
        packets[&](self) -> PacketCount;
        hops[&](self) -> u64;
    }
}
