// SPDX-License-Identifier: Apache-2.0
//! Where a job's GPUs sit: consecutive GPUs under consecutive leaves.

use lightloom_units::id::LeafId;

use super::super::demand::Seat;

/// GPUs numbered from 0, filling leaf after leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The leaf of GPU 0.
    pub first_leaf: u32,
    /// GPUs under one leaf.
    pub gpus_per_leaf: u32,
    /// GPUs of the job.
    pub gpus: u32,
}

impl Place {
    /// The leaf of a GPU.
    ///
    /// # Panics
    /// If the job has no such GPU.
    #[must_use]
    pub fn leaf(&self, gpu: u32) -> LeafId {
        assert!(gpu < self.gpus, "GPU {gpu} of {}", self.gpus);
        LeafId(self.first_leaf + gpu / self.gpus_per_leaf)
    }

    /// Leaves that have a GPU of the job.
    #[must_use]
    pub fn leaves(&self) -> u32 {
        self.gpus.div_ceil(self.gpus_per_leaf)
    }

    /// The place of `gpus` GPUs from GPU `first` on.
    ///
    /// # Panics
    /// If `first` is not the first GPU of a leaf or the job has not so many.
    #[must_use]
    pub fn part(&self, first: u32, gpus: u32) -> Self {
        assert!(first.is_multiple_of(self.gpus_per_leaf), "a part begins with a leaf");
        assert!(first + gpus <= self.gpus, "a part lies within the job");
        Self { first_leaf: self.first_leaf + first / self.gpus_per_leaf, gpus, ..*self }
    }
}

/// Where each rank of a job is, in rank order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seats(pub Vec<Seat>);

impl Seats {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Its leaves, each once, in the order in which ranks come to them.
    #[must_use]
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
