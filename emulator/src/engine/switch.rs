//! A switch with real queues: what it holds, what it lets in and what it sends next.
//!
//! ```text
//!   ingress k ──▶ room? ──▶ queue (port, priority) ──▶ schedule ──▶ wire
//!      ▲            │ no: trim or drop                                │ sent: room is given back
//!      └── pause ◀──┴── counted by ingress and priority ◀─────────────┘
//! ```
//! At one instant: ends of transmissions by port, then arrivals by link. A transmission is never
//! broken off, so a packet is on its wire from the moment it begins.
//!
//! Ports meet only in what they share: the buffer, and the counts that pauses are asked by. As long as
//! no bound of these can be met ([`Switch::ports_are_apart`]), each port is worked off on its own
//! ([`Switch::advance_port`]). What a port is sending is then not counted as held, so that a packet
//! that need not wait touches no count; it is while ports are worked off together
//! ([`Switch::begin_together`]).

use super::network::LinkSpec;
use super::packet::{Contents, Packet, flag};
use super::port::{Port, PortCount};
use super::queueing::{Buffer, CONTROL_PRIORITY, PAUSE_FRAME, PRIORITIES, Queueing, Schedule};
use super::queues::{FRAMES, Queues};
use super::shard::Exit;

/// Nothing is being sent, while ports are worked off together.
const IDLE: u64 = u64::MAX;

/// What a packet takes of the buffer until it is out; nothing for a pause frame.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    ingress: u32,
    size: u16,
    priority: u8,
}

impl Room {
    /// Of a packet that has waited in `class`.
    #[inline(always)]
    fn of(class: usize, packet: &Packet, port: &Port) -> Self {
        let size = if class == FRAMES { 0 } else { port.size(packet) as u16 };
        let ingress = if class == FRAMES { 0 } else { packet.time as u32 };
        Self { ingress, size, priority: class as u8 & CONTROL_PRIORITY }
    }
}

/// What has come in by one link and not left; what is being sent counts while ports are worked off
/// together.
#[derive(Clone, Copy, Debug, Default)]
struct Ingress {
    bytes: [u64; PRIORITIES],
    /// By priority, whether its sender has been asked to pause.
    asked: u8,
}

/// Priority flow control in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Lossless {
    /// By priority, one bit.
    priorities: u8,
    pause_above: u64,
    resume_at: u64,
    /// With the headroom.
    most: u64,
}

/// Queues of a switch. Place `k` is its `k`th port, and the link that comes in by the same cable.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    schedule: Schedule,
    buffer: Option<Buffer>,
    trim: bool,
    lossless: Lossless,
    ports: Vec<Queues>,
    ingress: Vec<Ingress>,
    /// In the buffer.
    used: u64,
    /// How many pauses it has asked for that have not ended.
    asked: u32,
    /// By place: when its transmission ends or has ended, and the room that it then gives back.
    ends: Vec<u64>,
    sending: Vec<Room>,
    /// The earliest of `ends`, while ports are worked off together.
    next_end: u64,
    /// Packets that found no room, by priority.
    pub(crate) dropped: [u64; PRIORITIES],
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
        let ports: Vec<Queues> =
            links.map(|link| Queues::new(bytes(link.queue), bytes(link.mark_from))).collect();
        let lossless = queueing.pause.map_or_else(Lossless::default, |pause| Lossless {
            priorities: pause.priorities & !(1 << CONTROL_PRIORITY),
            pause_above: pause.pause_above.0,
            resume_at: pause.resume_at.0,
            most: pause.pause_above.0.saturating_add(pause.headroom.0),
        });
        Self {
            schedule: queueing.schedule,
            buffer: queueing.buffer,
            trim: queueing.trim,
            lossless,
            ingress: vec![Ingress::default(); ports.len()],
            used: 0,
            asked: 0,
            ends: vec![0; ports.len()],
            sending: vec![Room::default(); ports.len()],
            next_end: IDLE,
            dropped: [0; PRIORITIES],
            ports,
        }
    }

    /// When the next transmission ends, while ports are worked off together; [`u64::MAX`]: none is
    /// under way.
    pub(crate) fn next_end(&self) -> u64 {
        self.next_end
    }

    fn first_end(&self) -> u64 {
        self.ends.iter().copied().min().unwrap_or(IDLE)
    }

    /// Ends the transmission that is due and begins the next one there.
    pub(crate) fn end_next(&mut self, out: &mut impl Outlet) {
        let now = self.next_end;
        if let Some(place) = self.ends.iter().position(|end| *end == now) {
            self.end_transmission(place as u32, out);
        }
        self.next_end = self.first_end();
    }

    /// When it next does something of its own, once everything before `now` is done; [`u64::MAX`]: not
    /// before something arrives.
    pub(crate) fn next_due(&self, ports: &[Port], now: u64) -> u64 {
        let ends = self.ends.iter().zip(&self.ports).zip(ports);
        let matters = ends.filter(|((end, queues), port)| {
            self.asked > 0 && **end >= now || queues.has_something(port.paused)
        });
        matters.map(|((end, _), _)| *end).min().unwrap_or(IDLE)
    }

    /// Packets that wait in queues, pause frames included.
    pub(crate) fn waiting(&self) -> u64 {
        self.ports.iter().map(Queues::packets).sum::<usize>() as u64
    }

    /// Whether something waits at `place` that may begin before `end`.
    #[inline]
    pub(crate) fn has_work(&self, place: u32, end: u64) -> bool {
        self.ends[place as usize] < end && !self.ports[place as usize].is_empty()
    }

    /// Whether what one port does in a window that begins at `start`, and in which no more than
    /// `came` bytes arrive by each place, cannot matter to another one: whatever the order, nobody is asked to pause or to go on, and
    /// nothing is dropped for lack of shared room.
    pub(crate) fn ports_are_apart(&self, start: u64, came: &mut [u64]) -> bool {
        if self.asked > 0 {
            return false;
        }
        if self.lossless.priorities == 0 && self.buffer.is_none() {
            return true;
        }
        for (room, _) in self.sending.iter().zip(&self.ends).filter(|(_, end)| **end >= start) {
            came[room.ingress as usize] += u64::from(room.size);
        }
        self.no_pause_is_near(came)
            && self.buffer.is_none_or(|buffer| {
                let total = self.used.saturating_add(came.iter().sum());
                let free = buffer.size.0.saturating_sub(total);
                free > 0 && total <= share(&buffer, free)
            })
    }

    fn no_pause_is_near(&self, came: &[u64]) -> bool {
        let mut near = false;
        let mut priorities = self.lossless.priorities;
        while priorities != 0 {
            let class = priorities.trailing_zeros() as usize;
            priorities &= priorities - 1;
            for (ingress, came) in self.ingress.iter().zip(came) {
                near |= ingress.bytes[class] + came > self.lossless.pause_above;
            }
        }
        !near
    }

    /// Works off the port at `place` up to `end`, whatever the others do. `arrivals` are for this port
    /// and in order: when, and the packet with the place it came in by where its time stood. What is
    /// sent goes to `exit`.
    #[inline]
    pub(crate) fn advance_port(
        &mut self,
        place: u32,
        arrivals: impl Iterator<Item = (u64, Packet)>,
        end: u64,
        header_bytes: u16,
        (port, count, exit): (&mut Port, &mut PortCount, &mut Exit),
    ) {
        let strict = matches!(self.schedule, Schedule::Strict);
        for (now, packet) in arrivals {
            self.serve_before(place, now + 1, (port, count, exit));
            let until = self.ends[place as usize];
            if packet.is_pause_frame() {
                if port.obey(&packet) && until <= now {
                    self.serve_one(place, now, (port, count, exit));
                }
                continue;
            }
            if !port.up {
                count.lost += 1;
                continue;
            }
            let ingress = packet.time as u32;
            let size = port.size(&packet);
            let Some((mut packet, size)) =
                self.admit((ingress, place), packet, size, header_bytes, count)
            else {
                continue;
            };
            let class = usize::from(packet.priority());
            let queues = &mut self.ports[place as usize];
            let marked = queues.marks(class);
            count.marked += u64::from(marked);
            packet = packet.sent(packet.time, marked);
            let free = until <= now;
            if free & strict & (port.paused & (1 << class) == 0) {
                // Whatever waits is paused, or the port would be busy.
                let room = Room { ingress, size: size as u16, priority: class as u8 };
                self.put_out((place, now), packet, room, (port, count, exit));
                continue;
            }
            queues.push(class, packet, ingress, size);
            self.used += size;
            self.ingress[ingress as usize].bytes[class] += size;
            if free {
                self.serve_one(place, now, (port, count, exit));
            }
        }
        self.serve_before(place, end, (port, count, exit));
    }

    /// Sends at `place` what can begin before `end`.
    #[inline(always)]
    fn serve_before(
        &mut self,
        place: u32,
        end: u64,
        (port, count, exit): (&mut Port, &mut PortCount, &mut Exit),
    ) {
        let at = place as usize;
        while self.ends[at] < end && self.ports[at].has_something(port.paused) {
            self.serve_one(place, self.ends[at], (port, count, exit));
        }
    }

    /// Begins to send at `now` what is next at `place`, if something may go.
    #[inline(always)]
    fn serve_one(&mut self, place: u32, now: u64, to: (&mut Port, &mut PortCount, &mut Exit)) {
        let port = &*to.0;
        let queues = &mut self.ports[place as usize];
        let next = queues.pop(&self.schedule, port.paused, |packet| port.size(packet));
        let Some((class, packet)) = next else { return };
        let room = Room::of(class, &packet, port);
        self.give_back(room);
        self.put_out((place, now), packet, room, to);
    }

    #[inline(always)]
    fn put_out(
        &mut self,
        (place, now): (u32, u64),
        packet: Packet,
        room: Room,
        (port, count, exit): (&mut Port, &mut PortCount, &mut Exit),
    ) {
        let until = now + port.occupies(&packet);
        count.packets += 1;
        count.bytes += port.size(&packet);
        self.ends[place as usize] = until;
        self.sending[place as usize] = room;
        exit.send(packet.sent(until + port.delay(), false));
    }

    /// From here on, and from `now` on, ports are worked off together.
    pub(crate) fn begin_together(&mut self, now: u64) {
        for place in 0..self.ends.len() {
            let room = self.sending[place];
            if self.ends[place] < now {
                self.ends[place] = IDLE;
                self.sending[place] = Room::default();
            } else {
                self.take_up(room);
            }
        }
        self.next_end = self.first_end();
    }

    /// Ports are worked off one by one again.
    pub(crate) fn end_together(&mut self) {
        for place in 0..self.sending.len() {
            self.give_back(self.sending[place]);
            if self.ends[place] == IDLE {
                self.ends[place] = 0;
            }
        }
    }

    /// Ends the transmission at `place` and begins the next one there.
    #[inline]
    fn end_transmission(&mut self, place: u32, out: &mut impl Outlet) {
        let now = std::mem::replace(&mut self.ends[place as usize], IDLE);
        let room = std::mem::take(&mut self.sending[place as usize]);
        self.give_back(room);
        if self.asked > 0 && room.size > 0 {
            self.resume_if_low(room, now, out);
        }
        self.send_next(place, now, out);
    }

    /// Takes a packet that leaves at place `place` at `now`. The place it came in by stands where its time
    /// stood.
    pub(crate) fn enqueue(&mut self, place: u32, now: u64, packet: Packet, out: &mut impl Outlet) {
        let header_bytes = out.header_bytes();
        let (port, count) = out.port(place);
        if !port.up {
            count.lost += 1;
            return;
        }
        let ingress = packet.time as u32;
        let size = port.size(&packet);
        let Some((mut packet, size)) =
            self.admit((ingress, place), packet, size, header_bytes, count)
        else {
            return;
        };
        let class = usize::from(packet.priority());
        let queues = &mut self.ports[place as usize];
        let marked = queues.marks(class);
        count.marked += u64::from(marked);
        packet = packet.sent(packet.time, marked);
        queues.push(class, packet, ingress, size);
        let room = Room { ingress, size: size as u16, priority: class as u8 };
        self.take_up(room);
        if self.has_to_ask(room) {
            self.ask_to_pause(room, now, out);
        }
        self.send_next(place, now, out);
    }

    /// The packet that goes into the queue and its size: `packet`, or its header when there is no
    /// room for more. Nothing: it is dropped.
    #[inline]
    fn admit(
        &mut self,
        (ingress, place): (u32, u32),
        packet: Packet,
        size: u64,
        header: u16,
        count: &mut PortCount,
    ) -> Option<(Packet, u64)> {
        if self.has_room(place, ingress, packet.priority(), size) {
            return Some((packet, size));
        }
        let can_trim = self.trim && packet.priority() != CONTROL_PRIORITY;
        if !can_trim || !self.has_room(place, ingress, CONTROL_PRIORITY, u64::from(header)) {
            count.dropped += 1;
            self.dropped[usize::from(packet.priority())] += 1;
            return None;
        }
        count.trimmed += 1;
        Some((packet.trimmed(header), u64::from(header)))
    }

    #[inline]
    fn is_lossless(&self, priority: u8) -> bool {
        self.lossless.priorities & (1 << priority) != 0
    }

    #[inline]
    fn has_room(&self, place: u32, ingress: u32, priority: u8, size: u64) -> bool {
        let class = usize::from(priority);
        let free = self.buffer.map(|buffer| buffer.size.0.saturating_sub(self.used));
        if self.is_lossless(priority) {
            let came = self.ingress[ingress as usize].bytes[class] + size;
            return came <= self.lossless.most && free.is_none_or(|free| size <= free);
        }
        let queues = &self.ports[place as usize];
        let queue = queues.bytes(class) + size;
        let fits = self
            .buffer
            .zip(free)
            .is_none_or(|(buffer, free)| size <= free && queue <= share(&buffer, free));
        fits && queue <= queues.capacity
    }

    /// Whether more has come in by the ingress of `room` than may without a pause.
    #[inline]
    fn has_to_ask(&self, Room { ingress, priority, .. }: Room) -> bool {
        let came = &self.ingress[ingress as usize];
        self.is_lossless(priority)
            && came.bytes[usize::from(priority)] > self.lossless.pause_above
            && came.asked & (1 << priority) == 0
    }

    fn ask_to_pause(&mut self, room: Room, now: u64, out: &mut impl Outlet) {
        self.ingress[room.ingress as usize].asked |= 1 << room.priority;
        self.asked += 1;
        self.send_frame(room, flag::PAUSE, now, out);
    }

    #[inline]
    fn take_up(&mut self, room: Room) {
        self.used += u64::from(room.size);
        self.ingress[room.ingress as usize].bytes[usize::from(room.priority)] +=
            u64::from(room.size);
    }

    #[inline]
    fn give_back(&mut self, room: Room) {
        self.used -= u64::from(room.size);
        self.ingress[room.ingress as usize].bytes[usize::from(room.priority)] -=
            u64::from(room.size);
    }

    fn resume_if_low(&mut self, room: Room, now: u64, out: &mut impl Outlet) {
        let came = &mut self.ingress[room.ingress as usize];
        let left = came.bytes[usize::from(room.priority)];
        let bit = 1 << room.priority;
        if came.asked & bit != 0 && left <= self.lossless.resume_at {
            came.asked &= !bit;
            self.asked -= 1;
            self.send_frame(room, flag::RESUME, now, out);
        }
    }

    /// Sends a frame about the priority of `room` back to where it came from.
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
            endpoint: port.back,
            cursor: 0,
            sequence: u32::from(priority),
            extra: PAUSE_FRAME.0 as u16,
            flags: kind,
        });
        self.ports[place as usize].push(FRAMES, frame, 0, 0);
        self.send_next(place, now, out);
    }

    /// Begins to send what is next at `place`, if the port is free and something may go.
    #[inline]
    pub(crate) fn send_next(&mut self, place: u32, now: u64, out: &mut impl Outlet) {
        let port: &Port = out.port(place).0;
        if self.ends[place as usize] != IDLE || !port.up {
            return;
        }
        let queues = &mut self.ports[place as usize];
        let next = queues.pop(&self.schedule, port.paused, |packet| port.size(packet));
        let Some((class, packet)) = next else { return };
        let room = Room::of(class, &packet, port);
        self.send((place, now), packet, room, out);
    }

    /// Begins to send `packet`, which gives back `room` when it is out.
    #[inline]
    fn send(
        &mut self,
        (place, now): (u32, u64),
        packet: Packet,
        room: Room,
        out: &mut impl Outlet,
    ) {
        let (port, count) = out.port(place);
        let until = now + port.occupies(&packet);
        count.packets += 1;
        count.bytes += port.size(&packet);
        let arrival = until + port.delay();
        self.ends[place as usize] = until;
        self.sending[place as usize] = room;
        self.next_end = self.next_end.min(until);
        out.launch(place, packet.sent(arrival, false));
    }

    /// Loses what waits at `place`, whose link has gone down, and forgets what was asked by it.
    /// Returns how many packets that were.
    pub(crate) fn cut(&mut self, place: u32, now: u64, out: &mut impl Outlet) -> u64 {
        let asked = std::mem::take(&mut self.ingress[place as usize].asked);
        self.asked -= asked.count_ones();
        self.ends[place as usize] = IDLE;
        let mut rooms = vec![std::mem::take(&mut self.sending[place as usize])];
        let port = out.port(place).0.clone();
        let mut lost = 0;
        self.ports[place as usize].cut(|class, ingress, packet| {
            lost += 1;
            if class != FRAMES {
                let size = port.size(&packet) as u16;
                rooms.push(Room { ingress, size, priority: class as u8 });
            }
        });
        rooms.iter().for_each(|room| self.give_back(*room));
        let held = rooms.into_iter().filter(|room| room.size > 0);
        held.for_each(|room| self.resume_if_low(room, now, out));
        lost
    }

    /// Bytes at `place` of `priority` that came in by `ingress`.
    pub(crate) fn held(&self, place: u32, priority: u8, ingress: u32, port: &Port) -> u64 {
        let waiting = self.ports[place as usize].waiting(usize::from(priority));
        waiting.filter(|(by, _)| *by == ingress).map(|(_, packet)| port.size(packet)).sum()
    }

    /// Whether the sender behind `ingress` has been asked to pause `priority`.
    pub(crate) fn has_asked(&self, ingress: u32, priority: u8) -> bool {
        self.ingress[ingress as usize].asked & (1 << priority) != 0
    }

    /// Whether something waits at `place` with `priority`.
    pub(crate) fn has_waiting(&self, place: u32, priority: u8) -> bool {
        self.ports[place as usize].waiting(usize::from(priority)).next().is_some()
    }
}

/// What a queue may grow to when so much of the buffer is free.
fn share(buffer: &Buffer, free: u64) -> u64 {
    let share = u128::from(free) * u128::from(buffer.alpha_percent) / 100;
    u64::try_from(share).unwrap_or(u64::MAX)
}
