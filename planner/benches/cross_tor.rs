// SPDX-License-Identifier: Apache-2.0
//! Measures inner data-parallel traffic between ToRs, and its lower bound, as node faults increase.
//!
//! `cargo bench -p lightloom-planner --bench cross_tor` prints per case: mean and maximum share
//! over all samples, mean lower bound, ratio of mean to bound, and seconds per plan.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a bench prints and measures")]

#[allow(dead_code, clippy::unwrap_used, reason = "tests use all of it")]
#[path = "../tests/it/common/mod.rs"]
mod common;

use std::time::Instant;

use common::{FabricSpec, fabric};
use lightloom_fabric::fabric::JobSize;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::Shape;
use lightloom_planner::khop::{Method, plan};
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use rand::RngExt;

struct Case {
    nodes: u32,
    k: u8,
    per_tor: u32,
    job: f64,
    faults: f64,
    samples: u64,
}

fn run(case: &Case) {
    let Case { nodes, k, per_tor, job, faults: ratio, samples } = *case;
    let spec = FabricSpec {
        nodes,
        k,
        shape: Shape::Ring,
        per_tor,
        per_domain: 64,
        tp: 32,
        ..FabricSpec::default()
    };
    let mut fabric = fabric(&spec);
    fabric.jobs[0].size = JobSize::Gpus((f64::from(nodes * 4) * job / 32.0) as u64 * 32);
    let (mut shares, mut bounds, mut seconds) = (Vec::new(), 0.0, 0.0_f64);
    for sample in 0..samples {
        let mut draws = Seed(1).stream("faults", sample);
        let broken = (0..nodes).filter(|_| draws.random_bool(ratio)).map(NodeId).collect();
        let faults = FaultSet { nodes: broken, ..FaultSet::none() };
        let start = Instant::now();
        let Ok(layout) = plan(&fabric, &faults, Method::Scan) else { continue };
        seconds = seconds.max(start.elapsed().as_secs_f64());
        shares.push(layout.cross_tor(&fabric, 0).share());
        bounds += layout.jobs[0].cross_tor_bound.unwrap_or(0.0);
    }
    let count = shares.len() as f64;
    let mean = shares.iter().sum::<f64>() / count;
    let most = shares.iter().copied().fold(0.0, f64::max);
    let bound = bounds / count;
    println!(
        "{:>7} {k:>2} {per_tor:>2} {:>5.0} % {:>6.1} % {:>6.2} % {:>6.2} % {:>6.2} % {:>6.2} {:>8.2} s {count:>4} of {samples}",
        nodes * 4,
        job * 100.0,
        ratio * 100.0,
        mean * 100.0,
        most * 100.0,
        bound * 100.0,
        if bound > 0.0 { mean / bound } else { f64::NAN },
        seconds,
    );
}

fn main() {
    println!(
        "TP-32: share of inner data-parallel hops that cross ToRs, of all samples in which the job fits"
    );
    println!("   GPUs  K  p     job   faults     mean     most    bound  ratio  longest  fits");
    let case =
        |nodes, k, per_tor, job, faults, samples| Case { nodes, k, per_tor, job, faults, samples };
    for (per_tor, job) in [(4, 0.85), (4, 0.75), (2, 0.85), (8, 0.75)] {
        for faults in [0.02, 0.04, 0.05, 0.07, 0.10] {
            run(&case(2_048, 3, per_tor, job, faults, 20));
        }
    }
    run(&case(720, 2, 4, 0.85, 0.05, 20));
    for faults in [0.02, 0.05, 0.07, 0.10] {
        run(&case(32_768, 3, 4, 0.85, faults, 1));
    }
    run(&case(32_768, 3, 2, 0.85, 0.07, 1));
}
