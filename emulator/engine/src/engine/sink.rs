// SPDX-License-Identifier: Apache-2.0
//! Where a port puts what it sends.

use super::packet::Packet;
use super::ring::FifoTail;

/// Takes packets one after the other, in order of their arrival.
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
