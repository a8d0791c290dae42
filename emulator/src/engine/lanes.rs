//! A port where nothing but control packets overtakes, and no queue can come to a bound in this window: what is
//! sent when can be told from the two lists of arrivals, without a queue for each packet to go through.
//!
//! ```text
//!   control  ──c1─────c2──▶ ┐
//!                           ├─▶ whenever the port is free: control if some waits, else data if some waits,
//!   data  d0─d1──d2───d3──▶ ┘   else what comes first
//! ```
//! What has not begun by the end of the window goes into the queues ([`super::one_port`] is for all else).

use std::hint::select_unpredictable;

use super::one_port::OnePort;
use super::packet::Packet;
use super::queueing::{CONTROL_PRIORITY, Schedule};
use super::queues::FRAMES;
use super::shard::{Sink, Span};

/// So many packets may wait from the window before; more are left to the queues they are in.
const MOST_CARRIED: usize = 16;
const CONTROL: usize = CONTROL_PRIORITY as usize;
/// One picosecond in a key.
const TICK: u64 = 1 << 32;

/// Keys of data and of control packets, in order, where some waited already: when they came, counted from one
/// picosecond before the window (upper half; zero: they waited), and the place of the packet. Kept to reuse
/// the memory.
pub(crate) type Lanes = [Vec<u64>; 2];

/// What a window brings for one port, data and control: each packet by its time in the window and its place,
/// in order, ended by [`u64::MAX`].
pub(crate) type Arrivals<'s> = [&'s [u64]; 2];

impl OnePort<'_> {
    /// The one priority of data, if everything in a window that brings so many packets, of data and of control
    /// and of these `classes` (a bit each), can be done without queues.
    #[inline(always)]
    pub(crate) fn one_class(&self, counts: [usize; 2], classes: u16) -> Option<usize> {
        let plain = matches!(self.schedule, Schedule::Strict) & self.up & (*self.paused == 0);
        let simple = self.cut_through.is_none() & !self.queues.has_ramp();
        if !plain | !simple | self.sending.has_quirks() {
            return None;
        }
        let data = (classes | self.queues.occupied()) & !(1 << CONTROL);
        let class = if data == 0 { 0 } else { data.trailing_zeros() as usize };
        let alone = data & !(1 << class) == 0 && class < FRAMES;
        (alone && self.meets_no_bound(class, counts)).then_some(class)
    }

    /// Does everything in `span`, which [`one_class`](Self::one_class) says can be done so.
    #[inline(always)]
    pub(crate) fn advance_lanes(
        &mut self,
        class: usize,
        (arrivals, packets): (Arrivals, &mut Vec<Packet>),
        (lanes, span): (&mut Lanes, Span),
        sink: &mut impl Sink,
    ) {
        if self.queues.is_empty() {
            let left = self.work_off::<0>(arrivals, packets, span, sink);
            self.put_back(class, left, packets);
            return;
        }
        let known = packets.len();
        for ((lane, class), keys) in lanes.iter_mut().zip([class, CONTROL]).zip(arrivals) {
            lane.clear();
            for _ in 0..self.queues.len(class) {
                lane.push(packets.len() as u64);
                packets.push(self.take_back(class));
            }
            lane.extend(keys.iter().map(|key| key.saturating_add(TICK)));
        }
        let lanes = [&lanes[0][..], &lanes[1][..]];
        let left = self.work_off::<1>(lanes, packets, span, sink);
        self.put_back(class, left, packets);
        packets.truncate(known);
    }

    /// Whether no queue can come to a bound, nor mark, even if every packet is a long one and nothing leaves.
    #[inline(always)]
    fn meets_no_bound(&self, class: usize, counts: [usize; 2]) -> bool {
        let queues = &*self.queues;
        let [more, answers] = counts.map(|count| count as u64 * self.sending.longest());
        if queues.is_empty() {
            // The classes, which lie elsewhere in memory, need not be looked at.
            let lossless = self.store.is_lossless(class as u8);
            let held =
                more.max(answers) <= queues.capacity || lossless && answers <= queues.capacity;
            return held && !queues.would_mark(more);
        }
        let few = queues.len(class).max(queues.len(CONTROL)) <= MOST_CARRIED;
        few & !queues.would_mark(queues.bytes(class) + more)
            & (queues.bytes(CONTROL) + answers <= queues.capacity)
            & self.store.surely_holds(queues, class as u8, more)
    }

    /// Sends what begins in `span`. Times of keys count from `EARLIER` picoseconds before it. Returns the rest of
    /// each lane.
    #[inline(always)]
    fn work_off<'k, const EARLIER: u64>(
        &mut self,
        [data, control]: Arrivals<'k>,
        packets: &[Packet],
        span: Span,
        sink: &mut impl Sink,
    ) -> Arrivals<'k> {
        let (mut next_data, mut next_control) = (0, 0);
        let length = span.end - span.start + EARLIER;
        let mut free = self.sending.free.saturating_sub(span.start) + EARLIER;
        let mut last = None;
        loop {
            let (datum, answer) = (data[next_data], control[next_control]);
            let waits = answer >> 32 < free;
            let first = (datum >> 32 >= free) & (answer < datum);
            let answers = waits | first;
            let key = select_unpredictable(answers, answer, datum);
            let begin = free.max(key >> 32);
            if begin >= length {
                break;
            }
            next_control += usize::from(answers);
            next_data += usize::from(!answers);
            let packet = packets[key as u32 as usize];
            last = Some(packet);
            if let Some(sent) = self.sending.begin(span.start + begin - EARLIER, packet, false) {
                sink.take(sent);
            }
            free = self.sending.free - span.start + EARLIER;
        }
        self.room = last.map_or(self.room, |packet| self.sending.room(&packet));
        [&data[next_data..], &control[next_control..]]
    }

    /// The first packet that waits in `class`, with the place it came in by.
    fn take_back(&mut self, class: usize) -> Packet {
        let packet = self.queues.pull(class, |packet| self.sending.size(packet));
        self.store.give_back(self.sending.room(&packet));
        packet
    }

    /// Puts what is left of each lane into its queue.
    #[inline(always)]
    fn put_back(&mut self, class: usize, left: Arrivals, packets: &[Packet]) {
        for (class, left) in [class, CONTROL].into_iter().zip(left) {
            for &key in &left[..left.len() - 1] {
                let packet = packets[key as u32 as usize];
                let room = self.sending.room(&packet);
                self.queues.push(class, packet, room.ingress, u64::from(room.size));
                self.store.take_up(room);
            }
        }
    }

    /// Puts the port down.
    #[inline(always)]
    pub(crate) fn close(self) {
        *self.kept_room = self.room;
        self.sending.close();
    }
}
