// SPDX-License-Identifier: Apache-2.0
//! The state of a run that is split into islands, and the requests not yet forwarded to the engines.

use lightloom_units::{Bytes, Picoseconds, SimTime};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::class::{Class, News};
use super::description::Description;
use super::log::{CallLog, StageCall};
use super::queue::{From, PlannedAct, Queue};
use super::remembering::{FEW_REDONE, Unrun};
use super::{Entangled, LocalProbe};
use crate::engine::{
    BatchId, Chance, Engine, EngineError, EngineSettings, Event, FlowGate, FlowId, FlowName,
    FlowRecord, FlowSpec, LinkChange, LinkId, LinkSpec, Network, NetworkBuilder, PacketCount,
    PortCount, RouteError, Router, VertexId, VertexRole, WantedPaths,
};

#[derive(Debug)]
pub(super) struct GlobalFlow {
    pub(super) spec: FlowSpec,
    pub(super) name: FlowName,
    pub(super) paths: Vec<Vec<LinkId>>,
    pub(super) place: Option<FlowPlace>,
    pub(super) cancelled: bool,
}

impl GlobalFlow {
    pub(super) fn path(&self) -> &[LinkId] {
        self.paths.last().map_or(&[], Vec::as_slice)
    }

    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.paths.iter().flatten().copied()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FlowPlace {
    pub(super) island: u32,
    pub(super) flow: FlowId,
}

#[derive(Debug, Default)]
pub(super) struct IslandBatch {
    pub(super) flows: Vec<FlowId>,
    pub(super) place: Option<(u32, BatchId)>,
    pub(super) given_up: bool,
}

#[derive(Debug)]
pub(super) struct Island {
    pub(super) class: u32,
    pub(super) links: Vec<LinkId>,
    pub(super) flows: Vec<FlowId>,
    pub(super) batches: Vec<BatchId>,
    /// Whether the island is permanently idle, so that other islands can use its links.
    pub(super) retired: bool,
    pub(super) superseded: bool,
    pub(super) shift: u64,
    pub(super) past: Vec<IslandAct>,
}

pub(super) type IslandAct = (SimTime, u64, Asked);

/// A cable in an island: the local link of the cable's even link.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkCopy {
    pub(super) island: u32,
    pub(super) link: LinkId,
}

/// A request that the caller makes at the present instant. It is forwarded before time advances.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Flow(FlowId),
    Gate(FlowId, FlowGate),
    Cancel(FlowId),
    Change(LinkId, LinkChange),
    Reroute(FlowId, u32),
}

/// Determines whether an engine accepts a flow: links in both directions, message size and number of messages.
type PathSizes = (Vec<(LinkSpec, LinkSpec)>, Bytes, u32);

#[derive(Debug, Default)]
pub(super) struct Apart<P> {
    pub(super) network: Network,
    pub(super) settings: EngineSettings,
    pub(super) probe: P,
    pub(super) router: Router,
    pub(super) rates: FxHashMap<LinkId, LinkChange>,
    pub(super) queue: Queue,
    pub(super) flows: Vec<GlobalFlow>,
    pub(super) batches: Vec<IslandBatch>,
    pub(super) islands: Vec<Island>,
    pub(super) classes: Vec<Class<P>>,
    /// Islands that have contained each cable. The last one may still contain it.
    pub(super) copies: FxHashMap<u32, Vec<LinkCopy>>,
    pub(super) asked: Vec<Asked>,
    pub(super) now: SimTime,
    through: bool,
    pub(super) log: CallLog,
    fits: FxHashMap<PathSizes, Result<(), EngineError>>,
    pub(super) remembers: bool,
    pub(super) live: Vec<u32>,
    pub(super) memory: FxHashMap<Description, u32>,
    pub(super) unrun: FxHashMap<u32, Unrun>,
    pub(super) changes: FxHashMap<LinkId, Vec<(SimTime, u64, LinkChange)>>,
    pub(super) done: u64,
    pub(super) busy_until: u64,
    pub(super) ran: u64,
    pub(super) redone: u64,
    pub(super) redone_limit: u64,
}

impl<P: LocalProbe> Apart<P> {
    pub(super) fn new(network: Network, settings: EngineSettings, probe: P) -> Self {
        Self {
            router: Router::new(settings.seed, network.links().len()),
            network,
            settings,
            probe,
            redone_limit: FEW_REDONE,
            ..Self::default()
        }
    }

    pub(super) fn together(&self) -> Engine<P> {
        let mut engine =
            Engine::with_probe(self.network.clone(), self.settings, self.probe.clone())
                .expect("packet sizes were checked earlier");
        self.log.replay(&mut engine).expect("islands and a single engine return the same");
        engine
    }

    pub(super) fn add_batch(&mut self) -> BatchId {
        self.log.note(StageCall::Batch);
        self.batches.push(IslandBatch::default());
        BatchId::from_index(self.batches.len() - 1)
    }

    pub(super) fn add_flow(&mut self, spec: FlowSpec) -> Result<FlowId, EngineError> {
        self.log.note(StageCall::Flow(Box::new(spec.clone())));
        let id = FlowId::from_index(self.flows.len());
        self.check(&spec)?;
        let name = self.router.name_flow(spec.ends());
        let paths = self.router.find(&self.network, name, &spec.route, WantedPaths::ONE)?;
        let path = paths[0].to_vec();
        self.check_fit(&spec, &path)?;
        if let Some(batch) = spec.batch {
            self.batches[batch.index()].flows.push(id);
        }
        let start = spec.start.max(self.now);
        let spec = FlowSpec { start, ..spec };
        self.flows.push(GlobalFlow {
            spec,
            name,
            paths: vec![path],
            place: None,
            cancelled: false,
        });
        self.asked.push(Asked::Flow(id));
        Ok(id)
    }

    fn check(&self, spec: &FlowSpec) -> Result<(), EngineError> {
        spec.check_ends(&self.network)?;
        // Only a single engine knows when a sender receives its last acknowledgement.
        if let Some(&awaited) = spec.after_acknowledged.first() {
            return Err(EngineError::AwaitsElsewhere { source_vertex: spec.source, awaited });
        }
        spec.gates.iter().try_for_each(|gate| self.check_gate(spec.source, gate.flow))
    }

    fn check_gate(&self, source_vertex: VertexId, gate: FlowId) -> Result<(), EngineError> {
        match self.flows.get(gate.index()) {
            Some(flow) if flow.spec.destination == source_vertex => Ok(()),
            _ => Err(EngineError::GateElsewhere { source_vertex, gate }),
        }
    }

    fn check_fit(&mut self, spec: &FlowSpec, path: &[LinkId]) -> Result<(), EngineError> {
        let cables = path
            .iter()
            .map(|link| (self.network.link(*link).spec, self.network.link(link.reverse()).spec));
        let sizes = (cables.collect::<Vec<_>>(), spec.message, spec.messages);
        if let Some(fits) = self.fits.get(&sizes) {
            return fits.clone();
        }
        let mut builder = NetworkBuilder::new();
        let stops: Vec<VertexId> =
            (0..=path.len()).map(|_| builder.add(VertexRole::ForwardingHost)).collect();
        let (ends, pairs) = (stops.windows(2), sizes.0.iter());
        let links = ends
            .zip(pairs)
            .map(|(ends, pair)| builder.connect_unequal(ends[0], ends[1], pair.0, pair.1));
        let links: Vec<LinkId> = links.collect();
        let line = builder.build().expect("the links belong to a valid network");
        let mut engine = Engine::new(line, self.settings)?;
        let alone = FlowSpec {
            messages: spec.messages,
            ..FlowSpec::new(stops[0], stops[path.len()], spec.message)
                .over(crate::engine::Route::Links(links))
        };
        let fits = engine.add_flow(alone).map(|_| ());
        self.fits.insert(sizes, fits.clone());
        fits
    }

    pub(super) fn add_gate(&mut self, flow: FlowId, gate: FlowGate) -> Result<(), EngineError> {
        self.check_gate(self.flows[flow.index()].spec.source, gate.flow)?;
        self.log.note(StageCall::Gate(flow, gate));
        self.asked.push(Asked::Gate(flow, gate));
        Ok(())
    }

    pub(super) fn set_timer(&mut self, at: SimTime, token: u64) {
        self.log.note(StageCall::Timer(at, token));
        self.queue.plan(self.now, at.max(self.now), PlannedAct::Timer(token));
    }

    pub(super) fn change_link(&mut self, at: SimTime, link: LinkId, change: LinkChange) {
        self.log.note(StageCall::Change(at, link, change));
        self.queue.plan(self.now, at.max(self.now), PlannedAct::Change(link, change));
    }

    pub(super) fn cancel_flow(&mut self, id: FlowId) {
        self.log.note(StageCall::Cancel(id));
        if !self.is_open(id) {
            return;
        }
        self.flows[id.index()].cancelled = true;
        self.asked.push(Asked::Cancel(id));
        let Some(batch) = self.flows[id.index()].spec.batch else { return };
        if !self.batches[batch.index()].flows.iter().any(|flow| self.is_open(*flow)) {
            self.batches[batch.index()].given_up = true;
            let act = PlannedAct::BatchDone { batch, at: self.now, from: From::Caller };
            self.queue.plan(self.now, self.now + self.network.shortest_delay(), act);
        }
    }

    fn is_open(&self, id: FlowId) -> bool {
        let flow = &self.flows[id.index()];
        let end = flow.place.and_then(|place| {
            let shift = self.islands[place.island as usize].shift;
            self.local(place)?.record(place.flow).end.map(|end| end.0 + shift)
        });
        !flow.cancelled && end.is_none_or(|end| end >= self.present())
    }

    pub(super) fn reroute_flow(&mut self, id: FlowId) -> Result<(), RouteError> {
        self.log.note(StageCall::Reroute(id));
        let GlobalFlow { name, spec, .. } = &self.flows[id.index()];
        let (name, route) = (*name, spec.route.clone());
        let paths = self.router.find(&self.network, name, &route, WantedPaths::ONE)?;
        let flow = &mut self.flows[id.index()];
        flow.paths.extend(paths.iter().map(<[LinkId]>::to_vec));
        let act = Asked::Reroute(id, flow.paths.len() as u32 - 1);
        self.asked.push(act);
        Ok(())
    }

    pub(super) fn flows_on_dark_links(&self) -> Vec<FlowId> {
        let hit = (0..self.flows.len()).map(FlowId::from_index).filter(|id| {
            let mut path = self.flows[id.index()].path().iter();
            path.any(|link| !self.router.is_up(*link) || !self.router.is_up(link.reverse()))
                && self.is_open(*id)
        });
        hit.collect()
    }

    /// Everything before this time has been processed, and no further request can apply to it.
    pub(super) fn present(&self) -> u64 {
        self.now.0 + u64::from(self.through)
    }

    pub(super) fn local(&self, place: FlowPlace) -> Option<&Engine<P>> {
        let class = self.islands[place.island as usize].class;
        (!self.unrun.contains_key(&class)).then(|| &self.classes[class as usize].engine)
    }

    /// At each instant, control events precede packets.
    pub(super) fn next_event(&mut self, limit: SimTime) -> Result<Option<Event>, Entangled> {
        let answer = self.until_event(limit)?;
        self.log.note(StageCall::Until(limit, answer));
        Ok(answer)
    }

    fn until_event(&mut self, limit: SimTime) -> Result<Option<Event>, Entangled> {
        loop {
            let control = self.queue.next_due();
            if control > self.now.0 {
                self.land()?;
                self.advance(limit.min(SimTime(control - 1)));
            }
            let next = self.queue.next_due();
            if next == u64::MAX || next > limit.0 {
                let packets = self.live.iter().map(|class| self.classes[*class as usize].due).min();
                let left = next != u64::MAX
                    || packets.is_some_and(|due| due != u64::MAX)
                    || self.busy_until >= self.present();
                if left {
                    self.through |= self.now <= limit;
                    self.now = self.now.max(limit);
                }
                return Ok(None);
            }
            let Some((at, act)) = self.queue.take() else { return Ok(None) };
            self.through &= at <= self.now;
            self.now = self.now.max(at);
            match act {
                PlannedAct::Timer(token) => return Ok(Some(Event::Timer { at, token })),
                PlannedAct::BatchDone { batch, at, from } => {
                    if let From::Held(island) = from {
                        self.release(island);
                    }
                    if self.is_news(batch, from) {
                        return Ok(Some(Event::BatchDone { batch, at }));
                    }
                }
                PlannedAct::Change(link, change) => self.change(link, change)?,
                PlannedAct::RunIslands => self.run_due()?,
            }
        }
    }

    fn advance(&mut self, bound: SimTime) {
        loop {
            let run = |(index, class): (usize, &mut Class<P>)| {
                class.may_advance(bound).then(|| (index, class.advance(bound)))
            };
            let live = self.live.iter();
            let waiting =
                live.filter(|class| self.classes[**class as usize].may_advance(bound)).count();
            if waiting == 0 {
                return;
            }
            let classes = self.classes.iter_mut().enumerate();
            let news: Vec<(usize, Vec<News>)> = if self.settings.threads > 1 && waiting > 1 {
                self.classes.par_iter_mut().enumerate().filter_map(run).collect()
            } else {
                classes.filter_map(run).collect()
            };
            for (class, news) in news {
                news.into_iter().for_each(|news| self.spread(class, news));
                if self.remembers {
                    self.classes[class].note_end();
                }
            }
            if self.remembers {
                let classes = &self.classes;
                self.live.retain(|class| classes[*class as usize].quiet_from().is_none());
            }
        }
    }

    fn spread(&mut self, class: usize, news: News) {
        for place in 0..self.classes[class].members.len() {
            let member = self.classes[class].members[place];
            let is_planned = self.plan_news(member, news, From::Held(member));
            self.classes[class].untold += u32::from(is_planned);
        }
    }

    /// Plans the report of a batch's end on an island. Returns false if the batch was given up.
    pub(super) fn plan_news(&mut self, island: u32, news: News, from: From) -> bool {
        let home = &self.islands[island as usize];
        let (batch, last) = (home.batches[news.batch.index()], home.flows[news.last.index()]);
        let [reported, at] = [news.reported, news.at].map(|at| SimTime(at.0 + home.shift));
        let is_awaited = !self.batches[batch.index()].given_up;
        if is_awaited {
            self.queue.plan_end(reported, at, last, batch, from);
        }
        is_awaited
    }

    fn release(&mut self, island: u32) {
        let class = self.islands[island as usize].class;
        self.classes[class as usize].untold -= 1;
    }

    fn is_news(&self, batch: BatchId, from: From) -> bool {
        let batch = &self.batches[batch.index()];
        match from {
            From::Caller => true,
            From::Held(_) if !self.remembers => true,
            From::Held(island) | From::Ahead(island) => {
                !batch.given_up && batch.place.is_some_and(|(place, _)| place == island)
            }
        }
    }

    fn change(&mut self, link: LinkId, change: LinkChange) -> Result<(), Entangled> {
        if self.remembers {
            self.done += 1;
            self.changes.entry(link).or_default().push((self.now, self.done, change));
        }
        match change {
            LinkChange::Down => self.router.set_up(link, false),
            LinkChange::Up => self.router.set_up(link, true),
            LinkChange::Rate(_) => drop(self.rates.insert(link, change)),
            LinkChange::Healthy => drop(self.rates.remove(&link)),
            // Random effects are drawn by global link id, but islands have only local ids.
            LinkChange::BitErrors(Chance(0))
            | LinkChange::PacketLoss(Chance(0))
            | LinkChange::Jitter(Picoseconds::ZERO)
            | LinkChange::Paused(_) => {}
            LinkChange::BitErrors(_) | LinkChange::PacketLoss(_) | LinkChange::Jitter(_) => {
                return Err(Entangled);
            }
        }
        if self.copy_of(link).is_some() {
            self.asked.push(Asked::Change(link, change));
        }
        Ok(())
    }

    pub(super) fn copy_of(&self, link: LinkId) -> Option<LinkCopy> {
        let copy = self.copies_of(link).next_back()?;
        let held = !self.islands[copy.island as usize].retired;
        held.then_some(copy)
    }

    fn copies_of(&self, link: LinkId) -> impl DoubleEndedIterator<Item = LinkCopy> {
        let copies = self.copies.get(&(link.0 >> 1)).into_iter().flatten();
        copies.map(move |copy| LinkCopy { link: LinkId(copy.link.0 ^ (link.0 & 1)), ..*copy })
    }

    fn class_of(&self, island: u32) -> &Class<P> {
        &self.classes[self.islands[island as usize].class as usize]
    }

    pub(super) fn next_due(&self) -> Option<SimTime> {
        let packets = self.live.iter().map(|class| self.classes[*class as usize].due);
        let starts = self.asked.iter().filter_map(|asked| match asked {
            Asked::Flow(flow) => Some(self.flows[flow.index()].spec.start.0),
            Asked::Reroute(..) => Some(self.now.0),
            _ => None,
        });
        let busy = Some(self.busy_until).filter(|until| *until >= self.present());
        let packets = packets.chain(busy);
        let due = packets.chain(starts).min().unwrap_or(u64::MAX).min(self.queue.next_due());
        (due != u64::MAX).then(|| SimTime(due).max(self.now))
    }

    pub(super) fn record(&self, id: FlowId) -> FlowRecord {
        let flow = &self.flows[id.index()];
        let FlowSpec { source, destination, message, messages, start, .. } = flow.spec;
        let place = flow.place.and_then(|place| Some((place, self.local(place)?)));
        match place {
            Some((place, engine)) => {
                let record = FlowRecord { source, destination, ..engine.record(place.flow) };
                self.present_record(place, record)
            }
            None => FlowRecord {
                source,
                destination,
                size: message * u64::from(messages),
                sent: Bytes::ZERO,
                delivered: Bytes::ZERO,
                start,
                end: None,
                acknowledged: None,
                retransmitted: 0,
                duplicates: 0,
                cancelled: flow.cancelled,
            },
        }
    }

    fn present_record(&self, place: FlowPlace, record: FlowRecord) -> FlowRecord {
        if !self.remembers {
            return record;
        }
        let (shift, present) = (self.islands[place.island as usize].shift, self.present());
        let [end, acknowledged] = [record.end, record.acknowledged]
            .map(|time| time.map(|time| SimTime(time.0 + shift)).filter(|time| time.0 < present));
        let is_ahead = record.end.is_some() && end.is_none();
        let delivered = if is_ahead { Bytes::ZERO } else { record.delivered };
        let start = SimTime(record.start.0 + shift);
        FlowRecord { start, end, acknowledged, delivered, ..record }
    }

    pub(super) fn was_shifted(&self, link: LinkId) -> bool {
        let mut copies = self.copies_of(link);
        copies.any(|copy| self.islands[copy.island as usize].shift > 0)
    }

    pub(super) fn islands_run(&self) -> usize {
        self.islands.iter().filter(|island| !island.superseded).count()
    }

    pub(super) fn port_count(&self, link: LinkId) -> PortCount {
        let mut count = PortCount::default();
        for copy in self.copies_of(link) {
            count.add(self.class_of(copy.island).engine.port_count(copy.link));
        }
        count
    }

    pub(super) fn arrival_sum(&self, link: LinkId) -> u64 {
        let mut sum = 0_u64;
        for copy in self.copies_of(link) {
            for probe in self.class_of(copy.island).engine.probes() {
                sum = sum.wrapping_add(probe.sum(copy.link));
            }
        }
        sum
    }

    pub(super) fn packets(&self) -> PacketCount {
        let mut total = PacketCount::default();
        for class in &self.classes {
            total.add_times(class.packets(), class.members.len() as u64);
        }
        total
    }

    pub(super) fn leapt(&self) -> u64 {
        self.classes.iter().map(|class| class.engine.leapt()).sum()
    }

    pub(super) fn foretold_wrongly(&self) -> Option<usize> {
        let wrong = self.classes.iter().find(|class| class.engine.foretold_wrongly())?;
        wrong.members.first().map(|island| *island as usize)
    }

    pub(super) fn hops(&self) -> u64 {
        self.classes.iter().map(|class| class.hops() * class.members.len() as u64).sum()
    }
}
