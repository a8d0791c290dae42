// SPDX-License-Identifier: Apache-2.0
//! DCQCN: a rate per flow, cut by congestion notifications and raised by timer and byte counter.
//!
//! Zhu et al.: "Congestion control for large-scale RDMA deployments", SIGCOMM 2015, section 3.2 and
//! figure 5. A notification sets the target to the current rate, cuts the current rate by `α/2` and
//! raises `α`; without one `α` decays every `alpha_timer`. Timer and byte counter each count steps since
//! the last cut: the first `fast_steps` of either go halfway to the target, later ones raise the target by
//! `additive` and, once both are past them, by `hyper`. Notifications are taken from acknowledgements
//! of marked packets, at most one every `notification_interval` a flow, instead of packets of their own.

use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};

use super::{Feedback, IdlePath};

const LEAST_RATE: f64 = 10e6;
/// The paper's 40 and 200 Mb/s are these parts of its 40 Gb/s.
const ADDITIVE_SHARE: f64 = 1_000.0;
const HYPER_SHARE: f64 = 200.0;

/// DCQCN's settings; the defaults are the paper's (section 5, table 1 there), whose steps of 40 and 200 Mb/s are meant for
/// 40 Gb/s and grow here with the rate of the flow's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dcqcn {
    /// `1/g`.
    pub inverse_gain: u32,
    /// At most one notification in this time.
    pub notification_interval: Picoseconds,
    /// Of rate increase.
    pub timer: Picoseconds,
    /// Of the decay of `α`. `None`: `timer`, as in the paper.
    pub alpha_timer: Option<Picoseconds>,
    /// Steps that go halfway to the target before it is raised.
    pub fast_steps: u32,
    /// Of the byte counter.
    pub byte_counter: Bytes,
    /// Additive increase of the target. `None`: a thousandth of the rate of the flow's interface.
    pub additive: Option<BitsPerSecond>,
    /// Hyper increase of the target. `None`: a two-hundredth of it.
    pub hyper: Option<BitsPerSecond>,
}

impl Default for Dcqcn {
    fn default() -> Self {
        Self {
            inverse_gain: 256,
            notification_interval: Picoseconds::from_micros(50),
            timer: Picoseconds::from_micros(55),
            alpha_timer: None,
            fast_steps: 5,
            byte_counter: Bytes(10_000_000),
            additive: None,
            hyper: None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct State {
    settings: Dcqcn,
    /// Bits per second.
    current: f64,
    target: f64,
    line: f64,
    additive: f64,
    hyper: f64,
    alpha: f64,
    last_notification: Option<u64>,
    alpha_timer: u64,
    rate_timer: u64,
    /// Before this neither timer runs out; [`u64::MAX`]: there was no notification yet.
    timers_due: u64,
    timer_steps: u32,
    byte_steps: u32,
    bytes: u64,
    pub(super) next_send: u64,
}

impl State {
    pub(super) fn new(settings: Dcqcn, path: IdlePath) -> Self {
        let line = path.rate.get() as f64;
        Self {
            settings,
            current: line,
            target: line,
            line,
            additive: settings.additive.map_or(line / ADDITIVE_SHARE, |rate| rate.get() as f64),
            hyper: settings.hyper.map_or(line / HYPER_SHARE, |rate| rate.get() as f64),
            alpha: 1.0,
            last_notification: None,
            alpha_timer: 0,
            rate_timer: 0,
            timers_due: u64::MAX,
            timer_steps: 0,
            byte_steps: 0,
            bytes: 0,
            next_send: 0,
        }
    }

    /// The rate as of the last time that anything was asked of it, in bits per second.
    pub(super) fn pace(&self) -> u64 {
        self.current as u64
    }

    pub(super) fn acknowledged(&mut self, feedback: Feedback) {
        self.run_timers(feedback.now);
        let interval = self.settings.notification_interval.get();
        let due = |last| feedback.now >= last + interval;
        if feedback.marked && self.last_notification.is_none_or(due) {
            self.notified(feedback.now);
        }
    }

    fn notified(&mut self, now: u64) {
        self.last_notification = Some(now);
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(LEAST_RATE);
        let gain = self.gain();
        self.alpha = (1.0 - gain) * self.alpha + gain;
        (self.alpha_timer, self.rate_timer) = (now, now);
        (self.timer_steps, self.byte_steps, self.bytes) = (0, 0, 0);
        self.set_timers_due();
    }

    pub(super) fn sent(&mut self, now: u64, wire_bytes: u16) {
        self.run_timers(now);
        if self.last_notification.is_some() {
            self.bytes += u64::from(wire_bytes);
            if self.bytes >= self.settings.byte_counter.get() {
                self.bytes = 0;
                self.byte_steps += 1;
                self.raise();
            }
        }
        if self.current < self.line {
            let gap = f64::from(wire_bytes) * 8e12 / self.current;
            self.next_send = self.next_send.max(now) + gap as u64;
        }
    }

    /// Does what the timers would have done since they last ran: the rate was not read meanwhile.
    #[inline]
    fn run_timers(&mut self, now: u64) {
        if now >= self.timers_due {
            self.run_due_timers(now);
        }
    }

    fn run_due_timers(&mut self, now: u64) {
        let decays = now.saturating_sub(self.alpha_timer) / self.alpha_period();
        self.alpha_timer += decays * self.alpha_period();
        let gain = self.gain();
        for _ in 0..decays {
            self.alpha *= 1.0 - gain;
        }
        let period = self.settings.timer.get();
        while now >= self.rate_timer + period {
            self.rate_timer += period;
            self.timer_steps += 1;
            self.raise();
        }
        self.set_timers_due();
    }

    fn set_timers_due(&mut self) {
        let alpha_due = self.alpha_timer + self.alpha_period();
        self.timers_due = alpha_due.min(self.rate_timer + self.settings.timer.get());
    }

    fn alpha_period(&self) -> u64 {
        self.settings.alpha_timer.unwrap_or(self.settings.timer).get()
    }

    fn gain(&self) -> f64 {
        1.0 / f64::from(self.settings.inverse_gain)
    }

    fn raise(&mut self) {
        let (most, least) =
            (self.timer_steps.max(self.byte_steps), self.timer_steps.min(self.byte_steps));
        if least > self.settings.fast_steps {
            self.target += self.hyper;
        } else if most > self.settings.fast_steps {
            self.target += self.additive;
        }
        self.target = self.target.min(self.line);
        self.current = (self.current + self.target) / 2.0;
        if self.line - self.current < LEAST_RATE {
            self.current = self.line;
        }
    }
}
