// SPDX-License-Identifier: Apache-2.0
//! Packets of which only the header arrived: those to resend, and those resent but not yet answered.

use std::collections::VecDeque;

#[derive(Clone, Debug, Default)]
pub(super) struct Trims {
    waiting: VecDeque<u32>,
    resent: VecDeque<Resent>,
}

#[derive(Clone, Copy, Debug)]
struct Resent {
    sequence: u32,
    /// The first new packet sent after it.
    next: u32,
}

impl Trims {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.resent.is_empty()
    }

    pub(super) fn waiting(&self) -> u32 {
        self.waiting.len() as u32
    }

    pub(super) fn waits(&self, sequence: u32) -> bool {
        self.waiting.contains(&sequence)
    }

    pub(super) fn contains(&self, sequence: u32) -> bool {
        self.waits(sequence) || self.resent.iter().any(|resent| resent.sequence == sequence)
    }

    pub(super) fn add(&mut self, sequence: u32) {
        self.resent.retain(|resent| resent.sequence != sequence);
        self.waiting.push_back(sequence);
    }

    /// Returns the packet to resend before the new packet `next`.
    pub(super) fn resend(&mut self, next: u32) -> Option<u32> {
        let sequence = self.waiting.pop_front()?;
        self.resent.push_back(Resent { sequence, next });
        Some(sequence)
    }

    /// Returns a packet that was resent before `number` was sent, and adds it again.
    pub(super) fn overdue(&mut self, number: u32) -> Option<u32> {
        let resent = *self.resent.front().filter(|resent| resent.next <= number)?;
        self.resent.pop_front();
        self.waiting.push_back(resent.sequence);
        Some(resent.sequence)
    }

    pub(super) fn forget(&mut self, is_gone: impl Fn(u32) -> bool) {
        self.waiting.retain(|sequence| !is_gone(*sequence));
        self.resent.retain(|resent| !is_gone(resent.sequence));
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.resent.clear();
    }
}
