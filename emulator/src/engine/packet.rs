//! A packet on its way: 24 bytes, plain, copied from queue to queue.

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
}

/// A packet between two vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// When its last bit arrives at the next vertex, in picoseconds.
    pub(crate) time: u64,
    /// Who it is for: the receiving end of a flow for data, the sending end for an
    /// acknowledgement, as an index in the arrays of the shard where that end lives.
    pub(crate) endpoint: u32,
    /// Where in the route table the rest of its way begins.
    pub(crate) cursor: u32,
    /// Data: number of the packet in its flow. Acknowledgement: the lowest number not received.
    pub(crate) sequence: u32,
    /// Data: size on the wire in bytes. Acknowledgement: how far the packet that it answers lies
    /// beyond `sequence`, plus one; zero when it does not.
    pub(crate) extra: u16,
    /// See [`flag`].
    pub(crate) flags: u16,
}

impl Packet {
    pub(crate) const fn is_acknowledgement(&self) -> bool {
        self.flags & flag::ACKNOWLEDGEMENT != 0
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_packet_takes_24_bytes() {
        assert_eq!(size_of::<super::Packet>(), 24);
    }
}
