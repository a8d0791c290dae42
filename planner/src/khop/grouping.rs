// SPDX-License-Identifier: Apache-2.0
//! Cuts a line into the maximum number of chains of `m` places. Ignores the data-centre network.
//!
//! Usable places at most K apart form a run. If every place of a run is connected to the next, the
//! run is cut into chains of `m` consecutive places, which is optimal. If a fibre is missing, or an
//! odd K forbids two long hops at one node, a dynamic program maximises the number of chains. Its
//! chains may skip places.

use lightloom_fabric::hbd::Hbd;
use lightloom_fabric::khop::{Hop, Position, Shape};

use super::{Chain, Survey};

/// Coordinates only increase; on a closed line, they can exceed the number of nodes.
pub(crate) struct Track<'a> {
    pub places: Vec<u64>,
    pub reach: u8,
    /// Whether a working fibre connects a place to the place at this distance up the line.
    pub joined: &'a dyn Fn(u64, u8) -> bool,
}

/// Returns the position of a place that counts on past the end of the line.
pub(crate) fn wrapped(hbd: &Hbd, place: u64) -> Position {
    Position(u32::try_from(place % u64::from(hbd.nodes())).expect("a position fits"))
}

pub(crate) fn chains_on_line(survey: &Survey<'_>, free: &[bool], length: usize) -> Vec<Chain> {
    let hbd = survey.hbd();
    let nodes = u64::from(hbd.nodes());
    let usable = (0..nodes).filter(|place| survey.is_usable(wrapped(hbd, *place), free));
    let mut track = Track {
        places: usable.collect(),
        reach: hbd.k(),
        joined: &|place, up| survey.has_fibre(wrapped(hbd, place), up.cast_signed()),
    };
    if hbd.shape() == Shape::Ring {
        track.cut_open(nodes);
    }
    let chains = track.chains(length).into_iter();
    chains.map(|chain| chain.into_iter().map(|place| wrapped(hbd, place)).collect()).collect()
}

impl Track<'_> {
    fn cut_open(&mut self, nodes: u64) {
        let count = self.places.len();
        let gaps: Vec<u64> = (0..count)
            .map(|i| if i == 0 { self.places[count - 1] } else { self.places[i - 1] + nodes })
            .zip(&self.places)
            .map(|(previous, place)| place + nodes - previous)
            .collect();
        let interrupted = gaps.iter().position(|gap| *gap > u64::from(self.reach));
        let cut = interrupted.or_else(|| {
            (0..count).find(|i| {
                let previous = (self.places[*i] + nodes - gaps[*i]) % nodes;
                !(self.joined)(previous, u8::try_from(gaps[*i]).expect("not interrupted"))
            })
        });
        let start = cut.unwrap_or(0);
        let moved = self.places[..start].iter().map(|place| place + nodes);
        self.places = self.places[start..].iter().copied().chain(moved).collect();
    }

    pub(crate) fn chains(&self, length: usize) -> Vec<Vec<u64>> {
        assert!(length >= 1, "a chain has at least one place");
        let mut chains = Vec::with_capacity(self.places.len() / length);
        let mut rest = self.places.as_slice();
        while !rest.is_empty() {
            let gap = rest.windows(2).position(|pair| pair[1] - pair[0] > u64::from(self.reach));
            let end = gap.map_or(rest.len(), |i| i + 1);
            let (run, after) = rest.split_at(end);
            if self.is_plain(run) {
                chains.extend(run.chunks_exact(length).map(<[u64]>::to_vec));
            } else {
                chains.extend(self.most_chains(run, length));
            }
            rest = after;
        }
        chains
    }

    fn is_plain(&self, run: &[u64]) -> bool {
        let is_joined = run.windows(2).all(|pair| {
            let hop = u8::try_from(pair[1] - pair[0]).expect("a run consists of short hops");
            (self.joined)(pair[0], hop)
        });
        is_joined
            && !run.windows(3).any(|three| {
                self.excludes(three[1] - three[0]) && self.excludes(three[2] - three[1])
            })
    }

    fn excludes(&self, hop: u64) -> bool {
        self.reach % 2 == 1 && hop == u64::from(self.reach)
    }

    /// In `open[i][l][x]`, an unfinished chain of `l + 1` places ends at place `i`, and the value
    /// is the maximum number of complete chains below it. `x` is 1 if the last hop of the
    /// unfinished chain rules out an equal next hop.
    fn most_chains(&self, run: &[u64], length: usize) -> Vec<Vec<u64>> {
        let mut table = Table::new(run.len(), length);
        for i in 0..run.len() {
            table.open(i);
            for back in 1..=usize::from(self.reach).min(i) {
                let from = i - back;
                let hop = run[i] - run[from];
                if hop > u64::from(self.reach) {
                    break;
                }
                let up = u8::try_from(hop).expect("at most the reach");
                if (self.joined)(run[from], up) {
                    table.extend(from, i, self.excludes(hop));
                }
            }
            table.close(i);
        }
        table.chains(run)
    }
}

const UNREACHED: i32 = -1;

struct Table {
    length: usize,
    finished: Vec<i32>,
    ends_chain: Vec<Option<bool>>,
    value: Vec<i32>,
    parent: Vec<(u8, bool)>,
}

impl Table {
    fn new(places: usize, length: usize) -> Self {
        Self {
            length,
            finished: vec![0; places + 1],
            ends_chain: vec![None; places],
            value: vec![UNREACHED; places * length * 2],
            parent: vec![(0, false); places * length * 2],
        }
    }
    fn slot(&self, place: usize, placed: usize, long: bool) -> usize {
        (place * self.length + placed) * 2 + usize::from(long)
    }
    fn open(&mut self, place: usize) {
        let slot = self.slot(place, 0, false);
        self.value[slot] = self.finished[place];
    }
    fn extend(&mut self, from: usize, to: usize, excludes: bool) {
        let back = u8::try_from(to - from).expect("at most the reach");
        for placed in 1..self.length {
            for long in [false, true] {
                let before = self.value[self.slot(from, placed - 1, long)];
                let slot = self.slot(to, placed, excludes);
                if before > self.value[slot] && !(long && excludes) {
                    self.value[slot] = before;
                    self.parent[slot] = (back, long);
                }
            }
        }
    }
    fn close(&mut self, place: usize) {
        self.finished[place + 1] = self.finished[place];
        for long in [false, true] {
            let chains = self.value[self.slot(place, self.length - 1, long)] + 1;
            if chains > self.finished[place + 1] {
                self.finished[place + 1] = chains;
                self.ends_chain[place] = Some(long);
            }
        }
    }
    fn chains(&self, run: &[u64]) -> Vec<Vec<u64>> {
        let mut chains = Vec::new();
        let mut end = run.len();
        while end > 0 {
            let Some(mut long) = self.ends_chain[end - 1] else {
                end -= 1;
                continue;
            };
            let mut place = end - 1;
            let mut chain = vec![run[place]];
            for placed in (1..self.length).rev() {
                let (back, before) = self.parent[self.slot(place, placed, long)];
                (place, long) = (place - usize::from(back), before);
                chain.push(run[place]);
            }
            chain.reverse();
            chains.push(chain);
            end = place;
        }
        chains.reverse();
        chains
    }
}

pub(crate) fn hop_up(from: Position, to: Position, nodes: u32) -> Hop {
    let up = (i64::from(to.0) - i64::from(from.0)).rem_euclid(i64::from(nodes));
    Hop::try_from(up).expect("consecutive places of a chain are at most K apart")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    type Broken = BTreeSet<(u64, u8)>;

    fn track<'a>(places: &[u64], reach: u8, joined: &'a dyn Fn(u64, u8) -> bool) -> Track<'a> {
        Track { places: places.to_vec(), reach, joined }
    }

    fn by_trying(places: &[u64], reach: u8, broken: &Broken, length: usize) -> usize {
        fn grow(
            chain: &mut Vec<usize>,
            places: &[u64],
            reach: u8,
            broken: &Broken,
            length: usize,
        ) -> usize {
            let last = *chain.last().unwrap();
            if chain.len() == length {
                return 1 + by_trying(&places[last + 1..], reach, broken, length);
            }
            let mut best = 0;
            for next in last + 1..places.len() {
                let hop = places[next] - places[last];
                let before = chain.len().checked_sub(2).map(|i| places[last] - places[chain[i]]);
                let clash = reach % 2 == 1 && hop == u64::from(reach) && before == Some(hop);
                if hop <= u64::from(reach) && !clash && !broken.contains(&(places[last], hop as u8))
                {
                    chain.push(next);
                    best = best.max(grow(chain, places, reach, broken, length));
                    chain.pop();
                }
            }
            best
        }
        (0..places.len())
            .map(|start| grow(&mut vec![start], places, reach, broken, length))
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn bypasses_k_minus_one_nodes_in_a_row_but_not_k() {
        let all = |_, _| true;
        for k in 2..=4u64 {
            let with_hole = |dead: u64| -> Vec<u64> { (0..4).chain(4 + dead..8 + dead).collect() };
            assert_eq!(track(&with_hole(k - 1), k as u8, &all).chains(8).len(), 1);
            assert_eq!(track(&with_hole(k), k as u8, &all).chains(8).len(), 0);
        }
    }

    #[test]
    fn avoids_two_long_hops_at_one_node_for_odd_k() {
        let all = |_, _| true;
        let places = [0, 3, 6, 7];
        assert_eq!(track(&places, 3, &all).chains(4).len(), 0, "0-3-6 needs +3 and -3 at node 3");
        assert_eq!(track(&places, 3, &all).chains(2), [vec![0, 3], vec![6, 7]]);
    }

    proptest! {
        #[test]
        fn dynamic_program_finds_the_most_chains(
            dead in prop::collection::btree_set(0u64..12, 0..7),
            broken in prop::collection::btree_set((0u64..12, 1u8..4), 0..6),
            reach in 2u8..=3,
            length in 1usize..5,
        ) {
            let places: Vec<u64> = (0..12).filter(|p| !dead.contains(p)).collect();
            let joined = |place, up| !broken.contains(&(place, up));
            let chains = track(&places, reach, &joined).chains(length);
            for chain in &chains {
                prop_assert_eq!(chain.len(), length);
                for pair in chain.windows(2) {
                    prop_assert!(joined(pair[0], u8::try_from(pair[1] - pair[0]).unwrap()));
                }
            }
            prop_assert_eq!(chains.len(), by_trying(&places, reach, &broken, length));
        }
    }
}
