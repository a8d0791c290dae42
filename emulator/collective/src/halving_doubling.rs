// SPDX-License-Identifier: Apache-2.0
//! All-reduce by recursive halving and doubling (Thakur, Rabenseifner, Gropp: "Optimization of
//! collective communication operations in MPICH", IJHPCA 2005, section 4.5).
//!
//! In step `s` of log₂ N, each rank exchanges half of its remaining data with the rank at distance
//! N/2^(s+1). The all-gather then reverses the steps with doubling sizes.

use lightloom_units::Bytes;

use super::schedule::{Await, Schedule};
use super::{CollectiveError, CollectiveKind, part_of};

#[derive(Clone, Copy, Debug)]
pub struct HalvingDoubling {
    pub ranks: usize,
    /// Size of each rank's data before and after the operation.
    pub size: Bytes,
}

impl HalvingDoubling {
    /// Fails if the number of ranks is one or is not a power of two.
    pub fn schedule(&self) -> Result<Schedule, CollectiveError> {
        let ranks = self.ranks;
        if !ranks.is_power_of_two() {
            return Err(CollectiveError::NoPowerOfTwo { ranks });
        }
        let mut schedule = Schedule::chained(CollectiveKind::AllReduce, ranks, self.size)?;
        let steps = ranks.trailing_zeros();
        let halving = (1..=steps).map(|step| (ranks >> step, 1u64 << step));
        let order: Vec<_> = halving.clone().chain(halving.rev()).collect();
        let mut incoming: Vec<Option<usize>> = vec![None; ranks];
        for (distance, share) in order {
            let mut next = vec![None; ranks];
            for (rank, incoming) in incoming.iter().enumerate() {
                let awaits = incoming.map(Await::all_of).into_iter().collect();
                let (to, message) = (rank ^ distance, part_of(self.size, share));
                next[to] = Some(schedule.send(rank, to, message, 1, awaits));
            }
            incoming = next;
        }
        Ok(schedule)
    }
}
