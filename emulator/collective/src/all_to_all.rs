// SPDX-License-Identifier: Apache-2.0
//! All-to-all: every rank has a piece for every other.
//!
//! ```text
//!   pairwise   step s = 1 … N-1: rank r sends its piece for r + s there (Thakur, Rabenseifner, Gropp,
//!              IJHPCA 2005, section 4.2)
//!   Bruck      step k = 0 … ⌈log N⌉-1: to r + 2^k go all pieces whose remaining way has bit k (Bruck et
//!              al.: "Efficient algorithms for all-to-all communications in multiport message-passing
//!              systems", IEEE TPDS 1997, section 3): few steps, pieces travel several times
//!   binary     step k: with r xor 2^k half of everything is exchanged; N is a power of two
//! ```
//! Or everything at once, which leaves the order to the network. A rank goes on to its next step when it
//! has received what it may have to pass on.

use lightloom_units::Bytes;

use schemars::JsonSchema;
use serde::Deserialize;

use super::schedule::{Await, Schedule};
use super::{CollectiveError, CollectiveKind, part_of};

/// In which order the pieces go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exchange {
    /// One partner after the other.
    Pairwise,
    /// All pieces are offered to the network when the collective starts.
    AtOnce,
    /// Over powers of two, in the logarithm of N steps.
    Bruck,
    /// With the rank whose number differs in one bit, in the logarithm of N steps; N is a power of two.
    Binary,
}

/// What every rank does in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shift {
    /// How far its partner is: added to its number, or by bits ([`Exchange::Binary`]).
    pub distance: usize,
    /// Pieces that go there: those whose way from their first rank to their last is one of these.
    pub ways: Vec<usize>,
}

impl Exchange {
    /// The rank at a distance from another one of `ranks`.
    #[must_use]
    pub fn partner(self, rank: usize, distance: usize, ranks: usize) -> usize {
        match self {
            Self::Binary => rank ^ distance,
            Self::Pairwise | Self::AtOnce | Self::Bruck => (rank + distance) % ranks,
        }
    }

    /// The steps over `ranks` ranks.
    ///
    /// # Errors
    /// A number of ranks that is no power of two, where one is needed.
    pub fn steps(self, ranks: usize) -> Result<Vec<Shift>, CollectiveError> {
        if self == Self::Binary && !ranks.is_power_of_two() {
            return Err(CollectiveError::NoPowerOfTwo { ranks });
        }
        Ok(match self {
            Self::Pairwise | Self::AtOnce => {
                (1..ranks).map(|way| Shift { distance: way, ways: vec![way] }).collect()
            }
            Self::Bruck | Self::Binary => {
                let powers = std::iter::successors(Some(1), |power| Some(power * 2));
                let shift = |distance: usize| Shift {
                    distance,
                    ways: (1..ranks).filter(|way| way & distance != 0).collect(),
                };
                powers.take_while(|power| *power < ranks).map(shift).collect()
            }
        })
    }
}

/// An all-to-all.
#[derive(Clone, Copy, Debug)]
pub struct AllToAll {
    /// How many ranks take part.
    pub ranks: usize,
    /// What each rank has for all ranks together, itself included.
    pub size: Bytes,
    /// The order of pieces.
    pub exchange: Exchange,
}

impl AllToAll {
    /// What every rank sends.
    ///
    /// # Errors
    /// Fewer than two ranks, or a number of them that the order does not allow.
    pub fn schedule(&self) -> Result<Schedule, CollectiveError> {
        let ranks = self.ranks;
        let steps = self.exchange.steps(ranks)?;
        let mut schedule = Schedule::chained(CollectiveKind::AllToAll, ranks, self.size)?;
        let piece = part_of(self.size, ranks as u64);
        // By rank: what it waits for before its next step.
        let mut awaited: Vec<Vec<Await>> = vec![Vec::new(); ranks];
        for Shift { distance, ways } in steps {
            let mut came = vec![None; ranks];
            for (rank, awaits) in awaited.iter().enumerate() {
                let to = self.exchange.partner(rank, distance, ranks);
                let load = (piece * ways.len() as u64, 1);
                came[to] = Some(Await::all_of(schedule.send((rank, to), load, awaits.clone())));
            }
            for (awaits, came) in awaited.iter_mut().zip(came) {
                match self.exchange {
                    Exchange::AtOnce => {}
                    Exchange::Pairwise => *awaits = came.into_iter().collect(),
                    // Any earlier piece may be among those to pass on.
                    Exchange::Bruck | Exchange::Binary => awaits.extend(came),
                }
            }
        }
        Ok(schedule)
    }
}
