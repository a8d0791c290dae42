// SPDX-License-Identifier: Apache-2.0

use super::{Load, LossRecovery, SequenceSet};
use crate::engine::packet::{Contents, Packet, flag};
use crate::engine::shard::again::{End, StateLag};

#[derive(Clone, Debug, Default)]
pub(crate) struct Receiver {
    pub(crate) flow: u32,
    pub(crate) cursor: u32,
    pub(crate) answers_by_path: bool,
    expected: u32,
    total: u32,
    per_message: u32,
    /// Number of the current message's last packet, plus one.
    message_end: u32,
    delivered: u32,
    keeps: Option<SequenceSet>,
    /// New packets that will still earn credit. The initial window covers earlier packets.
    unpaid: u32,
    waiting: u32,
    duplicates: u32,
    pub(crate) dependents: Vec<u32>,
}

impl Receiver {
    pub(crate) fn new(
        flow: u32,
        cursor: u32,
        Load { messages, per_message, .. }: Load,
        window: u32,
        recovery: LossRecovery,
    ) -> Self {
        let keeps = match recovery {
            LossRecovery::GoBackN => None,
            LossRecovery::SelectiveRepeat { .. } => {
                Some(SequenceSet::new(window.min(messages * per_message)))
            }
        };
        Self {
            flow,
            cursor,
            total: messages * per_message,
            per_message,
            message_end: per_message,
            keeps,
            ..Self::default()
        }
    }

    pub(crate) fn delivered(&self) -> u32 {
        self.delivered
    }

    pub(crate) fn packets_in_order(&self) -> u32 {
        self.expected
    }

    pub(crate) fn duplicates(&self) -> u32 {
        self.duplicates
    }

    pub(crate) fn is_done(&self) -> bool {
        self.expected >= self.total
    }

    pub(crate) fn packets_missing(&self) -> u32 {
        let kept = self.keeps.as_ref().map_or(0, SequenceSet::len);
        self.total.saturating_sub(self.expected + kept)
    }

    /// Returns the acknowledgement, without a time, and whether a message was completed.
    #[inline(always)]
    pub(crate) fn data(&mut self, packet: &Packet) -> (Packet, bool) {
        let mut flags = flag::ACKNOWLEDGEMENT;
        if packet.has(flag::TRIMMED) {
            if packet.is_probe() {
                return (self.answer_probe(packet), false);
            }
            // If only the header arrived, request the data unless it has arrived meanwhile.
            if packet.sequence() >= self.expected {
                let keeps = self.keeps.as_ref();
                let kept = keeps.is_some_and(|keeps| keeps.contains(packet.sequence()));
                flags |= if kept { flag::GAP } else { flag::GAP | flag::TRIMMED };
            }
        } else if packet.sequence() == self.expected {
            self.advance();
        } else if packet.sequence() > self.expected {
            flags |= flag::GAP;
            if let Some(keeps) = &mut self.keeps {
                let beyond = packet.sequence() - self.expected;
                if beyond > u32::from(u16::MAX) {
                    // Acknowledgements cannot express this distance, so treat the packet as lost.
                    flags = flag::ACKNOWLEDGEMENT;
                } else {
                    debug_assert!(beyond < keeps.span(), "the sender never exceeds its window");
                    self.duplicates += u32::from(!keeps.insert(packet.sequence()));
                }
            }
        } else {
            self.duplicates += 1;
        }
        if packet.has(flag::MARKED) {
            flags |= flag::ECHO;
        }
        let away = if packet.sequence() >= self.expected {
            packet.sequence() - self.expected
        } else {
            self.expected - 1 - packet.sequence()
        };
        let acknowledgement = Packet::new(Contents {
            cursor: self.cursor,
            sequence: self.expected,
            extra: u16::try_from(away).unwrap_or(u16::MAX),
            flags,
        });
        (acknowledgement, self.count_messages())
    }

    pub(crate) fn begin_credits(&mut self, initial: u32) {
        self.unpaid = self.total.saturating_sub(initial);
    }

    pub(crate) fn is_new(&self, packet: &Packet) -> bool {
        !packet.has(flag::TRIMMED)
            && packet.sequence() >= self.expected
            && self.keeps.as_ref().is_none_or(|keeps| !keeps.contains(packet.sequence()))
    }

    pub(crate) fn earns_credit(&mut self, is_new: bool) -> bool {
        let earns = !self.is_done() && (!is_new || self.unpaid > 0);
        self.unpaid -= u32::from(earns && is_new);
        earns
    }

    pub(crate) fn awaits_no_credit(&self) -> bool {
        self.waiting == 0
    }

    pub(crate) fn defer_credit(&mut self) {
        self.waiting += 1;
    }

    pub(crate) fn pay_credit(&mut self) -> bool {
        self.waiting -= 1;
        self.waiting > 0
    }

    pub(crate) fn credit(&self) -> Packet {
        let flags = flag::ACKNOWLEDGEMENT | flag::RESENT | flag::CREDIT;
        Packet::new(Contents { cursor: self.cursor, sequence: self.expected, extra: 0, flags })
    }

    #[cold]
    fn answer_probe(&self, probe: &Packet) -> Packet {
        let flags = flag::ACKNOWLEDGEMENT | flag::RESENT;
        let (cursor, sequence) = (self.cursor, probe.sequence());
        Packet::new(Contents { cursor, sequence, extra: 0, flags })
    }

    pub(crate) fn becomes(&self, later: &Self, pace: StateLag) -> bool {
        let [stays, stays_later] = [self, later]
            .map(|end| (end.message_end, end.delivered, end.total, end.duplicates, end.cursor));
        self.expected + pace.packets == later.expected
            && stays == stays_later
            && [self, later].iter().all(|end| end.keeps.as_ref().is_none_or(SequenceSet::is_empty))
    }

    pub(crate) fn packets_alike(&self) -> u32 {
        self.message_end.saturating_sub(self.expected + 1)
    }

    pub(crate) fn leap(&mut self, packets: u32) {
        self.expected += packets;
    }

    fn advance(&mut self) {
        self.expected += 1;
        if let Some(keeps) = &mut self.keeps {
            while keeps.take(self.expected) {
                self.expected += 1;
            }
        }
    }

    fn count_messages(&mut self) -> bool {
        let before = self.delivered;
        while self.expected >= self.message_end && self.delivered * self.per_message < self.total {
            self.delivered += 1;
            self.message_end += self.per_message;
        }
        self.delivered != before
    }
}

impl End for Receiver {
    fn reached(&self) -> u32 {
        self.expected
    }
}
