//! Many small engines that answer like one.

use lightloom_fabric::units::SimTime;

use super::apart::Apart;
use super::log::OtherEvent;
use super::stage::Stage;
use crate::engine::{
    Arrival, ArrivalLog, BatchId, Engine, EngineError, Event, FlowId, FlowRecord, FlowSpec, Gate,
    LinkChange, LinkId, Network, NoProbe, PacketCount, PortCount, Probe, Settings,
};
use crate::transport::{Balance, Transport};

/// A probe that can be put on a part of the network.
pub trait LocalProbe: Probe {
    /// What it tells this link apart from others by. Islands are the same only if their links are.
    fn kind(&self, _link: LinkId) -> u8 {
        0
    }
    /// The probe for a network of its own that has these links.
    #[must_use]
    fn local(&self, _links: &[LinkId]) -> Self {
        self.clone()
    }
}

impl LocalProbe for NoProbe {}
impl LocalProbe for ArrivalLog {}

/// The run cannot be taken apart: islands grow together, or something is drawn by the number of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entangled;

/// How much of a run was spared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Reuse {
    /// Parts that could not feel each other.
    pub islands: usize,
    /// Those that were simulated. All others took the result of one that is the same.
    pub simulated: usize,
}

/// See the description of [`super`].
#[derive(Debug)]
pub struct Islands<P: LocalProbe = NoProbe> {
    mode: Mode<P>,
}

#[derive(Debug)]
enum Mode<P: LocalProbe> {
    Apart(Box<Apart<P>>),
    Whole(Box<Engine<P>>),
}

impl<P: LocalProbe> Islands<P> {
    /// Islands where the settings allow it: not with several paths a flow, which are drawn by the names of
    /// vertices.
    ///
    /// # Errors
    /// Packet sizes that cannot be emulated.
    pub fn new(network: Network, settings: Settings, probe: P) -> Result<Self, EngineError> {
        if settings.transport.balance != Balance::PerFlow {
            return Self::whole(network, settings, probe);
        }
        settings.check()?;
        Ok(Self { mode: Mode::Apart(Box::new(Apart::new(network, settings, probe))) })
    }

    /// One engine for everything, from the beginning.
    ///
    /// # Errors
    /// Packet sizes that cannot be emulated.
    pub fn whole(network: Network, settings: Settings, probe: P) -> Result<Self, EngineError> {
        let engine = Engine::with_probe(network, settings, probe)?;
        Ok(Self { mode: Mode::Whole(Box::new(engine)) })
    }

    /// The engine for everything, if the run is not taken apart (any more).
    #[must_use]
    pub fn engine(&self) -> Option<&Engine<P>> {
        match &self.mode {
            Mode::Apart(_) => None,
            Mode::Whole(engine) => Some(engine),
        }
    }

    /// How much was spared; nothing if the run is not taken apart.
    #[must_use]
    pub fn reuse(&self) -> Option<Reuse> {
        match &self.mode {
            Mode::Apart(apart) => {
                let (islands, simulated) = (apart.islands.len(), apart.classes.len());
                Some(Reuse { islands, simulated })
            }
            Mode::Whole(_) => None,
        }
    }

    /// What the probes have seen, once for each part that has seen it; links have the numbers of
    /// their islands.
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

    /// Asks one engine for everything that was asked here, and returns it after it has given the same
    /// answers.
    ///
    /// # Errors
    /// The first answer that is another one.
    pub fn prove(&self) -> Result<Option<Engine<P>>, OtherEvent> {
        let Mode::Apart(apart) = &self.mode else { return Ok(None) };
        let (network, probe) = (apart.network.clone(), apart.probe.clone());
        let engine = Engine::with_probe(network, apart.settings, probe);
        let mut engine = engine.expect("its packet sizes were checked");
        apart.log.replay(&mut engine)?;
        Ok(Some(engine))
    }
}

impl Islands<ArrivalLog> {
    /// Every arrival, of every part, with the flow it belongs to, in order of time, then link.
    #[must_use]
    pub fn arrivals(&self) -> Vec<(Arrival, FlowId)> {
        let mut all = match &self.mode {
            Mode::Whole(engine) => arrivals(engine),
            Mode::Apart(apart) => {
                let of_island = |island: &super::apart::Island| {
                    let seen = arrivals(&apart.classes[island.class as usize].engine);
                    let rename = |(arrival, flow): (Arrival, FlowId)| {
                        let link = island.links[arrival.link.index()];
                        (Arrival { link, ..arrival }, island.flows[flow.index()])
                    };
                    seen.into_iter().map(rename).collect::<Vec<_>>()
                };
                apart.islands.iter().flat_map(of_island).collect()
            }
        };
        all.sort_unstable_by_key(|(arrival, _)| (arrival.at, arrival.link));
        all
    }
}

/// What an engine's probes have seen, with the flows.
fn arrivals(engine: &Engine<ArrivalLog>) -> Vec<(Arrival, FlowId)> {
    let seen = engine.probes().flat_map(|log| &log.0);
    seen.map(|arrival| (*arrival, engine.flow_of(arrival))).collect()
}

impl<P: LocalProbe> Stage for Islands<P> {
    fn network(&self) -> &Network {
        match &self.mode {
            Mode::Apart(apart) => &apart.network,
            Mode::Whole(engine) => engine.network(),
        }
    }
    fn transport(&self) -> &Transport {
        match &self.mode {
            Mode::Apart(apart) => &apart.settings.transport,
            Mode::Whole(engine) => engine.transport(),
        }
    }
    fn now(&self) -> SimTime {
        match &self.mode {
            Mode::Apart(apart) => apart.now,
            Mode::Whole(engine) => engine.now(),
        }
    }
    fn add_batch(&mut self) -> BatchId {
        match &mut self.mode {
            Mode::Apart(apart) => apart.add_batch(),
            Mode::Whole(engine) => engine.add_batch(),
        }
    }
    fn add_flow(&mut self, spec: FlowSpec) -> Result<FlowId, EngineError> {
        match &mut self.mode {
            Mode::Apart(apart) => apart.add_flow(spec),
            Mode::Whole(engine) => engine.add_flow(spec),
        }
    }
    fn add_gate(&mut self, flow: FlowId, gate: Gate) -> Result<(), EngineError> {
        match &mut self.mode {
            Mode::Apart(apart) => apart.add_gate(flow, gate),
            Mode::Whole(engine) => engine.add_gate(flow, gate),
        }
    }
    fn cancel_flow(&mut self, flow: FlowId) {
        match &mut self.mode {
            Mode::Apart(apart) => apart.cancel_flow(flow),
            Mode::Whole(engine) => engine.cancel_flow(flow),
        }
    }
    fn set_timer(&mut self, at: SimTime, token: u64) {
        match &mut self.mode {
            Mode::Apart(apart) => apart.set_timer(at, token),
            Mode::Whole(engine) => engine.set_timer(at, token),
        }
    }
    fn change_link(&mut self, at: SimTime, link: LinkId, change: LinkChange) {
        match &mut self.mode {
            Mode::Apart(apart) => apart.change_link(at, link, change),
            Mode::Whole(engine) => engine.change_link(at, link, change),
        }
    }
    fn next_due(&self) -> Option<SimTime> {
        match &self.mode {
            Mode::Apart(apart) => apart.next_due(),
            Mode::Whole(engine) => engine.next_due(),
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
            Mode::Apart(apart) => &apart.flows[flow.index()].path,
            Mode::Whole(engine) => engine.path(flow),
        }
    }
    fn record(&self, flow: FlowId) -> FlowRecord {
        match &self.mode {
            Mode::Apart(apart) => apart.record(flow),
            Mode::Whole(engine) => engine.record(flow),
        }
    }
    fn flow_count(&self) -> usize {
        match &self.mode {
            Mode::Apart(apart) => apart.flows.len(),
            Mode::Whole(engine) => engine.flow_count(),
        }
    }
    fn port_count(&self, link: LinkId) -> PortCount {
        match &self.mode {
            Mode::Apart(apart) => apart.port_count(link),
            Mode::Whole(engine) => engine.port_count(link),
        }
    }
    fn packets(&self) -> PacketCount {
        match &self.mode {
            Mode::Apart(apart) => apart.packets(),
            Mode::Whole(engine) => engine.packets(),
        }
    }
    fn hops(&self) -> u64 {
        match &self.mode {
            Mode::Apart(apart) => apart.hops(),
            Mode::Whole(engine) => engine.hops(),
        }
    }
}
