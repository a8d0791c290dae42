// SPDX-License-Identifier: Apache-2.0
//! Which of several equal paths the next packet takes.
//!
//! The choice is made where the flow begins, as an entropy value in the header is: switches only hash, unless
//! they choose themselves ([`Balance::Adaptive`]).
//! All paths of a lane begin with the same link; a flow has one lane, or one for each interface of its host
//! ([`FlowInterfaces::All`]). Acknowledgements take the way back of the packet which they answer, where its sender chose
//! that way, and else of the first path.

use lightloom_units::Picoseconds;

use super::lane::SenderLane;
use crate::engine::marking::mix;

/// How a flow is spread over the shortest paths between its ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// One path for the whole flow (ECMP).
    #[default]
    PerFlow,
    /// Each packet goes by a path drawn for it, each path once a round (as the senders of NDP do: Handley et al.:
    /// "Re-architecting datacenter networks and stacks for low latency and high performance", SIGCOMM 2017). A path that lost a packet, and has answered
    /// none that was sent by it later, is not drawn until a probe, a packet of a header alone, is answered.
    Spray {
        /// How many paths to draw from: all there are, if there are no more.
        paths: u16,
    },
    /// Packets take turns over entropy values; one whose packet was marked or trimmed misses its next turn, one of four at most, and one
    /// that lost a packet is retired until a probe is answered, or that packet after all (after OCP's
    /// Multipath Reliable Connection 1.0, from its public description; not a conforming implementation).
    Entropy {
        /// Number of values; each selects a path.
        values: u16,
        /// Switches hash the values, as Ethernet switches do: several may select one path. Otherwise each selects a path of
        /// its own, if there are enough.
        hashed: bool,
        /// A retired value is probed so long after its loss and then as often.
        probe: Picoseconds,
    },
    /// Switches choose: a packet, of data or an acknowledgement, goes by one of the ports, among those on shortest paths that are up, with the
    /// least before it, as time to send it; one is drawn among those with up to eight packets more (per-packet adaptive
    /// routing by grades of output queues, as switches for clusters of GPUs have it; what others' switches know of one
    /// another's queues is not modelled).
    Adaptive,
}

/// By how many interfaces of its host a flow leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowInterfaces {
    /// One, drawn for the flow.
    #[default]
    One,
    /// All from which a shortest path leads to the other end: each takes the next packet when it is free. The paths
    /// asked for are divided over them, and acknowledgements go back the way that the packet came.
    All,
}

impl Balance {
    /// How many paths to draw.
    #[must_use]
    pub const fn paths(self) -> u16 {
        let paths = match self {
            Self::PerFlow | Self::Adaptive => 1,
            Self::Spray { paths } | Self::Entropy { values: paths, .. } => paths,
        };
        if paths == 0 { 1 } else { paths }
    }

    /// Whether each path is drawn independently.
    pub(crate) const fn is_hashed(self) -> bool {
        matches!(self, Self::Entropy { hashed: true, .. })
    }

    /// Whether a packet that is sent again may take another path than before.
    #[must_use]
    pub const fn spreads_packets(self) -> bool {
        matches!(self, Self::Spray { .. } | Self::Entropy { .. } | Self::Adaptive)
    }

    /// The paths of a flow, in which a round of spraying begins.
    fn order(self, paths: usize) -> Box<[u16]> {
        let count = if matches!(self, Self::Spray { .. }) { paths as u16 } else { 0 };
        (0..count).collect()
    }

    /// A path that is out of use is probed so long after its loss, and then as often. Zero: none ever is.
    const fn probe_interval(self) -> u64 {
        match self {
            Self::Spray { .. } => SPRAY_PROBE.get(),
            Self::Entropy { probe, .. } => probe.get(),
            Self::PerFlow | Self::Adaptive => 0,
        }
    }
}

/// For spraying, of which no source says what becomes of dark paths: an assumption.
const SPRAY_PROBE: Picoseconds = Picoseconds::from_micros(50);

/// A flow's paths and whose turn it is.
#[derive(Clone, Debug)]
pub(crate) struct Balancer {
    balance: Balance,
    /// Where the paths begin in the route table, those of a lane together.
    cursors: Box<[u32]>,
    lanes: Box<[SenderLane]>,
    /// What draws begin with, and how many there were.
    salt: u64,
    drawn: u64,
    /// Spraying draws each path once a round: the paths, those of a lane together, in the order of this round as far as it
    /// has come.
    order: Box<[u16]>,
    /// By path: what the sender knows of it.
    known: Box<[PathHistory]>,
    /// Those that are out of use.
    retired: Vec<RetiredPath>,
    /// By packet number, modulo the length: the path it took.
    taken: Box<[u16]>,
}

/// Of so many turns a path misses one at most. Otherwise all flows leave a path that marks a little at once, and it is idle
/// before they hear of it.
const CAUTIOUS: u8 = 4;

/// What a sender knows of a path.
#[derive(Clone, Copy, Debug, Default)]
struct PathHistory {
    /// One past the highest number of a packet that took it and was answered.
    answered: u32,
    /// Turns until a mark makes it miss one again; [`CAUTIOUS`]: it misses the next.
    cautious: u8,
    retired: bool,
}

#[derive(Clone, Copy, Debug)]
struct RetiredPath {
    path: u16,
    /// The packet that it lost.
    lost: u32,
    /// When it is probed next.
    probe: u64,
}

impl Balancer {
    pub(crate) fn new(
        balance: Balance,
        (cursors, lanes): (Vec<u32>, Vec<SenderLane>),
        (window, salt): (u32, u64),
    ) -> Self {
        let remembers = balance.probe_interval() > 0;
        let remembered = if remembers { window.next_power_of_two() as usize } else { 0 };
        Self {
            balance,
            known: vec![PathHistory::default(); cursors.len()].into_boxed_slice(),
            order: balance.order(cursors.len()),
            cursors: cursors.into_boxed_slice(),
            lanes: lanes.into_boxed_slice(),
            salt,
            drawn: 0,
            retired: Vec::new(),
            taken: vec![0; remembered].into_boxed_slice(),
        }
    }

    /// Takes other paths from now on.
    pub(crate) fn replace(&mut self, cursors: Vec<u32>, lanes: Vec<SenderLane>) {
        self.known = vec![PathHistory::default(); cursors.len()].into_boxed_slice();
        self.retired.clear();
        self.order = self.balance.order(cursors.len());
        self.cursors = cursors.into_boxed_slice();
        self.lanes = lanes.into_boxed_slice();
    }

    /// The interfaces by which the flow leaves.
    pub(crate) fn lanes(&mut self) -> &mut [SenderLane] {
        &mut self.lanes
    }

    /// Whether every loss takes its path out of use.
    pub(crate) const fn retires(&self) -> bool {
        matches!(self.balance, Balance::Entropy { .. })
    }

    /// Whether the loss of this packet says something of its path, and nothing of congestion.
    pub(crate) fn blames_path(&self, sequence: u32) -> bool {
        self.path_of(sequence).is_some_and(|path| self.takes_for_dark(path, sequence))
    }

    fn takes_for_dark(&self, path: usize, lost: u32) -> bool {
        self.retires() || self.known[path].answered <= lost
    }

    /// How many paths are out of use.
    pub(crate) fn retired(&self) -> usize {
        self.retired.len()
    }

    /// Whether the flow leaves by several interfaces.
    pub(crate) fn is_striped(&self) -> bool {
        self.lanes.len() > 1
    }

    /// The path for a packet sent by the interface of this lane.
    #[inline]
    pub(crate) fn next(&mut self, sequence: u32, lane: usize) -> u32 {
        let lane = &mut self.lanes[lane];
        let mut path;
        match self.balance {
            Balance::PerFlow | Balance::Adaptive => return self.cursors[usize::from(lane.first)],
            Balance::Spray { .. } => loop {
                // Before the turn stand the paths that were drawn in this round.
                self.drawn += 1;
                let left = u128::from(lane.end - lane.turn);
                let draw = mix(self.salt.wrapping_add(self.drawn));
                let drawn = lane.turn + ((u128::from(draw) * left) >> 64) as u16;
                self.order.swap(usize::from(lane.turn), usize::from(drawn));
                path = self.order[usize::from(lane.turn)];
                lane.step();
                if !self.known[usize::from(path)].retired || lane.retired == lane.width() {
                    break;
                }
            },
            Balance::Entropy { .. } => {
                lane.step();
                // At most once around: with every path marked, the next one is as good as any.
                for _ in 0..lane.width() {
                    let known = &mut self.known[usize::from(lane.turn)];
                    let misses = known.cautious == CAUTIOUS;
                    known.cautious = known.cautious.saturating_sub(1);
                    if !misses && !known.retired {
                        break;
                    }
                    lane.step();
                }
                // A turn that is missed for a mark must not lead to a retired path.
                for _ in 0..lane.width() {
                    if !self.known[usize::from(lane.turn)].retired {
                        break;
                    }
                    lane.step();
                }
                path = lane.turn;
            }
        }
        let place = sequence as usize & (self.taken.len() - 1);
        self.taken[place] = path;
        self.cursors[usize::from(path)]
    }

    /// The path that the packet of this number took last.
    fn path_of(&self, sequence: u32) -> Option<usize> {
        let place = sequence as usize & self.taken.len().wrapping_sub(1);
        let path = usize::from(*self.taken.get(place)?);
        Some(path.min(self.cursors.len() - 1))
    }

    /// The packet of this number has arrived, marked on its way or not.
    #[inline]
    pub(crate) fn echo(&mut self, sequence: u32, marked: bool) {
        if let Some(path) = self.path_of(sequence) {
            let known = &mut self.known[path];
            if marked && known.cautious == 0 {
                known.cautious = CAUTIOUS;
            }
            known.answered = known.answered.max(sequence + 1);
        }
    }

    /// An answer to the packet of this number has come by the way that ends at `cursor`, while paths are retired: puts its
    /// path to use if this shows that it did not lose what it was retired for.
    #[cold]
    pub(crate) fn answered_by(&mut self, cursor: u32, sequence: u32) {
        let Some(path) = self.cursors.partition_point(|begin| *begin <= cursor).checked_sub(1)
        else {
            return;
        };
        // Behind the last path are paths of other flows and earlier ones of this flow.
        let reach = self.cursors.windows(2).map(|two| two[1] - two[0]).max();
        if reach.is_none_or(|reach| cursor - self.cursors[path] >= reach) {
            return;
        }
        let later_counts = !self.retires();
        let shows = |at: &RetiredPath| {
            usize::from(at.path) == path
                && (at.lost == sequence || later_counts && at.lost < sequence)
        };
        if self.retired.iter().any(shows) {
            self.returned(path as u32);
            self.known[path].answered = sequence + 1;
        }
    }

    /// The packet of this number is sent again at `now` for it was lost.
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

    fn lane_of(&self, path: usize) -> usize {
        self.lanes.partition_point(|lane| usize::from(lane.first) <= path) - 1
    }

    /// A retired path of this lane that is to be probed at `now`: its number, and where it begins.
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
        let due = |at: &&mut RetiredPath| own.contains(&at.path) && at.probe <= now;
        let found = self.retired.iter_mut().filter(due).min_by_key(|at| at.path);
        let path = found.map(|at| {
            at.probe = now + interval;
            at.path
        });
        self.plan_probe(lane);
        let path = path?;
        Some((path.into(), self.cursors[usize::from(path)]))
    }

    /// Notes when the next path of a lane is to be probed.
    fn plan_probe(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        let own = self.retired.iter().filter(|at| (lane.first..lane.end).contains(&at.path));
        lane.probe_due = own.map(|at| at.probe).min().unwrap_or(u64::MAX);
    }

    /// This path carries packets: it is in use again.
    pub(crate) fn returned(&mut self, path: u32) {
        // The answer may come after the flow has been given other paths.
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

    /// A balancer with one lane.
    fn single(balance: Balance, cursors: Vec<u32>, drawn: (u32, u64)) -> Balancer {
        let lane = SenderLane::new(0, 0..cursors.len() as u16);
        Balancer::new(balance, (cursors, vec![lane]), drawn)
    }

    fn paths(balancer: &mut Balancer, count: u32) -> Vec<u32> {
        (0..count).map(|number| balancer.next(number, 0)).collect()
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
            "{again} of 1,000 rounds begin as the one before ends"
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
        // It has missed one of its last four: a mark changes nothing.
        entropy.echo(3, true);
        assert_eq!(paths(&mut entropy, 3), [10, 20, 30]);
        (0..3).for_each(|sequence| entropy.echo(sequence, true));
        assert_eq!(paths(&mut entropy, 2).len(), 2);
    }

    /// Where a packet sent by the path later was answered, the loss is one of congestion.
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
        assert!((40..80).all(|number| spray.next(number, 0) == 10), "20 is dark");
        assert_eq!(spray.probe(50 + SPRAY_PROBE.get(), 0), Some((1, 20)));
        spray.answered_by(15, last + 1);
        assert_eq!(spray.retired(), 1, "the other path answers");
        spray.answered_by(25, last - 1);
        assert_eq!(spray.retired(), 1, "it was sent before the loss");
        spray.answered_by(25, last + 1);
        assert!((80..120).any(|number| spray.next(number, 0) == 20), "it answers");
    }

    /// A path that comes back is empty where others have queues: what goes by others then seems lost.
    #[test]
    fn late_arrival_of_a_lost_packet_restores_its_value() {
        let balance = Balance::Entropy { values: 2, hashed: false, probe: Picoseconds(100) };
        let mut entropy = single(balance, vec![10, 20], (64, 0));
        assert_eq!(paths(&mut entropy, 2), [20, 10]);
        entropy.lost(50, 0);
        entropy.answered_by(25, 2);
        assert_eq!(entropy.retired(), 1, "another packet says nothing of this one");
        entropy.answered_by(25, 0);
        assert_eq!(entropy.retired(), 0);
    }

    #[test]
    fn lossy_value_is_retired_until_its_probe_is_answered() {
        let balance = Balance::Entropy { values: 4, hashed: false, probe: Picoseconds(100) };
        let lanes = vec![SenderLane::new(7, 0..2), SenderLane::new(9, 2..4)];
        let mut entropy = Balancer::new(balance, (vec![10, 20, 30, 40], lanes), (64, 0));
        let taken: Vec<u32> = (0..4).map(|number| entropy.next(number, 0)).collect();
        assert_eq!(taken, [20, 10, 20, 10]);
        entropy.lost(50, 0);
        assert!((4..8).all(|number| entropy.next(number, 0) == 10), "20 is retired");
        assert_eq!(entropy.probe(149, 0), None);
        assert_eq!(entropy.probe(150, 0), Some((1, 20)));
        assert_eq!(entropy.probe(150, 0), None, "one at a time");
        entropy.returned(1);
        let again: Vec<u32> = (8..10).map(|number| entropy.next(number, 0)).collect();
        assert!(again.contains(&20), "{again:?}");
        for number in [10, 11] {
            entropy.next(number, 0);
        }
        entropy.lost(200, 10);
        entropy.lost(200, 11);
        assert_eq!(entropy.lanes()[0].rests_until(), 300, "the other lane goes on");
        for number in [12, 13] {
            entropy.next(number, 1);
        }
        entropy.lost(200, 12);
        entropy.lost(200, 13);
        assert_eq!(entropy.lanes()[1].rests_until(), 0, "the last path is never retired");
    }
}
