// SPDX-License-Identifier: Apache-2.0
//! The buffer of a switch, and the buffered bytes per ingress link that trigger pauses.

use super::packet::Packet;
use super::port::{Port, PortCount, SendingPort};
use super::queueing::{Buffer, CONTROL_PRIORITY, PRIORITIES, Queueing};
use super::queues::{FRAMES, Queues};

/// Buffer space occupied by a packet until it is sent. Zero for a pause frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    pub(super) ingress: u32,
    pub(super) size: u16,
    pub(super) priority: u8,
}

impl Room {
    #[inline(always)]
    pub(super) fn of(class: usize, packet: &Packet, port: &Port) -> Self {
        let size = if class == FRAMES { 0 } else { port.size(packet) as u16 };
        let ingress = if class == FRAMES { 0 } else { packet.ingress() };
        Self { ingress, size, priority: class as u8 & CONTROL_PRIORITY }
    }
}

impl SendingPort<'_> {
    #[inline(always)]
    pub(super) fn room(&self, packet: &Packet) -> Room {
        let (ingress, priority) = (packet.ingress(), packet.priority());
        Room { ingress, size: self.size(packet) as u16, priority }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lossless {
    priorities: u8,
    pub(super) pause_above: u64,
    pub(super) resume_at: u64,
    most: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Store {
    buffer: Option<Buffer>,
    trim: bool,
    pub(super) lossless: Lossless,
    /// Bytes by priority and ingress port, contiguous by priority because usually only one is lossless.
    came: Vec<u64>,
    pub(super) asked: Vec<u8>,
    used: u64,
    pub(super) dropped: [u64; PRIORITIES],
}

impl Store {
    pub(super) fn new(queueing: &Queueing, ports: usize) -> Self {
        let lossless = queueing.pause.map_or_else(Lossless::default, |pause| Lossless {
            priorities: pause.priorities & !(1 << CONTROL_PRIORITY),
            pause_above: pause.pause_above.0,
            resume_at: pause.resume_at.0,
            most: pause.pause_above.0.saturating_add(pause.headroom.0),
        });
        Self {
            buffer: queueing.buffer,
            trim: queueing.trim,
            lossless,
            came: vec![0; PRIORITIES * ports],
            asked: vec![0; ports],
            used: 0,
            dropped: [0; PRIORITIES],
        }
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.lossless.priorities != 0 || self.buffer.is_some()
    }

    /// Whether everything fits if each ingress port receives up to `more` bytes, in any order.
    pub(super) fn holds(&self, more: &[u64]) -> bool {
        self.no_pause_is_near(more)
            && self.buffer.is_none_or(|buffer| {
                let total = self.used.saturating_add(more.iter().sum());
                let free = buffer.size.0.saturating_sub(total);
                free > 0 && total <= share(&buffer, free)
            })
    }

    fn no_pause_is_near(&self, more: &[u64]) -> bool {
        let mut near = false;
        let mut priorities = self.lossless.priorities;
        while priorities != 0 {
            let class = priorities.trailing_zeros() as usize;
            priorities &= priorities - 1;
            let came = &self.came[class * self.asked.len()..];
            for (came, more) in came.iter().zip(more) {
                near |= came + more > self.lossless.pause_above;
            }
        }
        !near
    }

    /// Returns the packet to queue and its size, or only its header if nothing more fits. `None` if it is dropped.
    #[inline(always)]
    pub(super) fn admit(
        &mut self,
        queues: &Queues,
        packet: Packet,
        ingress: u32,
        size: u64,
        header: u16,
        count: &mut PortCount,
    ) -> Option<(Packet, u64)> {
        if self.has_room(queues, ingress, packet.priority(), size) {
            return Some((packet, size));
        }
        let can_trim = self.trim && packet.priority() != CONTROL_PRIORITY;
        if !can_trim || !self.has_room(queues, ingress, CONTROL_PRIORITY, u64::from(header)) {
            count.dropped += 1;
            self.dropped[usize::from(packet.priority())] += 1;
            return None;
        }
        count.trimmed += 1;
        Some((packet.trimmed(header), u64::from(header)))
    }

    /// If false, the packet may still fit. [`holds`](Self::holds) has already checked the shared limits.
    #[inline(always)]
    pub(super) fn surely_holds(&self, queues: &Queues, priority: u8, size: u64) -> bool {
        let fits = queues.bytes(usize::from(priority)) + size <= queues.capacity;
        fits | self.is_lossless(priority)
    }

    #[inline(always)]
    fn has_room(&self, queues: &Queues, ingress: u32, priority: u8, size: u64) -> bool {
        let class = usize::from(priority);
        let free = self.buffer.map(|buffer| buffer.size.0.saturating_sub(self.used));
        if self.is_lossless(priority) {
            let came = self.came(ingress, priority) + size;
            return came <= self.lossless.most && free.is_none_or(|free| size <= free);
        }
        let queue = queues.bytes(class) + size;
        let fits = self
            .buffer
            .zip(free)
            .is_none_or(|(buffer, free)| size <= free && queue <= share(&buffer, free));
        fits && queue <= queues.capacity
    }

    #[inline(always)]
    pub(super) fn is_lossless(&self, priority: u8) -> bool {
        self.lossless.priorities & (1 << priority) != 0
    }

    pub(super) fn has_to_ask(&self, Room { ingress, priority, .. }: Room) -> bool {
        self.is_lossless(priority)
            && self.came(ingress, priority) > self.lossless.pause_above
            && self.asked[ingress as usize] & (1 << priority) == 0
    }

    #[inline(always)]
    pub(super) fn came(&self, ingress: u32, priority: u8) -> u64 {
        self.came[self.asked.len() * usize::from(priority) + ingress as usize]
    }

    #[inline(always)]
    fn came_mut(&mut self, room: Room) -> &mut u64 {
        &mut self.came[self.asked.len() * usize::from(room.priority) + room.ingress as usize]
    }

    #[inline(always)]
    pub(super) fn take_up(&mut self, room: Room) {
        self.used += u64::from(room.size);
        *self.came_mut(room) += u64::from(room.size);
    }

    #[inline(always)]
    pub(super) fn give_back(&mut self, room: Room) {
        self.used -= u64::from(room.size);
        *self.came_mut(room) -= u64::from(room.size);
    }
}

fn share(buffer: &Buffer, free: u64) -> u64 {
    let share = u128::from(free) * u128::from(buffer.alpha_percent) / 100;
    u64::try_from(share).unwrap_or(u64::MAX)
}
