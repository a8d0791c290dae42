// SPDX-License-Identifier: Apache-2.0
//! The transport of flows: packets, windows, acknowledgements and loss recovery.
//!
//! Both ends of a flow are state machines without a clock. The engine passes them arrivals with
//! times and asks the sender for the next packet. They have no access to links or queues.

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
pub(crate) use congestion::{Came, CongestionController, IdlePath, PortLoad};
pub(crate) use lane::SenderLane;
pub(crate) use receiver::Receiver;
pub(crate) use sender::{Load, Outgoing, Sender};
pub(crate) use sequence_set::SequenceSet;
pub(crate) use timer::RetransmissionTimer;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossRecovery {
    /// The receiver drops out-of-order packets, and the sender resends from the gap on (like early RoCEv2 adapters).
    #[default]
    GoBackN,
    /// The receiver keeps out-of-order packets. A packet is resent once a packet sent `reordering`
    /// packets later has arrived.
    SelectiveRepeat { reordering: Reordering },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reordering {
    /// Should be 1 if every flow uses a single path.
    Packets(u32),
    /// A percentage of the window, since reordering between unequal queues grows with the window.
    WindowPercent(u32),
}

/// Acknowledgements have 16 bits for the distance between the first missing packet and a later one.
const MOST_REORDERING: u64 = 1 << 15;

impl Reordering {
    pub fn packets(self, window: u32) -> u32 {
        match self {
            Self::Packets(packets) => packets,
            Self::WindowPercent(percent) => {
                (u64::from(window) * u64::from(percent) / 100).clamp(1, MOST_REORDERING) as u32
            }
        }
    }
}

/// Limit on a flow's unacknowledged packets, also for congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    Packets(u32),
    /// A percentage of the idle path's bandwidth-delay product (round-trip time times lowest rate), in whole packets.
    BandwidthDelay {
        /// 100 exactly fills the path.
        percent: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    pub payload: Bytes,
    pub header: Bytes,
    pub acknowledgement: Bytes,
    pub window: Window,
    pub congestion: CongestionControl,
    /// All schemes except [`Balance::PerFlow`] reorder packets and need [`LossRecovery::SelectiveRepeat`].
    pub balance: Balance,
    /// Interfaces over which a flow leaves its host. [`FlowInterfaces::All`] also reorders packets.
    pub interfaces: FlowInterfaces,
    pub recovery: LossRecovery,
    /// After this time without progress, everything in flight is treated as lost. With `None`, the timeout follows
    /// measured round trips (RFC 6298), with a minimum of [`CongestionControl::least_timeout`]. Repeated timeouts
    /// double it up to 64-fold, unless retransmissions may take other paths ([`Balance::spreads_packets`]).
    pub timeout: Option<Picoseconds>,
    /// Tail loss probe for selective repeat (modelled on RFC 8985). If nothing is sent for two round trips, and
    /// for at least this time, the sender repeats the last packet. Its acknowledgement reveals earlier losses.
    pub tail_probe: Option<Picoseconds>,
}

impl Default for Transport {
    /// Go-back-N, a window that exactly fills the path, and 4,096-byte packets that include 64 bytes of headers.
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
    pub const fn backs_off(&self) -> bool {
        !self.balance.spreads_packets()
    }
    /// Returns whether acknowledgements take their packet's path, so that a dark path loses only its own.
    pub const fn answers_by_path(&self) -> bool {
        matches!(self.interfaces, FlowInterfaces::All) || self.balance.paths() > 1
    }
    pub fn packet(&self) -> Bytes {
        self.payload + self.header
    }
    /// At least one; the last packet may be short.
    pub fn packets_for(&self, size: Bytes) -> u64 {
        size.0.div_ceil(self.payload.0).max(1)
    }
    pub fn last_packet(&self, size: Bytes) -> Bytes {
        let rest = size.0 - (self.packets_for(size) - 1) * self.payload.0;
        Bytes(rest) + self.header
    }
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
