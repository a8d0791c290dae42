// SPDX-License-Identifier: Apache-2.0
//! Tracks the next event time of each vertex, so that a mostly idle shard takes little time.

use std::ops::Range;

const BLOCK: usize = 32;

#[derive(Clone, Debug, Default)]
pub(crate) struct Agenda {
    due: Vec<u64>,
    /// Earliest time in each block. It may be too early until the block is settled.
    blocks: Vec<u64>,
}

impl Agenda {
    pub(super) fn new(vertices: usize) -> Self {
        Self { due: vec![u64::MAX; vertices], blocks: vec![u64::MAX; vertices.div_ceil(BLOCK)] }
    }

    pub(super) fn earliest(&self) -> u64 {
        self.blocks.iter().copied().min().unwrap_or(u64::MAX)
    }

    pub(super) fn blocks(vertices: &Range<usize>) -> Range<usize> {
        vertices.start / BLOCK..vertices.end.div_ceil(BLOCK)
    }

    #[inline(always)]
    pub(super) fn vertices_before(
        &self,
        vertices: &Range<usize>,
        block: usize,
        end: u64,
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

    #[inline(always)]
    pub(super) fn of(&mut self, vertex: usize) -> Due<'_> {
        Due { own: &mut self.due[vertex], block: &mut self.blocks[vertex / BLOCK] }
    }

    /// If the new time is later, the block must be settled afterwards.
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

pub(crate) struct Due<'s> {
    own: &'s mut u64,
    block: &'s mut u64,
}

impl Due<'_> {
    #[inline(always)]
    pub(super) fn no_later_than(&mut self, time: u64) {
        *self.own = (*self.own).min(time);
        *self.block = (*self.block).min(time);
    }
}
