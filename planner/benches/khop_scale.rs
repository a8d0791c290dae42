// SPDX-License-Identifier: Apache-2.0
//! Measures planning time at scale and the number of changes in a replan.
//!
//! `cargo bench -p lightloom-planner --bench khop_scale` prints one line per result. Times include
//! checking every plan.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench prints and reads the clock"
)]

use std::time::{Duration, Instant};

use lightloom_fabric::dcn::{FatTree, Order};
use lightloom_fabric::fabric::{Fabric, Job, JobSize};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::{KhopRing, Shape};
use lightloom_planner::check::check;
use lightloom_planner::khop::{Change, GroupChange, Method, Survey, plan, replan, to_document};
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use rand::RngExt;

const TP: u32 = 32;

fn fabric(nodes: u32, job: JobSize) -> Fabric {
    let tree = FatTree::default();
    let line = Order::SubLines.line(nodes, tree.nodes_per_tor);
    let ring = KhopRing::new(4, 3, Shape::Ring, line).expect("valid");
    let job = Job { name: "train".into(), size: job, tp: TP, step: None, searched: None };
    Fabric::of_ring(&format!("{nodes} nodes"), ring, Order::SubLines, tree, vec![job])
}

fn faults(nodes: u32, ratio: f64) -> FaultSet {
    let mut draws = Seed(1).stream("faults", 0);
    let dead = (0..nodes).filter(|_| draws.random_bool(ratio)).map(NodeId).collect();
    FaultSet { nodes: dead, ..FaultSet::none() }
}

/// Other processes can only add time, so take the minimum of five runs.
fn best(mut timed: impl FnMut() -> Duration) -> Duration {
    (0..5).map(|_| timed()).min().expect("five runs")
}

fn cold_plan(gpus: u32, job: JobSize) {
    let fabric = fabric(gpus / 4, job);
    let faults = faults(gpus / 4, 0.07);
    let mut waste = (0.0, 0.0, 0.0);
    let taken = best(|| {
        let start = Instant::now();
        let layout = plan(&fabric, &faults, Method::Scan).expect("it fits");
        let document = to_document(&fabric, &faults, Seed(1), &layout);
        check(&fabric, &faults, &document).expect("it is sound");
        let metrics = &document.metrics;
        waste = (metrics.waste_ratio, metrics.waste_ratio_lower_bound, metrics.cross_tor_share);
        start.elapsed()
    });
    println!(
        "cold plan + paths + ranks + check, {gpus:>9} GPUs, 7 % faults: {:>9.1} ms  \
         (waste {:.4}, bound {:.4}, cross-ToR {:.4}, peak memory {} MB)",
        taken.as_secs_f64() * 1e3,
        waste.0,
        waste.1,
        waste.2,
        peak_memory_mb(),
    );
}

fn peak_memory_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or(0)
        / 1024
}

fn replans(share: f64) {
    let nodes = 32_768;
    let wanted = (f64::from(nodes * 4) * share / f64::from(TP)) as u64 * u64::from(TP);
    let fabric = fabric(nodes, if share < 1.0 { JobSize::Gpus(wanted) } else { JobSize::All });
    let base = faults(nodes, 0.02);
    let layout = plan(&fabric, &base, Method::Scan).expect("it fits");
    let mut draws = Seed(2).stream("hits", 0);
    let mut times = Vec::new();
    let (mut most, mut bypassed, mut moved, mut lost) = (0, 0, 0, 0);
    for _ in 0..2_000 {
        let mut faults = base.clone();
        faults.nodes.insert(NodeId(draws.random_range(0..nodes)));
        let mut change = Change::default();
        times.push(best(|| {
            let mut next = layout.clone();
            let start = Instant::now();
            change = replan(&fabric, &Survey::new(&fabric.hbd, &faults), &mut next);
            start.elapsed()
        }));
        most = most.max(change.bundles.len());
        for group in &change.groups {
            match group {
                GroupChange::Bypassed { .. } => bypassed += 1,
                GroupChange::Moved { .. } => moved += 1,
                GroupChange::Lost { job: Some(_), .. } => lost += 1,
                GroupChange::Lost { .. } | GroupChange::Formed { .. } => {}
            }
        }
    }
    times.sort_unstable();
    let micros =
        |quantile: f64| times[(times.len() as f64 * quantile) as usize].as_secs_f64() * 1e6;
    println!(
        "replan after one node fault, 131072 GPUs, K=3, job {:.0} %: p50 {:.0} µs, p99 {:.0} µs, max {:.0} µs; \
         at most {most} bundles change (2K = 6); {bypassed} bypassed, {moved} moved to a spare, {lost} lost",
        share * 100.0,
        micros(0.5),
        micros(0.99),
        micros(0.9995),
    );
}

fn main() {
    for gpus in [16_384, 32_768, 65_536, 131_072] {
        cold_plan(gpus, JobSize::All);
    }
    cold_plan(131_072, JobSize::Gpus(u64::from(131_072 * 3_u32 / 4)));
    replans(0.85);
    replans(0.60);
    replans(1.00);
    for gpus in [262_144, 524_288, 1_048_576] {
        cold_plan(gpus, JobSize::All);
    }
}
