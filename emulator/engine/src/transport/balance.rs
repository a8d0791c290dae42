//! Which of several equal paths the next packet takes.
//!
//! The choice is made where the flow begins, as an entropy value in the header is: switches only hash, unless
//! they choose themselves ([`Balance::Adaptive`]).
//! All paths of a flow begin with the same link, so spreading begins at the first switch.
//! Acknowledgements take the way back of the first path.

use lightloom_units::Picoseconds;

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
    /// Switches choose: a packet of data goes by the port, among those on shortest paths that are up, with the
    /// least before it, as time to send it (per-packet adaptive routing by output queue, as switches for
    /// clusters of GPUs have it; what others' switches know of one another's queues is not modelled).
    Adaptive,
}

impl Balance {
    /// How many paths to draw.
    #[must_use]
    pub fn paths(self) -> u16 {
        match self {
            Self::PerFlow | Self::Adaptive => 1,
            Self::Spray { paths } | Self::Flowlet { paths, .. } | Self::AvoidMarked { paths } => {
                paths.max(1)
            }
        }
    }
}

/// A flow's paths and whose turn it is.
#[derive(Clone, Debug)]
pub(crate) struct Balancer {
    balance: Balance,
    /// Where the paths begin in the route table.
    cursors: Box<[u32]>,
    turn: usize,
    /// What draws begin with, and how many there were.
    salt: u64,
    drawn: u64,
    last_sent: u64,
    /// By path: misses its next turn.
    marked: Box<[bool]>,
    /// By path: how many turns it misses yet, and how many packets were lost there in a row.
    rest: Box<[(u16, u8)]>,
    /// By packet number, modulo the length: the path it took.
    taken: Box<[u16]>,
}

impl Balancer {
    pub(crate) fn new(balance: Balance, cursors: Vec<u32>, (window, salt): (u32, u64)) -> Self {
        let adaptive = matches!(balance, Balance::AvoidMarked { .. });
        let remembered = if adaptive { window.next_power_of_two() as usize } else { 0 };
        Self {
            balance,
            marked: vec![false; cursors.len()].into_boxed_slice(),
            rest: vec![(0, 0); cursors.len()].into_boxed_slice(),
            cursors: cursors.into_boxed_slice(),
            turn: 0,
            salt,
            drawn: 0,
            last_sent: 0,
            taken: vec![0; remembered].into_boxed_slice(),
        }
    }

    /// Takes other paths from now on.
    pub(crate) fn replace(&mut self, cursors: Vec<u32>) {
        self.marked = vec![false; cursors.len()].into_boxed_slice();
        self.rest = vec![(0, 0); cursors.len()].into_boxed_slice();
        self.cursors = cursors.into_boxed_slice();
        self.turn = 0;
    }

    /// The path for a packet sent at `now`.
    #[inline]
    pub(crate) fn next(&mut self, now: u64, sequence: u32) -> u32 {
        match self.balance {
            Balance::PerFlow | Balance::Adaptive => return self.cursors[0],
            Balance::Spray { .. } => {
                self.drawn += 1;
                let draw = mix(self.salt.wrapping_add(self.drawn));
                self.turn = ((u128::from(draw) * self.cursors.len() as u128) >> 64) as usize;
            }
            Balance::Flowlet { gap, .. } => {
                if now > self.last_sent + gap.get() {
                    self.step();
                }
                self.last_sent = now;
            }
            Balance::AvoidMarked { .. } => {
                self.step();
                // At most once around: with every path marked, the next one is as good as any.
                for _ in 0..self.cursors.len() {
                    let (missed, _) = &mut self.rest[self.turn];
                    let rests = *missed > 0;
                    *missed = missed.saturating_sub(1);
                    if !std::mem::take(&mut self.marked[self.turn]) && !rests {
                        break;
                    }
                    self.step();
                }
                let place = sequence as usize & (self.taken.len() - 1);
                self.taken[place] = self.turn as u16;
            }
        }
        self.cursors[self.turn]
    }

    fn step(&mut self) {
        self.turn += 1;
        if self.turn == self.cursors.len() {
            self.turn = 0;
        }
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
            self.marked[path] |= marked;
            self.rest[path] = (0, 0);
        }
    }

    /// The packet of this number is sent again for it was lost.
    pub(crate) fn lost(&mut self, sequence: u32) {
        if let Some(path) = self.path_of(sequence) {
            let in_a_row = (self.rest[path].1 + 1).min(10);
            self.rest[path] = (1 << in_a_row, in_a_row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(balancer: &mut Balancer, times: impl IntoIterator<Item = u64>) -> Vec<u32> {
        times.into_iter().enumerate().map(|(i, now)| balancer.next(now, i as u32)).collect()
    }

    #[test]
    fn spraying_draws_each_path_as_often_and_not_in_turn() {
        let mut spray = Balancer::new(Balance::Spray { paths: 3 }, vec![10, 20, 30], (8, 7));
        let drawn = paths(&mut spray, 0..3_000);
        for path in [10, 20, 30] {
            let times = drawn.iter().filter(|other| **other == path).count();
            assert!((900..1_100).contains(&times), "{path}: {times}");
        }
        let again = drawn.windows(2).filter(|two| two[0] == two[1]).count();
        assert!((900..1_100).contains(&again), "{again} of 3,000 go by the path before");
        let mut other = Balancer::new(Balance::Spray { paths: 3 }, vec![10, 20, 30], (8, 8));
        assert_ne!(paths(&mut other, 0..3_000), drawn);
    }

    #[test]
    fn a_flowlet_keeps_its_path_until_a_pause() {
        let balance = Balance::Flowlet { paths: 2, gap: Picoseconds(100) };
        let mut flowlet = Balancer::new(balance, vec![10, 20], (8, 0));
        assert_eq!(paths(&mut flowlet, [1, 50, 150, 251, 300]), [10, 10, 10, 20, 20]);
    }

    #[test]
    fn a_marked_path_misses_one_turn() {
        let mut avoid = Balancer::new(Balance::AvoidMarked { paths: 3 }, vec![10, 20, 30], (8, 0));
        assert_eq!(paths(&mut avoid, 0..3), [20, 30, 10]);
        avoid.echo(1, true);
        assert_eq!(paths(&mut avoid, 0..4), [20, 10, 20, 30]);
        (0..3).for_each(|sequence| avoid.echo(sequence, true));
        assert_eq!(paths(&mut avoid, 0..2).len(), 2);
    }

    #[test]
    fn a_path_that_loses_packets_rests_longer_each_time() {
        let balance = Balance::AvoidMarked { paths: 2 };
        let mut avoid = Balancer::new(balance, vec![10, 20], (1_024, 0));
        let mut tried = Vec::new();
        for sequence in 0..200 {
            if avoid.next(0, sequence) == 20 {
                tried.push(sequence);
                avoid.lost(sequence);
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
}
