// SPDX-License-Identifier: Apache-2.0
//! Finds what is lost among the last packets of a flow, which no later packet tells of, before the timeout does.
//!
//! After the tail loss probe of RFC 8985: in silence the last packet goes again, by another path where the flow has
//! several; and once more if the silence goes on, until the timeout. When it is answered, a round trip and the silence have passed since everything else was sent.

/// A sender's probe of its tail.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    /// The silence after which it asks; [`u64::MAX`]: never.
    silence: u64,
    /// When it asks next; [`u64::MAX`]: nothing is in flight, or it has asked since it heard something.
    pub(super) due: u64,
    /// The packet that is to go again.
    asked: Option<u32>,
    /// The packet that went again and was not heard of yet.
    out: Option<u32>,
}

impl Tail {
    pub(super) const fn new(silence: Option<u64>) -> Self {
        let silence = match silence {
            Some(silence) => silence,
            None => u64::MAX,
        };
        Self { silence, due: u64::MAX, asked: None, out: None }
    }

    /// A packet leaves.
    #[inline]
    pub(super) fn sent(&mut self, now: u64) {
        if self.silence != u64::MAX {
            self.due = now + self.silence;
        }
    }

    /// Something was heard.
    #[inline]
    pub(super) fn heard(&mut self, now: u64) {
        if self.silence != u64::MAX {
            (self.due, self.asked) = (now + self.silence, None);
        }
    }

    /// Whether it ever asks.
    pub(super) const fn asks(&self) -> bool {
        self.silence != u64::MAX
    }

    /// Nothing is in flight, or all of it counts as lost.
    pub(super) fn rest(&mut self) {
        (self.due, self.asked, self.out) = (u64::MAX, None, None);
    }

    /// The silence is over: this packet is to go again.
    pub(super) fn ask(&mut self, last: Option<u32>) {
        (self.due, self.asked) = (u64::MAX, last);
    }

    #[inline]
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// The packet that goes again now.
    pub(super) fn go(&mut self) -> Option<u32> {
        let asked = self.asked.take()?;
        self.out = Some(asked);
        Some(asked)
    }

    /// Whether the packet with this number, which arrived beyond a gap, is the one that went again.
    pub(super) fn is_answered(&mut self, arrived: u32) -> bool {
        let answered = self.out == Some(arrived);
        if answered {
            self.out = None;
        }
        answered
    }
}
