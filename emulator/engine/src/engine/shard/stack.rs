// SPDX-License-Identifier: Apache-2.0
//! A host's network stack during one window: reacts to arrivals, flow starts, timeouts and free ports.
//!
//! Outgoing packets are collected per port and put on the wires after the window.

use std::cmp::Reverse;

use super::choosing::{backlog, step};
use super::interfaces::{Interface, Interfaces};
use super::{Completion, EndCount, HostState, Probe, Shared, SimSpan};
use crate::engine::packet::{Contents, Packet, flag};
use crate::engine::routes::Routes;
use crate::transport::{Outgoing, Receiver, Sender};

pub(super) struct Stack<'s, P, I> {
    pub(super) shared: &'s Shared,
    pub(super) host: &'s mut HostState,
    pub(super) interfaces: I,
    pub(super) senders: &'s mut [Sender],
    pub(super) receivers: &'s mut [Receiver],
    pub(super) completions: &'s mut Vec<Completion>,
    pub(super) ends: &'s mut EndCount,
    pub(super) probe: &'s mut P,
}

impl<'s, P> Stack<'s, P, ()> {
    pub(super) fn over<I>(self, interfaces: I) -> Stack<'s, P, I> {
        let Self { shared, host, senders, receivers, completions, ends, probe, .. } = self;
        Stack { shared, host, interfaces, senders, receivers, completions, ends, probe }
    }
}

impl<P: Probe, I: Interfaces> Stack<'_, P, I> {
    /// Arrivals are in chronological order, with the first slice first. Returns the number of arrivals in `span`.
    #[inline(always)]
    pub(super) fn work_off(mut self, [first, second]: [&[Packet]; 2], span: SimSpan) -> usize {
        let mut arrivals = first.iter().chain(second);
        let (mut next, mut taken) = (arrivals.next(), 0);
        loop {
            let arrival = next.map_or(u64::MAX, |packet| span.start + packet.after(span.start));
            let start = self.host.next_start();
            let own =
                start.min(self.host.timer_due).min(self.host.pull_due).min(self.host.credit_due);
            if arrival.min(own) >= span.end {
                return taken;
            }
            if arrival <= own && arrival < start {
                let Some(packet) = next else { return taken };
                self.arrive(*packet, arrival);
                next = arrivals.next();
                taken += 1;
            } else if start == own {
                self.start_flow();
            } else if self.host.timer_due == own {
                self.time_out(own);
            } else if self.host.credit_due == own {
                self.give_credit(own);
            } else {
                self.pull(own);
            }
        }
    }

    fn start_flow(&mut self) {
        let Some(Reverse((now, _, sender))) = self.host.starts.pop() else { return };
        let end = &mut self.senders[sender as usize];
        let is_due = end.wakes_up(now);
        if end.started {
            if is_due {
                end.enlisted = false;
                self.enlist(sender, now);
            }
            return;
        }
        if end.is_done() {
            return;
        }
        end.started = true;
        self.host.active.push(sender);
        self.release(sender);
        self.enlist(sender, now);
    }

    fn release(&mut self, sender: u32) {
        let awaits = &self.senders[sender as usize].waits.awaits;
        if awaits.iter().any(|awaited| self.senders[*awaited as usize].finished().is_none()) {
            return;
        }
        let sender = &mut self.senders[sender as usize];
        let receivers = &self.receivers;
        let opened = sender.waits.gates.iter().map(|&(receiver, ahead)| {
            let receiver = &receivers[receiver as usize];
            let counted = receiver.delivered().saturating_add_signed(ahead);
            if receiver.is_done() { u32::MAX } else { counted }
        });
        let messages = opened.min().unwrap_or(u32::MAX);
        sender.release(messages);
    }

    #[inline(always)]
    fn arrive(&mut self, packet: Packet, now: u64) {
        if packet.is_pause_frame() {
            return self.obey(&packet, now);
        }
        let Some(end) = self.shared.routes.end(packet.cursor()) else {
            return self.pass_on(packet, now);
        };
        self.ends.delivered += 1;
        if !packet.is_acknowledgement() {
            return self.arrive_data(end, packet, now);
        }
        let sender = &mut self.senders[end as usize];
        sender.acknowledged(&packet, now);
        self.host.timer_due = self.host.timer_due.min(sender.due());
        if sender.is_done() {
            self.host.active.retain(|active| *active != end);
            self.let_go_after(end, now);
        } else {
            self.enlist(end, now);
        }
    }

    #[cold]
    fn let_go_after(&mut self, end: u32, now: u64) {
        for dependent in std::mem::take(&mut self.senders[end as usize].waits.dependents) {
            self.release(dependent);
            if self.senders[dependent as usize].started {
                self.enlist(dependent, now);
            }
        }
    }

    #[cold]
    fn obey(&mut self, frame: &Packet, now: u64) {
        self.ends.delivered += 1;
        let place = self.interfaces.place_of(frame.cursor());
        let interface = self.interfaces.at(place);
        if interface.port.obey(frame, interface.count, now) {
            self.host.pull_due = self.host.pull_due.min(now);
        }
    }

    #[cold]
    fn pass_on(&mut self, packet: Packet, now: u64) {
        let interfaces = &self.interfaces;
        let (place, packet) =
            step(&self.shared.routes, now, packet, |place| backlog(interfaces.port(place), now));
        self.transmit(place as usize, now, packet);
    }

    #[inline(always)]
    fn arrive_data(&mut self, end: u32, packet: Packet, now: u64) {
        let receiver = &mut self.receivers[end as usize];
        if receiver.answers_by_path {
            receiver.cursor = Routes::answer(packet.cursor());
        }
        let was_done = receiver.is_done();
        let is_new = self.shared.gives_credit && receiver.is_new(&packet);
        let (mut acknowledgement, message_completed) = receiver.data(&packet);
        if receiver.is_done() && !was_done {
            self.completions.push(Completion { time: now, flow: receiver.flow });
        }
        self.ends.acknowledgements_sent += 1;
        if self.shared.gives_credit && !packet.is_probe() {
            let is_marked = packet.has(flag::MARKED);
            acknowledgement = self.with_credit(end, is_new, is_marked, now, acknowledgement);
        }
        let place = self.interfaces.place(&self.shared.routes, acknowledgement.cursor());
        self.transmit(place, now, acknowledgement.advanced());
        if message_completed {
            for index in 0..self.receivers[end as usize].dependents.len() {
                let sender = self.receivers[end as usize].dependents[index];
                self.release(sender);
                // A flow that has not started will check its gates when it starts.
                if self.senders[sender as usize].started {
                    self.enlist(sender, now);
                }
            }
        }
    }

    #[inline(always)]
    fn enlist(&mut self, index: u32, now: u64) {
        let sender = &mut self.senders[index as usize];
        if sender.is_striped() {
            return self.enlist_striped(index, now);
        }
        if !sender.enlisted && sender.wants_to_send() {
            sender.enlisted = true;
            if sender.next_send() > now {
                return self.plan_wake(index, now);
            }
            let place = self.interfaces.place(&self.shared.routes, sender.cursor);
            let interface = self.interfaces.at(place);
            interface.ready.push_back(index);
            self.host.pull_due = self.host.pull_due.min(interface.port.free.max(now));
        } else if sender.oversleeps() {
            self.plan_wake(index, now);
        }
    }

    #[inline]
    fn plan_wake(&mut self, index: u32, now: u64) {
        let sender = &mut self.senders[index as usize];
        let (at, flow) = (sender.next_send().max(now), sender.flow);
        if sender.plans_wake(at) {
            self.host.starts.push(Reverse((at, flow, index)));
        }
    }

    #[inline(always)]
    fn pull(&mut self, now: u64) {
        self.host.pull_due = u64::MAX;
        for place in 0..self.interfaces.count() {
            let again = self.serve(place, now);
            self.host.pull_due = self.host.pull_due.min(again);
        }
    }

    /// When the port is free for the next packet, or [`u64::MAX`] if no flow waits.
    #[inline(always)]
    fn serve(&mut self, place: usize, now: u64) -> u64 {
        loop {
            let interface = self.interfaces.at(place);
            let Some(turn) = turn(&interface, self.senders).filter(|_| interface.port.up) else {
                return u64::MAX;
            };
            if interface.port.free > now {
                return interface.port.free;
            }
            self.take_turn(place, turn, now);
        }
    }

    #[inline(always)]
    fn take_turn(&mut self, place: usize, turn: usize, now: u64) {
        let Interface { ready, .. } = self.interfaces.at(place);
        let index = ready[turn];
        let sender = &mut self.senders[index as usize];
        if sender.is_striped() {
            return self.take_striped_turn(place, turn, index, now);
        }
        let leads_here = self.interfaces.place(&self.shared.routes, sender.cursor) == place;
        let Interface { ready, .. } = self.interfaces.at(place);
        let outgoing = if leads_here { sender.poll(now, 0) } else { None };
        let goes_on = outgoing.is_some() && sender.wants_to_send();
        let waits = goes_on && sender.next_send() > now;
        sender.enlisted = goes_on;
        if !goes_on || waits || ready.len() > 1 {
            if turn == 0 {
                ready.pop_front()
            } else {
                ready.remove(turn)
            };
            if waits {
                self.plan_wake(index, now);
            } else if goes_on {
                ready.push_back(index);
            }
        }
        match outgoing {
            Some(outgoing) => self.send(place, index, outgoing, now),
            None if !leads_here => self.enlist(index, now),
            None => {}
        }
    }

    #[inline(always)]
    pub(super) fn send(&mut self, place: usize, index: u32, outgoing: Outgoing, now: u64) {
        let sender = &self.senders[index as usize];
        let resent = if outgoing.resent { flag::RESENT } else { 0 };
        let (kind, extra) = if outgoing.probe {
            (flag::TRIMMED | flag::PROBE, self.shared.header_bytes)
        } else {
            (resent, outgoing.wire_bytes)
        };
        let packet = Packet::new(Contents {
            cursor: outgoing.cursor + 1,
            sequence: outgoing.sequence,
            extra,
            flags: u16::from(sender.priority) << flag::PRIORITY_SHIFT | kind,
        });
        self.host.timer_due = self.host.timer_due.min(sender.due());
        self.ends.data_sent += 1;
        self.transmit(place, now, packet);
    }

    #[cold]
    fn time_out(&mut self, now: u64) {
        let senders = &self.senders;
        let deadline = |sender: &u32| {
            let end = &senders[*sender as usize];
            (end.due(), end.flow, *sender)
        };
        let earliest = self.host.active.iter().map(deadline).min();
        let Some((deadline, _, sender)) = earliest else {
            self.host.timer_due = u64::MAX;
            return;
        };
        self.host.timer_due = deadline;
        if deadline <= now {
            self.senders[sender as usize].timed_out(now);
            self.enlist(sender, now);
        }
    }

    #[inline(always)]
    pub(super) fn transmit(&mut self, place: usize, now: u64, packet: Packet) {
        self.interfaces.at(place).transmit(now, packet, self.probe);
    }
}

#[inline(always)]
fn turn(interface: &Interface, senders: &[Sender]) -> Option<usize> {
    let (ready, paused) = (&interface.ready, interface.port.paused);
    if paused == 0 {
        return (!ready.is_empty()).then_some(0);
    }
    ready.iter().position(|sender| paused & (1 << senders[*sender as usize].priority) == 0)
}
