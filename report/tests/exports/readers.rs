// SPDX-License-Identifier: Apache-2.0
//! Readers for exports that share no code with the writers.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;

pub(crate) type Rings = BTreeMap<String, Vec<String>>;

pub(crate) fn yaml<T: DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

pub(crate) fn documents<T: DeserializeOwned>(text: &str) -> Vec<T> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Expands `gpu[001-003,7],login` as Slurm's hostlist and Topograph's cluset do.
pub(crate) fn expand(list: &str) -> Vec<String> {
    let mut depth = 0;
    let items = list.split(|c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    });
    items.flat_map(expand_item).collect()
}

fn expand_item(item: &str) -> Vec<String> {
    let Some((prefix, rest)) = item.split_once('[') else { return vec![item.to_owned()] };
    let ranges = rest.strip_suffix(']').expect("a bracket is closed");
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let width = first.len();
        (first.parse::<u64>().unwrap()..=last.parse::<u64>().unwrap())
            .map(move |number| format!("{prefix}{number:0width$}"))
            .collect::<Vec<_>>()
    };
    ranges.split(',').flat_map(range).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlurmTopology {
    pub(crate) topology: String,
    pub(crate) cluster_default: bool,
    pub(crate) block: Option<SlurmBlocks>,
    pub(crate) ring: Option<SlurmRings>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlurmBlocks {
    pub(crate) block_sizes: Vec<usize>,
    pub(crate) blocks: Vec<SlurmBlock>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlurmBlock {
    pub(crate) block: String,
    pub(crate) nodes: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlurmRings {
    pub(crate) rings: Vec<SlurmRing>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlurmRing {
    pub(crate) ring: String,
    pub(crate) nodes: String,
}

impl SlurmTopology {
    pub(crate) fn units_are_rings(&self) -> bool {
        self.ring.is_some()
    }

    /// Fails on conditions that would make slurmctld exit.
    pub(crate) fn units(&self) -> Rings {
        let pairs: Vec<(&String, &String)> = match (&self.block, &self.ring) {
            (Some(block), None) => block.blocks.iter().map(|b| (&b.block, &b.nodes)).collect(),
            (None, Some(ring)) => ring.rings.iter().map(|r| (&r.ring, &r.nodes)).collect(),
            _ => panic!("a topology is of one kind"),
        };
        let units: Rings =
            pairs.iter().map(|(name, nodes)| ((*name).clone(), expand(nodes))).collect();
        assert_eq!(units.len(), pairs.len(), "names are unique");
        assert!(!units.is_empty(), "an empty topology stops slurmctld");
        for nodes in units.values() {
            assert!(self.ring.is_none() || nodes.len() <= 16, "MAX_RING_SIZE");
            let base = self.block.as_ref().map_or(0, |block| block.block_sizes[0]);
            assert!(nodes.len() >= base, "a block has the base size at least");
        }
        let hosts: BTreeSet<&String> = units.values().flatten().collect();
        let listed: usize = units.values().map(Vec::len).sum();
        assert_eq!(hosts.len(), listed, "a host is in one block");
        units
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopographModel {
    pub(crate) switches: BTreeMap<String, TopographSwitch>,
    pub(crate) blocks: Vec<TopographBlock>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopographSwitch {
    #[serde(default)]
    pub(crate) switches: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopographBlock {
    pub(crate) switch: String,
    pub(crate) nodes: Vec<String>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Host {
    pub(crate) above: Vec<String>,
    pub(crate) ring: Option<String>,
}

impl TopographModel {
    pub(crate) fn hosts(&self) -> BTreeMap<String, Host> {
        let mut parent = BTreeMap::new();
        for (name, switch) in &self.switches {
            for child in &switch.switches {
                assert!(self.switches.contains_key(child), "unknown sub-switch {child}");
                assert_eq!(parent.insert(child, name), None, "{child} has two parents");
            }
        }
        let mut hosts = BTreeMap::new();
        for block in &self.blocks {
            assert!(self.switches.contains_key(&block.switch), "unknown switch");
            let mut above = vec![block.switch.clone()];
            while let Some(switch) = parent.get(above.last().unwrap()) {
                above.push((*switch).clone());
            }
            let ring = block.annotations.get("accelerator.topology.test/domain").cloned();
            for name in block.nodes.iter().flat_map(|list| expand(list)) {
                let host = Host { above: above.clone(), ring: ring.clone() };
                assert!(hosts.insert(name, host).is_none(), "a node is in one block");
            }
        }
        hosts
    }
}

pub(crate) fn host_of_labels(labels: &BTreeMap<String, String>) -> Host {
    let tiers = (0..).map_while(|tier| labels.get(&format!("fabric.topograph.run/tier-{tier}")));
    let ring = labels.get("accelerator.topograph.run/domain").cloned();
    Host { above: tiers.cloned().collect(), ring }
}

pub(crate) type Data = BTreeMap<String, String>;

pub(crate) fn dot(text: &str) -> (Rings, Vec<(String, String, Data)>) {
    let (mut rings, mut edges) = (Rings::new(), Vec::new());
    let quoted = |text: &str| -> Vec<String> {
        text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    };
    for line in text.lines() {
        if let Some(rest) = line.trim().strip_prefix("subgraph cluster_") {
            let (name, body) = rest.split_once(' ').unwrap();
            rings.insert(name.to_owned(), quoted(body).split_off(1));
        } else if let Some((ends, attributes)) =
            line.split_once('[').filter(|(ends, _)| ends.contains("--"))
        {
            let ends = quoted(ends);
            let names = attributes.split('=').filter_map(|part| part.split([',', ' ']).next_back());
            let data = names.map(str::to_owned).zip(quoted(attributes)).collect();
            edges.push((ends[0].clone(), ends[1].clone(), data));
        }
    }
    (rings, edges)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lab {
    pub(crate) name: String,
    pub(crate) topology: LabTopology,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LabTopology {
    pub(crate) kinds: BTreeMap<String, LabKind>,
    pub(crate) nodes: BTreeMap<String, LabNode>,
    links: Option<Vec<LabLink>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LabKind {
    pub(crate) image: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LabNode {
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LabLink {
    pub(crate) endpoints: [String; 2],
}

impl Lab {
    /// Fails on interface names that are duplicated or invalid in Linux.
    pub(crate) fn links(&self) -> Vec<[(String, String); 2]> {
        let mut used = BTreeSet::new();
        let mut end = |text: &String| {
            let (node, interface) = text.split_once(':').expect("node:interface");
            assert!(self.topology.nodes.contains_key(node), "{text}: no such node");
            assert!(interface.len() <= 15 && interface != "eth0", "{interface}");
            assert!(used.insert(text.clone()), "{text} is used twice");
            (node.to_owned(), interface.to_owned())
        };
        assert!(!self.name.is_empty());
        for node in self.topology.nodes.values() {
            assert!(!self.topology.kinds[&node.kind].image.is_empty(), "a kind has an image");
            assert!(node.labels.is_empty() || node.labels.len() == 2);
        }
        let links = self.topology.links.as_deref();
        assert!(links.is_none_or(|links| !links.is_empty()), "the schema takes no empty list");
        links
            .unwrap_or_default()
            .iter()
            .map(|link| link.endpoints.each_ref().map(&mut end))
            .collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AstraSim {
    pub(crate) topology: Vec<String>,
    pub(crate) npus_count: Vec<usize>,
    pub(crate) bandwidth: Vec<f64>,
    pub(crate) latency: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) struct ConfigDb {
    pub(crate) device_metadata: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) ocs_port: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) ocs_cross_connect: BTreeMap<String, BTreeMap<String, String>>,
}

impl ConfigDb {
    /// Follows SAI's proposal: light passes from an A side to a B side, and each side is used at
    /// most once.
    pub(crate) fn circuits(&self) -> BTreeSet<(u32, u32)> {
        let mut used = BTreeSet::new();
        let mut side = |text: &str, side: char| {
            assert!(self.ocs_port.contains_key(text), "no port {text}");
            assert!(used.insert(text.to_owned()), "{text} is used twice");
            text.strip_suffix(side).expect("the right side").parse::<u32>().unwrap() - 1
        };
        let mut light = BTreeSet::new();
        for (key, pair) in &self.ocs_cross_connect {
            assert_eq!(*key, format!("{}-{}", pair["a_side"], pair["b_side"]));
            light.insert((side(&pair["a_side"], 'A'), side(&pair["b_side"], 'B')));
        }
        for (from, to) in &light {
            assert!(light.contains(&(*to, *from)), "a circuit carries both directions");
        }
        light.into_iter().filter(|(from, to)| from < to).collect()
    }
}

/// Reads an Open MPI rankfile: each rank's host and slot (mpirun(1), "Rankfiles").
pub(crate) fn rank_file(text: &str) -> BTreeMap<u32, (String, u32)> {
    let entry = |line: &str| {
        let (rank, place) = line.strip_prefix("rank ").unwrap().split_once('=').unwrap();
        let (host, slot) = place.split_once(" slot=").unwrap();
        (rank.trim().parse().unwrap(), (host.to_owned(), slot.parse().unwrap()))
    };
    text.lines().map(entry).collect()
}

/// Reads an Open MPI hostfile: hosts and their slots, in order (orte_hosts(7)).
pub(crate) fn host_file(text: &str) -> Vec<(String, usize)> {
    let entry = |line: &str| {
        let (host, slots) = line.split_once(" slots=").unwrap();
        (host.to_owned(), slots.parse().unwrap())
    };
    text.lines().map(entry).collect()
}
