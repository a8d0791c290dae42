// SPDX-License-Identifier: Apache-2.0
//! Maps circuits between leaves to cross-connects, keeping existing ones where possible.
//!
//! Placement has two steps. Every topology with enough ports can be placed if each leaf has an even
//! number of ports per switch:
//!
//! 1. *Orient* each circuit so that every leaf is the tail of at most half of its ports and the
//!    head of at most half (Euler), consistent with existing circuits.
//! 2. *Split* the oriented circuits switch by switch. Each switch takes a matching that uses at
//!    most half of a leaf's ports on either side. The matching keeps as many existing circuits as
//!    possible and takes enough others that the rest fits on the remaining switches (Kőnig).
//!
//! Exact minimum rewiring is impractical above about 32 leaves on 16 switches. The sequence of matchings is a heuristic
//! for *which* circuits are kept; it does not affect whether all circuits fit.
//!
//! One-way circuits are oriented already: they lead from the sending to the receiving half of a leaf.
//!
//! Odd numbers of ports in the file, other jobs' circuits, and occupied or failed ports can leave a leaf with one more
//! port on one side of a switch. Both choices are tried; [`Realisation::unplaced`] lists the circuits that do not fit.

mod orient;
mod room;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fat_tree::{CrossConnect, LeafPair, ReconfigurableFatTree};
use lightloom_units::id::{LeafId, OcsId};

pub(super) use self::room::PortBook;
use self::room::{MOST_MOVED, Room};
use super::flow::{ArcId, Network};
use super::topology::Topology;

/// A topology placed on switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Realisation {
    /// Our cross-connects and those that stay, sorted by switch and port.
    pub cross_connects: Vec<CrossConnect>,
    /// Number of cross-connects kept on the same ports, without those that stay.
    pub kept: usize,
    /// Upper bound on the existing circuits that any placement could keep.
    pub kept_upper_bound: usize,
    /// Circuits that do not fit on any switch. Empty if all leaves have an even number of free ports on each switch.
    pub unplaced: Vec<LeafPair>,
}

impl Realisation {
    fn is_better_than(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|one| (Reverse(one.unplaced.len()), one.kept));
        own > others
    }
}

/// Places `topology` on the switches with as few changes to `existing` as possible.
///
/// # Panics
/// Panics if a leaf has more circuits than ports, which planners in this crate never produce.
pub fn realise(
    fabric: &ReconfigurableFatTree,
    topology: &Topology,
    existing: &[CrossConnect],
) -> Realisation {
    let staying: Vec<CrossConnect> = fabric.staying().copied().collect();
    let movable = existing.iter().filter(|circuit| !staying.contains(circuit));
    let existing = &movable.copied().collect::<Vec<CrossConnect>>();
    let layers: Vec<Cow<'_, Topology>> = match fabric.reaches() {
        1 if staying.is_empty() => vec![Cow::Borrowed(topology)],
        reaches => (0..reaches).map(|reach| Cow::Owned(topology.within(reach))).collect(),
    };
    for (reach, layer) in layers.iter().enumerate() {
        for leaf in 0..fabric.leaves() {
            let ports = fabric.free_ports_within(reach, LeafId::from_index(leaf));
            assert!(layer.degree(leaf) <= ports, "a topology fits the leaves' ports");
        }
    }
    let odd: &[Odd] = if fabric.has_odd_ports() { &[Odd::Tail, Odd::Head] } else { &[Odd::Tail] };
    let tried = odd.iter().flat_map(|odd| {
        let wirings: Vec<Vec<Switch>> =
            (0..layers.len()).map(|reach| wiring(fabric, existing, reach, *odd)).collect();
        let oriented: Vec<Oriented> =
            layers.iter().zip(&wirings).map(|(layer, own)| orient::orient(layer, own)).collect();
        let backward: Vec<Vec<Switch>> =
            wirings.iter().map(|own| own.iter().rev().cloned().collect()).collect();
        [wirings, backward].map(|orders| split(fabric, &oriented, &orders, existing))
    });
    let mut realisation = tried
        .reduce(|best, other| if other.is_better_than(&best) { other } else { best })
        .expect("two orders were tried");
    realisation.kept_upper_bound = keepable(fabric, &layers, existing);
    realisation.cross_connects.extend(staying);
    realisation.cross_connects.sort_unstable();
    realisation
}

/// The side that gets the extra port at the first leaf with an odd number of ports on a switch. The
/// side then alternates, which balances tails and heads.
#[derive(Clone, Copy, Debug)]
enum Odd {
    Tail,
    Head,
}

fn wiring(
    fabric: &ReconfigurableFatTree,
    existing: &[CrossConnect],
    reach: usize,
    odd: Odd,
) -> Vec<Switch> {
    let mut has_tail: Vec<Option<bool>> = vec![None; fabric.leaves()];
    let mut next_leaf = matches!(odd, Odd::Tail);
    (0..fabric.switches())
        .map(OcsId::from_index)
        .filter(|ocs| fabric.reach_of(*ocs) == reach)
        .map(|ocs| Switch {
            ocs,
            sides: Sides::left_by_others(fabric, ocs, |leaf| {
                let is_tail = has_tail[leaf].map_or(next_leaf, |before| !before);
                if has_tail[leaf].is_none() {
                    next_leaf = !next_leaf;
                }
                has_tail[leaf] = Some(is_tail);
                is_tail
            }),
            present: oriented_circuits(fabric, existing, ocs),
        })
        .collect()
}

#[derive(Clone, Debug)]
struct Switch {
    ocs: OcsId,
    sides: Sides,
    present: Oriented,
}

/// Performs step 2 separately for each reach. The order of switches only affects which circuits are kept.
fn split(
    fabric: &ReconfigurableFatTree,
    oriented: &[Oriented],
    orders: &[Vec<Switch>],
    existing: &[CrossConnect],
) -> Realisation {
    let mut placed = Vec::new();
    let mut left = Oriented::default();
    for (own, order) in oriented.iter().zip(orders) {
        let mut rest = own.clone();
        for at in 0..order.len() {
            let taken = match_switch(&rest, &order[at..]);
            for (&(tail, head), count) in &taken.0 {
                rest.take(tail, head, *count);
            }
            placed.push((order[at].ocs, taken));
        }
        for ((tail, head), count) in rest.0 {
            left.put(tail, head, count);
        }
    }
    let mut realisation = assign_ports(fabric, &placed, existing);
    place_leftovers(fabric, &left, &mut realisation, existing);
    realisation
}

/// Re-establishes circuits that lost a port, on other switches with free ports.
pub fn repaired(fabric: &ReconfigurableFatTree, existing: &[CrossConnect]) -> Vec<CrossConnect> {
    let dead: Vec<BTreeSet<u32>> = (0..fabric.switches())
        .map(|ocs| fabric.dead_ports(OcsId::from_index(ocs)).collect())
        .collect();
    let (lost, mut circuits): (Vec<CrossConnect>, Vec<CrossConnect>) =
        existing.iter().partition(|circuit| {
            let dead = &dead[circuit.ocs.index()];
            dead.contains(&circuit.a_port) || dead.contains(&circuit.b_port)
        });
    if lost.is_empty() {
        return circuits;
    }
    let mut books = PortBook::all(fabric, &circuits);
    for lost in lost {
        let (a, b) = (lost.a.index(), lost.b.index());
        circuits.extend(books.iter_mut().find_map(|book| book.connect(a, b)));
    }
    circuits.sort_unstable();
    circuits
}

/// Returns the circuits formed by the cross-connects.
pub fn topology_of(fabric: &ReconfigurableFatTree, cross_connects: &[CrossConnect]) -> Topology {
    let mut topology = Topology::dark(fabric.ends());
    for circuit in cross_connects {
        topology.light(fabric, circuit);
    }
    topology
}

fn keepable(
    fabric: &ReconfigurableFatTree,
    layers: &[Cow<'_, Topology>],
    existing: &[CrossConnect],
) -> usize {
    let mut present = vec![Topology::dark(fabric.leaves()); layers.len()];
    for circuit in existing {
        if let Some(own) = present.get_mut(fabric.reach_of(circuit.ocs)) {
            own.add(circuit.a.index(), circuit.b.index());
        }
    }
    let common = layers.iter().zip(present).map(|(layer, present)| present.common(layer).count());
    common.sum::<u64>() as usize
}

#[derive(Clone, Debug, Default)]
struct Oriented(BTreeMap<(usize, usize), u32>);

impl Oriented {
    fn count(&self, tail: usize, head: usize) -> u32 {
        self.0.get(&(tail, head)).copied().unwrap_or(0)
    }
    fn put(&mut self, tail: usize, head: usize, count: u32) {
        if count > 0 {
            *self.0.entry((tail, head)).or_default() += count;
        }
    }
    fn take(&mut self, tail: usize, head: usize, count: u32) {
        let entry = self.0.get_mut(&(tail, head)).expect("takes only existing circuits");
        *entry -= count;
        if *entry == 0 {
            self.0.remove(&(tail, head));
        }
    }
}

#[derive(Clone, Debug)]
struct Sides {
    tails: Vec<u32>,
    heads: Vec<u32>,
}

impl Sides {
    fn left_by_others(
        fabric: &ReconfigurableFatTree,
        ocs: OcsId,
        mut gets_tail: impl FnMut(usize) -> bool,
    ) -> Self {
        let ports = fabric.ports_per_leaf(ocs);
        let bank = fabric.bank(ocs);
        let wired: Vec<usize> = (0..fabric.leaves())
            .filter(|leaf| bank.place_of(LeafId::from_index(*leaf)).is_some())
            .collect();
        let mut half = vec![0; fabric.leaves()];
        wired.iter().for_each(|leaf| half[*leaf] = ports.div_ceil(2));
        let mut sides = Self { tails: half.clone(), heads: half };
        if fabric.has_halves() {
            for &leaf in &wired {
                let free = ports - fabric.dead_ports_of(ocs, LeafId::from_index(leaf));
                sides.tails[leaf] = if leaf < fabric.leaves() / 2 { free } else { 0 };
                sides.heads[leaf] = free - sides.tails[leaf];
            }
        }
        if fabric.has_odd_ports() {
            for &leaf in &wired {
                let lost = fabric.taken_ports_of(ocs, LeafId::from_index(leaf)) + ports % 2;
                if lost > 0 {
                    sides.lose(leaf, lost, &mut gets_tail);
                }
            }
        }
        sides
    }

    fn lose(&mut self, leaf: usize, lost: u32, gets_tail: &mut impl FnMut(usize) -> bool) {
        let left = (self.tails[leaf] + self.heads[leaf]).saturating_sub(lost);
        let tails = left / 2 + u32::from(left % 2 == 1 && gets_tail(leaf));
        (self.tails[leaf], self.heads[leaf]) = (tails, left - tails);
    }
}

fn oriented_circuits(
    fabric: &ReconfigurableFatTree,
    circuits: &[CrossConnect],
    ocs: OcsId,
) -> Oriented {
    let leaves = fabric.leaves();
    let mut peers = vec![Vec::new(); leaves];
    let mine: Vec<&CrossConnect> = circuits.iter().filter(|circuit| circuit.ocs == ocs).collect();
    for (at, circuit) in mine.iter().enumerate() {
        peers[circuit.a.index()].push((at, circuit.b.index()));
        peers[circuit.b.index()].push((at, circuit.a.index()));
    }
    let mut walked = vec![false; mine.len()];
    let mut oriented = Oriented::default();
    if fabric.has_halves() {
        mine.iter().for_each(|circuit| oriented.put(circuit.a.index(), circuit.b.index(), 1));
        return oriented;
    }
    // Start at odd-degree leaves, so that no walk ends in the middle of another.
    let mut starts: Vec<usize> = (0..leaves).filter(|leaf| peers[*leaf].len() % 2 == 1).collect();
    starts.extend(0..leaves);
    for start in starts {
        let odd = peers[start].len() % 2 == 1;
        loop {
            let mut leaf = start;
            let mut moved = false;
            while let Some((at, peer)) = next_unwalked(&mut peers[leaf], &walked) {
                walked[at] = true;
                moved = true;
                oriented.put(leaf, peer, 1);
                leaf = peer;
            }
            if odd || !moved {
                break;
            }
        }
    }
    oriented
}

fn next_unwalked(peers: &mut Vec<(usize, usize)>, walked: &[bool]) -> Option<(usize, usize)> {
    while let Some((at, peer)) = peers.pop() {
        if !walked[at] {
            return Some((at, peer));
        }
    }
    None
}

/// Reward for a circuit that later switches cannot hold.
const MUST: i64 = -1_000;
const KEEP: i64 = -2;
const STEAL: i64 = 1;

fn match_switch(rest: &Oriented, order: &[Switch]) -> Oriented {
    let (switch, others) = order.split_first().expect("there is a switch to fill");
    let sides = &switch.sides;
    let leaves = sides.tails.len();
    let (source, sink) = (0, 1);
    let (first_tail, first_head) = (2, 2 + leaves);
    let mut network = Network::new(2 + 2 * leaves);
    let (mut tails, mut heads) = (vec![0; leaves], vec![0; leaves]);
    for (&(tail, head), count) in &rest.0 {
        tails[tail] += count;
        heads[head] += count;
    }
    for leaf in 0..leaves {
        let later: u32 = others.iter().map(|other| other.sides.tails[leaf]).sum();
        let must = tails[leaf].saturating_sub(later).min(sides.tails[leaf]);
        network.add(source, first_tail + leaf, must, MUST);
        network.add(source, first_tail + leaf, sides.tails[leaf] - must, 0);
        let later: u32 = others.iter().map(|other| other.sides.heads[leaf]).sum();
        let must = heads[leaf].saturating_sub(later).min(sides.heads[leaf]);
        network.add(first_head + leaf, sink, must, MUST);
        network.add(first_head + leaf, sink, sides.heads[leaf] - must, 0);
    }
    let mut arcs: Vec<((usize, usize), ArcId)> = Vec::new();
    for (&(tail, head), &count) in &rest.0 {
        let here = switch.present.count(tail, head).min(count);
        let later: u32 = others.iter().map(|other| other.present.count(tail, head)).sum();
        let free = (count - here).saturating_sub(later);
        for (capacity, cost) in [(here, KEEP), (free, 0), (count - here - free, STEAL)] {
            if capacity > 0 {
                let arc = network.add(first_tail + tail, first_head + head, capacity, cost);
                arcs.push(((tail, head), arc));
            }
        }
    }
    network.send_while_free(source, sink);
    let mut taken = Oriented::default();
    for ((tail, head), arc) in arcs {
        taken.put(tail, head, network.flow(arc));
    }
    taken
}

/// Existing circuits keep their ports; new ones get the lowest free ports.
fn assign_ports(
    fabric: &ReconfigurableFatTree,
    placed: &[(OcsId, Oriented)],
    existing: &[CrossConnect],
) -> Realisation {
    let mut cross_connects = Vec::new();
    let mut kept = 0;
    for &(ocs, ref circuits) in placed {
        let mut wanted = BTreeMap::<(usize, usize), u32>::new();
        for (&(tail, head), count) in &circuits.0 {
            *wanted.entry((tail.min(head), tail.max(head))).or_default() += count;
        }
        let mut ports = PortBook::new(fabric, ocs);
        for circuit in existing.iter().filter(|circuit| circuit.ocs == ocs) {
            let pair = (circuit.a.index(), circuit.b.index());
            if let Some(count) = wanted.get_mut(&pair).filter(|count| **count > 0) {
                *count -= 1;
                kept += 1;
                ports.occupy(*circuit);
                cross_connects.push(*circuit);
            }
        }
        for ((a, b), count) in wanted {
            for _ in 0..count {
                let circuit = ports.connect(a, b).expect("each side takes half of the ports");
                cross_connects.push(circuit);
            }
        }
    }
    cross_connects.sort_unstable();
    Realisation { cross_connects, kept, kept_upper_bound: 0, unplaced: Vec::new() }
}

fn place_leftovers(
    fabric: &ReconfigurableFatTree,
    rest: &Oriented,
    realisation: &mut Realisation,
    existing: &[CrossConnect],
) {
    if rest.0.is_empty() {
        return;
    }
    let mut room = Room::new(fabric, &realisation.cross_connects);
    for (&(tail, head), count) in &rest.0 {
        let pair = LeafPair::new(LeafId::from_index(tail), LeafId::from_index(head))
            .expect("a circuit connects two leaves");
        for _ in 0..*count {
            if !room.place(pair.a.index(), pair.b.index(), MOST_MOVED) {
                realisation.unplaced.push(pair);
            }
        }
    }
    realisation.cross_connects = room.circuits.into_iter().collect();
    let is_there =
        |circuit: &&CrossConnect| realisation.cross_connects.binary_search(circuit).is_ok();
    realisation.kept = existing.iter().filter(is_there).count();
}
