// SPDX-License-Identifier: Apache-2.0
//! A packet of 16 bytes, copied from queue to queue.

use super::queueing::CONTROL_PRIORITY;
use super::shard::again::StateLag;

pub(crate) mod flag {
    pub(crate) const ACKNOWLEDGEMENT: u16 = 1;
    pub(crate) const MARKED: u16 = 1 << 1;
    pub(crate) const ECHO: u16 = 1 << 2;
    pub(crate) const GAP: u16 = 1 << 3;
    pub(crate) const RESENT: u16 = 1 << 4;
    pub(crate) const TRIMMED: u16 = 1 << 5;
    /// On data with [`TRIMMED`]: a bare header that probes path `sequence`. Its acknowledgement carries [`RESENT`].
    pub(crate) const PROBE: u16 = ECHO;
    /// Asks the receiving port to pause a priority. `sequence` is the priority and `cursor` the port.
    pub(crate) const PAUSE: u16 = 1 << 6;
    pub(crate) const RESUME: u16 = 1 << 7;
    /// On an acknowledgement, permits one more packet (acknowledging nothing with [`RESENT`]). On data, a priority bit.
    pub(crate) const CREDIT: u16 = 1 << 8;
    /// On an acknowledgement or credit, the flow has received all the credit that it earned.
    pub(crate) const SETTLED: u16 = 1 << 9;
    pub(crate) const PRIORITY_SHIFT: u32 = 8;
}

/// Limits how far ahead of the window a packet may arrive. Packet times are modulo 2⁴² ps (4.4 s).
pub(crate) const HORIZON_BITS: u32 = 42;
const TIME_SHIFT: u32 = 64 - HORIZON_BITS;
const LOW_FLAGS: u32 = 16;
const HIGH_FLAGS: u32 = 59;
const LOW_FLAG_COUNT: u32 = 6;
const CURSOR_BITS: u32 = 28;
pub(crate) const MOST_CURSORS: u32 = 1 << CURSOR_BITS;

/// Limited to two words, because packets in flight exceed the fastest caches and the engine moves them in registers.
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents {
    pub(crate) cursor: u32,
    /// For data: packet number. For an acknowledgement: lowest number not yet received.
    pub(crate) sequence: u32,
    /// For data: wire size in bytes. For an acknowledgement: distance of the acknowledged packet,
    /// counted upward from `sequence` after a gap and otherwise downward from `sequence - 1`.
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
    #[inline(always)]
    pub(crate) const fn after(&self, start: u64) -> u64 {
        self.when.wrapping_sub(start << TIME_SHIFT) >> TIME_SHIFT
    }
    #[inline(always)]
    pub(crate) const fn advanced(self) -> Self {
        Self { what: self.what + 1, ..self }
    }
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
    #[inline(always)]
    pub(crate) const fn sent(self, time: u64, marked: bool) -> Self {
        self.at(time).marked(marked)
    }
    #[inline(always)]
    pub(crate) const fn marked(self, marked: bool) -> Self {
        let mark = (marked as u64) << (LOW_FLAGS + flag::MARKED.trailing_zeros());
        Self { when: self.when | mark, ..self }
    }
    pub(crate) const fn with(self, flag: u16) -> Self {
        let (low, high) = words_of(flag);
        Self { when: self.when | low, what: self.what | high }
    }
    #[inline(always)]
    pub(crate) const fn at(self, time: u64) -> Self {
        let rest = self.when & ((1 << TIME_SHIFT) - 1);
        Self { when: time << TIME_SHIFT | rest, ..self }
    }
    pub(crate) fn moved(self, now: u64, by: StateLag) -> Self {
        let what = self.what + (u64::from(by.packets) << CURSOR_BITS);
        Self { what, ..self }.at(now + self.after(now) + by.time)
    }
    #[inline(always)]
    pub(crate) const fn came_by(self, place: u32) -> Self {
        self.at(place as u64)
    }
    #[inline(always)]
    pub(crate) const fn ingress(&self) -> u32 {
        (self.when >> TIME_SHIFT) as u32
    }
    #[inline(always)]
    pub(crate) const fn priority(&self) -> u8 {
        if self.is_control() { CONTROL_PRIORITY } else { self.data_priority() }
    }
    #[inline(always)]
    pub(crate) const fn is_control(&self) -> bool {
        self.has(flag::ACKNOWLEDGEMENT | flag::TRIMMED)
    }
    #[inline(always)]
    pub(crate) const fn data_priority(&self) -> u8 {
        (self.what >> (HIGH_FLAGS + flag::PRIORITY_SHIFT - LOW_FLAG_COUNT)) as u8
    }
    pub(crate) const fn trimmed(self, bytes: u16) -> Self {
        let rest = self.when & !0xFFFF | words_of(flag::TRIMMED).0;
        Self { when: rest | bytes as u64, ..self }
    }
    pub(crate) const fn obeyed_by(&self, paused: &mut u8) -> bool {
        let bit = 1 << self.sequence();
        let resumes = self.has(flag::RESUME);
        *paused = if resumes { *paused & !bit } else { *paused | bit };
        resumes
    }
    pub(crate) const fn is_pause_frame(&self) -> bool {
        self.has(flag::PAUSE | flag::RESUME)
    }
    #[inline(always)]
    pub(crate) const fn is_probe(&self) -> bool {
        self.has(flag::TRIMMED) && self.has(flag::PROBE) && !self.is_acknowledgement()
    }
    #[inline(always)]
    pub(crate) const fn is_acknowledgement(&self) -> bool {
        self.has(flag::ACKNOWLEDGEMENT)
    }
}

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
    fn packet_takes_16_bytes() {
        assert_eq!(size_of::<Packet>(), 16);
    }

    proptest! {
        #[test]
        fn packet_fields_do_not_overlap(
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
