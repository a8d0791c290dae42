// SPDX-License-Identifier: Apache-2.0
//! Compares the processor time of planning 16,384 GPUs with 3 % failed nodes and of replanning
//! after one more fault.
//!
//! `cargo bench -p lightloom-planner --bench joint`

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::time::Instant;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_planner::check::check;
use lightloom_planner::joint::replan;
use lightloom_planner::{Options, load, plan};
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use rand::RngExt;

const NODES: u32 = 4096;

fn pod() -> Fabric {
    let text = format!(
        "kind: fabric\nversion: 2\nname: pod\nhbd: {{khop: {{nodes: {NODES}, gpus_per_node: 4, k: 3}}}}\ndcn:\n  \
         reconfigurable_fat_tree:\n    leaves: 512\n    gpus_per_leaf: 32\n    circuit_rate: 400Gbps\n    electrical: \
         {{rate_per_leaf: 12.8Tbps, oversubscription: 8}}\n    banks: [{{name: core, switches: 16, ports_per_switch: 1024, \
         ports_per_leaf: 2}}]\n    timing: {{control: 1ms, switching: 10ms}}\n    failure_domains: 4\njobs:\n  - name: j\n    gpus: \
         15360\n    tp: 32\n    step: {{training: {{model: llama-3.1-405b, pp: 6, dp: 80, micro_batches: 32, tokens: 8192, \
         gradient_slack: 60ms}}}}\n"
    );
    load("pod.yaml", text.as_bytes(), &mut |name| Err(name.to_owned())).0.expect("a good file")
}

fn main() {
    let fabric = pod();
    let mut draws = Seed(3).stream("bench.joint", 0);
    let mut faults = FaultSet::none();
    while faults.nodes.len() < NODES as usize * 3 / 100 {
        let node = Part::Node(NodeId(draws.random_range(0..NODES)));
        faults.insert(&fabric, node).expect("the fabric has it");
    }
    for (name, compare) in [("plan, each half alone beside it", true), ("plan", false)] {
        let options = Options { compare, ..Options::default() };
        let (made, seconds) = timed(|| plan(&fabric, &faults, options).expect("it fits"));
        println!("{name:<34} {seconds:>8.3} s");
        if compare {
            continue;
        }
        for part in ["n1", "n2000", "n4000/b0", "ocs3", "ocs7/p40", "l5/up2"] {
            let mut more = faults.clone();
            let is_new = more.insert(&fabric, part.parse().expect("a part")).expect("it is there");
            let (next, after) =
                timed(|| replan(&fabric, &made, &more, false, options).expect("there is one"));
            let verdict =
                if check(&fabric, &more, &next.plan).is_ok() { "proven" } else { "WRONG" };
            println!(
                "next plan after {part:<10} {:>15} s  {:>6.3} of planning anew, {} circuits made, {} bundles moved, {verdict}{}",
                format!("{after:.3}"),
                after / seconds,
                next.circuits_made,
                next.change.bundles.len(),
                if is_new { "" } else { " (was broken)" },
            );
        }
    }
}

fn timed<T>(make: impl Fn() -> T) -> (T, f64) {
    let once = || {
        let start = Instant::now();
        let made = make();
        (made, start.elapsed().as_secs_f64())
    };
    let (mut made, mut best) = once();
    for _ in 0..2 {
        let (again, seconds) = once();
        if seconds < best {
            (made, best) = (again, seconds);
        }
    }
    (made, best)
}
