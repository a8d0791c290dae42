// SPDX-License-Identifier: Apache-2.0
//! Recomputes the departure times of packets waiting at a port when its rate changes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{LONGEST_WAIT_PS, Line, Port};
use crate::engine::packet::Packet;
use crate::engine::ring::PacketFifo;

pub(crate) struct RateChange {
    pub(super) now: u64,
    pub(super) before: Arc<Line>,
    pub(super) corrupted: VecDeque<(u64, u64)>,
}

fn note_sending(before: &Line, port: &mut Port, until: u64, now: u64) {
    let (last, rate) = before.changed;
    let rate = if until == last { rate } else { before.rate };
    Arc::make_mut(&mut port.line).changed = (if until > now { until } else { 0 }, rate);
}

impl RateChange {
    /// With bounded queues, waiting packets have no departure times yet.
    pub(crate) fn settle_queued(self, port: &mut Port, until: u64) {
        note_sending(&self.before, port, until, self.now);
    }

    /// Returns the number of packets dropped because they would wait longer than packet times can express.
    pub(crate) fn settle(self, port: &mut Port, on_wire: &mut PacketFifo) -> u64 {
        let Self { now, before, mut corrupted } = self;
        // Queued packets leave back to back, and the port is free after the last one.
        let (mut end, mut waiting, mut left) = (port.free, VecDeque::new(), on_wire.len());
        let until = loop {
            let wrong = corrupted.back().copied().filter(|(wrong, _)| *wrong == end);
            let packet = wrong.is_none().then(|| left.checked_sub(1)).flatten();
            let packet = packet.map(|at| *on_wire.at(at));
            let Some(size) = wrong.map(|(_, size)| size).or(packet.map(|one| before.size(&one)))
            else {
                break before.changed.0.max(now);
            };
            let time = before.unusual(size);
            if end <= now.max(before.changed.0) || end - time < now {
                break end;
            }
            if wrong.is_some() {
                corrupted.pop_back();
            } else {
                left -= 1;
            }
            waiting.push_front((size, packet));
            end -= time;
        };
        note_sending(&before, port, until, now);
        let line = &port.line;
        if waiting.is_empty() {
            return 0;
        }
        let (mut free, mut dropped) = (until.max(now), 0);
        let mut corrupted = VecDeque::new();
        let begun: Vec<Packet> = on_wire.iter().take(left).copied().collect();
        on_wire.clear();
        begun.into_iter().for_each(|packet| on_wire.push(packet));
        let jitter = port.quirks.as_ref().map(|quirks| quirks.jitter).unwrap_or_default();
        for (size, packet) in waiting {
            let end = free + line.unusual(size);
            match packet {
                Some(_) if end - now > LONGEST_WAIT_PS => dropped += 1,
                Some(packet) => {
                    free = end;
                    on_wire.push(packet.at(end + line.delay + jitter.late(end)));
                }
                None => {
                    free = end;
                    corrupted.push_back((end, size));
                }
            }
        }
        port.free = free;
        if !corrupted.is_empty() {
            port.quirks.get_or_insert_default().corrupted = corrupted;
        }
        dropped
    }
}
