// SPDX-License-Identifier: Apache-2.0
//! Fixed blocks. A faulty node makes its whole block unusable.

use lightloom_units::id::NodeId;

use super::{Cluster, UsableGpus};

#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Blocks start at the beginning of each domain and never extend beyond it.
    pub(super) gpus_per_domain: u32,
    pub(super) gpus_per_block: u32,
    pub(super) blocks_joined: u32,
    pub(super) gpus_joined: u32,
    pub(super) blocks_per_pod: u32,
}

impl Layout {
    /// Returns blocks that are each as large as a group.
    pub(super) const fn of_groups(gpus_per_domain: u32, tp: u32) -> Self {
        let (gpus_per_block, gpus_joined, blocks_per_pod) = (tp, tp, u32::MAX);
        Self { gpus_per_domain, gpus_per_block, blocks_joined: 1, gpus_joined, blocks_per_pod }
    }

    const fn joined(&self, healthy: u32) -> u32 {
        healthy / self.blocks_joined * self.gpus_joined
    }
}

pub(super) struct Blocks {
    layout: Layout,
    blocks_per_domain: u32,
    gpus_per_node: u32,
    faulty_nodes: Vec<u32>,
    healthy_blocks: Vec<u32>,
    usable: u32,
}

impl Blocks {
    pub(super) fn new(cluster: Cluster, layout: Layout) -> Self {
        let blocks_per_domain = layout.gpus_per_domain / layout.gpus_per_block;
        let whole_domains = cluster.gpus() / layout.gpus_per_domain;
        let rest = cluster.gpus() % layout.gpus_per_domain;
        let blocks = whole_domains * blocks_per_domain + rest / layout.gpus_per_block;
        let pods = blocks.div_ceil(layout.blocks_per_pod);
        let healthy_blocks: Vec<u32> = (0..pods)
            .map(|pod| layout.blocks_per_pod.min(blocks - pod * layout.blocks_per_pod))
            .collect();
        let usable = healthy_blocks.iter().map(|healthy| layout.joined(*healthy)).sum();
        Self {
            layout,
            blocks_per_domain,
            gpus_per_node: cluster.gpus_per_node,
            faulty_nodes: vec![0; blocks as usize],
            healthy_blocks,
            usable,
        }
    }

    fn set(&mut self, block: usize, change: i32) {
        let healthy = &mut self.healthy_blocks[block / self.layout.blocks_per_pod as usize];
        self.usable -= self.layout.joined(*healthy);
        *healthy = healthy.checked_add_signed(change).expect("it counts blocks");
        self.usable += self.layout.joined(*healthy);
    }

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
            if self.faulty_nodes[block] == 0 {
                self.set(block, -1);
            }
            self.faulty_nodes[block] += 1;
        }
    }
    fn repair(&mut self, node: NodeId) {
        for block in self.blocks_of(node) {
            self.faulty_nodes[block] -= 1;
            if self.faulty_nodes[block] == 0 {
                self.set(block, 1);
            }
        }
    }
    fn usable_gpus(&self) -> u32 {
        self.usable
    }
}
