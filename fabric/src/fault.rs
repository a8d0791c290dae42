// SPDX-License-Identifier: Apache-2.0
//! Faults of nodes, bundles, fibres, optical switches, switch ports and leaf uplinks.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use lightloom_units::id::{BundleId, LeafId, NodeId, OcsId, OcsPortId, UplinkId};

use crate::fabric::Fabric;
use crate::hbd::Hbd;
use crate::khop::{Fibre, Port, Position, hop_for_port};

/// A part that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// A node with all its GPUs and bundles. A single failed GPU takes out its node.
    Node(NodeId),
    /// A bundle. The GPU ring of its node is open at this edge, so the node cannot join a ring of whole nodes.
    Bundle(BundleId),
    /// The fibre in this port. Only this link is lost; the node remains usable.
    Fibre(Port),
    /// An optical switch, which can no longer form circuits.
    Ocs(OcsId),
    /// A port of an optical switch. The leaf has one port fewer on that switch.
    OcsPort(OcsPortId),
    /// An uplink of a leaf, which reduces the leaf's rate through packet switches.
    Uplink(UplinkId),
}

impl Part {
    /// Returns the node of the part, or `None` for a part of the network.
    pub fn node(self) -> Option<NodeId> {
        match self {
            Self::Node(node) => Some(node),
            Self::Bundle(bundle) => Some(bundle.node),
            Self::Fibre(port) => Some(port.bundle.node),
            Self::Ocs(_) | Self::OcsPort(_) | Self::Uplink(_) => None,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => node.fmt(f),
            Self::Bundle(bundle) => bundle.fmt(f),
            Self::Fibre(port) => port.fmt(f),
            Self::Ocs(ocs) => ocs.fmt(f),
            Self::OcsPort(port) => port.fmt(f),
            Self::Uplink(uplink) => uplink.fmt(f),
        }
    }
}

/// Error of parsing a [`Part`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a part: {hint}")]
pub struct PartError {
    text: String,
    hint: String,
}

impl PartError {
    fn of(text: &str) -> Self {
        let bundle = text.rsplit_once('.').and_then(|(bundle, _)| bundle.parse::<BundleId>().ok());
        let hint = match bundle {
            Some(bundle) => format!("a bundle has two fibres, `{bundle}.1` and `{bundle}.2`"),
            None => {
                "use a node `n17`, a bundle `n17/b0`, a fibre by one of its ports `n17/b0.2`, an \
                    optical switch `ocs3`, a port of one `ocs3/p17`, or an uplink of a leaf \
                    `l5/up2`"
                    .into()
            }
        };
        Self { text: text.to_owned(), hint }
    }
}

impl FromStr for Part {
    type Err = PartError;
    fn from_str(text: &str) -> Result<Self, PartError> {
        let text = text.trim();
        text.parse()
            .map(Self::Node)
            .or_else(|_| text.parse().map(Self::Bundle))
            .or_else(|_| text.parse().map(Self::Fibre))
            .or_else(|_| text.parse().map(Self::Ocs))
            .or_else(|_| text.parse().map(Self::OcsPort))
            .or_else(|_| text.parse().map(Self::Uplink))
            .map_err(|_| PartError::of(text))
    }
}

lightloom_units::text_serde!(
    Part,
    "A node `n17`, a bundle `n17/b0`, a fibre by one of its ports `n17/b0.2`, an optical switch `ocs3`, a port of one `ocs3/p17`, or an uplink of a leaf `l5/up2`",
    "^(n[0-9]+(/b[0-9]+(\\.[12])?)?|ocs[0-9]+(/p[0-9]+)?|l(eaf)?[0-9]+/up[0-9]+)$",
    ["n17", "n17/b0", "n17/b0.2", "ocs3", "ocs3/p17", "l5/up2"]
);

/// A part that does not exist in the fabric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum FaultError {
    #[error("{node} does not exist: the fabric has nodes n0 to n{last}")]
    NoNode { node: NodeId, last: u32 },
    #[error("{bundle} does not exist: a node has bundles b0 to b{last}")]
    NoBundle { bundle: BundleId, last: u8 },
    #[error("no fibre is connected to {0}")]
    NoFibre(Port),
    #[error("{0} does not exist: the fabric has no transceivers")]
    NoTransceivers(BundleId),
    #[error("{ocs} does not exist: {}", if *switches == 0 { "the fabric has no optical switches".to_owned() } else { format!("the fabric has ocs0 to ocs{}", switches - 1) })]
    NoOcs { ocs: OcsId, switches: u32 },
    #[error("{port} does not exist: leaves are cabled to p0 to p{last} of {}", port.ocs)]
    NoOcsPort { port: OcsPortId, last: u32 },
    #[error("{uplink} does not exist: the fabric has l0 to l{last_leaf} with up0 to up{last}")]
    NoUplink { uplink: UplinkId, last_leaf: u32, last: u32 },
    #[error("{0} does not exist: the leaves of this fabric are not connected by packet switches")]
    NoUplinks(UplinkId),
}

/// All failed parts at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultSet {
    /// Failed nodes.
    pub nodes: BTreeSet<NodeId>,
    /// Failed bundles.
    pub bundles: BTreeSet<BundleId>,
    /// Failed fibres.
    pub fibres: BTreeSet<Fibre>,
    /// Failed optical switches.
    pub switches: BTreeSet<OcsId>,
    /// Failed ports of optical switches.
    pub ocs_ports: BTreeSet<OcsPortId>,
    /// Failed leaf uplinks.
    pub uplinks: BTreeSet<UplinkId>,
}

impl FaultSet {
    /// Returns an empty set.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns the set of `parts`.
    ///
    /// # Errors
    /// Fails if a part does not exist in this fabric. The error contains the first such part.
    pub fn of(fabric: &Fabric, parts: impl IntoIterator<Item = Part>) -> Result<Self, FaultError> {
        let mut faults = Self::none();
        for part in parts {
            faults.insert(fabric, part)?;
        }
        Ok(faults)
    }

    /// Marks `part` as failed. Returns `false` if it had already failed.
    pub fn insert(&mut self, fabric: &Fabric, part: Part) -> Result<bool, FaultError> {
        self.change(fabric, part, FaultChange::Fail)
    }

    /// Marks `part` as repaired. Returns whether it had failed. Repairing a working part is not an error, and does not
    /// install an absent node.
    pub fn remove(&mut self, fabric: &Fabric, part: Part) -> Result<bool, FaultError> {
        match part {
            Part::Node(node) if fabric.absent.contains(&node) => Ok(false),
            part => self.change(fabric, part, FaultChange::Repair),
        }
    }

    fn change(
        &mut self,
        fabric: &Fabric,
        part: Part,
        change: FaultChange,
    ) -> Result<bool, FaultError> {
        let hbd = &fabric.hbd;
        Ok(match part {
            Part::Node(node) => {
                node_exists(hbd, node)?;
                change.apply(&mut self.nodes, node)
            }
            Part::Bundle(bundle) => {
                bundle_exists(hbd, bundle)?;
                change.apply(&mut self.bundles, bundle)
            }
            Part::Fibre(port) => {
                bundle_exists(hbd, port.bundle)?;
                let position: Position = hbd.position_of(port.bundle.node);
                let fibre = hop_for_port(hbd.k(), port.bundle.bundle, port.path)
                    .and_then(|hop| hbd.fibre(position, hop))
                    .ok_or(FaultError::NoFibre(port))?;
                change.apply(&mut self.fibres, fibre)
            }
            Part::Ocs(ocs) => {
                ocs_exists(fabric, ocs)?;
                change.apply(&mut self.switches, ocs)
            }
            Part::OcsPort(port) => {
                let last = ocs_exists(fabric, port.ocs)? - 1;
                if port.port > last {
                    return Err(FaultError::NoOcsPort { port, last });
                }
                change.apply(&mut self.ocs_ports, port)
            }
            Part::Uplink(uplink) => {
                let uplinks = fabric.dcn.uplinks_at(uplink.leaf, hbd.gpus_per_node());
                let last = uplinks.checked_sub(1).ok_or(FaultError::NoUplinks(uplink))?;
                let last_leaf = fabric.dcn.leaves(hbd.nodes()).saturating_sub(1);
                if uplink.leaf.0 > last_leaf || uplink.uplink > last {
                    return Err(FaultError::NoUplink { uplink, last_leaf, last });
                }
                let lower = fabric.dcn.direct().and_then(|network| network.lower_end(uplink));
                change.apply(&mut self.uplinks, lower.unwrap_or(uplink))
            }
        })
    }

    /// Returns all failed parts, nodes first. A fibre is identified by its lower port.
    pub fn parts(&self, fabric: &Fabric) -> Vec<Part> {
        let nodes = self.nodes.iter().copied().map(Part::Node);
        let bundles = self.bundles.iter().copied().map(Part::Bundle);
        let fibres = self.fibres.iter().map(|fibre| Part::Fibre(fabric.hbd.ports(*fibre).0));
        let switches = self.switches.iter().copied().map(Part::Ocs);
        let ports = self.ocs_ports.iter().copied().map(Part::OcsPort);
        let uplinks = self.uplinks.iter().copied().map(Part::Uplink);
        nodes.chain(bundles).chain(fibres).chain(switches).chain(ports).chain(uplinks).collect()
    }

    /// Returns the number of failed uplinks of `leaf`.
    pub fn uplinks_of(&self, leaf: LeafId) -> u32 {
        let all = UplinkId { leaf, uplink: 0 }..=UplinkId { leaf, uplink: u32::MAX };
        u32::try_from(self.uplinks.range(all).count()).unwrap_or(u32::MAX)
    }

    /// Returns the nodes out of service, including nodes whose bundles have all failed.
    pub fn failed_nodes(&self, hbd: &Hbd) -> BTreeSet<NodeId> {
        let bundles: Vec<BundleId> = self.bundles.iter().copied().collect();
        let of_nodes = bundles.chunk_by(|one, other| one.node == other.node);
        let isolated = of_nodes.filter(|failed| failed.len() == usize::from(hbd.k()));
        isolated.map(|failed| failed[0].node).chain(self.nodes.iter().copied()).collect()
    }

    /// Returns whether no part has failed.
    pub fn is_empty(&self) -> bool {
        self == &Self::none()
    }
}

#[derive(Clone, Copy)]
enum FaultChange {
    Fail,
    Repair,
}

impl FaultChange {
    /// Returns whether `parts` changed.
    fn apply<T: Ord>(self, parts: &mut BTreeSet<T>, part: T) -> bool {
        match self {
            Self::Fail => parts.insert(part),
            Self::Repair => parts.remove(&part),
        }
    }
}

fn node_exists(hbd: &Hbd, node: NodeId) -> Result<(), FaultError> {
    let last = hbd.nodes() - 1;
    if node.0 <= last { Ok(()) } else { Err(FaultError::NoNode { node, last }) }
}

fn bundle_exists(hbd: &Hbd, bundle: BundleId) -> Result<(), FaultError> {
    node_exists(hbd, bundle.node)?;
    let last = hbd.k().checked_sub(1).ok_or(FaultError::NoTransceivers(bundle))?;
    if bundle.bundle <= last { Ok(()) } else { Err(FaultError::NoBundle { bundle, last }) }
}

fn ocs_exists(fabric: &Fabric, ocs: OcsId) -> Result<u32, FaultError> {
    let network = fabric.dcn.circuits();
    let switches =
        network.map_or(0, |network| u32::try_from(network.switches()).unwrap_or(u32::MAX));
    match network.filter(|_| ocs.0 < switches) {
        Some(network) => Ok(network.wired_ports(ocs)),
        None => Err(FaultError::NoOcs { ocs, switches }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Fabric {
        let text = "kind: fabric\nversion: 2\nname: line\nhbd: {khop: {nodes: 8, gpus_per_node: 4, k: 3, shape: line}}\n\
                    deployment: {order: sequential}\n";
        crate::file::load("line.yaml", text.as_bytes()).0.unwrap()
    }

    #[test]
    fn fibre_is_one_fault_from_either_end() {
        let fabric = line();
        let parts = ["n2/b0.1", "n3/b1.1"].map(|text| text.parse().unwrap());
        let faults = FaultSet::of(&fabric, parts).unwrap();
        assert_eq!(faults.fibres.len(), 1);
        assert_eq!(faults.parts(&fabric)[0].to_string(), "n2/b0.1");
    }

    #[test]
    fn unknown_part_error_lists_existing_parts() {
        let fabric = line();
        let message =
            |text: &str| FaultSet::of(&fabric, [text.parse().unwrap()]).unwrap_err().to_string();
        assert_eq!(message("n8"), "n8 does not exist: the fabric has nodes n0 to n7");
        assert_eq!(message("n1/b3"), "n1/b3 does not exist: a node has bundles b0 to b2");
        assert_eq!(message("n7/b0.1"), "no fibre is connected to n7/b0.1");
        assert_eq!(message("ocs3"), "ocs3 does not exist: the fabric has no optical switches");
        let uplink = message("l3/up9");
        assert!(uplink.starts_with("l3/up9 does not exist: the fabric has l0 to l"), "{uplink}");
        assert_eq!("leaf1/up2".parse::<Part>().unwrap().to_string(), "l1/up2");
        assert!("q7".parse::<Part>().unwrap_err().to_string().contains("`n17/b0.2`"));
    }
}
