// SPDX-License-Identifier: Apache-2.0
//! Islands that are the same so far, with the one engine that runs them all.

use lightloom_units::SimTime;

use super::description::Act;
use crate::engine::{BatchId, Engine, Event, FlowId, Probe};

/// The end of a batch, as the engine of a class tells it.
#[derive(Clone, Copy, Debug)]
pub(super) struct News {
    pub(super) batch: BatchId,
    /// When its last byte arrived.
    pub(super) at: SimTime,
    /// When that is reported.
    pub(super) reported: SimTime,
    /// The flow that came last.
    pub(super) last: FlowId,
}

#[derive(Clone, Debug)]
pub(super) struct Class<P> {
    pub(super) engine: Engine<P>,
    /// The islands, as indices.
    pub(super) members: Vec<u32>,
    /// By batch: its flows.
    batches: Vec<Vec<FlowId>>,
    flows: u32,
    /// Nothing happens before this.
    pub(super) due: u64,
    /// When the next event is reported.
    control: Option<SimTime>,
    /// Everything before this has happened.
    pub(super) until: u64,
    /// It stands still at an event that some of the members have not been given yet.
    pub(super) untold: u32,
}

impl<P: Probe> Class<P> {
    pub(super) fn new(mut engine: Engine<P>, members: Vec<u32>) -> Self {
        engine.form_trains();
        let batches = Vec::new();
        Self {
            engine,
            members,
            batches,
            flows: 0,
            due: u64::MAX,
            control: None,
            until: 0,
            untold: 0,
        }
    }

    /// The same class for other members.
    pub(super) fn split(&self, members: Vec<u32>) -> Self {
        Self { members, ..self.clone() }
    }

    /// Does `acts` at the time they are made for, which is not in the past.
    pub(super) fn apply(&mut self, now: SimTime, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Flow(spec) => {
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
                Act::Gate(flow, gate) => {
                    self.engine.add_gate(flow, gate).expect("it was checked when it was added");
                }
                Act::Cancel(flow) => self.engine.cancel_flow(flow),
                Act::Change(link, change) => self.engine.change_link(now, link, change),
            }
        }
        self.look_ahead();
    }

    fn look_ahead(&mut self) {
        self.due = self.engine.next_due().map_or(u64::MAX, |due| due.0);
        self.control = self.engine.control_due();
    }

    /// Whether there is something to [`Self::advance`] to.
    pub(super) fn may_advance(&self, bound: SimTime) -> bool {
        let next = SimTime(bound.0.saturating_add(1));
        self.untold == 0 && (self.due < next.0 || self.control == Some(next))
    }

    /// Runs to its next events, all of one instant, or until what happens at `bound` has happened. Tells
    /// events of the instant after `bound` too: they come before its packets.
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
        let ended = |flow: &&FlowId| self.engine.record(**flow).end == Some(at);
        let last = self.batches[batch.index()].iter().filter(ended).max();
        Some(News { batch, at, reported, last: last.copied().unwrap_or_default() })
    }
}
