// SPDX-License-Identifier: Apache-2.0
//! Measures plan quality and planning time for reconfigurable fat-trees.
//!
//! `cargo bench -p lightloom-planner --bench rfabric`

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a bench reads its own processor time")]

use std::process::ExitCode;

use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::evaluate::Evaluator;
use lightloom_planner::rfabric::exact::{self, Limits, Solver};
use lightloom_planner::rfabric::one_hop::{self, Effort};
use lightloom_planner::rfabric::realise::realise;
use lightloom_planner::rfabric::testing::{fabric, wired};
use lightloom_planner::rfabric::topology::Topology;
use lightloom_planner::rfabric::workload::shapes;
use lightloom_units::seed::Seed;
use rand::RngExt;

fn main() -> ExitCode {
    println!(
        "{:<12} {:>6} {:>6} {:>9} {:>9} {:>9}",
        "demand", "leaves", "ports", "gap", "mesh", "cpu_s"
    );
    type Shape = fn(usize, Seed) -> Demand;
    let shapes: [(&str, Shape, &[u32]); 4] = [
        ("moe", shapes::moe, &[16, 32, 64, 128, 1024]),
        ("moe one-way", shapes::moe_one_way, &[16, 32, 64, 128]),
        ("wsync", shapes::weight_sync, &[16, 32, 64, 128, 1024]),
        ("dense", shapes::dense, &[8, 16, 32, 64, 128]),
    ];
    for (name, shape, sizes) in shapes {
        for &leaves in sizes {
            let ports = (leaves / 2).min(64);
            one_hop_line(name, &fabric(leaves, ports), &shape(leaves as usize, Seed(1)));
        }
    }
    println!(
        "\n{:>6} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "leaves", "switches", "r", "swapped", "kept", "cpu_s"
    );
    for (leaves, ports) in [(16, 16), (32, 32), (64, 32), (128, 64)] {
        for r in [2, 4] {
            for swapped in [5, 20, 50, 100] {
                realise_line(leaves, ports, r, swapped);
            }
        }
    }
    ExitCode::SUCCESS
}

fn realise_line(leaves: u32, ports: u32, ports_per_switch: u32, swapped_percent: u64) {
    let fabric = wired(leaves, ports, ports_per_switch);
    let mut stream = Seed(1).stream("bench.realise", 0);
    let mut topology = Topology::uniform_mesh(&fabric);
    let mut swap = |topology: &mut Topology, times: u64| {
        let mut ends: Vec<(usize, usize)> = topology
            .pairs()
            .flat_map(|(pair, count)| vec![(pair.a.index(), pair.b.index()); count as usize])
            .collect();
        for _ in 0..times {
            let (x, y) = (stream.random_range(0..ends.len()), stream.random_range(0..ends.len()));
            let ((a, b), (c, d)) = (ends[x], ends[y]);
            if a != d && b != c && x != y {
                topology.remove(0, a, b);
                topology.remove(0, c, d);
                topology.add(a, d);
                topology.add(b, c);
                ends[x] = (a, d);
                ends[y] = (b, c);
            }
        }
    };
    let count = topology.count();
    swap(&mut topology, count * 2);
    let before = realise(&fabric, &topology, &[]).cross_connects;
    swap(&mut topology, count * swapped_percent / 200);
    let start = cpu_seconds();
    let after = realise(&fabric, &topology, &before);
    let seconds = cpu_seconds() - start;
    println!(
        "{leaves:>6} {:>8} {ports_per_switch:>8} {swapped_percent:>7}% {:>8.3} {seconds:>8.3}",
        fabric.switches(),
        after.kept as f64 / after.kept_upper_bound as f64,
    );
}

fn one_hop_line(name: &str, fabric: &ReconfigurableFatTree, demand: &Demand) {
    let start = cpu_seconds();
    let plan = one_hop::plan(fabric, demand, Effort::default());
    let seconds = cpu_seconds() - start;
    let mesh = Evaluator::new(fabric, demand).lambda(&Topology::uniform_mesh(fabric));
    println!(
        "{name:<12} {:>6} {:>6} {:>9.5} {:>9} {:>9.2} {seconds:>9.3}",
        fabric.leaves(),
        fabric.optical_ports(),
        plan.gap(),
        proven_gap(name, fabric, demand, plan.lambda),
        plan.lambda / mesh,
    );
}

/// Gap to the solver's bound, if the solver finishes within 20 s.
fn proven_gap(name: &str, fabric: &ReconfigurableFatTree, demand: &Demand, lambda: f64) -> String {
    if fabric.leaves() > 64 || name == "dense" {
        return "-".into();
    }
    let limits = Limits { gap: 1e-3, seconds: 20.0 };
    match exact::plan(fabric, demand, Solver::Microlp, limits) {
        Ok(exact) => format!("{:.5}", one_hop::gap(lambda, exact.plan.lambda_upper_bound)),
        Err(_) => "limit".into(),
    }
}

/// Processor time; wall time depends on other processes.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> =
        after_name.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // Field 2 is the process name; field 3, the state, is not parsed. utime and stime are fields 14
    // and 15.
    ticks.get(10).zip(ticks.get(11)).map_or(0.0, |(user, system)| (user + system) / 100.0)
}
