// SPDX-License-Identifier: Apache-2.0
//! All-reduce over binary trees, and broadcast: pieces flow up, are added, and flow down again.
//!
//! ```text
//!   one tree of 8 ranks:                  the second one is the same with all ranks moved by one:
//!              4                          most who pass pieces on in one tree are leaves in the
//!          2       6                      other, so that together they use most of what every
//!        1   3   5   7                    rank can send and receive
//!      0
//! ```
//! Sanders, Speck, Träff: "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
//! Parallel Computing 2009; NCCL has the double tree since version 2.4. The data goes in pieces, and a
//! rank passes a piece on when it has it from all it waits for.

use std::ops::Range;

use lightloom_units::Bytes;

use super::schedule::{Await, Schedule};
use super::{CollectiveError, CollectiveKind, part_of};

/// What is done over trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeOperation {
    /// All-reduce over one tree.
    AllReduce,
    /// All-reduce over two trees, half of the data each.
    DoubleAllReduce,
    /// From the root to everybody, over one tree.
    Broadcast,
}

/// A collective over binary trees.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    /// What is done.
    pub operation: TreeOperation,
    /// How many ranks take part. The root of the first tree is the one in the middle.
    pub ranks: usize,
    /// What each rank has in the end.
    pub size: Bytes,
    /// In how many pieces it goes through each tree.
    pub pieces: u32,
}

impl Tree {
    /// What every rank sends.
    ///
    /// # Errors
    /// Fewer than two ranks.
    pub fn schedule(&self) -> Result<Schedule, CollectiveError> {
        let kind = match self.operation {
            TreeOperation::Broadcast => CollectiveKind::Broadcast,
            TreeOperation::AllReduce | TreeOperation::DoubleAllReduce => CollectiveKind::AllReduce,
        };
        let mut schedule = Schedule::chained(kind, self.ranks, self.size)?;
        let trees = if self.operation == TreeOperation::DoubleAllReduce { 2 } else { 1 };
        let pieces = self.pieces.max(1);
        let piece = part_of(self.size, u64::from(pieces) * trees as u64);
        for shift in 0..trees {
            self.lay_tree(&mut schedule, shift, (piece, pieces));
        }
        Ok(schedule)
    }

    fn lay_tree(&self, schedule: &mut Schedule, shift: usize, load: (Bytes, u32)) {
        let shape = InOrderTree::new(self.ranks);
        let rank = |place: usize| (place + shift) % self.ranks;
        let mut into: Vec<Vec<Await>> = vec![Vec::new(); self.ranks];
        if self.operation != TreeOperation::Broadcast {
            // Deepest first, so that what a rank waits for is there before its own sending.
            for &place in shape.top_down.iter().rev() {
                if let Some(parent) = shape.parent[place] {
                    let awaits = std::mem::take(&mut into[place]);
                    let up = schedule.send((rank(place), rank(parent)), load, awaits);
                    into[parent].push(Await::each_of(up));
                }
            }
        }
        for &place in &shape.top_down {
            if let Some(parent) = shape.parent[place] {
                let awaits = into[parent].clone();
                let down = schedule.send((rank(parent), rank(place)), load, awaits);
                into[place] = vec![Await::each_of(down)];
            }
        }
    }
}

/// The binary tree whose places, read in order, are 0, 1, 2 …: the middle on top, halves below.
struct InOrderTree {
    parent: Vec<Option<usize>>,
    /// Every place after its parent.
    top_down: Vec<usize>,
}

impl InOrderTree {
    fn new(places: usize) -> Self {
        let mut tree = Self { parent: vec![None; places], top_down: Vec::new() };
        tree.grow(None, 0..places);
        tree
    }
    fn grow(&mut self, parent: Option<usize>, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let middle = range.start + range.len() / 2;
        self.parent[middle] = parent;
        self.top_down.push(middle);
        self.grow(Some(middle), range.start..middle);
        self.grow(Some(middle), middle + 1..range.end);
    }
}
