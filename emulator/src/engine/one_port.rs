//! One port of a switch with real queues, worked off whatever the others do: the loop that most packets go
//! through.
//!
//! What is sent next is decided when the one before is out, and nothing but arrivals at this very port
//! can change it; so between two arrivals the port catches up with the time of the second.

use super::packet::Packet;
use super::port::{Port, PortCount};
use super::queueing::Schedule;
use super::queues::Queues;
use super::shard::Exit;
use super::store::{Room, Store};

/// A port with its queues.
pub(crate) struct OnePort<'s> {
    /// When what it is sending is out, or was, and the room that takes.
    pub(super) until: u64,
    pub(super) room: Room,
    /// Where these two are kept.
    pub(super) end: &'s mut u64,
    pub(super) sending: &'s mut Room,
    pub(super) queues: &'s mut Queues,
    pub(super) store: &'s mut Store,
    pub(super) schedule: &'s Schedule,
    pub(super) header_bytes: u16,
    pub(super) port: &'s mut Port,
    pub(super) count: &'s mut PortCount,
    pub(super) exit: Exit<'s>,
}

impl OnePort<'_> {
    /// Does everything before `end`. `arrivals` are for this port and in order: when, and the packet with
    /// the place it came in by where its time stood.
    #[inline]
    pub(crate) fn advance(mut self, arrivals: impl Iterator<Item = (u64, Packet)>, end: u64) {
        for (now, packet) in arrivals {
            self.serve_before(now + 1);
            if packet.is_pause_frame() {
                if self.port.obey(&packet) && self.until <= now {
                    self.serve_one(now);
                }
            } else if self.port.up {
                self.take(now, packet);
            } else {
                self.count.lost += 1;
            }
        }
        self.serve_before(end);
        (*self.end, *self.sending) = (self.until, self.room);
    }

    #[inline(always)]
    fn take(&mut self, now: u64, packet: Packet) {
        let ingress = packet.time as u32;
        let arrived = (packet, ingress, self.port.size(&packet));
        let admitted = self.store.admit(self.queues, arrived, self.header_bytes, self.count);
        let Some((packet, size)) = admitted else { return };
        let priority = packet.priority();
        let marked = self.queues.marks(usize::from(priority));
        self.count.marked += u64::from(marked);
        let packet = packet.sent(packet.time, marked);
        let room = Room { ingress, size: size as u16, priority };
        let free = self.until <= now;
        let may_go = self.port.paused & (1 << priority) == 0;
        // Whatever waits is paused, or the port would be busy. Turns by weight are counted in the queues.
        if free & may_go & matches!(self.schedule, Schedule::Strict) {
            return self.send(now, packet, room);
        }
        self.queues.push(usize::from(priority), packet, ingress, size);
        self.store.take_up(room);
        if free {
            self.serve_one(now);
        }
    }

    /// Sends what can begin before `end`.
    #[inline(always)]
    fn serve_before(&mut self, end: u64) {
        while self.until < end && self.queues.has_something(self.port.paused) {
            self.serve_one(self.until);
        }
    }

    /// Begins to send at `now` what is next, if something may go.
    #[inline(always)]
    fn serve_one(&mut self, now: u64) {
        let port = &*self.port;
        let next = self.queues.pop(self.schedule, port.paused, |packet| port.size(packet));
        let Some((class, packet)) = next else { return };
        let room = Room::of(class, &packet, port);
        self.store.give_back(room);
        self.send(now, packet, room);
    }

    #[inline(always)]
    fn send(&mut self, now: u64, packet: Packet, room: Room) {
        self.until = now + self.port.occupies(&packet);
        self.room = room;
        self.count.packets += 1;
        self.count.bytes += self.port.size(&packet);
        // A pause never ends by itself: its frames are spared.
        if room.size > 0 && self.port.corrupts(&packet, self.count.packets) {
            self.count.lost += 1;
            return;
        }
        self.exit.send(packet.at(self.until + self.port.delay()));
    }
}
