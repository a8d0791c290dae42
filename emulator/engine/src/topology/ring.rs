// SPDX-License-Identifier: Apache-2.0
//! GPUs in a ring or line of direct cables, as in a high-bandwidth domain without switches.

use crate::engine::{LinkId, LinkSpec, NetworkBuilder, VertexId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingShape {
    Ring,
    Line,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    pub members: Vec<VertexId>,
    /// `links[i]` leads from member `i` to the next member, and its reverse leads back.
    pub links: Vec<LinkId>,
}

impl Ring {
    /// `edge(i)` is the cable after member `i`. Panics with fewer than two members, or fewer than three for a ring.
    pub fn build_into(
        builder: &mut NetworkBuilder,
        members: &[VertexId],
        shape: RingShape,
        edge: impl Fn(usize) -> LinkSpec,
    ) -> Self {
        let least = if shape == RingShape::Ring { 3 } else { 2 };
        assert!(members.len() >= least, "{} GPUs cannot form a {shape:?}", members.len());
        let edges = members.len() - usize::from(shape == RingShape::Line);
        let next = members.iter().cycle().skip(1);
        let pairs = members.iter().zip(next).zip(0..edges);
        let links = pairs.map(|((one, next), i)| builder.connect(*one, *next, edge(i))).collect();
        Self { members: members.to_vec(), links }
    }
}
