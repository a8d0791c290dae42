// SPDX-License-Identifier: Apache-2.0
//! The reference engine: one global event queue, a real queue at every port, and sets instead of bitmaps. It is slow
//! and simple, and shares only the network description, the paths of the flows and the vocabulary with the engine.
//!
//! Events are ordered by time; then link changes, ends of transmissions, flow starts (by flow),
//! arrivals (by link), delayed actions of hosts (by link), timeouts (by flow), and turns of the
//! flows that wait for a host's free port (by link).

mod hosts;
mod ports;
mod queued;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use lightloom_engine::transport::Transport;
use lightloom_engine::{
    Choice, EngineSettings, FlowSpec, LinkChange, LinkId, Marking, Network, Queueing, Switching,
};
use lightloom_units::seed::Seed;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    flow: usize,
    acknowledgement: bool,
    /// Data: packet number. Acknowledgement: lowest number not received.
    sequence: u32,
    beyond_gap: Option<u32>,
    echo: Option<u32>,
    answers: u32,
    wire_bytes: u64,
    marked: bool,
    /// 7 for acknowledgements and trimmed packets.
    priority: u8,
    trimmed: bool,
    path: usize,
    probe: bool,
    frame: Option<bool>,
    wrong: bool,
    way: VecDeque<LinkId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Change(LinkId, LinkChange),
    News,
    Sent,
    Start,
    Arrive(Packet),
    TakeIn(Packet),
    TimeOut,
    Silent,
    Turn,
}

/// Compared by time, class and number; `planned` keeps equal ones in order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    time: u64,
    class: u8,
    number: usize,
    planned: u64,
    generation: u64,
    what: What,
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |event: &Self| (event.time, event.class, event.number, event.planned);
        key(self).cmp(&key(other))
    }
}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Default)]
struct Port {
    queue: VecDeque<(Packet, u64)>,
    sending: Option<(Packet, u64)>,
    sending_at: Option<BitsPerSecond>,
    idle_since: u64,
    down: bool,
    generation: u64,
    let_in: u64,
    begun: u64,
    /// Share of corrupted bits, in units of 2⁻⁶⁴.
    errors: u64,
    /// Share of lost packets in the same units, and maximum delay.
    loss: u64,
    jitter: u64,
    rate: Option<BitsPerSecond>,
    waiting: VecDeque<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Tail,
    Trimmed,
    Repair,
    Next,
}

struct Flow {
    spec: FlowSpec,
    paths: Vec<Vec<LinkId>>,
    choices: [Vec<Choice>; 2],
    window: u32,
    per_message: u32,
    started: bool,
    acked: u32,
    next: u32,
    sent: u32,
    answered: u32,
    held: BTreeSet<u32>,
    repaired: BTreeSet<u32>,
    to_repair: BTreeSet<u32>,
    trimmed: VecDeque<u32>,
    /// Trimmed packets sent again, with the next new packet at that time.
    trimmed_resent: VecDeque<(u32, u32)>,
    in_flight: u32,
    deadline: Option<u64>,
    backoff: u32,
    smoothed: u64,
    variation: u64,
    timed: Option<(u32, u64)>,
    timer_generation: u64,
    repair_end: u32,
    /// The last packet, to be resent after a silence, and when it was.
    asked: Option<u32>,
    out: Option<u32>,
    silence_generation: u64,
    resent: u32,
    turn: usize,
    /// Spraying: the paths in the order of this round, and the number already drawn.
    to_draw: Vec<usize>,
    drawn_in_round: usize,
    salt: u64,
    drawn: u64,
    retired: BTreeMap<usize, (u32, u64)>,
    heard: BTreeMap<usize, u32>,
    taken: BTreeMap<u32, usize>,
    arrived: BTreeSet<u32>,
    expected: u32,
    end: Option<SimTime>,
}

impl Flow {
    fn total(&self) -> u32 {
        self.per_message * self.spec.messages
    }
    fn messages_delivered(&self) -> u32 {
        self.expected / self.per_message
    }
    /// Packets known to be trimmed are resent when there is room, and not repaired.
    fn pass_over(&mut self) {
        while let Some(first) = self.to_repair.first().copied() {
            let resent = self.trimmed_resent.iter().any(|(sequence, _)| *sequence == first);
            let trimmed = self.trimmed.contains(&first) || resent;
            if first >= self.acked && !self.held.contains(&first) && !trimmed {
                return;
            }
            self.to_repair.pop_first();
        }
    }
    /// If a packet is resent, its path is dark unless a later packet on it was acknowledged.
    fn lose(&mut self, sequence: u32, probe_at: u64) {
        let Some(path) = self.taken.get(&sequence) else { return };
        let answered_later = self.heard.get(path).is_some_and(|heard| *heard >= sequence);
        let is_last = self.retired.len() + 1 == self.paths.len();
        if !answered_later && !is_last && !self.retired.contains_key(path) {
            self.retired.insert(*path, (sequence, probe_at));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) at: SimTime,
    pub(crate) link: LinkId,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: bool,
    pub(crate) marked: bool,
    pub(crate) wire_bytes: u64,
    pub(crate) flow: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) sent: u64,
    pub(crate) delivered: u64,
    pub(crate) dropped: u64,
    pub(crate) lost: u64,
    pub(crate) marked: u64,
    pub(crate) trimmed: u64,
    pub(crate) pauses: u64,
}

pub(crate) struct Reference<'a> {
    network: &'a Network,
    transport: Transport,
    ports: Vec<Port>,
    known_down: Vec<bool>,
    queueing: Option<Queueing>,
    marking: Marking,
    switching: Switching,
    host_delay: Picoseconds,
    seed: Seed,
    queues: Vec<queued::Queues>,
    flows: Vec<Flow>,
    events: BinaryHeap<Reverse<Event>>,
    planned: u64,
    now: u64,
    pub(crate) log: Vec<Seen>,
    pub(crate) totals: Totals,
}

/// The mixing step of SplitMix64 (Steele, Lea, Flood, 2014).
fn splitmix(value: u64) -> u64 {
    let mut draw = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    draw = (draw ^ draw >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    draw = (draw ^ draw >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    draw ^ draw >> 31
}

impl<'a> Reference<'a> {
    pub(crate) fn new(network: &'a Network, settings: EngineSettings) -> Self {
        let EngineSettings { transport, queueing, marking, switching, host_delay, seed, .. } =
            settings;
        Self {
            network,
            transport,
            ports: network.links().iter().map(|_| Port::default()).collect(),
            known_down: vec![false; network.links().len()],
            queueing,
            marking,
            switching,
            host_delay,
            seed,
            queues: network.links().iter().map(|_| queued::Queues::default()).collect(),
            flows: Vec::new(),
            events: BinaryHeap::new(),
            planned: 0,
            now: 0,
            log: Vec::new(),
            totals: Totals::default(),
        }
    }

    pub(crate) fn add_flow(
        &mut self,
        spec: FlowSpec,
        (paths, choices): (Vec<Vec<LinkId>>, [Vec<Choice>; 2]),
        window: u32,
    ) {
        let number = self.flows.len();
        let idle = self.idle_round_trip(&paths[0]);
        let same = |flow: &&Flow| {
            (flow.spec.source, flow.spec.destination) == (spec.source, spec.destination)
        };
        let before = self.flows.iter().filter(same).count() as u64;
        let ends = u64::from(spec.source.0) << 32 | u64::from(spec.destination.0);
        let salt = splitmix(splitmix(ends).wrapping_add(before));
        self.plan(spec.start.0, 2, number, 0, What::Start);
        self.flows.push(Flow {
            per_message: self.transport.packets_for(spec.message) as u32,
            spec,
            to_draw: (0..paths.len()).collect(),
            drawn_in_round: 0,
            paths,
            choices,
            window,
            started: false,
            acked: 0,
            next: 0,
            sent: 0,
            answered: 0,
            held: BTreeSet::new(),
            repaired: BTreeSet::new(),
            to_repair: BTreeSet::new(),
            trimmed: VecDeque::new(),
            trimmed_resent: VecDeque::new(),
            in_flight: 0,
            deadline: None,
            backoff: 0,
            smoothed: idle,
            variation: idle / 2,
            timed: None,
            timer_generation: 0,
            repair_end: 0,
            asked: None,
            out: None,
            silence_generation: 0,
            resent: 0,
            turn: 0,
            salt,
            drawn: 0,
            retired: BTreeMap::new(),
            heard: BTreeMap::new(),
            taken: BTreeMap::new(),
            arrived: BTreeSet::new(),
            expected: 0,
            end: None,
        });
    }

    pub(crate) fn change_link(&mut self, at: SimTime, link: LinkId, change: LinkChange) {
        self.plan(at.0, 0, 0, 0, What::Change(link, change));
    }

    fn time_for(&self, link: LinkId, size: Bytes) -> u64 {
        self.rate(link).time_for(size).0
    }

    fn rate(&self, link: LinkId) -> BitsPerSecond {
        self.ports[link.index()].rate.unwrap_or(self.network.link(link).spec.rate)
    }

    /// When the last bit of a packet of `size` reaches the end of an idle `path`.
    fn idle_time(&self, path: impl Iterator<Item = LinkId>, size: Bytes) -> u64 {
        let (mut arrived, mut came_at) = (0, None);
        for link in path {
            let spec = self.network.link(link).spec;
            let takes = |bytes: Bytes, rate: BitsPerSecond| rate.time_for(bytes).0;
            let cuts = self.switching == Switching::CutThrough;
            let head = match came_at.filter(|rate| cuts && *rate >= spec.rate) {
                Some(rate) => {
                    arrived - takes(size, rate) + takes(self.transport.header.min(size), rate)
                }
                None => arrived,
            };
            arrived = head + takes(size, spec.rate) + spec.delay.0;
            came_at = Some(spec.rate);
        }
        arrived
    }

    fn idle_round_trip(&self, path: &[LinkId]) -> u64 {
        let back = path.iter().rev().map(|link| link.reverse());
        let there = self.idle_time(path.iter().copied(), self.transport.packet());
        there + self.idle_time(back, self.transport.acknowledgement) + 2 * self.host_delay.0
    }

    fn plan(&mut self, time: u64, class: u8, number: usize, generation: u64, what: What) {
        let planned = self.planned;
        self.planned += 1;
        self.events.push(Reverse(Event { time, class, number, planned, generation, what }));
    }

    pub(crate) fn ends(&self) -> Vec<(Option<SimTime>, u32)> {
        self.flows.iter().map(|flow| (flow.end, flow.resent)).collect()
    }

    pub(crate) fn run(&mut self, limit: SimTime) {
        while self.events.peek().is_some_and(|Reverse(event)| event.time <= limit.0) {
            let Some(Reverse(event)) = self.events.pop() else { return };
            assert!(event.time >= self.now, "time does not run backwards");
            self.now = event.time;
            self.handle(event);
        }
        // The engine counts corrupted packets on admission, the reference after transmission.
        let here = |port: &Port| {
            let waiting = port.queue.iter().chain(&port.sending);
            waiting.filter(|(packet, _)| packet.wrong).count() as u64
        };
        self.totals.lost += self.ports.iter().map(here).sum::<u64>();
    }

    fn handle(&mut self, event: Event) {
        let Event { number, generation, .. } = event;
        match event.what {
            What::Change(link, change) => self.change(link.index(), change),
            What::News => self.known_down = self.ports.iter().map(|port| port.down).collect(),
            What::Sent if generation == self.ports[number].generation => self.sent(number),
            What::Arrive(packet) if generation == self.ports[number].generation => {
                self.arrive(LinkId(number as u32), packet);
            }
            What::Sent => {}
            What::Arrive(_) => self.totals.lost += 1,
            What::TakeIn(packet) => self.take_in(&packet),
            What::Start => {
                self.flows[number].started = true;
                self.send(number);
            }
            What::TimeOut if generation == self.flows[number].timer_generation => {
                self.time_out(number);
            }
            What::TimeOut => {}
            What::Silent if generation == self.flows[number].silence_generation => {
                self.silent(number);
            }
            What::Silent => {}
            What::Turn => self.turn(number),
        }
    }
}
