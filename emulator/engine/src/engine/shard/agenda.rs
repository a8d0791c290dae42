// SPDX-License-Identifier: Apache-2.0
//! When something next happens at each vertex of a part of the network, so that a large part in which little happens is
//! not looked through in every window.

use std::ops::Range;

/// Vertices that are looked at together.
const BLOCK: usize = 32;

/// By vertex, a time before which nothing happens there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agenda {
    due: Vec<u64>,
    /// By block of vertices: the earliest of them, or an earlier time until it is settled.
    blocks: Vec<u64>,
}

impl Agenda {
    /// Nothing happens at any of `vertices`.
    pub(super) fn new(vertices: usize) -> Self {
        Self { due: vec![u64::MAX; vertices], blocks: vec![u64::MAX; vertices.div_ceil(BLOCK)] }
    }

    /// When something next happens anywhere; [`u64::MAX`]: never.
    pub(super) fn earliest(&self) -> u64 {
        self.blocks.iter().copied().min().unwrap_or(u64::MAX)
    }

    /// The blocks in which these vertices lie.
    pub(super) fn blocks(vertices: &Range<usize>) -> Range<usize> {
        vertices.start / BLOCK..vertices.end.div_ceil(BLOCK)
    }

    /// Those of `vertices` that lie in a block in which something happens before `end`; none otherwise.
    #[inline(always)]
    pub(super) fn vertices_before(
        &self,
        vertices: &Range<usize>,
        (block, end): (usize, u64),
    ) -> Range<usize> {
        if self.blocks[block] >= end {
            return 0..0;
        }
        let first = block * BLOCK;
        vertices.start.max(first)..vertices.end.min(first + BLOCK)
    }

    #[inline(always)]
    pub(super) fn is_before(&self, vertex: usize, end: u64) -> bool {
        self.due[vertex] < end
    }

    /// Where the time of a vertex stands.
    #[inline(always)]
    pub(super) fn of(&mut self, vertex: usize) -> Due<'_> {
        Due { own: &mut self.due[vertex], block: &mut self.blocks[vertex / BLOCK] }
    }

    /// From now on nothing happens at `vertex` before `time`. Where that is later than before, its block is to be settled.
    #[inline(always)]
    pub(super) fn set(&mut self, vertex: usize, time: u64) {
        let Due { own, block } = self.of(vertex);
        (*own, *block) = (time, (*block).min(time));
    }

    #[inline(always)]
    pub(super) fn settle(&mut self, block: usize) {
        let first = block * BLOCK;
        let due = &self.due[first..self.due.len().min(first + BLOCK)];
        self.blocks[block] = due.iter().copied().min().unwrap_or(u64::MAX);
    }

    pub(super) fn settle_all(&mut self) {
        (0..self.blocks.len()).for_each(|block| self.settle(block));
    }
}

/// The time of one vertex.
pub(crate) struct Due<'s> {
    own: &'s mut u64,
    block: &'s mut u64,
}

impl Due<'_> {
    /// Something happens there at `time`.
    #[inline(always)]
    pub(super) fn no_later_than(&mut self, time: u64) {
        *self.own = (*self.own).min(time);
        *self.block = (*self.block).min(time);
    }
}
