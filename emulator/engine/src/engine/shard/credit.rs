// SPDX-License-Identifier: Apache-2.0
//! A receiving host gives credit: a packet each, at the pace of its interfaces, flows in turn.
//!
//! While no flow waits, a credit goes with the acknowledgement of the packet that earned it, so that a flow alone costs
//! no packet more. Otherwise it waits for its turn and goes as a packet of its own.

use std::collections::VecDeque;

use super::interfaces::Interfaces;
use super::stack::Stack;
use super::{Probe, Shard};
use crate::engine::packet::{Packet, flag};
use crate::transport::Receiver;

/// When a host may give its next credit, and to whom.
#[derive(Clone, Debug, Default)]
pub(super) struct Pacer {
    /// Between two credits, in picoseconds.
    gap: u64,
    /// How far credits may come together, in picoseconds.
    burst: u64,
    /// The next credit may be given then.
    next: u64,
    /// Receiving ends that have earned credit, the next one first.
    queue: VecDeque<u32>,
}

impl Pacer {
    /// When a credit that waits is to be given; `u64::MAX`: none waits.
    fn due(&self, now: u64) -> u64 {
        if self.queue.is_empty() { u64::MAX } else { self.next.max(now) }
    }

    /// A packet came marked: as long as a flow waits, the queue before it is let run down by a sixteenth of a packet.
    fn slow_down(&mut self) {
        if !self.queue.is_empty() {
            self.next += self.gap / 16;
        }
    }

    fn pay(&mut self, now: u64) {
        self.next = self.next.max(now.saturating_sub(self.burst)) + self.gap;
    }
}

impl<P> Shard<P> {
    /// Hosts give credits for packets of `bits` at the pace at which their links bring them.
    pub(crate) fn pace_credits(&mut self, bits: u64) {
        for (vertex, host) in self.vertices.iter().zip(&mut self.hosts) {
            let rates = &self.wire_rates[vertex.wires()];
            let rate: u128 = rates.iter().map(|rate| u128::from(rate.get())).sum();
            let gap = u128::from(bits) * 1_000_000_000_000 / rate.max(1);
            host.pacer.gap = u64::try_from(gap).unwrap_or(u64::MAX / 4);
            // Interfaces that bring a packet at one instant are answered at one instant.
            host.pacer.burst = host.pacer.gap * (rates.len() as u64).saturating_sub(1);
        }
    }
}

impl<P: Probe, I: Interfaces> Stack<'_, P, I> {
    /// The acknowledgement of a packet that came for this end, with the credit that it earned if no flow waits.
    pub(super) fn with_credit(
        &mut self,
        end: u32,
        (is_new, is_marked): (bool, bool),
        (now, acknowledgement): (u64, Packet),
    ) -> Packet {
        if is_marked {
            self.host.pacer.slow_down();
        }
        let receiver = &mut self.receivers[end as usize];
        if !receiver.earns_credit(is_new) {
            return settled(acknowledgement, receiver);
        }
        let pacer = &mut self.host.pacer;
        if pacer.queue.is_empty() && pacer.next <= now {
            pacer.pay(now);
            return settled(acknowledgement.with(flag::CREDIT), receiver);
        }
        if receiver.awaits_no_credit() {
            pacer.queue.push_back(end);
        }
        receiver.defer_credit();
        self.host.credit_due = pacer.due(now);
        acknowledgement
    }

    /// Gives the credit whose turn it is.
    #[cold]
    pub(super) fn give_credit(&mut self, now: u64) {
        let pacer = &mut self.host.pacer;
        if let Some(end) = pacer.queue.pop_front() {
            let receiver = &mut self.receivers[end as usize];
            if receiver.pay_credit() {
                pacer.queue.push_back(end);
            }
            pacer.pay(now);
            let packet = settled(receiver.credit(), receiver);
            self.ends.acknowledgements_sent += 1;
            let place = self.interfaces.place(&self.shared.routes, packet.cursor());
            self.transmit(place, now, packet.advanced());
        }
        self.host.credit_due = self.host.pacer.due(now);
    }
}

/// The packet, which says so if no credit of this flow waits: the sender may then know what was lost.
fn settled(packet: Packet, receiver: &Receiver) -> Packet {
    if receiver.awaits_no_credit() { packet.with(flag::SETTLED) } else { packet }
}
