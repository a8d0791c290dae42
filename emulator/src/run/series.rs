// SPDX-License-Identifier: Apache-2.0
//! What ports do over time: queues, pauses, marks, losses and rates, at equal distances.
//!
//! Looking changes nothing: the engine is asked to come to a moment and to go on.

use lightloom_engine::steady::Stage;
use lightloom_engine::{LinkId, PortCount};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

use super::Context;

/// Most rows that are kept, so that a long run does not fill the memory.
const MOST_ROWS: usize = 5_000_000;

/// What one port did since the row before, or is in at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesRow {
    /// The moment.
    pub at: SimTime,
    /// The link behind the port.
    pub link: LinkId,
    /// What waits before it or is being sent at the moment.
    pub queue: Bytes,
    /// Bytes put on the wire.
    pub sent: Bytes,
    /// That over the time.
    pub rate: BitsPerSecond,
    /// Packets marked.
    pub marked: u64,
    /// Packets that found no room.
    pub dropped: u64,
    /// Packets lost on a link that was dark or wrong.
    pub lost: u64,
    /// Time in which the far end had it pause some priority.
    pub paused: Picoseconds,
}

/// The ports of a run over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// In order of time, then link; only ports that did something, or hold something.
    pub rows: Vec<SeriesRow>,
    /// From when on nothing was kept, for there was no room for more rows.
    pub full_at: Option<SimTime>,
}

/// Looks at all ports now and then.
pub(super) struct Looker {
    every: Picoseconds,
    last: SimTime,
    /// By link: what its port had done and held when it was looked at last.
    before: Vec<(PortCount, Bytes)>,
    series: Series,
}

impl Looker {
    pub(super) fn new(every: Picoseconds, links: usize) -> Self {
        let before = vec![(PortCount::default(), Bytes::ZERO); links];
        Self { every, last: SimTime::START, before, series: Series::default() }
    }

    /// When it looks next.
    pub(super) fn next(&self) -> SimTime {
        self.last + self.every
    }

    /// Looks, if it is time; the next thing happens at `next`.
    pub(super) fn look(&mut self, context: &Context<'_>, next: Option<SimTime>) {
        let now = context.engine.now();
        if now < self.next() {
            return;
        }
        self.note(context, now);
        // While nothing happens there is nothing to see.
        let idle = next.unwrap_or(now).since(now).0 / self.every.0;
        self.last = now + Picoseconds(idle * self.every.0);
    }

    fn note(&mut self, context: &Context<'_>, now: SimTime) {
        let Some(engine) = context.engine.engine() else { return };
        let time = now.since(self.last).as_secs_f64();
        for (link, before) in self.before.iter_mut().enumerate() {
            let link = LinkId::from_index(link);
            let (count, queue) = (engine.port_count(link), engine.backlog(link));
            let (then, held) = std::mem::replace(before, (count, queue));
            if count == then && queue == Bytes::ZERO && held == Bytes::ZERO {
                continue;
            }
            if self.series.rows.len() >= MOST_ROWS {
                self.series.full_at.get_or_insert(now);
                return;
            }
            let sent = count.bytes - then.bytes;
            self.series.rows.push(SeriesRow {
                at: now,
                link,
                queue,
                sent: Bytes(sent),
                rate: BitsPerSecond((sent as f64 * 8.0 / time.max(1e-12)).round() as u64),
                marked: count.marked - then.marked,
                dropped: count.dropped - then.dropped,
                lost: count.lost - then.lost,
                paused: Picoseconds(count.paused_ps - then.paused_ps),
            });
        }
    }

    /// Looks a last time, at the end of the run.
    pub(super) fn finish(mut self, context: &Context<'_>) -> Series {
        let now = context.engine.now();
        if now > self.last {
            self.note(context, now);
        }
        self.series
    }
}
