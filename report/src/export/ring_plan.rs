// SPDX-License-Identifier: Apache-2.0
//! The plan of a k-hop ring as exports see it: every node, where it stands and what it does.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::{Group, JobPlan, Plan, Rank};
use lightloom_units::id::{GroupId, NodeId};

use super::{ExportError, ExportNames};

/// A plan, the fabric it is for, and the names of its nodes.
#[derive(Clone, Debug)]
pub struct RingPlan<'a> {
    /// The fabric.
    pub fabric: &'a Fabric,
    /// The plan, which is sound for this fabric.
    pub plan: &'a Plan,
    /// The names of the nodes.
    pub names: &'a ExportNames,
    /// The job to describe where a format holds one; the first by default.
    job: usize,
    seats: Vec<Seat>,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// It is broken.
    Broken,
    /// It works and is in no ring.
    Idle,
    /// It is part of a ring of whole nodes.
    Ring {
        /// The ring.
        group: GroupId,
        /// Its place in the line of the ring's nodes, from 0.
        place: u32,
    },
    /// It holds rings smaller than itself.
    Inside {
        /// How many.
        rings: u32,
    },
}

impl<'a> RingPlan<'a> {
    /// A plan that is sound for `fabric`; `job` is the one to describe where a format holds one.
    ///
    /// # Errors
    /// If the plan has no such job.
    pub fn new(
        fabric: &'a Fabric,
        plan: &'a Plan,
        names: &'a ExportNames,
        job: Option<&str>,
    ) -> Result<Self, ExportError> {
        let job = match job {
            None => 0,
            Some(name) => plan.jobs.iter().position(|job| job.name == name).ok_or_else(|| {
                let known: Vec<&str> = plan.jobs.iter().map(|job| job.name.as_str()).collect();
                ExportError::NoSuchJob { name: name.to_owned(), known: known.join(", ") }
            })?,
        };
        Ok(Self { fabric, plan, names, job, seats: seats(fabric, plan) })
    }

    /// Every node, by number.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.fabric.hbd.nodes()).map(NodeId)
    }

    /// What a node does.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn seat(&self, node: NodeId) -> Seat {
        self.seats[node.index()]
    }

    /// What a node does, in a word: `broken`, `idle`, `working` for a job, or `spare` in a ring that
    /// no job wants.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn state(&self, node: NodeId) -> &'static str {
        match self.seat(node) {
            Seat::Broken => "broken",
            Seat::Idle => "idle",
            Seat::Inside { .. } => "working",
            Seat::Ring { group, .. } if self.group(group).job.is_none() => "spare",
            Seat::Ring { .. } => "working",
        }
    }

    /// The name of a node.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn name(&self, node: NodeId) -> &'a str {
        self.names.of(node.index())
    }

    /// The ring of this name.
    ///
    /// # Panics
    /// If there is no such ring.
    #[must_use]
    pub fn group(&self, id: GroupId) -> &'a Group {
        let group = self.plan.groups.iter().find(|group| group.id == id);
        group.expect("a ring of the plan")
    }

    /// The job that a ring works for; nothing for a spare.
    #[must_use]
    pub fn job_of(&self, group: &Group) -> Option<&'a JobPlan> {
        self.plan.jobs.get(group.job? as usize)
    }

    /// The job to describe where a format holds one, and its rings.
    #[must_use]
    pub fn chosen_job(&self) -> Option<(&'a JobPlan, usize)> {
        let job = self.plan.jobs.get(self.job)?;
        let works = |group: &&Group| group.job.is_some_and(|job| job as usize == self.job);
        Some((job, self.plan.groups.iter().filter(works).count()))
    }

    /// The ranks of that job: tensor parallelism fastest, then context, data and pipeline.
    #[must_use]
    pub fn chosen_ranks(&self) -> Vec<&'a Rank> {
        let works = |rank: &&Rank| rank.job.is_some_and(|job| job as usize == self.job);
        let mut ranks: Vec<&Rank> = self.plan.ranks.iter().filter(works).collect();
        ranks.sort_by_key(|rank| (rank.pp, rank.dp, rank.cp, rank.tp));
        ranks
    }

    /// Whether a ring is made of whole nodes.
    #[must_use]
    pub fn is_of_whole_nodes(&self, group: &Group) -> bool {
        group.ring.len() >= usize::from(self.fabric.hbd.gpus_per_node())
    }

    /// The switches above a node in the data-centre network, the nearest first.
    #[must_use]
    pub fn switches_above(&self, node: NodeId) -> Vec<String> {
        let dcn = &self.fabric.dcn;
        let tor = dcn.tor_of(node);
        let mut above = vec![tor.to_string(), format!("d{}", dcn.domain_of(tor))];
        if self.domains() > 1 {
            above.push("core".to_owned());
        }
        above
    }

    /// Aggregation domains of the data-centre network.
    #[must_use]
    pub fn domains(&self) -> u32 {
        self.fabric.dcn.tors(self.fabric.hbd.nodes()).div_ceil(self.fabric.dcn.tors_per_domain())
    }

    /// What a format loses that knows nodes in rings, and neither GPUs nor light.
    pub(super) fn lost_below_nodes(&self) -> Vec<String> {
        let bundles = self.plan.transceivers.len();
        let circuits = self.plan.circuits.len();
        let mut lost = vec![format!(
            "the order of GPUs in a ring, the paths of {bundles} bundles and {circuits} circuits: \
             it knows hosts, not light"
        )];
        lost.extend(self.lost_small_rings());
        lost
    }

    /// What a format loses that knows no GPUs.
    pub(super) fn lost_small_rings(&self) -> Option<String> {
        let small = self.plan.groups.iter().filter(|group| !self.is_of_whole_nodes(group)).count();
        (small > 0)
            .then(|| format!("rings smaller than a node ({small}): it knows hosts, not GPUs"))
    }
}

fn seats(fabric: &Fabric, plan: &Plan) -> Vec<Seat> {
    let mut seats = vec![Seat::Idle; fabric.hbd.nodes() as usize];
    for group in &plan.groups {
        let whole = group.ring.len() >= usize::from(fabric.hbd.gpus_per_node());
        for (place, node) in (0..).zip(&group.nodes) {
            let seat = &mut seats[node.index()];
            *seat = match *seat {
                _ if whole => Seat::Ring { group: group.id, place },
                Seat::Inside { rings } => Seat::Inside { rings: rings + 1 },
                _ => Seat::Inside { rings: 1 },
            };
        }
    }
    for part in &plan.faults {
        if let Part::Node(node) = part {
            seats[node.index()] = Seat::Broken;
        }
    }
    seats
}
