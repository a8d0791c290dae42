// SPDX-License-Identifier: Apache-2.0
//! Converts the model of [`super::Site::ways`] to messages with the same steps, chunks and rates.

use lightloom_units::Bytes;

use super::{
    Algorithm, CARD_SHARES, CHANNEL_RATE, CHANNELS, Latency, LibraryTime, Protocol, RingPace, Site,
    TREE, TREE_LAUNCH, TREE_STEP, chunk,
};
use crate::{CollectiveError, CollectiveKind, Directions, Ring, Schedule, Tree, TreeOperation};

#[derive(Clone, Debug)]
pub struct LibraryPlan {
    pub schedule: Schedule,
    pub joined: Joined,
    pub start_seconds: f64,
    pub rate: f64,
}

#[derive(Clone, Debug)]
pub enum Joined {
    Ring(Vec<f64>),
    /// A switch, with the delay in seconds between a message's arrival and the start of dependent messages.
    Switch(f64),
}

impl Site {
    /// Returns the messages of `way`; `None` for in-switch and in-network collectives, and for all-to-alls. Fails for
    /// fewer than two ranks.
    pub fn plan(
        &self,
        kind: CollectiveKind,
        bytes: f64,
        way: LibraryTime,
    ) -> Result<Option<LibraryPlan>, CollectiveError> {
        match way.algorithm {
            Algorithm::Ring => self.ring_plan(kind, bytes, way.protocol).map(Some),
            Algorithm::Tree | Algorithm::NvlsTree => self.tree_plan(bytes, way).map(Some),
            Algorithm::Nvls | Algorithm::Sharp | Algorithm::Pairwise => Ok(None),
        }
    }

    fn ring_plan(
        &self,
        kind: CollectiveKind,
        bytes: f64,
        protocol: Protocol,
    ) -> Result<LibraryPlan, CollectiveError> {
        let RingPace { start_seconds, step_seconds: [inside, between], rate } =
            self.ring_pace(bytes, protocol);
        let (ranks, directions) = (self.ranks as usize, Directions::One);
        let schedule = Ring { kind, ranks, size: Bytes(bytes as u64), directions }.schedule()?;
        let last = self.ranks / self.domains - 1;
        let steps = (0..self.ranks).map(|rank| {
            let leaves = self.domains > 1 && rank % (last + 1) == last;
            if leaves { between } else { inside }
        });
        Ok(LibraryPlan { schedule, joined: Joined::Ring(steps.collect()), start_seconds, rate })
    }

    fn tree_plan(&self, bytes: f64, way: LibraryTime) -> Result<LibraryPlan, CollectiveError> {
        let in_switch = way.algorithm == Algorithm::NvlsTree;
        let sends = self.tree_sends();
        let size = if way.protocol == Protocol::Ll {
            (bytes / CHANNELS).min(16_384.0)
        } else {
            chunk(bytes)
        };
        let (start_seconds, step, rate) = if in_switch {
            let switch = self.in_switch_rate().unwrap_or(f64::INFINITY);
            (TREE_LAUNCH, TREE_STEP, self.cards(CARD_SHARES[1]).min(sends * switch))
        } else {
            let Latency { base, inside, between, .. } = TREE[way.protocol as usize];
            let inside = if way.protocol == Protocol::Ll { 1.8 * inside } else { inside };
            let chain = (self.inside() - 1.0) * (inside + CHANNELS * size / self.lanes());
            let rate = self.limit(way.protocol, self.slowest(CARD_SHARES[1]) / 2.0, 0.5);
            (self.launch.seconds() + base + 2.0 * chain, between, 2.0 * rate)
        };
        let passing = size / CHANNEL_RATE;
        let pieces = self.pieces(bytes, size, rate);
        let piece = bytes / pieces / rate;
        // Each tree carries half of each piece. In half of the cases, a domain also waits for the half
        // from its other child. With two domains, no domain waits, because each has at most one child.
        let on_links = if self.domains == 2 { 0.5 } else { 0.75 } * piece;
        // The first piece's transmission time is spread evenly over the steps.
        let first = sends * piece / (2.0 * self.depth());
        let schedule = Tree {
            operation: TreeOperation::DoubleAllReduce,
            ranks: self.domains as usize,
            size: Bytes(bytes as u64),
            pieces: pieces as u32,
        };
        Ok(LibraryPlan {
            schedule: schedule.schedule()?,
            joined: Joined::Switch((step + passing + first - on_links).max(0.0)),
            start_seconds,
            rate,
        })
    }
}
