// SPDX-License-Identifier: Apache-2.0
//! Paces credits at a receiving host. Each credit allows one packet. Credits are granted at the
//! rate of the host's interfaces, round robin among flows.
//!
//! While no flow waits, a credit travels on the acknowledgement of the packet that earned it, so a single flow needs no
//! extra packets. Otherwise the credit waits for its turn and is sent as a separate packet.

use std::collections::VecDeque;

use lightloom_units::BitsPerSecond;

use super::Probe;
use super::interfaces::Interfaces;
use super::stack::Stack;
use crate::engine::packet::{Packet, flag};
use crate::transport::Receiver;

#[derive(Clone, Debug, Default)]
pub(super) struct Pacer {
    gap: u64,
    burst: u64,
    next: u64,
    queue: VecDeque<u32>,
}

impl Pacer {
    /// Grants credits for packets of `bits` at the rates of a host's interfaces.
    pub(super) fn new(bits: u64, rates: &[BitsPerSecond]) -> Self {
        let rate: u128 = rates.iter().map(|rate| u128::from(rate.get())).sum();
        let gap = u128::from(bits) * 1_000_000_000_000 / rate.max(1);
        let gap = u64::try_from(gap).unwrap_or(u64::MAX / 4);
        // Packets that arrive at the same time on different interfaces are credited at once.
        let burst = gap * (rates.len() as u64).saturating_sub(1);
        Self { gap, burst, ..Self::default() }
    }

    fn due(&self, now: u64) -> u64 {
        if self.queue.is_empty() { u64::MAX } else { self.next.max(now) }
    }

    /// While a flow waits, a marked packet delays one credit by a sixteenth of a packet time, to drain the queue.
    fn slow_down(&mut self) {
        if !self.queue.is_empty() {
            self.next += self.gap / 16;
        }
    }

    fn pay(&mut self, now: u64) {
        self.next = self.next.max(now.saturating_sub(self.burst)) + self.gap;
    }
}

impl<P: Probe, I: Interfaces> Stack<'_, P, I> {
    pub(super) fn with_credit(
        &mut self,
        end: u32,
        is_new: bool,
        is_marked: bool,
        now: u64,
        acknowledgement: Packet,
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

/// Sets [`flag::SETTLED`] if no credit is outstanding, so that the sender can detect losses.
fn settled(packet: Packet, receiver: &Receiver) -> Packet {
    if receiver.awaits_no_credit() { packet.with(flag::SETTLED) } else { packet }
}
