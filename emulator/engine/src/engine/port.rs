// SPDX-License-Identifier: Apache-2.0
//! An output port with a FIFO queue, whose departures are known on arrival.
//!
//! ```text
//!   backlog   = max(0, free − arrival)          waiting time of the packet
//!   departure = max(arrival, free) + size/rate  last bit on the wire
//!   dropped when backlog + size/rate > capacity; marked when backlog ≥ threshold
//! ```
//! Cut-through may start before the last bit arrives ([`Switching`]). A packet costs one event per hop.

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

/// Packets that would wait longer are dropped. With the longest link delay, this wait still fits in packet times.
const LONGEST_WAIT_PS: u64 = 1 << (HORIZON_BITS - 1);

/// Contains only fields needed by every packet, because the ports of large networks exceed the caches.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) free: u64,
    line: Arc<Line>,
    quirks: Option<Box<Quirks>>,
    pub(crate) far: WireEnd,
    pub(crate) back: u32,
    pub(crate) up: bool,
    pub(crate) paused: u8,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WireEnd {
    pub(crate) wire: u32,
    pub(crate) vertex: u32,
    pub(crate) shard: u16,
}

/// Shared by ports with the same rate and wire. Times are in picoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    delay: u64,
    capacity: u64,
    mark_from: u64,
    usual: [Usual; 2],
    rate: BitsPerSecond,
    changed: (u64, BitsPerSecond),
}

#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    time: u32,
    bytes: u16,
}

impl Line {
    pub(crate) fn new(spec: LinkSpec, role: VertexRole, settings: &EngineSettings) -> Self {
        let transport = &settings.transport;
        let time = |size: Bytes| spec.rate.time_for(size).get();
        let bound = |size: Option<Bytes>| match size {
            Some(size) if !role.is_host() => time(size),
            _ => u64::MAX,
        };
        // A packet that takes over 4 ms is never usual.
        let usual = |size| {
            let time = u32::try_from(time(size));
            time.map_or(Usual::default(), |time| Usual { time, bytes: wire_bytes(size) })
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

    #[inline(always)]
    fn size(&self, packet: &Packet) -> u64 {
        let acknowledgement = self.usual[1].bytes;
        u64::from(select_unpredictable(
            packet.is_acknowledgement(),
            acknowledgement,
            packet.extra(),
        ))
    }

    /// Branch-free, because data and acknowledgements alternate unpredictably.
    #[inline(always)]
    fn measure(&self, packet: &Packet) -> (u64, u64) {
        let usual = self.usual[usize::from(packet.is_acknowledgement())];
        let size = self.size(packet);
        if size != u64::from(usual.bytes) {
            return (size, self.unusual(size));
        }
        (size, u64::from(usual.time))
    }

    #[inline(always)]
    fn backlog(&self, free: u64, now: u64) -> Bytes {
        if now < self.changed.0 {
            return self.backlog_at_two_rates(free, now);
        }
        self.rate.bytes_in(Picoseconds(free.saturating_sub(now)))
    }

    /// The backlog while a packet that started before a rate change is still leaving.
    #[cold]
    fn backlog_at_two_rates(&self, free: u64, now: u64) -> Bytes {
        let (until, rate) = self.changed;
        let begun = rate.bytes_in(Picoseconds(until - now));
        begun + self.rate.bytes_in(Picoseconds(free.saturating_sub(until)))
    }

    #[cold]
    fn time_to_send(&self, free: u64, now: u64) -> u64 {
        let (until, rate) = self.changed;
        let begun = rate.bytes_in(Picoseconds(until - now));
        let begun = if rate == self.rate { until - now } else { self.unusual(begun.0) };
        begun + free.saturating_sub(until)
    }

    fn head_start(&self, packet: &Packet, rate: BitsPerSecond, header: Bytes) -> u64 {
        let size = Bytes(self.size(packet));
        Switching::CutThrough.head_start(rate, self.rate, size, header).get()
    }

    #[cold]
    fn unusual(&self, size: u64) -> u64 {
        self.rate.time_for(Bytes(size)).get()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCount {
    pub packets: u64,
    pub bytes: u64,
    pub dropped: u64,
    pub marked: u64,
    pub lost: u64,
    pub trimmed: u64,
    pub pauses: u64,
    /// Picoseconds in which the far end paused a priority. During a pause, the sum so far minus the start of the pause.
    pub paused_ps: u64,
}

impl PortCount {
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

    /// Must be called when the set of paused priorities changes at `now`.
    pub(crate) fn note_paused(&mut self, before: u8, after: u8, now: u64) {
        match (before == 0, after == 0) {
            (true, false) => self.paused_ps = self.paused_ps.wrapping_sub(now),
            (false, true) => self.paused_ps = self.paused_ps.wrapping_add(now),
            _ => {}
        }
    }
}

impl Port {
    pub(crate) fn new(
        id: LinkId,
        link: &Link,
        role: VertexRole,
        line: Arc<Line>,
        settings: &EngineSettings,
    ) -> Self {
        let ramp = Self::ramp(id, link, role, settings);
        Self {
            free: 0,
            line,
            quirks: Quirks { ramp, ..Quirks::default() }.boxed(),
            far: WireEnd::default(),
            back: 0,
            up: true,
            paused: 0,
        }
    }

    fn ramp(id: LinkId, link: &Link, role: VertexRole, settings: &EngineSettings) -> Option<Ramp> {
        let threshold = link.spec.mark_from.filter(|_| !role.is_host());
        Ramp::new(settings.marking, settings.seed, id, threshold, |size| {
            link.spec.rate.time_for(size).get()
        })
    }

    pub(crate) fn take_rate(
        &mut self,
        id: LinkId,
        link: &Link,
        role: VertexRole,
        settings: &EngineSettings,
        now: u64,
    ) -> RateChange {
        let ramp = Self::ramp(id, link, role, settings);
        let mut quirks = self.quirks.take().map_or_else(Quirks::default, |quirks| *quirks);
        let line = Line::new(link.spec, role, settings);
        let corrupted = std::mem::take(&mut quirks.corrupted);
        self.quirks = Quirks { ramp, ..quirks }.boxed();
        let before = std::mem::replace(&mut self.line, Arc::new(line));
        RateChange { now, before, corrupted }
    }

    pub(crate) fn restart(&mut self, up: bool, now: u64) {
        (self.up, self.free) = (up, now);
        if self.line.changed.0 > 0 {
            Arc::make_mut(&mut self.line).changed.0 = 0;
        }
        if let Some(quirks) = &mut self.quirks {
            quirks.corrupted.clear();
        }
    }

    /// `errors` is in units of 2⁻⁶⁴. `salt` seeds the draws.
    pub(crate) fn take_errors(&mut self, errors: u64, salt: u64) {
        let quirks = self.quirks.take().map_or_else(Quirks::default, |quirks| *quirks);
        self.quirks = Quirks { errors, salt, ..quirks }.boxed();
    }

    /// `loss` is in units of 2⁻⁶⁴. `salt` seeds the draws.
    pub(crate) fn take_loss(&mut self, loss: u64, salt: u64) {
        let quirks = self.quirks.take().map_or_else(Quirks::default, |quirks| *quirks);
        self.quirks = Quirks { loss, salt, ..quirks }.boxed();
    }

    /// Delays packets sent from `now` on by up to `most` picoseconds. `salt` seeds the draws.
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

    #[inline]
    pub(crate) fn backlog(&self, now: u64) -> Bytes {
        self.backlog_until(self.free, now)
    }

    #[inline]
    pub(crate) fn backlog_until(&self, free: u64, now: u64) -> Bytes {
        self.line.backlog(free, now)
    }

    pub(crate) fn last_arrival(&self, free: u64) -> u64 {
        free + self.line.delay
    }

    #[inline(always)]
    pub(crate) fn size(&self, packet: &Packet) -> u64 {
        self.line.size(packet)
    }

    pub(crate) fn rate(&self) -> u64 {
        self.line.rate.get()
    }

    #[inline(always)]
    pub(crate) fn arrival(&self, sent: u64) -> u64 {
        sent + self.line.delay + self.quirks.as_ref().map_or(0, |quirks| quirks.jitter.late(sent))
    }

    #[inline(always)]
    pub(crate) fn packet_time(&self) -> u64 {
        u64::from(self.line.usual[0].time)
    }

    /// How long before its last bit arrives `packet` may start to leave, if it arrives at `rate`.
    #[inline(always)]
    pub(crate) fn head_start(&self, packet: &Packet, rate: BitsPerSecond, header: Bytes) -> u64 {
        self.line.head_start(packet, rate, header)
    }

    pub(crate) fn has_quirks(&self) -> bool {
        self.quirks.is_some()
    }

    pub(crate) fn time_for(&self, bytes: u64) -> u64 {
        self.line.unusual(bytes)
    }

    pub(crate) fn obey(&mut self, frame: &Packet, count: &mut PortCount, now: u64) -> bool {
        let before = self.paused;
        let goes_on = frame.obeyed_by(&mut self.paused);
        count.note_paused(before, self.paused, now);
        goes_on
    }

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

    /// `until` stores the end of the last transmission. Returns the paused priorities.
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

/// Keeps values that change with every packet in registers until the port is closed.
pub(crate) struct SendingPort<'p> {
    pub(crate) free: u64,
    line: &'p Line,
    quirks: Option<&'p mut Quirks>,
    done: SentCount,
    kept_free: &'p mut u64,
    kept: &'p mut PortCount,
}

/// Saturating subtraction without branches, because busy ports are unpredictable.
#[inline(always)]
pub(super) fn excess(one: u64, other: u64) -> u64 {
    let (difference, is_less) = one.overflowing_sub(other);
    difference & u64::from(is_less).wrapping_sub(1)
}

#[derive(Clone, Copy, Debug, Default)]
struct SentCount {
    packets: u64,
    bytes: u64,
    marked: u64,
}

impl SendingPort<'_> {
    /// The packet may start up to `head_start` earlier. `None` if it is dropped or lost.
    #[inline(always)]
    pub(crate) fn send(&mut self, now: u64, head_start: u64, packet: Packet) -> Option<Packet> {
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

    /// Whether the port sends all packets that arrive from `start` on at its rate, without losses and jitter.
    #[inline(always)]
    pub(crate) fn is_steady(&self, start: u64) -> bool {
        self.quirks.is_none() && self.line.changed.0 <= start
    }

    #[inline(always)]
    pub(crate) fn wait(&self, now: u64) -> u64 {
        excess(self.free, now)
    }

    #[inline(always)]
    pub(crate) fn sent_in(&self, time: u64) -> Bytes {
        self.line.rate.bytes_in(Picoseconds(time))
    }

    /// Sends a packet over a steady port after its `wait`. `None` if it is dropped.
    #[inline(always)]
    pub(crate) fn send_after(&mut self, wait: u64, now: u64, packet: Packet) -> Option<Packet> {
        let (size, occupies) = self.line.measure(&packet);
        if wait + occupies > self.line.capacity {
            self.kept.dropped += 1;
            return None;
        }
        let marked = !packet.is_acknowledgement() & (wait >= self.line.mark_from);
        self.free = now + wait + occupies;
        self.done.packets += 1;
        self.done.marked += u64::from(marked);
        self.done.bytes += size;
        Some(packet.sent(self.free + self.line.delay, marked))
    }

    /// Returns the packet as it will arrive. `None` if it is lost, which requires `may_be_lost`.
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

    #[inline(always)]
    pub(crate) fn size(&self, packet: &Packet) -> u64 {
        self.line.size(packet)
    }

    #[inline(always)]
    pub(crate) fn longest(&self) -> u64 {
        let [data, acknowledgement] = self.line.usual;
        u64::from(data.bytes.max(acknowledgement.bytes))
    }

    #[inline(always)]
    pub(crate) fn mark(&mut self, marked: bool) {
        self.done.marked += u64::from(marked);
    }

    pub(crate) fn lose(&mut self) {
        self.kept.lost += 1;
    }

    pub(crate) fn count(&mut self) -> &mut PortCount {
        self.kept
    }

    #[inline(always)]
    pub(crate) fn backlog(&self, now: u64) -> Bytes {
        self.backlog_until(self.free, now)
    }

    #[inline(always)]
    pub(crate) fn backlog_until(&self, free: u64, now: u64) -> Bytes {
        self.line.backlog(free, now)
    }

    #[inline(always)]
    pub(crate) fn head_start(&self, packet: &Packet, rate: BitsPerSecond, header: Bytes) -> u64 {
        self.line.head_start(packet, rate, header)
    }

    #[inline(always)]
    pub(crate) fn close(self) {
        *self.kept_free = self.free;
        self.kept.packets += self.done.packets;
        self.kept.bytes += self.done.bytes;
        self.kept.marked += self.done.marked;
    }
}

pub(crate) fn wire_bytes(size: Bytes) -> u16 {
    u16::try_from(size.get()).expect("packets of more than 65,535 bytes are refused")
}
