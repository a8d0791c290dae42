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

/// A shard as it was, and how far its state moves with each packet from then on.
#[derive(Clone, Debug)]
pub(crate) struct EarlierShard<P> {
    shard: Box<Shard<P>>,
    at: u64,
    pace: StateLag,
}

impl<P> EarlierShard<P> {
    /// When the state is the same again, one packet later.
    pub(crate) const fn next(&self) -> u64 {
        self.at + self.pace.time
    }
}

impl<P: Probe> EarlierShard<P> {
    /// `None` if the state cannot repeat with each packet of a flow before `until`.
    pub(crate) fn of(shard: &Shard<P>, now: u64, until: u64) -> Option<Self> {
        let pace = pace(shard, now)?;
        let may_repeat = now + pace.time < until && may_repeat(shard);
        may_repeat.then(|| Self { shard: Box::new(shard.clone()), at: now, pace })
    }

    pub(crate) fn probe(&self) -> &P {
        &self.shard.probe
    }

    /// Whether `later`, at [`next`](Self::next), differs only by one packet.
    pub(crate) fn is_repeated_by(&self, later: &Shard<P>) -> bool {
        let Self { shard, at: now, pace } = self;
        let (now, then, pace) = (*now, self.next(), *pace);
        let hosts = shard.hosts.iter().zip(&later.hosts);
        let mut wires = shard.wires.iter().zip(&later.wires);
        let mut senders = shard.senders.iter().zip(&later.senders);
        let mut receivers = shard.receivers.iter().zip(&later.receivers);
        let mut ports = shard.ports.iter().zip(&later.ports);
        shard.ready == later.ready
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

    /// How often the change repeats after `later` before a message ends, a flow starts, a timer expires or `until`
    /// is reached.
    pub(crate) fn times(&self, later: &Shard<P>, until: u64) -> u32 {
        let starts = later.hosts.iter().map(HostState::next_start);
        let mut until = starts.min().unwrap_or(u64::MAX).min(until);
        let mut packets = u32::MAX;
        for (one, sender) in self.shard.senders.iter().zip(&later.senders) {
            if one.pace_to(sender, self.pace).packets > 0 {
                packets = packets.min(sender.packets_alike());
            } else {
                until = until.min(sender.deadline);
            }
        }
        for (one, receiver) in self.shard.receivers.iter().zip(&later.receivers) {
            if one.pace_to(receiver, self.pace).packets > 0 {
                packets = packets.min(receiver.packets_alike());
            }
        }
        let times = until.saturating_sub(self.next()) / self.pace.time;
        u32::try_from(times).unwrap_or(u32::MAX).min(packets / self.pace.packets)
    }

    /// Repeats the change from the past to `later` in `later`, and returns the number of packet-hops.
    pub(crate) fn repeat(&self, later: &mut Shard<P>, times: u32) -> u64 {
        let (before, now, pace) = (&self.shard, self.next(), self.pace);
        let far = pace.times(times);
        for (one, sender) in before.senders.iter().zip(&mut later.senders) {
            if one.pace_to(sender, pace).packets > 0 {
                sender.leap(far);
            }
        }
        for (one, receiver) in before.receivers.iter().zip(&mut later.receivers) {
            if one.pace_to(receiver, pace).packets > 0 {
                receiver.leap(far.packets);
            }
        }
        for port in later.ports.iter_mut().filter(|port| port.free > now) {
            port.free += far.time;
        }
        for wire in &mut later.wires {
            wire.queue.change(|packet| packet.moved(now, far));
        }
        let mut hops = 0;
        for (one, count) in before.counts.iter().zip(&mut later.counts) {
            hops += (count.packets - one.packets) * u64::from(times);
            *count = repeated(*one, *count, times);
        }
        later.ends = later.ends.repeated(&before.ends, times);
        for host in &mut later.hosts {
            host.inside.iter_mut().for_each(|packet| *packet = packet.moved(now, far));
            if host.pull_due != u64::MAX {
                host.pull_due += far.time;
            }
            let deadlines =
                host.active.iter().map(|sender| later.senders[*sender as usize].deadline);
            host.timer_due = deadlines.min().unwrap_or(u64::MAX);
        }
        for index in 0..later.vertices.len() {
            later.set_host_due(index, now + far.time);
        }
        later.due.settle_all();
        hops
    }

    /// Predicts `now` after `times` more repetitions.
    pub(crate) fn foretell(&self, now: &Shard<P>, times: u32) -> Self {
        let mut shard = Box::new(now.clone());
        self.repeat(&mut shard, times);
        Self { shard, at: self.next() + self.pace.times(times).time, pace: StateLag::NONE }
    }

    pub(crate) fn has_come_true(&self, now: &Shard<P>) -> bool {
        let counts = self.shard.counts == now.counts && self.shard.ends == now.ends;
        counts && self.is_repeated_by(now)
    }
}

fn may_repeat<P>(shard: &Shard<P>) -> bool {
    shard.switches.iter().all(Option::is_none)
        && shard.ports.iter().all(|port| port.paused == 0 && !port.has_quirks())
        && shard.senders.iter().all(|sender| sender.is_plain())
}

/// Between the first data packet of a flow on a wire and the next packet of that flow.
fn pace<P>(shard: &Shard<P>, now: u64) -> Option<StateLag> {
    shard.wires.iter().find_map(|wire| {
        let mut data = wire.queue.iter().filter(|packet| !packet.is_acknowledgement());
        let first = data.next()?;
        let next = data.find(|next| {
            next.cursor() == first.cursor() && next.sequence() == first.sequence() + 1
        })?;
        Some(StateLag { time: next.after(now) - first.after(now), packets: 1 })
    })
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
