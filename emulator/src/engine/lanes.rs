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
use super::store::Room;

/// So many packets may wait from the window before; more are left to the queues they are in.
const MOST_CARRIED: usize = 16;
const CONTROL: usize = CONTROL_PRIORITY as usize;
/// One picosecond in a key.
const TICK: u64 = 1 << 32;

/// Keys of data and of control packets, in order: when they came, counted from one picosecond before the
/// window (upper half; zero: they waited already), and the place of the packet. Kept to reuse the memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lanes {
    data: Vec<u64>,
    control: Vec<u64>,
}

impl Lanes {
    fn make_room(&mut self, count: usize) {
        let most = MOST_CARRIED + count + 1;
        if self.data.len() < most {
            self.data.resize(most, 0);
            self.control.resize(most, 0);
        }
    }
    fn lane(&mut self, lane: usize) -> &mut [u64] {
        if lane == 0 { &mut self.data } else { &mut self.control }
    }
}

/// What a window brings for one port.
struct Load {
    /// By lane: data, control.
    counts: [usize; 2],
    /// The one priority of data.
    class: usize,
}

impl OnePort<'_> {
    /// Does everything in `span` and returns whether it could. `keys` lists what comes for this port, by time
    /// in the window and place in `packets`, in order.
    #[inline(always)]
    pub(crate) fn advance_lanes(
        &mut self,
        (lanes, packets): (&mut Lanes, &mut Vec<Packet>),
        keys: &[u64],
        span: Span,
        sink: &mut impl Sink,
    ) -> bool {
        let Some(load) = self.load(lanes, packets, keys) else { return false };
        let known = packets.len();
        let mut carried = [0; 2];
        if !self.queues.is_empty() {
            carried = [load.class, CONTROL].map(|class| self.queues.len(class));
            self.carry_over((lanes, packets), load.class, carried);
        }
        lanes.data[MOST_CARRIED + load.counts[0]] = u64::MAX;
        lanes.control[MOST_CARRIED + load.counts[1]] = u64::MAX;
        let left = self.work_off(lanes, packets, carried, span, sink);
        for (lane, class) in [load.class, CONTROL].into_iter().enumerate() {
            for &key in &lanes.lane(lane)[left[lane]..MOST_CARRIED + load.counts[lane]] {
                self.put_back(class, packets[key as u32 as usize]);
            }
        }
        packets.truncate(known);
        true
    }

    /// Puts what waits in the queues before the arrivals of their lanes.
    fn carry_over(
        &mut self,
        (lanes, packets): (&mut Lanes, &mut Vec<Packet>),
        class: usize,
        carried: [usize; 2],
    ) {
        for (lane, class) in [class, CONTROL].into_iter().enumerate() {
            for place in MOST_CARRIED - carried[lane]..MOST_CARRIED {
                lanes.lane(lane)[place] = packets.len() as u64;
                packets.push(self.take_back(class));
            }
        }
    }

    /// Sorts arrivals into lanes, if it may be done without queues.
    #[inline(always)]
    fn load(&self, lanes: &mut Lanes, packets: &[Packet], keys: &[u64]) -> Option<Load> {
        let plain = matches!(self.schedule, Schedule::Strict) & self.up & (*self.paused == 0);
        if !plain | self.sending.has_quirks() | self.queues.has_ramp() {
            return None;
        }
        lanes.make_room(keys.len());
        let (data, control) = (&mut lanes.data[..], &mut lanes.control[..]);
        let [mut next_data, mut next_control] = [MOST_CARRIED; 2];
        let (mut frames, mut classes) = (false, self.queues.occupied());
        for &key in keys {
            let packet = &packets[key as u32 as usize];
            let is_control = packet.is_control();
            frames |= packet.is_pause_frame();
            classes |=
                1 << select_unpredictable(is_control, CONTROL_PRIORITY, packet.data_priority());
            // Into both: the wrong one of them is written over.
            (data[next_data], control[next_control]) = (key + TICK, key + TICK);
            next_control += usize::from(is_control);
            next_data += usize::from(!is_control);
        }
        let several = classes & !(1 << CONTROL);
        let class = if several == 0 { 0 } else { several.trailing_zeros() as usize };
        let counts = [next_data, next_control].map(|next| next - MOST_CARRIED);
        let load = Load { counts, class };
        (!frames && several & !(1 << class) == 0 && class < FRAMES && self.meets_no_bound(&load))
            .then_some(load)
    }

    /// Whether no queue can come to a bound, nor mark, even if every packet is a long one and nothing leaves.
    #[inline(always)]
    fn meets_no_bound(&self, load: &Load) -> bool {
        let queues = &*self.queues;
        let [more, answers] = load.counts.map(|count| count as u64 * self.sending.longest());
        if queues.is_empty() {
            // The classes, which lie elsewhere in memory, need not be looked at.
            let lossless = self.store.is_lossless(load.class as u8);
            let held =
                more.max(answers) <= queues.capacity || lossless && answers <= queues.capacity;
            return held && !queues.would_mark(more);
        }
        let few = queues.len(load.class).max(queues.len(CONTROL)) <= MOST_CARRIED;
        few & !queues.would_mark(queues.bytes(load.class) + more)
            & (queues.bytes(CONTROL) + answers <= queues.capacity)
            & self.store.surely_holds(queues, load.class as u8, more)
    }

    /// Sends what begins in `span`. Returns where the rest of each lane begins.
    #[inline(always)]
    fn work_off(
        &mut self,
        lanes: &Lanes,
        packets: &[Packet],
        carried: [usize; 2],
        span: Span,
        sink: &mut impl Sink,
    ) -> [usize; 2] {
        let Lanes { data, control } = lanes;
        let [mut next_data, mut next_control] = carried.map(|count| MOST_CARRIED - count);
        // Times count from one picosecond before the window, so that what is carried came before.
        let length = span.end - span.start + 1;
        let mut free = self.sending.free.saturating_sub(span.start) + 1;
        let mut last = None;
        loop {
            let (datum, answer) = (data[next_data], control[next_control]);
            let [came_datum, came_answer] = [datum >> 32, answer >> 32];
            let waits = came_answer < free;
            let first = (came_datum >= free) & (answer < datum);
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
            if let Some(sent) = self.sending.begin(span.start + begin - 1, packet, false) {
                sink.take(sent);
            }
            free = self.sending.free - span.start + 1;
        }
        self.room = last.map_or(self.room, |packet| self.sending.room(&packet));
        [next_data, next_control]
    }

    /// The first packet that waits in `class`, with the place it came in by.
    fn take_back(&mut self, class: usize) -> Packet {
        let packet = self.queues.pull(class, |packet| self.sending.size(packet));
        self.store.give_back(self.sending.room(&packet));
        packet
    }

    fn put_back(&mut self, class: usize, packet: Packet) {
        let room: Room = self.sending.room(&packet);
        self.queues.push(class, packet, room.ingress, u64::from(room.size));
        self.store.take_up(room);
    }

    /// Puts the port down.
    #[inline(always)]
    pub(crate) fn close(self) {
        *self.kept_room = self.room;
        self.sending.close();
    }
}
