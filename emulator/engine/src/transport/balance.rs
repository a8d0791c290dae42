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
    /// Each packet goes by a path drawn for it (random packet spraying: Dixit, Prakash, Hu, Kompella: "On the
    /// impact of packet spraying in data center networks", INFOCOM 2013).
    Spray {
        /// How many paths to draw from: all there are, if there are no more.
        paths: u16,
    },
    /// The path changes after a pause long enough that packets cannot overtake each other (flowlets:
    /// Vanini et al.: "Let it flow: resilient asymmetric load balancing with flowlet switching",
    /// NSDI 2017).
    Flowlet {
        /// How many paths to draw.
        paths: u16,
        /// The pause.
        gap: Picoseconds,
    },
    /// Packets take turns over the paths, but a path on which a packet was marked misses its next
    /// turn (oblivious spraying with a bitmap of congested entropies, as Ultra Ethernet's
    /// specification 1.0 allows a sender to do), and one on which packets were lost misses 2, 4, 8 … 1,024 turns,
    /// twice as many with each loss in a row, until one arrives.
    AvoidMarked {
        /// How many paths to draw.
        paths: u16,
    },
    /// Packets take turns over entropy values; one whose packet was marked or trimmed misses its next turn, and one
    /// that lost a packet is retired until a probe, a packet of a header alone, is answered (after OCP's
    /// Multipath Reliable Connection 1.0, from its public description; not a conforming implementation).
    Entropy {
        /// How many values: each stands for a path that is drawn.
        values: u16,
        /// A retired value is probed so long after its loss and then as often.
        probe: Picoseconds,
    },
    /// Switches choose: a packet of data goes by one of the ports, among those on shortest paths that are up, with the
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
            Self::Spray { paths }
            | Self::Flowlet { paths, .. }
            | Self::AvoidMarked { paths }
            | Self::Entropy { values: paths, .. } => paths,
        };
        if paths == 0 { 1 } else { paths }
    }

    /// Whether a packet that is sent again may take another path than before.
    #[must_use]
    pub const fn spreads_packets(self) -> bool {
        matches!(
            self,
            Self::Spray { .. } | Self::AvoidMarked { .. } | Self::Entropy { .. } | Self::Adaptive
        )
    }

    const fn remembers(self) -> bool {
        matches!(self, Self::AvoidMarked { .. } | Self::Entropy { .. })
    }
}

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
    /// By path: what the sender knows of it.
    known: Box<[PathHistory]>,
    /// By packet number, modulo the length: the path it took.
    taken: Box<[u16]>,
}

/// What a sender knows of a path.
#[derive(Clone, Copy, Debug, Default)]
struct PathHistory {
    /// It misses its next turn.
    marked: bool,
    /// Packets lost there in a row.
    lost: u8,
    /// Turns it misses yet.
    rests: u16,
    /// When it is probed, if it is retired; 0: it is in use.
    probe: u64,
}

impl Balancer {
    pub(crate) fn new(
        balance: Balance,
        (cursors, lanes): (Vec<u32>, Vec<SenderLane>),
        (window, salt): (u32, u64),
    ) -> Self {
        let remembered = if balance.remembers() { window.next_power_of_two() as usize } else { 0 };
        Self {
            balance,
            known: vec![PathHistory::default(); cursors.len()].into_boxed_slice(),
            cursors: cursors.into_boxed_slice(),
            lanes: lanes.into_boxed_slice(),
            salt,
            drawn: 0,
            taken: vec![0; remembered].into_boxed_slice(),
        }
    }

    /// Takes other paths from now on.
    pub(crate) fn replace(&mut self, cursors: Vec<u32>, lanes: Vec<SenderLane>) {
        self.known = vec![PathHistory::default(); cursors.len()].into_boxed_slice();
        self.cursors = cursors.into_boxed_slice();
        self.lanes = lanes.into_boxed_slice();
    }

    /// The interfaces by which the flow leaves.
    pub(crate) fn lanes(&mut self) -> &mut [SenderLane] {
        &mut self.lanes
    }

    /// Whether losses take paths out of use.
    pub(crate) const fn retires(&self) -> bool {
        matches!(self.balance, Balance::Entropy { .. })
    }

    /// How many paths are out of use.
    pub(crate) fn retired(&self) -> u16 {
        self.lanes.iter().map(|lane| lane.retired).sum()
    }

    /// Whether the flow leaves by several interfaces.
    pub(crate) fn is_striped(&self) -> bool {
        self.lanes.len() > 1
    }

    /// The path for a packet sent at `now` by the interface of this lane.
    #[inline]
    pub(crate) fn next(&mut self, now: u64, sequence: u32, lane: usize) -> u32 {
        let lane = &mut self.lanes[lane];
        match self.balance {
            Balance::PerFlow | Balance::Adaptive => return self.cursors[usize::from(lane.first)],
            Balance::Spray { .. } => {
                self.drawn += 1;
                let draw = mix(self.salt.wrapping_add(self.drawn));
                lane.turn =
                    lane.first + ((u128::from(draw) * u128::from(lane.width())) >> 64) as u16;
            }
            Balance::Flowlet { gap, .. } => {
                if now > lane.last_sent + gap.get() {
                    lane.step();
                }
                lane.last_sent = now;
            }
            Balance::AvoidMarked { .. } | Balance::Entropy { .. } => {
                lane.step();
                // At most once around: with every path marked, the next one is as good as any.
                for _ in 0..lane.width() {
                    let known = &mut self.known[usize::from(lane.turn)];
                    let rests = known.rests > 0 || known.probe > 0;
                    known.rests = known.rests.saturating_sub(1);
                    if !std::mem::take(&mut known.marked) && !rests {
                        break;
                    }
                    lane.step();
                }
                // A turn that is missed for a mark must not lead to a retired path.
                for _ in 0..lane.width() {
                    if self.known[usize::from(lane.turn)].probe == 0 {
                        break;
                    }
                    lane.step();
                }
                let place = sequence as usize & (self.taken.len() - 1);
                self.taken[place] = lane.turn;
            }
        }
        self.cursors[usize::from(lane.turn)]
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
            known.marked |= marked;
            (known.rests, known.lost) = (0, 0);
        }
    }

    /// The packet of this number is sent again at `now` for it was lost.
    pub(crate) fn lost(&mut self, now: u64, sequence: u32) {
        let Some(path) = self.path_of(sequence) else { return };
        if let Balance::Entropy { probe, .. } = self.balance {
            return self.retire(path, now + probe.get());
        }
        let known = &mut self.known[path];
        known.lost = (known.lost + 1).min(10);
        known.rests = 1 << known.lost;
    }

    /// Takes a path out of use, unless it is the last one.
    fn retire(&mut self, path: usize, probe: u64) {
        if self.known[path].probe == 0 && usize::from(self.retired()) + 1 < self.known.len() {
            self.known[path].probe = probe;
            let lane = self.lane_of(path);
            lane.retired += 1;
            lane.probe_due = lane.probe_due.min(probe);
        }
    }

    fn lane_of(&mut self, path: usize) -> &mut SenderLane {
        let after = self.lanes.partition_point(|lane| usize::from(lane.first) <= path);
        &mut self.lanes[after - 1]
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
        let Balance::Entropy { probe, .. } = self.balance else { return None };
        let lane = &mut self.lanes[lane];
        let own = &mut self.known[usize::from(lane.first)..usize::from(lane.end)];
        let place = own.iter().position(|known| known.probe > 0 && known.probe <= now);
        if let Some(place) = place {
            own[place].probe = now + probe.get();
        }
        lane.probe_due = next_probe(own);
        let path = usize::from(lane.first) + place?;
        Some((path as u32, self.cursors[path]))
    }

    /// A probe of this path was answered: it is in use again.
    pub(crate) fn returned(&mut self, path: u32) {
        let path = path as usize;
        // The answer may come after the flow has been given other paths.
        if self.known.get(path).is_none_or(|known| known.probe == 0) {
            return;
        }
        self.known[path] = PathHistory::default();
        let lane = self.lane_of(path);
        lane.retired -= 1;
        let own = usize::from(lane.first)..usize::from(lane.end);
        self.lane_of(path).probe_due = next_probe(&self.known[own]);
    }
}

/// When the next of these paths is to be probed; `u64::MAX`: none is retired.
fn next_probe(paths: &[PathHistory]) -> u64 {
    paths.iter().map(|known| known.probe).filter(|probe| *probe > 0).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A balancer with one lane.
    fn single(balance: Balance, cursors: Vec<u32>, drawn: (u32, u64)) -> Balancer {
        let lane = SenderLane::new(0, 0..cursors.len() as u16);
        Balancer::new(balance, (cursors, vec![lane]), drawn)
    }

    fn paths(balancer: &mut Balancer, times: impl IntoIterator<Item = u64>) -> Vec<u32> {
        times.into_iter().enumerate().map(|(i, now)| balancer.next(now, i as u32, 0)).collect()
    }

    #[test]
    fn spraying_draws_each_path_as_often_and_not_in_turn() {
        let mut spray = single(Balance::Spray { paths: 3 }, vec![10, 20, 30], (8, 7));
        let drawn = paths(&mut spray, 0..3_000);
        for path in [10, 20, 30] {
            let times = drawn.iter().filter(|other| **other == path).count();
            assert!((900..1_100).contains(&times), "{path}: {times}");
        }
        let again = drawn.windows(2).filter(|two| two[0] == two[1]).count();
        assert!((900..1_100).contains(&again), "{again} of 3,000 go by the path before");
        let mut other = single(Balance::Spray { paths: 3 }, vec![10, 20, 30], (8, 8));
        assert_ne!(paths(&mut other, 0..3_000), drawn);
    }

    #[test]
    fn a_flowlet_keeps_its_path_until_a_pause() {
        let balance = Balance::Flowlet { paths: 2, gap: Picoseconds(100) };
        let mut flowlet = single(balance, vec![10, 20], (8, 0));
        assert_eq!(paths(&mut flowlet, [1, 50, 150, 251, 300]), [10, 10, 10, 20, 20]);
    }

    #[test]
    fn a_marked_path_misses_one_turn() {
        let mut avoid = single(Balance::AvoidMarked { paths: 3 }, vec![10, 20, 30], (8, 0));
        assert_eq!(paths(&mut avoid, 0..3), [20, 30, 10]);
        avoid.echo(1, true);
        assert_eq!(paths(&mut avoid, 0..4), [20, 10, 20, 30]);
        (0..3).for_each(|sequence| avoid.echo(sequence, true));
        assert_eq!(paths(&mut avoid, 0..2).len(), 2);
    }

    #[test]
    fn a_path_that_loses_packets_rests_longer_each_time() {
        let balance = Balance::AvoidMarked { paths: 2 };
        let mut avoid = single(balance, vec![10, 20], (1_024, 0));
        let mut tried = Vec::new();
        for sequence in 0..200 {
            if avoid.next(0, sequence, 0) == 20 {
                tried.push(sequence);
                avoid.lost(0, sequence);
            } else {
                avoid.echo(sequence, false);
            }
        }
        let pauses: Vec<u32> = tried.windows(2).map(|two| two[1] - two[0]).collect();
        assert_eq!(pauses, [4, 6, 10, 18, 34, 66], "{tried:?}");
        avoid.echo(tried[tried.len() - 1], false);
        let turns = paths(&mut avoid, 0..4);
        assert_eq!(turns.iter().filter(|path| **path == 20).count(), 2, "{turns:?}");
    }

    #[test]
    fn a_value_that_loses_is_retired_until_its_probe_is_answered() {
        let balance = Balance::Entropy { values: 4, probe: Picoseconds(100) };
        let lanes = vec![SenderLane::new(7, 0..2), SenderLane::new(9, 2..4)];
        let mut entropy = Balancer::new(balance, (vec![10, 20, 30, 40], lanes), (64, 0));
        let taken: Vec<u32> = (0..4).map(|number| entropy.next(0, number, 0)).collect();
        assert_eq!(taken, [20, 10, 20, 10]);
        entropy.lost(50, 0);
        assert!((4..8).all(|number| entropy.next(60, number, 0) == 10), "20 is retired");
        assert_eq!(entropy.probe(149, 0), None);
        assert_eq!(entropy.probe(150, 0), Some((1, 20)));
        assert_eq!(entropy.probe(150, 0), None, "one at a time");
        entropy.returned(1);
        let again: Vec<u32> = (8..10).map(|number| entropy.next(160, number, 0)).collect();
        assert!(again.contains(&20), "{again:?}");
        for number in [10, 11] {
            entropy.next(0, number, 0);
        }
        entropy.lost(200, 10);
        entropy.lost(200, 11);
        assert_eq!(entropy.lanes()[0].rests_until(), 300, "the other lane goes on");
        for number in [12, 13] {
            entropy.next(0, number, 1);
        }
        entropy.lost(200, 12);
        entropy.lost(200, 13);
        assert_eq!(entropy.lanes()[1].rests_until(), 0, "the last path is never retired");
    }
}
