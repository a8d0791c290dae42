// SPDX-License-Identifier: Apache-2.0

use super::packet::Packet;
use super::ring::FifoTail;

/// Accepts the packets of a port in the order of their arrival times.
pub(crate) trait Sink {
    fn take(&mut self, packet: Packet);
}

impl Sink for FifoTail<'_> {
    #[inline(always)]
    fn take(&mut self, packet: Packet) {
        self.push(packet);
    }
}

impl Sink for Vec<Packet> {
    #[inline(always)]
    fn take(&mut self, packet: Packet) {
        self.push(packet);
    }
}
