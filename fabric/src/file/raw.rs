// SPDX-License-Identifier: Apache-2.0
//! The fabric file as written. These types define the documentation, the JSON Schema and the parser
//! of the file; `lower` converts them to a [`Fabric`](crate::fabric::Fabric).

use std::fmt;
use std::str::FromStr;

use lightloom_units::id::{BundleId, NodeId, NodeRange, TorId};
use lightloom_units::{BitsPerSecond, Picoseconds, Text};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::direct::{DragonflyFile, GraphFile, LeafTorusFile};
use super::network::ReconfigurableFile;
use super::optics::OpticsFile;
use super::step::{PlanningFile, StepFile};
use crate::dcn::{FatTree, Order, Rails};
use crate::document::InOrder;
use crate::fabric::{HbdLinks, JobSize, Transceiver};
use crate::fault::Part;
use crate::khop::{Port, Shape};

/// A cluster with its hardware, its cabling and the jobs that run on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FabricFile {
    /// File kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<KindFile>,
    /// Version of the file kind: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 2))]
    pub version: Option<u32>,
    /// Name in reports.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// The high-bandwidth domain, which connects GPUs alongside the data-centre network.
    /// Without this key, GPUs have only their network cards, and `dcn` determines their number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hbd: Option<HbdFile>,
    /// In the explicit form, all nodes in the order of the HBD line. The number in a node's name is
    /// its position in the racks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<InOrder<NodeId, Option<NodeFile>>>,
    /// In the explicit form, all installed fibres.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<Vec<LinkFile>>,
    /// The data-centre network, in addition to the HBD.
    #[serde(default)]
    pub dcn: DcnFile,
    /// Order of the HBD line through the racks.
    #[serde(default)]
    pub deployment: DeploymentFile,
    /// Transceivers with an integrated optical circuit switch.
    #[serde(default)]
    pub transceiver: TransceiverFile,
    /// Jobs to run, in order of placement.
    #[serde(default)]
    pub jobs: Vec<JobFile>,
    /// Parts that are out of service at the start.
    #[serde(default)]
    pub start: StartFile,
    /// Settings for planning circuits.
    #[serde(default)]
    pub planning: PlanningFile,
}

/// Parts that are out of service at the start. Every plan and run avoids them, in addition to its own faults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StartFile {
    /// Failed parts, such as `[n17, ocs1/p4]`.
    pub failed: Vec<Part>,
    /// Parts that work but must not be used, such as nodes under maintenance.
    pub drained: Vec<Part>,
    /// Nodes that are not installed, such as the empty slots of a smaller rack. They are neither counted nor bought.
    pub absent: Vec<NodeId>,
}

/// File kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KindFile {
    /// A fabric.
    Fabric,
}

/// The design of the high-bandwidth domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HbdFile {
    /// A ring or line of nodes, each cabled to the k nearest nodes on either side (InfiniteHBD).
    Khop(KhopFile),
    /// Switch domains, where switches connect all GPUs of a domain (NVLink domains).
    Switch(IslandsFile),
    /// Torus cubes, each used as a whole.
    Torus(IslandsFile),
    /// No domain, so that GPUs have only their network cards.
    None(NodesFile),
}

/// Equal islands of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(example = "{nodes: 256, gpus_per_node: 8, gpus: 64}")]
pub struct IslandsFile {
    /// Number of nodes.
    #[schemars(range(min = 1, max = 4_000_000))]
    pub nodes: u32,
    /// GPUs per node.
    #[schemars(range(min = 1, max = 64))]
    pub gpus_per_node: u8,
    /// GPUs per island, in whole nodes.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub gpus: u32,
    /// Send rate of one GPU within its island.
    #[serde(default = "edge_rate")]
    pub edge_rate: Text<BitsPerSecond>,
}

/// Nodes connected only by the data-centre network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodesFile {
    /// Number of nodes.
    #[schemars(range(min = 1, max = 4_000_000))]
    pub nodes: u32,
    /// GPUs per node.
    #[schemars(range(min = 1, max = 64))]
    pub gpus_per_node: u8,
}

/// A ring or line of nodes, each cabled to the k nearest nodes on either side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(example = "{nodes: 720, gpus_per_node: 4, k: 3}")]
pub struct KhopFile {
    /// Number of nodes in the generator form, 1 to 4,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4000000))]
    pub nodes: Option<u32>,
    /// In place of `nodes`: numbers of nodes of separate lines, which no fibre connects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(range(min = 1, max = 4_000_000)))]
    pub lines: Vec<u32>,
    /// GPUs per node, 2 to 64.
    #[schemars(example = 4)]
    pub gpus_per_node: u8,
    /// Transceiver bundles per node, and the longest span of a fibre in positions: 2 to `gpus_per_node`.
    #[schemars(example = 3)]
    pub k: u8,
    /// Nodes of each ring that only forward light, 0 or 1. With 1, bypassing a failed node switches
    /// only the modules of its neighbours.
    #[serde(default)]
    #[schemars(range(max = 1))]
    pub spare_per_ring: u8,
    /// Whether the last nodes are cabled to the first.
    #[serde(default = "ring")]
    pub shape: Shape,
    /// Rate of one edge of the GPU ring per direction, which is half of a GPU's bandwidth.
    #[serde(default = "edge_rate")]
    pub edge_rate: Text<BitsPerSecond>,
    /// Propagation delay of an edge inside a node, over copper or a loopback bundle.
    #[serde(default = "inside_latency")]
    pub inside_latency: Text<Picoseconds>,
    /// Propagation delay of a fibre between nodes.
    #[serde(default = "fibre_latency")]
    pub fibre_latency: Text<Picoseconds>,
}

fn ring() -> Shape {
    Shape::Ring
}
fn edge_rate() -> Text<BitsPerSecond> {
    Text(HbdLinks::default().edge_rate)
}
fn inside_latency() -> Text<Picoseconds> {
    Text(HbdLinks::default().inside_latency)
}
fn fibre_latency() -> Text<Picoseconds> {
    Text(HbdLinks::default().fibre_latency)
}

/// A node in the explicit form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeFile {
    /// ToR of the node. It is checked against the node's number, because racks are filled in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tor: Option<TorId>,
}

/// A fibre.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkFile {
    /// The two connected ports, in either order.
    pub endpoints: [Endpoint; 2],
}

/// A fibre port, such as `n17:b0.2` for external path 2 of bundle 0 in node 17.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint(pub Port);

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Port { bundle: BundleId { node, bundle }, path } = self.0;
        write!(f, "{node}:b{bundle}.{path}")
    }
}

/// Error of parsing an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a fibre port; expected the form `n17:b0.2` (node, bundle, external path 1 \
    or 2)"
)]
pub struct EndpointError(String);

impl FromStr for Endpoint {
    type Err = EndpointError;
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        text.split_once(":b")
            .and_then(|(node, port)| {
                let (bundle, path) = port.split_once('.')?;
                let bundle = BundleId { node: node.parse().ok()?, bundle: bundle.parse().ok()? };
                Port::on(bundle, path).map(Self)
            })
            .ok_or_else(|| EndpointError(text.to_owned()))
    }
}

lightloom_units::text_serde!(
    Endpoint,
    "A fibre port (node, bundle, external path 1 or 2)",
    "^n[0-9]+:b[0-9]+\\.[12]$",
    ["n17:b0.2"]
);

/// The design of the data-centre network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DcnFile {
    /// Nodes under ToRs, and ToRs in aggregation domains.
    FatTree(FatTree),
    /// A two-tier fat-tree of nodes under leaves, with each leaf connected to all spines.
    LeafSpine(LeafSpineFile),
    /// One leaf per GPU of a node (rail-optimised), in one or more planes.
    Rails(Rails),
    /// Groups of directly connected leaves. All leaves of a group are connected to each other, and
    /// so are all groups.
    Dragonfly(DragonflyFile),
    /// A torus of leaves.
    Torus(LeafTorusFile),
    /// An explicit list of leaves and the cables between them.
    Graph(GraphFile),
    /// Leaves connected by a thin packet core and banks of optical switches.
    ReconfigurableFatTree(Box<ReconfigurableFile>),
}

/// Nodes under leaves, each leaf connected to all spines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(example = "{nodes_per_leaf: 8}")]
pub struct LeafSpineFile {
    /// Nodes per leaf.
    #[schemars(range(min = 1, max = 65536))]
    pub nodes_per_leaf: u32,
    /// Ratio of downlink to uplink bandwidth of a leaf; 1 is non-blocking.
    #[schemars(range(min = 1, max = 64))]
    pub oversubscription: u32,
    /// Network interfaces per GPU, each at `link_rate`.
    #[schemars(range(min = 1, max = 16))]
    pub nics_per_gpu: u32,
    /// Rate of a GPU's network interface and of every switch port.
    pub link_rate: Text<BitsPerSecond>,
    /// Propagation delay of one cable.
    pub link_latency: Text<Picoseconds>,
}

impl Default for LeafSpineFile {
    fn default() -> Self {
        let tree = FatTree::default();
        Self {
            nodes_per_leaf: tree.nodes_per_tor,
            oversubscription: tree.oversubscription,
            nics_per_gpu: tree.nics_per_gpu,
            link_rate: Text(tree.link_rate),
            link_latency: Text(tree.link_latency),
        }
    }
}

impl Default for DcnFile {
    fn default() -> Self {
        Self::FatTree(FatTree::default())
    }
}

/// Order of the HBD line through the racks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeploymentFile {
    /// In the generator form, the order of the nodes in the HBD line.
    pub order: Order,
}

/// A transceiver with an integrated optical circuit switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TransceiverFile {
    /// Shortest dark time while the switch moves.
    pub switch_min: Text<Picoseconds>,
    /// Longest dark time while the switch moves.
    pub switch_max: Text<Picoseconds>,
    /// Delay of the control software before the switch starts to move.
    pub software_delay: Text<Picoseconds>,
    /// Time from light at both ends of a path until the receivers pass data [default: 0, assuming
    /// that receivers keep their state while dark].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relock: Option<Text<Picoseconds>>,
    /// Optical loss between transceivers. If omitted, all hops work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optics: Option<OpticsFile>,
}

impl Default for TransceiverFile {
    fn default() -> Self {
        let transceiver = Transceiver::default();
        Self {
            switch_min: Text(transceiver.switch_min),
            switch_max: Text(transceiver.switch_max),
            software_delay: Text(transceiver.software_delay),
            relock: None,
            optics: None,
        }
    }
}

/// A job. Each group of `tp` GPUs forms one ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobFile {
    /// Name in reports.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// Number of requested GPUs, a multiple of `tp`, or `all` for all complete groups.
    #[serde(default)]
    pub gpus: JobSize,
    /// GPUs per group, which are whole nodes or a part of one node. Omitted if the step refers to
    /// leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000), example = 32)]
    pub tp: Option<u32>,
    /// Fewest GPUs with which the job runs if not all requested GPUs fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub least: Option<u64>,
    /// Nodes that the job may use, such as `[n0..n7, n12]`; all nodes by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<NodeRange>>,
    /// The repeated step. Circuits are planned for its traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepFile>,
}

impl Serialize for JobSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str("all"),
            Self::Gpus(gpus) => serializer.serialize_u64(*gpus),
        }
    }
}

impl<'de> Deserialize<'de> for JobSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Size;
        impl de::Visitor<'_> for Size {
            type Value = JobSize;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of GPUs or `all`")
            }
            fn visit_u64<E: de::Error>(self, gpus: u64) -> Result<JobSize, E> {
                Ok(JobSize::Gpus(gpus))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<JobSize, E> {
                match text {
                    "all" => Ok(JobSize::All),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Size)
    }
}

impl JsonSchema for JobSize {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "JobSize".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "integer", "minimum": 1 }, { "const": "all" }],
            "examples": [2048, "all"],
        })
    }
}
