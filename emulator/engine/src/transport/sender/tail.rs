// SPDX-License-Identifier: Apache-2.0
//! Detects losses among a flow's last packets before the timeout, because no later packet reveals them.
//!
//! Follows the tail loss probe of RFC 8985. After some time without responses, the last packet is resent (over another
//! path if there are several), and this repeats until the timeout. By the time it is acknowledged, a round trip and
//! this time have passed since all other packets were sent.

#[derive(Clone, Debug, Default)]
pub(super) struct TailProbe(Option<Box<Asking>>);

#[derive(Clone, Copy, Debug)]
struct Asking {
    silence: u64,
    least: u64,
    /// [`u64::MAX`] if nothing is in flight or no response has arrived since the last probe.
    due: u64,
    asked: Option<u32>,
    out: Option<u32>,
}

impl TailProbe {
    pub(super) fn new(silence: Option<u64>) -> Self {
        Self(silence.map(|least| {
            Box::new(Asking { silence: least, least, due: u64::MAX, asked: None, out: None })
        }))
    }

    pub(super) fn take_round_trip(&mut self, round_trip: u64) {
        if let Some(tail) = &mut self.0 {
            tail.silence = tail.least.max(2 * round_trip);
        }
    }

    #[inline(always)]
    pub(super) fn sent(&mut self, now: u64) {
        if let Some(tail) = &mut self.0 {
            tail.due = now + tail.silence;
        }
    }

    #[inline(always)]
    pub(super) fn heard(&mut self, now: u64) {
        if let Some(tail) = &mut self.0 {
            (tail.due, tail.asked) = (now + tail.silence, None);
        }
    }

    pub(super) const fn asks(&self) -> bool {
        self.0.is_some()
    }

    #[inline(always)]
    pub(super) fn due(&self) -> u64 {
        self.0.as_ref().map_or(u64::MAX, |tail| tail.due)
    }

    #[inline(always)]
    pub(super) fn rest(&mut self) {
        if let Some(tail) = &mut self.0 {
            (tail.due, tail.asked, tail.out) = (u64::MAX, None, None);
        }
    }

    pub(super) fn ask(&mut self, last: Option<u32>) {
        if let Some(tail) = &mut self.0 {
            (tail.due, tail.asked) = (u64::MAX, last);
        }
    }

    #[inline(always)]
    pub(super) fn is_asked(&self) -> bool {
        self.0.as_ref().is_some_and(|tail| tail.asked.is_some())
    }

    pub(super) fn go(&mut self) -> Option<u32> {
        let tail = self.0.as_mut()?;
        let asked = tail.asked.take()?;
        tail.out = Some(asked);
        Some(asked)
    }

    #[inline(always)]
    pub(super) fn is_answered(&mut self, arrived: u32) -> bool {
        let Some(tail) = self.0.as_mut().filter(|tail| tail.out == Some(arrived)) else {
            return false;
        };
        tail.out = None;
        true
    }
}
