// SPDX-License-Identifier: Apache-2.0
//! More equipment never makes a plan slower: drawn pairs of fabrics, of which one has everything that the other has.

use crate::joint_fabric::{fabric, faults};
use lightloom_planner::{Options, plan};
use lightloom_testkit::cases;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

/// Routes are computed to half a percent.
const TOLERANCE: f64 = 1.005;

#[derive(Clone)]
struct Drawn {
    leaves: u32,
    nodes_per_leaf: u32,
    core: u32,
    oversubscription: u32,
    switches: u32,
    ports: u32,
    k: u32,
    /// The traffic of a phase between leaves, or the job's step.
    step: String,
    faults: Vec<String>,
}

impl Drawn {
    fn matrix(draws: &mut Stream) -> Self {
        let leaves = draws.random_range(4..=8_u32);
        let entry = |from: u32, to: u32, draws: &mut Stream| match from == to
            || draws.random_range(0..3_u32) == 0
        {
            true => "0".to_owned(),
            false => (1_000_000_000_u64 * draws.random_range(1..=8_u64)).to_string(),
        };
        let mut rows = Vec::new();
        for from in 0..leaves {
            let row: Vec<String> = (0..leaves).map(|to| entry(from, to, draws)).collect();
            rows.push(row.join(", "));
        }
        let step = format!("phases: [{{name: p, demand: {{matrix: [[{}]]}}}}]", rows.join("], ["));
        Self { leaves, step: format!("step: {{{step}}}"), ..Self::network(draws) }
    }

    fn training(draws: &mut Stream) -> Self {
        let network = Self::network(draws);
        let (pp, spare) = (draws.random_range(1..=2_u32), draws.random_range(1..=3_u32));
        let dp = ((network.leaves * network.nodes_per_leaf - spare) / (2 * pp)).max(1);
        let step = format!(
            "gpus: {}, tp: 8, step: {{training: {{model: llama-3.1-8b, pp: {pp}, dp: {dp}, micro_batches: 8, tokens: 4096, \
             gradient_slack: 1s}}}}",
            8 * pp * dp,
        );
        Self { step, ..network }
    }

    fn network(draws: &mut Stream) -> Self {
        let nodes_per_leaf = draws.random_range(2..=4_u32);
        Self {
            leaves: draws.random_range(4..=8_u32),
            nodes_per_leaf,
            core: 400 * nodes_per_leaf,
            oversubscription: [2, 8, 32][draws.random_range(0..3_usize)],
            switches: draws.random_range(1..=2_u32),
            ports: 2 * draws.random_range(1..=2_u32),
            k: 2,
            step: String::new(),
            faults: Vec::new(),
        }
    }

    /// Returns the seconds of the planned step. `None` if the job does not fit.
    fn seconds(&self) -> Option<f64> {
        let domain = match self.step.starts_with("gpus") {
            true => format!(
                "hbd: {{khop: {{nodes: {}, gpus_per_node: 4, k: {}}}}}\n",
                self.leaves * self.nodes_per_leaf,
                self.k
            ),
            false => String::new(),
        };
        let text = format!(
            "kind: fabric\nversion: 2\nname: m\n{domain}dcn:\n  reconfigurable_fat_tree:\n    leaves: {}\n    gpus_per_leaf: {}\n    \
             circuit_rate: 400Gbps\n    electrical: {{rate_per_leaf: {}Gbps, oversubscription: {}}}\n    \
             banks: [{{name: b, switches: {}, ports_per_switch: {}, ports_per_leaf: {}}}]\n    \
             timing: {{control: 1ms, switching: 10ms}}\njobs: [{{name: j, {}}}]\n",
            self.leaves,
            4 * self.nodes_per_leaf,
            self.core,
            self.oversubscription,
            self.switches,
            self.leaves * self.ports,
            self.ports,
            self.step
        );
        let fabric = fabric(&text);
        let names: Vec<&str> = self.faults.iter().map(String::as_str).collect();
        let plan = plan(&fabric, &faults(&fabric, &names), Options::default()).ok()?;
        plan.metrics.step_time_ps.map(|time| time.as_secs_f64())
    }
}

fn pair(number: u32, draws: &mut Stream) -> (&'static str, Drawn, Drawn) {
    let smaller = if number % 10 < 5 { Drawn::matrix(draws) } else { Drawn::training(draws) };
    let with = smaller.clone();
    let (name, larger) = match number % 10 {
        0 | 5 => ("one more switch", Drawn { switches: with.switches + 1, ..with }),
        1 => ("twice the switches", Drawn { switches: 2 * with.switches, ..with }),
        2 | 6 => ("two more ports", Drawn { ports: with.ports + 2, ..with }),
        3 | 7 => (
            "half the oversubscription",
            Drawn { oversubscription: with.oversubscription / 2, ..with },
        ),
        4 => ("twice the core", Drawn { core: 2 * with.core, ..with }),
        8 => ("more reach", Drawn { k: 3, ..with }),
        _ => {
            let node = draws.random_range(0..with.leaves * with.nodes_per_leaf);
            let faults = vec![format!("n{node}")];
            return ("a repaired node", Drawn { faults, ..with }, smaller);
        }
    };
    (name, smaller, larger)
}

/// Returns the number of pairs with two plans, and the pairs whose larger fabric is slower.
pub(crate) fn compare(pairs: u32) -> (usize, Vec<String>) {
    let mut draws = Seed(714).stream("monotone", 0);
    let (mut compared, mut slower) = (0, Vec::new());
    for number in 0..pairs {
        let (what, smaller, larger) = pair(number, &mut draws);
        let Some(before) = smaller.seconds() else { continue };
        let after = larger.seconds().unwrap_or(f64::INFINITY);
        compared += 1;
        if after > before * TOLERANCE {
            slower.push(format!("{number}: {what}: {before:.6} s, then {after:.6} s"));
        }
    }
    (compared, slower)
}

#[test]
fn more_equipment_is_never_slower() {
    let (compared, slower) = compare(cases(8, 500));
    println!("{compared} pairs, {} slower: {slower:?}", slower.len());
    // Estimates ignore some routes, so that groups can be worse on the larger fabric: one of 500 pairs.
    assert!(compared > 0 && slower.len() * 400 <= compared, "{}", slower.join("\n"));
}
