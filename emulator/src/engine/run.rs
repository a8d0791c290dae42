//! The engine itself: holds the shards, opens windows, keeps the records.

use lightloom_fabric::seed::Seed;
use lightloom_fabric::units::{BitsPerSecond, Bytes, Picoseconds, SimTime};
use rand::Rng;
use rayon::prelude::*;

use super::control::{Act, BitErrors, ControlQueue, Event, LinkChange};
use super::flow::{BatchId, FlowId, FlowRecord, FlowSpec, Gate};
use super::layout::{Layout, Place};
use super::marking::Marking;
use super::network::{Link, LinkId, Network, VertexId};
use super::port::{Port, PortCount, wire_bytes};
use super::probe::{Arrival, NoProbe, Probe};
use super::queueing::{CONTROL_PRIORITY, PRIORITIES, Queueing};
use super::route::{FlowName, Route, RouteError, Router};
use super::shard::{DELIVER, Shard, Shared, Span};
use super::switching::Switching;
use crate::transport::{Balancer, Controller, Load, Path, Receiver, Sender, Transport, Window};

/// Keys in a window are 32-bit picoseconds, so a window never spans more than 4 ms.
const LONGEST_WINDOW_PS: u64 = 4_000_000_000;
/// Below so many arrivals a window is not worth waking another thread.
const WORTH_SHARING_ARRIVALS: u64 = 2_000;
const LARGEST_PACKET: Bytes = Bytes(65_535);

/// What an engine is told besides the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Packet sizes, windows and recovery of all flows.
    pub transport: Transport,
    /// Decides which of several shortest paths a flow takes.
    pub seed: Seed,
    /// Real queues at switches, with priorities, pauses and trimming; nothing: one first-in first-out
    /// queue a port, which is faster.
    pub queueing: Option<Queueing>,
    /// Which packets long queues mark.
    pub marking: Marking,
    /// When switches begin to send a packet.
    pub switching: Switching,
    /// How long a host takes from the last bit of a packet for one of its flows to what it does because of it:
    /// the acknowledgement is put on the port, the sender takes the acknowledgement in, the gate of a
    /// message opens. The end of a flow ([`FlowRecord::end`]) is the arrival of its last packet plus this,
    /// and [`PacketCount`] counts a packet as in flight until then; what a probe sees is the arrival itself. A
    /// host that takes one packet after the other at full rate is meant: delays do not add up. Pauses
    /// are obeyed, and packets of others passed on, at once.
    pub host_delay: Picoseconds,
    /// How many parts the network is cut into, to be advanced at once on the current rayon pool.
    /// The result does not depend on it.
    pub threads: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            transport: Transport::default(),
            seed: Seed(0),
            queueing: None,
            marking: Marking::Threshold,
            switching: Switching::StoreAndForward,
            host_delay: Picoseconds::ZERO,
            threads: 1,
        }
    }
}

impl Settings {
    /// How long before the last bit of a packet is in it may go on by the second link, when it came by the
    /// first one.
    pub(crate) fn head_start(
        &self,
        network: &Network,
        (came, leaves): (Option<LinkId>, LinkId),
        size: Bytes,
    ) -> Picoseconds {
        let Link { from, spec, .. } = network.link(leaves);
        let Some(came) = came.filter(|_| !network.role(*from).is_host()) else {
            return Picoseconds::ZERO;
        };
        let rates = (network.link(came).spec.rate, spec.rate);
        self.switching.head_start(rates, (size, self.transport.header))
    }

    /// Whether packets of these sizes, and such switches, can be emulated.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let transport = &self.transport;
        let sizes = [transport.packet(), transport.acknowledgement];
        if let Some(&size) = sizes.iter().find(|size| **size > LARGEST_PACKET || size.0 == 0) {
            return Err(EngineError::PacketSize { size });
        }
        if transport.payload == Bytes::ZERO {
            return Err(EngineError::PacketSize { size: Bytes::ZERO });
        }
        if self.switching == Switching::CutThrough && self.queueing.is_some() {
            return Err(EngineError::QueuesCutThrough);
        }
        Ok(())
    }
}

/// Why the engine refuses something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// Packet sizes out of range.
    #[error("packets of {size} cannot be emulated: data and header together must be 1 to 65,535 B")]
    PacketSize {
        /// Data and header.
        size: Bytes,
    },
    /// Cut-through is there for switches with one first-in first-out queue a port only.
    #[error(
        "switches with priorities, pauses or trimming cannot cut through: choose one of the two"
    )]
    QueuesCutThrough,
    /// Flows begin and end at hosts.
    #[error("vertex {} is no host: flows begin and end at hosts", vertex.0)]
    NotAHost {
        /// The vertex.
        vertex: VertexId,
    },
    /// A flow to itself.
    #[error("the flow begins and ends at vertex {}", vertex.0)]
    ToItself {
        /// The vertex.
        vertex: VertexId,
    },
    /// No way.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// A gate on a flow that ends elsewhere.
    #[error("a flow from vertex {} cannot wait for flow {}, which ends elsewhere", source_vertex.0, gate.0)]
    GateElsewhere {
        /// Where the waiting flow begins.
        source_vertex: VertexId,
        /// The flow it should wait for.
        gate: FlowId,
    },
    /// Packet numbers have 31 bits.
    #[error("a flow of {packets} packets is too long: at most 2^31")]
    TooLong {
        /// How many it would take.
        packets: u64,
    },
    /// Distances beyond a window are kept in 16 bits.
    #[error("a window of {packets} packets is too large: at most 60,000")]
    WindowTooLarge {
        /// What was asked for or computed.
        packets: u64,
    },
}

/// Packets made and what became of them. `sent = delivered + dropped + lost + in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCount {
    /// Data packets, acknowledgements and pause frames handed to the network.
    pub sent: u64,
    /// The data packets among them.
    pub data_sent: u64,
    /// Packets that reached their end of the flow.
    pub delivered: u64,
    /// Packets that found a queue full.
    pub dropped: u64,
    /// Data packets cut to their headers, which went on.
    pub trimmed: u64,
    /// Times that a switch asked a port to pause.
    pub pauses: u64,
    /// Packets lost on a link that was or went down.
    pub lost: u64,
    /// Packets on their way.
    pub in_flight: u64,
    /// Times that a packet was marked by a queue.
    pub marked: u64,
    /// Data packets sent again.
    pub retransmitted: u64,
    /// Packets put on a wire: the unit in which the engine's speed is told.
    pub hops: u64,
}

#[derive(Clone, Debug)]
struct FlowState {
    name: FlowName,
    size: Bytes,
    start: SimTime,
    end: Option<SimTime>,
    batch: Option<BatchId>,
    route: Route,
    paths: Vec<Vec<LinkId>>,
    sender: Place,
    receiver: Place,
    cancelled: bool,
}

#[derive(Clone, Debug, Default)]
struct Batch {
    open: u32,
    latest: SimTime,
}

/// Runs flows over a network, packet by packet.
///
/// The caller adds flows and timers, then asks for [`next_event`](Self::next_event) again and again;
/// at each event time stands still and flows, timers and link changes may be added. One seed gives
/// one result, whatever the number of threads.
#[derive(Clone, Debug)]
pub struct Engine<P = NoProbe> {
    network: Network,
    settings: Settings,
    layout: Layout,
    shards: Vec<Shard<P>>,
    shared: Shared,
    /// Where the ways of flows begin in the route table, in ascending order.
    ways: Vec<(u32, FlowId)>,
    router: Router,
    control: ControlQueue,
    flows: Vec<FlowState>,
    batches: Vec<Batch>,
    now: SimTime,
    window: u64,
    windows: u64,
    /// The last window held enough work for several threads.
    is_worth_sharing: bool,
}

impl FlowState {
    const fn source(&self) -> VertexId {
        self.name.ends.0
    }
    const fn destination(&self) -> VertexId {
        self.name.ends.1
    }
}

impl Engine<NoProbe> {
    /// An engine at time zero.
    ///
    /// # Errors
    /// Packet sizes that cannot be emulated; cut-through with real queues.
    pub fn new(network: Network, settings: Settings) -> Result<Self, EngineError> {
        Self::with_probe(network, settings, NoProbe)
    }
}

impl<P: Probe> Engine<P> {
    /// An engine whose packets can be watched. Each part of the network gets a copy of `probe`.
    ///
    /// # Errors
    /// Packet sizes that cannot be emulated; cut-through with real queues.
    pub fn with_probe(network: Network, settings: Settings, probe: P) -> Result<Self, EngineError> {
        settings.check()?;
        let transport = &settings.transport;
        let (layout, shards) = Layout::new(&network, &settings, &probe);
        let acknowledgement_bytes = wire_bytes(transport.acknowledgement);
        let header_bytes = wire_bytes(transport.header).max(1);
        let router = Router::new(settings.seed, network.links().len());
        let window = network.shortest_delay().get().min(LONGEST_WINDOW_PS);
        Ok(Self {
            network,
            settings,
            layout,
            shards,
            shared: Shared {
                acknowledgement_bytes,
                header_bytes,
                switching: settings.switching,
                host_delay: settings.host_delay.get(),
                ..Shared::default()
            },
            ways: Vec::new(),
            router,
            control: ControlQueue::default(),
            flows: Vec::new(),
            batches: Vec::new(),
            now: SimTime::START,
            window,
            windows: 0,
            is_worth_sharing: false,
        })
    }

    /// The network the packets run on.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }
    /// How flows are sent.
    #[must_use]
    pub fn transport(&self) -> &Transport {
        &self.settings.transport
    }
    /// What the engine was told besides the network.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }
    pub(super) fn shards(&self) -> &[Shard<P>] {
        &self.shards
    }
    pub(super) fn port(&self, link: LinkId) -> &Port {
        let Place { shard, index } = self.layout.ports[link.index()];
        &self.shards[shard as usize].ports[index as usize]
    }
    /// Simulated time.
    #[must_use]
    pub fn now(&self) -> SimTime {
        self.now
    }
    /// How many windows have been opened so far.
    #[must_use]
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// A new, empty batch.
    pub fn add_batch(&mut self) -> BatchId {
        self.batches.push(Batch::default());
        BatchId::from_index(self.batches.len() - 1)
    }

    /// Plans [`Event::Timer`] with this token, now at the earliest.
    pub fn set_timer(&mut self, at: SimTime, token: u64) {
        self.control.plan(at.max(self.now), Act::Timer(token));
    }

    /// Plans a change of one direction of a cable, now at the earliest. It happens before any packet
    /// of the same instant.
    pub fn change_link(&mut self, at: SimTime, link: LinkId, change: LinkChange) {
        let act = match change {
            LinkChange::Down => Act::LinkDown(link),
            LinkChange::Up => Act::LinkUp(link),
            LinkChange::Rate(rate) => Act::LinkRate(link, rate),
            LinkChange::BitErrors(errors) => Act::LinkErrors(link, errors),
            LinkChange::Healthy => Act::LinkHealthy(link),
            LinkChange::Paused(priorities) => Act::LinkPaused(link, priorities),
        };
        self.control.plan(at.max(self.now), act);
    }

    /// Whether the link carries packets now.
    #[must_use]
    pub fn is_up(&self, link: LinkId) -> bool {
        self.router.is_up(link)
    }

    /// Adds a flow, which starts at its start time or now, whichever is later.
    ///
    /// # Errors
    /// Ends that are no hosts, no path, a gate on a flow that ends elsewhere, too many packets.
    pub fn add_flow(&mut self, spec: FlowSpec) -> Result<FlowId, EngineError> {
        let id = FlowId::from_index(self.flows.len());
        self.check_ends(&spec)?;
        let name = self.router.name_flow((spec.source, spec.destination));
        let count = self.settings.transport.balance.paths();
        let paths = self.router.find(&self.network, name, &spec.route, count)?;
        let load = self.load_of(&spec)?;
        let window = self.window_of(&paths[0])?;
        let start = spec.start.max(self.now);
        let (sender, receiver) = self.make_ends(id, &spec, &paths, load, window);
        self.flows.push(FlowState {
            name,
            size: spec.message * u64::from(spec.messages),
            start,
            end: None,
            batch: spec.batch,
            route: spec.route,
            paths,
            sender,
            receiver,
            cancelled: false,
        });
        spec.gates.iter().try_for_each(|gate| self.add_gate(id, *gate))?;
        if let Some(batch) = spec.batch {
            self.batches[batch.index()].open += 1;
        }
        let sender = self.flows[id.index()].sender;
        let vertex = self.layout.vertices[spec.source.index()];
        self.shards[sender.shard as usize].plan_start(vertex.index, sender.index, start.0);
        Ok(id)
    }

    fn check_ends(&self, spec: &FlowSpec) -> Result<(), EngineError> {
        for vertex in [spec.source, spec.destination] {
            if vertex.index() >= self.network.vertex_count() || !self.network.role(vertex).is_host()
            {
                return Err(EngineError::NotAHost { vertex });
            }
        }
        if spec.source == spec.destination {
            return Err(EngineError::ToItself { vertex: spec.source });
        }
        spec.gates.iter().try_for_each(|gate| self.check_gate(spec.source, gate.flow))
    }

    fn check_gate(&self, source_vertex: VertexId, gate: FlowId) -> Result<(), EngineError> {
        match self.flows.get(gate.index()) {
            Some(flow) if flow.destination() == source_vertex => Ok(()),
            _ => Err(EngineError::GateElsewhere { source_vertex, gate }),
        }
    }

    /// Makes a flow wait for another one, which may have been added after it.
    ///
    /// # Errors
    /// The flow waited for ends elsewhere.
    ///
    /// # Panics
    /// If `flow` has started: it may have sent what the gate should hold back.
    pub fn add_gate(&mut self, flow: FlowId, gate: Gate) -> Result<(), EngineError> {
        self.check_gate(self.flows[flow.index()].source(), gate.flow)?;
        let Place { shard, index } = self.flows[flow.index()].sender;
        let awaited = self.flows[gate.flow.index()].receiver.index;
        let shard = &mut self.shards[shard as usize];
        let sender = &mut shard.senders[index as usize];
        assert!(!sender.started, "flow {} has started", flow.0);
        sender.gates.push((awaited, gate.ahead));
        shard.receivers[awaited as usize].dependents.push(index);
        Ok(())
    }

    fn load_of(&self, spec: &FlowSpec) -> Result<Load, EngineError> {
        let transport = &self.settings.transport;
        let per_message = transport.packets_for(spec.message);
        let packets = per_message.saturating_mul(u64::from(spec.messages));
        if packets > 1 << 31 {
            return Err(EngineError::TooLong { packets });
        }
        Ok(Load {
            messages: spec.messages,
            per_message: per_message as u32,
            full_bytes: wire_bytes(transport.packet()),
            last_bytes: wire_bytes(transport.last_packet(spec.message)),
        })
    }

    fn window_of(&self, path: &[LinkId]) -> Result<u32, EngineError> {
        let transport = &self.settings.transport;
        let packets = match transport.window {
            Window::Packets(packets) => u64::from(packets),
            Window::BandwidthDelay { percent } => {
                let full = |link: &LinkId| {
                    self.network.link(*link).spec.rate.time_for(transport.packet()).get()
                };
                let slowest = path.iter().map(full).max().expect("a path has links");
                let scaled = u128::from(self.round_trip(path)) * u128::from(percent);
                scaled.div_ceil(u128::from(slowest) * 100) as u64
            }
        };
        match u32::try_from(packets) {
            Ok(packets) if packets <= 60_000 => Ok(packets.max(1)),
            _ => Err(EngineError::WindowTooLarge { packets }),
        }
    }

    /// A packet and its acknowledgement on an idle path, in picoseconds.
    fn round_trip(&self, path: &[LinkId]) -> u64 {
        let transport = &self.settings.transport;
        let there = self.one_way(path.iter().copied(), transport.packet());
        let back = path.iter().rev().map(|link| link.reverse());
        let hosts = self.settings.host_delay.get() * 2;
        there + self.one_way(back, transport.acknowledgement) + hosts
    }

    /// A packet on an idle path from its first bit to its last, in picoseconds.
    fn one_way(&self, path: impl Iterator<Item = LinkId>, size: Bytes) -> u64 {
        let (mut time, mut came) = (0, None);
        for link in path {
            let spec = self.network.link(link).spec;
            let early = self.settings.head_start(&self.network, (came, link), size);
            time += (spec.rate.time_for(size) + spec.delay).get() - early.get();
            came = Some(link);
        }
        time
    }

    fn idle_path(&self, path: &[LinkId], window: u32) -> Path {
        let rate = self.network.link(path[0]).spec.rate;
        Path { round_trip: self.round_trip(path), hops: path.len() as u32, rate, window }
    }

    /// Makes both ends of a flow in the shards where they live.
    fn make_ends(
        &mut self,
        id: FlowId,
        spec: &FlowSpec,
        paths: &[Vec<LinkId>],
        load: Load,
        window: u32,
    ) -> (Place, Place) {
        let Transport { recovery, timeout, balance, congestion, .. } = self.settings.transport;
        let (cursors, answer) = self.lay_routes(id, paths);
        let data = cursors[0];
        let from = self.layout.vertices[spec.source.index()].shard;
        let to = self.layout.vertices[spec.destination.index()].shard;
        let sender_index = self.shards[from as usize].senders.len() as u32;
        let receiver_index = self.shards[to as usize].receivers.len() as u32;
        let sending = (window, recovery, timeout.get());
        let mut sender = Sender::new((id.0, receiver_index, data), load, sending);
        sender.priority = spec.priority.min(CONTROL_PRIORITY - 1);
        sender.controller = Controller::new(congestion, self.idle_path(&paths[0], window));
        sender.balancer =
            (cursors.len() > 1).then(|| Box::new(Balancer::new(balance, cursors, window)));
        let messages = (load.messages, load.per_message);
        let receiver = Receiver::new((id.0, sender_index, answer), messages, (window, recovery));
        self.shards[from as usize].senders.push(sender);
        self.shards[to as usize].receivers.push(receiver);
        let place = |shard, index| Place { shard, index };
        (place(from, sender_index), place(to, receiver_index))
    }

    /// Appends paths, and the way back of the first, to the route table. Returns where the paths
    /// begin and where the way back does.
    fn lay_routes(&mut self, flow: FlowId, paths: &[Vec<LinkId>]) -> (Vec<u32>, u32) {
        self.ways.push((self.shared.routes.len() as u32, flow));
        let data = paths.iter().map(|path| self.lay_route(path.iter().copied())).collect();
        let answer = self.lay_route(paths[0].iter().rev().map(|link| link.reverse()));
        (data, answer)
    }

    fn lay_route(&mut self, links: impl Iterator<Item = LinkId>) -> u32 {
        let routes = &mut self.shared.routes;
        let begin = u32::try_from(routes.len()).expect("the route table is below 2^32 entries");
        routes.extend(links.map(|link| self.layout.ports[link.index()].index));
        routes.push(DELIVER);
        begin
    }

    /// Stops a flow for good. What it has in flight still travels; it never counts as done.
    pub fn cancel_flow(&mut self, flow: FlowId) {
        let state = &mut self.flows[flow.index()];
        if state.end.is_some() || state.cancelled {
            return;
        }
        state.cancelled = true;
        let vertex = self.layout.vertices[state.source().index()];
        self.shards[state.sender.shard as usize].cancel(vertex.index, state.sender.index);
        let batch = state.batch;
        self.leave_batch(batch, self.now);
    }

    /// Gives a flow new paths over links that are up; packets under way keep theirs.
    ///
    /// # Errors
    /// No such path; the flow then keeps the old one.
    pub fn reroute_flow(&mut self, flow: FlowId) -> Result<(), RouteError> {
        let state = &self.flows[flow.index()];
        let count = self.settings.transport.balance.paths();
        let paths = self.router.find(&self.network, state.name, &state.route, count)?;
        let (cursors, answer) = self.lay_routes(flow, &paths);
        let state = &mut self.flows[flow.index()];
        state.paths = paths;
        let Place { shard, index } = state.sender;
        let vertex = self.layout.vertices[state.source().index()].index;
        let sender = &mut self.shards[shard as usize].senders[index as usize];
        let ports = [sender.cursor, cursors[0]].map(|way| self.shared.routes[way as usize]);
        sender.cursor = cursors[0];
        if let Some(balancer) = &mut sender.balancer {
            balancer.replace(cursors);
        }
        self.shards[shard as usize].leave_dark_port(vertex, index, ports, self.now.0);
        let Place { shard, index } = state.receiver;
        self.shards[shard as usize].receivers[index as usize].cursor = answer;
        Ok(())
    }

    /// Unfinished flows one of whose paths, or its way back, uses a link that is down.
    #[must_use]
    pub fn flows_on_dark_links(&self) -> Vec<FlowId> {
        let dark = |link: &LinkId| !self.is_up(*link) || !self.is_up(link.reverse());
        let hit = |state: &FlowState| {
            state.end.is_none() && !state.cancelled && state.paths.iter().flatten().any(dark)
        };
        (0..self.flows.len()).filter(|&i| hit(&self.flows[i])).map(FlowId::from_index).collect()
    }

    /// The links a flow's data takes now, on the first of its paths; acknowledgements take their
    /// reverses.
    #[must_use]
    pub fn path(&self, flow: FlowId) -> &[LinkId] {
        &self.flows[flow.index()].paths[0]
    }

    /// All paths that a flow's data takes in turn.
    #[must_use]
    pub fn paths(&self, flow: FlowId) -> &[Vec<LinkId>] {
        &self.flows[flow.index()].paths
    }

    /// What has become of a flow so far.
    #[must_use]
    pub fn record(&self, flow: FlowId) -> FlowRecord {
        let state = &self.flows[flow.index()];
        let Place { shard, index } = state.sender;
        let receiver = &self.shards[state.receiver.shard as usize].receivers;
        let packets = receiver[state.receiver.index as usize].packets_in_order();
        let delivered = self.settings.transport.payload * u64::from(packets);
        FlowRecord {
            source: state.source(),
            destination: state.destination(),
            size: state.size,
            delivered: if state.end.is_some() { state.size } else { delivered.min(state.size) },
            start: state.start,
            end: state.end,
            retransmitted: self.shards[shard as usize].senders[index as usize].resent,
            cancelled: state.cancelled,
        }
    }

    /// The records of all flows, in order of creation.
    pub fn records(&self) -> impl Iterator<Item = FlowRecord> {
        (0..self.flows.len()).map(|index| self.record(FlowId::from_index(index)))
    }

    /// What the port before a link has done so far.
    #[must_use]
    pub fn port_count(&self, link: LinkId) -> PortCount {
        let Place { shard, index } = self.layout.ports[link.index()];
        self.shards[shard as usize].counts[index as usize]
    }

    /// Packets made so far and what became of them.
    #[must_use]
    pub fn packets(&self) -> PacketCount {
        let mut total = PacketCount::default();
        for shard in &self.shards {
            total.data_sent += shard.ends.data_sent;
            total.sent += shard.ends.data_sent + shard.ends.acknowledgements_sent;
            total.sent += shard.ends.frames_sent;
            total.delivered += shard.ends.delivered;
            total.in_flight += shard.in_flight();
            total.retransmitted +=
                shard.senders.iter().map(|sender| u64::from(sender.resent)).sum::<u64>();
            for count in &shard.counts {
                total.dropped += count.dropped;
                total.lost += count.lost;
                total.trimmed += count.trimmed;
                total.pauses += count.pauses;
                total.marked += count.marked;
                total.hops += count.packets;
            }
        }
        total
    }

    /// Packets that found no room in switches with real queues, by priority; acknowledgements and trimmed
    /// packets have the last one. Without such queues there are no priorities, and nothing is counted.
    #[must_use]
    pub fn dropped_by_priority(&self) -> [u64; PRIORITIES] {
        let mut total = [0; PRIORITIES];
        let switches = self.shards.iter().flat_map(|shard| shard.switches.iter().flatten());
        for (class, dropped) in switches.flat_map(|switch| switch.dropped().iter().enumerate()) {
            total[class] += dropped;
        }
        total
    }

    /// Packets put on a wire so far.
    #[must_use]
    pub fn hops(&self) -> u64 {
        self.shards.iter().flat_map(|shard| &shard.counts).map(|count| count.packets).sum()
    }

    /// When something happens next; nothing if nothing is left to do.
    #[must_use]
    pub fn next_due(&self) -> Option<SimTime> {
        let packets = self.shards.iter().map(Shard::next_due).min().unwrap_or(u64::MAX);
        let next = packets.min(self.control.next_due());
        (next != u64::MAX).then(|| SimTime(next).max(self.now))
    }

    /// When something happens next besides packets: a link changes, an event is told.
    pub(crate) fn control_due(&self) -> Option<SimTime> {
        let due = self.control.next_due();
        (due != u64::MAX).then_some(SimTime(due))
    }

    /// Whether nothing will happen any more unless somebody adds something: no packet is on its way,
    /// and every flow is done and knows it, or was cancelled.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.control.next_due() == u64::MAX && self.shards.iter().all(Shard::is_quiet)
    }

    /// The flow of a packet that a probe saw.
    #[must_use]
    pub fn flow_of(&self, arrival: &Arrival) -> FlowId {
        let after = self.ways.partition_point(|(begin, _)| *begin <= arrival.way.0);
        self.ways[after - 1].1
    }

    /// What the probes have seen so far, part by part.
    pub fn probes(&self) -> impl Iterator<Item = &P> {
        self.shards.iter().map(|shard| &shard.probe)
    }

    /// What the probes saw, part by part.
    pub fn into_probes(self) -> impl Iterator<Item = P> {
        self.shards.into_iter().map(|shard| shard.probe)
    }

    /// Runs until nothing is left to do or `limit` is reached, ignoring events.
    pub fn run(&mut self, limit: SimTime) {
        while self.next_event(limit).is_some() {}
    }

    /// Runs to the next event at or before `limit`. `None`: nothing more happens until then. What
    /// happens at `limit` itself has then happened.
    pub fn next_event(&mut self, limit: SimTime) -> Option<Event> {
        loop {
            let packets = self.shards.iter().map(Shard::next_due).min().unwrap_or(u64::MAX);
            let control = self.control.next_due();
            let next = packets.min(control);
            if next == u64::MAX || next > limit.0 {
                self.now = if next == u64::MAX { self.now } else { limit.max(self.now) };
                return None;
            }
            self.now = self.now.max(SimTime(next));
            if control > packets {
                if self.is_worth_sharing && rayon::current_thread_index().is_none() {
                    // Once inside the pool, its threads need not be woken for every window.
                    return rayon::scope(|_| self.next_event(limit));
                }
                let end = (packets + self.window).min(control).min(limit.0.saturating_add(1));
                self.run_window(Span { start: packets, end });
            } else if let Some((at, act)) = self.control.take()
                && let Some(event) = self.perform(at, act)
            {
                return Some(event);
            }
        }
    }

    fn run_window(&mut self, span: Span) {
        let shared = &self.shared;
        if self.is_worth_sharing {
            self.shards.par_iter_mut().for_each(|shard| shard.advance(shared, span));
        } else {
            self.shards.iter_mut().for_each(|shard| shard.advance(shared, span));
        }
        let worked: u64 =
            self.shards.iter_mut().map(|shard| std::mem::take(&mut shard.worked)).sum();
        self.is_worth_sharing = self.shards.len() > 1 && worked >= WORTH_SHARING_ARRIVALS;
        self.exchange();
        self.windows += 1;
        self.settle_completions();
    }

    /// Hands full outboxes over against empty inboxes.
    fn exchange(&mut self) {
        for from in 0..self.shards.len() {
            for to in (0..self.shards.len()).filter(|to| *to != from) {
                let outbox = std::mem::take(&mut self.shards[from].outboxes[to]);
                let inbox = std::mem::replace(&mut self.shards[to].inboxes[from], outbox);
                self.shards[from].outboxes[to] = inbox;
            }
        }
    }

    /// Notes which flows have arrived, in order of time.
    fn settle_completions(&mut self) {
        let mut completions: Vec<_> =
            self.shards.iter_mut().flat_map(|shard| shard.completions.drain(..)).collect();
        completions.sort_unstable();
        for completion in completions {
            let state = &mut self.flows[completion.flow as usize];
            if state.cancelled {
                continue;
            }
            state.end = Some(SimTime(completion.time));
            let batch = state.batch;
            self.leave_batch(batch, SimTime(completion.time));
        }
    }

    fn leave_batch(&mut self, batch: Option<BatchId>, at: SimTime) {
        let Some(id) = batch else { return };
        let batch = &mut self.batches[id.index()];
        batch.open -= 1;
        batch.latest = batch.latest.max(at);
        if batch.open == 0 {
            let told = batch.latest + self.network.shortest_delay();
            self.control.plan(told, Act::BatchDone(id, batch.latest));
        }
    }

    fn perform(&mut self, at: SimTime, act: Act) -> Option<Event> {
        match act {
            Act::Timer(token) => Some(Event::Timer { at, token }),
            Act::BatchDone(batch, at) => Some(Event::BatchDone { batch, at }),
            Act::LinkDown(link) => {
                self.set_link(link, false);
                None
            }
            Act::LinkUp(link) => {
                self.set_link(link, true);
                None
            }
            Act::LinkRate(link, rate) => {
                self.set_rate(link, rate);
                None
            }
            Act::LinkErrors(link, errors) => {
                self.set_errors(link, errors);
                None
            }
            Act::LinkPaused(link, priorities) => {
                self.set_paused(link, priorities);
                None
            }
            Act::LinkHealthy(link) => {
                self.set_rate(link, self.network.link(link).spec.rate);
                self.set_errors(link, BitErrors(0));
                None
            }
        }
    }

    fn port_of(&mut self, link: LinkId) -> &mut Port {
        let Place { shard, index } = self.layout.ports[link.index()];
        &mut self.shards[shard as usize].ports[index as usize]
    }

    fn set_rate(&mut self, link: LinkId, rate: BitsPerSecond) {
        let mut wanted = *self.network.link(link);
        wanted.spec.rate = rate;
        let role = self.network.role(wanted.from);
        let like = Port::new(link, &wanted, role, &self.settings);
        self.port_of(link).take_rate(&like);
        let Place { shard, index } = self.layout.wires[link.index()];
        self.shards[shard as usize].wire_rates[index as usize] = rate;
    }

    fn set_paused(&mut self, link: LinkId, priorities: u8) {
        if priorities != 0 {
            self.port_of(link).paused |= priorities & !(1 << CONTROL_PRIORITY);
            return;
        }
        let Place { shard, index } = self.layout.ports[link.index()];
        let vertex = self.layout.vertices[self.network.link(link).from.index()].index;
        let shard = &mut self.shards[shard as usize];
        shard.forget_pauses(&self.shared, vertex, index, self.now.0);
    }

    fn set_errors(&mut self, link: LinkId, errors: BitErrors) {
        let salt = self.settings.seed.stream("bit errors", u64::from(link.0)).next_u64();
        let port = self.port_of(link);
        port.errors = errors.0;
        port.salt = salt;
    }

    fn set_link(&mut self, link: LinkId, up: bool) {
        if self.router.is_up(link) == up {
            return;
        }
        self.router.set_up(link, up);
        self.shards.iter_mut().for_each(Shard::receive);
        let (port, wire) = (self.layout.ports[link.index()], self.layout.wires[link.index()]);
        let lost = if up { 0 } else { self.shards[wire.shard as usize].cut_wire(wire.index) };
        let far = self.layout.vertices[self.network.link(link).to.index()];
        let shard = &mut self.shards[port.shard as usize];
        shard.ports[port.index as usize].up = up;
        shard.ports[port.index as usize].free = self.now.0;
        shard.counts[port.index as usize].lost += lost;
        let from = self.layout.vertices[self.network.link(link).from.index()];
        shard.cut_port(&self.shared, from.index, port.index, self.now.0);
        // Pauses that were asked over the link are void.
        let back = self.layout.ports[link.reverse().index()];
        self.shards[far.shard as usize].forget_pauses(
            &self.shared,
            far.index,
            back.index,
            self.now.0,
        );
        let shard = &mut self.shards[port.shard as usize];
        if up {
            shard.wake(from.index, self.now.0);
        }
    }
}
