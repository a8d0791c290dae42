// SPDX-License-Identifier: Apache-2.0
//! All-reduce over binary trees, and broadcast. Pieces are summed up the tree and sent back down.
//!
//! ```text
//!   one tree of 8 ranks:                  the second tree shifts all ranks by one:
//!              4                          most inner ranks of one tree are leaves in the other, so
//!          2       6                      that together they use most of the send and receive
//!        1   3   5   7                    bandwidth of every rank
//!      0
//! ```
//! Sanders, Speck, Träff: "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
//! Parallel Computing 2009. NCCL has used the double tree since version 2.4. The data is sent in
//! pieces, and a rank forwards a piece once it has received it from all its children or its parent.

use std::ops::Range;

use lightloom_units::Bytes;

use super::schedule::{Await, Schedule};
use super::{CollectiveError, CollectiveKind, part_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeOperation {
    AllReduce,
    DoubleAllReduce,
    Broadcast,
}

#[derive(Clone, Copy, Debug)]
pub struct Tree {
    pub operation: TreeOperation,
    /// Number of ranks. The middle rank is the root of the first tree.
    pub ranks: usize,
    pub size: Bytes,
    pub pieces: u32,
}

impl Tree {
    /// # Errors
    /// Fails for fewer than two ranks.
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
            // Visit the deepest positions first, so that dependencies precede a rank's own sending.
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

/// Binary tree with in-order traversal 0, 1, 2 …: the middle position is the root, and each half is
/// a subtree.
struct InOrderTree {
    parent: Vec<Option<usize>>,
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
