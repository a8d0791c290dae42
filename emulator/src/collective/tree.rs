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

use lightloom_units::{Bytes, SimTime};

use super::draft::Draft;
use super::{Collective, CollectiveError, Kind, part_of};
use lightloom_engine::{Engine, FlowId, Gate, Probe, Route, VertexId};

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
#[derive(Clone, Debug)]
pub struct Tree {
    /// What is done.
    pub operation: TreeOperation,
    /// The ranks. The root of the first tree is the one in the middle.
    pub members: Vec<VertexId>,
    /// What each rank has in the end.
    pub size: Bytes,
    /// In how many pieces it goes through each tree.
    pub pieces: u32,
    /// How flows find their way.
    pub route: Route,
    /// Their priority at switches with real queues.
    pub priority: u8,
    /// Not before this.
    pub start: SimTime,
}

impl Tree {
    /// Adds the collective's flows to `engine`.
    ///
    /// # Errors
    /// Fewer than two ranks, or flows that the engine refuses.
    pub fn start<P: Probe>(&self, engine: &mut Engine<P>) -> Result<Collective, CollectiveError> {
        let mut draft =
            Draft::new(engine, &self.members, (&self.route, self.priority), self.start)?;
        let trees = if self.operation == TreeOperation::DoubleAllReduce { 2 } else { 1 };
        let pieces = self.pieces.max(1);
        let piece = part_of(self.size, u64::from(pieces) * trees as u64);
        for shift in 0..trees {
            self.lay_tree(&mut draft, shift, (piece, pieces))?;
        }
        let kind = match self.operation {
            TreeOperation::Broadcast => Kind::Broadcast,
            TreeOperation::AllReduce | TreeOperation::DoubleAllReduce => Kind::AllReduce,
        };
        Ok(draft.finish(kind, self.size))
    }

    fn lay_tree<P: Probe>(
        &self,
        draft: &mut Draft<'_, P>,
        shift: usize,
        load: (Bytes, u32),
    ) -> Result<(), CollectiveError> {
        let ranks = self.members.len();
        let shape = InOrder::new(ranks);
        let rank = |place: usize| (place + shift) % ranks;
        let piece_by_piece = |flow: FlowId| Gate { flow, ahead: 0 };
        let mut into: Vec<Vec<Gate>> = vec![Vec::new(); ranks];
        if self.operation != TreeOperation::Broadcast {
            // Deepest first, so that what a rank waits for is there before its own flow.
            for &place in shape.top_down.iter().rev() {
                if let Some(parent) = shape.parent[place] {
                    let gates = std::mem::take(&mut into[place]);
                    let flow = draft.flow((rank(place), rank(parent)), load, gates)?;
                    into[parent].push(piece_by_piece(flow));
                }
            }
        }
        for &place in &shape.top_down {
            if let Some(parent) = shape.parent[place] {
                let gates = into[parent].clone();
                let flow = draft.flow((rank(parent), rank(place)), load, gates)?;
                into[place] = vec![piece_by_piece(flow)];
            }
        }
        Ok(())
    }
}

/// The binary tree whose places, read in order, are 0, 1, 2 …: the middle on top, halves below.
struct InOrder {
    parent: Vec<Option<usize>>,
    /// Every place after its parent.
    top_down: Vec<usize>,
}

impl InOrder {
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
