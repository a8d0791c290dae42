// SPDX-License-Identifier: Apache-2.0
//! Detects that a shard's state repeats one packet later, and extrapolates it.

use super::{EndCount, HostState, Probe, Shard};
use crate::engine::port::PortCount;

#[derive(Clone, Copy, Debug)]
pub(crate) struct StateLag {
    pub(crate) time: u64,
    pub(crate) packets: u32,
}

impl StateLag {
    const NONE: Self = Self { time: 0, packets: 0 };

    pub(crate) fn times(self, times: u32) -> Self {
        Self { time: self.time * u64::from(times), packets: self.packets * times }
    }
}

impl<P: Probe> Shard<P> {
    pub(crate) fn may_repeat(&self) -> bool {
        self.switches.iter().all(Option::is_none)
            && self.ports.iter().all(|port| port.paused == 0 && !port.has_quirks())
            && self.senders.iter().all(|sender| sender.is_plain())
    }

    pub(crate) fn pace(&self, now: u64) -> Option<StateLag> {
        self.wires.iter().find_map(|wire| {
            let mut data = wire.queue.iter().filter(|packet| !packet.is_acknowledgement());
            let first = data.next()?;
            let next = data.find(|next| {
                next.cursor() == first.cursor() && next.sequence() == first.sequence() + 1
            })?;
            Some(StateLag { time: next.after(now) - first.after(now), packets: 1 })
        })
    }

    pub(crate) fn becomes(&self, later: &Self, now: u64, pace: StateLag) -> bool {
        let then = now + pace.time;
        let hosts = self.hosts.iter().zip(&later.hosts);
        let mut wires = self.wires.iter().zip(&later.wires);
        let mut senders = self.senders.iter().zip(&later.senders);
        let mut receivers = self.receivers.iter().zip(&later.receivers);
        let mut ports = self.ports.iter().zip(&later.ports);
        self.ready == later.ready
            && ports.all(|(one, other)| {
                one.up == other.up && one.free.max(now) + pace.time == other.free.max(then)
            })
            && hosts.into_iter().all(|(one, other)| one.becomes(other, now, pace))
            && senders.all(|(one, other)| one.becomes(other, one.pace_to(other, pace)))
            && receivers.all(|(one, other)| one.becomes(other, one.pace_to(other, pace)))
            && wires.all(|(one, other)| {
                let (one, other) = (&one.queue, &other.queue);
                one.len() == other.len()
                    && one.iter().zip(other.iter()).all(|(a, b)| a.moved(now, pace) == *b)
            })
    }

    pub(crate) fn counts_as(&self, other: &Self) -> bool {
        self.counts == other.counts && self.ends == other.ends
    }

    /// How often the change repeats before a message ends, a flow starts, a timer expires or `until` is reached.
    pub(crate) fn times(&self, before: &Self, now: u64, until: u64, pace: StateLag) -> u32 {
        let starts = self.hosts.iter().map(HostState::next_start);
        let mut until = starts.min().unwrap_or(u64::MAX).min(until);
        let mut packets = u32::MAX;
        for (one, sender) in before.senders.iter().zip(&self.senders) {
            if one.pace_to(sender, pace).packets > 0 {
                packets = packets.min(sender.packets_alike());
            } else {
                until = until.min(sender.deadline);
            }
        }
        for (one, receiver) in before.receivers.iter().zip(&self.receivers) {
            if one.pace_to(receiver, pace).packets > 0 {
                packets = packets.min(receiver.packets_alike());
            }
        }
        let times = until.saturating_sub(now) / pace.time;
        u32::try_from(times).unwrap_or(u32::MAX).min(packets / pace.packets)
    }

    pub(crate) fn hops(&self) -> u64 {
        self.counts.iter().map(|count| count.packets).sum()
    }

    pub(crate) fn leap(&mut self, before: &Self, now: u64, pace: StateLag, times: u32) {
        let far = pace.times(times);
        for (one, sender) in before.senders.iter().zip(&mut self.senders) {
            if one.pace_to(sender, pace).packets > 0 {
                sender.leap(far);
            }
        }
        for (one, receiver) in before.receivers.iter().zip(&mut self.receivers) {
            if one.pace_to(receiver, pace).packets > 0 {
                receiver.leap(far.packets);
            }
        }
        for port in self.ports.iter_mut().filter(|port| port.free > now) {
            port.free += far.time;
        }
        for wire in &mut self.wires {
            wire.queue.change(|packet| packet.moved(now, far));
        }
        for (one, count) in before.counts.iter().zip(&mut self.counts) {
            *count = repeated(*one, *count, times);
        }
        self.ends = self.ends.repeated(&before.ends, times);
        for host in &mut self.hosts {
            host.inside.iter_mut().for_each(|packet| *packet = packet.moved(now, far));
            if host.pull_due != u64::MAX {
                host.pull_due += far.time;
            }
            let deadlines =
                host.active.iter().map(|sender| self.senders[*sender as usize].deadline);
            host.timer_due = deadlines.min().unwrap_or(u64::MAX);
        }
        self.look_when_due(now + far.time);
    }

    fn look_when_due(&mut self, now: u64) {
        for index in 0..self.vertices.len() {
            self.set_host_due(index, now);
        }
        self.due.settle_all();
    }
}

impl HostState {
    fn becomes(&self, later: &Self, now: u64, pace: StateLag) -> bool {
        let starts = |host: &Self| {
            let mut starts: Vec<_> = host.starts.iter().copied().collect();
            starts.sort_unstable();
            starts
        };
        let due = if self.pull_due == u64::MAX { u64::MAX } else { self.pull_due + pace.time };
        let mut inside = self.inside.iter().zip(&later.inside);
        self.active == later.active
            && due == later.pull_due
            && self.inside.len() == later.inside.len()
            && inside.all(|(one, other)| one.moved(now, pace) == *other)
            && starts(self) == starts(later)
    }
}

impl EndCount {
    fn repeated(self, before: &Self, times: u32) -> Self {
        let more = |now, before| more(now, before, times);
        Self {
            data_sent: more(self.data_sent, before.data_sent),
            acknowledgements_sent: more(self.acknowledgements_sent, before.acknowledgements_sent),
            frames_sent: more(self.frames_sent, before.frames_sent),
            delivered: more(self.delivered, before.delivered),
        }
    }
}

fn more(now: u64, before: u64, times: u32) -> u64 {
    now + (now - before) * u64::from(times)
}

fn repeated(before: PortCount, now: PortCount, times: u32) -> PortCount {
    let more = |now, before| more(now, before, times);
    PortCount {
        packets: more(now.packets, before.packets),
        bytes: more(now.bytes, before.bytes),
        dropped: more(now.dropped, before.dropped),
        marked: more(now.marked, before.marked),
        lost: more(now.lost, before.lost),
        trimmed: more(now.trimmed, before.trimmed),
        pauses: more(now.pauses, before.pauses),
        // The engine does not skip while a port is paused.
        paused_ps: now.paused_ps,
    }
}

pub(crate) trait End {
    fn reached(&self) -> u32;

    fn pace_to(&self, later: &Self, pace: StateLag) -> StateLag {
        if self.reached() == later.reached() { StateLag::NONE } else { pace }
    }
}
