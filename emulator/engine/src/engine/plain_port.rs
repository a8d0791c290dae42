// SPDX-License-Identifier: Apache-2.0
//! Processes a window of a port at which only control packets overtake others and no queue reaches its limit.
//!
//! Nothing overtakes control, so its start is known on arrival. Data that has to wait is remembered by its key until it
//! starts, and is queued only if that is after the window.

use std::ops::Range;

use lightloom_units::Bytes;

use super::one_port::OnePort;
use super::packet::Packet;
use super::queueing::{CONTROL_PRIORITY, Schedule};
use super::shard::SimSpan;
use super::sink::Sink;

const CONTROL: usize = CONTROL_PRIORITY as usize;
/// Marks the key of a packet that met a long queue.
const MARKED: u64 = 1 << 31;

/// Data of this window that has not started: a range of `keys`, which replace those of earlier arrivals.
struct PlainData<'s> {
    /// Sorted keys of the port's arrivals, and all arrivals of its switch.
    keys: &'s mut [u64],
    packets: &'s [Packet],
    waiting: Range<usize>,
    class: usize,
    /// Waiting bytes, including those queued in earlier windows.
    bytes: u64,
}

impl PlainData<'_> {
    #[inline(always)]
    fn packet(&self, key: u64) -> Packet {
        self.packets[(key & !MARKED) as u32 as usize].marked(key & MARKED != 0)
    }
}

impl OnePort<'_> {
    /// Returns the class of the port's data if the port can be processed plainly. `priorities` has a bit for each class
    /// of data in the network.
    #[inline(always)]
    pub(crate) fn plain_class(&self, priorities: u8, arrivals: usize) -> Option<usize> {
        let class = priorities.trailing_zeros() as usize;
        let others = self.queues.occupied() & !(1 << class | 1 << CONTROL);
        let plain = matches!(self.schedule, Schedule::Strict) && self.cut_through.is_none();
        let passes = plain && self.up && *self.paused == 0 && self.queues.admits_single();
        if !priorities.is_power_of_two() | (others != 0) || !passes {
            return None;
        }
        let more = arrivals as u64 * self.sending.longest();
        let fits = self.queues.bytes(CONTROL) + more <= self.queues.capacity;
        (fits && self.store.surely_holds(self.queues, class as u8, more)).then_some(class)
    }

    #[inline(always)]
    pub(crate) fn advance_plainly(
        &mut self,
        class: usize,
        keys: &mut [u64],
        packets: &[Packet],
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
        let mut data = PlainData { keys, packets, class, waiting: 0..0, bytes };
        for at in 0..data.keys.len() {
            let key = data.keys[at];
            let (now, packet) = (span.start + (key >> 32), data.packet(key));
            self.start_waiting(&mut data, now + 1, sink);
            let begin = self.sending.free;
            if begin <= now {
                queued(Bytes::ZERO);
                self.send(now, packet, true, sink);
                continue;
            }
            queued(Bytes(self.sending.backlog(now).get() + data.bytes + control_bytes));
            if !packet.is_control() {
                let marked = self.queues.would_mark(data.bytes);
                self.sending.mark(marked);
                data.bytes += self.sending.size(&packet);
                data.keys[data.waiting.end] = key | if marked { MARKED } else { 0 };
                data.waiting.end += 1;
            } else if begin < span.end {
                self.send(begin, packet, true, sink);
            } else {
                control_bytes += self.queue(CONTROL, packet);
            }
        }
        self.start_waiting(&mut data, span.end, sink);
        for at in data.waiting.clone() {
            self.queue(class, data.packet(data.keys[at]));
        }
    }

    #[inline(always)]
    fn start_waiting(&mut self, data: &mut PlainData, before: u64, sink: &mut impl Sink) {
        while self.sending.free < before && data.bytes > 0 {
            let packet = if self.queues.occupied() & (1 << data.class) != 0 {
                self.take_back(data.class)
            } else {
                data.waiting.start += 1;
                data.packet(data.keys[data.waiting.start - 1])
            };
            data.bytes -= self.sending.size(&packet);
            self.send(self.sending.free, packet, true, sink);
        }
    }

    #[inline(always)]
    fn take_back(&mut self, class: usize) -> Packet {
        let packet = self.queues.pull(class, |packet| self.sending.size(packet));
        self.store.give_back(self.sending.room(&packet));
        packet
    }

    fn queue(&mut self, class: usize, packet: Packet) -> u64 {
        let room = self.sending.room(&packet);
        self.queues.push(class, packet, room.ingress, u64::from(room.size));
        self.store.take_up(room);
        u64::from(room.size)
    }
}
