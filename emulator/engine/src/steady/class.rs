// SPDX-License-Identifier: Apache-2.0
//! Islands with identical histories, which share one engine.

use lightloom_units::{Picoseconds, SimTime};

use super::description::IslandChange;
use crate::engine::{BatchId, Engine, Event, FlowId, FlowSpec, PacketCount, Probe, Route};

const SHORTEST_STRIDE: Picoseconds = Picoseconds::from_micros(10);
const STRIDE: Picoseconds = Picoseconds::from_millis(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct News {
    pub(super) batch: BatchId,
    pub(super) at: SimTime,
    pub(super) reported: SimTime,
    pub(super) last: FlowId,
}

#[derive(Clone, Debug)]
pub(super) struct Class<P> {
    pub(super) engine: Engine<P>,
    pub(super) members: Vec<u32>,
    batches: Vec<Vec<FlowId>>,
    flows: u32,
    pub(super) due: u64,
    control: Option<SimTime>,
    pub(super) until: u64,
    /// Members that have yet to receive the current event. The class pauses until it is zero.
    pub(super) untold: u32,
    pub(super) begin: u64,
    pub(super) news: Vec<News>,
    ended: Option<ClassEnd>,
}

#[derive(Clone, Copy, Debug)]
struct ClassEnd {
    packets: PacketCount,
    quiet_from: u64,
}

impl<P: Probe> Class<P> {
    pub(super) fn new(mut engine: Engine<P>, members: Vec<u32>) -> Self {
        engine.form_trains();
        Self {
            engine,
            members,
            batches: Vec::new(),
            flows: 0,
            due: u64::MAX,
            control: None,
            until: 0,
            untold: 0,
            begin: 0,
            news: Vec::new(),
            ended: None,
        }
    }

    /// Returns a time before which no flow can end: its first link cannot have sent all data by then.
    /// `None` if a link changes, or a flow is cancelled or rerouted.
    pub(super) fn earliest_end(&self, acts: &[(u64, IslandChange)]) -> Option<SimTime> {
        let mut earliest = SimTime(u64::MAX);
        for (_, act) in acts {
            match act {
                IslandChange::Flow(FlowSpec { route, start, message, messages, .. }) => {
                    let Route::Links(links) = route else { return None };
                    let rate = self.engine.network().link(*links.first()?).spec.rate;
                    let sends = rate.time_for(*message * u64::from(*messages));
                    // The time of each packet may be rounded down.
                    earliest = earliest.min(*start + Picoseconds(sends.0 - sends.0 / 8));
                }
                IslandChange::Gate(..) => {}
                IslandChange::Cancel(_) | IslandChange::Change(..) | IslandChange::Reroute(..) => {
                    return None;
                }
            }
        }
        Some(earliest)
    }

    pub(super) fn run_ahead(
        &mut self,
        acts: Vec<(u64, IslandChange)>,
        now: SimTime,
        limit: SimTime,
    ) -> u64 {
        let mut acts = acts.into_iter().peekable();
        let mut last = self.begin;
        while let Some((after, act)) = acts.next() {
            let at = self.begin + after;
            let mut together = vec![act];
            while let Some((_, act)) = acts.next_if(|(next, _)| *next == after) {
                together.push(act);
            }
            if after > 0 {
                self.run_until(SimTime(at - 1));
            }
            self.until = at;
            self.apply(SimTime(at), together);
            last = at;
        }
        // A link change is processed before packets with the same timestamp.
        if now.0 > last {
            self.run_until(SimTime(now.0 - 1));
        }
        self.until = self.until.max(now.0);
        self.news.retain(|news| news.reported > now);
        // Strides start small, because only polling reveals when the last packet of an abandoned flow is gone.
        let (mut bound, mut stride) = (now, SHORTEST_STRIDE);
        while bound < limit && self.ended.is_none() {
            bound = limit.min(bound + stride);
            stride = STRIDE.min(stride * 2);
            self.run_until(bound);
            self.note_end();
        }
        self.note_end();
        self.engine.hops()
    }

    fn run_until(&mut self, bound: SimTime) {
        while self.may_advance(bound) {
            let news = self.advance(bound);
            self.news.extend(news);
        }
    }

    /// The timeout of an abandoned flow may still be pending, since the flow has no receiver.
    pub(super) fn note_end(&mut self) {
        if self.ended.is_some() || !self.engine.is_quiet() {
            return;
        }
        let last = self.engine.records().map(|record| record.acknowledged);
        let last: Option<Vec<SimTime>> = last.collect();
        let last = last.and_then(|all| all.into_iter().max());
        let quiet_from = last.map_or(self.until, |last| last.0 + 1);
        self.ended = Some(ClassEnd { packets: self.engine.packets(), quiet_from });
    }

    pub(super) fn quiet_from(&self) -> Option<u64> {
        self.ended.map(|ended| ended.quiet_from)
    }

    pub(super) fn packets(&self) -> PacketCount {
        self.ended.map_or_else(|| self.engine.packets(), |ended| ended.packets)
    }

    pub(super) fn hops(&self) -> u64 {
        self.ended.map_or_else(|| self.engine.hops(), |ended| ended.packets.hops)
    }

    pub(super) fn split(&self, members: Vec<u32>) -> Self {
        Self { members, ..self.clone() }
    }

    pub(super) fn apply(&mut self, now: SimTime, acts: Vec<IslandChange>) {
        for act in acts {
            match act {
                IslandChange::Flow(spec) => {
                    if let Some(batch) = spec.batch {
                        while self.batches.len() <= batch.index() {
                            self.engine.add_batch();
                            self.batches.push(Vec::new());
                        }
                        self.batches[batch.index()].push(FlowId(self.flows));
                    }
                    self.flows += 1;
                    self.engine.add_flow(spec).expect("it was checked when it was added");
                }
                IslandChange::Gate(flow, gate) => {
                    self.engine.add_gate(flow, gate).expect("it was checked when it was added");
                }
                IslandChange::Cancel(flow) => self.engine.cancel_flow(flow),
                IslandChange::Change(link, change) => self.engine.change_link(now, link, change),
                IslandChange::Reroute(flow, links) => {
                    self.catch_up(now);
                    self.engine.lead(flow, links).expect("a path was found earlier");
                }
            }
        }
        self.look_ahead();
    }

    fn catch_up(&mut self, now: SimTime) {
        self.engine.set_timer(now, 0);
        while let Some(event) = self.engine.next_event(now) {
            if matches!(event, Event::Timer { .. }) {
                break;
            }
        }
    }

    fn look_ahead(&mut self) {
        self.due = self.engine.next_due().map_or(u64::MAX, |due| due.0);
        self.control = self.engine.control_due();
    }

    pub(super) fn may_advance(&self, bound: SimTime) -> bool {
        let next = SimTime(bound.0.saturating_add(1));
        self.untold == 0 && (self.due < next.0 || self.control == Some(next))
    }

    /// Runs to the next instant with events, or the instant after `bound`, whose packets are not yet processed.
    pub(super) fn advance(&mut self, bound: SimTime) -> Vec<News> {
        let mut news = Vec::new();
        self.until = bound.0.saturating_add(1);
        let first = self.engine.next_event(bound);
        if first.is_some() {
            self.until = self.engine.now().0;
        }
        news.extend(first.and_then(|event| self.news(event)));
        while self.engine.control_due() == Some(SimTime(self.until)) {
            let event = self.engine.next_event(SimTime(self.until)).expect("it is due");
            news.extend(self.news(event));
        }
        self.look_ahead();
        news
    }

    fn news(&self, event: Event) -> Option<News> {
        let Event::BatchDone { batch, at } = event else { return None };
        let reported = self.engine.now();
        let flows = self.batches[batch.index()].iter();
        let last = flows.filter(|flow| self.engine.record(**flow).end == Some(at)).max();
        Some(News { batch, at, reported, last: last.copied().unwrap_or_default() })
    }
}
