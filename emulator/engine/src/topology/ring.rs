// SPDX-License-Identifier: Apache-2.0
//! GPUs in a ring or a line, as a high-bandwidth domain joins them: direct cables, no switches.

use crate::engine::{LinkId, LinkSpec, NetworkBuilder, VertexId};

/// Whether the last GPU is joined to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingShape {
    /// It is.
    Ring,
    /// It is not.
    Line,
}

/// Cables between neighbours in a row of GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The GPUs in order.
    pub members: Vec<VertexId>,
    /// `links[i]` leads from member `i` to the one after it; its reverse leads back.
    pub links: Vec<LinkId>,
}

impl Ring {
    /// Joins `members` in order. `edge(i)` is the cable after member `i`.
    ///
    /// # Panics
    /// With fewer than two members, or a ring of fewer than three.
    pub fn build_into(
        builder: &mut NetworkBuilder,
        members: &[VertexId],
        shape: RingShape,
        edge: impl Fn(usize) -> LinkSpec,
    ) -> Self {
        let least = if shape == RingShape::Ring { 3 } else { 2 };
        assert!(members.len() >= least, "a row of {} GPUs is no {shape:?}", members.len());
        let edges = members.len() - usize::from(shape == RingShape::Line);
        let after = |i: usize| members[(i + 1) % members.len()];
        let links = (0..edges).map(|i| builder.connect(members[i], after(i), edge(i))).collect();
        Self { members: members.to_vec(), links }
    }
}
