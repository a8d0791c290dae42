//! How much inner data-parallel traffic crosses ToRs as nodes break, orchestrated and greedy.
//!
//! `cargo bench -p lightloom-planner --bench cross_tor` prints one table a case. The last column is
//! the share of faults up to which full alignment can hold the job at all, (1 - f)^p = job share.

#![allow(clippy::print_stdout, reason = "a bench prints")]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{FabricSpec, fabric};
use lightloom_fabric::fabric::JobSize;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::Shape;
use lightloom_planner::khop::{Method, plan, to_document};
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use rand::RngExt;

const NODES: u32 = 2_048;
const SAMPLES: u64 = 20;

fn shares(per_tor: u32, job: f64, ratio: f64) -> Option<(f64, f64)> {
    let spec = FabricSpec {
        nodes: NODES,
        k: 3,
        shape: Shape::Ring,
        per_tor,
        per_domain: 64,
        tp: 32,
        ..FabricSpec::default()
    };
    let mut fabric = fabric(&spec);
    fabric.jobs[0].size = JobSize::Gpus((f64::from(NODES * 4) * job / 32.0) as u64 * 32);
    let (mut ours, mut greedy) = (0.0, 0.0);
    for sample in 0..SAMPLES {
        let mut draws = Seed(1).stream("faults", sample);
        let nodes = (0..NODES).filter(|_| draws.random_bool(ratio)).map(NodeId).collect();
        let faults = FaultSet { nodes, ..FaultSet::none() };
        let layout = plan(&fabric, &faults, Method::Scan).ok()?;
        let job = &to_document(&fabric, &faults, Seed(1), &layout).jobs[0];
        ours += job.cross_tor_share / SAMPLES as f64;
        greedy += job.cross_tor_share_greedy / SAMPLES as f64;
    }
    Some((ours, greedy))
}

fn main() {
    println!(
        "8,192 GPUs, TP-32, K=3, {SAMPLES} samples: share of inner data-parallel hops that cross ToRs"
    );
    for (per_tor, job) in [(2, 0.85), (4, 0.75), (4, 0.85), (8, 0.75)] {
        let most = 1.0 - f64::powf(job, 1.0 / f64::from(per_tor));
        println!(
            "\np = {per_tor}, job {:.0} % (alignment possible up to {:.1} % faults)",
            job * 100.0,
            most * 100.0
        );
        println!("faults   orchestrated   greedy");
        for percent in [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0] {
            match shares(per_tor, job, percent / 100.0) {
                Some((ours, greedy)) => {
                    println!("{percent:>4.0} %   {:>10.4}   {greedy:>6.4}", ours)
                }
                None => println!("{percent:>4.0} %   the job does not fit"),
            }
        }
    }
}
