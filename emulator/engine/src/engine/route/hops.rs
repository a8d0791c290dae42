// SPDX-License-Identifier: Apache-2.0
//! Hop counts from every forwarding vertex to the destinations of flows.
//!
//! Hosts, nine in ten vertices, do not forward packets and are omitted; each is adjacent to a vertex in the map. One
//! search covers up to 64 destinations with one bit each, because links are often on shortest paths to many of them.

use rustc_hash::FxHashMap;

use crate::engine::network::{LinkId, Network, Plane, VertexId};

pub(super) const FAR: u16 = u16::MAX;
const NONE: u32 = u32::MAX;
const AT_ONCE: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct HopMap {
    numbers: Vec<u32>,
    vertices: Vec<VertexId>,
    out: Adjacent<NextStep>,
    /// Incoming links of each vertex: the vertex at the far end, and the link's index there.
    entering: Adjacent<(u32, u16)>,
    is_leaf: Vec<bool>,
    rows: FxHashMap<VertexId, Box<[Onward]>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Onward {
    pub(super) hops: u16,
    /// Index of the only next link at the vertex, or [`SEVERAL`].
    pub(super) only: u16,
}

pub(super) const SEVERAL: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, Default)]
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
        Self { numbers, vertices, out, entering, is_leaf, rows: FxHashMap::default() }
    }

    pub(super) fn number(&self, vertex: VertexId) -> Option<u32> {
        self.numbers.get(vertex.index()).copied().filter(|number| *number != NONE)
    }

    pub(super) fn vertex(&self, number: u32) -> VertexId {
        self.vertices[number as usize]
    }

    pub(super) fn steps(&self, number: u32) -> &[NextStep] {
        self.out.of(number)
    }

    pub(super) fn row(&self, root: VertexId) -> &[Onward] {
        self.rows.get(&root).map_or(&[], |row| row)
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
            let row = self.search(1, first.map(|number| (number, 1)).collect(), 1);
            self.rows.insert(root, row.into());
            return;
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
        let rows = self.search(roots.len(), begin, 0);
        for (root, row) in roots.iter().zip(rows.chunks(self.vertices.len())) {
            self.rows.insert(self.vertex(*root), row.into());
        }
    }

    fn search(&self, count: usize, mut next: Vec<(u32, u64)>, mut hops: u16) -> Vec<Onward> {
        let vertices = self.vertices.len();
        let mut rows = vec![Onward { hops: FAR, only: SEVERAL }; count * vertices];
        let mut seen = vec![0u64; vertices];
        let mut found = vec![[0u64; 2]; vertices];
        while !next.is_empty() {
            let mut reached = Vec::new();
            for (vertex, bits) in &mut next {
                *bits &= !seen[*vertex as usize];
                seen[*vertex as usize] |= *bits;
                for row in each(*bits) {
                    rows[row * vertices + *vertex as usize].hops = hops;
                }
            }
            for &(vertex, bits) in next.iter().filter(|(_, bits)| *bits != 0) {
                for &(from, place) in self.entering.of(vertex) {
                    let new = bits & !seen[from as usize];
                    let [once, again] = &mut found[from as usize];
                    if *once == 0 && new != 0 {
                        reached.push(from);
                    }
                    for row in each(new & !*once) {
                        rows[row * vertices + from as usize].only = place;
                    }
                    *again |= new & *once;
                    *once |= new;
                }
            }
            let taken = |vertex| {
                let [once, again] = std::mem::take(&mut found[vertex as usize]);
                for row in each(again) {
                    rows[row * vertices + vertex as usize].only = SEVERAL;
                }
                (vertex, once)
            };
            next = reached.into_iter().map(taken).collect();
            hops += 1;
        }
        rows
    }
}

fn each(bits: u64) -> impl Iterator<Item = usize> {
    let rest = |bits: &u64| Some(*bits & (*bits).wrapping_sub(1)).filter(|rest| *rest != 0);
    std::iter::successors(Some(bits).filter(|bits| *bits != 0), rest)
        .map(|bits| bits.trailing_zeros() as usize)
}
