// SPDX-License-Identifier: Apache-2.0
//! What the ports of a switch share: the buffer, and what has come in by each link and not left, which
//! pauses are asked by.

use super::packet::Packet;
use super::port::{Port, PortCount, SendingPort};
use super::queueing::{Buffer, CONTROL_PRIORITY, PRIORITIES, Queueing};
use super::queues::{FRAMES, Queues};

/// What a packet takes of the buffer until it is out; nothing for a pause frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    pub(super) ingress: u32,
    pub(super) size: u16,
    pub(super) priority: u8,
}

impl Room {
    /// Of a packet that has waited in `class`.
    #[inline(always)]
    pub(super) fn of(class: usize, packet: &Packet, port: &Port) -> Self {
        let size = if class == FRAMES { 0 } else { port.size(packet) as u16 };
        let ingress = if class == FRAMES { 0 } else { packet.ingress() };
        Self { ingress, size, priority: class as u8 & CONTROL_PRIORITY }
    }
}

impl SendingPort<'_> {
    /// What `packet` takes of the buffer of a switch.
    #[inline(always)]
    pub(super) fn room(&self, packet: &Packet) -> Room {
        let (ingress, priority) = (packet.ingress(), packet.priority());
        Room { ingress, size: self.size(packet) as u16, priority }
    }
}

/// Priority flow control in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lossless {
    /// By priority, one bit.
    priorities: u8,
    pub(super) pause_above: u64,
    pub(super) resume_at: u64,
    /// With the headroom.
    most: u64,
}

/// The shared room of a switch.
#[derive(Clone, Debug)]
pub(super) struct Store {
    buffer: Option<Buffer>,
    trim: bool,
    pub(super) lossless: Lossless,
    /// By priority and ingress: bytes that have come in and not left; what is being sent counts while ports are
    /// worked off together. One priority lies side by side, because seldom more than one pauses.
    came: Vec<u64>,
    /// By ingress and priority, one bit: its sender has been asked to pause.
    pub(super) asked: Vec<u8>,
    /// In the buffer.
    used: u64,
    /// Packets that found no room, by priority.
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

    /// Whether anything at all is shared that has a bound.
    pub(super) fn is_bounded(&self) -> bool {
        self.lossless.priorities != 0 || self.buffer.is_some()
    }

    /// Whether so many bytes more by each place meet no bound, in whatever order they come and go.
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

    /// The packet that goes into the queue and its size: the one of `size` that came by `ingress`, or its
    /// header when there is no room for more. Nothing: it is dropped.
    #[inline(always)]
    pub(super) fn admit(
        &mut self,
        queues: &Queues,
        (packet, ingress, size): (Packet, u32, u64),
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

    /// Whether a packet of `size` goes into its queue, decided without asking what ports share: that has been
    /// found to hold whatever comes in this window ([`holds`](Self::holds)). If not, it may still.
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

    /// Whether more has come in by the ingress of `room` than may without a pause.
    pub(super) fn has_to_ask(&self, Room { ingress, priority, .. }: Room) -> bool {
        self.is_lossless(priority)
            && self.came(ingress, priority) > self.lossless.pause_above
            && self.asked[ingress as usize] & (1 << priority) == 0
    }

    /// Bytes of `priority` that have come by `ingress` and not left.
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

/// What a queue may grow to when so much of the buffer is free.
fn share(buffer: &Buffer, free: u64) -> u64 {
    let share = u128::from(free) * u128::from(buffer.alpha_percent) / 100;
    u64::try_from(share).unwrap_or(u64::MAX)
}
