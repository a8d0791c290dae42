// SPDX-License-Identifier: Apache-2.0
//! A group, by the vertices at which its ranks are.

use lightloom_engine::VertexId;

/// Who is in a group now, as its collectives have to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Members {
    pub(crate) job: u32,
    pub(crate) gpus: u32,
    /// In the order of the ring.
    pub(crate) ring: Vec<VertexId>,
    /// All that its light goes by, in order: those that only pass it on, too.
    pub(crate) light: Vec<VertexId>,
    /// Whether the last of them is joined to the first.
    pub(crate) is_closed: bool,
    /// In the order of their ranks.
    pub(crate) ranks: Vec<VertexId>,
}

impl Members {
    /// Ranks that are in their ring in order, and nothing between them.
    pub(crate) fn of_ring(ranks: Vec<VertexId>) -> Self {
        let (ring, light) = (ranks.clone(), ranks.clone());
        Self { job: 0, gpus: ranks.len() as u32, ring, light, is_closed: true, ranks }
    }
}
