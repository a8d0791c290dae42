// SPDX-License-Identifier: Apache-2.0
//! What the sending end does about paths that lose packets.

use super::Sender;

impl Sender {
    /// The path of a packet that is sent again is one on which packets are lost.
    pub(super) fn count_lost(&mut self, now: u64, sequence: u32) {
        if let Some(balancer) = &mut self.balancer {
            balancer.lost(now, sequence);
        }
    }

    /// Whether the loss of this packet is taken for a failure of its path: congestion shows in marks, delays and trims.
    pub(super) fn blames_path(&self, sequence: u32) -> bool {
        self.switches_choose
            || self.balancer.as_ref().is_some_and(|balancer| balancer.blames_path(sequence))
    }

    /// Takes the paths of everything in flight out of use, where each loss does that. Returns whether that was any: then
    /// the timeout says nothing of congestion.
    pub(super) fn retire_unheard(&mut self, now: u64) -> bool {
        let Some(balancer) = self.balancer.as_mut().filter(|balancer| balancer.retires()) else {
            return false;
        };
        let before = balancer.retired();
        for sequence in self.acked..self.next {
            if !self.held.contains(sequence) {
                balancer.lost(now, sequence);
            }
        }
        balancer.retired() > before
    }
}
