// SPDX-License-Identifier: Apache-2.0
//! Measures data-parallel traffic between ToRs as node faults increase.
//!
//! The metric is the crossing share of [`lightloom_planner::khop::cross_tor`] (docs/metrics.md).

use lightloom_fabric::dcn::{FatTree, Order};
use lightloom_fabric::fabric::{Fabric, Job, JobSize};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::{KhopError, KhopRing, Shape};
use lightloom_units::seed::Seed;
use rayon::prelude::*;
use serde::Serialize;

use super::snapshots;
use crate::architecture::Cluster;
use lightloom_planner::khop::{CrossTor, Method, plan};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossTorQuestion<'a> {
    pub cluster: Cluster,
    pub k: u8,
    pub nodes_per_tor: u32,
    pub tp: u32,
    /// Job size as a share of all GPUs, rounded down to whole groups.
    pub job_share: f64,
    pub node_fault_ratios: &'a [f64],
    pub samples: u64,
    pub seed: Seed,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CrossTorPoint {
    pub node_fault_ratio: f64,
    /// Share of snapshots in which the job fits. The means cover only these snapshots.
    pub fits: f64,
    pub orchestrated_mean: f64,
    pub bound_mean: f64,
}

/// The maximum node fault ratio for a placement without crossing hops, ignoring fragmentation. Our own derivation: `1 −
/// share^(1/p)`, because a ToR of p nodes is healthy with probability `(1 − f)^p`.
pub fn aligned_limit(job_share: f64, nodes_per_tor: u32) -> f64 {
    1.0 - job_share.powf(1.0 / f64::from(nodes_per_tor))
}

pub fn cross_tor_shares(question: &CrossTorQuestion<'_>) -> Result<Vec<CrossTorPoint>, KhopError> {
    let fabric = fabric(question)?;
    Ok(question.node_fault_ratios.iter().map(|&ratio| point(question, &fabric, ratio)).collect())
}

fn fabric(question: &CrossTorQuestion<'_>) -> Result<Fabric, KhopError> {
    let CrossTorQuestion { cluster, k, nodes_per_tor, tp, job_share, .. } = *question;
    let order = Order::SubLines;
    let line = order.line(cluster.nodes, nodes_per_tor);
    let gpus_per_node = u8::try_from(cluster.gpus_per_node).unwrap_or(u8::MAX);
    let groups = (f64::from(cluster.gpus()) * job_share / f64::from(tp)).floor() as u64;
    let job = Job {
        name: "job".to_owned(),
        size: JobSize::Gpus(groups * u64::from(tp)),
        tp,
        step: None,
        searched: None,
        least: None,
        nodes: None,
    };
    let ring = KhopRing::new(gpus_per_node, k, Shape::Ring, line)?;
    let tree = FatTree { nodes_per_tor, ..FatTree::default() };
    Ok(Fabric::of_ring("comparison", ring, order, tree, vec![job]))
}

fn point(question: &CrossTorQuestion<'_>, fabric: &Fabric, ratio: f64) -> CrossTorPoint {
    let snapshots = snapshots(question.cluster, ratio, question.samples, question.seed);
    let shares: Vec<Option<(CrossTor, f64)>> = snapshots
        .par_iter()
        .map(|snapshot| {
            let nodes = snapshot.changes().iter().map(|change| change.node).collect();
            let faults = FaultSet { nodes, ..FaultSet::none() };
            let layout = plan(fabric, &faults, Method::Scan).ok()?;
            Some((layout.cross_tor(fabric, 0), layout.jobs[0].cross_tor_bound.unwrap_or(0.0)))
        })
        .collect();
    let fitting: Vec<(CrossTor, f64)> = shares.iter().flatten().copied().collect();
    let count = fitting.len().max(1) as f64;
    CrossTorPoint {
        node_fault_ratio: ratio,
        fits: fitting.len() as f64 / shares.len().max(1) as f64,
        orchestrated_mean: fitting.iter().map(|(own, _)| own.share()).sum::<f64>() / count,
        bound_mean: fitting.iter().map(|(_, bound)| bound).sum::<f64>() / count,
    }
}
