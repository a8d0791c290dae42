// SPDX-License-Identifier: Apache-2.0
//! Finds what is lost among the last packets of a flow, which no later packet tells of, before the timeout does.
//!
//! After the tail loss probe of RFC 8985: in silence the last packet goes again, by another path where the flow has
//! several; and once more if the silence goes on, until the timeout. When it is answered, a round trip and the silence have passed since everything else was sent.

/// A sender's probe of its tail; nothing where it never asks, which is most senders.
#[derive(Clone, Debug)]
pub(super) struct TailProbe(Option<Box<Asking>>);

#[derive(Clone, Copy, Debug)]
struct Asking {
    /// Silence before a probe, and its minimum.
    silence: u64,
    least: u64,
    /// When it asks next; [`u64::MAX`]: nothing is in flight, or it has asked since it heard something.
    due: u64,
    /// The packet that is to go again.
    asked: Option<u32>,
    /// The packet that went again and was not heard of yet.
    out: Option<u32>,
}

impl TailProbe {
    pub(super) fn new(silence: Option<u64>) -> Self {
        let asking =
            |least| Asking { silence: least, least, due: u64::MAX, asked: None, out: None };
        Self(silence.map(|least| Box::new(asking(least))))
    }

    /// Sets the silence to two round trips, at least the minimum.
    pub(super) fn take_round_trip(&mut self, round_trip: u64) {
        if let Some(tail) = &mut self.0 {
            tail.silence = tail.least.max(2 * round_trip);
        }
    }

    /// A packet leaves.
    #[inline(always)]
    pub(super) fn sent(&mut self, now: u64) {
        if let Some(tail) = &mut self.0 {
            tail.due = now + tail.silence;
        }
    }

    /// Something was heard.
    #[inline(always)]
    pub(super) fn heard(&mut self, now: u64) {
        if let Some(tail) = &mut self.0 {
            (tail.due, tail.asked) = (now + tail.silence, None);
        }
    }

    /// Whether it ever asks.
    pub(super) const fn asks(&self) -> bool {
        self.0.is_some()
    }

    /// When it asks next; [`u64::MAX`]: not before something is sent or heard.
    #[inline(always)]
    pub(super) fn due(&self) -> u64 {
        self.0.as_ref().map_or(u64::MAX, |tail| tail.due)
    }

    /// Nothing is in flight, or all of it counts as lost.
    #[inline(always)]
    pub(super) fn rest(&mut self) {
        if let Some(tail) = &mut self.0 {
            (tail.due, tail.asked, tail.out) = (u64::MAX, None, None);
        }
    }

    /// The silence is over: this packet is to go again.
    pub(super) fn ask(&mut self, last: Option<u32>) {
        if let Some(tail) = &mut self.0 {
            (tail.due, tail.asked) = (u64::MAX, last);
        }
    }

    #[inline(always)]
    pub(super) fn is_asked(&self) -> bool {
        self.0.as_ref().is_some_and(|tail| tail.asked.is_some())
    }

    /// The packet that goes again now.
    pub(super) fn go(&mut self) -> Option<u32> {
        let tail = self.0.as_mut()?;
        let asked = tail.asked.take()?;
        tail.out = Some(asked);
        Some(asked)
    }

    /// Whether the packet with this number, which arrived beyond a gap, is the one that went again.
    #[inline(always)]
    pub(super) fn is_answered(&mut self, arrived: u32) -> bool {
        let Some(tail) = self.0.as_mut().filter(|tail| tail.out == Some(arrived)) else {
            return false;
        };
        tail.out = None;
        true
    }
}
