// SPDX-License-Identifier: Apache-2.0
//! Processes a window of a port without running each packet through its queues.
//!
//! This requires that only control packets overtake others and that no queue can reach a limit
//! within the window. Departures then follow from the two lists of arrivals:
//!
//! ```text
//!   control  ──c1─────c2──▶ ┐
//!                           ├─▶ whenever the port is free: waiting control, else waiting data,
//!   data  d0─d1──d2───d3──▶ ┘   else the next arrival
//! ```
//! Packets from earlier windows leave first, and the port is never idle until their queue is empty. Packets that have
//! not started by the end of the window are queued. [`super::one_port`] handles all other cases.

use std::hint::select_unpredictable;

use lightloom_units::Bytes;

use super::one_port::OnePort;
use super::packet::Packet;
use super::port::excess;
use super::queueing::{CONTROL_PRIORITY, Schedule};
use super::queues::FRAMES;
use super::shard::SimSpan;
use super::sink::Sink;

const CONTROL: usize = CONTROL_PRIORITY as usize;

/// Keys hold the time in the window and the packet's index. Lists are sorted and end with [`u64::MAX`].
pub(crate) type WindowArrivals<'s> = [&'s [u64]; 2];

#[derive(Clone, Copy)]
pub(crate) struct Plain {
    class: usize,
    marked: bool,
}

impl OnePort<'_> {
    /// `counts`: data and control arrivals; `classes`: one bit per class; `length`: in picoseconds.
    #[inline(always)]
    pub(crate) fn is_plain(&self, counts: [usize; 2], classes: u16, length: u64) -> Option<Plain> {
        let plain = matches!(self.schedule, Schedule::Strict) & self.up & (*self.paused == 0);
        let simple = self.cut_through.is_none() & !self.queues.has_ramp();
        if !plain | !simple | self.sending.has_quirks() {
            return None;
        }
        let data = (classes | self.queues.occupied()) & !(1 << CONTROL);
        let class = if data == 0 { 0 } else { data.trailing_zeros() as usize };
        let alone = data & !(1 << class) == 0 && class < FRAMES;
        if !alone {
            return None;
        }
        let marked = self.meets_no_bound(class, counts, length)?;
        Some(Plain { class, marked })
    }

    #[inline(always)]
    pub(crate) fn advance_lanes(
        &mut self,
        plain: Plain,
        (arrivals, packets): (WindowArrivals, &[Packet]),
        span: SimSpan,
        sink: &mut impl Sink,
    ) {
        let [data, mut control] = arrivals;
        if !self.queues.is_empty() {
            control = self.send_waiting(plain.class, (control, packets), span, sink);
        }
        let left = self.work_off([data, control], packets, span, sink);
        self.put_back(plain, left, packets);
    }

    /// Backlogs do not depend on the order of service, because the port is never idle while a packet waits.
    pub(crate) fn see_lanes(
        &self,
        ([data, control], packets): (WindowArrivals, &[Packet]),
        span: SimSpan,
        mut queued: impl FnMut(Bytes),
    ) {
        let mut free = self.sending.free;
        if !self.queues.is_empty() {
            free += self.sending.time_of(self.queues.all_bytes());
        }
        let (mut next_data, mut next_control) = (0, 0);
        loop {
            let (datum, answer) = (data[next_data], control[next_control]);
            let key = datum.min(answer);
            if key == u64::MAX {
                return;
            }
            next_data += usize::from(datum == key);
            next_control += usize::from(datum != key);
            let now = span.start + (key >> 32);
            queued(self.sending.backlog_until(free, now));
            free = free.max(now) + self.sending.occupies(&packets[key as u32 as usize]);
        }
    }

    /// Whether data is marked. `None` if a queue could reach a limit, or if only some of the data would be marked.
    #[inline(always)]
    fn meets_no_bound(&self, class: usize, counts: [usize; 2], length: u64) -> Option<bool> {
        let queues = &*self.queues;
        let [more, answers] = counts.map(|count| count as u64 * self.sending.longest());
        if queues.is_empty() {
            // Reading the classes would cost a cache miss.
            let lossless = self.store.is_lossless(class as u8);
            let held =
                more.max(answers) <= queues.capacity || lossless && answers <= queues.capacity;
            return (held && !queues.would_mark(more)).then_some(false);
        }
        let held = (queues.bytes(CONTROL) + answers <= queues.capacity)
            & self.store.surely_holds(queues, class as u8, more);
        let marks_some = queues.would_mark(queues.bytes(class) + more);
        let marked = marks_some && self.marks_all(class, length);
        (held & (marked == marks_some)).then_some(marked)
    }

    /// Returns whether enough data is waiting to keep the queue above the threshold until the end of the window.
    fn marks_all(&self, class: usize, length: u64) -> bool {
        let left = self.queues.bytes(class).saturating_sub(self.sending.most_sent_in(length));
        left > 0 && self.queues.would_mark(left)
    }

    fn send_waiting<'k>(
        &mut self,
        class: usize,
        (mut control, packets): (&'k [u64], &[Packet]),
        span: SimSpan,
        sink: &mut impl Sink,
    ) -> &'k [u64] {
        debug_assert!(self.sending.free >= span.start, "packets do not wait for an idle port");
        while self.sending.free < span.end && !self.queues.is_empty() {
            let packet = if self.queues.occupied() & (1 << CONTROL) != 0 {
                self.take_back(CONTROL)
            } else if span.start + (control[0] >> 32) < self.sending.free {
                let packet = packets[control[0] as u32 as usize];
                control = &control[1..];
                packet
            } else {
                self.take_back(class)
            };
            self.room = self.sending.room(&packet);
            if let Some(sent) = self.sending.begin(self.sending.free, packet, false) {
                sink.take(sent);
            }
        }
        control
    }

    #[inline(always)]
    fn work_off<'k>(
        &mut self,
        [data, control]: WindowArrivals<'k>,
        packets: &[Packet],
        span: SimSpan,
        sink: &mut impl Sink,
    ) -> WindowArrivals<'k> {
        let (mut next_data, mut next_control) = (0, 0);
        let length = span.end - span.start;
        let mut free = self.sending.free.saturating_sub(span.start);
        let mut last = None;
        loop {
            let (datum, answer) = (data[next_data], control[next_control]);
            let waits = answer >> 32 < free;
            let first = (datum >> 32 >= free) & (answer < datum);
            let answers = waits | first;
            let key = select_unpredictable(answers, answer, datum);
            let came = key >> 32;
            let begin = came + excess(free, came);
            if begin >= length {
                break;
            }
            next_control += usize::from(answers);
            next_data += usize::from(!answers);
            let packet = packets[key as u32 as usize];
            last = Some(packet);
            if let Some(sent) = self.sending.begin(span.start + begin, packet, false) {
                sink.take(sent);
            }
            free = self.sending.free - span.start;
        }
        self.room = last.map_or(self.room, |packet| self.sending.room(&packet));
        [&data[next_data..], &control[next_control..]]
    }

    #[inline]
    fn take_back(&mut self, class: usize) -> Packet {
        let packet = self.queues.pull(class, |packet| self.sending.size(packet));
        self.store.give_back(self.sending.room(&packet));
        packet
    }

    #[inline(always)]
    fn put_back(&mut self, plain: Plain, left: WindowArrivals, packets: &[Packet]) {
        let classes = [(plain.class, plain.marked), (CONTROL, false)];
        for ((class, marked), left) in classes.into_iter().zip(left) {
            for &key in &left[..left.len() - 1] {
                let packet = packets[key as u32 as usize].marked(marked);
                let room = self.sending.room(&packet);
                self.sending.mark(marked);
                self.queues.push(class, packet, room.ingress, u64::from(room.size));
                self.store.take_up(room);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn close(self) {
        *self.kept_room = self.room;
        self.sending.close();
    }
}
