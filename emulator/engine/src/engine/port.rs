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

use std::hint::select_unpredictable;
use std::sync::Arc;

use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};

use super::marking::{Ramp, mix};
use super::network::{Link, LinkId, LinkSpec, VertexRole};
use super::packet::{HORIZON_BITS, Packet};
use super::settings::EngineSettings;
use super::switching::Switching;

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
#[derive(Debug)]
pub(crate) struct Line {
    delay: u64,
    /// Capacity and marking threshold as the time they take to send.
    capacity: u64,
    mark_from: u64,
    /// Full data packets and acknowledgements.
    usual: [Usual; 2],
    rate: BitsPerSecond,
}

/// What few ports have.
#[derive(Clone, Debug, Default)]
struct Quirks {
    /// Marks by chance.
    ramp: Option<Ramp>,
    /// Share of bits that arrive wrong, in units of 2⁻⁶⁴, and what the draws for them begin from.
    errors: u64,
    salt: u64,
}

impl Quirks {
    fn boxed(self) -> Option<Box<Self>> {
        (self.ramp.is_some() || self.errors > 0).then(|| Box::new(self))
    }
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

    #[inline]
    fn backlog(&self, free: u64, now: u64) -> Bytes {
        self.rate.bytes_in(Picoseconds(free.saturating_sub(now)))
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

    /// Sends as over `link` from now on; what is queued keeps its departure.
    pub(crate) fn take_rate(
        &mut self,
        link: (LinkId, &Link),
        role: VertexRole,
        settings: &EngineSettings,
    ) {
        self.line = Arc::new(Line::new(link.1.spec, role, settings));
        let ramp = Self::ramp(link, role, settings);
        let quirks = self.quirks.take().map_or_else(Quirks::default, |quirks| *quirks);
        self.quirks = Quirks { ramp, ..quirks }.boxed();
    }

    /// Loses packets to wrong bits from now on: a share of `errors` in units of 2⁻⁶⁴, drawn from `salt`.
    pub(crate) fn take_errors(&mut self, errors: u64, salt: u64) {
        let quirks = self.quirks.take().map_or_else(Quirks::default, |quirks| *quirks);
        self.quirks = Quirks { errors, salt, ..quirks }.boxed();
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

    /// What `packet` occupies, in bytes.
    #[inline(always)]
    pub(crate) fn size(&self, packet: &Packet) -> u64 {
        self.line.size(packet)
    }

    /// How long the wire is, in picoseconds.
    #[inline(always)]
    pub(crate) fn delay(&self) -> u64 {
        self.line.delay
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
            quirks: self.quirks.as_deref(),
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
            quirks: self.quirks.as_deref(),
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
    quirks: Option<&'p Quirks>,
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
        let backlog = excess(self.free, now);
        if backlog + occupies > self.line.capacity {
            self.kept.dropped += 1;
            return None;
        }
        let mut marked = !packet.is_acknowledgement() & (backlog >= self.line.mark_from);
        let mut lost = false;
        self.done.packets += 1;
        if let Some(quirks) = self.quirks {
            let number = self.kept.packets + self.done.packets;
            marked = marked && quirks.mark(backlog, number - 1);
            lost = quirks.corrupt(size, number);
        }
        self.free = begin + occupies;
        self.done.marked += u64::from(marked);
        self.done.bytes += size;
        if lost {
            self.kept.lost += 1;
            return None;
        }
        Some(packet.sent(self.free + self.line.delay, marked))
    }

    /// Begins to send `packet` at `now`: returns it as it will reach the far end, or nothing when it is lost,
    /// which it cannot be unless it `may_be_lost`.
    #[inline(always)]
    pub(crate) fn begin(&mut self, now: u64, packet: Packet, may_be_lost: bool) -> Option<Packet> {
        let (size, occupies) = self.line.measure(&packet);
        self.free = now + occupies;
        self.done.packets += 1;
        self.done.bytes += size;
        if let Some(quirks) = self.quirks
            && may_be_lost
            && quirks.corrupt(size, self.kept.packets + self.done.packets)
        {
            self.kept.lost += 1;
            return None;
        }
        Some(packet.at(self.free + self.line.delay))
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

impl Quirks {
    #[cold]
    fn mark(&self, backlog: u64, number: u64) -> bool {
        self.ramp.as_ref().is_none_or(|ramp| ramp.marks(backlog, number))
    }

    /// Whether a bit of the `number`-th packet on the wire is wrong.
    #[cold]
    fn corrupt(&self, size: u64, number: u64) -> bool {
        self.errors > 0
            && mix(self.salt.wrapping_add(number)) < chance_of_any(self.errors, size * 8)
    }
}

/// The chance that any of `bits` is wrong, 1 − (1 − p)ⁿ for the chance p of `one` bit, both in units of 2⁻⁶⁴. In whole
/// numbers, so that it is the same on every machine.
fn chance_of_any(one: u64, bits: u64) -> u64 {
    let either = |a: u64, b: u64| {
        let both = (u128::from(a) * u128::from(b)) >> 64;
        u64::try_from(u128::from(a) + u128::from(b) - both).unwrap_or(u64::MAX)
    };
    let (mut chance, mut of_power, mut left) = (0, one, bits);
    while left > 0 {
        if left & 1 == 1 {
            chance = either(chance, of_power);
        }
        of_power = either(of_power, of_power);
        left >>= 1;
    }
    chance
}

/// A packet's size as packets carry it.
pub(crate) fn wire_bytes(size: Bytes) -> u16 {
    u16::try_from(size.get()).expect("packets of more than 65,535 bytes are refused")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_of_a_wrong_packet_is_that_of_any_wrong_bit() {
        for one in [1e-15_f64, 1e-12, 1e-9, 1e-6, 3e-5, 1e-3, 0.5] {
            for bits in [1_u64, 64 * 8, 4_160 * 8, 65_535 * 8] {
                let units = (one * 2_f64.powi(64)) as u64;
                let exact = -f64::exp_m1(bits as f64 * f64::ln_1p(-one));
                let ours = chance_of_any(units, bits) as f64 / 2_f64.powi(64);
                assert!((ours / exact - 1.0).abs() < 1e-3, "{one} {bits}: {ours}, not {exact}");
            }
        }
    }
}
