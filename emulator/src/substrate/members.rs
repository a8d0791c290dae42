// SPDX-License-Identifier: Apache-2.0
//! The vertices of a group's ranks.

use lightloom_engine::VertexId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Members {
    pub(crate) job: u32,
    pub(crate) gpus: u32,
    pub(crate) ring: Vec<VertexId>,
    /// The vertices along the group's light in order, including those that only pass it on.
    pub(crate) light: Vec<VertexId>,
    pub(crate) is_closed: bool,
    pub(crate) ranks: Vec<VertexId>,
}

impl Members {
    /// Creates a closed ring of these ranks in order, without other vertices between them.
    pub(crate) fn of_ring(ranks: Vec<VertexId>) -> Self {
        let (ring, light) = (ranks.clone(), ranks.clone());
        Self { job: 0, gpus: ranks.len() as u32, ring, light, is_closed: true, ranks }
    }
}
