// SPDX-License-Identifier: Apache-2.0
//! The paths of a flow.

use std::ops::Index;

use crate::engine::network::LinkId;

/// Paths, one after another in one piece of memory: flows may have hundreds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    links: Vec<LinkId>,
    ends: Vec<u32>,
}

impl Paths {
    /// With room for so many paths of so many links.
    pub(super) fn with_room(paths: usize, links: usize) -> Self {
        Self { links: Vec::with_capacity(paths * links), ends: Vec::with_capacity(paths) }
    }

    /// One path.
    pub(crate) fn one(links: &[LinkId]) -> Self {
        let mut paths = Self::with_room(1, links.len());
        paths.push(links);
        paths
    }

    /// Adds a path.
    pub(super) fn push(&mut self, links: &[LinkId]) {
        self.links.extend_from_slice(links);
        self.ends.push(self.links.len() as u32);
    }

    /// Adds all of `more`.
    pub(super) fn append(&mut self, more: &Self) {
        more.iter().for_each(|path| self.push(path));
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The links of each, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[LinkId]> + Clone {
        (0..self.len()).map(|place| &self[place])
    }

    /// The links of all.
    #[must_use]
    pub fn links(&self) -> &[LinkId] {
        &self.links
    }
}

impl Index<usize> for Paths {
    type Output = [LinkId];

    fn index(&self, place: usize) -> &[LinkId] {
        let begin = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.links[begin as usize..self.ends[place] as usize]
    }
}
