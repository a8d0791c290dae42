// SPDX-License-Identifier: Apache-2.0
//! All-reduce over binary trees, and broadcast. Pieces are summed up the tree and sent back down.
//!
//! ```text
//!   one tree of 8 ranks:    0             the second tree is the mirror image (or shifted by one, if
//!                           4             the number of ranks is odd): every inner rank of one tree is
//!                       2       6         a leaf of the other, so that together they use the send and
//!                     1   3   5   7       receive bandwidth of every rank evenly
//! ```
//! Sanders, Speck, Träff: "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
//! Parallel Computing 2009. The trees are those of NCCL since version 2.4. The data is sent in
//! pieces, and a rank forwards a piece once it has received it from all its children or its parent.

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
    /// Number of ranks. Rank 0 is the root of the first tree.
    pub ranks: usize,
    pub size: Bytes,
    pub pieces: u32,
}

impl Tree {
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
        for tree in 0..trees {
            self.lay_tree(&mut schedule, tree, piece);
        }
        Ok(schedule)
    }

    fn lay_tree(&self, schedule: &mut Schedule, tree: usize, piece: Bytes) {
        let (shape, pieces) = (BinaryTree::new(self.ranks), self.pieces.max(1));
        let ranks = (0..self.ranks).map(|place| match tree {
            0 => place,
            _ if self.ranks.is_multiple_of(2) => self.ranks - 1 - place,
            _ => (place + 1) % self.ranks,
        });
        let ranks: Vec<usize> = ranks.collect();
        let mut into: Vec<Vec<Await>> = vec![Vec::new(); self.ranks];
        if self.operation != TreeOperation::Broadcast {
            // Visit the deepest positions first, so that dependencies precede a rank's own sends.
            for &place in shape.top_down.iter().rev() {
                if let Some(parent) = shape.parent[place] {
                    let awaits = std::mem::take(&mut into[place]);
                    let up = schedule.send(ranks[place], ranks[parent], piece, pieces, awaits);
                    into[parent].push(Await::each_of(up));
                }
            }
        }
        for &place in &shape.top_down {
            if let Some(parent) = shape.parent[place] {
                let awaits = into[parent].clone();
                let down = schedule.send(ranks[parent], ranks[place], piece, pieces, awaits);
                into[place] = vec![Await::each_of(down)];
            }
        }
    }
}

/// NCCL's binary tree. Rank 0 is the root and has one child; a rank's height is the number of
/// trailing zeros of its number, so odd ranks are leaves.
struct BinaryTree {
    parent: Vec<Option<usize>>,
    top_down: Vec<usize>,
}

impl BinaryTree {
    fn new(places: usize) -> Self {
        let mut top_down: Vec<usize> = (0..places).collect();
        top_down.sort_by_key(|place| std::cmp::Reverse(place.trailing_zeros()));
        let parent = (0..places).map(|place| {
            if place == 0 {
                return None;
            }
            let lowest_bit = 1 << place.trailing_zeros();
            let up = (place ^ lowest_bit) | (lowest_bit << 1);
            Some(if up < places { up } else { place ^ lowest_bit })
        });
        Self { parent: parent.collect(), top_down }
    }
}
