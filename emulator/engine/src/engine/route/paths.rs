// SPDX-License-Identifier: Apache-2.0

use std::ops::Index;

use crate::engine::network::LinkId;

/// A single allocation, because a flow may have hundreds of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    links: Vec<LinkId>,
    count: u32,
    /// Where each path ends in `links`. Empty while all paths have equal length, as shortest paths do.
    ends: Vec<u32>,
}

impl Paths {
    pub(crate) fn with_room(paths: usize, links: usize) -> Self {
        Self { links: Vec::with_capacity(paths * links), ..Self::default() }
    }

    pub(crate) fn one(links: &[LinkId]) -> Self {
        let mut paths = Self::with_room(1, links.len());
        paths.push(links);
        paths
    }

    pub(super) fn of_equal_length(links: Vec<LinkId>, hops: usize) -> Self {
        let count = (links.len() / hops) as u32;
        Self { links, count, ends: Vec::new() }
    }

    pub(crate) fn push(&mut self, links: &[LinkId]) {
        let differs = self.links.len() != self.len() * links.len();
        if self.ends.is_empty() && differs {
            self.ends = (1..=self.count).map(|place| place * self.each()).collect();
        }
        self.links.extend_from_slice(links);
        self.count += 1;
        if !self.ends.is_empty() {
            self.ends.push(self.links.len() as u32);
        }
    }

    pub(super) fn append(&mut self, more: &Self) {
        more.iter().for_each(|path| self.push(path));
    }

    fn each(&self) -> u32 {
        self.links.len() as u32 / self.count.max(1)
    }

    pub fn len(&self) -> usize {
        self.count as usize
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[LinkId]> + Clone {
        let each = if self.ends.is_empty() { self.each() as usize } else { 0 };
        let begins = (0..self.len()).map(move |place| place * each);
        begins.enumerate().map(move |(place, begin)| match each {
            0 => &self[place],
            each => &self.links[begin..][..each],
        })
    }

    pub fn links(&self) -> &[LinkId] {
        &self.links
    }
}

impl Index<usize> for Paths {
    type Output = [LinkId];

    fn index(&self, place: usize) -> &[LinkId] {
        assert!(place < self.len(), "there are {} paths", self.count);
        let [begin, end] = [place, place + 1].map(|place| match &self.ends[..] {
            [] => place * self.each() as usize,
            ends => place.checked_sub(1).map_or(0, |last| ends[last] as usize),
        });
        &self.links[begin..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn paths_round_trip(
            all in prop::collection::vec(prop::collection::vec(0u32..9, 1..3), 0..6),
        ) {
            let all: Vec<Vec<LinkId>> =
                all.iter().map(|path| path.iter().map(|link| LinkId(*link)).collect()).collect();
            let mut paths = Paths::default();
            all.iter().for_each(|path| paths.push(path));
            prop_assert_eq!(paths.len(), all.len());
            prop_assert!(paths.iter().eq(all.iter().map(Vec::as_slice)));
        }
    }
}
