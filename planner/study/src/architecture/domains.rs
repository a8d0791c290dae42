// SPDX-License-Identifier: Apache-2.0
//! Switch domains of a fixed size: any healthy GPUs of one domain can form a group.

use lightloom_units::id::NodeId;

use super::{CannotHold, Cluster, UsableGpus, check_size};

/// Healthy GPUs of every domain. The last domain may be filled in part, and a node may stand in
/// two domains where its size does not divide theirs.
pub(super) struct Domains {
    healthy: Vec<u32>,
    gpus_per_domain: u32,
    gpus_per_node: u32,
    tp: u32,
    usable: u32,
}

/// A cluster of domains of `gpus_per_domain` GPUs each.
pub(super) fn domains(
    cluster: Cluster,
    gpus_per_domain: u32,
    tp: u32,
) -> Result<Box<dyn UsableGpus>, CannotHold> {
    check_size(cluster, tp)?;
    if tp > gpus_per_domain {
        return Err(CannotHold(format!(
            "TP-{tp} needs {tp} GPUs under one switch and a domain has {gpus_per_domain}"
        )));
    }
    let gpus = cluster.gpus();
    let healthy: Vec<u32> = (0..gpus.div_ceil(gpus_per_domain))
        .map(|domain| gpus_per_domain.min(gpus - domain * gpus_per_domain))
        .collect();
    let usable = healthy.iter().map(|healthy| healthy / tp * tp).sum();
    let gpus_per_node = cluster.gpus_per_node;
    Ok(Box::new(Domains { healthy, gpus_per_domain, gpus_per_node, tp, usable }))
}

impl Domains {
    /// For each domain that a node has GPUs in, sets the healthy count anew.
    fn update(&mut self, node: NodeId, new_count: impl Fn(u32, u32) -> u32) {
        let first = node.0 * self.gpus_per_node;
        let end = first + self.gpus_per_node;
        for domain in first / self.gpus_per_domain..=(end - 1) / self.gpus_per_domain {
            let low = first.max(domain * self.gpus_per_domain);
            let high = end.min((domain + 1) * self.gpus_per_domain);
            let healthy = &mut self.healthy[domain as usize];
            self.usable -= *healthy / self.tp * self.tp;
            *healthy = new_count(*healthy, high - low);
            self.usable += *healthy / self.tp * self.tp;
        }
    }
}

impl UsableGpus for Domains {
    fn fail(&mut self, node: NodeId) {
        self.update(node, |healthy, lost| healthy - lost);
    }
    fn repair(&mut self, node: NodeId) {
        self.update(node, |healthy, won| healthy + won);
    }
    fn usable_gpus(&self) -> u32 {
        self.usable
    }
}
