// SPDX-License-Identifier: Apache-2.0
//! All-reduce along all dimensions of a torus concurrently.
//!
//! ```text
//!   share 0:  ⇄x  ⇄y  ⇄z  reduce-scatter, then  ⇄z  ⇄y  ⇄x  all-gather
//!   share 1:  ⇄y  ⇄z  ⇄x                        ⇄x  ⇄z  ⇄y       every dimension is always busy
//!   share 2:  ⇄z  ⇄x  ⇄y                        ⇄y  ⇄x  ⇄z       with another share
//! ```
//! The data is split into one share per dimension. Each share traverses the dimensions in a
//! different order and uses the rings of each in both directions (the multi-ring all-reduce of
//! Jain, Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus interconnects",
//! ICS 2010, section 4). A rank continues as soon as it has the required data.

use lightloom_units::Bytes;

use super::ring::{Directions, Ring};
use super::schedule::{NetworkLevel, Schedule, Sending, TimeForm};
use super::{CollectiveError, CollectiveKind, part_of};

#[derive(Clone, Debug)]
pub struct TorusAllReduce {
    /// Rings of each dimension. The rings of a dimension contain every rank exactly once and have
    /// equal length. Dimensions of one rank are omitted.
    pub rings: Vec<Vec<Vec<usize>>>,
    pub size: Bytes,
}

struct ShareProgress {
    size: Bytes,
    stages: Vec<TimeForm>,
    into: Vec<Vec<usize>>,
}

impl TorusAllReduce {
    /// Fails if the list of dimensions is empty or a ring has only one rank.
    pub fn schedule(&self) -> Result<Schedule, CollectiveError> {
        let dimensions = self.rings.len();
        let ranks = self.rings.first().map_or(0, |rings| rings.iter().map(Vec::len).sum());
        if ranks < 2 {
            return Err(CollectiveError::TooFewRanks { ranks });
        }
        let (mut sendings, mut shares) = (Vec::new(), Vec::new());
        let [scatter, gather] = CollectiveKind::HALVES;
        for first in 0..dimensions {
            let size = part_of(self.size, dimensions as u64);
            let mut share =
                ShareProgress { size, stages: Vec::new(), into: vec![Vec::new(); ranks] };
            let order: Vec<usize> = (0..dimensions).map(|d| (first + d) % dimensions).collect();
            for &dimension in &order {
                self.stage(&mut sendings, &mut share, scatter, dimension)?;
            }
            for &dimension in order.iter().rev() {
                self.stage(&mut sendings, &mut share, gather, dimension)?;
            }
            shares.push(TimeForm::InTurn(share.stages));
        }
        let (kind, size, form) = (CollectiveKind::AllReduce, self.size, TimeForm::AtOnce(shares));
        Ok(Schedule { kind, ranks, size, sendings, form })
    }

    fn stage(
        &self,
        sendings: &mut Vec<Sending>,
        share: &mut ShareProgress,
        kind: CollectiveKind,
        dimension: usize,
    ) -> Result<(), CollectiveError> {
        let rings = &self.rings[dimension];
        let long = rings.first().map_or(1, Vec::len);
        let size =
            if kind == CollectiveKind::AllGather { share.size * long as u64 } else { share.size };
        // A ring of two ranks has a single cable, used once in each direction.
        let directions = if long == 2 { Directions::One } else { Directions::Both };
        let mut into = vec![Vec::new(); share.into.len()];
        let mut forms = Vec::new();
        for names in rings {
            let waits: Vec<_> = names.iter().map(|rank| share.into[*rank].clone()).collect();
            let ring = Ring { kind, ranks: names.len(), size, directions };
            let laid = ring.lay_out(sendings, names, NetworkLevel::Inside, &waits)?;
            forms.push(laid.form);
            for (rank, sendings) in names.iter().zip(laid.into) {
                into[*rank] = sendings;
            }
        }
        share.into = into;
        share.stages.push(TimeForm::AtOnce(forms));
        share.size =
            if kind == CollectiveKind::AllGather { size } else { part_of(size, long as u64) };
        Ok(())
    }
}
