// SPDX-License-Identifier: Apache-2.0

use lightloom_engine::VertexId;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Members {
    pub(crate) job: u32,
    pub(crate) gpus: u32,
    pub(crate) ring: Vec<VertexId>,
    /// Includes vertices that only forward light.
    pub(crate) light: Vec<VertexId>,
    pub(crate) is_closed: bool,
    pub(crate) ranks: Vec<VertexId>,
}

impl Members {
    pub(crate) fn of_ring(ranks: Vec<VertexId>) -> Self {
        let (ring, light) = (ranks.clone(), ranks.clone());
        Self { job: 0, gpus: ranks.len() as u32, ring, light, is_closed: true, ranks }
    }
}
