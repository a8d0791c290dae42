// SPDX-License-Identifier: Apache-2.0
//! A packet on its way: 16 bytes, plain, copied from queue to queue.

use super::queueing::CONTROL_PRIORITY;
use super::shard::again::StateLag;

/// What a packet is and what happened to it, one bit each.
pub(crate) mod flag {
    /// Acknowledges data; otherwise the packet carries data.
    pub(crate) const ACKNOWLEDGEMENT: u16 = 1;
    /// Met a long queue (congestion experienced).
    pub(crate) const MARKED: u16 = 1 << 1;
    /// The data packet this acknowledges was marked.
    pub(crate) const ECHO: u16 = 1 << 2;
    /// The data packet this answers came after a gap.
    pub(crate) const GAP: u16 = 1 << 3;
    /// Data that had been sent before.
    pub(crate) const RESENT: u16 = 1 << 4;
    /// Data cut to its header, or the acknowledgement that asks for it.
    pub(crate) const TRIMMED: u16 = 1 << 5;
    /// Of data, with [`TRIMMED`]: a header alone that asks whether its path carries packets; `sequence` is the
    /// path. The acknowledgement of one bears [`RESENT`].
    pub(crate) const PROBE: u16 = ECHO;
    /// Asks the port it arrives at to pause a priority; `sequence` is the priority, `cursor` the port.
    pub(crate) const PAUSE: u16 = 1 << 6;
    /// Lets it go on.
    pub(crate) const RESUME: u16 = 1 << 7;
    /// Of an acknowledgement: a packet more may be sent. With [`RESENT`] it says only that. It stands where data has its
    /// priority.
    pub(crate) const CREDIT: u16 = 1 << 8;
    /// Of an acknowledgement or a credit: with this, all credit that the flow has earned has been given.
    pub(crate) const SETTLED: u16 = 1 << 9;
    /// Where the priority of data stands, three bits.
    pub(crate) const PRIORITY_SHIFT: u32 = 8;
}

/// How far ahead of the window a packet may arrive: times on packets are kept modulo 2⁴² ps, 4.4 s.
pub(crate) const HORIZON_BITS: u32 = 42;
const TIME_SHIFT: u32 = 64 - HORIZON_BITS;
/// Where the first six flags and the others stand.
const LOW_FLAGS: u32 = 16;
const HIGH_FLAGS: u32 = 59;
const LOW_FLAG_COUNT: u32 = 6;
const CURSOR_BITS: u32 = 28;
/// Route tables have fewer entries, ports included.
pub(crate) const MOST_CURSORS: u32 = 1 << CURSOR_BITS;

/// A packet between two vertices.
///
/// Two words and no more: what is on its way does not fit the nearest caches, and the engine moves packets
/// in registers.
///
/// ```text
///   when   42 bits arrival, modulo 2⁴² ps │ 6 bits flags │ 16 bits size or distance
///   what   5 bits flags │ 31 bits number │ 28 bits place in the route table
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packet {
    when: u64,
    what: u64,
}

/// A packet's contents, for making one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents {
    /// Where in the route table the rest of its way begins; for a pause frame, the port it is for.
    pub(crate) cursor: u32,
    /// Data: number of the packet in its flow. Acknowledgement: the lowest number not received.
    pub(crate) sequence: u32,
    /// Data: size on the wire in bytes. Acknowledgement: how far the packet that it answers lies
    /// beyond `sequence` after a gap, before `sequence - 1` otherwise.
    pub(crate) extra: u16,
    pub(crate) flags: u16,
}

impl Packet {
    #[inline(always)]
    pub(crate) const fn new(contents: Contents) -> Self {
        let Contents { cursor, sequence, extra, flags } = contents;
        let (low, high) = words_of(flags);
        Self {
            when: low | extra as u64,
            what: high | (sequence as u64) << CURSOR_BITS | cursor as u64,
        }
    }
    #[inline(always)]
    pub(crate) const fn cursor(&self) -> u32 {
        self.what as u32 & (MOST_CURSORS - 1)
    }
    /// How long after `start` it arrives, in picoseconds: less than 2⁴².
    #[inline(always)]
    pub(crate) const fn after(&self, start: u64) -> u64 {
        self.when.wrapping_sub(start << TIME_SHIFT) >> TIME_SHIFT
    }
    /// The packet one hop on.
    #[inline(always)]
    pub(crate) const fn advanced(self) -> Self {
        Self { what: self.what + 1, ..self }
    }
    /// The packet with another rest of its way.
    #[inline(always)]
    pub(crate) const fn led_to(self, cursor: u32) -> Self {
        let rest = self.what & !(MOST_CURSORS as u64 - 1);
        Self { what: rest | cursor as u64, ..self }
    }
    #[inline(always)]
    pub(crate) const fn sequence(&self) -> u32 {
        (self.what >> CURSOR_BITS) as u32 & (u32::MAX >> 1)
    }
    #[inline(always)]
    pub(crate) const fn extra(&self) -> u16 {
        self.when as u16
    }
    /// The number of the packet that an acknowledgement answers.
    #[inline]
    pub(crate) const fn answered(&self) -> u32 {
        if self.has(flag::GAP) {
            self.sequence() + self.extra() as u32
        } else {
            self.sequence().saturating_sub(1 + self.extra() as u32)
        }
    }
    #[inline(always)]
    pub(crate) const fn has(&self, flag: u16) -> bool {
        let (low, high) = words_of(flag);
        self.when & low | self.what & high != 0
    }
    /// The packet arriving at `time`, marked if `marked`.
    #[inline(always)]
    pub(crate) const fn sent(self, time: u64, marked: bool) -> Self {
        self.at(time).marked(marked)
    }
    /// The packet, marked if `marked`.
    #[inline(always)]
    pub(crate) const fn marked(self, marked: bool) -> Self {
        let mark = (marked as u64) << (LOW_FLAGS + flag::MARKED.trailing_zeros());
        Self { when: self.when | mark, ..self }
    }
    /// The packet with this flag as well.
    pub(crate) const fn with(self, flag: u16) -> Self {
        let (low, high) = words_of(flag);
        Self { when: self.when | low, what: self.what | high }
    }
    /// The packet arriving at `time`.
    #[inline(always)]
    pub(crate) const fn at(self, time: u64) -> Self {
        let rest = self.when & ((1 << TIME_SHIFT) - 1);
        Self { when: time << TIME_SHIFT | rest, ..self }
    }
    /// The packet, which arrives at `now` or later, so much later and so many numbers on.
    pub(crate) fn moved(self, now: u64, by: StateLag) -> Self {
        let what = self.what + (u64::from(by.packets) << CURSOR_BITS);
        Self { what, ..self }.at(now + self.after(now) + by.time)
    }
    /// The packet with the place it came in by where its time was.
    #[inline(always)]
    pub(crate) const fn came_by(self, place: u32) -> Self {
        self.at(place as u64)
    }
    /// The place it came in by, while that stands where its time was.
    #[inline(always)]
    pub(crate) const fn ingress(&self) -> u32 {
        (self.when >> TIME_SHIFT) as u32
    }
    /// Its priority: data has that of its flow, all else the control priority.
    #[inline(always)]
    pub(crate) const fn priority(&self) -> u8 {
        if self.is_control() { CONTROL_PRIORITY } else { self.data_priority() }
    }
    /// Whether it is something else than whole data.
    #[inline(always)]
    pub(crate) const fn is_control(&self) -> bool {
        self.has(flag::ACKNOWLEDGEMENT | flag::TRIMMED)
    }
    /// The priority that data has while it is whole.
    #[inline(always)]
    pub(crate) const fn data_priority(&self) -> u8 {
        (self.what >> (HIGH_FLAGS + flag::PRIORITY_SHIFT - LOW_FLAG_COUNT)) as u8
    }
    /// The packet cut to a header of `bytes`.
    pub(crate) const fn trimmed(self, bytes: u16) -> Self {
        let rest = self.when & !0xFFFF | words_of(flag::TRIMMED).0;
        Self { when: rest | bytes as u64, ..self }
    }
    /// Does to `paused`, by priority one bit, what a pause frame asks. Returns whether something may go on.
    pub(crate) const fn obeyed_by(&self, paused: &mut u8) -> bool {
        let bit = 1 << self.sequence();
        let resumes = self.has(flag::RESUME);
        *paused = if resumes { *paused & !bit } else { *paused | bit };
        resumes
    }
    /// A pause frame: what it asks of which port for which priority.
    pub(crate) const fn is_pause_frame(&self) -> bool {
        self.has(flag::PAUSE | flag::RESUME)
    }
    /// Data that asks whether its path carries packets.
    #[inline(always)]
    pub(crate) const fn is_probe(&self) -> bool {
        self.has(flag::TRIMMED) && self.has(flag::PROBE) && !self.is_acknowledgement()
    }
    #[inline(always)]
    pub(crate) const fn is_acknowledgement(&self) -> bool {
        self.has(flag::ACKNOWLEDGEMENT)
    }
}

/// Flags as they stand in the two words.
#[inline(always)]
const fn words_of(flags: u16) -> (u64, u64) {
    let low = flags as u64 & ((1 << LOW_FLAG_COUNT) - 1);
    (low << LOW_FLAGS, (flags as u64 >> LOW_FLAG_COUNT) << HIGH_FLAGS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_packet_takes_16_bytes() {
        assert_eq!(size_of::<Packet>(), 16);
    }

    proptest! {
        #[test]
        fn fields_keep_to_themselves(
            (cursor, sequence) in (0..MOST_CURSORS - 1, 0..1u32 << 31),
            (extra, flags) in (any::<u16>(), 0u16..1 << 11),
            (start, later) in (0u64..1 << 60, 0u64..1 << HORIZON_BITS),
            marked: bool,
        ) {
            let packet = Packet::new(Contents { cursor, sequence, extra, flags });
            let sent = packet.advanced().sent(start + later, marked);
            prop_assert_eq!(sent.after(start), later);
            prop_assert_eq!((sent.cursor(), sent.sequence(), sent.extra()), (cursor + 1, sequence, extra));
            for bit in 0..11 {
                let mark = marked && 1 << bit == flag::MARKED;
                prop_assert_eq!(sent.has(1 << bit), flags >> bit & 1 == 1 || mark);
            }
            if flags & (flag::ACKNOWLEDGEMENT | flag::TRIMMED) == 0 {
                prop_assert_eq!(u16::from(sent.priority()), flags >> flag::PRIORITY_SHIFT);
            }
        }
    }
}
