//! The reference engine: one global queue of events, a real queue at every port, sets instead of
//! bitmaps. Slow and obvious; it shares no code with the engine but the description of the network,
//! the paths of the flows and the vocabulary.
//!
//! Order of events: time; then link changes, ends of transmissions, flow starts (by flow), arrivals
//! (by link), what hosts do after a delay (by link), timeouts (by flow), turns of the flows that wait for a host's free port (by link).

mod queued;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use lightloom_emulator::engine::{
    Choice, FlowSpec, LinkChange, LinkId, Marking, Network, Queueing, Settings, Switching,
};
use lightloom_emulator::transport::{Balance, Recovery, Transport};
use lightloom_fabric::seed::Seed;
use lightloom_fabric::units::{Bytes, Picoseconds, SimTime};
use rand::Rng;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    flow: usize,
    acknowledgement: bool,
    /// Data: its number. Acknowledgement: the lowest number not received.
    sequence: u32,
    /// Acknowledgement: the number it answers, when that lies beyond a gap.
    beyond_gap: Option<u32>,
    /// Acknowledgement: the number it answers, when that packet was marked.
    echo: Option<u32>,
    wire_bytes: u64,
    marked: bool,
    /// 7 for acknowledgements and what is trimmed.
    priority: u8,
    /// Cut to its header, or the acknowledgement of such a packet.
    trimmed: bool,
    /// A pause frame: whether it pauses or resumes its priority.
    frame: Option<bool>,
    /// A bit of it is wrong: it is lost at the end of the link.
    wrong: bool,
    /// The links still to travel.
    way: VecDeque<LinkId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Change(LinkId, LinkChange),
    Sent,
    Start,
    Arrive(Packet),
    /// The host takes in what has arrived before.
    TakeIn(Packet),
    TimeOut,
    Turn,
}

/// Compared by time, class and number; `planned` keeps equal ones in order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    time: u64,
    class: u8,
    /// Link or flow, by class.
    number: usize,
    planned: u64,
    /// Events of a link or timer that has changed since are void.
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
    /// Since when nothing has been sent, if nothing is.
    idle_since: u64,
    down: bool,
    generation: u64,
    /// Packets let in so far, and transmissions begun.
    let_in: u64,
    begun: u64,
    /// Share of bits that arrive wrong, in units of 2⁻⁶⁴.
    errors: u64,
    /// At a host: flows with data for this port, the next one first.
    waiting: VecDeque<usize>,
}

/// Why a packet is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Trimmed,
    Repair,
    Next,
}

struct Flow {
    spec: FlowSpec,
    paths: Vec<Vec<LinkId>>,
    choices: Vec<Choice>,
    window: u32,
    per_message: u32,
    // sending end
    started: bool,
    acked: u32,
    next: u32,
    sent: u32,
    answered: u32,
    held: BTreeSet<u32>,
    repaired: BTreeSet<u32>,
    to_repair: BTreeSet<u32>,
    trimmed: VecDeque<u32>,
    deadline: Option<u64>,
    backoff: u32,
    timer_generation: u64,
    resent: u32,
    // load balancing
    turn: usize,
    last_sent: u64,
    congested: BTreeSet<usize>,
    taken: BTreeMap<u32, usize>,
    // receiving end
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
}

/// A packet's arrival at the far end of a link.
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

impl<'a> Reference<'a> {
    pub(crate) fn new(network: &'a Network, settings: Settings) -> Self {
        let Settings { transport, queueing, marking, switching, host_delay, seed, .. } = settings;
        Self {
            network,
            transport,
            ports: network.links().iter().map(|_| Port::default()).collect(),
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
        (paths, choices): (Vec<Vec<LinkId>>, Vec<Choice>),
        window: u32,
    ) {
        let number = self.flows.len();
        self.plan(spec.start.0, 2, number, 0, What::Start);
        self.flows.push(Flow {
            per_message: self.transport.packets_for(spec.message) as u32,
            spec,
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
            deadline: None,
            backoff: 0,
            timer_generation: 0,
            resent: 0,
            turn: 0,
            last_sent: 0,
            congested: BTreeSet::new(),
            taken: BTreeMap::new(),
            arrived: BTreeSet::new(),
            expected: 0,
            end: None,
        });
    }

    pub(crate) fn change_link(&mut self, at: SimTime, link: LinkId, change: LinkChange) {
        self.plan(at.0, 0, 0, 0, What::Change(link, change));
    }

    fn plan(&mut self, time: u64, class: u8, number: usize, generation: u64, what: What) {
        let planned = self.planned;
        self.planned += 1;
        self.events.push(Reverse(Event { time, class, number, planned, generation, what }));
    }

    pub(crate) fn ends(&self) -> Vec<(Option<SimTime>, u32)> {
        self.flows.iter().map(|flow| (flow.end, flow.resent)).collect()
    }

    /// Runs everything up to and including `limit`.
    pub(crate) fn run(&mut self, limit: SimTime) {
        while self.events.peek().is_some_and(|Reverse(event)| event.time <= limit.0) {
            let Some(Reverse(event)) = self.events.pop() else { return };
            assert!(event.time >= self.now, "time does not run backwards");
            self.now = event.time;
            self.handle(event);
        }
        // The engine counts what is lost to wrong bits when it is let in, this one when it has been sent.
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
            What::Turn => self.turn(number),
        }
    }

    /// A number drawn for the `number`th packet on a link.
    fn draw(&self, what: &str, link: LinkId, number: u64) -> u64 {
        let mut draw = self.seed.stream(what, u64::from(link.0)).next_u64().wrapping_add(number);
        draw = draw.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        draw = (draw ^ draw >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        draw = (draw ^ draw >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        draw ^ draw >> 31
    }

    /// Whether a packet is marked that finds `backlog` before it, when `size` bytes are as long as
    /// `measure` says.
    fn is_marked(&self, link: LinkId, backlog: u64, measure: impl Fn(Bytes) -> u64) -> bool {
        let Some(mark_from) = self.network.link(link).spec.mark_from else { return false };
        let from = measure(mark_from);
        let Marking::Ramp { full_at_percent, most_percent } = self.marking else {
            return backlog >= from;
        };
        let full_at = measure(Bytes(mark_from.0 * u64::from(full_at_percent) / 100));
        if backlog < from || backlog >= full_at {
            return backlog >= from;
        }
        let most = (u64::from(most_percent) << 32) / 100;
        let drawn = self.draw("marks", link, self.ports[link.index()].let_in) >> 32;
        u128::from(drawn)
            < u128::from(most) * u128::from(backlog - from) / u128::from(full_at - from)
    }

    /// Whether a bit of the `number`th packet is wrong.
    fn is_wrong(&self, link: LinkId, number: u64, wire_bytes: u64) -> bool {
        let errors = self.ports[link.index()].errors;
        let chance = u128::from(errors) * u128::from(wire_bytes) * 8;
        errors > 0
            && u128::from(self.draw("bit errors", link, number)) < chance.min(u64::MAX.into())
    }

    fn change(&mut self, link: usize, change: LinkChange) {
        if let LinkChange::BitErrors(errors) = change {
            self.ports[link].errors = errors.0;
            return;
        }
        if self.ports[link].down == (change == LinkChange::Down) {
            return;
        }
        self.change_queues(link, change == LinkChange::Down);
        let port = &mut self.ports[link];
        let down = change == LinkChange::Down;
        port.down = down;
        port.idle_since = self.now;
        if down {
            self.totals.lost += port.queue.len() as u64 + u64::from(port.sending.is_some());
            port.queue.clear();
            port.sending = None;
            port.generation += 1;
        } else {
            self.plan(self.now, 6, link, 0, What::Turn);
        }
    }

    fn enqueue(&mut self, link: LinkId, mut packet: Packet, ingress: Option<LinkId>) {
        if self.has_queues(link) {
            return self.queue_up(link, packet, ingress.expect("a switch makes no packets"));
        }
        let spec = self.network.link(link).spec;
        let bounded = !self.network.role(self.network.link(link).from).is_host();
        let port = &self.ports[link.index()];
        if port.down {
            self.totals.lost += 1;
            return;
        }
        let occupies = spec.rate.time_for(Bytes(packet.wire_bytes)).0;
        let sending = port.sending.as_ref().map_or(0, |(_, until)| until - self.now);
        let backlog = sending + port.queue.iter().map(|(_, occupies)| occupies).sum::<u64>();
        let over = |size: Option<Bytes>, time: u64| {
            bounded && size.is_some_and(|size| time > spec.rate.time_for(size).0)
        };
        if over(spec.queue, backlog + occupies) {
            self.totals.dropped += 1;
            return;
        }
        let measure = |size: Bytes| spec.rate.time_for(size).0;
        if bounded && !packet.acknowledgement && self.is_marked(link, backlog, measure) {
            packet.marked = true;
            self.totals.marked += 1;
        }
        self.ports[link.index()].let_in += 1;
        packet.wrong = self.is_wrong(link, self.ports[link.index()].let_in, packet.wire_bytes);
        let head =
            ingress.map_or(self.now, |ingress| self.head_in(ingress, link, packet.wire_bytes));
        self.ports[link.index()].queue.push_back((packet, occupies));
        self.start_sending(link.index(), head);
    }

    /// When so much of a packet whose last bit comes by `ingress` now had come that `link` may send it.
    fn head_in(&self, ingress: LinkId, link: LinkId, wire_bytes: u64) -> u64 {
        let (comes, leaves) = (self.network.link(ingress), self.network.link(link));
        let stores = self.switching == Switching::StoreAndForward;
        if stores || self.network.role(leaves.from).is_host() || leaves.spec.rate > comes.spec.rate
        {
            return self.now;
        }
        let [all, header] = [wire_bytes, self.transport.header.0.clamp(1, wire_bytes)]
            .map(|bytes| comes.spec.rate.time_for(Bytes(bytes)).0);
        self.now - all + header
    }

    /// Sends what is next, whose header has been in since `head`, if nothing is being sent.
    fn start_sending(&mut self, link: usize, head: u64) {
        let port = &mut self.ports[link];
        if port.sending.is_some() {
            return;
        }
        if port.queue.is_empty() && !port.waiting.is_empty() {
            self.plan(self.now, 6, link, 0, What::Turn);
        } else if let Some((packet, occupies)) = port.queue.pop_front() {
            let until = port.idle_since.max(head) + occupies;
            port.sending = Some((packet, until));
            let generation = port.generation;
            self.plan(until, 1, link, generation, What::Sent);
        }
    }

    fn sent(&mut self, link: usize) {
        if self.has_queues(LinkId(link as u32)) {
            return self.sent_from_queue(link);
        }
        let port = &mut self.ports[link];
        let (packet, _) = port.sending.take().expect("something was being sent");
        let generation = port.generation;
        let arrival = self.now + self.network.links()[link].spec.delay.0;
        if packet.wrong {
            self.totals.lost += 1;
        } else {
            self.plan(arrival, 3, link, generation, What::Arrive(packet));
        }
        self.ports[link].idle_since = self.now;
        self.start_sending(link, self.now);
    }

    fn arrive(&mut self, link: LinkId, mut packet: Packet) {
        if packet.frame.is_some() {
            return self.obey(link, &packet);
        }
        self.log.push(Seen {
            at: SimTime(self.now),
            link,
            sequence: packet.sequence,
            acknowledgement: packet.acknowledgement,
            marked: packet.marked,
            wire_bytes: packet.wire_bytes,
            flow: packet.flow,
        });
        if let Some(next) = self.lead_on(link, &packet).or_else(|| packet.way.pop_front()) {
            self.enqueue(next, packet, Some(link));
        } else if self.host_delay == Picoseconds::ZERO {
            self.take_in(&packet);
        } else {
            let later = self.now + self.host_delay.0;
            self.plan(later, 4, link.index(), 0, What::TakeIn(packet));
        }
    }

    /// The link with the least before it, where the switch at the end of `link` chooses.
    fn lead_on(&self, link: LinkId, packet: &Packet) -> Option<LinkId> {
        let at = self.network.link(link).to;
        let choices = &self.flows[packet.flow].choices;
        let choice = choices.iter().find(|choice| choice.at == at && !packet.acknowledgement)?;
        let mut links = choice.links.clone();
        links.rotate_left(packet.sequence as usize % choice.links.len());
        links.into_iter().min_by_key(|link| match self.ports[link.index()].down {
            true => u64::MAX,
            false => self.stands_before(*link),
        })
    }

    /// How long everything takes that waits for a link or is being sent.
    fn stands_before(&self, link: LinkId) -> u64 {
        if self.has_queues(link) {
            return self.network.link(link).spec.rate.time_for(Bytes(self.held(link))).0;
        }
        let port = &self.ports[link.index()];
        let sending = port.sending.as_ref().map_or(0, |(_, until)| until - self.now);
        sending + port.queue.iter().map(|(_, occupies)| occupies).sum::<u64>()
    }

    fn take_in(&mut self, packet: &Packet) {
        self.totals.delivered += 1;
        if packet.acknowledgement {
            self.acknowledged(packet);
        } else {
            self.data(packet);
        }
    }

    fn data(&mut self, packet: &Packet) {
        if packet.trimmed {
            return self.answer_trimmed(packet);
        }
        let go_back = self.transport.recovery == Recovery::GoBackN;
        let flow = &mut self.flows[packet.flow];
        let in_order = packet.sequence == flow.expected;
        let after_gap = packet.sequence > flow.expected;
        if in_order || (after_gap && !go_back) {
            flow.arrived.insert(packet.sequence);
        }
        let delivered_before = flow.messages_delivered();
        while flow.arrived.remove(&flow.expected) {
            flow.expected += 1;
        }
        if flow.expected == flow.total() && flow.end.is_none() {
            flow.end = Some(SimTime(self.now));
        }
        let new_message = flow.messages_delivered() > delivered_before;
        self.acknowledge(packet, after_gap.then_some(packet.sequence), false);
        if new_message {
            let waiting = |flow: &Flow| {
                flow.started && flow.spec.gates.iter().any(|gate| gate.flow.index() == packet.flow)
            };
            for number in 0..self.flows.len() {
                if waiting(&self.flows[number]) {
                    self.send(number);
                }
            }
        }
    }

    fn acknowledge(&mut self, packet: &Packet, beyond_gap: Option<u32>, trimmed: bool) {
        let flow = &self.flows[packet.flow];
        let mut way: VecDeque<_> = flow.paths[0].iter().rev().map(|link| link.reverse()).collect();
        let first = way.pop_front().expect("a path has links");
        let acknowledgement = Packet {
            flow: packet.flow,
            acknowledgement: true,
            sequence: flow.expected,
            beyond_gap,
            echo: (packet.marked || trimmed).then_some(packet.sequence),
            wire_bytes: self.transport.acknowledgement.0,
            marked: false,
            priority: 7,
            trimmed,
            frame: None,
            wrong: false,
            way,
        };
        self.totals.sent += 1;
        self.enqueue(first, acknowledgement, None);
    }

    fn acknowledged(&mut self, packet: &Packet) {
        let now = self.now;
        let flow = &mut self.flows[packet.flow];
        if flow.acked == flow.total() {
            return;
        }
        if let Some(path) = packet.echo.filter(|echo| *echo >= flow.acked)
            && let Some(path) = flow.taken.get(&path)
        {
            flow.congested.insert(*path);
        }
        if packet.sequence > flow.acked {
            flow.acked = packet.sequence;
            flow.next = flow.next.max(flow.acked);
            flow.held = flow.held.split_off(&flow.acked);
            flow.backoff = 0;
            let deadline = (flow.acked != flow.next).then(|| now + self.transport.timeout.0);
            self.set_timer(packet.flow, deadline);
        }
        let flow = &mut self.flows[packet.flow];
        if let Some(arrived) = packet.beyond_gap {
            match self.transport.recovery {
                Recovery::GoBackN => {
                    if packet.sequence == flow.acked && flow.acked >= flow.answered {
                        flow.answered = flow.sent;
                        flow.next = flow.acked;
                    }
                }
                Recovery::SelectiveRepeat { .. } if packet.trimmed => {
                    let missing = arrived >= flow.acked && !flow.held.contains(&arrived);
                    if missing && !flow.trimmed.contains(&arrived) {
                        flow.trimmed.push_back(arrived);
                    }
                }
                Recovery::SelectiveRepeat { reordering } => {
                    if arrived >= flow.acked {
                        flow.held.insert(arrived);
                    }
                    for missing in flow.acked..(arrived + 1).saturating_sub(reordering) {
                        if flow.repaired.insert(missing) {
                            flow.to_repair.insert(missing);
                        }
                    }
                }
            }
        }
        if self.flows[packet.flow].acked < self.flows[packet.flow].total() {
            self.send(packet.flow);
        }
    }

    fn time_out(&mut self, number: usize) {
        let now = self.now;
        let flow = &mut self.flows[number];
        flow.backoff = (flow.backoff + 1).min(6);
        flow.answered = flow.sent;
        flow.next = flow.acked;
        flow.repaired.clear();
        flow.to_repair.clear();
        flow.trimmed.clear();
        let deadline = now + (self.transport.timeout.0 << flow.backoff);
        self.set_timer(number, Some(deadline));
        self.send(number);
    }

    fn set_timer(&mut self, number: usize, deadline: Option<u64>) {
        let flow = &mut self.flows[number];
        flow.deadline = deadline;
        flow.timer_generation += 1;
        let generation = flow.timer_generation;
        if let Some(deadline) = deadline {
            self.plan(deadline, 5, number, generation, What::TimeOut);
        }
    }

    /// How many messages the gates let go.
    fn released(&self, number: usize) -> u32 {
        let spec = &self.flows[number].spec;
        let opened = spec.gates.iter().map(|gate| {
            let awaited = &self.flows[gate.flow.index()];
            let delivered = awaited.messages_delivered();
            if delivered == awaited.spec.messages {
                u32::MAX
            } else {
                (i64::from(delivered) + i64::from(gate.ahead)).max(0) as u32
            }
        });
        opened.min().unwrap_or(u32::MAX).min(spec.messages)
    }

    /// Puts the flow in line for its port, if it has something to send.
    fn send(&mut self, number: usize) {
        let link = self.flows[number].paths[0][0].index();
        if self.choose(number).is_some() && !self.ports[link].waiting.contains(&number) {
            self.ports[link].waiting.push_back(number);
            self.plan(self.now, 6, link, 0, What::Turn);
        }
    }

    /// Gives the next flow in line a free port for one packet.
    fn turn(&mut self, link: usize) {
        let port = &mut self.ports[link];
        if port.down || port.sending.is_some() || !port.queue.is_empty() {
            return;
        }
        while let Some(number) = self.next_waiting(link) {
            if let Some((sequence, choice)) = self.choose(number) {
                self.send_now(number, sequence, choice);
                if self.choose(number).is_some() {
                    self.ports[link].waiting.push_back(number);
                }
                return;
            }
        }
    }

    /// What the flow would send next, and whether that is a repair.
    fn choose(&self, number: usize) -> Option<(u32, Reason)> {
        let released = self.released(number).saturating_mul(self.flows[number].per_message);
        let flow = &self.flows[number];
        let missing = |sequence: &u32| *sequence >= flow.acked && !flow.held.contains(sequence);
        if let Some(&trimmed) = flow.trimmed.iter().find(|sequence| missing(sequence)) {
            return Some((trimmed, Reason::Trimmed));
        }
        if let Some(&repair) = flow.to_repair.iter().find(|sequence| missing(sequence)) {
            return Some((repair, Reason::Repair));
        }
        let resent_and_held =
            |sequence: &u32| *sequence < flow.sent && flow.held.contains(sequence);
        let next = (flow.next..released).find(|sequence| !resent_and_held(sequence))?;
        (next - flow.acked < flow.window).then_some((next, Reason::Next))
    }

    fn send_now(&mut self, number: usize, sequence: u32, choice: Reason) {
        let flow = &mut self.flows[number];
        if choice == Reason::Trimmed {
            while flow.trimmed.pop_front().is_some_and(|first| first != sequence) {}
            flow.resent += 1;
        } else if choice == Reason::Repair {
            flow.to_repair.retain(|other| *other > sequence);
            flow.resent += 1;
        } else {
            flow.resent += u32::from(sequence < flow.sent);
            flow.next = sequence + 1;
            flow.sent = flow.sent.max(flow.next);
            if flow.deadline.is_none() {
                let deadline = self.now + (self.transport.timeout.0 << flow.backoff);
                self.set_timer(number, Some(deadline));
            }
        }
        self.send_packet(number, sequence);
    }

    /// The place of the path for the next packet.
    fn choose_path(&mut self, number: usize, sequence: u32) -> usize {
        let now = self.now;
        let flow = &mut self.flows[number];
        let count = flow.paths.len();
        match self.transport.balance {
            Balance::PerFlow | Balance::Adaptive => {}
            Balance::Spray { .. } => flow.turn = (flow.turn + 1) % count,
            Balance::Flowlet { gap, .. } => {
                if now > flow.last_sent + gap.0 {
                    flow.turn = (flow.turn + 1) % count;
                }
                flow.last_sent = now;
            }
            Balance::AvoidMarked { .. } => {
                flow.turn = (flow.turn + 1) % count;
                let mut skipped = 0;
                while skipped < count && flow.congested.remove(&flow.turn) {
                    flow.turn = (flow.turn + 1) % count;
                    skipped += 1;
                }
                flow.taken.insert(sequence, flow.turn);
            }
        }
        flow.turn
    }

    fn send_packet(&mut self, number: usize, sequence: u32) {
        let path = self.choose_path(number, sequence);
        let flow = &self.flows[number];
        let last = (sequence + 1).is_multiple_of(flow.per_message);
        let wire_bytes = if last {
            self.transport.last_packet(flow.spec.message).0
        } else {
            self.transport.packet().0
        };
        let chosen_on_the_way = !flow.choices.is_empty();
        let known = if chosen_on_the_way { 1 } else { usize::MAX };
        let mut way: VecDeque<_> = flow.paths[path].iter().copied().take(known).collect();
        let first = way.pop_front().expect("a path has links");
        let packet = Packet {
            flow: number,
            acknowledgement: false,
            sequence,
            beyond_gap: None,
            echo: None,
            wire_bytes,
            marked: false,
            priority: flow.spec.priority,
            trimmed: false,
            frame: None,
            wrong: false,
            way,
        };
        self.totals.sent += 1;
        self.enqueue(first, packet, None);
    }
}
