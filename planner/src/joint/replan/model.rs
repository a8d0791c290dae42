// SPDX-License-Identifier: Apache-2.0
//! The step's time for any placement of the groups, fast enough for a search over placements.
//!
//! The traffic between two groups does not depend on their places, so it is derived once per job.
//! A placement then takes as long as its busiest rack. Circuits are not chosen here, so with optical
//! switches the time is a lower bound.

use std::collections::BTreeMap;

use lightloom_fabric::fabric::{Fabric, Job};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::file::StepFile;
use lightloom_fabric::khop::Position;
use lightloom_fabric::plan::{PhasePlan, Plan};
use lightloom_units::id::{GpuId, GroupId, NodeId, TorId};

use super::super::mapping::Coordinates;
use super::super::traffic::between_groups;
use super::super::{PlanError, network};
use crate::khop::{Layout, cross_tor};

/// Above this number of groups in a job, no groups move for a shorter step.
const MOST_GROUPS: usize = 1_024;

/// The weights of a rank, by pipeline stage and experts. A group loads them if its rank changes.
pub(super) type Weights = (u32, u32);

pub(super) fn weights(job: &Job, at: &Coordinates) -> Weights {
    match &job.step {
        Some(StepFile::Training(raw)) => (at.pp, at.dp % raw.ep.max(1)),
        _ => (0, 0),
    }
}

pub(super) struct JobModel {
    pub(super) may_move: bool,
    pub(super) coordinates: Vec<Coordinates>,
    pub(super) weights: Vec<Weights>,
    /// For each place: other places, and the seconds of the traffic with them at a node's average rate.
    pub(super) neighbours: Vec<Vec<(usize, f64)>>,
    phases: Vec<PhaseModel>,
}

struct PhaseModel {
    flows: Vec<NodeFlow>,
    /// Seconds that the phase takes in every placement.
    least: f64,
}

struct NodeFlow {
    from: usize,
    to: usize,
    bits: f64,
}

/// The quality of a placement. Smaller is better.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Score {
    /// Seconds of the slowest job.
    pub(super) step: f64,
    /// Load of all racks, dominated by the busiest ones, plus a little for each crossing hop.
    pub(super) load: f64,
}

impl Score {
    pub(super) fn is_better_than(&self, other: &Self) -> bool {
        let same = 1e-6 * other.step;
        self.step < other.step - same
            || self.step <= other.step + same && self.load < other.load - 1e-6
    }

    pub(super) fn gain_over(&self, before: &Self) -> f64 {
        let shorter = (before.step - self.step) / before.step.max(f64::MIN_POSITIVE);
        100.0 * shorter + before.load - self.load
    }

    pub(super) fn with(self, other: Self) -> Self {
        Self { step: self.step.max(other.step), load: self.load + other.load }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct SeatedGroup {
    pub(super) id: GroupId,
    pub(super) ranks: Vec<NodeId>,
    /// The chain through these nodes. `None` if the group keeps its chain.
    pub(super) chain: Option<Vec<Position>>,
}

pub(super) type SeatedGroups = Vec<SeatedGroup>;

pub(super) struct Model<'a> {
    pub(super) fabric: &'a Fabric,
    pub(super) jobs: Vec<JobModel>,
    rates: Vec<f64>,
    of_domain: Option<f64>,
    /// Seconds of the step at the start. Loads are relative to it.
    unit: f64,
}

impl<'a> Model<'a> {
    pub(super) fn new(
        fabric: &'a Fabric,
        faults: &FaultSet,
        layout: &Layout,
        at: &BTreeMap<GroupId, Coordinates>,
        plan: &Plan,
    ) -> Result<Option<Self>, PlanError> {
        let per_node = fabric.hbd.gpus_per_node();
        let leaves = network::leaf_rates(fabric, faults);
        let rates = (0..fabric.dcn.tors(fabric.hbd.nodes())).map(|tor| {
            let node = NodeId(tor * fabric.dcn.nodes_per_tor());
            let gpus = (0..per_node).map(|gpu| GpuId { node, gpu });
            let mut own: Vec<usize> = gpus.map(|gpu| fabric.dcn.leaf_of(gpu).index()).collect();
            own.dedup();
            own.into_iter().filter_map(|leaf| leaves.get(leaf)).sum()
        });
        let rates: Vec<f64> = rates.collect();
        let of_domain = fabric.dcn.rate_of_domain(per_node);
        let unit = plan.metrics.step_time_ps.map_or(0.0, |time| time.as_secs_f64());
        let unit = if unit > 0.0 { unit } else { 1.0 };
        let mut model = Self { fabric, jobs: Vec::new(), rates, of_domain, unit };
        for job in (0..).take(layout.jobs.len()) {
            let Some(own) = model.job(job, layout, at, plan)? else { return Ok(None) };
            model.jobs.push(own);
        }
        Ok(Some(model))
    }

    fn job(
        &self,
        index: u32,
        layout: &Layout,
        at: &BTreeMap<GroupId, Coordinates>,
        plan: &Plan,
    ) -> Result<Option<JobModel>, PlanError> {
        let job = &self.fabric.jobs[index as usize];
        let groups: Vec<_> = layout.groups_of(index).collect();
        if groups.len() > MOST_GROUPS {
            return Ok(None);
        }
        let coordinates: Vec<Coordinates> =
            groups.iter().map(|group| at.get(&group.id).copied().unwrap_or_default()).collect();
        let (mut pp, mut cp, mut dp) = (0, 0, 0);
        for at in &coordinates {
            (pp, cp, dp) = (pp.max(at.pp + 1), cp.max(at.cp + 1), dp.max(at.dp + 1));
        }
        let mut places = vec![None; groups.len()];
        for (place, at) in coordinates.iter().enumerate() {
            let number = at.cp + cp * (at.dp + dp * at.pp);
            if let Some(slot) = places.get_mut(number as usize) {
                *slot = Some(place);
            }
        }
        let own = plan
            .phases
            .iter()
            .filter(|phase| phase.job.as_ref().is_none_or(|name| *name == job.name));
        // A job without groups sends nothing.
        let is_full = !groups.is_empty() && places.iter().all(Option::is_some);
        let traffic = match is_full {
            true => between_groups(self.fabric, job, pp, cp, dp)?,
            false => None,
        };
        let trains = traffic.is_some();
        let nodes = groups.first().map_or(1, |group| group.ranks.len());
        let own: Vec<&PhasePlan> = own.filter(|_| job.step.is_some()).collect();
        let phases = match traffic {
            Some(demands) => own
                .iter()
                .zip(demands)
                .map(|(phase, demand)| {
                    let flows = demand.flows().map(|(from, to, bytes)| NodeFlow {
                        from: places[from.index()].expect("every place is taken"),
                        to: places[to.index()].expect("every place is taken"),
                        bits: demand.bits(bytes) / nodes as f64,
                    });
                    let least = phase.interface_ps.unwrap_or_default().as_secs_f64();
                    PhaseModel { flows: flows.collect(), least }
                })
                .collect(),
            None => own
                .iter()
                .map(|phase| PhaseModel {
                    flows: Vec::new(),
                    least: phase.duration_ps.as_secs_f64(),
                })
                .collect(),
        };
        let is_whole =
            groups.iter().all(|group| group.segment.is_none() && group.passing.is_none());
        let mut own = JobModel {
            may_move: is_whole && (trains || job.step.is_none()) && job.is_placed(),
            weights: coordinates.iter().map(|at| weights(job, at)).collect(),
            coordinates,
            neighbours: Vec::new(),
            phases,
        };
        own.neighbours = self.neighbours(&own);
        Ok(Some(own))
    }

    fn neighbours(&self, job: &JobModel) -> Vec<Vec<(usize, f64)>> {
        let rate = self.rates.iter().sum::<f64>() / self.rates.len().max(1) as f64;
        let mut all: Vec<BTreeMap<usize, f64>> = vec![BTreeMap::new(); job.coordinates.len()];
        for flow in job.phases.iter().flat_map(|phase| &phase.flows) {
            let seconds = flow.bits / rate / self.unit;
            *all[flow.from].entry(flow.to).or_default() += seconds;
            *all[flow.to].entry(flow.from).or_default() += seconds;
        }
        for (one, other) in self.hops(job.coordinates.len()) {
            *all[one].entry(other).or_default() += CROSSING;
            *all[other].entry(one).or_default() += CROSSING;
        }
        all.into_iter().map(|own| own.into_iter().collect()).collect()
    }

    fn hops(&self, places: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let width = self.fabric.dcn.nodes_per_tor().max(1) as usize;
        (0..places)
            .map(move |place| {
                let first = place / width * width;
                let count = width.min(places - first);
                (place, first + (place + 1 - first) % count)
            })
            .filter(|(one, other)| one != other)
    }

    pub(super) fn of_job(&self, job: usize, members: &SeatedGroups) -> Score {
        let nodes = members.iter().map(|member| member.ranks.as_slice());
        let crossing = cross_tor(&self.fabric.dcn, nodes).crossing as f64;
        let mut score = Score { step: 0.0, load: CROSSING * crossing };
        for phase in &self.jobs[job].phases {
            let (most, load) = self.of_phase(phase, members);
            score.step += most.max(phase.least);
            score.load += load;
        }
        score
    }

    pub(super) fn racks(&self, job: usize, members: &SeatedGroups) -> Vec<f64> {
        let mut all = vec![0.0; self.rates.len()];
        for phase in &self.jobs[job].phases {
            for ((sum, bits), rate) in
                all.iter_mut().zip(self.bits(phase, members, TorId::index)).zip(&self.rates)
            {
                *sum += bits[0].max(bits[1]) / rate;
            }
        }
        all
    }

    /// Returns the bits that each place sends to and receives from others. `place_of` maps racks to places.
    fn bits(
        &self,
        phase: &PhaseModel,
        members: &SeatedGroups,
        place_of: impl Fn(TorId) -> usize,
    ) -> Vec<[f64; 2]> {
        let mut bits = vec![[0.0; 2]; self.rates.len()];
        for flow in &phase.flows {
            for (from, to) in members[flow.from].ranks.iter().zip(&members[flow.to].ranks) {
                let [from, to] = [from, to].map(|node| place_of(self.fabric.dcn.tor_of(*node)));
                if from != to {
                    bits[from][0] += flow.bits;
                    bits[to][1] += flow.bits;
                }
            }
        }
        bits
    }

    fn of_phase(&self, phase: &PhaseModel, members: &SeatedGroups) -> (f64, f64) {
        let bits = self.bits(phase, members, TorId::index);
        let (mut most, mut load) = (0.0_f64, 0.0);
        for ([sent, received], rate) in bits.iter().zip(&self.rates) {
            let bits = sent.max(*received);
            if bits > 0.0 {
                let seconds = bits / rate;
                most = most.max(seconds);
                load += (seconds / self.unit).powi(4);
            }
        }
        if let Some(rate) = self.of_domain {
            let domains = self.bits(phase, members, |tor| self.fabric.dcn.domain_of(tor) as usize);
            most = most.max(domains.into_iter().flatten().fold(0.0, f64::max) / rate);
        }
        (most, load)
    }
}

/// A crossing hop counts little, so it decides only between placements with equal times.
const CROSSING: f64 = 1e-3;
