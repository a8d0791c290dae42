// SPDX-License-Identifier: Apache-2.0
//! DCQCN: congestion notifications cut a flow's rate; a timer and a byte counter raise it.
//!
//! Zhu et al.: "Congestion control for large-scale RDMA deployments", SIGCOMM 2015, section 3.2 and figure 5. A
//! notification sets the target to the current rate, cuts the current rate by `α/2` and raises `α`. Without
//! notifications, `α` decays every `alpha_timer`. The timer and the byte counter each count steps since the last cut.
//! The first `fast_steps` steps of either counter each close half the gap to the target. Later steps raise the target
//! by `additive` or, once both counters are past that number, by `hyper`. Notifications are derived from
//! acknowledgements of marked packets, at most one per `notification_interval` and flow, rather than sent as packets.
//! Marks within an interval cause a notification at its end.
//!
//! Real adapters, and simulators modelled on them, behave differently (`decrease_interval`). The
//! first notification only starts the timers. Then the rate is cut after every `decrease_interval`
//! with a notification, and every `alpha_timer` raises `α` if there was a notification and lowers
//! it otherwise. The target follows a cut only if the rate has been raised since the previous one.

use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};

use super::{Feedback, IdlePath};

/// Rates within this many bits per second of the line rate are rounded up to it.
const NEARLY: f64 = 10e6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateStep {
    Rate(BitsPerSecond),
    LineOver(u32),
}

impl RateStep {
    fn at(self, line: f64) -> f64 {
        match self {
            Self::Rate(rate) => rate.get() as f64,
            Self::LineOver(parts) => line / f64::from(parts),
        }
    }
}

/// The defaults follow the paper (section 5, table 1), except that its increments of 40 and 200
/// Mb/s, meant for 40 Gb/s, scale with the line rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dcqcn {
    /// `1/g`.
    pub inverse_gain: u32,
    pub notification_interval: Picoseconds,
    pub timer: Picoseconds,
    /// Update period of `α`. `None` means `timer`, as in the paper.
    pub alpha_timer: Option<Picoseconds>,
    pub fast_steps: u32,
    /// Bytes per step. With `None`, only the timer raises the rate.
    pub byte_counter: Option<Bytes>,
    pub additive: RateStep,
    pub hyper: RateStep,
    /// Minimum time between rate cuts, as in adapters. With `None`, every notification cuts the rate.
    pub decrease_interval: Option<Picoseconds>,
    /// Whether each cut lowers the target to the previous rate. Used only with `decrease_interval`.
    pub clamp_target: bool,
    pub least_rate: BitsPerSecond,
    /// Whether the window is scaled by the ratio of the current rate to the line rate.
    pub window_follows_rate: bool,
}

impl Default for Dcqcn {
    fn default() -> Self {
        Self {
            inverse_gain: 256,
            notification_interval: Picoseconds::from_micros(50),
            timer: Picoseconds::from_micros(55),
            alpha_timer: None,
            fast_steps: 5,
            byte_counter: Some(Bytes(10_000_000)),
            additive: RateStep::LineOver(1_000),
            hyper: RateStep::LineOver(200),
            decrease_interval: None,
            clamp_target: false,
            least_rate: BitsPerSecond(10_000_000),
            window_follows_rate: false,
        }
    }
}

impl Dcqcn {
    /// Published with SimAI for its ns-3 (`SimAI.conf`, 08f3d53). Increments do not scale with the rate.
    pub const SIMAI: Self = Self {
        inverse_gain: 256,
        notification_interval: Picoseconds(1),
        timer: Picoseconds::from_micros(900),
        alpha_timer: Some(Picoseconds::from_micros(1)),
        fast_steps: 1,
        byte_counter: None,
        additive: RateStep::Rate(BitsPerSecond(50_000_000)),
        hyper: RateStep::Rate(BitsPerSecond(100_000_000)),
        decrease_interval: Some(Picoseconds::from_micros(4)),
        clamp_target: false,
        least_rate: BitsPerSecond(100_000_000),
        window_follows_rate: true,
    };

    /// Factory defaults of NVIDIA adapters (`mlxconfig`: `DCE_TCP_G` 1019, `RPG_TIME_RESET` 300, `RPG_BYTE_RESET`
    /// 32767, `RPG_THRESHOLD` 1, `RPG_AI_RATE` 5, `RPG_HAI_RATE` 50, `RPG_MIN_RATE` 1), whatever the rate.
    pub const NVIDIA: Self = Self {
        inverse_gain: 205,
        notification_interval: Picoseconds::from_micros(4),
        timer: Picoseconds::from_micros(300),
        alpha_timer: Some(Picoseconds::from_micros(1)),
        fast_steps: 1,
        byte_counter: Some(Bytes(32_767)),
        additive: RateStep::Rate(BitsPerSecond(5_000_000)),
        hyper: RateStep::Rate(BitsPerSecond(50_000_000)),
        decrease_interval: Some(Picoseconds::from_micros(4)),
        clamp_target: false,
        least_rate: BitsPerSecond(1_000_000),
        window_follows_rate: false,
    };

    /// csg-htsim (`dcqcn.cpp`): the defaults with increments of 1/20 and 1/10 of the line rate.
    pub fn htsim() -> Self {
        let (additive, hyper) = (RateStep::LineOver(20), RateStep::LineOver(10));
        Self { additive, hyper, ..Self::default() }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    settings: Dcqcn,
    current: f64,
    target: f64,
    line: f64,
    additive: f64,
    hyper: f64,
    alpha: f64,
    last_notification: Option<u64>,
    /// End of the notification interval, if a packet was marked in it.
    held_due: u64,
    /// Times at which `α`, the cut and the increase are due. [`u64::MAX`] means not before the next notification.
    alpha_due: u64,
    cut_due: u64,
    raise_due: u64,
    /// Whether a notification has arrived since the last change of `α`, and since the last opportunity for a cut.
    came: [bool; 2],
    timers_due: u64,
    timer_steps: u32,
    byte_steps: u32,
    bytes: u64,
    /// Bits of the last packet that the rate has not covered at `paid_to`. The next packet waits until all are covered.
    left: f64,
    paid_to: u64,
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
            additive: settings.additive.at(line),
            hyper: settings.hyper.at(line),
            alpha: 1.0,
            held_due: u64::MAX,
            alpha_due: u64::MAX,
            cut_due: u64::MAX,
            raise_due: u64::MAX,
            timers_due: u64::MAX,
            ..Self::default()
        }
    }

    /// The rate at the last update, in bits per second.
    pub(super) fn pace(&self) -> u64 {
        self.current as u64
    }

    pub(super) fn window_share(&self) -> f64 {
        if self.settings.window_follows_rate { self.current / self.line } else { 1.0 }
    }

    pub(super) fn acknowledged(&mut self, feedback: Feedback) {
        self.run_timers(feedback.now);
        let interval = self.settings.notification_interval.get();
        let due = self.last_notification.map_or(0, |last| last + interval);
        if !feedback.marked || self.held_due == due {
            return;
        }
        if feedback.now < due {
            self.held_due = due;
            self.set_timers_due();
        } else {
            self.notified(feedback.now);
        }
        self.next_send = self.paid_off();
    }

    fn notified(&mut self, now: u64) {
        let is_first = self.last_notification.is_none();
        (self.last_notification, self.held_due) = (Some(now), u64::MAX);
        match self.settings.decrease_interval {
            Some(interval) if is_first => {
                (self.alpha_due, self.cut_due) = (now + self.alpha_period(), now + interval.get());
                self.came = [false, true];
                self.set_timers_due();
            }
            Some(_) => self.came = [true; 2],
            None => {
                self.target = self.current;
                self.cut(now);
                self.move_alpha(true);
                self.alpha_due = now + self.alpha_period();
                self.set_timers_due();
            }
        }
    }

    fn cut(&mut self, now: u64) {
        self.pay(now);
        let least = self.settings.least_rate.get() as f64;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(least);
        (self.timer_steps, self.byte_steps, self.bytes) = (0, 0, 0);
        self.raise_due = now + self.settings.timer.get();
    }

    fn move_alpha(&mut self, came: bool) {
        let gain = 1.0 / f64::from(self.settings.inverse_gain);
        self.alpha = (1.0 - gain) * self.alpha + if came { gain } else { 0.0 };
    }

    pub(super) fn sent(&mut self, now: u64, wire_bytes: u16) {
        self.run_timers(now);
        self.pay(now);
        if self.last_notification.is_some() {
            self.bytes += u64::from(wire_bytes);
            if self.settings.byte_counter.is_some_and(|count| self.bytes >= count.get()) {
                self.bytes = 0;
                self.byte_steps += 1;
                self.raise();
            }
        }
        if self.current < self.line {
            self.left += f64::from(wire_bytes) * 8.0;
            self.next_send = self.paid_off();
        }
    }

    /// Must be called before the rate changes.
    fn pay(&mut self, now: u64) {
        let paid = self.current * now.saturating_sub(self.paid_to) as f64 / 1e12;
        self.left = if now < self.next_send { (self.left - paid).max(0.0) } else { 0.0 };
        self.paid_to = now;
    }

    /// Returns when the rate has covered the last packet, if the timers raise the rate and no notification arrives.
    fn paid_off(&self) -> u64 {
        let at = |state: &Self| state.paid_to + (state.left * 1e12 / state.current) as u64;
        if at(self) <= self.timers_due {
            return at(self);
        }
        let mut ahead = Self { next_send: u64::MAX, ..self.clone() };
        while at(&ahead) > ahead.timers_due {
            ahead.run_due_timers(ahead.timers_due);
        }
        at(&ahead)
    }

    /// Timers may run late, because the rate matters only when it is read.
    #[inline]
    fn run_timers(&mut self, now: u64) {
        if now >= self.timers_due {
            self.run_due_timers(now);
        }
    }

    fn run_due_timers(&mut self, now: u64) {
        while now >= self.timers_due {
            let at = self.timers_due;
            if self.held_due == at {
                self.notified(at);
            } else if self.alpha_due == at {
                self.alpha_due = at + self.alpha_period();
                let came = std::mem::take(&mut self.came[0]);
                self.move_alpha(came);
            } else if self.cut_due == at {
                self.cut_due = at + self.settings.decrease_interval.map_or(0, Picoseconds::get);
                if std::mem::take(&mut self.came[1]) {
                    if self.settings.clamp_target || self.timer_steps.max(self.byte_steps) > 0 {
                        self.target = self.current;
                    }
                    self.cut(at);
                }
            } else {
                self.pay(at);
                self.raise_due = at + self.settings.timer.get();
                self.timer_steps += 1;
                self.raise();
            }
            self.set_timers_due();
        }
    }

    fn set_timers_due(&mut self) {
        self.timers_due = self.alpha_due.min(self.cut_due).min(self.raise_due).min(self.held_due);
    }

    fn alpha_period(&self) -> u64 {
        self.settings.alpha_timer.unwrap_or(self.settings.timer).get()
    }

    fn raise(&mut self) {
        let (timer, fast) = (self.timer_steps, self.settings.fast_steps);
        // Without a byte counter, there is one additive step as in adapters.
        let bytes = self.settings.byte_counter.map_or(timer.saturating_sub(1), |_| self.byte_steps);
        if timer.min(bytes) > fast {
            self.target += self.hyper;
        } else if timer.max(bytes) > fast {
            self.target += self.additive;
        }
        self.target = self.target.min(self.line);
        self.current = (self.current + self.target) / 2.0;
        if self.line - self.current < NEARLY {
            self.current = self.line;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: u64 = 1_000_000;

    fn state(settings: Dcqcn) -> State {
        let rate = BitsPerSecond::from_gbps(400);
        State::new(settings, IdlePath { round_trip: 8 * MICROSECOND, hops: 4, rate, window: 100 })
    }

    fn answer(state: &mut State, now: u64, marked: bool) {
        let feedback =
            Feedback { now, acked: 1, in_flight: 1, marked, trimmed: false, round_trip: 8 };
        state.acknowledged(feedback);
    }

    /// Rates computed by hand from ns-3's model of adapters: no cut at the first notification, a cut by about half
    /// after 4 µs, no further cut without a notification, and half of the gap recovered after the timer.
    #[test]
    fn adapter_cuts_once_per_interval_and_keeps_its_target() {
        let mut adapter = state(Dcqcn::SIMAI);
        let at = |micros: u64| 10 * MICROSECOND + micros * MICROSECOND;
        answer(&mut adapter, at(0), true);
        assert_eq!(adapter.pace(), 400_000_000_000, "the first notification does not cut the rate");
        answer(&mut adapter, at(4), false);
        // α started at 1 and decayed four times before the cut.
        let alpha = (255.0_f64 / 256.0).powi(4);
        let once = 400e9 * (1.0 - alpha / 2.0);
        assert!((adapter.current - once).abs() < 1.0, "{} {once}", adapter.current);
        answer(&mut adapter, at(100), false);
        assert!((adapter.current - once).abs() < 1.0, "no notification, no cut");
        answer(&mut adapter, at(4 + 900), false);
        let back = once.midpoint(400e9);
        assert!((adapter.current - back).abs() < 1.0, "{} {back}", adapter.current);
    }

    /// Regression test: a mark 1 µs after a notification was forgotten.
    #[test]
    fn marks_within_an_interval_cut_the_rate_at_its_end() {
        let mut sender = state(Dcqcn::default());
        answer(&mut sender, MICROSECOND, true);
        assert_eq!(sender.pace(), 200_000_000_000);
        answer(&mut sender, 2 * MICROSECOND, true);
        answer(&mut sender, 50 * MICROSECOND, false);
        assert_eq!(sender.pace(), 200_000_000_000);
        answer(&mut sender, 51 * MICROSECOND, false);
        assert_eq!(sender.pace(), 100_000_000_000);
        answer(&mut sender, 105 * MICROSECOND, false);
        assert_eq!(sender.pace(), 100_000_000_000, "one notification");
    }

    #[test]
    fn clamping_adapter_forgets_the_rate_before_two_cuts() {
        let after_two = |clamp_target| {
            let mut adapter = state(Dcqcn { clamp_target, ..Dcqcn::SIMAI });
            (0..2).for_each(|cut| answer(&mut adapter, (1 + cut * 5) * MICROSECOND, true));
            answer(&mut adapter, 20 * MICROSECOND, false);
            adapter.target
        };
        assert_eq!(after_two(false), 400e9);
        assert!(after_two(true) < 250e9, "{}", after_two(true));
    }

    /// Regression test: a cut to 1 Mb/s delayed the next packet by 33 ms despite 200 Gb/s after 300 µs.
    #[test]
    fn pacing_follows_the_rate_between_packets() {
        let mut adapter = state(Dcqcn::NVIDIA);
        (0..400).for_each(|at| answer(&mut adapter, at * MICROSECOND, true));
        assert_eq!(adapter.pace(), 1_000_000);
        adapter.sent(400 * MICROSECOND, 4_096);
        // The last cut is at 400 µs. At 700 µs the rate is halfway to the target, and sends 32,468 bits in 0.16 µs.
        let waits = adapter.next_send - 400 * MICROSECOND;
        assert!((300 * MICROSECOND..301 * MICROSECOND).contains(&waits), "{waits} ps");
        answer(&mut adapter, 500 * MICROSECOND, true);
        assert!(adapter.next_send > 800 * MICROSECOND, "a later cut delays the next increase");
        adapter.run_timers(700 * MICROSECOND);
        assert!(adapter.paid_off().abs_diff(adapter.next_send) <= 1, "as foreseen");
    }

    #[test]
    fn rate_never_falls_below_the_minimum() {
        let mut adapter = state(Dcqcn::SIMAI);
        (0..400).for_each(|at| answer(&mut adapter, at * MICROSECOND, true));
        assert_eq!(adapter.pace(), 100_000_000);
        assert!(adapter.window_share() < 0.001);
    }
}
