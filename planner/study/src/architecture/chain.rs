// SPDX-License-Identifier: Apache-2.0
//! A closed line of nodes that bypasses short runs of faulty nodes, updated incrementally.
//!
//! The line breaks where two consecutive healthy nodes are more than `reach` places apart. The nodes between two breaks
//! form a *component*; c nodes hold floor(c / m) groups of m nodes. A change affects one or two components and takes
//! O(log n) time plus the length of the adjacent run of faulty nodes.

use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(super) struct Chain {
    healthy: Vec<bool>,
    healthy_up_to: Fenwick,
    healthy_count: u32,
    reach: u32,
    nodes_per_group: u32,
    /// Component sizes by last node. Empty if the closed line is unbroken or has no healthy node.
    sizes_by_end: BTreeMap<u32, u32>,
    groups: u32,
}

impl Chain {
    pub(super) fn ring(nodes: u32, reach: u32, nodes_per_group: u32) -> Self {
        let mut chain = Self {
            healthy: vec![true; nodes as usize],
            healthy_up_to: Fenwick::ones(nodes),
            healthy_count: nodes,
            reach,
            nodes_per_group,
            sizes_by_end: BTreeMap::new(),
            groups: 0,
        };
        chain.groups = chain.groups_of(nodes);
        chain
    }

    pub(super) fn line(nodes: u32, reach: u32, nodes_per_group: u32) -> Self {
        let mut chain = Self::ring(nodes + reach, reach, nodes_per_group);
        for place in nodes..nodes + reach {
            chain.remove(place);
        }
        chain
    }

    pub(super) fn groups(&self) -> u32 {
        self.groups
    }

    pub(super) fn remove(&mut self, place: u32) {
        assert!(self.healthy[place as usize], "only a healthy node can fail");
        let (before, to_before) = self.neighbour(place, Step::Back);
        let (_, to_after) = self.neighbour(place, Step::On);
        self.set(place, false);
        if self.healthy_count == 0 {
            self.sizes_by_end.clear();
            self.groups = 0;
        } else if self.sizes_by_end.contains_key(&place) {
            self.shorten_at_end(place, before);
        } else if to_before <= self.reach && to_before + to_after > self.reach {
            self.split(place, before);
        } else {
            self.resize(place, |size| size - 1);
        }
    }

    pub(super) fn insert(&mut self, place: u32) {
        assert!(!self.healthy[place as usize], "only a faulty node can be repaired");
        self.set(place, true);
        let (before, to_before) = self.neighbour(place, Step::Back);
        let (after, to_after) = self.neighbour(place, Step::On);
        let (joins_before, joins_after) = (to_before <= self.reach, to_after <= self.reach);
        if self.healthy_count == 1 {
            if !joins_after {
                self.sizes_by_end.insert(place, 1);
            }
            self.groups = self.groups_of(1);
        } else if !self.sizes_by_end.contains_key(&before) {
            self.resize(after, |size| size + 1);
        } else {
            match (joins_before, joins_after) {
                (true, true) => self.join(before, after),
                (true, false) => self.lengthen_at_end(before, place),
                (false, true) => self.resize(after, |size| size + 1),
                (false, false) => self.add_component(place, 1),
            }
        }
    }

    fn set(&mut self, place: u32, healthy: bool) {
        self.healthy[place as usize] = healthy;
        self.healthy_up_to.add(place, if healthy { 1 } else { -1 });
        self.healthy_count = self.healthy_count.wrapping_add_signed(if healthy { 1 } else { -1 });
    }

    fn groups_of(&self, size: u32) -> u32 {
        size / self.nodes_per_group
    }

    fn add_component(&mut self, end: u32, size: u32) {
        self.groups += self.groups_of(size);
        self.sizes_by_end.insert(end, size);
    }

    fn drop_component(&mut self, end: u32) -> u32 {
        let size = self.sizes_by_end.remove(&end).expect("a component ends here");
        self.groups -= self.groups_of(size);
        size
    }

    fn resize(&mut self, place: u32, change: impl Fn(u32) -> u32) {
        match self.end_of(place) {
            // The line is unbroken, so its only component already has all nodes.
            None => self.groups = self.groups_of(self.healthy_count),
            Some(end) => {
                let size = self.drop_component(end);
                self.add_component(end, change(size));
            }
        }
    }

    fn shorten_at_end(&mut self, place: u32, before: u32) {
        let size = self.drop_component(place);
        if size > 1 {
            self.add_component(before, size - 1);
        }
    }

    fn lengthen_at_end(&mut self, before: u32, place: u32) {
        let size = self.drop_component(before);
        self.add_component(place, size + 1);
    }

    fn split(&mut self, place: u32, before: u32) {
        let Some(end) = self.end_of(place) else {
            self.groups = 0;
            return self.add_component(before, self.healthy_count);
        };
        let previous_end = self.end_before(end);
        let size = self.drop_component(end) - 1;
        let first_part = self.healthy_between(previous_end, before);
        self.add_component(before, first_part);
        self.add_component(end, size - first_part);
    }

    fn join(&mut self, before: u32, after: u32) {
        let first_part = self.drop_component(before);
        match self.end_of(after) {
            None => self.groups = self.groups_of(self.healthy_count),
            Some(end) => {
                let size = self.drop_component(end);
                self.add_component(end, first_part + 1 + size);
            }
        }
    }

    fn end_of(&self, place: u32) -> Option<u32> {
        let onward = self.sizes_by_end.range(place..).next();
        onward.or_else(|| self.sizes_by_end.first_key_value()).map(|(end, _)| *end)
    }

    fn end_before(&self, end: u32) -> u32 {
        let back = self.sizes_by_end.range(..end).next_back();
        let found = back.or_else(|| self.sizes_by_end.last_key_value());
        *found.expect("at least one chain ends here").0
    }

    fn healthy_between(&self, from: u32, to: u32) -> u32 {
        let (up_to_from, up_to_to) = (self.healthy_up_to.sum(from), self.healthy_up_to.sum(to));
        if from < to { up_to_to - up_to_from } else { self.healthy_count - up_to_from + up_to_to }
    }

    fn neighbour(&self, place: u32, step: Step) -> (u32, u32) {
        let places = u32::try_from(self.healthy.len()).expect("made from a u32");
        let mut here = place;
        for distance in 1..=places {
            here = match step {
                Step::On => {
                    if here + 1 == places {
                        0
                    } else {
                        here + 1
                    }
                }
                Step::Back => {
                    if here == 0 {
                        places - 1
                    } else {
                        here - 1
                    }
                }
            };
            if self.healthy[here as usize] {
                return (here, distance);
            }
        }
        (place, places)
    }
}

#[derive(Clone, Copy)]
enum Step {
    On,
    Back,
}

/// Peter Fenwick, "A new data structure for cumulative frequency tables", 1994.
#[derive(Clone, Debug)]
struct Fenwick(Vec<u32>);

impl Fenwick {
    /// Entry n sums as many counters as the lowest set bit of n.
    fn ones(counters: u32) -> Self {
        Self((0..=counters).map(|n| n & n.wrapping_neg()).collect())
    }

    fn add(&mut self, counter: u32, change: i32) {
        let mut at = counter as usize + 1;
        while at < self.0.len() {
            self.0[at] = self.0[at].wrapping_add_signed(change);
            at += at & at.wrapping_neg();
        }
    }

    fn sum(&self, counter: u32) -> u32 {
        let mut at = counter as usize + 1;
        let mut sum = 0;
        while at > 0 {
            sum += self.0[at];
            at &= at - 1;
        }
        sum
    }
}
