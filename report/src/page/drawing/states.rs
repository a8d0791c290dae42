// SPDX-License-Identifier: Apache-2.0
//! The state of every node of a ring in a plan, in line order.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::Part;
use lightloom_fabric::khop::Position;
use lightloom_fabric::plan::Plan;
use lightloom_units::id::{GroupId, NodeId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum State {
    /// Works for the job with this index.
    Used(u32),
    /// In a ring without a job.
    Spare,
    /// Works, but is not in a ring.
    Idle,
    Faulty,
}

impl State {
    /// Returns the CSS class of the state's colour; jobs share four.
    pub(in super::super) fn class(self) -> String {
        match self {
            Self::Used(job) => format!("used-{}", job % 4),
            Self::Spare => "spare".to_owned(),
            Self::Idle => "idle".to_owned(),
            Self::Faulty => "faulty".to_owned(),
        }
    }
}

/// A fibre with light between two positions of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct LitFibre {
    pub(in super::super) from: u32,
    /// Length in positions up the line.
    pub(in super::super) hops: u32,
}

/// The line of nodes with a plan.
#[derive(Debug)]
pub(in super::super) struct Line<'a> {
    pub(in super::super) fabric: &'a Fabric,
    pub(in super::super) plan: &'a Plan,
    pub(in super::super) states: Vec<State>,
    /// The ring of the node at each position.
    pub(in super::super) groups: Vec<Option<GroupId>>,
    /// For each position, failed bundles and fibres of a node that has not failed itself.
    pub(in super::super) broken_parts: Vec<u32>,
    pub(in super::super) lit: Vec<LitFibre>,
}

impl<'a> Line<'a> {
    pub(in super::super) fn new(fabric: &'a Fabric, plan: &'a Plan) -> Self {
        let nodes = fabric.hbd.nodes() as usize;
        let place = |node: NodeId| fabric.hbd.position_of(node).index();
        let mut states = vec![State::Idle; nodes];
        let mut groups = vec![None; nodes];
        for group in &plan.groups {
            for &node in &group.nodes {
                states[place(node)] = group.job.map_or(State::Spare, State::Used);
                groups[place(node)] = Some(group.id);
            }
        }
        let mut broken_parts = vec![0; nodes];
        for part in &plan.faults {
            match part {
                Part::Node(node) => states[place(*node)] = State::Faulty,
                Part::Bundle(bundle) => broken_parts[place(bundle.node)] += 1,
                Part::Fibre(port) => broken_parts[place(port.bundle.node)] += 1,
                Part::Ocs(_) | Part::OcsPort(_) | Part::Uplink(_) => {}
            }
        }
        let lit = plan.circuits.iter().map(|circuit| {
            let (a, b) = (place(circuit.a.bundle.node), place(circuit.b.bundle.node));
            let (low, high) = (a.min(b) as u32, a.max(b) as u32);
            let around = nodes as u32 - (high - low);
            if high - low <= around {
                LitFibre { from: low, hops: high - low }
            } else {
                LitFibre { from: high, hops: around }
            }
        });
        let lit = lit.collect();
        Self { fabric, plan, states, groups, broken_parts, lit }
    }

    pub(in super::super) fn nodes(&self) -> u32 {
        self.fabric.hbd.nodes()
    }

    pub(in super::super) fn node(&self, place: u32) -> NodeId {
        self.fabric.hbd.node_at(Position(place))
    }

    /// Returns fibres that skip at least one node.
    pub(in super::super) fn bypasses(&self) -> impl Iterator<Item = &LitFibre> {
        self.lit.iter().filter(|lit| lit.hops >= 2)
    }

    /// Returns runs of failed nodes that no fibre spans, where the line is interrupted.
    pub(in super::super) fn breaks(&self) -> Vec<std::ops::Range<u32>> {
        let k = u32::from(self.fabric.hbd.k());
        let mut breaks = Vec::new();
        let mut at = 0;
        for run in self.states.chunk_by(|a, b| (*a == State::Faulty) == (*b == State::Faulty)) {
            let length = run.len() as u32;
            if run[0] == State::Faulty && length >= k {
                breaks.push(at..at + length);
            }
            at += length;
        }
        breaks
    }

    /// Describes the state of a node.
    pub(in super::super) fn describe(&self, place: u32) -> String {
        let node = self.node(place);
        let tor = self.fabric.dcn.tor_of(node);
        let at = place as usize;
        let state = match self.states[at] {
            State::Used(job) => {
                let name = self.plan.jobs.get(job as usize).map_or("?", |job| job.name.as_str());
                format!("works for {name}")
            }
            State::Spare => "spare".to_owned(),
            State::Idle => "idle".to_owned(),
            State::Faulty => "out of service".to_owned(),
        };
        let group = self.groups[at].map_or(String::new(), |group| format!(", ring {group}"));
        let parts = match self.broken_parts[at] {
            0 => String::new(),
            count => format!(", {count} broken bundles or fibres"),
        };
        format!("{node} (place {place}, {tor}): {state}{group}{parts}")
    }
}
