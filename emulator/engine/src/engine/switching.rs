// SPDX-License-Identifier: Apache-2.0
//! When a switch starts to send a packet: once it has fully arrived, or once its header has.
//!
//! ```text
//!   store and forward   departure = max(last bit in, port free) + size/rate
//!   cut through         departure = max(last bit in − (size − header)/rate in, port free) + size/rate
//! ```
//! Cut-through requires that the output is not faster than the input, so the last bit never leaves
//! before it has arrived. Packets sent within a window therefore still arrive after the window.

use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};

/// In both modes, packets for a port leave in the order in which their last bits arrive, and the
/// backlog at that time decides whether they are dropped or marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Switching {
    #[default]
    StoreAndForward,
    /// Once the header ([`Transport::header`](crate::transport::Transport::header), at least 1 B)
    /// has arrived, if the port is free and not faster than the incoming link. With bounded queues,
    /// only packets that find the port free cut through.
    CutThrough,
}

impl Switching {
    pub(super) fn head_start(
        self,
        comes: BitsPerSecond,
        leaves: BitsPerSecond,
        size: Bytes,
        header: Bytes,
    ) -> Picoseconds {
        if self == Self::StoreAndForward || leaves > comes {
            return Picoseconds::ZERO;
        }
        let header = header.max(Bytes(1)).min(size);
        Picoseconds(comes.time_for(size).0 - comes.time_for(header).0)
    }
}
