// SPDX-License-Identifier: Apache-2.0
//! When a switch begins to send a packet: when all of it has come in, or when its header has.
//!
//! ```text
//!   store and forward   departure = max(last bit in, port free) + size/rate
//!   cut through         departure = max(last bit in − (size − header)/rate in, port free) + size/rate
//! ```
//! The second holds where the output is not faster than the input, so the last bit never leaves before it
//! has come in: what a window sends still arrives after the window.

use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};

/// When a switch may begin to send a packet.
///
/// Packets for one port go in the order in which their last bits come in, and are dropped and marked by
/// what stands before them then, whichever is chosen: a switch that cuts through only begins earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Switching {
    /// When the last bit is in.
    #[default]
    StoreAndForward,
    /// When the header ([`Transport::header`](crate::transport::Transport::header), at least 1 B and at most
    /// the packet) is in and the port is free, if the port is not faster than the link by which the packet
    /// comes; otherwise when the last bit is in. With real queues only a packet that finds the port free does so.
    CutThrough,
}

impl Switching {
    /// How long before the last bit of a packet is in a switch may begin to send it, when it `comes` and
    /// `leaves` at these rates.
    pub(super) fn head_start(
        self,
        (comes, leaves): (BitsPerSecond, BitsPerSecond),
        (size, header): (Bytes, Bytes),
    ) -> Picoseconds {
        if self == Self::StoreAndForward || leaves > comes {
            return Picoseconds::ZERO;
        }
        let header = header.max(Bytes(1)).min(size);
        Picoseconds(comes.time_for(size).0 - comes.time_for(header).0)
    }
}
