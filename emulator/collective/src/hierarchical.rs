// SPDX-License-Identifier: Apache-2.0
//! All-reduce over several groups: reduce-scatter inside each group, all-reduce of each share
//! between the groups, then all-gather inside each group.
//!
//! ```text
//!   group 0:  r0 r1 r2 r3   ── reduce-scatter ──▶ share 0..3 ┐         ┌─ all-gather ──▶ everything
//!   group 1:  r0 r1 r2 r3   ── reduce-scatter ──▶ share 0..3 ┴ rings of ┴─ all-gather ──▶ everything
//!             (fast domain)                                   equal rank
//!                                                             (data-centre network)
//! ```
//! A rank continues as soon as it has the required data, without a barrier between phases.

use lightloom_units::Bytes;

use super::ring::{Directions, Ring};
use super::schedule::{NetworkLevel, Schedule, TimeForm};
use super::{CollectiveError, CollectiveKind, part_of};

#[derive(Clone, Debug)]
pub struct Hierarchical {
    pub groups: Vec<usize>,
    /// Size of each rank's data before and after the operation.
    pub size: Bytes,
}

impl Hierarchical {
    /// Fails for fewer than two groups, fewer than two ranks per group, or groups of different sizes.
    pub fn schedule(&self) -> Result<Schedule, CollectiveError> {
        let of_group = self.check()?;
        let [scatter, gather] = CollectiveKind::HALVES;
        let groups = self.groups.len();
        let names: Vec<usize> = (0..groups * of_group).collect();
        let names: Vec<&[usize]> = names.chunks(of_group).collect();
        let mut sendings = Vec::new();
        let mut phases: [Vec<TimeForm>; 3] = Default::default();
        let mut done: Vec<Vec<Vec<usize>>> = Vec::new();
        for names in &names {
            let ring = self.inner(scatter, of_group);
            let laid = ring.lay_out(&mut sendings, names, NetworkLevel::Inside, &[])?;
            phases[0].push(laid.form);
            done.push(laid.into);
        }
        for rank in 0..of_group {
            let ring = Ring {
                kind: CollectiveKind::AllReduce,
                ranks: groups,
                size: part_of(self.size, of_group as u64),
                directions: Directions::One,
            };
            let peers: Vec<usize> = (0..groups).map(|group| group * of_group + rank).collect();
            let waits: Vec<_> = done.iter().map(|group| group[rank].clone()).collect();
            let laid = ring.lay_out(&mut sendings, &peers, NetworkLevel::Between, &waits)?;
            phases[1].push(laid.form);
            for (group, into) in laid.into.into_iter().enumerate() {
                done[group][rank] = into;
            }
        }
        for (names, waits) in names.iter().zip(&done) {
            let ring = self.inner(gather, of_group);
            let laid = ring.lay_out(&mut sendings, names, NetworkLevel::Inside, waits)?;
            phases[2].push(laid.form);
        }
        let form = TimeForm::InTurn(phases.into_iter().map(TimeForm::AtOnce).collect());
        let (kind, ranks, size) = (CollectiveKind::AllReduce, of_group * groups, self.size);
        Ok(Schedule { kind, ranks, size, sendings, form })
    }

    fn check(&self) -> Result<usize, CollectiveError> {
        let expected = self.groups.first().copied().unwrap_or(0);
        if self.groups.len() < 2 {
            return Err(CollectiveError::TooFewRanks { ranks: self.groups.len() });
        }
        match self.groups.iter().position(|ranks| *ranks != expected) {
            Some(group) => {
                let ranks = self.groups[group];
                Err(CollectiveError::UnequalGroups { group, ranks, expected })
            }
            None => Ok(expected),
        }
    }

    fn inner(&self, kind: CollectiveKind, ranks: usize) -> Ring {
        Ring { kind, ranks, size: self.size, directions: Directions::Both }
    }
}
