// SPDX-License-Identifier: Apache-2.0
//! Plans the phases on optical circuits, direct cables or packet switches.

use std::collections::BTreeMap;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::{PhasePlan, Plan};
use lightloom_units::id::{LeafId, TorId};
use lightloom_units::{Bytes, Picoseconds};

use super::{Options, PlanError, routes};
use crate::rfabric::demand::Demand;
use crate::rfabric::phases::Phase;
use crate::rfabric::plan::Options as CircuitOptions;
use crate::rfabric::{self, CarriedStep};

pub(super) fn carry(
    fabric: &Fabric,
    faults: &FaultSet,
    phases: &[Phase],
    options: Options,
) -> Result<CarriedStep, PlanError> {
    let sending = sending(phases);
    let mut carried = match (fabric.dcn.circuits(), fabric.dcn.direct()) {
        _ if sending.is_empty() => CarriedStep::default(),
        (Some(network), _) => {
            let options = circuit_options(fabric, phases, options);
            rfabric::plan(&network.without(faults), &sending, &[], options)?
        }
        (None, Some(network)) => {
            let planned = routes::plan(network, faults, &sending, |phase| silent(fabric, phase))
                .map_err(|(phase, why)| rfabric::plan::PlanError::Unservable { phase, why })?;
            CarriedStep::of(planned)
        }
        (None, None) => over_packets(fabric, faults, &sending)?,
    };
    carried.add_silent(fabric, phases);
    Ok(carried)
}

pub(super) fn carry_on(
    fabric: &Fabric,
    faults: &FaultSet,
    phases: &[Phase],
    before: &[PhasePlan],
    options: Options,
) -> Result<CarriedStep, PlanError> {
    let Some(network) = fabric.dcn.circuits() else {
        return carry(fabric, faults, phases, options);
    };
    let network = network.without(faults);
    let sending = sending(phases);
    let mut before = before.to_vec();
    before.retain(|phase| sending.iter().any(|now| now.name == phase.name));
    let circuits = circuit_options(fabric, phases, options);
    let repaired = rfabric::plan::repaired(&network, &sending, &before, circuits);
    let mut seconds = f64::INFINITY;
    let mut good = 0.0;
    if let Some(plan) = &repaired {
        seconds = step_seconds(fabric, phases, &plan.phases, duration);
        good = step_seconds(fabric, phases, &plan.phases, least_duration)
            .max(step_seconds(fabric, phases, &before, duration));
    }
    let mut carried = match repaired {
        Some(plan) if seconds <= (1.0 + WORTH_A_CHANGE) * good => plan,
        _ if sending.is_empty() => CarriedStep::default(),
        repaired => {
            let before = before.first().map_or(&[][..], |phase| phase.circuits.as_slice());
            let fresh = rfabric::plan(&network, &sending, before, circuits)?;
            good = step_seconds(fabric, phases, &fresh.phases, duration);
            repaired.filter(|_| seconds <= (1.0 + WORTH_A_CHANGE) * good).unwrap_or(fresh)
        }
    };
    carried.add_silent(fabric, phases);
    Ok(carried)
}

/// Returns the seconds of a step whose phases between leaves are `own`.
fn step_seconds(
    fabric: &Fabric,
    phases: &[Phase],
    own: &[PhasePlan],
    time: fn(&PhasePlan) -> Picoseconds,
) -> f64 {
    let others = phases.iter().filter(|phase| own.iter().all(|own| own.name != phase.name));
    let others: Vec<PhasePlan> = others.map(|phase| silent(fabric, phase)).collect();
    longest(&[own, &others].concat(), time).unwrap_or_default().as_secs_f64()
}

fn duration(phase: &PhasePlan) -> Picoseconds {
    phase.duration_ps
}

fn least_duration(phase: &PhasePlan) -> Picoseconds {
    Picoseconds::from_secs_f64(1.0 / phase.lambda_upper_bound).min(phase.duration_ps)
}

/// Working circuits are moved only if the step on them would be longer, by more than this fraction,
/// than the step before the fault, its lower bound, and the step on new circuits.
pub(super) const WORTH_A_CHANGE: f64 = 0.05;

fn sending(phases: &[Phase]) -> Vec<Phase> {
    phases.iter().filter(|phase| phase.demand.total() > Bytes::ZERO).cloned().collect()
}

fn circuit_options(fabric: &Fabric, phases: &[Phase], options: Options) -> CircuitOptions {
    let Options { effort, exact, .. } = options;
    let may_change = phases.iter().all(|phase| phase.job == phases[0].job);
    CircuitOptions { effort, exact, floor: fabric.floor, may_change }
}

impl CarriedStep {
    fn of(phases: Vec<PhasePlan>) -> Self {
        let step_time: Picoseconds = phases.iter().map(|phase| phase.duration_ps).sum();
        Self { phases, step_time_ps: Some(step_time), ..Self::default() }
    }

    pub(super) fn write_into(self, plan: &mut Plan) {
        plan.phases = self.phases;
        plan.transitions = self.transitions;
        plan.metrics.step_time_ps = self.step_time_ps;
        plan.metrics.static_step_time_ps = self.static_step_time_ps;
        plan.metrics.dark_port_time_share = self.dark_port_time_share;
    }

    fn add_silent(&mut self, fabric: &Fabric, phases: &[Phase]) {
        let mut planned = std::mem::take(&mut self.phases).into_iter().peekable();
        let (mut sending, mut others) = (0.0, Picoseconds::ZERO);
        for (order, phase) in (0..).zip(phases) {
            let all = silent(fabric, phase);
            let own = match planned.next_if(|planned| planned.name == phase.name) {
                Some(own) => {
                    sending += own.duration_ps.as_secs_f64() + phase.slack.as_secs_f64();
                    PhasePlan { order, interface_ps: all.interface_ps, ..own }
                }
                None => {
                    others += all.duration_ps;
                    PhasePlan { order, ..all }
                }
            };
            self.phases.push(own);
        }
        self.step_time_ps = longest(&self.phases, duration);
        self.static_step_time_ps = self.static_step_time_ps.map(|fixed| fixed + others);
        let longer = sending / (sending + others.as_secs_f64());
        let share = self.dark_port_time_share.filter(|share| *share > 0.0);
        self.dark_port_time_share = share.map(|share| share * longer).or(self.dark_port_time_share);
        if phases.iter().any(|phase| phase.job != phases[0].job) {
            self.static_step_time_ps = self.static_step_time_ps.and(self.step_time_ps);
        }
    }
}

pub(super) fn longest(
    phases: &[PhasePlan],
    time: impl Fn(&PhasePlan) -> Picoseconds,
) -> Option<Picoseconds> {
    let of_jobs = phases.iter().map(|phase| {
        let own = phases.iter().filter(|own| own.job == phase.job);
        own.map(&time).sum()
    });
    of_jobs.max()
}

const AT_ONCE: f64 = 0.0;

fn silent(fabric: &Fabric, phase: &Phase) -> PhasePlan {
    let seconds = phase.demand.interface_seconds(fabric.dcn.link_rate().0 as f64);
    let duration = Picoseconds::from_secs_f64(seconds.unwrap_or(0.0));
    let lambda = seconds.filter(|_| duration.0 > 0).map_or(AT_ONCE, |seconds| 1.0 / seconds);
    PhasePlan {
        name: phase.name.clone(),
        job: phase.job.clone(),
        order: 0,
        topology: "nothing between leaves".to_owned(),
        demand_bytes: Bytes::ZERO,
        ring_bytes: phase.demand.carried().rings,
        leaf_bytes: phase.demand.carried().leaves,
        circuits: Vec::new(),
        routes: Vec::new(),
        prices: None,
        lambda,
        lambda_upper_bound: lambda,
        gap: 0.0,
        duration_ps: duration,
        interface_ps: seconds.map(Picoseconds::from_secs_f64),
        solver: None,
    }
}

fn over_packets(
    fabric: &Fabric,
    faults: &FaultSet,
    phases: &[Phase],
) -> Result<CarriedStep, PlanError> {
    let rates = leaf_rates(fabric, faults);
    let planned: Vec<PhasePlan> = phases
        .iter()
        .map(|phase| {
            let seconds = Estimate::of(fabric, &phase.demand, &rates).seconds;
            let lambda = 1.0 / seconds;
            PhasePlan {
                topology: "packets".to_owned(),
                demand_bytes: phase.demand.total(),
                lambda,
                lambda_upper_bound: lambda,
                duration_ps: Picoseconds::from_secs_f64(seconds),
                ..silent(fabric, phase)
            }
        })
        .collect();
    if let Some(stuck) = planned.iter().find(|phase| phase.lambda <= 0.0) {
        let own = phases.iter().filter(|phase| phase.name == stuck.name);
        let mut ends = own.flat_map(|phase| phase.demand.flows());
        let cut_off = ends.find_map(|(from, to, bytes)| {
            let end = [from, to].into_iter().find(|leaf| rates[leaf.index()] <= 0.0)?;
            Some(format!("{from} sends {bytes} to {to}, but {end} has no working uplink"))
        });
        let why = cut_off.unwrap_or_else(|| "an aggregation domain has no uplinks".to_owned());
        return Err(rfabric::plan::PlanError::Unservable { phase: stuck.name.clone(), why }.into());
    }
    Ok(CarriedStep::of(planned))
}

fn busiest_domain_seconds(fabric: &Fabric, demand: &Demand) -> f64 {
    let Some(rate) = fabric.dcn.rate_of_domain(fabric.hbd.gpus_per_node()) else { return 0.0 };
    let mut bits: BTreeMap<(bool, u32), f64> = BTreeMap::new();
    for (from, to, bytes) in demand.flows() {
        let [from, to] = [from, to].map(|leaf| fabric.dcn.domain_of(TorId(leaf.0)));
        if from != to {
            *bits.entry((true, from)).or_default() += demand.bits(bytes);
            *bits.entry((false, to)).or_default() += demand.bits(bytes);
        }
    }
    bits.values().fold(0.0, |most: f64, bits| most.max(bits / rate))
}

/// Above this limit, estimates do not compute routes.
const MOST_ROUTED_LEAVES: u32 = 256;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Estimate {
    pub(super) seconds: f64,
    pub(super) between: f64,
}

const SAME_TIME: f64 = 1e-9;

impl Estimate {
    fn of(fabric: &Fabric, demand: &Demand, rates: &[f64]) -> Self {
        let leaves = demand.busiest_leaf_seconds(|leaf| rates[leaf.index()]);
        let between = leaves.max(busiest_domain_seconds(fabric, demand));
        let interfaces = demand.interface_seconds(fabric.dcn.link_rate().0 as f64);
        Self { seconds: between.max(interfaces.unwrap_or(0.0)), between }
    }

    pub(super) fn is_better_than(&self, other: &Self) -> bool {
        let same = SAME_TIME * other.seconds;
        self.seconds < other.seconds - same
            || (self.seconds <= other.seconds + same && self.between < other.between)
    }
}

impl std::iter::Sum for Estimate {
    fn sum<I: Iterator<Item = Self>>(estimates: I) -> Self {
        estimates.fold(Self::default(), |sum, one| Self {
            seconds: sum.seconds + one.seconds,
            between: sum.between + one.between,
        })
    }
}

pub(super) fn estimate(fabric: &Fabric, faults: &FaultSet, phases: &[Phase]) -> Estimate {
    if let Some(network) = fabric.dcn.direct().filter(|it| it.leaves() <= MOST_ROUTED_LEAVES) {
        return routes::estimate(network, faults, phases);
    }
    let rates = leaf_rates(fabric, faults);
    let network = fabric.dcn.circuits().filter(|it| it.leaves() <= MOST_ROUTED_LEAVES as usize);
    let network = network.map(|network| network.without(faults));
    let estimates = phases.iter().map(|Phase { demand, .. }| {
        let Estimate { seconds, between } = Estimate::of(fabric, demand, &rates);
        let through = network.as_ref().map_or(0.0, |it| seconds_through_leaves(it, demand));
        Estimate { seconds: seconds.max(through), between: between.max(through) }
    });
    estimates.sum()
}

/// Returns a lower bound of the time if circuits join each leaf only to the peers with most traffic. Other traffic takes
/// the core, or at least two circuits. A one-way circuit carries either the traffic to a peer or the traffic from it.
fn seconds_through_leaves(network: &ReconfigurableFatTree, demand: &Demand) -> f64 {
    let (mut direct, mut rate) = (0.0, 0.0);
    for leaf in (0..network.leaves()).map(LeafId::from_index) {
        let optical = network.optical_rate_of(leaf);
        let circuits = (optical / network.circuit_unit().0 as f64) as usize;
        let peers = (0..network.leaves()).map(LeafId::from_index);
        let (sent, received): (Vec<Bytes>, Vec<Bytes>) =
            peers.map(|peer| (demand.bytes(leaf, peer), demand.bytes(peer, leaf))).unzip();
        let carried = match network.is_one_way() {
            true => largest_bits(demand, circuits, sent) + largest_bits(demand, circuits, received),
            false => {
                let both = sent.into_iter().zip(received).map(|(to, from)| to + from);
                largest_bits(demand, circuits, both)
            }
        };
        direct += carried / 2.0;
        rate += optical + 2.0 * network.electrical_rate_of(leaf);
    }
    (2.0 * demand.bits(demand.total()) - direct) / rate
}

/// Returns the sum of the `count` largest flows, in bits.
fn largest_bits(demand: &Demand, count: usize, flows: impl IntoIterator<Item = Bytes>) -> f64 {
    let mut bits: Vec<f64> =
        flows.into_iter().map(|bytes| demand.bits(bytes)).filter(|bits| *bits > 0.0).collect();
    bits.sort_unstable_by(|a, b| b.total_cmp(a));
    bits.iter().take(count).sum()
}

pub(super) fn leaf_rates(fabric: &Fabric, faults: &FaultSet) -> Vec<f64> {
    let per_node = fabric.hbd.gpus_per_node();
    match fabric.dcn.circuits() {
        None => (0..fabric.dcn.leaves(fabric.hbd.nodes()))
            .map(|leaf| fabric.dcn.packet_rate_left(LeafId(leaf), per_node, faults))
            .collect(),
        Some(network) => {
            let network = network.without(faults);
            (0..network.leaves())
                .map(LeafId::from_index)
                .map(|leaf| network.electrical_rate_of(leaf) + network.optical_rate_of(leaf))
                .collect()
        }
    }
}
