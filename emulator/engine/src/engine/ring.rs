// SPDX-License-Identifier: Apache-2.0
//! A packet queue in a ring buffer with a power-of-two size, used for wires.

use super::packet::Packet;

#[derive(Clone, Debug, Default)]
pub(crate) struct PacketFifo {
    slots: Box<[Packet]>,
    head: u32,
    len: u32,
}

impl PacketFifo {
    const LEAST: usize = 8;

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// `place` must be below [`len`](Self::len).
    #[inline(always)]
    pub(crate) fn at(&self, place: usize) -> &Packet {
        &self.slots[(self.head as usize + place) & (self.slots.len() - 1)]
    }

    /// Prefetches the slot at `place`, whether or not it contains a packet.
    #[inline(always)]
    pub(crate) fn peek(&self, place: usize) -> u64 {
        let mask = self.slots.len().wrapping_sub(1);
        self.slots.get((self.head as usize + place) & mask).map_or(0, |packet| packet.after(0))
    }

    #[inline(always)]
    pub(crate) fn front(&self) -> Option<&Packet> {
        (self.len > 0).then(|| self.at(0))
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, packet: Packet) {
        if self.len() == self.slots.len() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        self.slots[(self.head + self.len) as usize & mask] = packet;
        self.len += 1;
    }

    #[inline(always)]
    pub(crate) fn tail(&mut self, most: usize) -> FifoTail<'_> {
        while self.slots.len() < self.len() + most {
            self.grow();
        }
        let next = (self.head + self.len) as usize;
        FifoTail { slots: &mut self.slots, first: next, next, len: &mut self.len }
    }

    /// Passes packets that arrive less than `length` after `start` to `give`. Returns when the next one arrives.
    #[inline(always)]
    pub(crate) fn take_due(
        &mut self,
        start: u64,
        length: u64,
        mut give: impl FnMut(u64, Packet),
    ) -> u64 {
        let (mask, mut taken, mut next) = (self.slots.len().wrapping_sub(1), 0, u64::MAX);
        while taken < self.len() {
            let packet = self.slots[(self.head as usize + taken) & mask];
            let offset = packet.after(start);
            if offset >= length {
                next = start + offset;
                break;
            }
            give(offset, packet);
            taken += 1;
        }
        self.forget(taken);
        next
    }

    #[inline(always)]
    pub(crate) fn stretches(&self) -> [&[Packet]; 2] {
        let (begun, rest) = self.slots.split_at(self.head as usize);
        let turned = self.len().saturating_sub(rest.len());
        [&rest[..self.len() - turned], &begun[..turned]]
    }

    #[inline(always)]
    pub(crate) fn forget(&mut self, count: usize) {
        self.len -= count as u32;
        // An empty ring restarts at its first slot, which is still in the cache.
        let head = (self.head + count as u32) & (self.slots.len() as u32).wrapping_sub(1);
        self.head = if self.len == 0 { 0 } else { head };
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Packet> {
        let packet = *self.front()?;
        self.forget(1);
        Some(packet)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Packet> {
        (0..self.len()).map(|place| self.at(place))
    }

    pub(crate) fn change(&mut self, mut to: impl FnMut(Packet) -> Packet) {
        let mask = self.slots.len().wrapping_sub(1);
        for place in 0..self.len() {
            let slot = &mut self.slots[(self.head as usize + place) & mask];
            *slot = to(*slot);
        }
    }

    pub(crate) fn clear(&mut self) {
        (self.head, self.len) = (0, 0);
    }

    #[cold]
    fn grow(&mut self) {
        let mut slots: Vec<Packet> = self.iter().copied().collect();
        let wanted = (self.slots.len() * 2).max(Self::LEAST);
        assert!(wanted <= 1 << 31, "a queue holds fewer than 2^31 packets");
        slots.resize(wanted, Packet::default());
        self.slots = slots.into_boxed_slice();
        self.head = 0;
    }
}

pub(crate) struct FifoTail<'r> {
    slots: &'r mut [Packet],
    first: usize,
    next: usize,
    len: &'r mut u32,
}

impl FifoTail<'_> {
    #[inline(always)]
    pub(crate) fn push(&mut self, packet: Packet) {
        let mask = self.slots.len() - 1;
        self.slots[self.next & mask] = packet;
        self.next += 1;
    }

    #[inline(always)]
    pub(crate) fn close(self) -> Option<Packet> {
        let count = self.next - self.first;
        let was_empty = *self.len == 0;
        *self.len += count as u32;
        debug_assert!(
            *self.len as usize <= self.slots.len(),
            "more packets arrived than were announced"
        );
        (was_empty && count > 0).then(|| self.slots[self.first & (self.slots.len() - 1)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::packet::Contents;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn packet_fifo_matches_a_queue(steps in prop::collection::vec((0u32..20, 0usize..20), 1..60)) {
            let (mut ring, mut model) = (PacketFifo::default(), VecDeque::new());
            let mut number = 0;
            for (pushed, popped) in steps {
                let mut fresh = Vec::new();
                for _ in 0..pushed {
                    let contents = Contents { cursor: 0, sequence: number, extra: 0, flags: 0 };
                    let packet = Packet::new(contents);
                    number += 1;
                    fresh.push(packet);
                    model.push_back(packet);
                }
                let (one, many) = fresh.split_at(pushed.min(1) as usize);
                one.iter().for_each(|packet| ring.push(*packet));
                let held = ring.len();
                let mut tail = ring.tail(many.len() + 1);
                many.iter().for_each(|packet| tail.push(*packet));
                let first = tail.close();
                prop_assert_eq!(first.as_ref(), many.first().filter(|_| held == 0));
                prop_assert!(ring.iter().eq(model.iter()));
                prop_assert!(ring.stretches().into_iter().flatten().eq(model.iter()));
                prop_assert_eq!(ring.pop(), model.pop_front());
                let gone = popped.min(model.len());
                ring.forget(gone);
                model.drain(..gone);
                prop_assert_eq!(ring.front(), model.front());
                prop_assert_eq!(ring.len(), model.len());
            }
        }
    }
}
