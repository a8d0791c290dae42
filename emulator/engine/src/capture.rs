// SPDX-License-Identifier: Apache-2.0
//! Observes a run: packet captures of selected links, queue histograms and timelines.

mod pcapng;
mod queues;
mod timeline;

use lightloom_units::{Bytes, SimTime};

use crate::engine::{Engine, Event, LinkId, PacketArrival, Probe};
use crate::steady::{LocalProbe, arrival_sum};

pub use pcapng::write_pcapng;
pub use queues::QueueHistograms;
pub use timeline::{Counter, Slice, TimelineTrack, host_tracks, link_tracks, write_timeline};

#[derive(Clone, Debug, Default)]
pub struct Tap {
    watched: Vec<bool>,
    left: usize,
    kept: Vec<PacketArrival>,
}

impl Tap {
    /// Each shard records at most `most` packets, which bounds the memory of long runs.
    pub fn new(links: &[LinkId], most: usize) -> Self {
        let length = links.iter().map(|link| link.index() + 1).max().unwrap_or(0);
        let mut watched = vec![false; length];
        for link in links {
            watched[link.index()] = true;
        }
        Self { watched, left: most, kept: Vec::new() }
    }

    pub fn merge<'a>(taps: impl IntoIterator<Item = &'a Self>) -> Vec<PacketArrival> {
        let mut all: Vec<PacketArrival> =
            taps.into_iter().flat_map(|tap| &tap.kept).copied().collect();
        all.sort_unstable_by_key(|arrival| (arrival.at, arrival.link));
        all
    }
}

impl Probe for Tap {
    fn arrived(&mut self, arrival: PacketArrival) {
        let watched = self.watched.get(arrival.link.index()).is_some_and(|watched| *watched);
        if watched && self.left > 0 {
            self.left -= 1;
            self.kept.push(arrival);
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Watch {
    tap: Option<Tap>,
    queues: QueueHistograms,
    /// Checksums of arrivals by link. Empty unless two runs are to be compared.
    sums: Vec<u64>,
    looks: bool,
}

impl Watch {
    pub fn with_tap(tap: Tap) -> Self {
        Self { tap: Some(tap), looks: true, ..Self::default() }
    }

    pub fn over(mut self, classes: Vec<u8>) -> Self {
        self.queues = QueueHistograms::new(classes);
        self
    }

    pub fn with_sums(mut self, links: usize) -> Self {
        self.sums = vec![0; links];
        self.looks = true;
        self
    }

    pub fn keeps_packets(&self) -> bool {
        self.tap.is_some()
    }

    #[cold]
    fn look_at(&mut self, arrival: PacketArrival) {
        if let Some(tap) = &mut self.tap {
            tap.arrived(arrival);
        }
        if let Some(sum) = self.sums.get_mut(arrival.link.index()) {
            *sum = sum.wrapping_add(arrival_sum(&arrival));
        }
    }

    pub fn queues(&self) -> &QueueHistograms {
        &self.queues
    }

    pub fn packets<'a>(watches: impl IntoIterator<Item = &'a Self>) -> Vec<PacketArrival> {
        Tap::merge(watches.into_iter().filter_map(|watch| watch.tap.as_ref()))
    }
}

impl Probe for Watch {
    const SEES_QUEUES: bool = true;

    #[inline]
    fn arrived(&mut self, arrival: PacketArrival) {
        if self.looks {
            self.look_at(arrival);
        }
    }

    #[inline(always)]
    fn queue_of(&mut self, link: LinkId) -> impl FnMut(Bytes) {
        self.queues.recorder(link)
    }

    fn may_leap(&self) -> bool {
        !self.looks
    }

    fn leap(&mut self, before: &Self, times: u32) {
        self.queues.leap(&before.queues, times);
    }

    fn next_event(engine: &mut Engine<Self>, limit: SimTime) -> Option<Event> {
        engine.advance_to_event(limit)
    }
}

impl LocalProbe for Watch {
    fn kind(&self, link: LinkId) -> u8 {
        self.queues.class(link)
    }
    fn local(&self, links: &[LinkId]) -> Self {
        let sums = if self.sums.is_empty() { Vec::new() } else { vec![0; links.len()] };
        let looks = !sums.is_empty();
        Self { tap: None, queues: self.queues.local(links), sums, looks }
    }
    fn sum(&self, link: LinkId) -> u64 {
        self.sums.get(link.index()).copied().unwrap_or_default()
    }
}

fn nanoseconds(at: SimTime) -> u64 {
    at.0 / 1_000
}
