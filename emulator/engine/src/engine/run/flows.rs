// SPDX-License-Identifier: Apache-2.0
//! Adds, routes, cancels and reports flows.

use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

use super::Engine;
use super::lay::{FlowWays, NEWS_PS, RouteWriter, words_of};
use crate::engine::control::Act;
use crate::engine::flow::{BatchId, FlowGate, FlowId, FlowSpec};
use crate::engine::layout::Place;
use crate::engine::network::{LinkId, Network, VertexId};
use crate::engine::packet::Packet;
use crate::engine::port::wire_bytes;
use crate::engine::probe::Probe;
use crate::engine::queueing::CONTROL_PRIORITY;
use crate::engine::route::{Choice, FlowEnds, FlowName, Paths, Route, RouteError, WantedPaths};
use crate::engine::settings::{EngineError, MOST_IN_FLIGHT};
use crate::transport::{
    Balance, Balancer, CongestionControl, CongestionController, FlowInterfaces, IdlePath, Load,
    LossRecovery, Receiver, RetransmissionTimer, Sender, SenderLane, Transport, Window,
};

#[derive(Clone, Debug)]
pub(super) struct FlowState {
    pub(super) name: FlowName,
    pub(super) size: Bytes,
    pub(super) start: SimTime,
    pub(super) end: Option<SimTime>,
    pub(super) batch: Option<BatchId>,
    pub(super) route: Route,
    /// The first path of each interface. The route table holds all.
    pub(super) ways: Paths,
    /// With adaptive routing: the switches' choices per interface, for data and acknowledgements. Otherwise empty.
    pub(super) choices: Vec<[Vec<Choice>; 2]>,
    pub(super) region: u32,
    pub(super) sender: Place,
    pub(super) receiver: Place,
    pub(super) cancelled: bool,
}

impl FlowState {
    pub(super) const fn is_open(&self) -> bool {
        self.end.is_none() && !self.cancelled
    }
    pub(super) const fn source(&self) -> VertexId {
        self.name.ends.from
    }
    pub(super) const fn destination(&self) -> VertexId {
        self.name.ends.to
    }
}

pub(super) fn first_links(paths: &Paths) -> Vec<(LinkId, u16)> {
    // Paths are grouped by interface.
    if paths[0][0] == paths[paths.len() - 1][0] {
        return vec![(paths[0][0], 0)];
    }
    let mut firsts: Vec<(LinkId, u16)> = Vec::new();
    for (place, path) in (0..).zip(paths.iter()) {
        if firsts.last().is_none_or(|(link, _)| *link != path[0]) {
            firsts.push((path[0], place));
        }
    }
    firsts
}

fn first_paths(paths: Paths) -> Paths {
    let firsts = first_links(&paths);
    if firsts.len() == paths.len() {
        return paths;
    }
    let mut ways = Paths::default();
    firsts.iter().for_each(|(_, place)| ways.push(&paths[usize::from(*place)]));
    ways
}

impl FlowSpec {
    pub(crate) const fn ends(&self) -> FlowEnds {
        FlowEnds { from: self.source, to: self.destination }
    }

    pub(crate) fn check_ends(&self, network: &Network) -> Result<(), EngineError> {
        for vertex in [self.source, self.destination] {
            let exists = vertex.index() < network.vertex_count();
            if !exists || !network.role(vertex).is_host() {
                return Err(EngineError::NotAHost { vertex });
            }
        }
        if self.source == self.destination {
            return Err(EngineError::ToItself { vertex: self.source });
        }
        Ok(())
    }
}

impl<P: Probe> Engine<P> {
    /// Finds the paths of flows that are added next, in this order, on several threads.
    pub fn find_paths_ahead(&mut self, specs: &[&FlowSpec]) {
        let interfaces = self.settings.transport.interfaces;
        if interfaces == FlowInterfaces::All || self.settings.threads == 1 {
            return;
        }
        let possible = specs.iter().take_while(|spec| spec.check_ends(&self.network).is_ok());
        let flows: Vec<_> = possible.map(|spec| (spec.ends(), &spec.route)).collect();
        self.router.find_ahead(&self.network, &flows, self.wanted_paths());
    }

    /// The flow starts at its start time or now, whichever is later. Fails if an end is not a host, no path exists, a
    /// gate refers to a flow that ends elsewhere, or the flow has too many packets.
    pub fn add_flow(&mut self, spec: FlowSpec) -> Result<FlowId, EngineError> {
        let id = FlowId::from_index(self.flows.len());
        self.check_flow(&spec).inspect_err(|_| self.router.forget_paths_ahead())?;
        let name = self.router.name_flow(spec.ends());
        let paths = self.find_paths(name, &spec.route)?;
        let load = self.load_of(&spec)?;
        let window = self.window_of(&paths)?;
        let choices = self.choices_of(name, &spec.route, &paths);
        let start = spec.start.max(self.now);
        let region = self.region_for(id, &paths, &choices)?;
        let ways = FlowWays { paths: &paths, choices: &choices, region };
        let (sender, receiver) = self.make_ends(id, name, &spec, ways, load, window);
        self.flows.push(FlowState {
            name,
            size: spec.message * u64::from(spec.messages),
            start,
            end: None,
            batch: spec.batch,
            route: spec.route,
            ways: first_paths(paths),
            choices,
            region,
            sender,
            receiver,
            cancelled: false,
        });
        spec.gates.iter().try_for_each(|gate| self.add_gate(id, *gate))?;
        for awaited in &spec.after_acknowledged {
            self.wait_for_acknowledgements(id, *awaited)?;
        }
        if let Some(batch) = spec.batch {
            self.batches.join(batch, id);
        }
        let sender = self.flows[id.index()].sender;
        let vertex = self.layout.vertices[spec.source.index()];
        self.shards[sender.shard as usize].plan_start(vertex.index, sender.index, start.0);
        Ok(id)
    }

    const fn wanted_paths(&self) -> WantedPaths {
        let balance = self.settings.transport.balance;
        WantedPaths { count: balance.paths(), hashed: balance.is_hashed() }
    }

    fn find_paths(&mut self, name: FlowName, route: &Route) -> Result<Paths, RouteError> {
        let wanted = self.wanted_paths();
        match self.settings.transport.interfaces {
            FlowInterfaces::One => self.router.find(&self.network, name, route, wanted),
            FlowInterfaces::All => self.router.find_all(&self.network, name, route, wanted),
        }
    }

    fn check_flow(&self, spec: &FlowSpec) -> Result<(), EngineError> {
        spec.check_ends(&self.network)?;
        spec.gates.iter().try_for_each(|gate| self.check_gate(spec.source, gate.flow))
    }

    fn check_gate(&self, source_vertex: VertexId, gate: FlowId) -> Result<(), EngineError> {
        match self.flows.get(gate.index()) {
            Some(flow) if flow.destination() == source_vertex => Ok(()),
            _ => Err(EngineError::GateElsewhere { source_vertex, gate }),
        }
    }

    /// The awaited flow may have been added later, but must end at this flow's host. Panics if
    /// `flow` has started, because it may have sent messages that the gate should hold.
    pub fn add_gate(&mut self, flow: FlowId, gate: FlowGate) -> Result<(), EngineError> {
        self.check_gate(self.flows[flow.index()].source(), gate.flow)?;
        let Place { shard, index } = self.flows[flow.index()].sender;
        let awaited = self.flows[gate.flow.index()].receiver.index;
        let shard = &mut self.shards[shard as usize];
        let sender = &mut shard.senders[index as usize];
        assert!(!sender.started, "flow {} has started", flow.0);
        sender.waits.gates.push((awaited, gate.ahead));
        shard.receivers[awaited as usize].dependents.push(index);
        Ok(())
    }

    /// Both flows must start at the same host. Panics if `flow` has started, because it may have sent data already.
    pub fn wait_for_acknowledgements(
        &mut self,
        flow: FlowId,
        awaited: FlowId,
    ) -> Result<(), EngineError> {
        let source_vertex = self.flows[flow.index()].source();
        let same = self.flows.get(awaited.index()).is_some_and(|at| at.source() == source_vertex);
        if !same || flow == awaited {
            return Err(EngineError::AwaitsElsewhere { source_vertex, awaited });
        }
        let [waiting, awaited] = [flow, awaited].map(|flow| self.flows[flow.index()].sender);
        let senders = &mut self.shards[waiting.shard as usize].senders;
        let sender = &mut senders[waiting.index as usize];
        assert!(!sender.started, "flow {} has started", flow.0);
        sender.waits.awaits.push(awaited.index);
        senders[awaited.index as usize].waits.dependents.push(waiting.index);
        Ok(())
    }

    fn load_of(&self, spec: &FlowSpec) -> Result<Load, EngineError> {
        let transport = &self.settings.transport;
        let per_message = transport.packets_for(spec.message);
        let packets = per_message.saturating_mul(u64::from(spec.messages));
        if packets >= 1 << 31 {
            return Err(EngineError::TooLong { packets });
        }
        Ok(Load {
            messages: spec.messages,
            per_message: per_message as u32,
            full_bytes: wire_bytes(transport.packet()),
            last_bytes: wire_bytes(transport.last_packet(spec.message)),
        })
    }

    fn window_of(&self, paths: &Paths) -> Result<u32, EngineError> {
        let path = &paths[0];
        let transport = &self.settings.transport;
        let packets = match transport.window {
            Window::Packets(packets) => u64::from(packets),
            Window::BandwidthDelay { percent } => {
                let full = path.iter().map(|link| {
                    self.network.link(*link).spec.rate.time_for(transport.packet()).get()
                });
                let slowest = full.max().expect("a path has links");
                let percent = u128::from(percent) * first_links(paths).len() as u128;
                let scaled = u128::from(self.round_trip(path)) * percent;
                scaled.div_ceil(u128::from(slowest) * 100) as u64
            }
        };
        match u32::try_from(packets) {
            Ok(window) if packets <= MOST_IN_FLIGHT => Ok(window.max(1)),
            _ => Err(EngineError::WindowTooLarge { packets }),
        }
    }

    /// Returns the time of a packet and its acknowledgement on an idle path, in picoseconds.
    fn round_trip(&self, path: &[LinkId]) -> u64 {
        let transport = &self.settings.transport;
        let there = self.one_way(path.iter().copied(), transport.packet());
        let back = path.iter().rev().map(|link| link.reverse());
        let hosts = self.settings.host_delay.get() * 2;
        there + self.one_way(back, transport.acknowledgement) + hosts
    }

    /// Returns the time from sending a packet's first bit to receiving its last bit on an idle path.
    fn one_way(&self, path: impl Iterator<Item = LinkId>, size: Bytes) -> u64 {
        let (mut time, mut came) = (0, None);
        for link in path {
            let spec = self.network.link(link).spec;
            let early = self.settings.head_start(&self.network, came, link, size);
            time += (spec.rate.time_for(size) + spec.delay).get() - early.get();
            came = Some(link);
        }
        time
    }

    fn idle_path(&self, paths: &Paths, window: u32) -> IdlePath {
        let path = &paths[0];
        let firsts = first_links(paths).into_iter();
        let rates = firsts.map(|(link, _)| self.network.link(link).spec.rate.get());
        let rate = BitsPerSecond(rates.sum());
        IdlePath { round_trip: self.round_trip(path), hops: path.len() as u32, rate, window }
    }

    fn make_ends(
        &mut self,
        id: FlowId,
        name: FlowName,
        spec: &FlowSpec,
        ways: FlowWays<'_>,
        load: Load,
        window: u32,
    ) -> (Place, Place) {
        let Transport { recovery, timeout, balance, congestion, tail_probe, .. } =
            self.settings.transport;
        let from = self.layout.vertices[spec.source.index()].shard;
        let to = self.layout.vertices[spec.destination.index()].shard;
        let sender_index = self.shards[from as usize].senders.len() as u32;
        let receiver_index = self.shards[to as usize].receivers.len() as u32;
        let (cursors, answer) = self.lay_routes(ways, [sender_index, receiver_index]);
        // Trimmed packets may be far behind the highest packet number that the receiver permits.
        let gives_credit = congestion == CongestionControl::ReceiverCredit;
        let (initial, window) = (window, if gives_credit { 2 * window } else { window });
        let idle = self.round_trip(&ways.paths[0]);
        let least = congestion.least_timeout();
        let timer = RetransmissionTimer::new(timeout, least, idle, window);
        let tail_probe = tail_probe.filter(|_| recovery != LossRecovery::GoBackN);
        let tail_probe = tail_probe.map(Picoseconds::get);
        let mut sender = Sender::new(id.0, cursors[0], load, window, recovery, timer, tail_probe);
        sender.priority = spec.priority.min(CONTROL_PRIORITY - 1);
        self.shared.priorities |= 1 << sender.priority;
        sender.backs_off = self.settings.transport.backs_off();
        sender.switches_choose = balance == Balance::Adaptive;
        let packets = load.messages * load.per_message;
        let path = self.idle_path(ways.paths, initial);
        sender.control_by(CongestionController::new(congestion, path, packets, spec.pace));
        let spreads =
            balance.paths() > 1 || self.settings.transport.interfaces == FlowInterfaces::All;
        let may_spread = spreads && !matches!(spec.route, Route::Links(_));
        let lanes = self.lanes_of(ways.paths, cursors.len());
        let remembered = window.min(packets);
        sender.balancer = may_spread
            .then(|| Box::new(Balancer::new(balance, cursors, lanes, remembered, name.salt())));
        let mut receiver = Receiver::new(id.0, answer, load, window, recovery);
        if gives_credit {
            receiver.begin_credits(initial);
        }
        receiver.answers_by_path = self.settings.transport.answers_by_path();
        self.shards[from as usize].senders.push(sender);
        self.shards[to as usize].receivers.push(receiver);
        let sender = Place { shard: from, index: sender_index };
        (sender, Place { shard: to, index: receiver_index })
    }

    fn lanes_of(&self, paths: &Paths, ways: usize) -> Vec<SenderLane> {
        let firsts = first_links(paths);
        let ends = firsts.iter().skip(1).map(|(_, begin)| *begin).chain([ways as u16]);
        let lanes = firsts.iter().zip(ends);
        lanes
            .map(|((link, begin), end)| {
                SenderLane::new(self.layout.ports[link.index()].index, *begin..end)
            })
            .collect()
    }

    /// Stops a flow permanently. Packets in flight continue, but the flow never completes.
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

    /// Packets in flight keep their paths. If no path exists, fails and leaves the flow on its old paths.
    pub fn reroute_flow(&mut self, flow: FlowId) -> Result<(), RouteError> {
        let state = &self.flows[flow.index()];
        let (name, route) = (state.name, state.route.clone());
        let paths = self.find_paths(name, &route)?;
        let state = &self.flows[flow.index()];
        let ends = [state.sender.index, state.receiver.index];
        let choices = self.choices_of(name, &route, &paths);
        let lanes = self.lanes_of(&paths, paths.len());
        let region = self.region_for(flow, &paths, &choices)?;
        let (cursors, answer) =
            self.lay_routes(FlowWays { paths: &paths, choices: &choices, region }, ends);
        let state = &mut self.flows[flow.index()];
        (state.ways, state.choices, state.region) = (first_paths(paths), choices, region);
        let Place { shard, index } = state.sender;
        let vertex = self.layout.vertices[state.source().index()].index;
        let first = self.shards[shard as usize].vertices[vertex as usize].first_port;
        let sender = &mut self.shards[shard as usize].senders[index as usize];
        let ports = [sender.cursor, cursors[0]].map(|way| first + self.shared.routes.place(way));
        sender.cursor = cursors[0];
        let was_striped = sender.is_striped();
        if let Some(balancer) = &mut sender.balancer {
            balancer.replace(cursors, lanes);
        }
        if was_striped || sender.is_striped() {
            self.shards[shard as usize].wait_anew(vertex, index, self.now.0);
        } else {
            self.shards[shard as usize].leave_dark_port(vertex, index, ports, self.now.0);
        }
        let Place { shard, index } = state.receiver;
        self.shards[shard as usize].receivers[index as usize].cursor = answer;
        Ok(())
    }

    /// Packets in flight keep their paths. Fails if the links do not form a path.
    pub(crate) fn lead(&mut self, flow: FlowId, links: Vec<LinkId>) -> Result<(), RouteError> {
        self.look_away();
        self.flows[flow.index()].route = Route::Links(links);
        self.reroute_flow(flow)
    }

    fn choices_of(
        &mut self,
        name: FlowName,
        route: &Route,
        paths: &Paths,
    ) -> Vec<[Vec<Choice>; 2]> {
        let is_adaptive = self.settings.transport.balance == Balance::Adaptive;
        if !is_adaptive || route.plane().is_none() || paths[0].len() == 1 {
            return Vec::new();
        }
        let choices = paths.iter().map(|path| {
            let (first, last) = (path[0], path[path.len() - 1].reverse());
            [(name, first), (name.back(), last)]
                .map(|(name, first)| self.router.choices(&self.network, name, route, first))
        });
        choices.collect()
    }

    fn region_for(
        &mut self,
        flow: FlowId,
        paths: &Paths,
        choices: &[[Vec<Choice>; 2]],
    ) -> Result<u32, RouteError> {
        let words = words_of(paths, choices, self.settings.transport.answers_by_path());
        let (is_led_anew, routes) = (flow.index() < self.flows.len(), &self.shared.routes);
        let has_spare = self.regions.has_spare(flow, words, routes);
        if is_led_anew && !has_spare && self.regions.is_look_due(routes) {
            self.look_for_spare_regions();
        }
        self.regions.take(flow, words, &mut self.shared.routes)
    }

    fn look_for_spare_regions(&mut self) {
        let mut cursors = Vec::new();
        for shard in &self.shards {
            cursors.extend(shard.receivers.iter().map(|receiver| receiver.cursor));
            shard.see_in_flight(&mut |packet: &Packet| {
                if !packet.is_pause_frame() {
                    cursors.push(packet.cursor());
                }
            });
        }
        self.regions.keep_only(self.flows.iter().map(|flow| flow.region), &cursors);
    }

    fn lay_routes(&mut self, ways: FlowWays<'_>, ends: [u32; 2]) -> (Vec<u32>, u32) {
        self.shared.chooses |= !ways.choices.is_empty();
        self.shared.is_joint |= self.shared.chooses;
        let mut writer = RouteWriter {
            routes: &mut self.shared.routes,
            places: &self.layout.places,
            network: &self.network,
            router: &self.router,
            by_path: self.settings.transport.answers_by_path(),
        };
        writer.write(&self.regions, ways, ends)
    }

    pub(super) fn plan_news(&mut self) {
        if self.shared.chooses {
            self.control.plan(SimTime(self.now.0 + NEWS_PS), Act::LinkNews);
        }
    }

    pub(super) fn hear_news(&mut self) {
        for flow in 0..self.flows.len() {
            let state = &mut self.flows[flow];
            // Acknowledgements of finished flows may still be in flight.
            if state.choices.is_empty() {
                continue;
            }
            let ends = [state.sender.index, state.receiver.index];
            let (ways, choices) =
                (std::mem::take(&mut state.ways), std::mem::take(&mut state.choices));
            let region = state.region;
            self.lay_routes(FlowWays { paths: &ways, choices: &choices, region }, ends);
            let state = &mut self.flows[flow];
            (state.ways, state.choices) = (ways, choices);
        }
    }
}
