// SPDX-License-Identifier: Apache-2.0
//! What ports and flows do over time: queues, pauses, marks, losses, rates, windows, at equal distances.
//!
//! Looking changes nothing: the engine is asked to come to a moment and to go on.

use lightloom_engine::steady::Stage;
use lightloom_engine::{FlowId, LinkId, PortCount, SendingEnd};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

use super::Context;

/// What is looked at, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// The time between two looks.
    pub every: Picoseconds,
    /// Whether ports are looked at.
    pub ports: bool,
    /// Whether flows are looked at.
    pub flows: bool,
}

/// Most rows of ports, and of flows, that are kept, so that a long run does not fill the memory.
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

/// What one flow did since the row before, and what its sending end is in at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSeriesRow {
    /// The moment.
    pub at: SimTime,
    /// The flow.
    pub flow: FlowId,
    /// Bytes of its data that have arrived in order.
    pub delivered: Bytes,
    /// That over the time.
    pub rate: BitsPerSecond,
    /// Packets sent again.
    pub resent: u64,
    /// Its sending end. `None` once all has arrived.
    pub sending: Option<SendingEnd>,
}

/// The ports and flows of a run over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// In order of time, then link; only ports that did something, or hold something.
    pub rows: Vec<SeriesRow>,
    /// In order of time, then flow; only flows that have begun and had not ended at the look before.
    pub flows: Vec<FlowSeriesRow>,
    /// From when on nothing was kept, for there was no room for more rows.
    pub full_at: Option<SimTime>,
}

/// So many bytes in this time.
fn rate(bytes: Bytes, time: Picoseconds) -> BitsPerSecond {
    BitsPerSecond((bytes.0 as f64 * 8.0 / time.as_secs_f64().max(1e-12)).round() as u64)
}

/// Looks at all ports and flows now and then.
pub(super) struct Looker {
    looks: Looks,
    last: SimTime,
    /// By link: what its port had done and held when it was looked at last.
    before: Vec<(PortCount, Bytes)>,
    /// Flows that have not ended, with what had arrived and been sent again when they were looked at last.
    open: Vec<(FlowId, Bytes, u64)>,
    /// How many flows there were when they were looked at last.
    known: usize,
    series: Series,
}

impl Looker {
    pub(super) fn new(looks: Looks, links: usize) -> Self {
        let links = if looks.ports { links } else { 0 };
        let before = vec![(PortCount::default(), Bytes::ZERO); links];
        let (last, open, series) = (SimTime::START, Vec::new(), Series::default());
        Self { looks, last, before, open, known: 0, series }
    }

    /// When it looks next.
    pub(super) fn next(&self) -> SimTime {
        self.last + self.looks.every
    }

    /// Looks, if it is time; the next thing happens at `next`.
    pub(super) fn look(&mut self, context: &Context<'_>, next: Option<SimTime>) {
        let now = context.engine.now();
        if now < self.next() {
            return;
        }
        self.note(context, now);
        // While nothing happens there is nothing to see.
        let idle = next.unwrap_or(now).since(now).0 / self.looks.every.0;
        self.last = now + Picoseconds(idle * self.looks.every.0);
    }

    fn note(&mut self, context: &Context<'_>, now: SimTime) {
        self.note_ports(context, now);
        if self.looks.flows {
            self.note_flows(context, now);
        }
    }

    fn note_flows(&mut self, context: &Context<'_>, now: SimTime) {
        let Some(engine) = context.engine.engine() else { return };
        let count = engine.flow_count();
        let new = (self.known..count).map(|at| (FlowId::from_index(at), Bytes::ZERO, 0));
        self.open.extend(new);
        self.known = count;
        let (last, rows) = (self.last, &mut self.series.flows);
        let mut full = false;
        self.open.retain_mut(|(flow, delivered, resent)| {
            let (record, sending) = (engine.record(*flow), engine.sending_end(*flow));
            let now_resent = u64::from(record.retransmitted);
            let is_open = record.end.is_none() && !record.cancelled;
            if sending.is_none() && is_open {
                return true;
            }
            if rows.len() >= MOST_ROWS {
                full = true;
                return is_open;
            }
            let arrived = Bytes(record.delivered.0 - delivered.0);
            let (rate, again) = (rate(arrived, now.since(last)), now_resent - *resent);
            rows.push(FlowSeriesRow {
                at: now,
                flow: *flow,
                delivered: arrived,
                rate,
                resent: again,
                sending,
            });
            (*delivered, *resent) = (record.delivered, now_resent);
            is_open
        });
        if full {
            self.series.full_at.get_or_insert(now);
        }
    }

    fn note_ports(&mut self, context: &Context<'_>, now: SimTime) {
        let Some(engine) = context.engine.engine() else { return };
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
            let sent = Bytes(count.bytes.saturating_sub(then.bytes));
            self.series.rows.push(SeriesRow {
                at: now,
                link,
                queue,
                sent,
                rate: rate(sent, now.since(self.last)),
                marked: count.marked - then.marked,
                dropped: count.dropped - then.dropped,
                lost: count.lost - then.lost,
                paused: Picoseconds(count.paused_ps - then.paused_ps),
            });
        }
    }

    /// Looks a last time, at the end of the run: when the last packet has arrived, if nothing is left to do.
    pub(super) fn finish(mut self, context: &Context<'_>) -> Series {
        let engine = context.engine.engine().filter(|engine| engine.next_due().is_none());
        let now = engine.map_or_else(|| context.engine.now(), |engine| engine.last_arrival());
        if now > self.last {
            self.note(context, now);
        }
        self.series
    }
}
