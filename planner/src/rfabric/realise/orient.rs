// SPDX-License-Identifier: Apache-2.0
//! Performs step 1 of a placement, which chooses the tail of each circuit.

use std::collections::VecDeque;

use lightloom_fabric::fat_tree::LeafPair;

use super::super::topology::Topology;
use super::{Oriented, Switch};

pub(super) fn orient(topology: &Topology, wiring: &[Switch]) -> Oriented {
    let leaves = topology.leaves();
    let (mut tails_max, mut heads_max) = (vec![0; leaves], vec![0; leaves]);
    for Switch { sides, .. } in wiring {
        tails_max.iter_mut().zip(&sides.tails).for_each(|(most, own)| *most += own);
        heads_max.iter_mut().zip(&sides.heads).for_each(|(most, own)| *most += own);
    }
    let mut orientation = Orientation {
        tails_max,
        heads_max,
        tails: vec![0; leaves],
        heads: vec![0; leaves],
        all: Oriented::default(),
        agreed: Oriented::default(),
    };
    let mut undecided = Vec::new();
    for (LeafPair { a, b }, count) in topology.pairs() {
        let (a, b) = (a.index(), b.index());
        let [there, back] = [(a, b), (b, a)].map(|(tail, head)| {
            wiring.iter().map(|switch| switch.present.count(tail, head)).sum::<u32>()
        });
        let there = there.min(count);
        let back = back.min(count - there);
        orientation.agree(a, b, there);
        orientation.agree(b, a, back);
        undecided.push((a, b, count - there - back));
    }
    for (a, b, count) in undecided {
        orientation.balance(a, b, count);
    }
    orientation.repair();
    orientation.all
}

struct Orientation {
    tails_max: Vec<u32>,
    heads_max: Vec<u32>,
    tails: Vec<u32>,
    heads: Vec<u32>,
    all: Oriented,
    /// Circuits that match existing ones. A circuit that is reversed cannot be kept.
    agreed: Oriented,
}

impl Orientation {
    fn put(&mut self, tail: usize, head: usize, count: u32) {
        self.all.put(tail, head, count);
        self.tails[tail] += count;
        self.heads[head] += count;
    }

    fn agree(&mut self, tail: usize, head: usize, count: u32) {
        self.put(tail, head, count);
        self.agreed.put(tail, head, count);
    }

    fn balance(&mut self, a: usize, b: usize, count: u32) {
        for _ in 0..count {
            if self.room(a) >= self.room(b) {
                self.put(a, b, 1);
            } else {
                self.put(b, a, 1);
            }
        }
    }

    /// Returns how many more tails than heads a leaf has room for.
    fn room(&self, leaf: usize) -> i64 {
        i64::from(self.tails_max[leaf])
            - i64::from(self.tails[leaf])
            - (i64::from(self.heads_max[leaf]) - i64::from(self.heads[leaf]))
    }

    fn repair(&mut self) {
        for leaf in 0..self.tails.len() {
            while self.tails[leaf] > self.tails_max[leaf] && self.turn_path(leaf, Ends::Tails) {}
            while self.heads[leaf] > self.heads_max[leaf] && self.turn_path(leaf, Ends::Heads) {}
        }
    }

    fn turn_path(&mut self, from: usize, ends: Ends) -> bool {
        let Some(path) = self.cheapest_path(from, ends) else { return false };
        for step in path.windows(2) {
            let (tail, head) = match ends {
                Ends::Tails => (step[0], step[1]),
                Ends::Heads => (step[1], step[0]),
            };
            self.turn(tail, head);
        }
        true
    }

    fn turn(&mut self, tail: usize, head: usize) {
        if self.agreed.count(tail, head) == self.all.count(tail, head) {
            self.agreed.take(tail, head, 1);
        }
        self.all.take(tail, head, 1);
        self.tails[tail] -= 1;
        self.heads[head] -= 1;
        self.put(head, tail, 1);
    }

    /// 0-1 breadth-first search from a leaf with too many ends of one kind to a leaf with room.
    fn cheapest_path(&self, from: usize, ends: Ends) -> Option<Vec<usize>> {
        let next = self.neighbours(ends);
        let leaves = self.tails.len();
        let mut before = vec![None; leaves];
        let mut cost = vec![u32::MAX; leaves];
        let mut queue = VecDeque::from([from]);
        cost[from] = 0;
        while let Some(leaf) = queue.pop_front() {
            let has_room = match ends {
                Ends::Tails => self.tails[leaf] < self.tails_max[leaf],
                Ends::Heads => self.heads[leaf] < self.heads_max[leaf],
            };
            if leaf != from && has_room {
                return Some(walk_back(&before, leaf));
            }
            for &(peer, step) in &next[leaf] {
                if cost[leaf] + step < cost[peer] {
                    cost[peer] = cost[leaf] + step;
                    before[peer] = Some(leaf);
                    if step == 0 {
                        queue.push_front(peer);
                    } else {
                        queue.push_back(peer);
                    }
                }
            }
        }
        None
    }

    fn neighbours(&self, ends: Ends) -> Vec<Vec<(usize, u32)>> {
        let mut next = vec![Vec::new(); self.tails.len()];
        for (&(tail, head), count) in &self.all.0 {
            let step = u32::from(self.agreed.count(tail, head) == *count);
            match ends {
                Ends::Tails => next[tail].push((head, step)),
                Ends::Heads => next[head].push((tail, step)),
            }
        }
        next
    }
}

#[derive(Clone, Copy)]
enum Ends {
    Tails,
    Heads,
}

fn walk_back(before: &[Option<usize>], end: usize) -> Vec<usize> {
    let mut path = vec![end];
    while let Some(previous) = before[path[path.len() - 1]] {
        path.push(previous);
    }
    path.reverse();
    path
}
