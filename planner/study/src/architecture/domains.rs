// SPDX-License-Identifier: Apache-2.0
//! Switch domains of a fixed size, in which any healthy GPUs can form a group.

use lightloom_units::id::NodeId;

use super::{CannotHold, Cluster, FaultPolicy, UsableGpus, check_size};

/// The last domain may be partial. A node can belong to two domains.
pub(super) struct Domains {
    healthy: Vec<u32>,
    gpus: u32,
    gpus_per_domain: u32,
    gpus_per_node: u32,
    tp: u32,
    policy: FaultPolicy,
    kept_back: u32,
    usable: u32,
}

pub(super) fn domains(
    cluster: Cluster,
    gpus_per_domain: u32,
    tp: u32,
) -> Result<Box<dyn UsableGpus>, CannotHold> {
    domains_under(FaultPolicy::Regroup, 0, cluster, gpus_per_domain, tp)
}

pub(super) const DOMAIN_POLICIES: &[FaultPolicy] =
    &[FaultPolicy::Regroup, FaultPolicy::Backup, FaultPolicy::ReducedTp];

pub(super) fn domains_under(
    policy: FaultPolicy,
    spares: u32,
    cluster: Cluster,
    gpus_per_domain: u32,
    tp: u32,
) -> Result<Box<dyn UsableGpus>, CannotHold> {
    check_size(cluster, tp)?;
    let is_backup = policy == FaultPolicy::Backup;
    let kept_back = if is_backup { cluster.gpus_per_node.saturating_mul(spares) } else { 0 };
    if tp.saturating_add(kept_back) > gpus_per_domain {
        let backup =
            if kept_back > 0 { format!(" and {kept_back} as backup") } else { String::new() };
        return Err(CannotHold(format!(
            "TP-{tp} needs {tp} GPUs under one switch{backup}, but a domain has {gpus_per_domain}"
        )));
    }
    let gpus = cluster.gpus();
    let healthy: Vec<u32> = (0..gpus.div_ceil(gpus_per_domain))
        .map(|domain| gpus_per_domain.min(gpus - domain * gpus_per_domain))
        .collect();
    let gpus_per_node = cluster.gpus_per_node;
    let mut domains =
        Domains { healthy, gpus, gpus_per_domain, gpus_per_node, tp, policy, kept_back, usable: 0 };
    domains.usable = (0..domains.healthy.len()).map(|domain| domains.in_groups(domain)).sum();
    Ok(Box::new(domains))
}

impl Domains {
    fn in_groups(&self, domain: usize) -> u32 {
        let healthy = self.healthy[domain];
        let first = u32::try_from(domain).expect("fewer domains than GPUs") * self.gpus_per_domain;
        let installed = self.gpus_per_domain.min(self.gpus - first);
        match self.policy {
            FaultPolicy::Backup => {
                healthy.min(installed.saturating_sub(self.kept_back)) / self.tp * self.tp
            }
            FaultPolicy::ReducedTp => {
                let (full, rest) = (healthy / self.tp, healthy % self.tp);
                let goes_on = full < installed / self.tp && 2 * rest >= self.tp;
                full * self.tp + if goes_on { rest } else { 0 }
            }
            _ => healthy / self.tp * self.tp,
        }
    }

    fn update(&mut self, node: NodeId, new_count: impl Fn(u32, u32) -> u32) {
        let first = node.0 * self.gpus_per_node;
        let end = first + self.gpus_per_node;
        for domain in first / self.gpus_per_domain..=(end - 1) / self.gpus_per_domain {
            let low = first.max(domain * self.gpus_per_domain);
            let high = end.min((domain + 1) * self.gpus_per_domain);
            let at = domain as usize;
            self.usable -= self.in_groups(at);
            self.healthy[at] = new_count(self.healthy[at], high - low);
            self.usable += self.in_groups(at);
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
    /// The reserve must cover the faulty GPUs of the domain, including those of this node.
    fn has_spare_for(&self, node: NodeId) -> bool {
        let first = node.0 * self.gpus_per_node;
        let end = first + self.gpus_per_node;
        (first / self.gpus_per_domain..=(end - 1) / self.gpus_per_domain).all(|domain| {
            let begin = domain * self.gpus_per_domain;
            let beyond = (begin + self.gpus_per_domain).min(self.gpus);
            let own = end.min(beyond) - first.max(begin);
            beyond - begin - self.healthy[domain as usize] + own <= self.kept_back
        })
    }
}
