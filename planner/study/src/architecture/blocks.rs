// SPDX-License-Identifier: Apache-2.0
//! Blocks of a fixed place: a block with any faulty node in it is lost as a whole.

use lightloom_units::id::NodeId;

use super::{Cluster, UsableGpus};

/// Where the blocks lie and what healthy ones are good for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Blocks are laid from the start of each domain of this many GPUs and never cross its end.
    pub(super) gpus_per_domain: u32,
    /// GPUs of a block.
    pub(super) gpus_per_block: u32,
    /// Healthy blocks that are joined to be of use.
    pub(super) blocks_joined: u32,
    /// GPUs in groups that so many blocks give.
    pub(super) gpus_joined: u32,
}

/// Faulty nodes of every block.
pub(super) struct Blocks {
    layout: Layout,
    blocks_per_domain: u32,
    gpus_per_node: u32,
    faulty_nodes: Vec<u32>,
    healthy_blocks: u32,
}

impl Blocks {
    /// Lays blocks over a cluster; a block that the cluster does not fill does not exist.
    pub(super) fn new(cluster: Cluster, layout: Layout) -> Self {
        let blocks_per_domain = layout.gpus_per_domain / layout.gpus_per_block;
        let whole_domains = cluster.gpus() / layout.gpus_per_domain;
        let rest = cluster.gpus() % layout.gpus_per_domain;
        let blocks = whole_domains * blocks_per_domain + rest / layout.gpus_per_block;
        Self {
            layout,
            blocks_per_domain,
            gpus_per_node: cluster.gpus_per_node,
            faulty_nodes: vec![0; blocks as usize],
            healthy_blocks: blocks,
        }
    }

    /// The blocks that a node has GPUs in.
    fn blocks_of(&self, node: NodeId) -> impl Iterator<Item = usize> + use<> {
        let Layout { gpus_per_domain, gpus_per_block, .. } = self.layout;
        let (blocks_per_domain, blocks) = (self.blocks_per_domain, self.faulty_nodes.len());
        let first = node.0 * self.gpus_per_node;
        let mut last_block = None;
        (first..first + self.gpus_per_node).filter_map(move |gpu| {
            let in_domain = gpu % gpus_per_domain / gpus_per_block;
            let block = (gpu / gpus_per_domain * blocks_per_domain + in_domain) as usize;
            let is_new =
                in_domain < blocks_per_domain && block < blocks && last_block != Some(block);
            is_new.then(|| *last_block.insert(block))
        })
    }
}

impl UsableGpus for Blocks {
    fn fail(&mut self, node: NodeId) {
        for block in self.blocks_of(node) {
            self.healthy_blocks -= u32::from(self.faulty_nodes[block] == 0);
            self.faulty_nodes[block] += 1;
        }
    }
    fn repair(&mut self, node: NodeId) {
        for block in self.blocks_of(node) {
            self.faulty_nodes[block] -= 1;
            self.healthy_blocks += u32::from(self.faulty_nodes[block] == 0);
        }
    }
    fn usable_gpus(&self) -> u32 {
        self.healthy_blocks / self.layout.blocks_joined * self.layout.gpus_joined
    }
}
