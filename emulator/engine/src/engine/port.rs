// SPDX-License-Identifier: Apache-2.0
//! An output port: a first-in first-out queue whose departures are known on arrival.
//!
//! ```text
//!   backlog   = max(0, free − arrival)          what stands before the packet, as time
//!   departure = max(arrival, free) + size/rate  last bit on the wire
//!   dropped when backlog + size/rate > capacity; marked when backlog ≥ threshold
//! ```
//! A switch that cuts through may begin before the arrival of the last bit ([`Switching`]).
//! So a packet costs one event per hop: no dequeue event, no queue to walk.

mod quirks;
mod rate_change;

use std::hint::select_unpredictable;
use std::sync::Arc;

use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};

use super::marking::{Ramp, mix};
use super::network::{Link, LinkId, LinkSpec, VertexRole};
use super::packet::{HORIZON_BITS, Packet};
use super::settings::EngineSettings;
use super::switching::Switching;
use quirks::{Jitter, Quirks};
pub(crate) use rate_change::RateChange;

/// The longest that packets may stand before a port: what comes to a longer queue is dropped. With the longest
/// delay of a link that is still less than the times of packets can tell.
const LONGEST_WAIT_PS: u64 = 1 << (HORIZON_BITS - 1);

/// An output port.
///
/// Large networks do not fit the caches: here stands what every packet needs and nothing else.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    /// When the last bit of everything accepted so far has left, in picoseconds.
    pub(crate) free: u64,
    line: Arc<Line>,
    quirks: Option<Box<Quirks>>,
    /// The wire behind the port, in the shard of its far end.
    pub(crate) wire: u32,
    /// The far end, in its shard.
    pub(crate) vertex: u32,
    /// The port of the other direction, in the shard of the far end.
    pub(crate) back: u32,
    pub(crate) shard: u16,
    pub(crate) up: bool,
    /// By priority, one bit: the far end has asked to pause.
    pub(crate) paused: u8,
}

/// What ports have in common that send at one rate over equal wires. Times in picoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    delay: u64,
    /// Capacity and marking threshold as the time they take to send.
    capacity: u64,
    mark_from: u64,
    /// Full data packets and acknowledgements.
    usual: [Usual; 2],
    rate: BitsPerSecond,
    /// End of the packet that was in transmission at the last rate change, and its rate.
    changed: (u64, BitsPerSecond),
}

/// A packet of the usual size.
#[derive(Clone, Copy, Debug)]
struct Usual {
    /// How long it occupies the port, in picoseconds.
    time: u32,
    bytes: u16,
}

impl Line {
    /// What leaves a vertex of this role over such a link.
    pub(crate) fn new(spec: LinkSpec, role: VertexRole, settings: &EngineSettings) -> Self {
        let transport = &settings.transport;
        let time = |size: Bytes| spec.rate.time_for(size).get();
        let bound = |size: Option<Bytes>| match size {
            Some(size) if !role.is_host() => time(size),
            _ => u64::MAX,
        };
        let usual = |size| Usual {
            time: u32::try_from(time(size)).expect("rates are at least 10 Mb/s"),
            bytes: wire_bytes(size),
        };
        Self {
            delay: spec.delay.get(),
            capacity: bound(spec.queue).min(LONGEST_WAIT_PS),
            mark_from: bound(spec.mark_from),
            usual: [transport.packet(), transport.acknowledgement].map(usual),
            rate: spec.rate,
            changed: (0, spec.rate),
        }
    }

    /// What `packet` occupies, in bytes.
    #[inline(always)]
    fn size(&self, packet: &Packet) -> u64 {
        let acknowledgement = self.usual[1].bytes;
        u64::from(select_unpredictable(
            packet.is_acknowledgement(),
            acknowledgement,
            packet.extra(),
        ))
    }

    /// What `packet` occupies, in bytes, and how long. Data and acknowledgements come in no order: nothing
    /// here hangs on guessing which is next.
    #[inline(always)]
    fn measure(&self, packet: &Packet) -> (u64, u64) {
        let usual = self.usual[usize::from(packet.is_acknowledgement())];
        let size = self.size(packet);
        if size != u64::from(usual.bytes) {
            return (size, self.unusual(size));
        }
        (size, u64::from(usual.time))
    }

    /// Returns the bytes that leave between `now` and `free`.
    #[inline]
    fn backlog(&self, free: u64, now: u64) -> Bytes {
        let (until, rate) = self.changed;
        let begun = rate.bytes_in(Picoseconds(until.saturating_sub(now)));
        begun + self.rate.bytes_in(Picoseconds(free.saturating_sub(now.max(until))))
    }

    /// Returns the sending time of these bytes at the current rate, which limits queues.
    #[cold]
    fn time_to_send(&self, free: u64, now: u64) -> u64 {
        let (until, rate) = self.changed;
        let begun = rate.bytes_in(Picoseconds(until - now));
        let begun = if rate == self.rate { until - now } else { self.unusual(begun.0) };
        begun + free.saturating_sub(until)
    }

    fn head_start(&self, packet: &Packet, rate: BitsPerSecond, header: Bytes) -> u64 {
        let sizes = (Bytes(self.size(packet)), header);
        Switching::CutThrough.head_start((rate, self.rate), sizes).get()
    }

    #[cold]
    fn unusual(&self, size: u64) -> u64 {
        self.rate.time_for(Bytes(size)).get()
    }
}

/// What an output port has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCount {
    /// Packets put on the wire: packet-hops.
    pub packets: u64,
    /// Bytes put on the wire.
    pub bytes: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Packets that were marked.
    pub marked: u64,
    /// Packets lost because the link was or went down.
    pub lost: u64,
    /// Packets cut to their headers.
    pub trimmed: u64,
    /// Pauses asked of the far end.
    pub pauses: u64,
    /// Picoseconds in which the far end had it pause some priority. While it is paused, what was added up so far less
    /// the time at which that began.
    pub paused_ps: u64,
}

impl PortCount {
    /// Adds what another port, or this one in another stretch of time, has done.
    pub(crate) fn add(&mut self, more: Self) {
        self.packets += more.packets;
        self.bytes += more.bytes;
        self.dropped += more.dropped;
        self.marked += more.marked;
        self.lost += more.lost;
        self.trimmed += more.trimmed;
        self.pauses += more.pauses;
        self.paused_ps = self.paused_ps.wrapping_add(more.paused_ps);
    }

    /// Notes that the priorities which are paused change at `now` from one set to another.
    pub(crate) fn note_paused(&mut self, (before, after): (u8, u8), now: u64) {
        match (before == 0, after == 0) {
            (true, false) => self.paused_ps = self.paused_ps.wrapping_sub(now),
            (false, true) => self.paused_ps = self.paused_ps.wrapping_add(now),
            _ => {}
        }
    }
}

impl Port {
    /// The port before `link`, which has this number.
    pub(crate) fn new(
        link: (LinkId, &Link),
        role: VertexRole,
        line: Arc<Line>,
        settings: &EngineSettings,
    ) -> Self {
        let ramp = Self::ramp(link, role, settings);
        Self {
            free: 0,
            line,
            quirks: Quirks { ramp, ..Quirks::default() }.boxed(),
            wire: 0,
            vertex: 0,
            back: 0,
            shard: 0,
            up: true,
            paused: 0,
        }
    }

    fn ramp(
        (id, link): (LinkId, &Link),
        role: VertexRole,
        settings: &EngineSettings,
    ) -> Option<Ramp> {
        let threshold = link.spec.mark_from.filter(|_| !role.is_host());
        let time = |size: Bytes| link.spec.rate.time_for(size).get();
        Ramp::new((settings.marking, settings.seed), (id, threshold), time)
    }

    /// Takes the rate of `link` at `now`. The packet in transmission finishes at the old rate.
    pub(crate) fn take_rate(
        &mut self,
        link: (LinkId, &Link),
        role: VertexRole,
        settings: &EngineSettings,
        now: u64,
    ) -> RateChange {
        let ramp = Self::ramp(link, role, settings);
        let mut quirks = self.quirks.take().map_or_else(Quirks::default, |quirks| *quirks);
        let line = Line::new(link.1.spec, role, settings);
        let corrupted = std::mem::take(&mut quirks.corrupted);
        self.quirks = Quirks { ramp, ..quirks }.boxed();
        let before = std::mem::replace(&mut self.line, Arc::new(line));
        RateChange { now, before, corrupted }
    }

    /// Empties the port when its link goes down or comes up.
    pub(crate) fn restart(&mut self, up: bool, now: u64) {
        (self.up, self.free) = (up, now);
        if self.line.changed.0 > 0 {
            Arc::make_mut(&mut self.line).changed.0 = 0;
        }
        if let Some(quirks) = &mut self.quirks {
            quirks.corrupted.clear();
        }
    }

    /// Loses packets to wrong bits from now on: a share of `errors` in units of 2⁻⁶⁴, drawn from `salt`.
    pub(crate) fn take_errors(&mut self, errors: u64, salt: u64) {
        let quirks = self.quirks.take().map_or_else(Quirks::default, |quirks| *quirks);
        self.quirks = Quirks { errors, salt, ..quirks }.boxed();
    }

    /// Loses this share of packets from now on, in units of 2⁻⁶⁴, drawn from `salt`.
    pub(crate) fn take_loss(&mut self, loss: u64, salt: u64) {
        let quirks = self.quirks.take().map_or_else(Quirks::default, |quirks| *quirks);
        self.quirks = Quirks { loss, salt, ..quirks }.boxed();
    }

    /// Packets sent from `now` on take up to `most` picoseconds longer, drawn from `salt`.
    pub(crate) fn take_jitter(&mut self, most: u64, salt: u64, now: u64) {
        let quirks = self.quirks.take().map_or_else(Quirks::default, |quirks| *quirks);
        let before = quirks.jitter;
        let busy_until = self.free.max(now + self.packet_time());
        let (held_from, held_until) = match before.most {
            0 => (before.held_from, before.held_until),
            most => (busy_until, busy_until + most.max(before.held(busy_until))),
        };
        self.quirks =
            Quirks { jitter: Jitter { most, salt, held_from, held_until }, ..quirks }.boxed();
    }

    /// What stands before a packet that comes at `now`.
    #[inline]
    pub(crate) fn backlog(&self, now: u64) -> Bytes {
        self.backlog_until(self.free, now)
    }

    /// What the wire is busy with from `now` until it is `free`.
    #[inline]
    pub(crate) fn backlog_until(&self, free: u64, now: u64) -> Bytes {
        self.line.backlog(free, now)
    }

    /// Returns the arrival of the last bit at the far end if the wire is busy until `free`.
    pub(crate) fn last_arrival(&self, free: u64) -> u64 {
        free + self.line.delay
    }

    /// What `packet` occupies, in bytes.
    #[inline(always)]
    pub(crate) fn size(&self, packet: &Packet) -> u64 {
        self.line.size(packet)
    }

    /// When a packet whose last bit leaves at `sent` is at the far end, in picoseconds.
    #[inline(always)]
    pub(crate) fn arrival(&self, sent: u64) -> u64 {
        sent + self.line.delay + self.quirks.as_ref().map_or(0, |quirks| quirks.jitter.late(sent))
    }

    /// How long a full packet takes to be sent, in picoseconds.
    #[inline(always)]
    pub(crate) fn packet_time(&self) -> u64 {
        u64::from(self.line.usual[0].time)
    }

    /// How long before its last bit `packet`, which came in at `rate`, may be sent by a switch that cuts
    /// through.
    #[inline(always)]
    pub(crate) fn head_start(&self, packet: &Packet, rate: BitsPerSecond, header: Bytes) -> u64 {
        self.line.head_start(packet, rate, header)
    }

    /// Whether it marks by chance or loses packets.
    pub(crate) fn has_quirks(&self) -> bool {
        self.quirks.is_some()
    }

    /// How long `bytes` take to send, in picoseconds.
    pub(crate) fn time_for(&self, bytes: u64) -> u64 {
        self.line.unusual(bytes)
    }

    /// Does at `now` what a pause frame asks. Returns whether something may go on.
    pub(crate) fn obey(&mut self, frame: &Packet, count: &mut PortCount, now: u64) -> bool {
        let before = self.paused;
        let goes_on = frame.obeyed_by(&mut self.paused);
        count.note_paused((before, self.paused), now);
        goes_on
    }

    /// Takes the port in hand for a stretch of packets.
    #[inline(always)]
    pub(crate) fn open<'p>(&'p mut self, count: &'p mut PortCount) -> SendingPort<'p> {
        SendingPort {
            free: self.free,
            line: &self.line,
            quirks: self.quirks.as_deref_mut(),
            done: SentCount::default(),
            kept_free: &mut self.free,
            kept: count,
        }
    }

    /// Takes the port of a switch with real queues in hand, with what it does when the far end asks for pauses,
    /// and where the end of its last transmission is kept.
    #[inline(always)]
    pub(crate) fn open_queued<'p>(
        &'p mut self,
        until: &'p mut u64,
        count: &'p mut PortCount,
    ) -> (SendingPort<'p>, &'p mut u8) {
        let sending = SendingPort {
            free: *until,
            line: &self.line,
            quirks: self.quirks.as_deref_mut(),
            done: SentCount::default(),
            kept_free: until,
            kept: count,
        };
        (sending, &mut self.paused)
    }
}

/// A port in hand: what changes with every packet stands in registers until it is put down.
pub(crate) struct SendingPort<'p> {
    /// When the last bit of everything accepted so far has left, in picoseconds.
    pub(crate) free: u64,
    line: &'p Line,
    quirks: Option<&'p mut Quirks>,
    done: SentCount,
    kept_free: &'p mut u64,
    kept: &'p mut PortCount,
}

/// How much `one` exceeds `other`, or zero. Written so that no compiler makes a jump of it: whether a port is busy when
/// a packet comes is what no processor guesses.
#[inline(always)]
pub(super) fn excess(one: u64, other: u64) -> u64 {
    let (difference, is_less) = one.overflowing_sub(other);
    difference & u64::from(is_less).wrapping_sub(1)
}

/// What most packets count in.
#[derive(Clone, Copy, Debug, Default)]
struct SentCount {
    packets: u64,
    bytes: u64,
    marked: u64,
}

impl SendingPort<'_> {
    /// Sends `packet`, which reaches the port at `now` and may have begun `head_start` before: returns it as
    /// it will reach the far end, or nothing when it is dropped or lost.
    #[inline(always)]
    pub(crate) fn send(&mut self, (now, head_start): (u64, u64), packet: Packet) -> Option<Packet> {
        let (size, occupies) = self.line.measure(&packet);
        let earliest = now.saturating_sub(head_start);
        let begin = earliest + excess(self.free, earliest);
        let mut backlog = excess(self.free, now);
        if now < self.line.changed.0 {
            backlog = self.line.time_to_send(self.free, now);
        }
        if backlog + occupies > self.line.capacity {
            self.kept.dropped += 1;
            return None;
        }
        let mut marked = !packet.is_acknowledgement() & (backlog >= self.line.mark_from);
        let (mut lost, mut late) = (false, 0);
        self.done.packets += 1;
        self.free = begin + occupies;
        if let Some(quirks) = &mut self.quirks {
            let number = self.kept.packets + self.done.packets;
            marked = marked && quirks.mark(backlog, number - 1);
            lost = quirks.corrupt(size, number);
            late = quirks.jitter.late(begin + occupies);
            if lost {
                quirks.note_corrupted((self.free, size), now);
            }
        }
        self.done.marked += u64::from(marked);
        self.done.bytes += size;
        if lost {
            self.kept.lost += 1;
            return None;
        }
        Some(packet.sent(self.free + self.line.delay + late, marked))
    }

    /// Begins to send `packet` at `now`: returns it as it will reach the far end, or nothing when it is lost,
    /// which it cannot be unless it `may_be_lost`.
    #[inline(always)]
    pub(crate) fn begin(&mut self, now: u64, packet: Packet, may_be_lost: bool) -> Option<Packet> {
        let (size, occupies) = self.line.measure(&packet);
        self.free = now + occupies;
        self.done.packets += 1;
        self.done.bytes += size;
        if let Some(quirks) = &self.quirks
            && may_be_lost
            && quirks.corrupt(size, self.kept.packets + self.done.packets)
        {
            self.kept.lost += 1;
            return None;
        }
        let late = self.quirks.as_ref().map_or(0, |quirks| quirks.jitter.late(self.free));
        Some(packet.at(self.free + self.line.delay + late))
    }

    /// What `packet` occupies, in bytes.
    #[inline(always)]
    pub(crate) fn size(&self, packet: &Packet) -> u64 {
        self.line.size(packet)
    }

    /// The size of the longest packet.
    #[inline(always)]
    pub(crate) fn longest(&self) -> u64 {
        let [data, acknowledgement] = self.line.usual;
        u64::from(data.bytes.max(acknowledgement.bytes))
    }

    /// The most bytes that leave in `length` picoseconds, or somewhat more.
    pub(crate) fn most_sent_in(&self, length: u64) -> u64 {
        let Usual { time, bytes } = self.line.usual[0];
        (length / u64::from(time.max(1)) + 2) * u64::from(bytes)
    }

    /// Whether it marks by chance or loses packets.
    #[inline(always)]
    pub(crate) fn has_quirks(&self) -> bool {
        self.quirks.is_some()
    }

    /// A packet that waits is marked, or not.
    #[inline(always)]
    pub(crate) fn mark(&mut self, marked: bool) {
        self.done.marked += u64::from(marked);
    }

    /// A packet is lost that found the link down.
    pub(crate) fn lose(&mut self) {
        self.kept.lost += 1;
    }

    /// What the port has done, but for what this stretch will add.
    pub(crate) fn count(&mut self) -> &mut PortCount {
        self.kept
    }

    /// What stands before a packet that comes at `now`.
    pub(crate) fn backlog(&self, now: u64) -> Bytes {
        self.backlog_until(self.free, now)
    }

    /// What the wire is busy with from `now` until it is `free`.
    pub(crate) fn backlog_until(&self, free: u64, now: u64) -> Bytes {
        self.line.backlog(free, now)
    }

    /// How long `packet` takes to be sent.
    #[inline(always)]
    pub(crate) fn occupies(&self, packet: &Packet) -> u64 {
        self.line.measure(packet).1
    }

    /// How long `bytes` take to be sent.
    pub(crate) fn time_of(&self, bytes: u64) -> u64 {
        self.line.unusual(bytes)
    }

    /// How long before its last bit `packet`, which came in at `rate`, may be sent by a switch that cuts
    /// through.
    #[inline(always)]
    pub(crate) fn head_start(&self, packet: &Packet, rate: BitsPerSecond, header: Bytes) -> u64 {
        self.line.head_start(packet, rate, header)
    }

    /// Puts the port down.
    #[inline(always)]
    pub(crate) fn close(self) {
        *self.kept_free = self.free;
        self.kept.packets += self.done.packets;
        self.kept.bytes += self.done.bytes;
        self.kept.marked += self.done.marked;
    }
}

/// A packet's size as packets carry it.
pub(crate) fn wire_bytes(size: Bytes) -> u16 {
    u16::try_from(size.get()).expect("packets of more than 65,535 bytes are refused")
}
