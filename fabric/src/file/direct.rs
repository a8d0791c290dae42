// SPDX-License-Identifier: Apache-2.0
//! Fabric file sections for networks of directly connected leaves.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::codes;
use super::lower::{check_links, not_positive};
use super::step::one;
use crate::dcn::FatTree;
use crate::direct::{DirectLeaf, DirectNetwork, LeafCable, MAX_DIRECT_LEAVES};
use crate::document::Check;
use crate::hbd::Hbd;
use lightloom_units::id::LeafId;
use lightloom_units::{BitsPerSecond, Picoseconds, Text};

fn nodes_per_leaf() -> u32 {
    FatTree::default().nodes_per_tor
}
fn link_rate() -> Text<BitsPerSecond> {
    Text(FatTree::default().link_rate)
}
fn link_latency() -> Text<Picoseconds> {
    Text(FatTree::default().link_latency)
}

/// Groups of leaves. All leaves of a group are connected to each other, and so are all groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(example = "{groups: 9, leaves_per_group: 4}")]
pub struct DragonflyFile {
    /// Number of groups.
    #[schemars(range(min = 2, max = 2048))]
    pub groups: u32,
    /// Leaves per group, all connected to each other by one cable.
    #[schemars(range(min = 1, max = 2048))]
    pub leaves_per_group: u32,
    /// Cables between any two groups, distributed round-robin over their leaves.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub cables_between_groups: u32,
    /// Nodes per leaf.
    #[serde(default = "nodes_per_leaf")]
    #[schemars(range(min = 1, max = 65536))]
    pub nodes_per_leaf: u32,
    /// Rate of a GPU's network interface and of every cable.
    #[serde(default = "link_rate")]
    pub link_rate: Text<BitsPerSecond>,
    /// Propagation delay of one cable.
    #[serde(default = "link_latency")]
    pub link_latency: Text<Picoseconds>,
}

/// A torus of leaves, each connected to its neighbours in every dimension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(example = "{sides: [4, 4, 4]}")]
pub struct LeafTorusFile {
    /// Number of leaves in each of one to six dimensions, at least 2.
    pub sides: Vec<u32>,
    /// Cables between neighbours.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub cables: u32,
    /// Nodes per leaf.
    #[serde(default = "nodes_per_leaf")]
    #[schemars(range(min = 1, max = 65536))]
    pub nodes_per_leaf: u32,
    /// Rate of a GPU's network interface and of every cable.
    #[serde(default = "link_rate")]
    pub link_rate: Text<BitsPerSecond>,
    /// Propagation delay of one cable.
    #[serde(default = "link_latency")]
    pub link_latency: Text<Picoseconds>,
}

/// An explicit list of leaves and the cables between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    example = "{leaves: 3, links: [{endpoints: [leaf0, leaf1]}, {endpoints: [leaf1, leaf2], cables: 2}]}"
)]
pub struct GraphFile {
    /// Number of leaves, named leaf0 and up.
    #[schemars(range(min = 1, max = 2048))]
    pub leaves: u32,
    /// Connected pairs of leaves, each listed once.
    pub links: Vec<LeafLinkFile>,
    /// Nodes per leaf.
    #[serde(default = "nodes_per_leaf")]
    #[schemars(range(min = 1, max = 65536))]
    pub nodes_per_leaf: u32,
    /// Rate of a GPU's network interface and of every cable.
    #[serde(default = "link_rate")]
    pub link_rate: Text<BitsPerSecond>,
    /// Propagation delay of one cable.
    #[serde(default = "link_latency")]
    pub link_latency: Text<Picoseconds>,
}

/// Cables between two leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeafLinkFile {
    /// The two leaves, in either order.
    pub endpoints: [LeafId; 2],
    /// Number of cables.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1024))]
    pub cables: u32,
}

pub(super) struct Direct {
    design: &'static str,
    leaves: u32,
    nodes_per_leaf: u32,
    link_rate: BitsPerSecond,
    link_latency: Picoseconds,
    pairs: BTreeMap<LeafCable, u32>,
}

pub(super) fn dragonfly(raw: &DragonflyFile, check: &mut Check<'_>) -> Option<Direct> {
    let leaves = raw.groups.checked_mul(raw.leaves_per_group);
    let leaves = few_enough("dragonfly", "groups", leaves, check)?;
    check_links("dragonfly", raw.link_rate.0, raw.link_latency.0, check);
    let pairs =
        DirectNetwork::dragonfly(raw.groups, raw.leaves_per_group, raw.cables_between_groups);
    let (nodes_per_leaf, link_rate) = (raw.nodes_per_leaf, raw.link_rate.0);
    let (design, link_latency) = ("dragonfly", raw.link_latency.0);
    Some(Direct { design, leaves, nodes_per_leaf, link_rate, link_latency, pairs })
}

pub(super) fn torus(raw: &LeafTorusFile, check: &mut Check<'_>) -> Option<Direct> {
    if raw.sides.is_empty() || raw.sides.len() > 6 || raw.sides.iter().any(|side| *side < 2) {
        check
            .error(
                codes::BAD_GROUP,
                "/dcn/torus/sides",
                "a torus has one to six sides of at least 2 leaves",
            )
            .help("use `sides: [4, 4, 4]`");
        return None;
    }
    let leaves = raw.sides.iter().try_fold(1_u32, |all, side| all.checked_mul(*side));
    let leaves = few_enough("torus", "sides", leaves, check)?;
    check_links("torus", raw.link_rate.0, raw.link_latency.0, check);
    let pairs = DirectNetwork::torus(&raw.sides, raw.cables);
    let (nodes_per_leaf, link_rate) = (raw.nodes_per_leaf, raw.link_rate.0);
    let (design, link_latency) = ("torus", raw.link_latency.0);
    Some(Direct { design, leaves, nodes_per_leaf, link_rate, link_latency, pairs })
}

pub(super) fn graph(raw: &GraphFile, check: &mut Check<'_>) -> Option<Direct> {
    let leaves = few_enough("graph", "leaves", Some(raw.leaves), check)?;
    check_links("graph", raw.link_rate.0, raw.link_latency.0, check);
    let mut pairs = BTreeMap::new();
    let mut is_sound = true;
    for (at, link) in raw.links.iter().enumerate() {
        let [a, b] = link.endpoints;
        let place = format!("/dcn/graph/links/{at}/endpoints");
        let mistake = if a == b {
            Some((format!("{a} is connected to itself"), "use two different leaves".to_owned()))
        } else if a.0 >= leaves || b.0 >= leaves {
            let message =
                format!("{} does not exist: the leaves are leaf0 to leaf{}", a.max(b), leaves - 1);
            Some((message, "use existing leaves, or raise `leaves`".to_owned()))
        } else if pairs.insert(LeafCable { a: a.min(b), b: a.max(b) }, link.cables).is_some() {
            let message = format!("{a} and {b} are connected twice");
            Some((message, "use one entry with `cables: 2`".to_owned()))
        } else {
            None
        };
        if let Some((message, help)) = mistake {
            check.error(codes::NO_SUCH_END, &place, message).help(help);
            is_sound = false;
        }
    }
    let (nodes_per_leaf, link_rate) = (raw.nodes_per_leaf, raw.link_rate.0);
    let (design, link_latency) = ("graph", raw.link_latency.0);
    is_sound.then_some(Direct { design, leaves, nodes_per_leaf, link_rate, link_latency, pairs })
}

fn few_enough(design: &str, key: &str, leaves: Option<u32>, check: &mut Check<'_>) -> Option<u32> {
    let place = format!("/dcn/{design}/{key}");
    match leaves {
        Some(0) => {
            not_positive(&place, "the number of leaves", check);
            None
        }
        Some(leaves) if leaves <= MAX_DIRECT_LEAVES => Some(leaves),
        _ => {
            let message =
                format!("more than {MAX_DIRECT_LEAVES} leaves without switches above them");
            check.error(codes::IMPLAUSIBLE, &place, message).help(format!(
                "use at most {MAX_DIRECT_LEAVES} leaves, with more nodes under each"
            ));
            None
        }
    }
}

impl Direct {
    pub(super) fn above(&self, hbd: &Hbd, check: &mut Check<'_>) -> Option<DirectNetwork> {
        let place = format!("/dcn/{}", self.design);
        let needed = hbd.nodes().div_ceil(self.nodes_per_leaf.max(1));
        if needed > self.leaves {
            let message = format!(
                "{} nodes need {needed} leaves of {} nodes, but there are {}",
                hbd.nodes(),
                self.nodes_per_leaf,
                self.leaves
            );
            check
                .error(codes::TOO_FEW_LEAVES, &place, message)
                .help("add leaves, or use a larger `nodes_per_leaf`")
                .also("/hbd", "the number of nodes is set here");
            return None;
        }
        let leaf = DirectLeaf {
            nodes: self.nodes_per_leaf,
            gpus_per_node: hbd.gpus_per_node(),
            link_rate: self.link_rate,
            link_latency: self.link_latency,
        };
        let network = DirectNetwork::new(self.design.to_owned(), self.leaves, leaf, &self.pairs);
        if let Some(leaf) = network.cut_off() {
            check
                .error(codes::NO_SUCH_END, &place, format!("{leaf} is not connected to leaf0"))
                .help("connect all leaves to each other");
            return None;
        }
        Some(network)
    }
}
