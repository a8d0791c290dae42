// SPDX-License-Identifier: Apache-2.0
//! Reads each export back with a reader that knows only the format, for random fabrics and faults.

#![allow(clippy::unwrap_used, reason = "a test")]

mod readers;

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::{Group, Plan};
use lightloom_planner::Options;
use lightloom_planner::khop::{self, Method};
use lightloom_report::export::{
    Export, ExportError, ExportFormat, ExportNames, FORMATS, FatTreePlan, RingPlan,
};
use lightloom_units::seed::Seed;
use proptest::prelude::*;
use readers::{Host, Rings};
use serde::Deserialize;

#[derive(Debug)]
struct Case {
    fabric: Fabric,
    plan: Plan,
    names: ExportNames,
}

impl Case {
    fn new(text: &str, faults: &[Part], template: &str) -> Option<Self> {
        let fabric = lightloom_fabric::file::load("fabric.yaml", text.as_bytes()).0?;
        let faults = FaultSet::of(&fabric, faults.iter().copied()).ok()?;
        let layout = khop::plan(&fabric, &faults, Method::Scan).ok()?;
        let plan = khop::to_document(&fabric, &faults, Seed(1), &layout);
        let names = ExportNames::from_template(template, fabric.hbd.nodes()).unwrap();
        Some(Self { fabric, plan, names })
    }

    fn export(&self, format: &str) -> Result<Export, ExportError> {
        let plan = RingPlan::new(&self.fabric, &self.plan, &self.names, None).unwrap();
        ExportFormat::named(format).unwrap().of_ring(&plan)
    }

    fn text(&self, format: &str) -> String {
        let mut export = self.export(format).unwrap();
        assert_eq!(export.files.len(), 1);
        export.files.remove(0).text
    }

    fn name(&self, node: lightloom_units::id::NodeId) -> String {
        self.names.of(node.index()).to_owned()
    }

    fn is_whole(&self, group: &Group) -> bool {
        group.ring.len() >= usize::from(self.fabric.hbd.gpus_per_node())
    }

    fn rings(&self) -> Rings {
        let whole = self.plan.groups.iter().filter(|group| self.is_whole(group));
        whole
            .map(|group| {
                let nodes = group.nodes.iter().map(|node| self.name(*node)).collect();
                (group.id.to_string(), nodes)
            })
            .collect()
    }

    fn hosts(&self) -> BTreeMap<String, Host> {
        let (dcn, hbd) = (&self.fabric.dcn, &self.fabric.hbd);
        let ring_of: BTreeMap<String, String> = self
            .rings()
            .into_iter()
            .flat_map(|(ring, hosts)| hosts.into_iter().map(move |host| (host, ring.clone())))
            .collect();
        let domains = hbd.nodes().div_ceil(dcn.nodes_per_tor() * dcn.tors_per_domain());
        (0..hbd.nodes())
            .map(lightloom_units::id::NodeId)
            .filter(|node| !self.plan.faults.contains(&Part::Node(*node)))
            .map(|node| {
                let tor = node.0 / dcn.nodes_per_tor();
                let mut above =
                    vec![format!("t{tor}"), format!("d{}", tor / dcn.tors_per_domain())];
                above.extend((domains > 1).then(|| "core".to_owned()));
                let name = self.name(node);
                let ring = ring_of.get(&name).cloned();
                (name, Host { above, ring })
            })
            .collect()
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let sizes = (2u32..60, prop_oneof![Just(2u8), Just(4)], 2u8..=3, 1u32..5, 1u32..4);
    let jobs = (prop_oneof![Just(2u32), Just(4), Just(8), Just(16)], 1u64..3, any::<bool>());
    let faults = prop::collection::vec((any::<u32>(), 0u8..8), 0..6);
    let template = prop_oneof![Just("n{}"), Just("gpu{:03}"), Just("a{}.pod-b")];
    (sizes, jobs, faults, template).prop_filter_map(
        "no plan",
        |((nodes, gpus, k, per_tor, tors), (tp, count, ring), faults, template)| {
            let k = k.min(gpus);
            let shape = if ring { "ring" } else { "line" };
            let text = format!(
                "kind: fabric\nversion: 2\nname: case\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: {gpus}, k: {k}, shape: {shape}}}}}\n\
                 dcn: {{fat_tree: {{nodes_per_tor: {per_tor}, tors_per_domain: {tors}}}}}\n\
                 jobs: [{{name: small, gpus: {}, tp: {tp}}}, {{name: rest, gpus: all, tp: 8}}]\n",
                u64::from(tp) * count,
            );
            let part = |(node, what): (u32, u8)| match what {
                0 => format!("n{}/b{}", node % nodes, node as u8 % k).parse().unwrap(),
                1 => format!("n{}/b0.1", node % nodes).parse().unwrap(),
                _ => format!("n{}", node % nodes).parse().unwrap(),
            };
            let parts: Vec<Part> = faults.into_iter().map(part).collect();
            Case::new(&text, &parts, template)
        },
    )
}

fn slurm(case: &Case, format: &str) -> Option<Vec<readers::SlurmTopology>> {
    match case.export(format) {
        Ok(export) => Some(readers::yaml(&export.files[0].text)),
        Err(error) => {
            assert!(case.plan.groups.is_empty(), "{error}");
            None
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn slurm_blocks_are_the_rings(case in cases()) {
        for format in ["slurm", "slurm-ring"] {
            let Some(topologies) = slurm(&case, format) else { continue };
            prop_assert_eq!(topologies.iter().filter(|t| t.cluster_default).count(), 1);
            let mut read = Rings::new();
            for topology in &topologies {
                let name = topology.topology.strip_prefix("tp").unwrap();
                let blocks = name.strip_suffix("-ring");
                prop_assert!(blocks.is_none() || !topology.cluster_default);
                prop_assert_eq!(blocks.is_some(), topology.units_are_rings());
                let tp: usize = blocks.unwrap_or(name).parse().unwrap();
                let small = tp < usize::from(case.fabric.hbd.gpus_per_node());
                for (name, hosts) in topology.units() {
                    if small {
                        prop_assert_eq!(hosts.len(), 1, "rings inside a node are one block");
                    } else if let Some(same) = read.insert(name, hosts.clone()) {
                        prop_assert_eq!(same, hosts, "a ring's hosts are those of its block");
                    }
                }
            }
            prop_assert_eq!(read, case.rings());
        }
    }

    #[test]
    fn topograph_and_kubernetes_place_every_host(case in cases()) {
        let expected = case.hosts();
        let model: readers::TopographModel = readers::yaml(&case.text("topograph"));
        prop_assert_eq!(&model.hosts(), &expected);

        #[derive(Deserialize)]
        struct Graph { instances: Vec<Instance> }
        #[derive(Deserialize)]
        struct Instance { id: String, network_layers: Vec<String>, labels: BTreeMap<String, String> }
        let graph: Graph = serde_json::from_str(&case.text("topograph-graph")).unwrap();
        let read: BTreeMap<String, Host> = graph.instances.iter().map(|instance| {
            let host = readers::host_of_labels(&instance.labels);
            assert_eq!(instance.network_layers, host.above);
            (instance.id.clone(), host)
        }).collect();
        prop_assert_eq!(&read, &expected);

        #[derive(Deserialize)]
        struct Node { kind: String, metadata: Metadata }
        #[derive(Deserialize)]
        struct Metadata { name: String, labels: BTreeMap<String, String> }
        let nodes: Vec<Node> = readers::documents(&case.text("kubernetes"));
        prop_assert_eq!(nodes.len(), case.fabric.hbd.nodes() as usize);
        let mut rings: BTreeMap<String, BTreeMap<usize, String>> = BTreeMap::new();
        let mut working = BTreeMap::new();
        for node in &nodes {
            let labels = &node.metadata.labels;
            prop_assert_eq!(&node.kind, "Node");
            let host = readers::host_of_labels(labels);
            if let Some(ring) = &host.ring {
                let place = labels["lightloom.github.io/place"].parse().unwrap();
                rings.entry(ring.clone()).or_default().insert(place, node.metadata.name.clone());
            }
            if labels["lightloom.github.io/state"] != "broken" {
                working.insert(node.metadata.name.clone(), host);
            }
        }
        prop_assert_eq!(&working, &expected);
        let rings: Rings =
            rings.into_iter().map(|(ring, hosts)| (ring, hosts.into_values().collect())).collect();
        prop_assert_eq!(rings, case.rings());
    }

    #[test]
    fn graphs_and_labs_contain_the_lit_fibres(case in cases()) {
        let lit: BTreeSet<(String, String)> = case.plan.circuits.iter()
            .map(|circuit| (circuit.a.to_string(), circuit.b.to_string())).collect();
        let (rings, edges) = readers::dot(&case.text("dot"));
        prop_assert_eq!(rings, case.rings());
        let read: BTreeSet<_> = edges.iter()
            .map(|(_, _, data)| (data["a"].clone(), data["b"].clone())).collect();
        prop_assert_eq!(&read, &lit);

        let lab: readers::Lab = readers::yaml(&case.text("containerlab"));
        prop_assert_eq!(lab.topology.nodes.len(), case.hosts().len());
        let id_of: BTreeMap<String, String> = (0..case.fabric.hbd.nodes())
            .map(lightloom_units::id::NodeId)
            .map(|node| (case.name(node), node.to_string())).collect();
        let port = |(host, interface): &(String, String)| {
            let (bundle, path) = interface.split_once('p').unwrap();
            format!("{}/{bundle}.{path}", id_of[host])
        };
        let read: BTreeSet<_> =
            lab.links().iter().map(|[a, b]| (port(a), port(b))).collect();
        prop_assert_eq!(&read, &lit);
    }

    #[test]
    fn launchers_get_every_rank_once_and_in_order(case in cases()) {
        ranks_are_those_of_the_plan(&case);
    }
}

fn ranks_are_those_of_the_plan(case: &Case) {
    let export = match case.export("ranks") {
        Ok(export) => export,
        Err(error) => {
            assert!(case.plan.ranks.iter().all(|rank| rank.job != Some(0)), "{error}");
            return;
        }
    };
    let text = |name: &str| &*export.files.iter().find(|file| file.name == name).unwrap().text;
    // Rank = ((pp × DP + dp) × CP + cp) × TP + tp. In this test, the groups are data-parallel
    // replicas.
    let tp = case.plan.jobs[0].tp;
    let planned: BTreeMap<u32, (String, u32)> = case
        .plan
        .ranks
        .iter()
        .filter(|rank| rank.job == Some(0))
        .map(|rank| (rank.dp * tp + rank.tp, (case.name(rank.gpu.node), u32::from(rank.gpu.gpu))))
        .collect();
    assert_eq!(readers::rank_file(text("rankfile")), planned);

    let hosts = readers::host_file(text("hostfile"));
    for (host, slots) in &hosts {
        assert_eq!(planned.values().filter(|(name, _)| name == host).count(), *slots);
    }
    assert_eq!(hosts.iter().map(|(_, slots)| slots).sum::<usize>(), planned.len());
    let nodes: Vec<String> = hosts.into_iter().map(|(host, _)| host).collect();
    let mut by_rank: Vec<String> = planned.values().map(|(host, _)| host.clone()).collect();
    let mut seen = BTreeSet::new();
    by_rank.retain(|host| seen.insert(host.clone()));
    assert_eq!(nodes, by_rank);
}

#[test]
fn equal_plans_export_equal_bytes() {
    let text = format!("{RING}{{name: a, gpus: all, tp: 32}}]\n");
    let case = || Case::new(&text, &["n7".parse().unwrap()], "n{}").unwrap();
    for format in FORMATS {
        assert_eq!(case().export(format.name), case().export(format.name));
    }
}

#[test]
fn exports_match_their_snapshots() {
    let text = "kind: fabric\nversion: 2\nname: small\nhbd: {khop: {nodes: 9, gpus_per_node: 4, k: 2, shape: line}}\n\
                dcn: {fat_tree: {nodes_per_tor: 2}}\n\
                jobs: [{name: a, gpus: 8, tp: 8}, {name: b, gpus: 12, tp: 12}]\n";
    let parts: Vec<Part> = ["n2", "n7/b0"].map(|part| part.parse().unwrap()).to_vec();
    let case = Case::new(text, &parts, "gpu{:02}").unwrap();
    for format in FORMATS.iter().filter(|format| format.ring.is_ok()) {
        let export = case.export(format.name).unwrap();
        let lost: String = export.lost.iter().map(|lost| format!("lost: {lost}\n")).collect();
        let [file, more @ ..] = &export.files[..] else { panic!("{} writes a file", format.name) };
        let name = format.name.replace('-', "_");
        let more: String =
            more.iter().map(|file| format!("\n{}\n\n{}", file.name, file.text)).collect();
        insta::assert_snapshot!(name, format!("{}\n{lost}\n{}{more}", file.name, file.text));
    }
}

const RING: &str = "kind: fabric\nversion: 2\nname: ring\nhbd: {khop: {nodes: 48, gpus_per_node: 4, k: 2}}\njobs: [";

#[test]
fn slurm_ring_topology_accompanies_the_blocks() {
    let text = format!("{RING}{{name: a, gpus: all, tp: 32}}]\n");
    let case = Case::new(&text, &[], "n{}").unwrap();
    let [blocks, rings] = &slurm(&case, "slurm-ring").unwrap()[..] else { panic!("two") };
    // With `rings` as the default, Slurm would refuse the plan's own job of six nodes.
    assert!(blocks.block.is_some() && blocks.cluster_default);
    assert!(rings.ring.is_some() && !rings.cluster_default);
    assert_eq!(blocks.units(), rings.units());
    let lost = case.export("slurm-ring").unwrap().lost.join("\n");
    assert!(lost.contains("Slurm refuses them there (8 nodes at most)"), "{lost}");
}

#[test]
fn slurm_rings_are_limited_to_16_nodes() {
    let small = format!("{RING}{{name: a, gpus: all, tp: 64}}]\n");
    let large = format!("{RING}{{name: a, gpus: all, tp: 96}}]\n");
    let case = Case::new(&small, &[], "n{}").unwrap();
    let topologies = slurm(&case, "slurm-ring").unwrap();
    assert!(topologies[1].ring.as_ref().is_some_and(|ring| ring.rings.len() == 3));
    let case = Case::new(&large, &[], "n{}").unwrap();
    let topologies = slurm(&case, "slurm-ring").unwrap();
    assert!(topologies[0].block.as_ref().is_some_and(|block| block.block_sizes == [24]));
    assert_eq!(topologies.len(), 1);
    let lost = case.export("slurm-ring").unwrap().lost.join("\n");
    assert!(lost.contains("at most 16 nodes and these have 24"), "{lost}");
    assert!(lost.contains("neighbours"), "{lost}");
}

#[test]
fn astra_sim_gets_the_job_and_link_rates() {
    let case = Case::new(&format!("{RING}{{name: a, gpus: 128, tp: 32}}]\n"), &[], "n{}").unwrap();
    let network: readers::AstraSim = readers::yaml(&case.text("astra-sim"));
    assert_eq!(network.topology, ["Ring", "Switch"]);
    assert_eq!(network.npus_count, [32, 4]);
    // 3.2 Tb/s per ring edge and direction, 400 Gb/s per network interface, in GB/s.
    assert_eq!(network.bandwidth, [400.0, 50.0]);
    assert_eq!(network.latency, [200.0, 1000.0]);
}

#[test]
fn kueue_levels_are_labels_that_the_nodes_carry() {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Object {
        api_version: String,
        kind: String,
        metadata: BTreeMap<String, String>,
        spec: Spec,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Spec {
        #[serde(default)]
        levels: Vec<BTreeMap<String, String>>,
        #[serde(default)]
        node_labels: BTreeMap<String, String>,
        topology_name: Option<String>,
    }
    let case = Case::new(&format!("{RING}{{name: a, gpus: all, tp: 32}}]\n"), &[], "n{}").unwrap();
    let objects: Vec<Object> = readers::documents(&case.text("kueue"));
    assert!(objects.iter().all(|object| object.api_version == "kueue.x-k8s.io/v1beta2"));
    let [topology, flavor] = &objects[..] else { panic!("two objects") };
    assert_eq!((&*topology.kind, &*flavor.kind), ("Topology", "ResourceFlavor"));
    assert_eq!(flavor.spec.topology_name.as_ref(), topology.metadata.get("name"));
    let labels = case.text("kubernetes");
    let levels: Vec<&String> = topology.spec.levels.iter().map(|l| &l["nodeLabel"]).collect();
    assert!(labels.contains(levels[0]), "{levels:?}");
    assert_eq!(levels[1], "kubernetes.io/hostname");
    for (label, value) in &flavor.spec.node_labels {
        assert!(labels.contains(&format!("{label}: \"{value}\"")), "{label}");
    }
}

const FAT_TREE: &str = "kind: fabric
version: 2
name: small
dcn:
  reconfigurable_fat_tree:
    leaves: 8
    gpus_per_leaf: 8
    circuit_rate: 400Gbps
    electrical: {rate_per_leaf: 1.6Tbps, oversubscription: 4}
    banks:
      - {name: core, switches: 4, ports_per_switch: 32, ports_per_leaf: 2, insertion_loss_db: 1.5}
    timing: {switching: 10ms}
    held: [{ocs: ocs1, a: leaf0, a_port: 0, b: leaf5, b_port: 11}]
jobs:
  - name: small
    step:
      phases:
        - {name: train, demand: {shape: {moe: {seed: 3}}}, slack: 100ms}
        - {name: sync, demand: {shape: {weight_sync: {}}}, slack: 100ms}
";

#[test]
fn every_switch_gets_circuits_of_the_phase_and_of_other_jobs() {
    for seed in 1..=8 {
        every_switch_gets_its_circuits(&FAT_TREE.replace("seed: 3", &format!("seed: {seed}")));
    }
}

fn every_switch_gets_its_circuits(text: &str) {
    let mut none = |name: &str| Err(format!("no {name}"));
    let (fabric, mistakes) = lightloom_planner::load("small.yaml", text.as_bytes(), &mut none);
    let fabric = fabric.unwrap_or_else(|| panic!("{mistakes:?}"));
    let network = fabric.dcn.circuits().unwrap();
    let plan = lightloom_planner::plan(&fabric, &FaultSet::none(), Options::default()).unwrap();
    let names = ExportNames::ids("leaf", 8);
    for (at, phase) in plan.phases.iter().enumerate() {
        let chosen = FatTreePlan::new("small", network, &plan, &names, Some(&phase.name)).unwrap();
        let export = ExportFormat::named("sonic-ocs").unwrap().of_fat_tree(&chosen).unwrap();
        let commands = ExportFormat::named("sonic-ocs-cli").unwrap().of_fat_tree(&chosen).unwrap();
        assert_eq!((export.files.len(), commands.files.len()), (4, 4));
        for (ocs, file) in (0..).zip(&export.files) {
            let config: readers::ConfigDb = serde_json::from_str(&file.text).unwrap();
            assert_eq!(config.device_metadata["localhost"]["switch_type"], "ocs");
            assert_eq!(config.ocs_port.len(), 2 * 8 * 2, "two sides of every port");
            let mut expected: BTreeSet<(u32, u32)> = plan.phases[at]
                .circuits
                .iter()
                .filter(|circuit| circuit.ocs.0 == ocs)
                .map(|circuit| (circuit.a_port, circuit.b_port))
                .collect();
            if ocs == 1 {
                expected.insert((0, 11));
            }
            assert_eq!(config.circuits(), expected, "{}", file.name);
            assert_eq!(config.ocs_port["12A"]["label"], "leaf5 port 1");
            let typed = commands.files[ocs as usize].text.lines().nth(1).unwrap_or_default();
            let named = typed.trim_start_matches("config ocs cross-connect add ");
            let named =
                named.trim_end_matches(" update").split(',').filter(|name| !name.is_empty());
            assert_eq!(
                named.collect::<BTreeSet<_>>(),
                config.ocs_cross_connect.keys().map(String::as_str).collect()
            );
        }

        let lab = ExportFormat::named("containerlab").unwrap().of_fat_tree(&chosen).unwrap();
        let lab: readers::Lab = readers::yaml(&lab.files[0].text);
        assert_eq!(lab.links().len(), phase.circuits.len());
        let dot = ExportFormat::named("dot").unwrap().of_fat_tree(&chosen).unwrap();
        let (_, edges) = readers::dot(&dot.files[0].text);
        assert_eq!(edges.len(), phase.circuits.len());
        assert!(edges.iter().all(|(_, _, data)| data["phase"] == phase.name));
    }
    let slurm = FatTreePlan::new("small", network, &plan, &names, None).unwrap();
    let error = ExportFormat::named("slurm").unwrap().of_fat_tree(&slurm).unwrap_err().to_string();
    assert!(error.ends_with("use one of: dot, containerlab, sonic-ocs, sonic-ocs-cli"), "{error}");
    let unknown = FatTreePlan::new("small", network, &plan, &names, Some("x")).unwrap_err();
    assert_eq!(unknown.to_string(), "unknown phase `x`; the plan contains train, sync");
}
