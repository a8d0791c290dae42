// SPDX-License-Identifier: Apache-2.0

use crate::joint_fabric;
use joint_fabric::{fabric, faults};
use lightloom_planner::check::check;
use lightloom_planner::khop::Method;
use lightloom_planner::rfabric::exact::Limits;
use lightloom_planner::{Options, plan};

/// The exact method for rings ignores leaves, so its placement is bad for the step. Solving phases
/// separately changes more circuits than is worthwhile.
#[test]
fn exact_methods_never_make_a_step_slower() {
    let fabric = fabric(
        "
kind: fabric
version: 2
name: exact-step
hbd: {khop: {nodes: 18, gpus_per_node: 4, k: 3, shape: line}}
dcn:
  reconfigurable_fat_tree:
    leaves: 6
    gpus_per_leaf: 12
    circuit_rate: 100Gbps
    gpu_rate: 100Gbps
    electrical: {rate_per_leaf: 200Gbps, oversubscription: 2}
    banks: [{name: a, switches: 2, ports_per_leaf: 2, ports_per_switch: 12}]
    timing: {control: 1ms, switching: 10ms}
jobs:
  - name: j
    gpus: 48
    tp: 12
    step:
      training:
        {model: llama-3.1-8b, pp: 2, dp: 2, micro_batches: 32, tokens: 4096, micro_batch_slack: 100ms, gradient_slack: 100ms}
",
    );
    for broken in [&["n3"][..], &["n4"], &["n9"]] {
        let broken = faults(&fabric, broken);
        let searched = plan(&fabric, &broken, Options::default()).expect("a plan");
        let exact = Options {
            method: Method::Exact,
            exact: Some(Limits { gap: 1e-3, seconds: 20.0 }),
            ..Options::default()
        };
        let exact = plan(&fabric, &broken, exact).expect("a plan");
        check(&fabric, &broken, &exact).expect("a sound plan");
        assert!(exact.jobs[0].most_rings.is_some());
        assert!(
            exact.metrics.step_time_ps <= searched.metrics.step_time_ps,
            "{:?} {:?}",
            exact.metrics.step_time_ps,
            searched.metrics.step_time_ps
        );
    }
}

#[test]
fn plans_reach_a_proven_rate() {
    let fabric = fabric(
        "
kind: fabric
version: 2
name: proven-rate
dcn:
  reconfigurable_fat_tree:
    leaves: 4
    gpus_per_leaf: 4
    circuit_rate: 100Gbps
    electrical: {rate_per_leaf: 0bps, oversubscription: 1}
    banks: [{name: a, switches: 1, ports_per_leaf: 2, ports_per_switch: 8}]
    timing: {control: 1ms, switching: 10ms}
jobs:
  - name: j
    step:
      phases:
        - name: a
          demand: {matrix: [[0, 3000000, 0, 0], [0, 0, 3000000, 0], [0, 0, 0, 3000000], [1000000, 0, 1000000, 0]]}
",
    );
    let none = faults(&fabric, &[]);
    let exact = Options { exact: Some(Limits { gap: 1e-3, seconds: 20.0 }), ..Options::default() };
    let exact = plan(&fabric, &none, exact).expect("a plan");
    let proven = exact.phases[0].solver.as_ref().and_then(|solver| solver.lambda).expect("a rate");
    assert!(exact.phases[0].lambda >= 0.99 * proven, "{} {proven}", exact.phases[0].lambda);
}

#[test]
fn infeasible_step_error_names_the_leaf_and_its_shortage() {
    let text = |electrical: &str, more: &str, jobs: &str| {
        format!(
            "
kind: fabric
version: 2
name: stuck
hbd: {{none: {{nodes: 10, gpus_per_node: 2}}}}
dcn:
  reconfigurable_fat_tree:
    leaves: 5
    gpus_per_leaf: 4
    circuit_rate: 400Gbps
    electrical: {{rate_per_leaf: {electrical}, oversubscription: 1}}
    banks: [{{name: a, switches: 1, ports_per_leaf: 2, ports_per_switch: 10, insertion_loss_db: 1.5}}]
    timing: {{control: 1ms, switching: 10ms}}
{more}jobs:
{jobs}"
        )
    };
    let job = |name: &str, gpus: u32| {
        format!(
            "  - {{name: {name}, gpus: {gpus}, tp: 2, step: {{training: {{model: llama-3.1-8b, tokens: 4096}}}}}}\n"
        )
    };
    let refused = |text: &str| {
        let fabric = fabric(text);
        let refused = plan(&fabric, &faults(&fabric, &[]), Options::default());
        refused.expect_err("nothing carries it").to_string()
    };
    let few_ports = fabric(&text("0bps", "", &(job("a", 14) + &job("b", 6))));
    let relayed = plan(&few_ports, &faults(&few_ports, &[]), Options::default()).expect("a plan");
    assert!(relayed.phases.iter().any(|phase| !phase.routes.is_empty()));
    let loss = "    loss: {budget_db: 3.0, path_db: 1.0, extra_db: [{leaf: leaf0, db: 1.0}]}\n";
    let too_lossy = refused(&text("0bps", loss, &job("j", 8)));
    assert!(
        too_lossy.contains("the best path has a loss of 3.5 dB, above the budget of 3.0"),
        "{too_lossy}"
    );
}
