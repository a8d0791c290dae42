// SPDX-License-Identifier: Apache-2.0
//! Fills leaves with a job's GPUs in order.

use lightloom_units::id::LeafId;

use super::super::demand::Seat;

/// The leaves of a job's GPUs, which are numbered from 0 and fill one leaf after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The leaf of GPU 0.
    pub first_leaf: u32,
    /// GPUs per leaf.
    pub gpus_per_leaf: u32,
    /// GPUs of the job.
    pub gpus: u32,
}

impl Place {
    /// Returns the leaf of a GPU.
    ///
    /// # Panics
    /// Panics if the GPU number is too large.
    pub fn leaf(&self, gpu: u32) -> LeafId {
        assert!(gpu < self.gpus, "GPU {gpu} of {}", self.gpus);
        LeafId(self.first_leaf + gpu / self.gpus_per_leaf)
    }

    /// Returns the number of leaves in use.
    pub fn leaves(&self) -> u32 {
        self.gpus.div_ceil(self.gpus_per_leaf)
    }
}

/// The seats of a job's ranks in rank order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seats(pub Vec<Seat>);

impl Seats {
    /// Returns the number of seats.
    pub fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Returns the distinct leaves in order of first occurrence.
    pub fn leaves(&self) -> Vec<LeafId> {
        let mut leaves: Vec<LeafId> = Vec::new();
        for seat in &self.0 {
            if leaves.last() != Some(&seat.leaf) && !leaves.contains(&seat.leaf) {
                leaves.push(seat.leaf);
            }
        }
        leaves
    }
}

impl From<Place> for Seats {
    fn from(place: Place) -> Self {
        Self((0..place.gpus).map(|gpu| place.leaf(gpu).into()).collect())
    }
}
