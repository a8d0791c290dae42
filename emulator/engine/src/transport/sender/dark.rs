// SPDX-License-Identifier: Apache-2.0

use super::Sender;

impl Sender {
    pub(super) fn count_lost(&mut self, now: u64, sequence: u32) {
        if let Some(balancer) = &mut self.balancer {
            balancer.lost(now, sequence);
        }
    }

    /// Returns whether a loss indicates a faulty path, because congestion causes marks, delays and trimming instead.
    pub(super) fn blames_path(&self, sequence: u32) -> bool {
        self.switches_choose
            || self.balancer.as_ref().is_some_and(|balancer| balancer.blames_path(sequence))
    }

    /// Retires paths without responses. Returns whether there were any; the timeout is then not a sign of congestion.
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
