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

use lightloom_fabric::units::{BitsPerSecond, Bytes};

use super::marking::Ramp;
use super::network::{Link, LinkId, Role};
use super::packet::{Packet, flag};
use super::run::Settings;
use super::switching::Switching;

/// An output port. Times in picoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    /// When the last bit of everything accepted so far has left.
    pub(crate) free: u64,
    delay: u64,
    /// Capacity and marking threshold as the time they take to send.
    capacity: u64,
    mark_from: u64,
    /// Full data packets and acknowledgements.
    usual: [Usual; 2],
    /// The wire behind the port, in the shard of its far end.
    pub(crate) wire: u32,
    /// The far end, in its shard.
    pub(crate) vertex: u32,
    pub(crate) shard: u32,
    pub(crate) up: bool,
    /// The port of the other direction, in the shard of the far end.
    pub(crate) back: u32,
    /// By priority, one bit: the far end has asked to pause.
    pub(crate) paused: u8,
    rate: BitsPerSecond,
    /// Share of bits that arrive wrong, in units of 2⁻⁶⁴.
    pub(crate) errors: u64,
    /// What the draws for wrong bits begin from.
    pub(crate) salt: u64,
    ramp: Option<Box<Ramp>>,
}

/// A packet of the usual size.
#[derive(Clone, Copy, Debug)]
struct Usual {
    /// How long it occupies the port, in picoseconds.
    time: u32,
    bytes: u16,
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
    }
}

impl Port {
    /// The port before `link`, which has this number.
    pub(crate) fn new(id: LinkId, link: &Link, role: Role, settings: &Settings) -> Self {
        let transport = &settings.transport;
        let time = |size: Bytes| link.spec.rate.time_for(size).get();
        let bound = |size: Option<Bytes>| match size {
            Some(size) if !role.is_host() => time(size),
            _ => u64::MAX,
        };
        let threshold = link.spec.mark_from.filter(|_| !role.is_host());
        let ramp = Ramp::new((settings.marking, settings.seed), (id, threshold), time);
        let usual = |size| Usual {
            time: u32::try_from(time(size)).expect("rates are at least 10 Mb/s"),
            bytes: wire_bytes(size),
        };
        Self {
            free: 0,
            delay: link.spec.delay.get(),
            capacity: bound(link.spec.queue),
            mark_from: bound(link.spec.mark_from),
            usual: [transport.packet(), transport.acknowledgement].map(usual),
            wire: 0,
            vertex: 0,
            shard: 0,
            up: true,
            back: 0,
            paused: 0,
            rate: link.spec.rate,
            errors: 0,
            salt: 0,
            ramp,
        }
    }

    /// Sends as `like` does from now on; what is queued keeps its departure.
    pub(crate) fn take_rate(&mut self, like: &Self) {
        self.rate = like.rate;
        self.capacity = like.capacity;
        self.mark_from = like.mark_from;
        self.usual = like.usual;
        self.ramp.clone_from(&like.ramp);
    }

    /// What stands before a packet that comes at `now`.
    #[inline]
    pub(crate) fn backlog(&self, now: u64) -> Bytes {
        let waiting = u128::from(self.free.saturating_sub(now));
        Bytes((waiting * u128::from(self.rate.0) / 8_000_000_000_000) as u64)
    }

    /// Whether a bit of the `number`-th packet on the wire is wrong. The chance is that of one bit times
    /// the bits, which is exact enough below one in a thousand.
    #[inline]
    pub(crate) fn corrupts(&self, packet: &Packet, number: u64) -> bool {
        if self.errors == 0 {
            return false;
        }
        let chance = self.errors.saturating_mul(self.size(packet) * 8);
        mix(self.salt.wrapping_add(number)) < chance
    }

    /// How long `packet` occupies the port.
    #[inline(always)]
    pub(crate) fn occupies(&self, packet: &Packet) -> u64 {
        self.measure(packet).1
    }

    /// What `packet` occupies, in bytes.
    #[inline(always)]
    pub(crate) fn size(&self, packet: &Packet) -> u64 {
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

    #[cold]
    fn unusual(&self, size: u64) -> u64 {
        self.rate.time_for(Bytes(size)).get()
    }

    /// How long the wire is, in picoseconds.
    pub(crate) fn delay(&self) -> u64 {
        self.delay
    }

    /// Does what a pause frame asks. Returns whether something may go on.
    pub(crate) fn obey(&mut self, frame: &Packet) -> bool {
        let bit = 1 << frame.sequence();
        let resumes = frame.has(flag::RESUME);
        self.paused = if resumes { self.paused & !bit } else { self.paused | bit };
        resumes
    }

    /// How long before its last bit `packet` may be sent by a switch that cuts through; the packet has the
    /// rate at which it came in where its time stood.
    pub(crate) fn head_start(&self, packet: &Packet, header: Bytes) -> u64 {
        let rates = (BitsPerSecond(packet.time), self.rate);
        Switching::CutThrough.head_start(rates, (Bytes(self.size(packet)), header)).get()
    }

    /// Sends `packet`, which reaches the port at `now` and may have begun `head_start` before: returns it as
    /// it will reach the far end, or nothing when it is dropped.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        (now, head_start): (u64, u64),
        packet: Packet,
        count: &mut PortCount,
    ) -> Option<Packet> {
        let (size, occupies) = self.measure(&packet);
        let begin = self.free.max(now.saturating_sub(head_start));
        let backlog = begin.max(now) - now;
        if backlog.saturating_add(occupies) > self.capacity {
            count.dropped += 1;
            return None;
        }
        let mut marked = !packet.is_acknowledgement() & (backlog >= self.mark_from);
        if marked && let Some(ramp) = &self.ramp {
            marked = ramp.marks(backlog, count.packets);
        }
        self.free = begin + occupies;
        count.marked += u64::from(marked);
        count.packets += 1;
        count.bytes += size;
        Some(packet.sent(self.free + self.delay, marked))
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub(super) fn mix(value: u64) -> u64 {
    let value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A packet's size as packets carry it.
pub(crate) fn wire_bytes(size: Bytes) -> u16 {
    u16::try_from(size.get()).expect("packets of more than 65,535 bytes are refused")
}
