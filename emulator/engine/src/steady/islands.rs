// SPDX-License-Identifier: Apache-2.0
//! Many small engines behind the interface of a single one.

use std::hash::{Hash, Hasher};

use lightloom_units::SimTime;
use rustc_hash::FxHasher;

use super::apart::Apart;
use super::log::OtherEvent;
use super::stage::Stage;
use crate::engine::{
    ArrivalLog, BatchId, Engine, EngineError, EngineSettings, Event, FlowGate, FlowId, FlowRecord,
    FlowSpec, LinkChange, LinkId, Network, NoProbe, PRIORITIES, PacketArrival, PacketCount, Paths,
    PortCount, Probe, RouteError,
};
use crate::transport::{Balance, CongestionControl, FlowInterfaces};

pub trait LocalProbe: Probe {
    fn kind(&self, _link: LinkId) -> u8 {
        0
    }
    fn local(&self, _links: &[LinkId]) -> Self {
        self.clone()
    }
    /// A checksum over all arrivals, for comparing two runs. See [`arrival_sum`].
    fn sum(&self, _link: LinkId) -> u64 {
        0
    }
}

impl LocalProbe for NoProbe {}

impl LocalProbe for ArrivalLog {
    fn sum(&self, link: LinkId) -> u64 {
        let here = self.0.iter().filter(|arrival| arrival.link == link);
        here.fold(0, |sum, arrival| sum.wrapping_add(arrival_sum(arrival)))
    }
}

pub fn arrival_sum(arrival: &PacketArrival) -> u64 {
    let mut hasher = FxHasher::default();
    let PacketArrival { at, sequence, acknowledgement, marked, wire_bytes, .. } = arrival;
    (at, sequence, acknowledgement, marked, wire_bytes).hash(&mut hasher);
    hasher.finish()
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    #[error(transparent)]
    Event(#[from] OtherEvent),
    #[error("flow {} ended differently in a single engine", .0.0)]
    Flow(FlowId),
    #[error("link {} carried different packets in a single engine", .0.0)]
    Link(LinkId),
    #[error("island {0} did not repeat the previous packet")]
    Leap(usize),
    #[error("the islands count {islands:?}, but a single engine counts {whole:?}")]
    Packets { islands: Box<PacketCount>, whole: Box<PacketCount> },
}

/// The run cannot be split: islands interact too much, or a random draw depends on a link number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entangled;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ReuseCount {
    pub islands: usize,
    pub simulated: usize,
    pub leapt_packet_hops: u64,
}

#[derive(Debug)]
pub struct IslandEngine<P: LocalProbe = NoProbe> {
    mode: Mode<P>,
}

#[derive(Debug)]
enum Mode<P: LocalProbe> {
    Apart(Box<Apart<P>>),
    Whole(Box<Engine<P>>),
}

impl<P: LocalProbe> IslandEngine<P> {
    /// Islands require settings without receiver credit and with one path per flow, because draws depend on vertex ids.
    pub fn new(network: Network, settings: EngineSettings, probe: P) -> Result<Self, EngineError> {
        let transport = &settings.transport;
        let gives_credit = transport.congestion == CongestionControl::ReceiverCredit;
        if transport.balance != Balance::PerFlow
            || transport.interfaces == FlowInterfaces::All
            || gives_credit
        {
            return Self::whole(network, settings, probe);
        }
        settings.check(&network)?;
        Ok(Self { mode: Mode::Apart(Box::new(Apart::new(network, settings, probe))) })
    }

    /// Makes islands run ahead of time. An island that starts like an earlier one reuses its result, shifted in time; a
    /// disturbed island is resimulated from its start, so results are exact. This pays off if little traffic interacts.
    pub fn remembering(mut self) -> Self {
        if let Mode::Apart(apart) = &mut self.mode {
            apart.remembers = true;
        }
        self
    }

    /// Resimulates islands that have run ahead of the present, so that the run can stop at the present time.
    pub fn settle(&mut self) {
        let Mode::Apart(apart) = &mut self.mode else { return };
        if apart.settle().is_err() {
            self.engine_mut();
        }
    }

    pub fn whole(
        network: Network,
        settings: EngineSettings,
        probe: P,
    ) -> Result<Self, EngineError> {
        let engine = Engine::with_probe(network, settings, probe)?;
        Ok(Self { mode: Mode::Whole(Box::new(engine)) })
    }

    pub fn engine(&self) -> Option<&Engine<P>> {
        match &self.mode {
            Mode::Apart(_) => None,
            Mode::Whole(engine) => Some(engine),
        }
    }

    pub fn reuse(&self) -> Option<ReuseCount> {
        match &self.mode {
            Mode::Apart(apart) => {
                let (islands, simulated) = (apart.islands_run(), apart.classes.len());
                Some(ReuseCount { islands, simulated, leapt_packet_hops: apart.leapt() })
            }
            Mode::Whole(_) => None,
        }
    }

    /// A probe occurs once for each island that shares it. Link ids are local to the island.
    pub fn probes(&self) -> impl Iterator<Item = &P> {
        let (apart, whole) = match &self.mode {
            Mode::Apart(apart) => (Some(apart), None),
            Mode::Whole(engine) => (None, Some(engine)),
        };
        let classes = apart.into_iter().flat_map(|apart| &apart.classes);
        let of_islands =
            classes.flat_map(|class| class.members.iter().flat_map(|_| class.engine.probes()));
        of_islands.chain(whole.into_iter().flat_map(|engine| engine.probes()))
    }

    /// Repeats the run on a single engine, compares events, flows, link counts and arrival
    /// checksums, and returns that engine. `None` if the run is not split.
    pub fn prove(&self) -> Result<Option<Engine<P>>, Difference> {
        let Mode::Apart(apart) = &self.mode else { return Ok(None) };
        if let Some(island) = apart.foretold_wrongly() {
            return Err(Difference::Leap(island));
        }
        let (network, probe) = (apart.network.clone(), apart.probe.clone());
        let engine = Engine::with_probe(network, apart.settings, probe);
        let mut engine = engine.expect("packet sizes were checked earlier");
        apart.log.replay(&mut engine)?;
        for flow in (0..apart.flows.len()).map(FlowId::from_index) {
            if engine.record(flow) != apart.record(flow) {
                return Err(Difference::Flow(flow));
            }
        }
        for link in (0..apart.network.links().len()).map(LinkId::from_index) {
            let sum = engine.probes().fold(0, |sum: u64, probe| sum.wrapping_add(probe.sum(link)));
            // Arrivals cannot match if a result was reused at another time.
            let same = apart.was_shifted(link) || sum == apart.arrival_sum(link);
            if engine.port_count(link) != apart.port_count(link) || !same {
                return Err(Difference::Link(link));
            }
        }
        let [islands, whole] = [apart.packets(), engine.packets()].map(Box::new);
        if islands == whole {
            Ok(Some(engine))
        } else {
            Err(Difference::Packets { islands, whole })
        }
    }

    pub fn engine_mut(&mut self) -> &mut Engine<P> {
        if let Mode::Apart(apart) = &self.mode {
            self.mode = Mode::Whole(Box::new(apart.together()));
        }
        match &mut self.mode {
            Mode::Whole(engine) => engine,
            Mode::Apart(_) => unreachable!("the engine was assembled above"),
        }
    }

    /// See [`Engine::dropped_by_priority`]. Islands have no switches with bounded queues.
    pub fn dropped_by_priority(&self) -> [u64; PRIORITIES] {
        self.engine().map_or([0; PRIORITIES], Engine::dropped_by_priority)
    }
}

impl IslandEngine<ArrivalLog> {
    pub fn arrivals(&self) -> Vec<(PacketArrival, FlowId)> {
        let mut all = match &self.mode {
            Mode::Whole(engine) => arrivals(engine),
            Mode::Apart(apart) => {
                let mut all = Vec::new();
                for island in &apart.islands {
                    let seen = arrivals(&apart.classes[island.class as usize].engine).into_iter();
                    all.extend(seen.map(|(arrival, flow)| {
                        let link = island.links[arrival.link.index()];
                        (PacketArrival { link, ..arrival }, island.flows[flow.index()])
                    }));
                }
                all
            }
        };
        all.sort_unstable_by_key(|(arrival, _)| (arrival.at, arrival.link));
        all
    }
}

fn arrivals(engine: &Engine<ArrivalLog>) -> Vec<(PacketArrival, FlowId)> {
    let seen = engine.probes().flat_map(|log| &log.0);
    seen.map(|arrival| (*arrival, engine.flow_of(arrival))).collect()
}

/// Implements methods that both modes have.
macro_rules! forward {
    ($($name:ident [$($borrow:tt)+] ($self:ident $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;)*) => {$(
        fn $name($($borrow)+ $self $(, $argument: $type)*) $(-> $result)? {
            match $($borrow)+ $self.mode {
                Mode::Apart(stage) => stage.$name($($argument),*),
                Mode::Whole(stage) => stage.$name($($argument),*),
            }
        }
    )*};
}

impl<P: LocalProbe> Stage for IslandEngine<P> {
    type Probe = P;

    fn probes(&self) -> impl Iterator<Item = &P> {
        Self::probes(self)
    }
    fn find_paths_ahead(&mut self, specs: &[&FlowSpec]) {
        if let Mode::Whole(engine) = &mut self.mode {
            engine.find_paths_ahead(specs);
        }
    }
    forward! {
        add_batch[&mut](self) -> BatchId;
        add_flow[&mut](self, spec: FlowSpec) -> Result<FlowId, EngineError>;
        add_gate[&mut](self, flow: FlowId, gate: FlowGate) -> Result<(), EngineError>;
        cancel_flow[&mut](self, flow: FlowId);
        flows_on_dark_links[&](self) -> Vec<FlowId>;
        set_timer[&mut](self, at: SimTime, token: u64);
        change_link[&mut](self, at: SimTime, link: LinkId, change: LinkChange);
        next_due[&](self) -> Option<SimTime>;
        record[&](self, flow: FlowId) -> FlowRecord;
        port_count[&](self, link: LinkId) -> PortCount;
        packets[&](self) -> PacketCount;
        hops[&](self) -> u64;
    }
    fn network(&self) -> &Network {
        match &self.mode {
            Mode::Apart(apart) => &apart.network,
            Mode::Whole(engine) => engine.network(),
        }
    }
    fn settings(&self) -> &EngineSettings {
        match &self.mode {
            Mode::Apart(apart) => &apart.settings,
            Mode::Whole(engine) => engine.settings(),
        }
    }
    fn now(&self) -> SimTime {
        match &self.mode {
            Mode::Apart(apart) => apart.now,
            Mode::Whole(engine) => engine.now(),
        }
    }
    fn reroute_flow(&mut self, flow: FlowId) -> Result<(), RouteError> {
        match &mut self.mode {
            Mode::Apart(apart) if apart.remembers => apart.reroute_flow(flow),
            _ => self.engine_mut().reroute_flow(flow),
        }
    }
    fn next_event(&mut self, limit: SimTime) -> Option<Event> {
        let entangled = match &mut self.mode {
            Mode::Whole(engine) => return engine.next_event(limit),
            Mode::Apart(apart) => match apart.next_event(limit) {
                Ok(event) => return event,
                Err(Entangled) => apart.together(),
            },
        };
        self.mode = Mode::Whole(Box::new(entangled));
        self.next_event(limit)
    }
    fn path(&self, flow: FlowId) -> &[LinkId] {
        match &self.mode {
            Mode::Apart(apart) => apart.flows[flow.index()].path(),
            Mode::Whole(engine) => engine.path(flow),
        }
    }
    fn ways(&self, flow: FlowId) -> Vec<&[LinkId]> {
        match &self.mode {
            Mode::Apart(apart) => vec![apart.flows[flow.index()].path()],
            Mode::Whole(engine) => engine.ways(flow),
        }
    }
    fn paths(&self, flow: FlowId) -> Paths {
        match &self.mode {
            Mode::Apart(apart) => Paths::one(apart.flows[flow.index()].path()),
            Mode::Whole(engine) => engine.paths(flow),
        }
    }
    fn takes_one_path(&self, flow: FlowId) -> bool {
        self.engine().is_none_or(|engine| engine.takes_one_path(flow))
    }
    fn flow_count(&self) -> usize {
        match &self.mode {
            Mode::Apart(apart) => apart.flows.len(),
            Mode::Whole(engine) => engine.flow_count(),
        }
    }
}
