// SPDX-License-Identifier: Apache-2.0
//! Joint plans of rings, ranks and circuits, compared with the checker, closed forms and a naive
//! oracle.

use crate::joint_fabric;
use std::collections::BTreeSet;

use joint_fabric::{fabric, faults};
use lightloom_fabric::document::{Style, render};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::Plan;
use lightloom_planner::check::check;
use lightloom_planner::joint::{ReplanError, replan};
use lightloom_planner::rfabric::one_hop::Effort;
use lightloom_planner::{Options, PlanError, load, plan};
use lightloom_testkit::cases;
use lightloom_units::seed::Seed;
use rand::RngExt;

fn proven(fabric: &Fabric, faults: &FaultSet, options: Options) -> Result<Plan, PlanError> {
    let plan = plan(fabric, faults, options)?;
    if let Err(found) = check(fabric, faults, &plan) {
        panic!(
            "{}: {}",
            fabric.name,
            found.iter().take(9).map(|v| format!("\n  {v}")).collect::<String>()
        );
    }
    Ok(plan)
}

const POD: &str = include_str!("../../../topologies/pod-2048.yaml");

#[test]
fn plans_a_pod_as_one_fabric_around_faults_in_both_halves() {
    let fabric = fabric(POD);
    let faults = faults(&fabric, &["n17", "n23/b1", "n40/b0.1", "ocs3", "ocs5/p17", "l5/up2"]);
    let plan = proven(&fabric, &faults, Options::default()).unwrap();
    assert_eq!(plan.metrics.gpus_used, 1920);
    assert_eq!(plan.phases.len(), 2);
    assert!(plan.phases.iter().all(|phase| phase.circuits.iter().all(|at| at.ocs.0 != 3)));
    let (gain, bound) = (
        plan.metrics.orchestration_gain.unwrap(),
        plan.metrics.orchestration_gain_upper_bound.unwrap(),
    );
    assert!(0.0 < gain && gain <= bound && bound <= 1.0, "{gain} {bound}");
}

const MAPPING: &str = "{model: llama-3.1-70b, pp: 2, dp: 4, micro_batches: 4, tokens: 4096}";

fn combinations() -> Vec<(String, String)> {
    let domains = [
        ("k-hop", "{khop: {nodes: 64, gpus_per_node: 4, k: 3}}"),
        ("k-hop line", "{khop: {nodes: 64, gpus_per_node: 4, k: 2, shape: line}}"),
        ("switch domain", "{switch: {nodes: 64, gpus_per_node: 4, gpus: 32}}"),
        ("large switch domain", "{switch: {nodes: 64, gpus_per_node: 4, gpus: 128}}"),
        ("torus cube", "{torus: {nodes: 64, gpus_per_node: 4, gpus: 64}}"),
        ("none", "{none: {nodes: 64, gpus_per_node: 4}}"),
    ];
    let core = "{rate_per_leaf: 3.2Tbps, oversubscription: 8}";
    let optical = |core: &str| {
        format!(
            "{{reconfigurable_fat_tree: {{leaves: 16, gpus_per_leaf: 16, circuit_rate: 400Gbps, electrical: {core}, \
             banks: [{{name: core, switches: 8, ports_per_switch: 32, ports_per_leaf: 2}}], timing: {{switching: 10ms}}}}}}"
        )
    };
    let networks = [
        (
            "fat-tree",
            "{fat_tree: {nodes_per_tor: 4, tors_per_domain: 8, oversubscription: 3}}".to_owned(),
        ),
        (
            "fat-tree, core and interfaces",
            "{fat_tree: {nodes_per_tor: 4, tors_per_domain: 4, core_oversubscription: 4, nics_per_gpu: 2}}".to_owned(),
        ),
        ("leaf-spine", "{leaf_spine: {nodes_per_leaf: 8, oversubscription: 2}}".to_owned()),
        ("rails", "{rails: {nodes_per_group: 16, planes: 2, oversubscription: 3}}".to_owned()),
        ("dragonfly", "{dragonfly: {groups: 4, leaves_per_group: 4}}".to_owned()),
        ("torus", "{torus: {sides: [4, 2, 2], cables: 2}}".to_owned()),
        (
            "graph",
            "{graph: {leaves: 3, nodes_per_leaf: 24, links: [{endpoints: [leaf0, leaf1], cables: 4}, {endpoints: [leaf2, leaf1]}]}}".to_owned(),
        ),
        ("optical", optical(core)),
        ("optical, hardly a core", optical("{rate_per_leaf: 100Gbps, oversubscription: 1}")),
    ];
    let mut files = Vec::new();
    for (hbd_name, hbd) in domains {
        for (dcn_name, dcn) in &networks {
            let name = format!("{hbd_name} below {dcn_name}");
            let text = format!(
                "kind: fabric\nversion: 2\nname: x\nhbd: {hbd}\ndcn: {dcn}\njobs:\n  - {{name: j, gpus: 64, tp: 8, step: \
                 {{training: {MAPPING}}}}}\n"
            );
            files.push((name, text));
        }
    }
    files
}

#[test]
fn plans_every_combination_around_a_failed_node() {
    let combinations = combinations();
    assert!(combinations.len() >= 12);
    for (name, text) in combinations {
        let fabric = fabric(&text);
        for broken in [&[][..], &["n9"][..]] {
            let faults = faults(&fabric, broken);
            let plan = proven(&fabric, &faults, Options::default())
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(plan.metrics.gpus_used, 64, "{name}");
            assert_eq!(plan.phases.len(), 2, "{name}");
            conserved(&plan, &name);
        }
    }
}

/// Rings, leaves and links between leaves must together carry exactly the textbook traffic for
/// Llama 3.1 70B with tp 8, pp 2, dp 4, cp 1 and four micro-batches of 4,096 tokens.
fn conserved(plan: &Plan, name: &str) {
    let residual = 8192.0 * 2.0 * 4096.0;
    let tensor = 64.0 * (2.0 * 7.0 / 8.0) * 4.0 * (80.0 / 2.0) * 4.0 * residual;
    let pipeline = 2.0 * 32.0 * residual * 4.0 / 8.0;
    let weights = 70.6e9 * 2.0;
    let gradients = 64.0 * (2.0 * 3.0 / 4.0) * weights / 16.0;
    for (phase, expected, tolerance) in
        [(&plan.phases[0], tensor + pipeline, 1e-9), (&plan.phases[1], gradients, 2e-3)]
    {
        let sent = (phase.ring_bytes.0 + phase.leaf_bytes.0 + phase.demand_bytes.0) as f64;
        assert!(
            (sent / expected - 1.0).abs() < tolerance,
            "{name}: {} {sent} {expected}",
            phase.name
        );
    }
}

fn random_file(draws: &mut impl RngExt) -> String {
    let per_node = [2_u32, 4, 8][draws.random_range(0..3)];
    let nodes_per_leaf = draws.random_range(1..=4_u32);
    let leaves = draws.random_range(2..=8_u32);
    let nodes = leaves * nodes_per_leaf;
    let tp = per_node * draws.random_range(1..=2.min(nodes_per_leaf));
    let hbd = match draws.random_range(0..4) {
        0 => {
            let k = draws.random_range(2..=per_node.min(4));
            let shape = ["ring", "line"][draws.random_range(0..2)];
            format!(
                "{{khop: {{nodes: {nodes}, gpus_per_node: {per_node}, k: {k}, shape: {shape}}}}}"
            )
        }
        1 => format!("{{switch: {{nodes: {nodes}, gpus_per_node: {per_node}, gpus: {}}}}}", tp * 2),
        2 => format!("{{torus: {{nodes: {nodes}, gpus_per_node: {per_node}, gpus: {tp}}}}}"),
        _ => format!("{{none: {{nodes: {nodes}, gpus_per_node: {per_node}}}}}"),
    };
    let dcn = if draws.random_bool(0.15) {
        format!(
            "{{rails: {{nodes_per_group: {nodes_per_leaf}, planes: {}}}}}",
            draws.random_range(1..=3)
        )
    } else if draws.random_bool(0.2) {
        let cables = draws.random_range(1..=2);
        if leaves.is_multiple_of(2) && leaves > 2 {
            format!(
                "{{dragonfly: {{groups: 2, leaves_per_group: {}, cables_between_groups: {cables}, nodes_per_leaf: {nodes_per_leaf}}}}}",
                leaves / 2
            )
        } else {
            format!(
                "{{torus: {{sides: [{leaves}], cables: {cables}, nodes_per_leaf: {nodes_per_leaf}}}}}"
            )
        }
    } else if draws.random_bool(0.2) {
        format!("{{fat_tree: {{nodes_per_tor: {nodes_per_leaf}, tors_per_domain: 4}}}}")
    } else {
        let ports = 2 * draws.random_range(1..=2_u32);
        format!(
            "{{reconfigurable_fat_tree: {{leaves: {leaves}, gpus_per_leaf: {}, circuit_rate: 400Gbps, electrical: {{rate_per_leaf: \
             400Gbps, oversubscription: 2}}, banks: [{{name: core, switches: {}, ports_per_switch: {}, ports_per_leaf: {ports}}}], \
             timing: {{switching: 10ms}}}}}}",
            nodes_per_leaf * per_node,
            draws.random_range(1..=6),
            ports * leaves,
        )
    };
    let groups = nodes * per_node / tp;
    let pp = draws.random_range(1..=2.min(groups));
    let cp = draws.random_range(1..=2.min(groups / pp));
    let dp = draws.random_range(1..=(groups / pp / cp));
    let model = ["llama-3.1-70b", "mixtral-8x7b"][draws.random_range(0..2)];
    let ep = if model == "mixtral-8x7b" && dp % 2 == 0 { 2 } else { 1 };
    format!(
        "kind: fabric\nversion: 2\nname: random\nhbd: {hbd}\ndcn: {dcn}\njobs:\n  - name: j\n    gpus: {}\n    tp: {tp}\n    \
         step: {{training: {{model: {model}, pp: {pp}, cp: {cp}, dp: {dp}, ep: {ep}, tokens: 4096}}}}\n",
        tp * pp * cp * dp
    )
}

fn random_faults(fabric: &Fabric, draws: &mut impl RngExt) -> FaultSet {
    let mut faults = FaultSet::none();
    for _ in 0..draws.random_range(0..4) {
        let node = draws.random_range(0..fabric.hbd.nodes());
        let (ocs, port) = (draws.random_range(0..8), draws.random_range(0..16));
        let (leaf, uplink) = (draws.random_range(0..8), draws.random_range(0..2));
        let name = match draws.random_range(0..6) {
            0 => format!("n{node}"),
            1 => format!("n{node}/b0"),
            2 => format!("n{node}/b0.1"),
            3 => format!("ocs{ocs}"),
            4 => format!("l{leaf}/up{uplink}"),
            _ => format!("ocs{ocs}/p{port}"),
        };
        // Parts that the fabric lacks are rejected and do not add a fault.
        let _ = faults.insert(fabric, name.parse().expect("a part"));
    }
    faults
}

/// Uses only the document: no GPU or switch port occurs twice, no failed part is used, every rank
/// of the mapping occurs once, and every port belongs to the stated leaf.
fn naive_oracle(fabric: &Fabric, faults: &FaultSet, plan: &Plan) {
    let mut gpus = BTreeSet::new();
    let mut ranks = BTreeSet::new();
    for rank in &plan.ranks {
        assert!(gpus.insert(rank.gpu), "{} twice", rank.gpu);
        assert!(!faults.nodes.contains(&rank.gpu.node), "{} is broken", rank.gpu);
        if rank.job.is_some() {
            assert!(ranks.insert((rank.tp, rank.pp, rank.cp, rank.dp)));
        }
    }
    let last = ranks.iter().fold((0, 0, 0, 0), |last, rank| {
        (last.0.max(rank.0), last.1.max(rank.1), last.2.max(rank.2), last.3.max(rank.3))
    });
    let all = (last.0 + 1) * (last.1 + 1) * (last.2 + 1) * (last.3 + 1);
    assert!(ranks.is_empty() || all as usize == ranks.len());
    let per_leaf = u64::from(fabric.dcn.nodes_per_tor());
    for phase in &plan.phases {
        let mut ports = BTreeSet::new();
        for at in &phase.circuits {
            assert!(!faults.switches.contains(&at.ocs));
            for (port, leaf) in [(at.a_port, at.a), (at.b_port, at.b)] {
                assert!(ports.insert((at.ocs, port)), "{} p{port} twice", at.ocs);
                let spec = fabric.dcn.circuits().expect("circuits are on switches").spec();
                assert_eq!(port / spec.banks[0].ports_per_leaf, leaf.0);
                assert!(
                    faults.ocs_ports.iter().all(|dead| (dead.ocs, dead.port) != (at.ocs, port))
                );
                assert!(u64::from(leaf.0) * per_leaf < u64::from(fabric.hbd.nodes()) + per_leaf);
            }
        }
    }
}

/// Adds faults one at a time, then repairs everything. Every plan must pass the checks, and groups
/// keep their identifiers.
fn replanned(
    fabric: &Fabric,
    first: &Plan,
    faults: &FaultSet,
    draws: &mut impl RngExt,
    options: Options,
) {
    let more = random_faults(fabric, draws);
    let mut all = faults.clone();
    for part in more.parts(fabric) {
        all.insert(fabric, part).expect("the fabric has it");
    }
    let mut before = first.clone();
    for (faults, is_repair) in [(all, false), (FaultSet::none(), true)] {
        let next = match replan(fabric, &before, &faults, is_repair, options) {
            Ok(next) => next.plan,
            Err(ReplanError::Plan(PlanError::Network(_))) => return,
            Err(error) => panic!("{}: {error}", fabric.name),
        };
        if let Err(found) = check(fabric, &faults, &next) {
            panic!("{:?}: {found:?}", faults.parts(fabric));
        }
        naive_oracle(fabric, &faults, &next);
        for group in &next.groups {
            let nodes = |plan: &Plan| {
                let same = plan.groups.iter().find(|other| other.id == group.id);
                same.map(|group| group.nodes.clone())
            };
            let is_hit = |node| faults.parts(fabric).iter().any(|part| part.node() == Some(node));
            let was = nodes(&before);
            let is_moved = was.as_ref().is_some_and(|was| *was != group.nodes);
            // A fibre or bundle between two nodes affects both of their groups.
            let may_move =
                was.is_some_and(|was| was.into_iter().any(is_hit)) || !faults.fibres.is_empty();
            assert!(!is_moved || may_move, "{} moved", group.id);
        }
        before = next;
    }
}

#[test]
fn random_fabrics_with_faults_have_only_valid_plans() {
    let effort = Effort { bisections: 6, exchanges: 100, gap: 1e-3 };
    let options = Options { effort, compare: false, ..Options::default() };
    let mut planned = 0;
    let cases = cases(250, 1_000);
    for case in 0..cases {
        let mut draws = Seed(7).stream("joint.random_fabrics", case);
        let text = random_file(&mut draws);
        let fabric = fabric(&text);
        let faults = random_faults(&fabric, &mut draws);
        match proven(&fabric, &faults, options) {
            Ok(plan) => {
                naive_oracle(&fabric, &faults, &plan);
                replanned(&fabric, &plan, &faults, &mut draws, options);
                planned += 1;
            }
            // The leaf's only uplink has failed.
            Err(PlanError::Network(_)) if !faults.uplinks.is_empty() => {}
            Err(PlanError::Groups(_) | PlanError::Mapping(_)) => {
                assert!(!faults.is_empty() || !text.contains("none:"), "{text}");
            }
            Err(error) => panic!("{error}\n{text}"),
        }
    }
    assert!(planned > cases / 2, "{planned} of {cases} were planned");
}

/// Photonic rails have only circuits. No single topology serves both phases in one hop.
#[test]
fn photonic_rails_change_circuits_between_phases() {
    let text = "kind: fabric\nversion: 2\nname: rails\ndcn:\n  reconfigurable_fat_tree:\n    leaves: 4\n    gpus_per_leaf: 8\n    \
                circuit_rate: 400Gbps\n    electrical: {rate_per_leaf: 0bps, oversubscription: 1}\n    banks: [{name: b, switches: 1, \
                ports_per_switch: 8, ports_per_leaf: 2}]\n    timing: {switching: 1ms}\njobs:\n  - name: j\n    step:\n      phases:\n        \
                - {name: a, demand: {matrix: [[0,1e9,1e9,0],[1e9,0,0,1e9],[1e9,0,0,1e9],[0,1e9,1e9,0]]}}\n        \
                - {name: b, demand: {matrix: [[0,1e9,0,1e9],[1e9,0,1e9,0],[0,1e9,0,1e9],[1e9,0,1e9,0]]}}\n        \
                - {name: c, demand: {matrix: [[0,0,1e9,1e9],[0,0,1e9,1e9],[1e9,1e9,0,0],[1e9,1e9,0,0]]}}\n";
    let fabric = fabric(text);
    let plan = proven(&fabric, &FaultSet::none(), Options::default()).unwrap();
    assert_eq!(plan.metrics.static_step_time_ps, None);
    assert!(plan.transitions.len() >= 2);
}

#[test]
fn rejects_a_group_larger_than_the_fabric_when_reading() {
    let text = "kind: fabric\nversion: 2\nname: x\nhbd: {khop: {nodes: 12, gpus_per_node: 4, k: 2}}\njobs: [{name: j, tp: 1024}]\n";
    let (fabric, mistakes) = load("f.yaml", text.as_bytes(), &mut |_| Err(String::new()));
    let shown = render(&mistakes, Style::Plain);
    assert!(fabric.is_none() && shown.contains("use at most 48"), "{shown}");
}

#[test]
fn rejects_oversized_fabrics_before_planning() {
    let of = |nodes: u32| {
        fabric(&format!(
            "kind: fabric\nversion: 2\nname: huge\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: 2}}}}\n"
        ))
    };
    let refused = plan(&of(1_048_577), &FaultSet::none(), Options::default());
    assert_eq!(refused.unwrap_err(), PlanError::TooLarge(4_194_308));
}

#[test]
fn leaf_spine_keeps_the_name_from_its_file() {
    let of = |dcn: &str| {
        fabric(&format!(
            "kind: fabric\nversion: 2\nname: named\nhbd: {{khop: {{nodes: 8, gpus_per_node: 4, k: 2}}}}\ndcn: {{{dcn}}}\n"
        ))
    };
    assert_eq!(of("leaf_spine: {nodes_per_leaf: 4}").dcn.name(), "leaf-spine");
    assert_eq!(of("leaf_spine: {oversubscription: 2}").dcn.name(), "leaf-spine, 2:1");
    assert_eq!(of("fat_tree: {nodes_per_tor: 4}").dcn.name(), "fat-tree");
}

/// The planner falls back to the separate plan, so the gain is never negative.
#[test]
fn joint_planning_is_never_slower_than_separate_planning() {
    for (leaves, below, ports) in [(4, 3, 2), (5, 2, 2), (4, 4, 4), (6, 2, 2), (5, 3, 2)] {
        let gpus = leaves * below;
        for (pp, dp) in [(2, 5), (2, 4), (3, 3), (4, 2), (5, 2)] {
            if pp * dp > gpus {
                continue;
            }
            let text = format!(
                "
kind: fabric
version: 2
name: alone
hbd: {{none: {{nodes: {gpus}, gpus_per_node: 1}}}}
dcn:
  reconfigurable_fat_tree:
    leaves: {leaves}
    gpus_per_leaf: {below}
    circuit_rate: 400Gbps
    gpu_rate: 800Gbps
    electrical: {{rate_per_leaf: 0bps, oversubscription: 1}}
    banks: [{{name: a, switches: 3, ports_per_switch: 16, ports_per_leaf: {ports}}}]
    timing: {{control: 1ms, switching: 10ms}}
jobs:
  - name: j
    gpus: {}
    tp: 1
    step: {{training: {{model: llama-3.1-8b, pp: {pp}, dp: {dp}, micro_batches: 32, tokens: 4096, gradient_slack: 100ms, micro_batch_slack: 100ms}}}}
",
                pp * dp
            );
            let fabric = fabric(&text);
            let Ok(plan) = plan(&fabric, &FaultSet::default(), Options::default()) else {
                continue;
            };
            let gain = plan.metrics.orchestration_gain.expect("a placed step");
            println!("{leaves} leaves of {below}, {ports} ports, PP {pp}, DP {dp}: {gain}");
            assert!(gain >= 0.0, "{leaves} leaves of {below}, PP {pp}, DP {dp}: {gain}");
        }
    }
}
