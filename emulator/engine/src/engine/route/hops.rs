// SPDX-License-Identifier: Apache-2.0
//! How far it is from every vertex that passes packets on to those that routes lead to.
//!
//! Only such vertices count: hosts, nine of ten vertices, stand beside them. A search is made for up to 64 destinations at
//! once, a bit each, for a link leads on towards many of them.

use rustc_hash::FxHashMap;

use crate::engine::network::{LinkId, Network, Plane, VertexId};

/// No way leads there.
pub(super) const FAR: u16 = u16::MAX;
/// Not a vertex that passes packets on.
const NONE: u32 = u32::MAX;
/// Destinations of one search: bits of a word.
const AT_ONCE: usize = 64;

/// The links that are up, of one plane or of all, between vertices that pass packets on, and distances over them.
#[derive(Clone, Debug)]
pub(super) struct HopMap {
    /// By vertex: its number here.
    numbers: Vec<u32>,
    vertices: Vec<VertexId>,
    /// Links that lead on, by vertex.
    out: Adjacent<NextStep>,
    /// From where links come, by vertex.
    entering: Adjacent<u32>,
    /// By number: hosts are beside it, so that routes may well lead to it.
    is_leaf: Vec<bool>,
    /// By destination and number: hops.
    rows: FxHashMap<VertexId, Box<[u16]>>,
}

/// A link, and the number of the vertex at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextStep {
    pub(super) link: LinkId,
    pub(super) to: u32,
}

/// Lists of what is beside each vertex, one after another.
#[derive(Clone, Debug)]
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
        let empty = || Vec::with_capacity(vertices.len());
        let mut out = Adjacent { ends: empty(), all: Vec::new() };
        let mut entering = Adjacent { ends: empty(), all: Vec::new() };
        let mut is_leaf = vec![false; vertices.len()];
        for (number, vertex) in vertices.iter().enumerate() {
            for &link in network.outgoing(*vertex) {
                let far = network.link(link).to;
                let to = numbers[far.index()];
                is_leaf[number] |= network.role(far).is_host();
                let counts = |link: LinkId| {
                    let spec = &network.link(link).spec;
                    up[link.index()] && plane.is_none_or(|plane| spec.plane == plane)
                };
                if to != NONE && counts(link) {
                    out.all.push(NextStep { link, to });
                }
                if to != NONE && counts(link.reverse()) {
                    entering.all.push(to);
                }
            }
            is_leaf[number] |= network.role(*vertex).is_host();
            out.ends.push(out.all.len() as u32);
            entering.ends.push(entering.all.len() as u32);
        }
        Self { numbers, vertices, out, entering, is_leaf, rows: FxHashMap::default() }
    }

    /// The number of a vertex that passes packets on.
    pub(super) fn number(&self, vertex: VertexId) -> Option<u32> {
        Some(self.numbers[vertex.index()]).filter(|number| *number != NONE)
    }

    pub(super) fn vertex(&self, number: u32) -> VertexId {
        self.vertices[number as usize]
    }

    /// The links that lead on from there to others that pass packets on.
    pub(super) fn steps(&self, number: u32) -> &[NextStep] {
        self.out.of(number)
    }

    /// Hops to `root` by number; known once it was [measured](Self::measure).
    pub(super) fn row(&self, root: VertexId) -> &[u16] {
        &self.rows[&root]
    }

    /// Finds how far it is to `root`, which `before` lead to if it does not pass packets on itself. With each search more
    /// of those that may well be asked for next are found along with it.
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
            return self.keep(root, row);
        };
        let most = AT_ONCE.min(self.rows.len() + 1);
        let is_alike = |vertex: VertexId| network.role(vertex) == network.role(root);
        let later = (number + 1..self.vertices.len() as u32).filter(|next| {
            let vertex = self.vertex(*next);
            self.is_leaf[*next as usize] && is_alike(vertex) && !self.rows.contains_key(&vertex)
        });
        let roots: Vec<u32> = std::iter::once(number).chain(later).take(most).collect();
        let begin = roots.iter().zip(0..).map(|(root, bit)| (*root, 1 << bit)).collect();
        let rows = self.search(roots.len(), begin, 0);
        for (root, row) in roots.iter().zip(rows.chunks(self.vertices.len())) {
            self.rows.insert(self.vertex(*root), row.into());
        }
    }

    fn keep(&mut self, root: VertexId, row: Vec<u16>) {
        self.rows.insert(root, row.into_boxed_slice());
    }

    /// Breadth first and backwards from `next`: vertices, each with the destinations, a bit each, from which they are
    /// `hops` away. Returns a row for each of `count` destinations.
    fn search(&self, count: usize, mut next: Vec<(u32, u64)>, mut hops: u16) -> Vec<u16> {
        let vertices = self.vertices.len();
        let mut rows = vec![FAR; count * vertices];
        let mut seen = vec![0u64; vertices];
        let mut came = vec![0u64; vertices];
        while !next.is_empty() {
            let mut reached = Vec::new();
            for (vertex, bits) in next {
                let new = bits & !seen[vertex as usize];
                seen[vertex as usize] |= new;
                let mut left = new;
                while left != 0 {
                    rows[left.trailing_zeros() as usize * vertices + vertex as usize] = hops;
                    left &= left - 1;
                }
                for &from in self.entering.of(vertex).iter().filter(|_| new != 0) {
                    if came[from as usize] == 0 {
                        reached.push(from);
                    }
                    came[from as usize] |= new;
                }
            }
            let taken = |vertex| (vertex, std::mem::take(&mut came[vertex as usize]));
            next = reached.into_iter().map(taken).collect();
            hops += 1;
        }
        rows
    }
}
