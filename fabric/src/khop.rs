// SPDX-License-Identifier: Apache-2.0
//! The fibres of a k-hop ring and the transceivers that they connect (InfiniteHBD, arXiv 2502.03885).
//!
//! N nodes form one line. Inside a node, R GPUs form a ring `g0-g1-…-g(R-1)-g0`. K of the R ring
//! edges are OCSTrx *bundles*, and the others are copper. A bundle is set to exactly one path:
//!
//! ```text
//!   loopback      g0 ══════ g1        the bundle is the ring edge
//!   external-1    g0 ═══╗  ╔═ g1      both halves leave the node, towards one neighbour,
//!                       ╚══╬══▶       where they meet the bundle that faces back
//!   external-2                        the same, towards another neighbour
//! ```
//!
//! A node is cabled to its neighbours 1…K places up and down the line. [`port_for_hop`] defines the bundle and path of
//! each hop. The paper's table was not available, so this one was derived from the published properties (docs/khop.md).

use std::fmt;
use std::str::FromStr;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use lightloom_units::id::{BundleId, NodeId};

/// Whether the line of nodes is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// The last nodes are cabled to the first.
    Ring,
    /// The ends are open.
    Line,
}

/// The path setting of a bundle. The active path gets the full bandwidth.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Path to the first fibre pair.
    #[serde(rename = "external-1")]
    External1,
    /// Path to the second fibre pair.
    #[serde(rename = "external-2")]
    External2,
    /// Back into the node, so that the bundle acts as a copper edge of the GPU ring.
    Loopback,
}

lightloom_units::display_as_serialized!(Path);

/// A place on the line of nodes, from 0. A position differs from a [`NodeId`], which follows the rack order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u32);

impl Position {
    /// Returns the position as an array index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A signed, nonzero distance along the line, where `+d` leads towards higher positions.
pub type Hop = i8;

/// One external fibre port of a bundle, written as in `n17/b0.2` (bundle 0, path 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// The bundle.
    pub bundle: BundleId,
    /// External path, 1 or 2.
    pub path: u8,
}

impl Port {
    /// Returns the port of a bundle for an external path, which is 1 or 2.
    pub(crate) fn on(bundle: BundleId, path: &str) -> Option<Self> {
        match path {
            "1" => Some(Self { bundle, path: 1 }),
            "2" => Some(Self { bundle, path: 2 }),
            _ => None,
        }
    }

    /// Returns the path setting that lights this port. Panics if `path` is neither 1 nor 2.
    pub fn selects(self) -> Path {
        match self.path {
            1 => Path::External1,
            2 => Path::External2,
            other => unreachable!("a bundle has external paths 1 and 2, not {other}"),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.bundle, self.path)
    }
}

/// Error of parsing a [`Port`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a fibre port; expected the form `n17/b0.2` (node, bundle, external path 1 \
    or 2)"
)]
pub struct PortError(String);

impl FromStr for Port {
    type Err = PortError;
    fn from_str(text: &str) -> Result<Self, PortError> {
        text.split_once('.')
            .and_then(|(bundle, path)| Self::on(bundle.parse().ok()?, path))
            .ok_or_else(|| PortError(text.to_owned()))
    }
}

lightloom_units::text_serde!(
    Port,
    "A fibre port (bundle, external path 1 or 2)",
    "^n[0-9]+/b[0-9]+\\.[12]$",
    ["n17/b0.2"]
);

/// Returns the bundle index and external path (1 or 2) of `hop` in a fabric with reach `k`.
///
/// A ring may need forward and backward links at the same time, so these are on different bundles.
/// Bundles come in pairs with two hop lengths each. The even bundle faces up the line, and the odd
/// one faces down. If K is odd, the remaining bundle has `+K` on path 1 and `-K` on path 2, so a
/// node cannot use both at the same time. Planners avoid that pair, and the plan check rejects it.
///
/// | K | b0 | b1 | b2 | b3 |
/// | --- | --- | --- | --- | --- |
/// | 2 | +1, +2 | -1, -2 | | |
/// | 3 | +1, +2 | -1, -2 | +3, -3 | |
/// | 4 | +1, +2 | -1, -2 | +3, +4 | -3, -4 |
///
/// # Panics
/// Panics if `hop` is zero or longer than `k`.
pub fn port_for_hop(k: u8, hop: Hop) -> (u8, u8) {
    let length = hop.unsigned_abs();
    assert!(length >= 1 && length <= k, "hop {hop} in a fabric of {k} hops");
    if k % 2 == 1 && length == k {
        return (k - 1, if hop > 0 { 1 } else { 2 });
    }
    let pair = (length - 1) / 2;
    (2 * pair + u8::from(hop < 0), (length - 1) % 2 + 1)
}

/// Returns the hop on external path `path` (1 or 2), the inverse of [`port_for_hop`].
pub fn hop_for_port(k: u8, bundle: u8, path: u8) -> Option<Hop> {
    if bundle >= k || !(1..=2).contains(&path) {
        return None;
    }
    if k % 2 == 1 && bundle == k - 1 {
        let length = Hop::try_from(k).ok()?;
        return Some(if path == 1 { length } else { -length });
    }
    let length = Hop::try_from(bundle / 2 * 2 + path).ok()?;
    Some(if bundle.is_multiple_of(2) { length } else { -length })
}

/// Returns whether hops `a` and `b` are on different bundles, so that a node can use both.
pub fn hops_are_compatible(k: u8, a: Hop, b: Hop) -> bool {
    port_for_hop(k, a).0 != port_for_hop(k, b).0
}

/// A fibre between the node at `from` and the node `hops` places up the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fibre {
    /// Lower end. In a ring, this is the end whose upward hop uses the fibre.
    pub from: Position,
    /// Length in places, 1 to K.
    pub hops: u8,
}

/// Maximum GPUs per node.
pub const MAX_GPUS_PER_NODE: u8 = 64;
/// Maximum nodes in a line.
pub const MAX_NODES: u32 = 4_000_000;

/// Invalid parameters of a k-hop ring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum KhopError {
    #[error("a node must have 2 to {MAX_GPUS_PER_NODE} GPUs, not {0}")]
    GpusPerNode(u8),
    #[error(
        "k is {k}, but a node of {gpus_per_node} GPUs has room for 2 to {gpus_per_node} bundles"
    )]
    Hops { k: u8, gpus_per_node: u8 },
    #[error("a line must have 1 to {MAX_NODES} nodes, not {0}")]
    Nodes(u32),
}

/// The cabling of a k-hop ring or line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KhopRing {
    gpus_per_node: u8,
    k: u8,
    shape: Shape,
    node_at: Vec<NodeId>,
    position_of: Vec<Position>,
    absent: FxHashSet<Fibre>,
}

impl KhopRing {
    /// Creates a fully cabled line with R GPUs per node and reach K. `node_at` maps positions to
    /// nodes; panics if it is not a permutation of `0..N`.
    ///
    /// # Errors
    /// Fails if R is outside 2…64, K is outside 2…R, or N is outside 1…4,000,000.
    pub fn new(
        gpus_per_node: u8,
        k: u8,
        shape: Shape,
        node_at: Vec<NodeId>,
    ) -> Result<Self, KhopError> {
        let nodes = u32::try_from(node_at.len()).unwrap_or(u32::MAX);
        Self::check(gpus_per_node, k, nodes)?;
        let mut position_of = vec![Position(u32::MAX); node_at.len()];
        for (position, node) in (0..).zip(&node_at) {
            position_of[node.index()] = Position(position);
        }
        assert!(
            position_of.iter().all(|p| p.0 != u32::MAX),
            "the line order contains each node once"
        );
        Ok(Self { gpus_per_node, k, shape, node_at, position_of, absent: FxHashSet::default() })
    }

    /// Checks the parameters of a ring.
    ///
    /// # Errors
    /// Fails if R is outside 2…64, K is outside 2…R, or N is outside 1…4,000,000.
    pub fn check(gpus_per_node: u8, k: u8, nodes: u32) -> Result<(), KhopError> {
        if !(2..=MAX_GPUS_PER_NODE).contains(&gpus_per_node) {
            return Err(KhopError::GpusPerNode(gpus_per_node));
        }
        if !(2..=gpus_per_node).contains(&k) {
            return Err(KhopError::Hops { k, gpus_per_node });
        }
        if !(1..=MAX_NODES).contains(&nodes) {
            return Err(KhopError::Nodes(nodes));
        }
        Ok(())
    }

    /// Marks a fibre as not installed.
    pub fn remove_fibre(&mut self, fibre: Fibre) {
        self.absent.insert(fibre);
    }

    /// Returns whether every fibre is installed.
    pub fn is_fully_cabled(&self) -> bool {
        self.absent.is_empty()
    }

    /// Returns the GPUs per node (R).
    pub fn gpus_per_node(&self) -> u8 {
        self.gpus_per_node
    }
    /// Returns K, the number of bundles per node and the length of its longest fibre in places.
    pub fn k(&self) -> u8 {
        self.k
    }
    /// Returns the shape of the line.
    pub fn shape(&self) -> Shape {
        self.shape
    }
    /// Returns the number of nodes (N).
    pub fn nodes(&self) -> u32 {
        u32::try_from(self.node_at.len()).expect("bounded by MAX_NODES")
    }
    /// Returns the number of GPUs.
    pub fn gpus(&self) -> u64 {
        u64::from(self.nodes()) * u64::from(self.gpus_per_node)
    }
    /// Returns the node at `position`.
    pub fn node_at(&self, position: Position) -> NodeId {
        self.node_at[position.index()]
    }
    /// Returns the position of `node` on the line.
    pub fn position_of(&self, node: NodeId) -> Position {
        self.position_of[node.index()]
    }

    /// Returns the position `hop` places away, or `None` beyond the end of the line. Hops of N or
    /// more places would wrap around the ring, so they are not cabled.
    pub fn neighbour(&self, position: Position, hop: Hop) -> Option<Position> {
        let nodes = i64::from(self.nodes());
        if i64::from(hop.unsigned_abs()) >= nodes {
            return None;
        }
        let place = i64::from(position.0) + i64::from(hop);
        let place = match self.shape {
            Shape::Ring => place.rem_euclid(nodes),
            Shape::Line if (0..nodes).contains(&place) => place,
            Shape::Line => return None,
        };
        u32::try_from(place).ok().map(Position)
    }

    /// Returns the installed fibre that leaves `position` over `hop`.
    pub fn fibre(&self, position: Position, hop: Hop) -> Option<Fibre> {
        let other = self.neighbour(position, hop)?;
        let from = if hop > 0 { position } else { other };
        let fibre = Fibre { from, hops: hop.unsigned_abs() };
        (self.absent.is_empty() || !self.absent.contains(&fibre)).then_some(fibre)
    }

    /// Returns the port of `node` that carries `hop`.
    pub fn port(&self, node: NodeId, hop: Hop) -> Port {
        let (bundle, path) = port_for_hop(self.k, hop);
        Port { bundle: BundleId { node, bundle }, path }
    }

    /// Returns the two ports of a fibre, lower end first. Panics if the fibre is not on this line.
    pub fn ports(&self, fibre: Fibre) -> (Port, Port) {
        let hop = Hop::try_from(fibre.hops).expect("K is at most 64");
        let upper = self.neighbour(fibre.from, hop).expect("the fibre is part of this line");
        (self.port(self.node_at(fibre.from), hop), self.port(self.node_at(upper), -hop))
    }

    /// Returns the port at the far end of the fibre in `port`, or `None` if no fibre is installed.
    pub fn peer(&self, port: Port) -> Option<Port> {
        let hop = hop_for_port(self.k, port.bundle.bundle, port.path)?;
        let position = *self.position_of.get(port.bundle.node.index())?;
        self.fibre(position, hop)?;
        let other = self.neighbour(position, hop)?;
        Some(self.port(self.node_at(other), -hop))
    }

    /// Returns all installed fibres, ordered by lower end and then by length.
    pub fn fibres(&self) -> impl Iterator<Item = Fibre> + '_ {
        let longest = Hop::try_from(self.k).expect("K is at most 64");
        (0..self.nodes()).flat_map(move |from| {
            (1..=longest).filter_map(move |hop| self.fibre(Position(from), hop))
        })
    }

    /// Returns the ring edge `e` (between GPU `e` and GPU `e + 1 mod R`) of `bundle`. The first two
    /// bundles, with the ±1 links, are on opposite edges. The others fill the remaining edges.
    pub fn ring_edge(&self, bundle: u8) -> u8 {
        let opposite = self.gpus_per_node / 2;
        match bundle {
            0 => 0,
            1 => opposite,
            other if other - 1 < opposite => other - 1,
            other => other,
        }
    }

    /// Returns the bundle on ring edge `edge`, or `None` if the edge is copper.
    pub fn bundle_on_edge(&self, edge: u8) -> Option<u8> {
        (0..self.k).find(|bundle| self.ring_edge(*bundle) == edge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring(nodes: u32, gpus: u8, k: u8, shape: Shape) -> KhopRing {
        KhopRing::new(gpus, k, shape, (0..nodes).map(NodeId).collect()).unwrap()
    }

    #[test]
    fn wiring_table_matches_the_documentation() {
        let row = |k: u8| -> Vec<(u8, u8, Hop)> {
            (0..k)
                .flat_map(|b| (1..=2).map(move |p| (b, p, hop_for_port(k, b, p).unwrap())))
                .collect()
        };
        assert_eq!(row(2), [(0, 1, 1), (0, 2, 2), (1, 1, -1), (1, 2, -2)]);
        assert_eq!(row(3), [(0, 1, 1), (0, 2, 2), (1, 1, -1), (1, 2, -2), (2, 1, 3), (2, 2, -3)]);
        assert_eq!(row(4)[4..], [(2, 1, 3), (2, 2, 4), (3, 1, -3), (3, 2, -4)]);
    }

    #[test]
    fn only_the_two_longest_hops_of_an_odd_k_exclude_each_other() {
        for k in 2..=8u8 {
            for back in 1..=k as Hop {
                for forward in 1..=k as Hop {
                    let clash = k % 2 == 1 && back == k as Hop && forward == k as Hop;
                    assert_eq!(
                        hops_are_compatible(k, -back, forward),
                        !clash,
                        "k={k} -{back} +{forward}"
                    );
                }
            }
        }
    }

    #[test]
    fn bundles_take_distinct_edges_with_the_first_two_opposite() {
        for gpus in 2..=MAX_GPUS_PER_NODE {
            let line = ring(4, gpus, gpus, Shape::Line);
            let mut edges: Vec<u8> = (0..gpus).map(|b| line.ring_edge(b)).collect();
            assert_eq!((edges[0], edges[1]), (0, gpus / 2));
            edges.sort_unstable();
            assert_eq!(edges, (0..gpus).collect::<Vec<_>>());
        }
    }

    #[test]
    fn ports_round_trip_through_text() {
        let port: Port = "n17/b0.2".parse().unwrap();
        assert_eq!(port.to_string(), "n17/b0.2");
        for text in ["n17/b0", "n17/b0.3", "n17.1", "b0.1"] {
            assert!(text.parse::<Port>().is_err());
        }
    }

    #[test]
    fn rejects_impossible_rings() {
        let nodes = || (0..4).map(NodeId).collect::<Vec<_>>();
        assert_eq!(KhopRing::new(1, 2, Shape::Ring, nodes()), Err(KhopError::GpusPerNode(1)));
        let too_far = KhopError::Hops { k: 5, gpus_per_node: 4 };
        assert_eq!(KhopRing::new(4, 5, Shape::Ring, nodes()), Err(too_far));
        assert_eq!(KhopRing::new(4, 2, Shape::Ring, vec![]), Err(KhopError::Nodes(0)));
    }

    proptest! {
        #[test]
        fn every_fibre_joins_two_ports_and_every_port_has_one_fibre(
            nodes in 1u32..20, k in 2u8..=6, closed in any::<bool>(),
        ) {
            let shape = if closed { Shape::Ring } else { Shape::Line };
            let line = ring(nodes, 8, k, shape);
            let mut seen = std::collections::BTreeSet::new();
            for fibre in line.fibres() {
                let (a, b) = line.ports(fibre);
                prop_assert_eq!(line.peer(a), Some(b));
                prop_assert_eq!(line.peer(b), Some(a));
                prop_assert!(seen.insert(a) && seen.insert(b), "a port takes one fibre");
            }
        }
    }
}
