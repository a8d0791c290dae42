// SPDX-License-Identifier: Apache-2.0
//! What the network interfaces of one GPU need at least for a phase, against closed forms.

use crate::joint_fabric;
use joint_fabric::{fabric, faults};
use lightloom_planner::check::check;
use lightloom_planner::{Options, plan};

/// Weights of llama-3.1-8b, two bytes each.
const WEIGHT_BYTES: f64 = 8_030_261_248.0 * 2.0;

#[test]
fn gradients_of_a_ring_of_replicas_need_what_one_interface_sends() {
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
        // Every rank sends 2 (n − 1) / n of its share of the weights to the next, below a leaf or not.
        let ring = 2.0 * f64::from(dp - 1) / f64::from(dp) * WEIGHT_BYTES / f64::from(4 * pp);
        let expected = ring * 8.0 / rate;
        let said = made.phases[1].interface_ps.expect("ranks are known").as_secs_f64();
        assert!((said / expected - 1.0).abs() < 1e-6, "pp {pp}, dp {dp}: {said} s, {expected} s");
        // The checker derives it again; plans of earlier versions do not have it.
        let stated = made.phases[1].interface_ps.take();
        assert!(check(&fabric, &none, &made).is_ok());
        made.phases[1].interface_ps = stated.map(|time| time * 2);
        assert!(check(&fabric, &none, &made).is_err());
    }
}
