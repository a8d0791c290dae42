// SPDX-License-Identifier: Apache-2.0
//! How the network carries the phases: over planned circuits where there are optical switches, else over its
//! packet switches alone.

use std::collections::BTreeMap;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::{PhasePlan, Plan, TransitionPlan};
use lightloom_units::id::{LeafId, TorId};
use lightloom_units::{Bytes, Picoseconds};

use super::{Options, PlanError, routes};
use crate::rfabric::demand::Demand;
use crate::rfabric::phases::Phase;
use crate::rfabric::plan::Options as CircuitOptions;
use crate::rfabric::{self, RfabricPlan};

/// The phases as the network carries them.
pub(super) struct Carried {
    pub(super) phases: Vec<PhasePlan>,
    pub(super) transitions: Vec<TransitionPlan>,
    /// `None` without phases.
    pub(super) step_time: Option<Picoseconds>,
    pub(super) static_step_time: Option<Picoseconds>,
    pub(super) dark_port_time_share: Option<f64>,
}

/// Plans how the network carries `phases`.
///
/// # Errors
/// If it cannot carry one.
pub(super) fn carry(
    fabric: &Fabric,
    faults: &FaultSet,
    phases: &[Phase],
    options: Options,
) -> Result<Carried, PlanError> {
    let sending = sending(phases);
    let mut carried = match (fabric.dcn.circuits(), fabric.dcn.direct()) {
        _ if sending.is_empty() => Carried::nothing(),
        (Some(network), _) => {
            let options = circuit_options(fabric, phases, options);
            rfabric::plan(&network.without(faults), &sending, &[], options)?.into()
        }
        (None, Some(network)) => {
            let planned = routes::plan(network, faults, &sending, silent)
                .map_err(crate::rfabric::plan::PlanError::Unservable)?;
            Carried::of(planned)
        }
        (None, None) => over_packets(fabric, faults, &sending)?,
    };
    carried.add_silent(fabric, phases);
    Ok(carried)
}

/// As [`carry`], on the circuits of the phases of a plan in force, wherever these serve nearly as well as they did.
///
/// # Errors
/// If the network cannot carry a phase.
pub(super) fn carry_on(
    fabric: &Fabric,
    faults: &FaultSet,
    phases: &[Phase],
    before: &[PhasePlan],
    options: Options,
) -> Result<Carried, PlanError> {
    let Some(network) = fabric.dcn.circuits() else {
        return carry(fabric, faults, phases, options);
    };
    let sends = |phase: &&PhasePlan| {
        phases.iter().any(|now| now.name == phase.name && now.demand.total() > Bytes::ZERO)
    };
    let before: Vec<PhasePlan> = before.iter().filter(sends).cloned().collect();
    let network = network.without(faults);
    let sending = sending(phases);
    let circuits = circuit_options(fabric, phases, options);
    let repaired = rfabric::plan::repaired(&network, &sending, &before, circuits);
    let serves = |plan: &RfabricPlan| {
        let pairs = plan.phases.iter().zip(&before);
        pairs.into_iter().all(|(now, before)| {
            now.gap < WORTH_A_CHANGE || now.lambda >= (1.0 - WORTH_A_CHANGE) * before.lambda
        })
    };
    let mut carried = match repaired.filter(serves) {
        Some(plan) => plan.into(),
        None if sending.is_empty() => Carried::nothing(),
        None => {
            let before = before.first().map_or(&[][..], |phase| phase.circuits.as_slice());
            rfabric::plan(&network, &sending, before, circuits)?.into()
        }
    };
    carried.add_silent(fabric, phases);
    Ok(carried)
}

/// How far below its bound, or below what it was served at before the fault, a phase may be before new circuits are
/// planned for it, as a fraction.
const WORTH_A_CHANGE: f64 = 1.0 / 3.0;

fn sending(phases: &[Phase]) -> Vec<Phase> {
    phases.iter().filter(|phase| phase.demand.total() > Bytes::ZERO).cloned().collect()
}

fn circuit_options(fabric: &Fabric, phases: &[Phase], options: Options) -> CircuitOptions {
    let Options { effort, exact, .. } = options;
    let may_change = phases.iter().all(|phase| phase.job == phases[0].job);
    CircuitOptions { effort, exact, floor: fabric.floor, may_change }
}

impl From<RfabricPlan> for Carried {
    fn from(plan: RfabricPlan) -> Self {
        Self {
            phases: plan.phases,
            transitions: plan.transitions,
            step_time: Some(plan.step_time_ps),
            static_step_time: plan.static_step_time_ps,
            dark_port_time_share: Some(plan.dark_port_time_share),
        }
    }
}

impl Carried {
    /// Phases that follow one another without a change between them.
    fn of(phases: Vec<PhasePlan>) -> Self {
        let step_time: Picoseconds = phases.iter().map(|phase| phase.duration_ps).sum();
        Self { phases, step_time: Some(step_time), ..Self::nothing() }
    }

    fn nothing() -> Self {
        Self {
            phases: Vec::new(),
            transitions: Vec::new(),
            step_time: None,
            static_step_time: None,
            dark_port_time_share: None,
        }
    }

    /// Writes the phases into a plan whose ranks they were derived from.
    pub(super) fn write_into(self, plan: &mut Plan) {
        plan.phases = self.phases;
        plan.transitions = self.transitions;
        plan.metrics.step_time_ps = self.step_time;
        plan.metrics.static_step_time_ps = self.static_step_time;
        plan.metrics.dark_port_time_share = self.dark_port_time_share;
    }

    /// Phases that send nothing between leaves take no time there; what rings carry of them is stated.
    fn add_silent(&mut self, fabric: &Fabric, phases: &[Phase]) {
        let mut planned = std::mem::take(&mut self.phases).into_iter().peekable();
        for (order, phase) in (0..).zip(phases) {
            let own = planned.next_if(|planned| planned.name == phase.name);
            let own = own.unwrap_or_else(|| silent(phase));
            self.phases.push(PhasePlan { order, interface_ps: interface(fabric, phase), ..own });
        }
        self.step_time = longest(&self.phases);
        if phases.iter().any(|phase| phase.job != phases[0].job) {
            self.static_step_time = self.static_step_time.and(self.step_time);
        }
    }
}

/// The least time of the network interfaces of the GPU that sends, or receives, most.
fn interface(fabric: &Fabric, phase: &Phase) -> Option<Picoseconds> {
    let bits = phase.demand.busiest_interface()?.0 as f64 * 8.0;
    Some(Picoseconds((bits / fabric.dcn.link_rate().0 as f64 * 1e12).round() as u64))
}

/// The time of a step: of the job whose step takes longest, where several have one. `None` without phases.
fn longest(phases: &[PhasePlan]) -> Option<Picoseconds> {
    let of_job = |job: &Option<String>| -> Picoseconds {
        phases.iter().filter(|phase| phase.job == *job).map(|phase| phase.duration_ps).sum()
    };
    phases.iter().map(|phase| of_job(&phase.job)).max()
}

/// More often a second than any phase is served: nothing is sent.
const AT_ONCE: f64 = 0.0;

fn silent(phase: &Phase) -> PhasePlan {
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
        lambda: AT_ONCE,
        lambda_upper_bound: AT_ONCE,
        gap: 0.0,
        duration_ps: Picoseconds::ZERO,
        interface_ps: None,
        solver: None,
    }
}

/// # Errors
/// If a leaf that sends or receives has no uplink left.
fn over_packets(
    fabric: &Fabric,
    faults: &FaultSet,
    phases: &[Phase],
) -> Result<Carried, PlanError> {
    let rates = leaf_rates(fabric, faults);
    let planned: Vec<PhasePlan> = phases
        .iter()
        .map(|phase| {
            let leaves = busiest_seconds(&phase.demand, &rates);
            let seconds = leaves.max(busiest_domain_seconds(fabric, &phase.demand));
            let lambda = 1.0 / seconds;
            PhasePlan {
                topology: "packets".to_owned(),
                demand_bytes: phase.demand.total(),
                lambda,
                lambda_upper_bound: lambda,
                duration_ps: Picoseconds((seconds * 1e12).round() as u64),
                ..silent(phase)
            }
        })
        .collect();
    if let Some(stuck) = planned.iter().find(|phase| phase.lambda <= 0.0) {
        let phase = stuck.name.clone();
        return Err(crate::rfabric::plan::PlanError::Unservable(phase).into());
    }
    Ok(Carried::of(planned))
}

/// Seconds of the leaf that takes longest to send, or to receive.
fn busiest_seconds(demand: &Demand, rates: &[f64]) -> f64 {
    let leaves = by_leaf(demand).into_iter().zip(rates);
    let seconds = leaves.map(|((sent, received), rate)| match sent.max(received) {
        0.0 => 0.0,
        bits => bits / rate,
    });
    seconds.fold(0.0, f64::max)
}

/// Seconds of the aggregation domain that takes longest to send to others, or to receive.
fn busiest_domain_seconds(fabric: &Fabric, demand: &Demand) -> f64 {
    let Some(rate) = fabric.dcn.rate_of_domain(fabric.hbd.gpus_per_node()) else { return 0.0 };
    let mut bits: BTreeMap<(bool, u32), f64> = BTreeMap::new();
    for (from, to, bytes) in demand.flows() {
        let [from, to] = [from, to].map(|leaf| fabric.dcn.domain_of(TorId(leaf.0)));
        if from != to {
            *bits.entry((true, from)).or_default() += bytes.0 as f64 * 8.0;
            *bits.entry((false, to)).or_default() += bytes.0 as f64 * 8.0;
        }
    }
    bits.values().fold(0.0, |most: f64, bits| most.max(bits / rate))
}

/// Bits that each leaf sends and receives.
fn by_leaf(demand: &Demand) -> Vec<(f64, f64)> {
    let mut bits = vec![(0.0, 0.0); demand.leaves()];
    for (from, to, bytes) in demand.flows() {
        bits[from.index()].0 += bytes.0 as f64 * 8.0;
        bits[to.index()].1 += bytes.0 as f64 * 8.0;
    }
    bits
}

/// Leaves joined leaf to leaf up to which an estimate looks at every cable: routes are found anew for each.
const MOST_ROUTED_LEAVES: u32 = 256;

/// The least time in which any circuits could carry `phases`, leaf by leaf; over cables between leaves, the time of their
/// routes: what orders of ranks and sets of idle nodes are compared by.
pub(super) fn estimate(fabric: &Fabric, faults: &FaultSet, phases: &[Phase]) -> f64 {
    if let Some(network) = fabric.dcn.direct().filter(|it| it.leaves() <= MOST_ROUTED_LEAVES) {
        return routes::seconds(network, faults, phases);
    }
    let rates = leaf_rates(fabric, faults);
    let leaves = |phase: &Phase| busiest_seconds(&phase.demand, &rates);
    phases
        .iter()
        .map(|phase| leaves(phase).max(busiest_domain_seconds(fabric, &phase.demand)))
        .sum()
}

/// What each leaf can send at most with all its ports, in bit/s.
pub(super) fn leaf_rates(fabric: &Fabric, faults: &FaultSet) -> Vec<f64> {
    let per_node = fabric.hbd.gpus_per_node();
    match fabric.dcn.circuits() {
        None => (0..fabric.dcn.leaves(fabric.hbd.nodes()))
            .map(|leaf| fabric.dcn.packet_rate_left(LeafId(leaf), per_node, faults))
            .collect(),
        Some(network) => {
            let network = network.without(faults);
            let circuit = network.spec().circuit_rate.0 as f64;
            (0..network.leaves())
                .map(LeafId::from_index)
                .map(|leaf| {
                    network.electrical_rate_of(leaf) + f64::from(network.free_ports(leaf)) * circuit
                })
                .collect()
        }
    }
}
