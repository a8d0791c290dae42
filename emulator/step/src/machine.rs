// SPDX-License-Identifier: Apache-2.0
//! The machine that a task graph runs on: ranks in rings or under switches, and rails between them.

use lightloom_units::{BitsPerSecond, Picoseconds};

/// A cable, both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// How fast bits go onto it.
    pub rate: BitsPerSecond,
    /// How long they travel.
    pub delay: Picoseconds,
}

/// Ranks in rings, and a switch that joins ranks.
#[derive(Clone, Debug)]
pub struct Machine {
    /// How many ranks there are.
    pub ranks: u32,
    /// The ranks of each ring of the high-bandwidth domain, in order; each rank in at most one.
    pub rings: Vec<Vec<u32>>,
    /// What the rings are made of.
    pub domain: Domain,
    /// A cable of a ring, or of a rank to the switch of its domain.
    pub ring_link: Cable,
    /// Sets of ranks under one switch of the data-centre network each (rails).
    pub rails: Vec<Vec<u32>>,
    /// A cable to that switch.
    pub rail_link: Cable,
    /// How much more than its share the first rank of an all-to-all gets from the others: 0.2 is 20 %.
    pub expert_imbalance: f64,
}

/// What joins the ranks of a high-bandwidth domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Cables between neighbours of a ring, half of a rank's rate each; two ranks have both cables between them.
    Cables,
    /// A switch for each of these sets of ranks, a cable of each rank to it. All-to-alls and other
    /// exchange between ranks of one set run over it, too.
    Switches {
        /// The ranks of each domain.
        groups: Vec<Vec<u32>>,
    },
}

impl Machine {
    /// By rank: its ring.
    #[must_use]
    pub fn ring_of(&self) -> Vec<Option<u32>> {
        set_of(self.ranks, &self.rings)
    }

    /// By rank: the switch of its domain.
    #[must_use]
    pub fn domain_of(&self) -> Vec<Option<u32>> {
        match &self.domain {
            Domain::Cables => vec![None; self.ranks as usize],
            Domain::Switches { groups } => set_of(self.ranks, groups),
        }
    }
}

/// The place of the set that each rank is in.
fn set_of(ranks: u32, sets: &[Vec<u32>]) -> Vec<Option<u32>> {
    let mut of = vec![None; ranks as usize];
    for (index, set) in sets.iter().enumerate() {
        for rank in set {
            if let Some(place) = of.get_mut(*rank as usize) {
                *place = Some(index as u32);
            }
        }
    }
    of
}
