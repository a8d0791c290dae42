//! A packet on its way: 24 bytes, plain, copied from queue to queue.

use super::queueing::CONTROL_PRIORITY;

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
    /// Asks the port it arrives at to pause a priority; `sequence` is the priority, `endpoint` the
    /// port.
    pub(crate) const PAUSE: u16 = 1 << 6;
    /// Lets it go on.
    pub(crate) const RESUME: u16 = 1 << 7;
    /// Where the priority of data stands, three bits.
    pub(crate) const PRIORITY_SHIFT: u32 = 8;
}

/// A packet between two vertices.
///
/// Three words and no more: the engine moves packets in registers, and a field written on its own
/// would have to go through memory before the whole can be copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packet {
    /// When its last bit arrives at the next vertex, in picoseconds.
    pub(crate) time: u64,
    /// Lower half: where in the route table the rest of its way begins. Upper half: who it is for,
    /// the receiving end of a flow for data, the sending end for an acknowledgement, as an index in
    /// the arrays of the shard where that end lives.
    way: u64,
    /// Lower half: the number. Then 16 bits of size or distance, then 16 bits of [`flag`].
    what: u64,
}

/// A packet's contents, for making one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents {
    pub(crate) endpoint: u32,
    pub(crate) cursor: u32,
    /// Data: number of the packet in its flow. Acknowledgement: the lowest number not received.
    pub(crate) sequence: u32,
    /// Data: size on the wire in bytes. Acknowledgement: how far the packet that it answers lies
    /// beyond `sequence` after a gap, before `sequence - 1` otherwise.
    pub(crate) extra: u16,
    pub(crate) flags: u16,
}

impl Packet {
    pub(crate) const fn new(contents: Contents) -> Self {
        let Contents { endpoint, cursor, sequence, extra, flags } = contents;
        Self {
            time: 0,
            way: (endpoint as u64) << 32 | cursor as u64,
            what: (flags as u64) << 48 | (extra as u64) << 32 | sequence as u64,
        }
    }
    #[inline(always)]
    pub(crate) const fn endpoint(&self) -> u32 {
        (self.way >> 32) as u32
    }
    #[inline(always)]
    pub(crate) const fn cursor(&self) -> u32 {
        self.way as u32
    }
    /// The packet one hop on.
    #[inline(always)]
    pub(crate) const fn advanced(self) -> Self {
        Self { way: self.way + 1, ..self }
    }
    #[inline(always)]
    pub(crate) const fn sequence(&self) -> u32 {
        self.what as u32
    }
    #[inline(always)]
    pub(crate) const fn extra(&self) -> u16 {
        (self.what >> 32) as u16
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
        self.what & (flag as u64) << 48 != 0
    }
    /// The packet arriving at `time`, marked if `marked`.
    #[inline(always)]
    pub(crate) const fn sent(self, time: u64, marked: bool) -> Self {
        let mark = (marked as u64) << (48 + flag::MARKED.trailing_zeros());
        Self { time, way: self.way, what: self.what | mark }
    }
    /// The packet arriving at `time`.
    #[inline(always)]
    pub(crate) const fn at(self, time: u64) -> Self {
        Self { time, ..self }
    }
    /// The packet with the place it came in by where its time was.
    #[inline(always)]
    pub(crate) const fn came_by(self, place: u32) -> Self {
        Self { time: place as u64, ..self }
    }
    /// Its priority: data has that of its flow, all else the control priority.
    #[inline(always)]
    pub(crate) const fn priority(&self) -> u8 {
        if self.has(flag::ACKNOWLEDGEMENT | flag::TRIMMED) {
            CONTROL_PRIORITY
        } else {
            (self.what >> (48 + flag::PRIORITY_SHIFT)) as u8 & CONTROL_PRIORITY
        }
    }
    /// The packet cut to a header of `bytes`.
    pub(crate) const fn trimmed(self, bytes: u16) -> Self {
        let rest = self.what & !(0xFFFF << 32);
        let what = rest | (bytes as u64) << 32 | (flag::TRIMMED as u64) << 48;
        Self { what, ..self }
    }
    /// A pause frame: what it asks of which port for which priority.
    pub(crate) const fn is_pause_frame(&self) -> bool {
        self.has(flag::PAUSE | flag::RESUME)
    }
    #[inline(always)]
    pub(crate) const fn is_acknowledgement(&self) -> bool {
        self.what >> 48 & flag::ACKNOWLEDGEMENT as u64 != 0
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_packet_takes_24_bytes() {
        assert_eq!(size_of::<super::Packet>(), 24);
    }
}
