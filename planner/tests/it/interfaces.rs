// SPDX-License-Identifier: Apache-2.0
//! The minimum time of a phase at one GPU's network interfaces, compared with closed forms.

use crate::joint_fabric;
use joint_fabric::{fabric, faults};
use lightloom_fabric::plan::Plan;
use lightloom_planner::check::check;
use lightloom_planner::{Options, plan};

/// Weights of llama-3.1-8b at two bytes each.
const WEIGHT_BYTES: f64 = 8_030_261_248.0 * 2.0;

#[test]
fn gradients_of_a_replica_ring_take_one_interface_time() {
    for (pp, dp, per_leaf) in [(1_u32, 4_u32, 2), (1, 8, 4), (2, 4, 4), (2, 8, 8)] {
        let text = format!(
            "kind: fabric\nversion: 2\nname: x\nhbd: {{khop: {{nodes: 16, gpus_per_node: 4, k: 2}}}}\n\
             dcn: {{leaf_spine: {{nodes_per_leaf: {per_leaf}}}}}\n\
             jobs: [{{name: t, gpus: {}, tp: 4, step: {{training: {{model: llama-3.1-8b, pp: {pp}, dp: {dp}, \
             tokens: 4096}}}}}}]\n",
            4 * pp * dp
        );
        let fabric = fabric(&text);
        let none = faults(&fabric, &[]);
        let mut made = plan(&fabric, &none, Options::default()).expect("a plan");
        let rate = fabric.dcn.link_rate().0 as f64;
        // Every rank sends 2 (n − 1) / n of its share of the weights to the next, even below the
        // same leaf.
        let ring = 2.0 * f64::from(dp - 1) / f64::from(dp) * WEIGHT_BYTES / f64::from(4 * pp);
        let expected = ring * 8.0 / (0.96 * rate);
        let said = made.phases[1].interface_ps.expect("ranks are known").as_secs_f64();
        assert!((said / expected - 1.0).abs() < 1e-6, "pp {pp}, dp {dp}: {said} s, {expected} s");
        let took = made.phases[1].duration_ps.as_secs_f64();
        assert!((took / expected - 1.0).abs() < 1e-6, "leaves that do not block: {took} s");
        assert!(check(&fabric, &none, &made).is_ok());
        made.phases[1].interface_ps = made.phases[1].interface_ps.map(|time| time * 2);
        assert!(check(&fabric, &none, &made).is_err());
    }
}

/// GPU interfaces limit the gradients; the leaves' circuits would need half the time.
const HELD_UP: &str = "
kind: fabric
version: 2
name: j8
hbd: {khop: {nodes: 8, gpus_per_node: 2, k: 2}}
dcn:
  reconfigurable_fat_tree:
    leaves: 4
    gpus_per_leaf: 4
    circuit_rate: 400Gbps
    electrical: {rate_per_leaf: 800Gbps, oversubscription: 8}
    banks: [{name: b, switches: 2, ports_per_switch: 8, ports_per_leaf: 2}]
    timing: {control: 1ms, switching: 10ms}
jobs:
  - name: j
    gpus: 16
    tp: 4
    step: {training: {model: llama-3.1-8b, pp: 1, dp: 4, micro_batches: 8, tokens: 4096, gradient_slack: 10s}}
";

#[test]
fn interface_bound_plan_claims_no_gain() {
    for (share, text) in [(0.96, HELD_UP.to_owned()), (1.0, filling(1.0)), (0.5, filling(0.5))] {
        let fabric = fabric(&text);
        let none = faults(&fabric, &[]);
        let made = plan(&fabric, &none, Options::default()).expect("a plan");
        check(&fabric, &none, &made).expect("a sound plan");
        // A GPU sends 2 · 3/4 of a quarter of the weights at 400 Gbit/s.
        let expected = 1.5 * WEIGHT_BYTES / 4.0 * 8.0 / (share * 400e9);
        let took = made.phases[1].duration_ps.as_secs_f64();
        assert!((took / expected - 1.0).abs() < 1e-6, "{share}: {took} s, {expected} s");
        assert_eq!(made.metrics.orchestration_gain, Some(0.0), "{share}");
        assert_eq!(made.metrics.orchestration_gain_upper_bound, Some(0.0), "{share}");
        assert!(
            made.phases[1].gap.abs() < 1e-9,
            "the interfaces are the bound: {:?}",
            made.phases[1]
        );
    }
}

fn filling(share: f64) -> String {
    HELD_UP.replace("gradient_slack: 10s", &format!("usable_share: {share}"))
}

#[test]
fn checker_rejects_claims_that_interfaces_rule_out() {
    let fabric = fabric(HELD_UP);
    let none = faults(&fabric, &[]);
    let made = plan(&fabric, &none, Options::default()).expect("a plan");
    let refused = |change: &dyn Fn(&mut Plan), what: &str| {
        let mut plan = made.clone();
        change(&mut plan);
        let found = check(&fabric, &none, &plan).expect_err(what);
        let found: String = found.iter().map(|violation| format!("{violation}\n")).collect();
        assert!(found.contains(what), "{found}");
    };
    refused(&|plan| plan.phases[1].interface_ps = None, "interface_ps");
    refused(&|plan| plan.phases[1].lambda *= 2.0, "cannot be served");
    refused(&|plan| plan.phases[1].lambda_upper_bound *= 2.0, "the bound exceeds");
    refused(&|plan| plan.phases[1].duration_ps.0 /= 2, "duration of a phase");
    refused(
        &|plan| plan.metrics.orchestration_gain_upper_bound = Some(0.5),
        "orchestration_gain_upper_bound",
    );
}

#[test]
fn phase_below_one_leaf_takes_its_interface_time() {
    let optical = HELD_UP
        .replace("nodes: 8", "nodes: 16")
        .replace("leaves: 4", "leaves: 2")
        .replace("gpus_per_leaf: 4", "gpus_per_leaf: 16");
    let (head, tail) = optical.split_at(optical.find("  reconfigurable").expect("a network"));
    let jobs = &tail[tail.find("jobs:").expect("jobs")..];
    let packets = format!("{head}  leaf_spine: {{nodes_per_leaf: 8}}\n{jobs}");
    for dcn in [optical.clone(), packets.replace(", gradient_slack: 10s", "")] {
        let fabric = fabric(&dcn);
        let none = faults(&fabric, &[]);
        let made = plan(&fabric, &none, Options::default()).expect("a plan");
        check(&fabric, &none, &made).expect("a sound plan");
        let phase = &made.phases[1];
        assert_eq!((phase.demand_bytes.0, Some(phase.duration_ps)), (0, phase.interface_ps));
        assert!(phase.duration_ps.0 > 0 && phase.gap == 0.0 && phase.lambda > 0.0, "{phase:?}");
        assert_eq!(made.metrics.step_time_ps, Some(phase.duration_ps));
    }
}
