// SPDX-License-Identifier: Apache-2.0
//! The effect of a design's links and placement on the step time of a job.
//!
//! `stretch = compute + tp·B/b + a2a·h·B/b + dp·(1 + (slowdown − 1)·cross)`. The shares refer to the reference network,
//! where all GPUs are connected at B GB/s. b is the design's rate, h the mean number of hops of an all-to-all in a
//! group, and cross the share of inner data-parallel hops that cross ToRs. If circuits follow the phases of a step, the
//! stretch of the step by the network is a further factor.

use lightloom_units::seed::Seed;

use super::{Candidate, History, Priced, Question};
use crate::architecture::Cluster;
use crate::compare::{CrossTorQuestion, NodeFaultRatio, cross_tor_shares};

const SNAPSHOTS: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    pub tensor_parallel: f64,
    pub expert_parallel: f64,
    pub data_parallel: f64,
    pub at_gbytes_per_s: f64,
    pub cross_tor_slowdown: f64,
    pub nodes_per_tor: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StepTime {
    pub(super) stretch: f64,
    pub(super) cross_tor_share: f64,
    pub(super) inside: f64,
    pub(super) between: f64,
}

impl Speed {
    pub(super) fn step(
        &self,
        question: &Question,
        priced: &Priced<'_>,
        history: &History,
        seed: Seed,
    ) -> StepTime {
        let Priced { candidate, cluster, .. } = *priced;
        let site = cluster.site(question.nic);
        let rate = candidate
            .design
            .bill(&site)
            .map_or(self.at_gbytes_per_s, |bill| bill.gbytes_per_s_per_gpu);
        let slower = self.at_gbytes_per_s / rate;
        let hops = candidate.design.mean_hops(question.tp);
        let cross = if self.data_parallel > 0.0 && self.cross_tor_slowdown > 1.0 {
            self.crossing(question, candidate, cluster, history, seed)
        } else {
            0.0
        };
        let computing = 1.0 - self.tensor_parallel - self.expert_parallel - self.data_parallel;
        let network = candidate.network.as_ref().map_or(1.0, |network| network.step_stretch());
        let step = computing
            + self.tensor_parallel * slower
            + self.expert_parallel * slower * hops
            + self.data_parallel * (1.0 + (self.cross_tor_slowdown - 1.0) * cross);
        let inside = (self.tensor_parallel + self.expert_parallel * hops) * slower;
        StepTime {
            stretch: step * network,
            cross_tor_share: cross,
            inside: inside / step,
            between: (step - computing - inside) / step,
        }
    }

    /// The planner's crossing share at the mean share of faulty nodes. 0 without a line of nodes.
    fn crossing(
        &self,
        question: &Question,
        candidate: &Candidate,
        cluster: Cluster,
        history: &History,
        seed: Seed,
    ) -> f64 {
        let whole_nodes = question.tp.is_multiple_of(cluster.gpus_per_node);
        let Some(k) = candidate.design.reach().filter(|_| whole_nodes) else { return 0.0 };
        if self.nodes_per_tor == 1 {
            return 1.0;
        }
        let largest = question.jobs.iter().map(|job| job.gpus).max().unwrap_or(0);
        let ratio = NodeFaultRatio::of(std::slice::from_ref(&history.faults)).mean;
        let asked = CrossTorQuestion {
            cluster,
            k,
            nodes_per_tor: self.nodes_per_tor,
            tp: question.tp,
            job_share: f64::from(largest) / f64::from(cluster.gpus()),
            node_fault_ratios: &[ratio],
            samples: SNAPSHOTS,
            seed,
        };
        match cross_tor_shares(&asked).as_deref() {
            Ok([point]) if point.fits > 0.0 => point.orchestrated_mean,
            // If the largest job does not fit, assume that all hops cross.
            _ => 1.0,
        }
    }
}
