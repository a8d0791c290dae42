// SPDX-License-Identifier: Apache-2.0
//! How flows are sent: in packets, under a window, acknowledged one by one, repaired when lost.
//!
//! Both ends are plain state machines without a clock: the engine tells them what arrived and when,
//! and asks the sending end what to send next. They know nothing of links or queues.

mod balance;
mod congestion;
mod lane;
mod receiver;
mod sender;
mod sequence_set;
mod timer;

use lightloom_units::{Bytes, Picoseconds};

pub use balance::{Balance, FlowInterfaces};
pub use congestion::*;

pub(crate) use balance::Balancer;
pub(crate) use congestion::{Came, CongestionController, IdlePath};
pub(crate) use lane::SenderLane;
pub(crate) use receiver::Receiver;
pub(crate) use sender::{Load, Outgoing, Sender};
pub(crate) use sequence_set::SequenceSet;
pub(crate) use timer::RetransmissionTimer;

/// How lost packets are found and sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossRecovery {
    /// The receiver drops what comes out of order and reports the gap; the sender goes back to it
    /// and sends everything from there on again (as RoCEv2 adapters did first).
    GoBackN,
    /// The receiver keeps what comes out of order and each acknowledgement names the packet it
    /// answers. A packet is sent again once another, sent `reordering` packets later, has arrived.
    SelectiveRepeat {
        /// How far packets may overtake each other.
        reordering: Reordering,
    },
}

/// How far packets of one flow may overtake each other before one of them counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reordering {
    /// So many packets; 1 where every flow keeps to one path.
    Packets(u32),
    /// Of the window, in percent: how far packets get that wait in queues while others do not grows with it.
    WindowPercent(u32),
}

/// What overtakes others by more counts as lost, however large the window: acknowledgements say in 16 bits how far beyond
/// the first missing packet another one came.
const MOST_REORDERING: u64 = 1 << 15;

impl Reordering {
    /// In packets, at least one, for a flow with this window.
    #[must_use]
    pub fn packets(self, window: u32) -> u32 {
        match self {
            Self::Packets(packets) => packets,
            Self::WindowPercent(percent) => {
                (u64::from(window) * u64::from(percent) / 100).clamp(1, MOST_REORDERING) as u32
            }
        }
    }
}

/// How many packets of a flow may be unacknowledged at most; congestion control stays below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// So many, always.
    Packets(u32),
    /// What fills the path when no other flow uses it, in percent: round-trip time of one packet and
    /// its acknowledgement times the slowest rate, rounded up to whole packets.
    BandwidthDelay {
        /// 100 just fills the path.
        percent: u32,
    },
}

/// The sizes of packets and how they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Data in a full packet.
    pub payload: Bytes,
    /// What a data packet occupies on a link beyond its data.
    pub header: Bytes,
    /// What an acknowledgement occupies on a link.
    pub acknowledgement: Bytes,
    /// How much may be in flight at most.
    pub window: Window,
    /// How the flow reacts to what it meets.
    pub congestion: CongestionControl,
    /// Over how many paths a flow is spread. Everything but [`Balance::PerFlow`] lets packets overtake
    /// each other and wants [`LossRecovery::SelectiveRepeat`].
    pub balance: Balance,
    /// By how many interfaces of its host a flow leaves. With [`FlowInterfaces::All`] packets overtake each other too.
    pub interfaces: FlowInterfaces,
    /// What happens after a loss.
    pub recovery: LossRecovery,
    /// After this time without progress, everything in flight counts as lost. `None`: from measured round trips (RFC 6298), at
    /// least [`CongestionControl::least_timeout`]. Doubles with every repetition, up to 64-fold, unless each packet may take another path ([`Balance::spreads_packets`]): what is
    /// sent again then goes another way, and waiting longer says nothing.
    pub timeout: Option<Picoseconds>,
    /// With packets in flight and nothing sent or heard for so long, and for two round trips, the last one goes again. When it is answered, what
    /// is still missing before it counts as lost (after the tail loss probe of RFC 8985). For selective repeat.
    pub tail_probe: Option<Picoseconds>,
}

impl Default for Transport {
    /// 4,096-byte packets with 64 bytes of headers in them, a window that just fills the path,
    /// go-back-N.
    fn default() -> Self {
        Self {
            payload: Bytes(4_032),
            header: Bytes(64),
            acknowledgement: Bytes(64),
            window: Window::BandwidthDelay { percent: 100 },
            congestion: CongestionControl::FixedWindow,
            balance: Balance::PerFlow,
            interfaces: FlowInterfaces::One,
            recovery: LossRecovery::GoBackN,
            timeout: None,
            tail_probe: None,
        }
    }
}

impl Transport {
    /// Whether timeouts in a row take longer each time.
    #[must_use]
    pub const fn backs_off(&self) -> bool {
        !self.balance.spreads_packets()
    }
    /// Whether each acknowledgement goes back the way that its packet came: flows have several paths, and one that is
    /// dark then costs what went by it and no answers of others.
    #[must_use]
    pub const fn answers_by_path(&self) -> bool {
        matches!(self.interfaces, FlowInterfaces::All) || self.balance.paths() > 1
    }
    /// A full data packet on the wire.
    #[must_use]
    pub fn packet(&self) -> Bytes {
        self.payload + self.header
    }
    /// Packets that carry `size`: at least one, the last one possibly short.
    #[must_use]
    pub fn packets_for(&self, size: Bytes) -> u64 {
        size.0.div_ceil(self.payload.0).max(1)
    }
    /// The last packet of a message of `size`, on the wire.
    #[must_use]
    pub fn last_packet(&self, size: Bytes) -> Bytes {
        let rest = size.0 - (self.packets_for(size) - 1) * self.payload.0;
        Bytes(rest) + self.header
    }
    /// What `size` bytes of data occupy on a link, headers included.
    #[must_use]
    pub fn wire_bytes(&self, size: Bytes) -> Bytes {
        size + self.header * self.packets_for(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_split_into_full_packets_and_a_remainder() {
        let transport = Transport::default();
        assert_eq!(transport.packets_for(Bytes(4_032)), 1);
        assert_eq!(transport.last_packet(Bytes(4_032)), Bytes(4_096));
        assert_eq!(transport.packets_for(Bytes(4_033)), 2);
        assert_eq!(transport.last_packet(Bytes(4_033)), Bytes(65));
        assert_eq!(transport.wire_bytes(Bytes(4_033)), Bytes(4_033 + 128));
        assert_eq!(transport.last_packet(Bytes(0)), Bytes(64), "an empty message is one packet");
    }
}
