// SPDX-License-Identifier: Apache-2.0
//! Time series of ports and flows, sampled at regular intervals. Sampling does not affect the run.

use lightloom_engine::steady::Stage;
use lightloom_engine::{FlowId, LinkId, PortCount, SendingEnd};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

use super::Context;

/// Configuration of the sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// Sampling interval.
    pub every: Picoseconds,
    /// Whether to sample ports.
    pub ports: bool,
    /// Whether to sample flows.
    pub flows: bool,
}

const MOST_ROWS: usize = 5_000_000;

/// Port activity since the previous row, and the current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesRow {
    /// Sampling time.
    pub at: SimTime,
    /// Link that the port sends on.
    pub link: LinkId,
    /// Bytes queued or being sent.
    pub queue: Bytes,
    /// Bytes sent.
    pub sent: Bytes,
    /// Average sending rate.
    pub rate: BitsPerSecond,
    /// ECN-marked packets.
    pub marked: u64,
    /// Packets dropped because of a full queue.
    pub dropped: u64,
    /// Packets lost on a dark or faulty link.
    pub lost: u64,
    /// Time during which the far end paused at least one priority.
    pub paused: Picoseconds,
}

/// Flow activity since the previous row, and the current state of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSeriesRow {
    /// Sampling time.
    pub at: SimTime,
    /// The flow.
    pub flow: FlowId,
    /// Bytes delivered in order.
    pub delivered: Bytes,
    /// Average delivery rate.
    pub rate: BitsPerSecond,
    /// Retransmitted packets.
    pub resent: u64,
    /// State of the sender. `None` once all data has arrived.
    pub sending: Option<SendingEnd>,
}

/// Time series of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Sorted by time and link. Ports without activity or queued bytes are omitted.
    pub rows: Vec<SeriesRow>,
    /// Sorted by time and flow. Includes the flows that were active since the previous sample.
    pub flows: Vec<FlowSeriesRow>,
    /// When the maximum number of rows was reached. Later samples were not recorded.
    pub full_at: Option<SimTime>,
}

fn rate(bytes: Bytes, time: Picoseconds) -> BitsPerSecond {
    BitsPerSecond((bytes.0 as f64 * 8.0 / time.as_secs_f64().max(1e-12)).round() as u64)
}

pub(super) struct Looker {
    looks: Looks,
    last: SimTime,
    before: Vec<(PortCount, Bytes)>,
    open: Vec<(FlowId, Bytes, u64)>,
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

    pub(super) fn next(&self) -> SimTime {
        self.last + self.looks.every
    }

    pub(super) fn look(&mut self, context: &Context<'_>, next: Option<SimTime>) {
        let now = context.engine.now();
        if now < self.next() {
            return;
        }
        self.note(context, now);
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
            let is_open = context.is_open(*flow);
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

    pub(super) fn finish(mut self, context: &Context<'_>) -> Series {
        let engine = context.engine.engine().filter(|engine| engine.next_due().is_none());
        let now = engine.map_or_else(|| context.engine.now(), |engine| engine.last_arrival());
        if now > self.last {
            self.note(context, now);
        }
        self.series
    }
}
