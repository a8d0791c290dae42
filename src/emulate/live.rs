// SPDX-License-Identifier: Apache-2.0

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use lightloom_emulator::run::{Progress, RunPass};
use lightloom_units::SimTime;

use crate::output;
use crate::progress::{QUIET_FOR, bar};

/// Without a terminal, also report each tenth of the run.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Progress is computed only when it may be shown.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub struct Live {
    bar: Option<ProgressBar>,
    begun: Instant,
    first: Instant,
    pass: RunPass,
    looked: Option<Instant>,
    last: LastShown,
}

struct LastShown {
    at: Instant,
    tenth: u64,
}

impl Default for Live {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            bar: bar(1000, "{wide_bar} {percent:>3} % {msg}"),
            begun: now,
            first: now,
            pass: RunPass::Faults,
            looked: None,
            last: LastShown { at: now, tenth: 0 },
        }
    }
}

impl Live {
    fn line(&self, now: SimTime, packet_hops: u64) -> String {
        let seconds = self.begun.elapsed().as_secs_f64().max(1e-9);
        let millions = packet_hops as f64 / 1e6;
        let which = match self.pass {
            RunPass::Faults => "",
            RunPass::Calm => " (without faults)",
        };
        format!(
            "{now} simulated, {millions:.1} M packet-hops, {:.1} M/s{which}",
            millions / seconds
        )
    }
}

impl Progress for Live {
    fn begins(&mut self, pass: RunPass) {
        self.pass = pass;
        self.begun = Instant::now();
        self.last = LastShown { at: self.begun, tenth: 0 };
    }

    fn report(&mut self, now: SimTime, packet_hops: u64, done: &dyn Fn() -> f64) {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        if let Some(bar) = &self.bar {
            bar.set_position((done() * 1000.0) as u64);
            bar.set_message(self.line(now, packet_hops));
            return;
        }
        if self.first.elapsed() < QUIET_FOR {
            return;
        }
        let percent = (done() * 100.0) as u64;
        let tenth = percent / 10;
        if tenth > self.last.tenth || self.last.at.elapsed() >= LINE_EVERY {
            output::note(&format!("emulating: {percent} %, {}", self.line(now, packet_hops)));
            self.last.at = Instant::now();
            self.last.tenth = tenth;
        }
    }
}
