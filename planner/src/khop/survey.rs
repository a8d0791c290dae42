// SPDX-License-Identifier: Apache-2.0
//! What can be used: working nodes, whole nodes and working fibres, by position in the line.

use std::collections::BTreeSet;

use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::hbd::Hbd;
use lightloom_fabric::khop::{Hop, Port, Position, hop_for_port};
use lightloom_units::id::{BundleId, NodeId};

/// The usable part of a k-hop ring under a set of faults.
#[derive(Clone, Debug)]
pub struct Survey<'a> {
    hbd: &'a Hbd,
    faults: &'a FaultSet,
    alive: Vec<bool>,
    whole: Vec<bool>,
    /// By position: its transceivers can be set.
    in_reach: Vec<bool>,
    /// Light is cut only where it ends on one of these nodes. `None` if it may be cut anywhere.
    cuts_at: Option<BTreeSet<NodeId>>,
    /// Rings that lost nothing move only if they are of these jobs. `None` if all may.
    moves: Option<BTreeSet<u32>>,
}

impl<'a> Survey<'a> {
    /// Looks at `hbd` with `faults` in it.
    #[must_use]
    pub fn new(hbd: &'a Hbd, faults: &'a FaultSet) -> Self {
        let mut alive = vec![true; hbd.nodes() as usize];
        for node in faults.failed_nodes(hbd) {
            alive[hbd.position_of(node).index()] = false;
        }
        let mut whole = alive.clone();
        for bundle in &faults.bundles {
            whole[hbd.position_of(bundle.node).index()] = false;
        }
        let in_reach = vec![true; hbd.nodes() as usize];
        Self { hbd, faults, alive, whole, in_reach, cuts_at: None, moves: None }
    }

    /// The same where the transceivers of these nodes cannot be set: their light stays as it is, and none of them takes
    /// the place of another.
    #[must_use]
    pub fn out_of_reach<'b>(mut self, nodes: impl IntoIterator<Item = &'b NodeId>) -> Self {
        for node in nodes {
            self.in_reach[self.hbd.position_of(*node).index()] = false;
        }
        self
    }

    /// The same where light between working ends is cut only if it ends on one of these nodes.
    #[must_use]
    pub fn cut_only_at(mut self, nodes: BTreeSet<NodeId>) -> Self {
        self.cuts_at = Some(nodes);
        self
    }

    /// The same where rings that lost nothing move only if they are of these jobs.
    #[must_use]
    pub fn move_only(mut self, jobs: BTreeSet<u32>) -> Self {
        self.moves = Some(jobs);
        self
    }

    /// Whether a ring of `job` that lost nothing may move.
    #[must_use]
    pub fn may_move(&self, job: u32) -> bool {
        self.moves.as_ref().is_none_or(|jobs| jobs.contains(&job))
    }

    /// Whether light between working ends may be cut anywhere.
    #[must_use]
    pub fn may_cut_anywhere(&self) -> bool {
        self.cuts_at.is_none()
    }

    /// Whether light between these nodes may be cut.
    #[must_use]
    pub fn may_cut(&self, one: NodeId, other: NodeId) -> bool {
        let nodes = self.cuts_at.as_ref();
        nodes.is_none_or(|nodes| nodes.contains(&one) || nodes.contains(&other))
    }

    /// Whether some transceivers cannot be set, some rings may not move, or light may not be cut everywhere.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.cuts_at.is_some() || self.moves.is_some() || self.in_reach.contains(&false)
    }

    /// By position: its transceivers can be set.
    #[must_use]
    pub fn in_reach(&self) -> &[bool] {
        &self.in_reach
    }

    /// The cabling looked at.
    #[must_use]
    pub fn hbd(&self) -> &'a Hbd {
        self.hbd
    }
    /// The faults it was taken with.
    #[must_use]
    pub fn faults(&self) -> &'a FaultSet {
        self.faults
    }
    /// By position: the node works.
    #[must_use]
    pub fn alive(&self) -> &[bool] {
        &self.alive
    }
    /// Whether the node works and so do all its bundles, so that its GPU ring can be closed.
    #[must_use]
    pub fn is_whole(&self, position: Position) -> bool {
        self.whole[position.index()]
    }
    /// Whether a working fibre leaves `position` over `hop`. Says nothing of the nodes at its ends.
    #[must_use]
    pub fn has_fibre(&self, position: Position, hop: Hop) -> bool {
        self.hbd.fibre(position, hop).is_some_and(|fibre| !self.faults.fibres.contains(&fibre))
    }
    /// Whether every installed fibre works and none is missing.
    #[must_use]
    pub fn all_fibres_work(&self) -> bool {
        self.faults.fibres.is_empty() && self.hbd.is_fully_cabled()
    }
    /// Whether a bundle can be switched: it works and so does its node.
    #[must_use]
    pub fn bundle_works(&self, bundle: BundleId) -> bool {
        self.alive[self.hbd.position_of(bundle.node).index()]
            && !self.faults.bundles.contains(&bundle)
    }
    /// The port at the far end of a fibre, if the fibre and both bundles work.
    #[must_use]
    pub fn working_peer(&self, port: Port) -> Option<Port> {
        let hop = hop_for_port(self.hbd.k(), port.bundle.bundle, port.path)?;
        let far = self.hbd.peer(port)?;
        let works = self.bundle_works(port.bundle)
            && self.bundle_works(far.bundle)
            && self.has_fibre(self.hbd.position_of(port.bundle.node), hop);
        works.then_some(far)
    }
    /// Bundles of the node at `position` that are broken.
    pub fn broken_bundles(&self, position: Position) -> impl Iterator<Item = u8> + '_ {
        let node = self.hbd.node_at(position);
        self.faults.bundles.iter().filter(move |bundle| bundle.node == node).map(|b| b.bundle)
    }
    /// GPUs of working nodes.
    #[must_use]
    pub fn healthy_gpus(&self) -> u64 {
        let nodes = self.alive.iter().filter(|alive| **alive).count() as u64;
        nodes * u64::from(self.hbd.gpus_per_node())
    }
}
