// SPDX-License-Identifier: Apache-2.0
//! Processes one port of a switch with bounded queues, independently of its other ports.
//!
//! The port chooses the next packet when the previous one has left, based only on its own arrivals.
//! It therefore only needs to catch up when a packet arrives.

use lightloom_units::{BitsPerSecond, Bytes};

use super::packet::Packet;
use super::port::SendingPort;
use super::queueing::Schedule;
use super::queues::{FRAMES, Queues};
use super::sink::Sink;
use super::store::{Room, Store};

pub(crate) struct OnePort<'s> {
    /// The packet in transmission, unless its space is in `room`.
    pub(super) last: Option<Packet>,
    pub(super) room: &'s mut Room,
    pub(super) queues: &'s mut Queues,
    pub(super) store: &'s mut Store,
    pub(super) schedule: &'s Schedule,
    pub(super) header_bytes: u16,
    pub(super) up: bool,
    pub(super) paused: &'s mut u8,
    pub(super) sending: SendingPort<'s>,
    pub(super) cut_through: Option<CutThrough<'s>>,
}

#[derive(Clone, Copy)]
pub(crate) struct CutThrough<'s> {
    pub(crate) rates: &'s [BitsPerSecond],
    /// The part of a packet that must arrive before it can be forwarded.
    pub(crate) header: Bytes,
}

impl OnePort<'_> {
    /// `arrivals`, in chronological order, store the ingress port in the time field. `queued` is called with the backlog
    /// that each packet meets.
    #[inline(always)]
    pub(crate) fn advance(
        &mut self,
        arrivals: impl Iterator<Item = (u64, Packet)>,
        end: u64,
        sink: &mut impl Sink,
        mut queued: impl FnMut(Bytes),
    ) {
        for (now, packet) in arrivals {
            self.serve_before(now + 1, sink);
            if packet.is_pause_frame() {
                self.obey(now, &packet, sink);
            } else if self.up {
                queued(Bytes(self.sending.backlog(now).get() + self.queues.all_bytes()));
                self.take(now, packet, sink);
            } else {
                self.sending.lose();
            }
        }
        self.serve_before(end, sink);
    }

    #[cold]
    fn obey(&mut self, now: u64, frame: &Packet, sink: &mut impl Sink) {
        let before = *self.paused;
        let goes_on = frame.obeyed_by(self.paused);
        self.sending.count().note_paused(before, *self.paused, now);
        if goes_on && self.sending.free <= now {
            self.serve_one(now, sink);
        }
    }

    #[inline(always)]
    fn take(&mut self, now: u64, packet: Packet, sink: &mut impl Sink) {
        let (ingress, size) = (packet.ingress(), self.sending.size(&packet));
        let mut arrived = (packet, size);
        if !self.store.surely_holds(self.queues, packet.priority(), size) {
            let (count, header) = (self.sending.count(), self.header_bytes);
            let admitted = self.store.admit(self.queues, packet, ingress, size, header, count);
            let Some(admitted) = admitted else { return };
            arrived = admitted;
        }
        let (packet, size) = arrived;
        let priority = packet.priority();
        let marked = self.queues.marks(usize::from(priority));
        self.sending.mark(marked);
        let packet = packet.marked(marked);
        let free = self.sending.free <= now;
        let begin = if free { self.begin_of(now, &packet) } else { now };
        let may_go = *self.paused & (1 << priority) == 0;
        // The port is idle, so all waiting packets are paused and this one can bypass the queues.
        if free & may_go & matches!(self.schedule, Schedule::Strict) {
            return self.send(begin, packet, true, sink);
        }
        self.queues.push(usize::from(priority), packet, ingress, size);
        self.store.take_up(Room { ingress, size: size as u16, priority });
        if free {
            self.serve_one(begin, sink);
        }
    }

    #[inline(always)]
    fn begin_of(&self, now: u64, packet: &Packet) -> u64 {
        let Some(CutThrough { rates, header }) = self.cut_through else { return now };
        let rate = rates[packet.ingress() as usize];
        let begin = now.saturating_sub(self.sending.head_start(packet, rate, header));
        self.sending.free.max(begin)
    }

    #[inline(always)]
    fn serve_before(&mut self, end: u64, sink: &mut impl Sink) {
        while self.sending.free < end && self.queues.has_something(*self.paused) {
            self.serve_one(self.sending.free, sink);
        }
    }

    #[inline(always)]
    fn serve_one(&mut self, now: u64, sink: &mut impl Sink) {
        let sending = &self.sending;
        let next = self.queues.pop(self.schedule, *self.paused, |packet| sending.size(packet));
        let Some((class, packet)) = next else { return };
        if class != FRAMES {
            self.store.give_back(sending.room(&packet));
        }
        self.send(now, packet, class != FRAMES, sink);
    }

    #[inline(always)]
    pub(super) fn send(
        &mut self,
        now: u64,
        packet: Packet,
        takes_room: bool,
        sink: &mut impl Sink,
    ) {
        // A lost pause frame would pause the port permanently, so pause frames are never lost.
        if let Some(sent) = self.sending.begin(now, packet, takes_room) {
            sink.take(sent);
        }
        if takes_room {
            self.last = Some(packet);
        } else {
            (*self.room, self.last) = (Room::default(), None);
        }
    }

    #[inline(always)]
    pub(crate) fn close(self) {
        if let Some(packet) = self.last {
            *self.room = self.sending.room(&packet);
        }
        self.sending.close();
    }
}
