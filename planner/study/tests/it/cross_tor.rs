// SPDX-License-Identifier: Apache-2.0

use lightloom_study::architecture::Cluster;
use lightloom_study::compare::{CrossTorPoint, CrossTorQuestion, aligned_limit, cross_tor_shares};
use lightloom_units::seed::Seed;

/// 8,192 GPUs in nodes of four, TP-32, K = 3.
fn shares(nodes_per_tor: u32, job_share: f64, ratios: &[f64]) -> Vec<CrossTorPoint> {
    cross_tor_shares(&CrossTorQuestion {
        cluster: Cluster { nodes: 2_048, gpus_per_node: 4 },
        k: 3,
        nodes_per_tor,
        tp: 32,
        job_share,
        node_fault_ratios: ratios,
        samples: 10,
        seed: Seed(1),
    })
    .unwrap()
}

#[test]
fn traffic_hardly_crosses_tors_while_alignment_is_feasible() {
    // (nodes per ToR, job share, maximum fault ratio)
    for (nodes_per_tor, job_share, up_to) in [(2, 0.85, 0.065), (4, 0.75, 0.05), (4, 0.85, 0.02)] {
        assert!(up_to < aligned_limit(job_share, nodes_per_tor));
        for point in shares(nodes_per_tor, job_share, &[0.0, 0.02, up_to]) {
            println!("p {nodes_per_tor}, job {job_share}: {point:?}");
            assert!((point.fits - 1.0).abs() < 1e-12, "{point:?}");
            // Near zero, because random faults break alignment in few snapshots.
            assert!(point.orchestrated_mean <= 0.01, "{point:?}");
            assert!(point.bound_mean <= point.orchestrated_mean, "{point:?}");
        }
    }
}

#[test]
fn crossing_traffic_beyond_the_limit_matches_its_bound() {
    for point in shares(2, 0.85, &[0.10]) {
        assert!(point.node_fault_ratio > aligned_limit(0.85, 2));
        assert!(point.orchestrated_mean > 0.01, "{point:?}");
        assert!(point.bound_mean > 0.01, "{point:?}");
        assert!(point.bound_mean <= point.orchestrated_mean, "{point:?}");
    }
}

#[test]
fn feasible_limit_has_its_derived_values() {
    for (p, share, percent) in [(2, 0.85, 7.8), (4, 0.75, 6.9), (8, 0.80, 2.8), (16, 0.90, 0.7)] {
        assert!((100.0 * aligned_limit(share, p) - percent).abs() < 0.05, "{p} {share}");
    }
}
