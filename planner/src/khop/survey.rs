// SPDX-License-Identifier: Apache-2.0
//! The usable nodes and fibres of a k-hop ring, by position on the line.

use std::collections::BTreeSet;

use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::hbd::Hbd;
use lightloom_fabric::khop::{Hop, Port, Position, hop_for_port};
use lightloom_units::id::{BundleId, NodeId};

/// The number of groups that a replan may move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MoveLimit {
    /// As few groups as possible.
    #[default]
    Least,
    /// Up to this many groups more than the faults affect.
    BeyondHit(usize),
    /// Up to this many groups, or more if the faults require it.
    Total(usize),
    /// Up to this many groups, also to cross fewer ToRs with an equal step.
    Heal(usize),
    /// As many groups as a plan from scratch requires.
    Cold,
}

/// Limits on a replan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Nodes whose transceivers cannot be set now. Such nodes do not replace failed nodes.
    pub out_of_reach: BTreeSet<NodeId>,
    /// A circuit with two working ends may only be cut if it ends on one of these nodes. `None` allows all.
    pub cuts_at: Option<BTreeSet<NodeId>>,
    /// Rings without a fault may only move if they belong to these jobs. `None` allows all. Only
    /// [`MoveLimit::Heal`] searches for a better placement within this limit.
    pub moves: Option<BTreeSet<u32>>,
    /// The number of groups that may move for a shorter step.
    pub limit: MoveLimit,
    /// Nodes that lack their planned light. Their rings are already open, so moving them costs no more.
    pub open: BTreeSet<NodeId>,
}

/// The usable parts of a k-hop ring with faults, and the limits that apply to a replan.
#[derive(Clone, Debug)]
pub struct Survey<'a> {
    hbd: &'a Hbd,
    faults: &'a FaultSet,
    alive: Vec<bool>,
    whole: Vec<bool>,
    in_reach: Vec<bool>,
    bounds: Bounds,
}

impl<'a> Survey<'a> {
    /// Creates a survey without limits.
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
        Self { hbd, faults, alive, whole, in_reach, bounds: Bounds::default() }
    }

    /// Applies the limits of a replan.
    pub fn within(mut self, bounds: &Bounds) -> Self {
        for node in &bounds.out_of_reach {
            self.in_reach[self.hbd.position_of(*node).index()] = false;
        }
        self.bounds = bounds.clone();
        self
    }

    /// Returns whether any of these nodes lacks its planned light.
    pub fn is_open(&self, nodes: &[NodeId]) -> bool {
        nodes.iter().any(|node| self.bounds.open.contains(node))
    }

    /// Returns whether a fault-free ring of `job` may move.
    pub fn may_move(&self, job: u32) -> bool {
        self.bounds.moves.as_ref().is_none_or(|jobs| jobs.contains(&job))
    }

    /// Returns whether every circuit with two working ends may be cut.
    pub fn may_cut_anywhere(&self) -> bool {
        self.bounds.cuts_at.is_none()
    }

    /// Returns whether a circuit between these nodes may be cut.
    pub fn may_cut(&self, one: NodeId, other: NodeId) -> bool {
        let nodes = self.bounds.cuts_at.as_ref();
        nodes.is_none_or(|nodes| nodes.contains(&one) || nodes.contains(&other))
    }

    /// Returns whether cuts, moves or transceivers are restricted.
    pub fn is_bounded(&self) -> bool {
        self.bounds.cuts_at.is_some()
            || self.bounds.moves.is_some()
            || self.in_reach.contains(&false)
    }

    /// Returns whether transceivers can be set, by position.
    pub fn in_reach(&self) -> &[bool] {
        &self.in_reach
    }

    /// Returns the cabling.
    pub fn hbd(&self) -> &'a Hbd {
        self.hbd
    }
    /// Returns the faults.
    pub fn faults(&self) -> &'a FaultSet {
        self.faults
    }
    /// Returns whether nodes work, by position.
    pub fn alive(&self) -> &[bool] {
        &self.alive
    }
    /// Returns whether the node and all its bundles work, so that its GPU ring closes.
    pub fn is_whole(&self, position: Position) -> bool {
        self.whole[position.index()]
    }
    /// Returns whether the node at `position` is one of the `free` nodes and whole.
    pub fn is_usable(&self, position: Position, free: &[bool]) -> bool {
        free[position.index()] && self.whole[position.index()]
    }
    /// Returns whether a working fibre for this hop starts at `position`.
    pub fn has_fibre(&self, position: Position, hop: Hop) -> bool {
        self.hbd.fibre(position, hop).is_some_and(|fibre| !self.faults.fibres.contains(&fibre))
    }
    /// Returns whether every designed fibre is installed and works.
    pub fn all_fibres_work(&self) -> bool {
        self.faults.fibres.is_empty() && self.hbd.is_fully_cabled()
    }
    /// Returns whether the bundle and its node work.
    pub fn bundle_works(&self, bundle: BundleId) -> bool {
        self.alive[self.hbd.position_of(bundle.node).index()]
            && !self.faults.bundles.contains(&bundle)
    }
    /// Returns the far port of a fibre if the fibre and both bundles work.
    pub fn working_peer(&self, port: Port) -> Option<Port> {
        let hop = hop_for_port(self.hbd.k(), port.bundle.bundle, port.path)?;
        let far = self.hbd.peer(port)?;
        let works = self.bundle_works(port.bundle)
            && self.bundle_works(far.bundle)
            && self.has_fibre(self.hbd.position_of(port.bundle.node), hop);
        works.then_some(far)
    }
    /// Iterates over the failed bundles of the node at `position`.
    pub fn broken_bundles(&self, position: Position) -> impl Iterator<Item = u8> + '_ {
        let node = self.hbd.node_at(position);
        self.faults.bundles.iter().filter(move |bundle| bundle.node == node).map(|b| b.bundle)
    }
    /// Returns the number of GPUs of working nodes.
    pub fn healthy_gpus(&self) -> u64 {
        let nodes = self.alive.iter().filter(|alive| **alive).count() as u64;
        nodes * u64::from(self.hbd.gpus_per_node())
    }
}
