// SPDX-License-Identifier: Apache-2.0
//! Traces the ring of GPUs along the selected bundle paths.
//!
//! The trace enters a GPU over one ring edge and leaves over the other. A copper edge or a loopback
//! bundle leads to the next GPU of the node; a bundle on a fibre leads to the same half of the
//! bundle at the far end. The ring therefore runs along the chain on one side of the nodes and
//! returns on the other side.

use lightloom_fabric::hbd::Hbd;
use lightloom_fabric::khop::Port;
use lightloom_units::id::{BundleId, GpuId, NodeId};

use super::document::{gpus_by_rank, selected_port};
use super::{Layout, RingGroup};

/// Starts at the first GPU of the first node. Panics if the paths do not form a single ring.
pub(super) fn walk(hbd: &Hbd, layout: &Layout, group: &RingGroup) -> Vec<GpuId> {
    if let Some(segment) = group.segment {
        let gpus = segment.first..segment.first + segment.gpus;
        return gpus
            .map(|gpu| GpuId { node: group.nodes[0], gpu: gpu % hbd.gpus_per_node() })
            .collect();
    }
    if hbd.k() == 0 {
        return gpus_by_rank(hbd, group);
    }
    let start = GpuId { node: group.nodes[0], gpu: 0 };
    let total = group.nodes.len() * usize::from(hbd.gpus_per_node());
    let mut ring = Vec::with_capacity(total);
    let (mut gpu, mut edge) = (start, 0);
    while ring.len() < total {
        ring.push(gpu);
        (gpu, edge) = step(hbd, layout, gpu, edge);
        if gpu == start {
            break;
        }
    }
    assert!(
        ring.len() == total && gpu == start,
        "group at {start} closes one ring over {total} GPUs"
    );
    ring
}

fn step(hbd: &Hbd, layout: &Layout, gpu: GpuId, edge: u8) -> (GpuId, u8) {
    let gpus = hbd.gpus_per_node();
    let at_lower_half = gpu.gpu == edge;
    let (node, edge, gpu) = match fibre_at(hbd, layout, gpu.node, edge) {
        Some(far) => {
            let edge = hbd.ring_edge(far.bundle.bundle);
            (far.bundle.node, edge, if at_lower_half { edge } else { (edge + 1) % gpus })
        }
        None => (gpu.node, edge, if at_lower_half { (edge + 1) % gpus } else { edge }),
    };
    let other_edge = if gpu == edge { (gpu + gpus - 1) % gpus } else { gpu };
    (GpuId { node, gpu }, other_edge)
}

fn fibre_at(hbd: &Hbd, layout: &Layout, node: NodeId, edge: u8) -> Option<Port> {
    let bundle = BundleId { node, bundle: hbd.bundle_on_edge(edge)? };
    hbd.peer(selected_port(bundle, layout.path(bundle))?)
}
