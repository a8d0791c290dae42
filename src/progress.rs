// SPDX-License-Identifier: Apache-2.0
//! Shows progress on standard error, as a bar on a terminal and otherwise as percentages.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

use crate::output;

pub struct Progress {
    what: String,
    total: u64,
    done: AtomicU64,
    bar: Option<ProgressBar>,
    begun: Instant,
}

/// Without a terminal, the progress of shorter work is not reported.
pub const QUIET_FOR: Duration = Duration::from_secs(2);
const LINE_EVERY_PERCENT: u64 = 10;

impl Progress {
    /// `what` names the items ("samples", "windows").
    pub fn new(what: &str, total: u64) -> Self {
        let bar = bar(total, "{msg} {wide_bar} {percent:>3} % {eta}");
        let bar = bar.map(|bar| bar.with_message(what.to_owned()));
        Self {
            what: what.to_owned(),
            total: total.max(1),
            done: AtomicU64::new(0),
            bar,
            begun: Instant::now(),
        }
    }

    pub fn advance(&self, steps: u64) {
        let before = self.done.fetch_add(steps, Ordering::Relaxed);
        match &self.bar {
            Some(bar) => bar.inc(steps),
            None => {
                let due = line_due(before, before + steps, self.total);
                if let Some(percent) = due.filter(|_| self.begun.elapsed() >= QUIET_FOR) {
                    output::note(&format!("{}: {percent} %", self.what));
                }
            }
        }
    }
}

/// Returns a bar on a terminal, which disappears when it is dropped.
pub(crate) fn bar(total: u64, template: &str) -> Option<ProgressBar> {
    let style = ProgressStyle::with_template(template).expect("the template is well-formed");
    io::stderr()
        .is_terminal()
        .then(|| ProgressBar::new(total).with_style(style).with_finish(ProgressFinish::AndClear))
}

fn line_due(before: u64, after: u64, total: u64) -> Option<u64> {
    let [before, after] =
        [before, after].map(|count| count.min(total) * 100 / total / LINE_EVERY_PERCENT);
    (after > before).then_some(after * LINE_EVERY_PERCENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_due_at_each_tenth_and_never_twice() {
        let lines: Vec<u64> = (0..1000).filter_map(|i| line_due(i, i + 1, 1000)).collect();
        assert_eq!(lines, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
        assert_eq!(line_due(0, 3, 4), Some(70));
        assert_eq!(line_due(4, 9, 4), None);
    }
}
