// SPDX-License-Identifier: Apache-2.0
//! All-to-all: every rank has a piece for every other rank.
//!
//! ```text
//!   pairwise   step s = 1 … N-1: rank r sends to rank r + s (Thakur, Rabenseifner, Gropp,
//!              IJHPCA 2005, section 4.2)
//!   Bruck      step k = 0 … ⌈log N⌉-1: rank r sends to r + 2^k all pieces with bit k in their remaining distance (Bruck et
//!              al.: "Efficient algorithms for all-to-all communications in multiport message-passing
//!              systems", IEEE TPDS 1997, section 3): few steps, but pieces are forwarded several times
//!   binary     step k: ranks r and r xor 2^k exchange half of their data; N is a power of two
//! ```
//! If all pieces are sent at the start instead, the network determines their order. A rank starts
//! its next step once it has received everything that it may have to forward.

use lightloom_units::Bytes;

use schemars::JsonSchema;
use serde::Deserialize;

use super::schedule::{Await, Schedule};
use super::{CollectiveError, CollectiveKind, part_of};

/// Order of the pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exchange {
    /// Sends to one partner after another.
    Pairwise,
    /// Passes all pieces to the network at the start.
    AtOnce,
    /// Uses distances that are powers of two, in log N steps.
    Bruck,
    /// Pairs ranks that differ in one bit, in log N steps; N must be a power of two.
    Binary,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shift {
    /// Distance to the partner, which is added to the rank or XORed with it ([`Exchange::Binary`]).
    pub distance: usize,
    /// Pieces to send, each given as the distance from its source to its destination.
    pub ways: Vec<usize>,
}

impl Exchange {
    pub fn partner(self, rank: usize, distance: usize, ranks: usize) -> usize {
        match self {
            Self::Binary => rank ^ distance,
            Self::Pairwise | Self::AtOnce | Self::Bruck => (rank + distance) % ranks,
        }
    }

    /// Returns the steps for `ranks` ranks. Fails if the algorithm requires a power of two and `ranks` is not one.
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
                let distances = powers.take_while(|power| *power < ranks);
                let shifts = distances.map(|distance| Shift {
                    distance,
                    ways: (1..ranks).filter(|way| way & distance != 0).collect(),
                });
                shifts.collect()
            }
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct AllToAll {
    pub ranks: usize,
    /// A rank's data for all ranks, including itself.
    pub size: Bytes,
    pub exchange: Exchange,
}

impl AllToAll {
    /// Fails for fewer than two ranks, or if the algorithm does not support their number.
    pub fn schedule(&self) -> Result<Schedule, CollectiveError> {
        let ranks = self.ranks;
        let steps = self.exchange.steps(ranks)?;
        let mut schedule = Schedule::chained(CollectiveKind::AllToAll, ranks, self.size)?;
        let piece = part_of(self.size, ranks as u64);
        let mut awaited: Vec<Vec<Await>> = vec![Vec::new(); ranks];
        for Shift { distance, ways } in steps {
            let mut came = vec![None; ranks];
            for (rank, awaits) in awaited.iter().enumerate() {
                let to = self.exchange.partner(rank, distance, ranks);
                let message = piece * ways.len() as u64;
                let sending = schedule.send(rank, to, message, 1, awaits.clone());
                came[to] = Some(Await::all_of(sending));
            }
            for (awaits, came) in awaited.iter_mut().zip(came) {
                match self.exchange {
                    Exchange::AtOnce => {}
                    Exchange::Pairwise => *awaits = came.into_iter().collect(),
                    // Any piece received so far may have to be forwarded.
                    Exchange::Bruck | Exchange::Binary => awaits.extend(came),
                }
            }
        }
        Ok(schedule)
    }
}
