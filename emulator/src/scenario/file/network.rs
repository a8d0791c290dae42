// SPDX-License-Identifier: Apache-2.0

use lightloom_engine::LinkSpec;
use lightloom_engine::topology::{
    CubeTorus, FatTree, LeafSpine, RailLinks, RailOnly, RailOptimised, RingShape, SwitchedDomain,
    Torus,
};
use lightloom_fabric::document::Check;
use lightloom_units::BitsPerSecond;
use schemars::JsonSchema;
use serde::Deserialize;

use super::graph::{self, GraphFile};
use super::links::{self, LinksFile};
use super::neighbours::NamedFiles;
use super::transport::HostPorts;
use super::{ScenarioFile, codes, direct_connect};
use crate::substrate::Shape;

const MOST_HOSTS: u64 = 200_000;

/// A fabric file, or a network shape. Hosts are called `h0`, `h1`, … and switches `s0`, `s1`, …,
/// unless the file defines their names.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OnFile {
    /// A fabric file, relative to this file. Its rings, circuits and switches are planned together.
    Fabric(String),
    /// Three tiers of switches.
    FatTree(FatTreeFile),
    /// Two tiers of switches.
    LeafSpine(LeafSpineFile),
    /// GPU servers with rails: same-rank GPUs share a rail switch, and spines connect the rails.
    RailOptimised(RailOptimised),
    /// High-bandwidth domains with rails: same-rank GPUs share a rail switch, and there are no spines.
    RailOnly(RailOnly),
    /// A grid with wrap-around cables, without switches.
    Torus(Torus),
    /// Cubes of 4 × 4 × 4 chips, connected to one torus by 48 optical switches.
    TpuCubes(CubeTorus),
    /// GPUs under switches, as in an NVLink domain.
    SwitchedDomain(SwitchedDomain),
    /// Hosts in a ring, without switches.
    Ring(RowFile),
    /// Hosts in a line, without switches.
    Line(RowFile),
    /// The leaves of a reconfigurable fat-tree with the planned circuits of one phase.
    DirectConnect(DirectConnectFile),
    /// An arbitrary graph.
    Graph(GraphFile),
}

/// A three-tier fat-tree.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FatTreeFile {
    /// Ports per switch, even.
    #[schemars(range(min = 2, max = 128))]
    pub radix: u32,
    /// Ratio of host bandwidth to uplink bandwidth of an edge switch.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub oversubscription: u32,
}

/// Leaf and spine switches.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeafSpineFile {
    /// Number of leaf switches.
    #[schemars(range(min = 1, max = 4096))]
    pub leaves: u32,
    /// Number of spine switches; equal to `hosts_per_leaf` for full bisection.
    #[schemars(range(min = 1, max = 4096))]
    pub spines: u32,
    /// Hosts per leaf.
    #[schemars(range(min = 1, max = 4096))]
    pub hosts_per_leaf: u32,
    /// Interfaces per host, each with a separate network of this shape.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 16))]
    pub nics: u32,
    /// Planes per interface, each with a separate network of this shape. The interface's rate is
    /// divided between them, for example 800 Gb/s over 8 planes of 100 Gb/s.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 16))]
    pub planes: u32,
}

/// Hosts in a row.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RowFile {
    /// Number of hosts, at least three.
    #[schemars(range(min = 3, max = 100000))]
    pub hosts: u32,
}

/// The circuits of a phase.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectConnectFile {
    /// File with the reconfigurable fat-tree and its phases, relative to this file.
    pub rfabric: String,
    /// Phase whose circuits are lit.
    pub phase: String,
}

fn one() -> u32 {
    1
}

pub(super) fn lower(
    raw: &OnFile,
    links: &LinksFile,
    check: &mut Check<'_>,
    beside: &mut NamedFiles<'_, '_>,
) -> Option<Shape> {
    let links = &links::lower(links, check);
    let hosts = hosts_of(raw);
    if hosts > MOST_HOSTS {
        let message = format!("{hosts} hosts: at most {MOST_HOSTS} can be emulated");
        check.error(codes::BAD_NETWORK, "/on", message);
        return None;
    }
    let cable = links.cable();
    let rail_links = RailLinks { inside: links.inside(), rail: cable };
    Some(match raw {
        OnFile::FatTree(tree) => Shape::FatTree(lower_fat_tree(tree, cable, check)),
        OnFile::LeafSpine(raw) => lower_leaf_spine(raw, cable, check),
        OnFile::RailOptimised(rails) => Shape::RailOptimised(*rails, rail_links),
        OnFile::RailOnly(rails) => Shape::RailOnly(*rails, rail_links),
        OnFile::Torus(torus) => Shape::Torus(torus.clone(), cable),
        OnFile::TpuCubes(cubes) => Shape::Cubes(*cubes, cable),
        OnFile::SwitchedDomain(domain) => Shape::Domain(*domain, cable),
        OnFile::Ring(raw) => Shape::Row(RingShape::Ring, raw.hosts, cable),
        OnFile::Line(raw) => Shape::Row(RingShape::Line, raw.hosts, cable),
        OnFile::DirectConnect(raw) => {
            Shape::Graph(direct_connect::lower(raw, links.delay.0, check, beside)?)
        }
        OnFile::Graph(raw) => Shape::Graph(graph::lower(raw, links, check)),
        OnFile::Fabric(_) => return None,
    })
}

pub(super) fn host_ports(raw: &ScenarioFile) -> HostPorts {
    let (rate, pauses) = (Some(raw.links.rate.0), raw.switches.pause.is_some());
    match &raw.on.on {
        OnFile::LeafSpine(shape) => {
            let rate = rate.map(|rate| BitsPerSecond(rate.get() / u64::from(shape.planes.max(1))));
            let count = shape.nics * shape.planes;
            let spines = if shape.leaves > 1 { shape.spines } else { 1 };
            let paths = Some(u64::from(count) * u64::from(spines));
            HostPorts { count: Some(count), paths, rate, pauses }
        }
        OnFile::SwitchedDomain(domain) => {
            let paths = Some(u64::from(domain.switches));
            HostPorts { count: Some(domain.switches), paths, rate, pauses }
        }
        OnFile::FatTree(tree) => {
            let paths = Some(u64::from(tree.radix / 2).pow(2));
            HostPorts { count: Some(1), paths, rate, pauses }
        }
        OnFile::RailOptimised(_) | OnFile::RailOnly(_) => {
            HostPorts { count: Some(1), paths: None, rate, pauses }
        }
        OnFile::Fabric(_) => HostPorts { count: Some(1), paths: None, rate: None, pauses },
        _ => HostPorts { count: None, paths: None, rate: None, pauses },
    }
}

fn lower_leaf_spine(raw: &LeafSpineFile, cable: LinkSpec, check: &mut Check<'_>) -> Shape {
    let planes = u64::from(raw.planes.max(1));
    let rate = BitsPerSecond(cable.rate.get() / planes);
    if rate.get() * planes != cable.rate.get() {
        let message =
            format!("{} cannot be divided into {planes} planes with integer rates", cable.rate);
        check
            .error(codes::BAD_NETWORK, "/on/leaf_spine/planes", message)
            .help("write 2, 4 or 8")
            .depends_on("/links/rate");
    } else if rate < BitsPerSecond(10_000_000) {
        let message =
            format!("a plane has {rate}, but the lowest rate that can be emulated is 10 Mb/s");
        check.error(codes::BAD_NETWORK, "/on/leaf_spine/planes", message).help("use fewer planes");
    }
    let link = LinkSpec { rate: rate.max(BitsPerSecond(10_000_000)), ..cable };
    let shape = LeafSpine {
        leaves: raw.leaves,
        spines: raw.spines,
        hosts_per_leaf: raw.hosts_per_leaf,
        host_link: link,
        spine_link: link,
    };
    Shape::LeafSpine(shape, u8::try_from(raw.nics * raw.planes).unwrap_or(u8::MAX))
}

fn lower_fat_tree(raw: &FatTreeFile, cable: LinkSpec, check: &mut Check<'_>) -> FatTree {
    if raw.radix % 2 == 1 {
        let message = format!("the radix must be even, not {}", raw.radix);
        check.error(codes::BAD_NETWORK, "/on/fat_tree/radix", message);
    }
    FatTree {
        radix: raw.radix,
        hosts_per_edge: raw.radix / 2 * raw.oversubscription,
        host_link: cable,
        switch_link: cable,
    }
}

fn hosts_of(raw: &OnFile) -> u64 {
    let factors = match raw {
        OnFile::FatTree(tree) => {
            let half = tree.radix / 2;
            vec![tree.radix, half, half, tree.oversubscription]
        }
        OnFile::LeafSpine(raw) => vec![raw.leaves, raw.hosts_per_leaf],
        OnFile::RailOptimised(raw) => vec![raw.servers, raw.gpus_per_server],
        OnFile::RailOnly(raw) => vec![raw.domains, raw.gpus_per_domain],
        OnFile::Torus(raw) => raw.sides.to_vec(),
        OnFile::TpuCubes(raw) => [&raw.cubes[..], &[64]].concat(),
        OnFile::SwitchedDomain(raw) => vec![raw.gpus],
        OnFile::Ring(raw) | OnFile::Line(raw) => vec![raw.hosts],
        // These files have their own limits.
        OnFile::DirectConnect(_) | OnFile::Fabric(_) => vec![0],
        OnFile::Graph(raw) => return raw.hosts.len() as u64,
    };
    factors.into_iter().map(u64::from).fold(1, u64::saturating_mul)
}
