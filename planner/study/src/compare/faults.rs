// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::trace::{FaultTrace, NodesError, Synthesis, Timeline};
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use rand::RngExt;
use rayon::prelude::*;
use serde::Serialize;

use crate::architecture::Cluster;

#[derive(Clone, Debug, PartialEq)]
pub enum FaultSource {
    Trace(FaultTrace),
    /// A synthetic trace with 10 % more servers than the cluster needs.
    Synthetic,
    Independent(f64),
}

impl FaultSource {
    pub fn samples(
        &self,
        cluster: Cluster,
        samples: u64,
        seed: Seed,
    ) -> Result<Vec<Timeline>, NodesError> {
        match self {
            Self::Trace(trace) => draws(trace, cluster, samples, seed),
            Self::Synthetic => {
                let servers = u64::from(cluster.gpus()).div_ceil(8) * 10 / 9 + 1;
                let servers = u32::try_from(servers).expect("fewer servers than GPUs");
                let trace = Synthesis::published(seed).with_servers(servers).trace();
                draws(&trace, cluster, samples, seed)
            }
            Self::Independent(ratio) => Ok(snapshots(cluster, *ratio, samples, seed)),
        }
    }
}

fn draws(
    trace: &FaultTrace,
    cluster: Cluster,
    samples: u64,
    seed: Seed,
) -> Result<Vec<Timeline>, NodesError> {
    let Cluster { nodes, gpus_per_node } = cluster;
    (0..samples)
        .into_par_iter()
        .map(|sample| Timeline::on_nodes(trace, nodes, gpus_per_node, seed, sample))
        .collect()
}

pub fn snapshots(cluster: Cluster, ratio: f64, samples: u64, seed: Seed) -> Vec<Timeline> {
    (0..samples).map(|sample| snapshot(cluster, ratio, seed, sample)).collect()
}

fn snapshot(cluster: Cluster, ratio: f64, seed: Seed, sample: u64) -> Timeline {
    let mut random = seed.stream("independent node faults", sample);
    let faulty: Vec<NodeId> =
        (0..cluster.nodes).map(NodeId).filter(|_| random.random_bool(ratio)).collect();
    Timeline::constant(cluster.nodes, faulty)
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NodeFaultRatio {
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl NodeFaultRatio {
    pub fn of(samples: &[Timeline]) -> Self {
        let nodes = samples.first().map_or(1.0, |sample| f64::from(sample.nodes().max(1)));
        let mut ms_by_count: Vec<u64> = vec![0];
        for spent in samples.iter().map(Timeline::ms_by_faulty_count) {
            ms_by_count.resize(ms_by_count.len().max(spent.len()), 0);
            ms_by_count.iter_mut().zip(spent).for_each(|(sum, ms)| *sum += ms);
        }
        let total = ms_by_count.iter().sum::<u64>().max(1) as f64;
        let [p50, p99] = [0.50, 0.99].map(|share| {
            let mut so_far = 0;
            let at = ms_by_count.iter().position(|ms| {
                so_far += ms;
                so_far as f64 >= share * total
            });
            at.unwrap_or(0) as f64 / nodes
        });
        let most = ms_by_count.iter().rposition(|ms| *ms > 0).unwrap_or(0);
        let weighted: f64 =
            ms_by_count.iter().zip(0..).map(|(ms, n)| f64::from(n) * *ms as f64).sum();
        Self { mean: weighted / total / nodes, p50, p99, max: most as f64 / nodes }
    }
}
