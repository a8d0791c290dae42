// SPDX-License-Identifier: Apache-2.0
//! A switch with bounded queues: buffer, admission and scheduling.
//!
//! ```text
//!   ingress k ──▶ room? ──▶ queue (port, priority) ──▶ schedule ──▶ wire
//!      ▲            │ no: trim or drop                                │ sent: buffer space is freed
//!      └── pause ◀──┴── counted by ingress and priority ◀─────────────┘
//! ```
//! At one instant, transmissions end first (in order of ports), then arrivals are processed (in order of links).
//! Transmissions are never interrupted, so a packet is on its wire as soon as it starts.
//!
//! Ports share the buffer and the counts that trigger pauses. While these cannot reach a limit
//! ([`SwitchQueues::ports_are_apart`]), each port is processed separately ([`OnePort`]). Packets in
//! transmission are then not counted as buffered, so that a packet that need not wait changes no shared
//! count. They are counted while ports are processed together ([`SwitchQueues::begin_together`]).

use lightloom_units::Bytes;
use lightloom_units::seed::Seed;

use super::calendar::Calendar;
use super::marking::{Marking, Ramp};
use super::network::{LinkId, LinkSpec};
use super::one_port::{CutThrough, OnePort};
use super::packet::{Contents, Packet, flag};
use super::port::{Port, PortCount, WireEnd};
use super::queueing::{PAUSE_FRAME, Queueing, Schedule};
use super::queues::{FRAMES, Queues};
use super::shard::SimSpan;
use super::store::{Room, Store};

/// Marks an idle port while ports are processed together.
const IDLE: u64 = u64::MAX;

/// Index `k` refers to the `k`th port and to the incoming link of the same cable.
#[derive(Clone, Debug)]
pub(crate) struct SwitchQueues {
    schedule: Schedule,
    store: Store,
    ports: Vec<QueuedPort>,
    /// Whether packets wait at each port. A compact copy, because most ports are idle in most windows.
    waiting: Vec<bool>,
    asked: u32,
    calendar: Calendar,
}

#[derive(Clone, Debug)]
struct QueuedPort {
    queues: Queues,
    /// End of the latest transmission (past or future), and the buffer space that it frees.
    end: u64,
    sending: Room,
    /// End of an idle port's last transmission while ports are processed together.
    freed: u64,
}

pub(crate) trait Outlet {
    const SEES_QUEUES: bool;
    const REPORTS: bool;
    fn port(&mut self, place: u32) -> (&mut Port, &mut PortCount);
    fn launch(&mut self, to: WireEnd, packet: Packet, arrival: u64);
    /// Also returns a function that is called with the backlog which a packet meets, if `SEES_QUEUES`.
    fn watched_port(&mut self, place: u32) -> (&mut Port, &mut PortCount, impl FnMut(Bytes));
    fn frame_made(&mut self);
    /// Records the state of a port whose transmission of `packet` ends at `until`, if `REPORTS`.
    fn report(&mut self, place: u32, packet: &Packet, until: u64, queue: u64);
    fn head_start(&self, place: u32, packet: &Packet) -> u64;
    fn header_bytes(&self) -> u16;
}

impl SwitchQueues {
    pub(crate) fn new<'l>(
        queueing: Queueing,
        marking: Marking,
        seed: Seed,
        links: impl Iterator<Item = (LinkId, &'l LinkSpec)>,
    ) -> Self {
        let ports = links.map(|(id, link)| {
            let ramp = Ramp::new(marking, seed, id, link.mark_from, |size| size.0);
            let [capacity, mark_from] =
                [link.queue, link.mark_from].map(|size| size.map_or(u64::MAX, |size| size.0));
            let queues = Queues::new(capacity, mark_from, ramp);
            QueuedPort { queues, end: 0, sending: Room::default(), freed: 0 }
        });
        let ports: Vec<QueuedPort> = ports.collect();
        Self {
            schedule: queueing.schedule,
            store: Store::new(&queueing, ports.len()),
            asked: 0,
            waiting: vec![false; ports.len()],
            calendar: Calendar::new(ports.len()),
            ports,
        }
    }

    /// Ends transmissions up to and including a time `after` the start of the window, while ports are processed together.
    #[inline(always)]
    pub(crate) fn end_until(&mut self, after: u64, out: &mut impl Outlet) {
        while let Some(place) = self.calendar.take_until(after) {
            self.end_transmission(place as u32, out);
        }
    }

    /// The next event other than an arrival, or [`u64::MAX`]. Everything before `now` has been processed.
    pub(crate) fn next_due(&self, ports: &[Port], now: u64) -> u64 {
        let ports = self.ports.iter().zip(ports);
        let matters = ports.filter(|(at, port)| {
            self.asked > 0 && at.end >= now || at.queues.has_something(port.paused)
        });
        matters.map(|(at, _)| at.end).min().unwrap_or(IDLE)
    }

    pub(crate) fn dropped(&self) -> &[u64] {
        &self.store.dropped
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.ports.iter().map(|port| port.queues.packets()).sum::<usize>() as u64
    }

    pub(crate) fn see_waiting(&self, see: &mut impl FnMut(&Packet)) {
        let classes =
            self.ports.iter().flat_map(|port| (0..=FRAMES).map(|at| port.queues.waiting(at)));
        classes.flatten().for_each(|(_, packet)| see(packet));
    }

    #[inline(always)]
    pub(crate) fn waits(&self, place: u32) -> bool {
        self.waiting[place as usize]
    }

    #[inline(always)]
    pub(crate) fn note_waiting(&mut self, place: u32) {
        self.waiting[place as usize] = !self.ports[place as usize].queues.is_empty();
    }

    #[inline(always)]
    pub(crate) fn begins_before(&self, place: u32, end: u64) -> bool {
        self.ports[place as usize].end < end
    }

    /// Whether ports can be processed separately in a window from `start` in which up to `came` bytes arrive at each
    /// port: no order of arrivals may pause or resume a sender, or drop a packet for lack of shared space.
    pub(crate) fn ports_are_apart(&self, start: u64, came: &mut [u64]) -> bool {
        if self.asked > 0 {
            return false;
        }
        if !self.store.is_bounded() {
            return true;
        }
        for port in self.ports.iter().filter(|port| port.end >= start) {
            came[port.sending.ingress as usize] += u64::from(port.sending.size);
        }
        self.store.holds(came)
    }

    #[inline(always)]
    pub(crate) fn one_port<'s>(
        &'s mut self,
        place: u32,
        header_bytes: u16,
        cut_through: Option<CutThrough<'s>>,
        port: &'s mut Port,
        count: &'s mut PortCount,
    ) -> OnePort<'s> {
        let QueuedPort { queues, end, sending: room, .. } = &mut self.ports[place as usize];
        let up = port.up;
        let (sending, paused) = port.open_queued(end, count);
        let (store, schedule) = (&mut self.store, &self.schedule);
        let last = None;
        OnePort {
            last,
            room,
            queues,
            store,
            schedule,
            header_bytes,
            up,
            paused,
            sending,
            cut_through,
        }
    }

    /// Includes the packet in transmission. Valid while ports are processed together.
    pub(crate) fn holds(&self, place: u32) -> u64 {
        let port = &self.ports[place as usize];
        let sending = if port.end == IDLE { 0 } else { port.sending.size };
        u64::from(sending) + port.queues.all_bytes()
    }

    /// The backlog of a port and the end of its transmission. Valid while ports are processed together.
    #[inline(always)]
    pub(crate) fn stands_before(&self, place: u32) -> (u64, u64) {
        let port = &self.ports[place as usize];
        (port.queues.all_bytes(), if port.end == IDLE { 0 } else { port.end })
    }

    #[inline(always)]
    pub(crate) fn waiting_at(&self, place: u32) -> usize {
        self.ports[place as usize].queues.packets()
    }

    /// Assumes that no sender is paused. [`u64::MAX`] if only arrivals are left.
    #[inline(always)]
    pub(crate) fn due_at(&self, place: u32, paused: u8) -> u64 {
        let port = &self.ports[place as usize];
        if port.queues.has_something(paused) { port.end } else { IDLE }
    }

    pub(crate) fn begin_together(&mut self, span: SimSpan) {
        self.calendar.begin(span);
        for (place, port) in self.ports.iter_mut().enumerate() {
            if port.end < span.start {
                port.freed = std::mem::replace(&mut port.end, IDLE);
                port.sending = Room::default();
            } else {
                self.store.take_up(port.sending);
                self.calendar.enter(place, port.end);
            }
        }
    }

    pub(crate) fn end_together(&mut self) {
        for (port, waiting) in self.ports.iter_mut().zip(&mut self.waiting) {
            self.store.give_back(port.sending);
            if port.end == IDLE {
                port.end = port.freed;
            }
            *waiting = !port.queues.is_empty();
        }
    }

    #[inline(always)]
    fn end_transmission(&mut self, place: u32, out: &mut impl Outlet) {
        let port = &mut self.ports[place as usize];
        let now = std::mem::replace(&mut port.end, IDLE);
        port.freed = now;
        let room = std::mem::take(&mut port.sending);
        self.store.give_back(room);
        if self.store.asked[room.ingress as usize] & (1 << room.priority) != 0 {
            self.resume_if_low(room, now, out);
        }
        self.start_next(place, now, out);
    }

    /// The packet must have its ingress port in the time field.
    #[inline(always)]
    pub(crate) fn enqueue<O: Outlet>(&mut self, place: u32, now: u64, packet: Packet, out: &mut O) {
        let header_bytes = out.header_bytes();
        let (port, count, mut queued) = out.watched_port(place);
        if !port.up {
            count.lost += 1;
            return;
        }
        let ingress = packet.ingress();
        let size = port.size(&packet);
        let QueuedPort { queues, end, .. } = &mut self.ports[place as usize];
        if O::SEES_QUEUES {
            let until = if *end == IDLE { 0 } else { *end };
            queued(Bytes(queues.all_bytes()) + port.backlog_until(until, now));
        }
        let Some((packet, size)) =
            self.store.admit(queues, packet, ingress, size, header_bytes, count)
        else {
            return;
        };
        let class = usize::from(packet.priority());
        let marked = queues.marks(class);
        count.marked += u64::from(marked);
        let packet = packet.marked(marked);
        let paused = port.paused;
        drop(queued);
        let room = Room { ingress, size: size as u16, priority: class as u8 };
        self.store.take_up(room);
        if self.store.has_to_ask(room) {
            self.ask_to_pause(room, now, out);
        }
        let begin = now.saturating_sub(out.head_start(place, &packet));
        let QueuedPort { queues, end, freed, .. } = &mut self.ports[place as usize];
        let begin = begin.max(*freed);
        let is_free = *end == IDLE && queues.is_empty() && paused & (1 << class) == 0;
        if is_free && matches!(self.schedule, Schedule::Strict) {
            return self.send(place, begin, packet, room, out);
        }
        queues.push(class, packet, ingress, size);
        self.start_next(place, begin, out);
    }

    #[cold]
    fn ask_to_pause(&mut self, room: Room, now: u64, out: &mut impl Outlet) {
        self.store.asked[room.ingress as usize] |= 1 << room.priority;
        self.asked += 1;
        self.send_frame(room, flag::PAUSE, now, out);
    }

    #[cold]
    fn resume_if_low(&mut self, room: Room, now: u64, out: &mut impl Outlet) {
        if room.size == 0 {
            return;
        }
        let left = self.store.came(room.ingress, room.priority);
        let asked = &mut self.store.asked[room.ingress as usize];
        let bit = 1 << room.priority;
        if *asked & bit != 0 && left <= self.store.lossless.resume_at {
            *asked &= !bit;
            self.asked -= 1;
            self.send_frame(room, flag::RESUME, now, out);
        }
    }

    fn send_frame(&mut self, room: Room, kind: u16, now: u64, out: &mut impl Outlet) {
        let Room { ingress: place, priority, .. } = room;
        out.frame_made();
        let (port, count) = out.port(place);
        if !port.up {
            count.lost += 1;
            return;
        }
        count.pauses += u64::from(kind == flag::PAUSE);
        let frame = Packet::new(Contents {
            cursor: port.back,
            sequence: u32::from(priority),
            extra: PAUSE_FRAME.0 as u16,
            flags: kind,
        });
        self.ports[place as usize].queues.push(FRAMES, frame, 0, 0);
        self.send_next(place, now, out);
    }

    pub(crate) fn send_next(&mut self, place: u32, now: u64, out: &mut impl Outlet) {
        self.start_next(place, now, out);
    }

    #[inline(always)]
    fn start_next(&mut self, place: u32, now: u64, out: &mut impl Outlet) {
        let port: &Port = out.port(place).0;
        let QueuedPort { queues, end, .. } = &mut self.ports[place as usize];
        if *end != IDLE || !port.up {
            return;
        }
        let next = queues.pop(&self.schedule, port.paused, |packet| port.size(packet));
        let Some((class, packet)) = next else { return };
        let room = Room::of(class, &packet, port);
        self.send(place, now, packet, room, out);
    }

    #[inline(always)]
    fn send<O: Outlet>(&mut self, place: u32, now: u64, packet: Packet, room: Room, out: &mut O) {
        let (port, count) = out.port(place);
        let at = &mut self.ports[place as usize];
        let (mut sending, _) = port.open_queued(&mut at.end, count);
        let sent = sending.begin(now, packet, room.size > 0);
        sending.close();
        let until = at.end;
        at.sending = room;
        self.calendar.enter(place as usize, until);
        if let Some(packet) = sent {
            let (to, arrival) = (port.far, port.arrival(until));
            if O::REPORTS {
                out.report(place, &packet, until, self.ports[place as usize].queues.all_bytes());
            }
            out.launch(to, packet, arrival);
        }
    }

    /// Drops a port's packets and cancels the pauses that it requested. Returns the number of dropped packets.
    pub(crate) fn cut(&mut self, place: u32, now: u64, out: &mut impl Outlet) -> u64 {
        let asked = std::mem::take(&mut self.store.asked[place as usize]);
        self.asked -= asked.count_ones();
        let at = &mut self.ports[place as usize];
        (at.end, at.freed) = (IDLE, now);
        let mut rooms = vec![std::mem::take(&mut at.sending)];
        let port = out.port(place).0.clone();
        let mut lost = 0;
        at.queues.cut(|class, ingress, packet| {
            lost += 1;
            if class != FRAMES {
                let size = port.size(&packet) as u16;
                rooms.push(Room { ingress, size, priority: class as u8 });
            }
        });
        rooms.iter().for_each(|room| self.store.give_back(*room));
        let held = rooms.into_iter().filter(|room| room.size > 0);
        held.for_each(|room| self.resume_if_low(room, now, out));
        lost
    }

    pub(crate) fn held(&self, place: u32, priority: u8, ingress: u32, port: &Port) -> u64 {
        let waiting = self.ports[place as usize].queues.waiting(usize::from(priority));
        waiting.filter(|(by, _)| *by == ingress).map(|(_, packet)| port.size(packet)).sum()
    }

    pub(crate) fn has_asked(&self, ingress: u32, priority: u8) -> bool {
        self.store.asked[ingress as usize] & (1 << priority) != 0
    }

    pub(crate) fn has_waiting(&self, place: u32, priority: u8) -> bool {
        self.ports[place as usize].queues.waiting(usize::from(priority)).next().is_some()
    }
}
