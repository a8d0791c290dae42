// SPDX-License-Identifier: Apache-2.0
//! Processes a window of a port at which only control packets overtake others and no queue reaches its limit.
//!
//! Nothing overtakes control, so its start is known on arrival. Data that has to wait is remembered by its key until it
//! starts, and is queued only if that is after the window.

use lightloom_units::Bytes;

use super::one_port::OnePort;
use super::packet::Packet;
use super::queueing::CONTROL_PRIORITY;
use super::shard::SimSpan;
use super::sink::Sink;
use super::store::Room;

const CONTROL: usize = CONTROL_PRIORITY as usize;
/// Marks the key of a packet that met a long queue.
const MARKED: u64 = 1 << 31;

/// Sorted keys of a window's arrivals at a port, and all arrivals of its switch.
pub(crate) struct PortArrivals<'s> {
    pub(crate) keys: &'s mut [u64],
    pub(crate) packets: &'s [Packet],
}

/// Data of this window that has not started: a range of keys, which replace those of earlier arrivals.
struct Waiting<'s> {
    arrivals: PortArrivals<'s>,
    class: usize,
    first: usize,
    end: usize,
    /// Includes queued data from earlier windows.
    bytes: u64,
}

impl Waiting<'_> {
    #[inline(always)]
    fn packet(&self, at: usize) -> Packet {
        let key = self.arrivals.keys[at];
        self.arrivals.packets[(key & !MARKED) as u32 as usize].marked(key & MARKED != 0)
    }
}

impl OnePort<'_> {
    /// Returns the class of the port's data if the port can be processed plainly. `priorities` has a bit for each class
    /// of data in the network.
    #[inline(always)]
    pub(crate) fn plain_class(&self, priorities: u8, arrivals: usize) -> Option<usize> {
        let class = priorities.trailing_zeros() as usize;
        let others = self.queues.occupied() & !(1 << class | 1 << CONTROL);
        if !priorities.is_power_of_two() | (others != 0) || !self.passes_packets() {
            return None;
        }
        let more = arrivals as u64 * self.sending.longest();
        let fits = self.queues.bytes(CONTROL) + more <= self.queues.capacity;
        (fits && self.store.surely_holds(self.queues, class as u8, more)).then_some(class)
    }

    #[inline(always)]
    pub(crate) fn advance_plainly(
        &mut self,
        (class, arrivals): (usize, PortArrivals),
        span: SimSpan,
        sink: &mut impl Sink,
        mut queued: impl FnMut(Bytes),
    ) {
        while self.sending.free < span.end && self.queues.occupied() & (1 << CONTROL) != 0 {
            let packet = self.take_back(CONTROL);
            self.send(self.sending.free, packet, true, sink);
        }
        let mut control_bytes = self.queues.bytes(CONTROL);
        let bytes = self.queues.bytes(class);
        let mut waiting = Waiting { arrivals, class, first: 0, end: 0, bytes };
        for at in 0..waiting.arrivals.keys.len() {
            let key = waiting.arrivals.keys[at];
            let (now, packet) = (span.start + (key >> 32), waiting.packet(at));
            self.start_waiting(&mut waiting, now + 1, sink);
            queued(Bytes(self.sending.backlog(now).get() + waiting.bytes + control_bytes));
            let begin = self.sending.free.max(now);
            let is_control = packet.is_control();
            if begin == now || is_control && begin < span.end {
                self.send(begin, packet, true, sink);
            } else if is_control {
                control_bytes += self.queue(CONTROL, packet);
            } else {
                let marked = self.queues.would_mark(waiting.bytes);
                self.sending.mark(marked);
                waiting.bytes += self.sending.size(&packet);
                waiting.arrivals.keys[waiting.end] = key | if marked { MARKED } else { 0 };
                waiting.end += 1;
            }
        }
        self.start_waiting(&mut waiting, span.end, sink);
        for at in waiting.first..waiting.end {
            self.queue(class, waiting.packet(at));
        }
    }

    #[inline(always)]
    fn start_waiting(&mut self, waiting: &mut Waiting, before: u64, sink: &mut impl Sink) {
        while self.sending.free < before && waiting.bytes > 0 {
            let packet = if self.queues.occupied() & (1 << waiting.class) != 0 {
                self.take_back(waiting.class)
            } else {
                waiting.first += 1;
                waiting.packet(waiting.first - 1)
            };
            waiting.bytes -= self.sending.size(&packet);
            self.send(self.sending.free, packet, true, sink);
        }
    }

    fn take_back(&mut self, class: usize) -> Packet {
        let packet = self.queues.pull(class, |packet| self.sending.size(packet));
        self.store.give_back(self.sending.room(&packet));
        packet
    }

    /// Returns the size of the packet.
    fn queue(&mut self, class: usize, packet: Packet) -> u64 {
        let room: Room = self.sending.room(&packet);
        self.queues.push(class, packet, room.ingress, u64::from(room.size));
        self.store.take_up(room);
        u64::from(room.size)
    }
}
