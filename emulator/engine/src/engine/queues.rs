// SPDX-License-Identifier: Apache-2.0
//! The queues of one port and their scheduler, with one class per priority and one for pause frames.

use super::marking::Ramp;
use super::packet::Packet;
use super::queueing::{CONTROL_PRIORITY, PRIORITIES, Schedule};
use super::ring::PacketFifo;

/// This class is above all priorities, so that pause frames leave first.
pub(crate) const FRAMES: usize = PRIORITIES;

/// Waiting packets store their ingress port instead of their arrival time.
#[derive(Clone, Debug, Default)]
struct PriorityQueue {
    queue: PacketFifo,
    bytes: u64,
    deficit: u64,
}

/// Idle classes are not touched, which saves cache lines.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    occupied: u16,
    waiting: u32,
    /// For the weighted schedule: the current class, and whether it has received its share for this round.
    turn: u8,
    granted: bool,
    pub(super) capacity: u64,
    mark_from: u64,
    ramp: Option<Box<Ramp>>,
    seen: u64,
    /// Extended when a packet of a higher class first waits, because few ports have one.
    classes: Vec<PriorityQueue>,
}

impl Queues {
    pub(super) fn new(capacity: u64, mark_from: u64, ramp: Option<Ramp>) -> Self {
        let ramp = ramp.map(Box::new);
        let (classes, granted, turn) = (Vec::new(), false, 0);
        Self { occupied: 0, waiting: 0, turn, granted, capacity, mark_from, ramp, seen: 0, classes }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    #[inline]
    pub(super) fn has_something(&self, paused: u8) -> bool {
        self.occupied & !u16::from(paused) != 0
    }

    #[inline]
    pub(super) fn marks(&mut self, class: usize) -> bool {
        let backlog = self.bytes(class);
        let long = (class != usize::from(CONTROL_PRIORITY)) & (backlog >= self.mark_from);
        let Some(ramp) = &self.ramp else { return long };
        let number = self.seen;
        self.seen += 1;
        long && ramp.marks(backlog, number)
    }

    /// Whether a packet that meets no other always fits and is not marked.
    #[inline]
    pub(super) fn admits_single(&self) -> bool {
        self.ramp.is_none() && self.mark_from > 0 && self.capacity >= u64::from(u16::MAX)
    }

    #[inline]
    pub(super) fn would_mark(&self, bytes: u64) -> bool {
        bytes >= self.mark_from
    }

    #[inline]
    pub(super) fn occupied(&self) -> u16 {
        self.occupied
    }

    #[inline]
    pub(super) fn bytes(&self, class: usize) -> u64 {
        self.classes.get(class).map_or(0, |queue| queue.bytes)
    }

    pub(super) fn all_bytes(&self) -> u64 {
        let (mut bytes, mut occupied) = (0, self.occupied);
        while occupied != 0 {
            bytes += self.bytes(occupied.trailing_zeros() as usize);
            occupied &= occupied - 1;
        }
        bytes
    }

    #[inline]
    pub(super) fn packets(&self) -> usize {
        self.waiting as usize
    }

    pub(super) fn waiting(&self, class: usize) -> impl Iterator<Item = (u32, &Packet)> {
        let queue = self.classes.get(class).into_iter();
        queue.flat_map(|at| at.queue.iter()).map(|packet| (packet.ingress(), packet))
    }

    #[inline(always)]
    pub(super) fn push(&mut self, class: usize, packet: Packet, ingress: u32, bytes: u64) {
        if self.classes.len() <= class {
            self.extend(class);
        }
        let queue = &mut self.classes[class];
        queue.queue.push(packet.at(u64::from(ingress)));
        queue.bytes += bytes;
        self.waiting += 1;
        self.occupied |= 1 << class;
    }

    #[cold]
    fn extend(&mut self, class: usize) {
        self.classes.reserve_exact(class + 1 - self.classes.len());
        self.classes.resize_with(class + 1, PriorityQueue::default);
    }

    #[inline(always)]
    pub(super) fn pop(
        &mut self,
        schedule: &Schedule,
        paused: u8,
        size: impl Fn(&Packet) -> u64,
    ) -> Option<(usize, Packet)> {
        let may = self.occupied & !u16::from(paused);
        if may == 0 {
            return None;
        }
        let class = match schedule {
            Schedule::Weighted(weights) if may < 1 << CONTROL_PRIORITY => {
                self.choose_by_weight(may, weights, &size)
            }
            _ => may.ilog2() as usize,
        };
        Some((class, self.pull(class, size)))
    }

    #[inline(always)]
    pub(super) fn pull(&mut self, class: usize, size: impl Fn(&Packet) -> u64) -> Packet {
        let queue = &mut self.classes[class];
        let packet = queue.queue.pop().expect("something waits");
        self.waiting -= 1;
        if queue.queue.len() == 0 {
            self.occupied &= !(1 << class);
        }
        if class != FRAMES {
            queue.bytes -= size(&packet);
        }
        packet
    }

    fn choose_by_weight(
        &mut self,
        may: u16,
        weights: &[u32; PRIORITIES],
        size: &impl Fn(&Packet) -> u64,
    ) -> usize {
        loop {
            let place = usize::from(self.turn);
            if may & (1 << place) != 0 {
                let class = &mut self.classes[place];
                if !self.granted {
                    class.deficit += u64::from(weights[place].max(1));
                    self.granted = true;
                }
                let next = class.queue.front().map_or(0, size);
                if next <= class.deficit {
                    class.deficit -= next;
                    return place;
                }
            } else if self.occupied & (1 << place) == 0
                && let Some(class) = self.classes.get_mut(place)
            {
                class.deficit = 0;
            }
            self.turn = (self.turn + 1) % CONTROL_PRIORITY;
            self.granted = false;
        }
    }

    /// Drops all packets class by class. Calls `lost` with class, ingress port and packet.
    pub(super) fn cut(&mut self, mut lost: impl FnMut(usize, u32, Packet)) {
        for place in 0..=FRAMES {
            let Some(class) = self.classes.get_mut(place) else { continue };
            class.queue.iter().for_each(|packet| lost(place, packet.ingress(), *packet));
            class.queue.clear();
            (class.bytes, class.deficit) = (0, 0);
        }
        (self.occupied, self.waiting, self.turn, self.granted) = (0, 0, 0, false);
    }
}
