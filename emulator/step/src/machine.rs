// SPDX-License-Identifier: Apache-2.0
//! Machine of a task graph: ranks in rings or switched domains, connected by rails.

use lightloom_units::{BitsPerSecond, Picoseconds};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    pub rate: BitsPerSecond,
    pub delay: Picoseconds,
}

#[derive(Clone, Debug)]
pub struct Machine {
    pub ranks: u32,
    /// Ranks of each ring of the high-bandwidth domain, in order. A rank belongs to at most one ring.
    pub rings: Vec<Vec<u32>>,
    pub domain: Domain,
    pub ring_link: Cable,
    /// Sets of ranks that share a switch of the data-centre network (rails).
    pub rails: Vec<Vec<u32>>,
    pub rail_link: Cable,
    /// Excess traffic to the first rank of an all-to-all, where 0.2 means 20 %.
    pub expert_imbalance: f64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Cables between ring neighbours, each with half of a rank's rate. A ring of two ranks has two parallel cables.
    Cables,
    /// One switch per set of ranks, with one cable per rank, for all communication within the set.
    Switches { groups: Vec<Vec<u32>> },
}

impl Machine {
    pub fn ring_of(&self) -> Vec<Option<u32>> {
        set_of(self.ranks, &self.rings)
    }

    pub fn domain_of(&self) -> Vec<Option<u32>> {
        match &self.domain {
            Domain::Cables => vec![None; self.ranks as usize],
            Domain::Switches { groups } => set_of(self.ranks, groups),
        }
    }
}

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
