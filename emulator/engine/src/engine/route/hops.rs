// SPDX-License-Identifier: Apache-2.0
//! Hop counts from every forwarding vertex to the destinations of flows.
//!
//! Hosts, nine in ten vertices, do not forward packets and are omitted; each is adjacent to a vertex in the map. One
//! search covers up to 64 destinations with one bit each, because links are often on shortest paths to many of them.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::engine::network::{LinkId, Network, Plane, VertexId};

pub(super) const FAR: u16 = u16::MAX;
const NONE: u32 = u32::MAX;
const AT_ONCE: usize = 64;
/// Vertices in a block of a row. In a fat-tree, rows share all blocks except the one of the destination's pod.
const BLOCK: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct HopMap {
    numbers: Vec<u32>,
    vertices: Vec<VertexId>,
    out: Adjacent<NextStep>,
    /// Incoming links of each vertex: the vertex at the far end, and the link's index there.
    entering: Adjacent<(u32, u16)>,
    is_leaf: Vec<bool>,
    /// For each vertex, the sets of several next links that lead to some destination. Most vertices have one.
    several: Vec<Vec<Box<[NextStep]>>>,
    rows: FxHashMap<VertexId, Box<[Arc<Block>]>>,
    blocks: FxHashSet<Arc<Block>>,
}

/// Of [`Onward`] as integers, which are hashed faster than structures.
type Block = [u32; BLOCK];

/// Hops and next links from every vertex to one destination.
#[derive(Clone, Copy)]
pub(super) struct Row<'m>(&'m [Arc<Block>]);

impl Row<'_> {
    #[inline(always)]
    pub(super) fn at(self, number: u32) -> Onward {
        let word = self.0[number as usize / BLOCK][number as usize % BLOCK];
        Onward { hops: (word >> 16) as u16, next: word as u16 }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Onward {
    pub(super) hops: u16,
    /// Index of the only next link at the vertex, [`SEVERAL`] plus the index of a set of them, or [`NOWHERE`].
    next: u16,
}

const SEVERAL: u16 = 1 << 15;
const NOWHERE: u16 = u16::MAX;
const UNREACHED: Onward = Onward { hops: FAR, next: NOWHERE };

impl Onward {
    const fn word(self) -> u32 {
        (self.hops as u32) << 16 | self.next as u32
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NextStep {
    pub(super) link: LinkId,
    pub(super) to: u32,
}

#[derive(Clone, Debug, Default)]
struct Adjacent<T> {
    ends: Vec<u32>,
    all: Vec<T>,
}

impl<T> Adjacent<T> {
    fn of(&self, number: u32) -> &[T] {
        let number = number as usize;
        let begin = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.all[begin as usize..self.ends[number] as usize]
    }
}

impl Adjacent<NextStep> {
    fn turned(&self) -> Adjacent<(u32, u16)> {
        let count = self.ends.len();
        let mut ends = vec![0; count];
        self.all.iter().for_each(|step| ends[step.to as usize] += 1);
        let mut sum = 0;
        for end in &mut ends {
            sum += std::mem::replace(end, sum);
        }
        let mut all = vec![(0, 0); self.all.len()];
        for from in 0..count as u32 {
            for (place, step) in (0..).zip(self.of(from)) {
                let next = &mut ends[step.to as usize];
                all[*next as usize] = (from, place);
                *next += 1;
            }
        }
        Adjacent { ends, all }
    }
}

impl HopMap {
    pub(super) fn new(network: &Network, plane: Option<Plane>, up: &[bool]) -> Self {
        let mut numbers = vec![NONE; network.vertex_count()];
        let mut vertices = Vec::new();
        for vertex in (0..network.vertex_count()).map(VertexId::from_index) {
            if network.role(vertex).forwards() {
                numbers[vertex.index()] = vertices.len() as u32;
                vertices.push(vertex);
            }
        }
        let mut out = Adjacent { ends: Vec::with_capacity(vertices.len()), all: Vec::new() };
        let mut is_leaf = vec![false; vertices.len()];
        for (number, vertex) in vertices.iter().enumerate() {
            for &link in network.outgoing(*vertex) {
                let far = network.link(link).to;
                let to = numbers[far.index()];
                is_leaf[number] |= network.role(far).is_host();
                let is_in_plane = plane.is_none_or(|plane| network.link(link).spec.plane == plane);
                if to != NONE && up[link.index()] && is_in_plane {
                    out.all.push(NextStep { link, to });
                }
            }
            is_leaf[number] |= network.role(*vertex).is_host();
            out.ends.push(out.all.len() as u32);
        }
        let entering = out.turned();
        let several = vec![Vec::new(); vertices.len()];
        Self { numbers, vertices, out, entering, is_leaf, several, ..Self::default() }
    }

    pub(super) fn number(&self, vertex: VertexId) -> Option<u32> {
        self.numbers.get(vertex.index()).copied().filter(|number| *number != NONE)
    }

    pub(super) fn vertex(&self, number: u32) -> VertexId {
        self.vertices[number as usize]
    }

    #[inline]
    pub(super) fn next_steps(&self, number: u32, onward: Onward) -> &[NextStep] {
        let Some(set) = onward.next.checked_sub(SEVERAL) else {
            return std::slice::from_ref(&self.out.of(number)[usize::from(onward.next)]);
        };
        self.several[number as usize].get(usize::from(set)).map_or(&[], |set| set)
    }

    pub(super) fn row(&self, root: VertexId) -> Row<'_> {
        Row(self.rows.get(&root).map_or(&[], |row| row))
    }

    /// If `root` does not forward, `before` returns its forwarding neighbours. Searches also cover likely destinations.
    pub(super) fn measure(
        &mut self,
        network: &Network,
        root: VertexId,
        before: impl FnOnce() -> Vec<VertexId>,
    ) {
        if self.rows.contains_key(&root) {
            return;
        }
        let Some(number) = self.number(root) else {
            let first = before().into_iter().filter_map(|vertex| self.number(vertex));
            let first = first.map(|number| (number, 1)).collect();
            return self.keep(&[root], first, 1);
        };
        // Ring topologies have many forwarding GPUs, but few of them are destinations.
        let most = if network.role(root).is_host() { 1 } else { AT_ONCE.min(self.rows.len() + 1) };
        let later = (number + 1..self.vertices.len() as u32).filter(|next| {
            let vertex = self.vertex(*next);
            self.is_leaf[*next as usize]
                && network.role(vertex) == network.role(root)
                && !self.rows.contains_key(&vertex)
        });
        let roots: Vec<u32> = std::iter::once(number).chain(later).take(most).collect();
        let begin = roots.iter().zip(0..).map(|(root, bit)| (*root, 1 << bit)).collect();
        let roots: Vec<VertexId> = roots.iter().map(|root| self.vertex(*root)).collect();
        self.keep(&roots, begin, 0);
    }

    /// Searches and stores the rows of `roots`.
    fn keep(&mut self, roots: &[VertexId], begin: Vec<(u32, u64)>, hops: u16) {
        let all = self.search(roots.len(), begin, hops);
        let mut rows = vec![Vec::new(); roots.len()];
        for part in all.chunks(BLOCK * roots.len()) {
            for (place, row) in rows.iter_mut().enumerate() {
                let mut block = [UNREACHED.word(); BLOCK];
                let values = part.chunks(roots.len()).map(|values| values[place].word());
                block.iter_mut().zip(values).for_each(|(one, value)| *one = value);
                row.push(self.shared(block));
            }
        }
        self.rows.extend(roots.iter().copied().zip(rows.into_iter().map(Vec::into)));
    }

    fn shared(&mut self, block: Block) -> Arc<Block> {
        if let Some(known) = self.blocks.get(&block) {
            return Arc::clone(known);
        }
        let block = Arc::new(block);
        self.blocks.insert(Arc::clone(&block));
        block
    }

    /// Returns the values of all `count` destinations for each vertex.
    fn search(&mut self, count: usize, mut next: Vec<(u32, u64)>, mut hops: u16) -> Vec<Onward> {
        let vertices = self.vertices.len();
        let mut rows = vec![UNREACHED; count * vertices];
        let mut seen = vec![0u64; vertices];
        let links =
            (0..vertices as u32).map(|number| Vec::with_capacity(self.out.of(number).len()));
        let mut found: Vec<Vec<(u16, u64)>> = links.collect();
        while !next.is_empty() {
            let mut reached = Vec::new();
            for (vertex, bits) in &mut next {
                *bits &= !seen[*vertex as usize];
                seen[*vertex as usize] |= *bits;
                for row in each(*bits) {
                    rows[*vertex as usize * count + row].hops = hops;
                }
            }
            for &(vertex, bits) in next.iter().filter(|(_, bits)| *bits != 0) {
                for &(from, place) in self.entering.of(vertex) {
                    let new = bits & !seen[from as usize];
                    if new != 0 {
                        let links = &mut found[from as usize];
                        if links.is_empty() {
                            reached.push(from);
                        }
                        links.push((place, new));
                    }
                }
            }
            next.clear();
            for vertex in reached {
                let links = &mut found[vertex as usize];
                links.sort_unstable();
                let [mut once, mut several] = [0, 0];
                for (_, bits) in &*links {
                    several |= once & bits;
                    once |= bits;
                }
                for (place, bits) in &*links {
                    for row in each(bits & !several) {
                        rows[vertex as usize * count + row].next = *place;
                    }
                }
                let is_same =
                    links.iter().all(|(_, bits)| [0, several].contains(&(bits & several)));
                let mut rest = several;
                while rest != 0 {
                    let row = rest.trailing_zeros();
                    let alike = if is_same { several } else { 1 << row };
                    let leading = links.iter().filter(|(_, bits)| bits >> row & 1 != 0);
                    let set = self.set_of(vertex, leading.map(|(place, _)| *place));
                    for row in each(alike) {
                        rows[vertex as usize * count + row].next = set;
                    }
                    rest &= !alike;
                }
                links.clear();
                next.push((vertex, once));
            }
            hops += 1;
        }
        rows
    }

    fn set_of(&mut self, vertex: u32, places: impl Iterator<Item = u16> + Clone) -> u16 {
        let all = self.out.of(vertex);
        let steps = places.map(|place| all[usize::from(place)]);
        let sets = &mut self.several[vertex as usize];
        let known = sets.iter().position(|set| steps.clone().eq(set.iter().copied()));
        let number = known.unwrap_or_else(|| {
            sets.push(steps.collect());
            sets.len() - 1
        });
        assert!(number < usize::from(NOWHERE - SEVERAL), "a vertex has few sets of next links");
        SEVERAL + number as u16
    }
}

fn each(bits: u64) -> impl Iterator<Item = usize> {
    let rest = |bits: &u64| Some(*bits & (*bits).wrapping_sub(1)).filter(|rest| *rest != 0);
    std::iter::successors(Some(bits).filter(|bits| *bits != 0), rest)
        .map(|bits| bits.trailing_zeros() as usize)
}
