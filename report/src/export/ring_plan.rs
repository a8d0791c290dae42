// SPDX-License-Identifier: Apache-2.0
//! The plan of a k-hop ring, prepared for export with the location and role of every node.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::{Group, JobPlan, Plan, Rank};
use lightloom_units::id::{GroupId, NodeId};

use super::{ExportError, ExportNames};

#[derive(Clone, Debug)]
pub struct RingPlan<'a> {
    pub fabric: &'a Fabric,
    /// The plan must be valid for this fabric.
    pub plan: &'a Plan,
    pub names: &'a ExportNames,
    job: usize,
    seats: Vec<Seat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    Broken,
    /// The node works, but is outside any ring.
    Idle,
    Ring {
        group: GroupId,
        place: u32,
    },
    Inside {
        rings: u32,
    },
}

impl<'a> RingPlan<'a> {
    /// `job` selects the job for formats that describe only one, and must exist.
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

    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.fabric.hbd.nodes()).map(NodeId)
    }

    pub fn seat(&self, node: NodeId) -> Seat {
        self.seats[node.index()]
    }

    pub fn state(&self, node: NodeId) -> &'static str {
        match self.seat(node) {
            Seat::Broken => "broken",
            Seat::Idle => "idle",
            Seat::Inside { .. } => "working",
            Seat::Ring { group, .. } if self.group(group).job.is_none() => "spare",
            Seat::Ring { .. } => "working",
        }
    }

    pub fn name(&self, node: NodeId) -> &'a str {
        self.names.of(node.index())
    }

    pub fn group(&self, id: GroupId) -> &'a Group {
        let group = self.plan.groups.iter().find(|group| group.id == id);
        group.expect("a ring of the plan")
    }

    pub fn job_of(&self, group: &Group) -> Option<&'a JobPlan> {
        self.plan.jobs.get(group.job? as usize)
    }

    pub fn chosen_job(&self) -> Option<(&'a JobPlan, usize)> {
        let job = self.plan.jobs.get(self.job)?;
        let groups = self.plan.groups.iter();
        let own = groups.filter(|group| group.job.is_some_and(|job| job as usize == self.job));
        Some((job, own.count()))
    }

    /// Returns the ranks of the selected job. TP varies fastest, then CP, DP and PP.
    pub fn chosen_ranks(&self) -> Vec<&'a Rank> {
        let ranks = self.plan.ranks.iter();
        let own = ranks.filter(|rank| rank.job.is_some_and(|job| job as usize == self.job));
        let mut ranks: Vec<&Rank> = own.collect();
        ranks.sort_by_key(|rank| (rank.pp, rank.dp, rank.cp, rank.tp));
        ranks
    }

    pub fn is_of_whole_nodes(&self, group: &Group) -> bool {
        group.ring.len() >= usize::from(self.fabric.hbd.gpus_per_node())
    }

    pub fn switches_above(&self, node: NodeId) -> Vec<String> {
        let dcn = &self.fabric.dcn;
        let tor = dcn.tor_of(node);
        let mut above = vec![tor.to_string(), format!("d{}", dcn.domain_of(tor))];
        if self.domains() > 1 {
            above.push("core".to_owned());
        }
        above
    }

    pub fn domains(&self) -> u32 {
        self.fabric.dcn.tors(self.fabric.hbd.nodes()).div_ceil(self.fabric.dcn.tors_per_domain())
    }

    pub(super) fn lost_below_nodes(&self) -> Vec<String> {
        let bundles = self.plan.transceivers.len();
        let circuits = self.plan.circuits.len();
        let mut lost = vec![format!(
            "the order of GPUs in a ring, the paths of {bundles} bundles and {circuits} circuits: \
             the format describes hosts only"
        )];
        lost.extend(self.lost_small_rings());
        lost
    }

    pub(super) fn lost_phases(&self, format_has_circuits: bool) -> Option<String> {
        let names: Vec<&str> = self.plan.phases.iter().map(|phase| phase.name.as_str()).collect();
        let first = *names.first()?;
        let fix = if format_has_circuits {
            format!("select a phase (`--phase {first}`) to export them in place of the rings")
        } else {
            "`sonic-ocs` can".to_owned()
        };
        Some(format!("the optical circuits of {}: {fix}", names.join(", ")))
    }

    pub(super) fn lost_small_rings(&self) -> Option<String> {
        let small = self.plan.groups.iter().filter(|group| !self.is_of_whole_nodes(group)).count();
        (small > 0).then(|| {
            format!("rings smaller than a node ({small}): the format describes hosts, not GPUs")
        })
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
