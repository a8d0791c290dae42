//! A switch with real queues: what it holds, what it lets in and what it sends next.
//!
//! ```text
//!   ingress k ──▶ room? ──▶ queue (port, priority) ──▶ schedule ──▶ wire
//!      ▲            │ no: trim or drop                                │ sent: room is given back
//!      └── pause ◀──┴── counted by ingress and priority ◀─────────────┘
//! ```
//! At one instant: ends of transmissions by port, then arrivals by link. A transmission is never
//! broken off, so a packet is on its wire from the moment it begins.

use std::collections::VecDeque;

use super::network::LinkSpec;
use super::packet::{Contents, Packet, flag};
use super::port::{Port, PortCount};
use super::queueing::{CONTROL_PRIORITY, PAUSE_FRAME, PRIORITIES, Pause, Queueing, Schedule};

/// A packet in a queue.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    packet: Packet,
    /// The place of the link it came by.
    ingress: u32,
}

/// What a packet takes of the buffer until it is out.
#[derive(Clone, Copy, Debug)]
struct Room {
    ingress: u32,
    priority: u8,
    size: u64,
}

/// What a port is sending.
#[derive(Clone, Copy, Debug)]
struct Sending {
    /// The room it gives back when it is out; nothing for a pause frame.
    from: Option<Room>,
}

/// The queues of one port.
#[derive(Clone, Debug, Default)]
struct Queues {
    /// By priority, one bit: something waits.
    occupied: u8,
    frames: VecDeque<Packet>,
    queues: [VecDeque<Waiting>; PRIORITIES],
    bytes: [u64; PRIORITIES],
    sending: Option<Sending>,
    /// Weighted schedule: whose turn it is, whether it has got its share for this turn, what is left.
    turn: u8,
    granted: bool,
    deficit: [u64; PRIORITIES],
    /// Bounds of each queue.
    capacity: u64,
    mark_from: u64,
}

/// What has come in by one link and not left.
#[derive(Clone, Copy, Debug, Default)]
struct Ingress {
    bytes: [u64; PRIORITIES],
    /// By priority, whether its sender has been asked to pause.
    asked: u8,
}

/// Queues of a switch. Place `k` is its `k`th port, and the link that comes in by the same cable.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    queueing: Queueing,
    ports: Vec<Queues>,
    ingress: Vec<Ingress>,
    /// In the buffer, what is being sent included.
    used: u64,
    /// By place: when its transmission ends; `u64::MAX`: nothing is being sent.
    ends: Vec<u64>,
    next_end: u64,
}

/// What the queues work on: the ports of the switch and where their packets go.
pub(crate) trait Outlet {
    /// The port at `place` and what it has done.
    fn port(&mut self, place: u32) -> (&mut Port, &mut PortCount);
    /// Puts a packet on the wire behind the port at `place`.
    fn launch(&mut self, place: u32, packet: Packet);
    /// A pause frame has been made.
    fn frame_made(&mut self);
    /// Size of a trimmed packet.
    fn header_bytes(&self) -> u16;
}

impl Switch {
    pub(crate) fn new<'l>(queueing: Queueing, links: impl Iterator<Item = &'l LinkSpec>) -> Self {
        let bytes = |size: Option<lightloom_fabric::units::Bytes>| size.map_or(u64::MAX, |b| b.0);
        let ports: Vec<Queues> = links
            .map(|link| Queues {
                capacity: bytes(link.queue),
                mark_from: bytes(link.mark_from),
                ..Queues::default()
            })
            .collect();
        let ingress = vec![Ingress::default(); ports.len()];
        let ends = vec![u64::MAX; ports.len()];
        Self { queueing, ports, ingress, used: 0, ends, next_end: u64::MAX }
    }

    /// When the next transmission ends; `u64::MAX`: none is under way.
    pub(crate) fn next_end(&self) -> u64 {
        self.next_end
    }

    /// Packets that wait in queues, pause frames included.
    pub(crate) fn waiting(&self) -> u64 {
        let waiting = |port: &Queues| {
            port.frames.len() + port.queues.iter().map(VecDeque::len).sum::<usize>()
        };
        self.ports.iter().map(waiting).sum::<usize>() as u64
    }

    /// Ends the transmission that is due and begins the next one there.
    pub(crate) fn end_transmission(&mut self, out: &mut impl Outlet) {
        let now = self.next_end;
        let Some(place) = self.ends.iter().position(|end| *end == now) else { return };
        self.ends[place] = u64::MAX;
        let place = place as u32;
        if let Some(Sending { from: Some(room) }) = self.ports[place as usize].sending.take() {
            self.give_back(room);
            self.resume_if_low(room, now, out);
        }
        self.send_next(place, now, out);
        self.find_next_end();
    }

    fn find_next_end(&mut self) {
        self.next_end = self.ends.iter().copied().min().unwrap_or(u64::MAX);
    }

    /// Takes a packet that came in at place `ingress` and leaves at place `place`.
    pub(crate) fn enqueue(
        &mut self,
        (ingress, place): (u32, u32),
        packet: Packet,
        out: &mut impl Outlet,
    ) {
        let now = packet.time;
        let (port, count) = out.port(place);
        if !port.up {
            count.lost += 1;
            return;
        }
        let size = port.size(&packet);
        let (mut packet, mut size, mut priority) = (packet, size, packet.priority());
        if !self.has_room(place, ingress, priority, size) {
            let header = out.header_bytes();
            let can_trim = self.queueing.trim && priority != CONTROL_PRIORITY;
            let trimmed = packet.trimmed(header);
            let fits = self.has_room(place, ingress, CONTROL_PRIORITY, u64::from(header));
            if !can_trim || !fits {
                out.port(place).1.dropped += 1;
                return;
            }
            out.port(place).1.trimmed += 1;
            (packet, size, priority) = (trimmed, u64::from(header), CONTROL_PRIORITY);
        }
        let queues = &mut self.ports[place as usize];
        let class = usize::from(priority);
        if priority != CONTROL_PRIORITY && queues.bytes[class] >= queues.mark_from {
            packet = packet.sent(packet.time, true);
            out.port(place).1.marked += 1;
        }
        self.used += size;
        self.ingress[ingress as usize].bytes[class] += size;
        if self.goes_at_once(place, priority, out) {
            self.ask_to_pause(ingress, priority, now, out);
            return self.send((place, now), packet, Some(Room { ingress, priority, size }), out);
        }
        let queues = &mut self.ports[place as usize];
        queues.queues[class].push_back(Waiting { packet, ingress });
        queues.occupied |= 1 << class;
        queues.bytes[class] += size;
        self.ask_to_pause(ingress, priority, now, out);
        self.send_next(place, now, out);
    }

    /// Whether a packet of `priority` need not wait. Turns by weight are counted in the queues.
    fn goes_at_once(&self, place: u32, priority: u8, out: &mut impl Outlet) -> bool {
        let queues = &self.ports[place as usize];
        let idle = queues.sending.is_none() && queues.frames.is_empty() && queues.occupied == 0;
        idle && self.queueing.schedule == Schedule::Strict
            && out.port(place).0.paused & (1 << priority) == 0
    }

    fn lossless(&self, priority: u8) -> Option<&Pause> {
        self.queueing.pause.as_ref().filter(|pause| pause.covers(priority))
    }

    fn has_room(&self, place: u32, ingress: u32, priority: u8, size: u64) -> bool {
        let class = usize::from(priority);
        let queue = self.ports[place as usize].bytes[class] + size;
        let free = self.queueing.buffer.map(|buffer| buffer.size.0.saturating_sub(self.used));
        if let Some(pause) = self.lossless(priority) {
            let bound = pause.pause_above.0.saturating_add(pause.headroom.0);
            let came = self.ingress[ingress as usize].bytes[class] + size;
            return came <= bound && free.is_none_or(|free| size <= free);
        }
        let share = self.queueing.buffer.zip(free).is_none_or(|(buffer, free)| {
            let share = u128::from(free) * u128::from(buffer.alpha_percent) / 100;
            size <= free && u128::from(queue) <= share
        });
        share && queue <= self.ports[place as usize].capacity
    }

    fn ask_to_pause(&mut self, ingress: u32, priority: u8, now: u64, out: &mut impl Outlet) {
        let Some(above) = self.lossless(priority).map(|pause| pause.pause_above.0) else { return };
        let came = &mut self.ingress[ingress as usize];
        let bit = 1 << priority;
        if came.bytes[usize::from(priority)] > above && came.asked & bit == 0 {
            came.asked |= bit;
            self.send_frame(ingress, priority, flag::PAUSE, now, out);
        }
    }

    fn give_back(&mut self, Room { ingress, priority, size }: Room) {
        self.used -= size;
        self.ingress[ingress as usize].bytes[usize::from(priority)] -= size;
    }

    fn resume_if_low(&mut self, room: Room, now: u64, out: &mut impl Outlet) {
        let Room { ingress, priority, .. } = room;
        let resume_at = self.lossless(priority).map(|pause| pause.resume_at.0);
        let came = &mut self.ingress[ingress as usize];
        let left = came.bytes[usize::from(priority)];
        let bit = 1 << priority;
        if came.asked & bit != 0 && resume_at.is_some_and(|resume_at| left <= resume_at) {
            came.asked &= !bit;
            self.send_frame(ingress, priority, flag::RESUME, now, out);
        }
    }

    fn send_frame(&mut self, place: u32, priority: u8, kind: u16, now: u64, out: &mut impl Outlet) {
        out.frame_made();
        let (port, count) = out.port(place);
        if !port.up {
            count.lost += 1;
            return;
        }
        count.pauses += u64::from(kind == flag::PAUSE);
        let frame = Packet::new(Contents {
            endpoint: port.back,
            cursor: 0,
            sequence: u32::from(priority),
            extra: PAUSE_FRAME.0 as u16,
            flags: kind,
        });
        self.ports[place as usize].frames.push_back(frame);
        self.send_next(place, now, out);
    }

    /// Begins to send what is next at `place`, if the port is free and something may go.
    pub(crate) fn send_next(&mut self, place: u32, now: u64, out: &mut impl Outlet) {
        let queues = &mut self.ports[place as usize];
        let port: &Port = out.port(place).0;
        if queues.sending.is_some() || !port.up {
            return;
        }
        if let Some(frame) = queues.frames.pop_front() {
            return self.send((place, now), frame, None, out);
        }
        let size = |waiting: &Waiting| port.size(&waiting.packet);
        let Some(class) = queues.choose(self.queueing.schedule, port.paused, size) else { return };
        let Some(Waiting { packet, ingress }) = queues.queues[class].pop_front() else { return };
        if queues.queues[class].is_empty() {
            queues.occupied &= !(1 << class);
        }
        let size = port.size(&packet);
        queues.bytes[class] -= size;
        let room = Room { ingress, priority: class as u8, size };
        self.send((place, now), packet, Some(room), out);
    }

    /// Begins to send `packet`, which gives back `from` when it is out.
    #[inline]
    fn send(
        &mut self,
        (place, now): (u32, u64),
        packet: Packet,
        from: Option<Room>,
        out: &mut impl Outlet,
    ) {
        let (port, count) = out.port(place);
        self.ports[place as usize].sending = Some(Sending { from });
        let until = now + port.occupies(&packet);
        count.packets += 1;
        count.bytes += port.size(&packet);
        let arrival = until + port.delay();
        self.ends[place as usize] = until;
        self.next_end = self.next_end.min(until);
        out.launch(place, packet.sent(arrival, false));
    }

    /// Loses what waits at `place`, whose link has gone down, and forgets what was asked by it.
    /// Returns how many packets that were.
    pub(crate) fn cut(&mut self, place: u32, now: u64, out: &mut impl Outlet) -> u64 {
        self.ends[place as usize] = u64::MAX;
        self.find_next_end();
        self.ingress[place as usize].asked = 0;
        let queues = &mut self.ports[place as usize];
        let mut lost = queues.frames.len() as u64;
        queues.frames.clear();
        let mut rooms: Vec<Room> =
            queues.sending.take().and_then(|sending| sending.from).into_iter().collect();
        let port = out.port(place).0.clone();
        for (class, queue) in queues.queues.iter_mut().enumerate() {
            lost += queue.len() as u64;
            rooms.extend(queue.drain(..).map(|waiting| Room {
                ingress: waiting.ingress,
                priority: class as u8,
                size: port.size(&waiting.packet),
            }));
        }
        queues.occupied = 0;
        queues.bytes = [0; PRIORITIES];
        queues.deficit = [0; PRIORITIES];
        (queues.turn, queues.granted) = (0, false);
        rooms.iter().for_each(|room| self.give_back(*room));
        rooms.into_iter().for_each(|room| self.resume_if_low(room, now, out));
        lost
    }

    /// Bytes at `place` of `priority` that came in by `ingress`.
    pub(crate) fn held(&self, place: u32, priority: u8, ingress: u32, port: &Port) -> u64 {
        let queue = &self.ports[place as usize].queues[usize::from(priority)];
        let from = queue.iter().filter(|waiting| waiting.ingress == ingress);
        from.map(|waiting| port.size(&waiting.packet)).sum()
    }

    /// Whether the sender behind `ingress` has been asked to pause `priority`.
    pub(crate) fn has_asked(&self, ingress: u32, priority: u8) -> bool {
        self.ingress[ingress as usize].asked & (1 << priority) != 0
    }

    /// Whether something waits at `place` with `priority`.
    pub(crate) fn has_waiting(&self, place: u32, priority: u8) -> bool {
        !self.ports[place as usize].queues[usize::from(priority)].is_empty()
    }
}

impl Queues {
    /// The priority whose turn it is among those that have something and are not paused.
    fn choose(
        &mut self,
        schedule: Schedule,
        paused: u8,
        size: impl Fn(&Waiting) -> u64,
    ) -> Option<usize> {
        let control = usize::from(CONTROL_PRIORITY);
        if self.occupied & (1 << control) != 0 {
            return Some(control);
        }
        let may = self.occupied & !paused;
        if may == 0 {
            return None;
        }
        match schedule {
            Schedule::Strict => Some(may.ilog2() as usize),
            Schedule::Weighted(weights) => loop {
                let class = usize::from(self.turn);
                if may & (1 << class) != 0 {
                    if !self.granted {
                        self.deficit[class] += u64::from(weights[class].max(1));
                        self.granted = true;
                    }
                    let next = self.queues[class].front().map_or(0, &size);
                    if next <= self.deficit[class] {
                        self.deficit[class] -= next;
                        return Some(class);
                    }
                } else if self.occupied & (1 << class) == 0 {
                    self.deficit[class] = 0;
                }
                self.turn = (self.turn + 1) % CONTROL_PRIORITY;
                self.granted = false;
            },
        }
    }
}
