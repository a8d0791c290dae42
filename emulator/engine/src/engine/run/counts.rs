// SPDX-License-Identifier: Apache-2.0

use lightloom_units::SimTime;

use super::Engine;
use crate::engine::layout::Place;
use crate::engine::network::LinkId;
use crate::engine::port::PortCount;
use crate::engine::probe::Probe;
use crate::engine::queueing::PRIORITIES;

/// `sent = delivered + dropped + lost + in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCount {
    pub sent: u64,
    pub data_sent: u64,
    pub delivered: u64,
    pub dropped: u64,
    pub trimmed: u64,
    pub pauses: u64,
    pub lost: u64,
    pub in_flight: u64,
    pub marked: u64,
    pub retransmitted: u64,
    pub duplicates: u64,
    /// Packets put on a wire: the unit of the engine's speed.
    pub hops: u64,
}

impl PacketCount {
    pub(crate) fn add_times(&mut self, one: Self, times: u64) {
        let Self {
            sent,
            data_sent,
            delivered,
            dropped,
            trimmed,
            pauses,
            lost,
            in_flight,
            marked,
            retransmitted,
            duplicates,
            hops,
        } = one;
        self.sent += sent * times;
        self.data_sent += data_sent * times;
        self.delivered += delivered * times;
        self.dropped += dropped * times;
        self.trimmed += trimmed * times;
        self.pauses += pauses * times;
        self.lost += lost * times;
        self.in_flight += in_flight * times;
        self.marked += marked * times;
        self.retransmitted += retransmitted * times;
        self.duplicates += duplicates * times;
        self.hops += hops * times;
    }
}

impl<P: Probe> Engine<P> {
    /// Includes an ongoing pause and the bytes already sent of a packet in transmission.
    #[must_use]
    pub fn port_count(&self, link: LinkId) -> PortCount {
        let Place { shard, index } = self.layout.ports[link.index()];
        let shard = &self.shards[shard as usize];
        let (mut count, is_paused) =
            (shard.counts[index as usize], shard.ports[index as usize].paused != 0);
        count.note_paused((u8::from(is_paused), 0), self.now.0);
        let port = &shard.ports[index as usize];
        let unsent = port.backlog_until(self.sends_until(link), self.now.0);
        count.bytes = count.bytes.saturating_sub(unsent.0);
        count
    }

    pub(super) fn sends_until(&self, link: LinkId) -> u64 {
        let Place { shard, index } = self.layout.ports[link.index()];
        let shard = &self.shards[shard as usize];
        let vertex = self.layout.vertices[self.network.link(link).from.index()].index as usize;
        match &shard.switches[vertex] {
            Some(switch) => switch.stands_before(index - shard.vertices[vertex].first_port).1,
            None => shard.ports[index as usize].free,
        }
    }

    /// When the last bit sent so far arrives, including bits of lost packets.
    #[must_use]
    pub fn last_arrival(&self) -> SimTime {
        let links = (0..self.network.links().len()).map(LinkId::from_index);
        let arrivals = links.map(|link| self.port(link).last_arrival(self.sends_until(link)));
        SimTime(arrivals.max().unwrap_or_default())
    }

    #[must_use]
    pub fn packets(&self) -> PacketCount {
        let mut total = PacketCount::default();
        for shard in &self.shards {
            total.data_sent += shard.ends.data_sent;
            total.sent += shard.ends.data_sent + shard.ends.acknowledgements_sent;
            total.sent += shard.ends.frames_sent;
            total.delivered += shard.ends.delivered;
            total.in_flight += shard.in_flight();
            total.retransmitted +=
                shard.senders.iter().map(|sender| u64::from(sender.resent)).sum::<u64>();
            total.duplicates +=
                shard.receivers.iter().map(|end| u64::from(end.duplicates())).sum::<u64>();
            for count in &shard.counts {
                total.dropped += count.dropped;
                total.lost += count.lost;
                total.trimmed += count.trimmed;
                total.pauses += count.pauses;
                total.marked += count.marked;
                total.hops += count.packets;
            }
        }
        total
    }

    /// The last entry includes acknowledgements and trimmed packets. All are zero without bounded queues.
    #[must_use]
    pub fn dropped_by_priority(&self) -> [u64; PRIORITIES] {
        let mut total = [0; PRIORITIES];
        let switches = self.shards.iter().flat_map(|shard| shard.switches.iter().flatten());
        for (class, dropped) in switches.flat_map(|switch| switch.dropped().iter().enumerate()) {
            total[class] += dropped;
        }
        total
    }

    #[must_use]
    pub fn hops(&self) -> u64 {
        self.shards.iter().flat_map(|shard| &shard.counts).map(|count| count.packets).sum()
    }
}
