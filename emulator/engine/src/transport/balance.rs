// SPDX-License-Identifier: Apache-2.0
//! Selects one of several equal-cost paths for each packet.
//!
//! The sender selects the path, as with an entropy value in the header. Switches only hash this value, unless they
//! choose the path themselves ([`Balance::Adaptive`]). All paths of a lane start with the same link. Acknowledgements
//! take the reverse of their packet's path if its sender selected it, otherwise of the first path.

use lightloom_units::Picoseconds;
use schemars::JsonSchema;
use serde::Deserialize;

use super::lane::SenderLane;
use crate::engine::marking::mix;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// One path for the whole flow (ECMP).
    #[default]
    PerFlow,
    /// Draws a path for each packet, and each path once per round, like NDP senders (Handley et al., SIGCOMM 2017). A
    /// path that lost a packet and delivered no later one is not used until a probe (a bare header) is acknowledged.
    Spray {
        /// Number of paths to draw from. If there are no more paths than this, all are used.
        paths: u16,
    },
    /// Rotates over entropy values. Hashed values have a different order in each round, as in csg-htsim. A value whose
    /// packet was marked or trimmed skips its next turn, but at most one turn in four. A value that lost a packet is
    /// retired until a probe, or the lost packet itself, is acknowledged. Modelled on the public description of OCP's
    /// Multipath Reliable Connection 1.0; not a conforming implementation.
    Entropy {
        values: u16,
        /// Whether switches hash the values, so that several may select one path. Otherwise paths differ if possible.
        hashed: bool,
        /// Interval between probes of a retired value, starting at its loss.
        probe: Picoseconds,
    },
    /// Switches draw one of the working ports whose backlog (as time to send) exceeds the smallest by at most eight
    /// packets: adaptive routing by quantized output queues. Queue state exchanged between switches is not modelled.
    Adaptive,
}

/// Interfaces of a host that a flow uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "InterfacesFile")]
pub enum FlowInterfaces {
    /// One interface, chosen by a seeded hash.
    #[default]
    One,
    /// All interfaces on a shortest path. Each takes the next packet when it is free.
    // They share the paths.
    All,
}

impl Balance {
    pub const fn paths(self) -> u16 {
        let paths = match self {
            Self::PerFlow | Self::Adaptive => 1,
            Self::Spray { paths } | Self::Entropy { values: paths, .. } => paths,
        };
        if paths == 0 { 1 } else { paths }
    }

    pub(crate) const fn is_hashed(self) -> bool {
        matches!(self, Self::Entropy { hashed: true, .. })
    }

    pub const fn spreads_packets(self) -> bool {
        matches!(self, Self::Spray { .. } | Self::Entropy { .. } | Self::Adaptive)
    }

    fn order(self, paths: usize) -> Box<[u16]> {
        let is_drawn = matches!(self, Self::Spray { .. }) || self.is_hashed();
        (0..if is_drawn { paths as u16 } else { 0 }).collect()
    }

    const fn probe_interval(self) -> u64 {
        match self {
            Self::Spray { .. } => SPRAY_PROBE.get(),
            Self::Entropy { probe, .. } => probe.get(),
            Self::PerFlow | Self::Adaptive => 0,
        }
    }
}

/// This value is an assumption, because no source describes the handling of dark paths.
const SPRAY_PROBE: Picoseconds = Picoseconds::from_micros(50);

/// The starts of a flow's paths in the route table.
#[derive(Clone, Debug)]
enum PathStarts {
    /// Paths of equal length follow each other at equal distances.
    Even {
        first: u32,
        apart: u32,
        count: u32,
    },
    Uneven(Box<[u32]>),
}

impl PathStarts {
    fn new(starts: Vec<u32>) -> Self {
        let (first, count) = (starts[0], starts.len() as u32);
        let apart = starts.get(1).map_or(0, |second| second - first);
        if starts.windows(2).all(|two| two[1] - two[0] == apart) {
            Self::Even { first, apart, count }
        } else {
            Self::Uneven(starts.into_boxed_slice())
        }
    }

    const fn len(&self) -> usize {
        match self {
            Self::Even { count, .. } => *count as usize,
            Self::Uneven(starts) => starts.len(),
        }
    }

    #[inline(always)]
    fn of(&self, path: u16) -> u32 {
        match self {
            Self::Even { first, apart, .. } => first + u32::from(path) * apart,
            Self::Uneven(starts) => starts[usize::from(path)],
        }
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator {
        (0..self.len()).map(|path| self.of(path as u16))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Balancer {
    balance: Balance,
    starts: PathStarts,
    lanes: Box<[SenderLane]>,
    salt: u64,
    drawn: u64,
    /// Grouped by lane, with the paths already drawn in this round first. Empty if they rotate.
    order: Box<[u16]>,
    known: Box<[PathHistory]>,
    retired: Vec<RetiredPath>,
    taken: Box<[u16]>,
    working: u16,
}

/// Minimum number of turns between skips. Otherwise, all flows would leave a lightly marked path together and idle it.
const CAUTIOUS: u8 = 4;

#[derive(Clone, Copy, Debug, Default)]
struct PathHistory {
    answered: u32,
    /// Turns until a mark may make it skip again. At [`CAUTIOUS`] it skips the next turn.
    cautious: u8,
    retired: bool,
}

#[derive(Clone, Copy, Debug)]
struct RetiredPath {
    path: u16,
    lost: u32,
    probe: u64,
}

impl Balancer {
    pub(crate) fn new(
        balance: Balance,
        cursors: Vec<u32>,
        lanes: Vec<SenderLane>,
        window: u32,
        salt: u64,
    ) -> Self {
        let remembers = balance.probe_interval() > 0;
        let remembered = if remembers { window.next_power_of_two() as usize } else { 0 };
        Self {
            balance,
            known: vec![PathHistory::default(); cursors.len()].into_boxed_slice(),
            order: balance.order(cursors.len()),
            starts: PathStarts::new(cursors),
            lanes: lanes.into_boxed_slice(),
            salt,
            drawn: 0,
            retired: Vec::new(),
            taken: vec![0; remembered].into_boxed_slice(),
            working: 0,
        }
    }

    pub(crate) fn replace(&mut self, cursors: Vec<u32>, lanes: Vec<SenderLane>) {
        self.known = vec![PathHistory::default(); cursors.len()].into_boxed_slice();
        self.retired.clear();
        self.working = 0;
        self.order = self.balance.order(cursors.len());
        self.starts = PathStarts::new(cursors);
        self.lanes = lanes.into_boxed_slice();
    }

    pub(crate) fn cursors(&self) -> impl ExactSizeIterator<Item = u32> {
        self.starts.iter()
    }

    pub(crate) fn lanes(&mut self) -> &mut [SenderLane] {
        &mut self.lanes
    }

    const fn retires(&self) -> bool {
        matches!(self.balance, Balance::Entropy { .. })
    }

    pub(crate) fn blames_path(&self, sequence: u32) -> bool {
        self.path_of(sequence).is_some_and(|path| self.takes_for_dark(path, sequence))
    }

    fn takes_for_dark(&self, path: usize, lost: u32) -> bool {
        self.retires() || self.known[path].answered <= lost
    }

    pub(crate) fn retired(&self) -> usize {
        self.retired.len()
    }

    pub(crate) fn is_striped(&self) -> bool {
        self.lanes.len() > 1
    }

    #[inline]
    pub(crate) fn next(&mut self, sequence: u32, resent: bool, lane: usize) -> u32 {
        if matches!(self.balance, Balance::PerFlow | Balance::Adaptive) {
            return self.starts.of(self.lanes[lane].first);
        }
        if resent && self.recycles(lane) {
            return self.take(sequence, self.working);
        }
        let width = self.lanes[lane].width();
        let may_rest = self.lanes[lane].retired < width;
        let mut skips = 0;
        let path = loop {
            let path = self.turn(lane);
            if self.retired.is_empty() && !self.retires() {
                break path;
            }
            let known = &mut self.known[usize::from(path)];
            let misses = known.cautious == CAUTIOUS;
            known.cautious = known.cautious.saturating_sub(1);
            // Any path will do if all are marked.
            skips += u16::from(misses);
            if !(misses && skips <= width || known.retired && may_rest) {
                break path;
            }
        };
        self.take(sequence, path)
    }

    #[inline]
    fn take(&mut self, sequence: u32, path: u16) -> u32 {
        let place = sequence as usize & (self.taken.len() - 1);
        self.taken[place] = path;
        self.starts.of(path)
    }

    /// Other values may also select a dark path, and only a timeout reveals a second loss. Senders
    /// of REPS (Bonato et al., 2024) recycle values in the same way.
    fn recycles(&self, lane: usize) -> bool {
        let lane = &self.lanes[lane];
        self.balance.is_hashed()
            && lane.retired > 0
            && (lane.first..lane.end).contains(&self.working)
            && !self.known[usize::from(self.working)].retired
    }

    /// Drawn orders change every round, so that the marks of one round do not empty a queue in the next.
    #[inline]
    fn turn(&mut self, lane: usize) -> u16 {
        let lane = &mut self.lanes[lane];
        if self.order.is_empty() {
            lane.step();
            return lane.turn;
        }
        self.drawn += 1;
        let left = u128::from(lane.end - lane.turn);
        let draw = mix(self.salt.wrapping_add(self.drawn));
        let drawn = lane.turn + ((u128::from(draw) * left) >> 64) as u16;
        self.order.swap(usize::from(lane.turn), usize::from(drawn));
        let path = self.order[usize::from(lane.turn)];
        lane.step();
        path
    }

    fn path_of(&self, sequence: u32) -> Option<usize> {
        let place = sequence as usize & self.taken.len().wrapping_sub(1);
        let path = usize::from(*self.taken.get(place)?);
        Some(path.min(self.starts.len() - 1))
    }

    #[inline]
    pub(crate) fn echo(&mut self, sequence: u32, marked: bool) {
        if let Some(path) = self.path_of(sequence) {
            let known = &mut self.known[path];
            if marked && known.cautious == 0 && matches!(self.balance, Balance::Entropy { .. }) {
                known.cautious = CAUTIOUS;
            }
            known.answered = known.answered.max(sequence + 1);
            if !marked {
                self.working = path as u16;
            }
        }
    }

    #[cold]
    pub(crate) fn answered_by(&mut self, cursor: u32, sequence: u32) {
        let Some(path) = self.starts.iter().rposition(|begin| begin <= cursor) else { return };
        let next = self.starts.iter().skip(1);
        let reach = self.starts.iter().zip(next).map(|(one, next)| next - one).max();
        if reach.is_none_or(|reach| cursor - self.starts.of(path as u16) >= reach) {
            return;
        }
        let later_counts = !self.retires();
        if self.retired.iter().any(|at| {
            usize::from(at.path) == path
                && (at.lost == sequence || later_counts && at.lost < sequence)
        }) {
            self.returned(path as u32);
            self.known[path].answered = sequence + 1;
        }
    }

    pub(crate) fn lost(&mut self, now: u64, sequence: u32) {
        let Some(path) = self.path_of(sequence) else { return };
        // The last path in use is never retired.
        let is_last = self.retired.len() + 1 == self.known.len();
        if self.known[path].retired || is_last || !self.takes_for_dark(path, sequence) {
            return;
        }
        let probe = now + self.balance.probe_interval();
        self.known[path].retired = true;
        self.retired.push(RetiredPath { path: path as u16, lost: sequence, probe });
        let lane = self.lane_of(path);
        let lane = &mut self.lanes[lane];
        lane.retired += 1;
        lane.probe_due = lane.probe_due.min(probe);
    }

    /// Retires paths without responses. Returns whether there were any; the timeout is then not a sign of congestion.
    pub(crate) fn retire_unheard(&mut self, now: u64, unheard: impl Iterator<Item = u32>) -> bool {
        let before = self.retired();
        if self.retires() {
            unheard.for_each(|sequence| self.lost(now, sequence));
        }
        self.retired() > before
    }

    fn lane_of(&self, path: usize) -> usize {
        self.lanes.partition_point(|lane| usize::from(lane.first) <= path) - 1
    }

    #[inline]
    pub(crate) fn probe(&mut self, now: u64, lane: usize) -> Option<(u32, u32)> {
        if self.lanes[lane].probe_due > now {
            return None;
        }
        self.probe_one(now, lane)
    }

    #[cold]
    fn probe_one(&mut self, now: u64, lane: usize) -> Option<(u32, u32)> {
        let interval = self.balance.probe_interval();
        let own = self.lanes[lane].first..self.lanes[lane].end;
        let retired = self.retired.iter_mut();
        let due = retired.filter(|at| own.contains(&at.path) && at.probe <= now);
        let found = due.min_by_key(|at| at.path);
        let path = found.map(|at| {
            at.probe = now + interval;
            at.path
        });
        self.plan_probe(lane);
        let path = path?;
        Some((path.into(), self.starts.of(path)))
    }

    fn plan_probe(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        let own = self.retired.iter().filter(|at| (lane.first..lane.end).contains(&at.path));
        lane.probe_due = own.map(|at| at.probe).min().unwrap_or(u64::MAX);
    }

    pub(crate) fn returned(&mut self, path: u32) {
        // The path may have been replaced since the probe was sent.
        let Some(place) = self.retired.iter().position(|at| u32::from(at.path) == path) else {
            return;
        };
        self.retired.swap_remove(place);
        self.known[path as usize].retired = false;
        let lane = self.lane_of(path as usize);
        self.lanes[lane].retired -= 1;
        self.plan_probe(lane);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(balance: Balance, cursors: Vec<u32>, (window, salt): (u32, u64)) -> Balancer {
        let lane = SenderLane::new(0, 0..cursors.len() as u16);
        Balancer::new(balance, cursors, vec![lane], window, salt)
    }

    fn paths(balancer: &mut Balancer, count: u32) -> Vec<u32> {
        (0..count).map(|number| balancer.next(number, false, 0)).collect()
    }

    #[test]
    fn spraying_draws_each_path_once_per_round() {
        let mut spray = single(Balance::Spray { paths: 3 }, vec![10, 20, 30], (8, 7));
        let drawn = paths(&mut spray, 3_000);
        for round in drawn.chunks(3) {
            let mut round = round.to_vec();
            round.sort_unstable();
            assert_eq!(round, [10, 20, 30], "each once a round");
        }
        let again = drawn.windows(2).filter(|two| two[0] == two[1]).count();
        assert!(
            (250..420).contains(&again),
            "{again} of 1,000 rounds begin with the last path of the previous round"
        );
        let mut other = single(Balance::Spray { paths: 3 }, vec![10, 20, 30], (8, 8));
        assert_ne!(paths(&mut other, 3_000), drawn);
    }

    #[test]
    fn marked_value_skips_one_turn() {
        let balance = Balance::Entropy { values: 3, hashed: false, probe: Picoseconds(100) };
        let mut entropy = single(balance, vec![10, 20, 30], (8, 0));
        assert_eq!(paths(&mut entropy, 3), [20, 30, 10]);
        entropy.echo(1, true);
        assert_eq!(paths(&mut entropy, 4), [20, 10, 20, 30]);
        entropy.echo(3, true);
        assert_eq!(paths(&mut entropy, 3), [10, 20, 30]);
        (0..3).for_each(|sequence| entropy.echo(sequence, true));
        assert_eq!(paths(&mut entropy, 2).len(), 2);
    }

    /// A loss is due to congestion if a packet sent later on the same path was acknowledged.
    #[test]
    fn path_without_answers_after_a_loss_is_not_drawn() {
        let mut spray = single(Balance::Spray { paths: 2 }, vec![10, 20], (64, 7));
        let taken = paths(&mut spray, 40);
        let by = |cursor| (0..40).filter(|at| taken[*at as usize] == cursor).collect::<Vec<u32>>();
        let (lost, later) = (by(20)[0], by(20)[1]);
        spray.echo(later, false);
        assert!(!spray.blames_path(lost));
        spray.lost(50, lost);
        assert_eq!(spray.retired(), 0, "{later} was answered");
        let last = *by(20).last().unwrap();
        spray.lost(50, last);
        assert!((40..80).all(|number| spray.next(number, false, 0) == 10), "20 is dark");
        assert_eq!(spray.probe(50 + SPRAY_PROBE.get(), 0), Some((1, 20)));
        spray.answered_by(15, last + 1);
        assert_eq!(spray.retired(), 1, "the other path answers");
        spray.answered_by(25, last - 1);
        assert_eq!(spray.retired(), 1, "the packet was sent before the loss");
        spray.answered_by(25, last + 1);
        assert!((80..120).any(|number| spray.next(number, false, 0) == 20), "it answers");
    }

    /// A returning path is empty while others have queues, so packets on the others seem lost.
    #[test]
    fn late_arrival_of_a_lost_packet_restores_its_value() {
        let balance = Balance::Entropy { values: 2, hashed: false, probe: Picoseconds(100) };
        let mut entropy = single(balance, vec![10, 20], (64, 0));
        assert_eq!(paths(&mut entropy, 2), [20, 10]);
        entropy.lost(50, 0);
        entropy.answered_by(25, 2);
        assert_eq!(
            entropy.retired(),
            1,
            "an acknowledgement of another packet does not restore this value"
        );
        entropy.answered_by(25, 0);
        assert_eq!(entropy.retired(), 0);
    }

    #[test]
    fn lossy_value_is_retired_until_its_probe_is_answered() {
        let balance = Balance::Entropy { values: 4, hashed: false, probe: Picoseconds(100) };
        let lanes = vec![SenderLane::new(7, 0..2), SenderLane::new(9, 2..4)];
        let mut entropy = Balancer::new(balance, vec![10, 20, 30, 40], lanes, 64, 0);
        let taken: Vec<u32> = (0..4).map(|number| entropy.next(number, false, 0)).collect();
        assert_eq!(taken, [20, 10, 20, 10]);
        entropy.lost(50, 0);
        assert!((4..8).all(|number| entropy.next(number, false, 0) == 10), "20 is retired");
        assert_eq!(entropy.probe(149, 0), None);
        assert_eq!(entropy.probe(150, 0), Some((1, 20)));
        assert_eq!(entropy.probe(150, 0), None, "one at a time");
        entropy.returned(1);
        let again: Vec<u32> = (8..10).map(|number| entropy.next(number, false, 0)).collect();
        assert!(again.contains(&20), "{again:?}");
        for number in [10, 11] {
            entropy.next(number, false, 0);
        }
        entropy.lost(200, 10);
        entropy.lost(200, 11);
        assert_eq!(entropy.lanes()[0].rests_until(), 300, "the other lane continues");
        for number in [12, 13] {
            entropy.next(number, false, 1);
        }
        entropy.lost(200, 12);
        entropy.lost(200, 13);
        assert_eq!(entropy.lanes()[1].rests_until(), 0, "the last path is never retired");
    }
}
