// SPDX-License-Identifier: Apache-2.0
//! Orders the change from a plan to its successor in stages.
//!
//! All bundles switch in the first stage, because each has fibres of its own and waits for no other
//! bundle. The daemon fires them in one wave, too. Cross-connects then change by the rule for
//! changes between phases ([`transition`]): one failure domain at a time, above the fabric's floor.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::Path;
use lightloom_fabric::plan::{ChangeStage, Group, PhasePlan, Plan};
use lightloom_units::id::{BundleId, NodeId};

use super::super::{PlanError, phases};
use crate::rfabric::evaluate::Evaluator;
use crate::rfabric::transition;

/// Returns the stages of the change from `before` to `next`, the plan around `faults`. Phases with
/// different circuits have separate stages, because only one of them is lit.
///
/// # Errors
/// Fails if the traffic of the jobs cannot be derived.
pub fn stages(
    fabric: &Fabric,
    faults: &FaultSet,
    before: &Plan,
    next: &Plan,
) -> Result<Vec<ChangeStage>, PlanError> {
    let mut all: Vec<ChangeStage> = of_bundles(before, next).into_iter().collect();
    let Some(network) = fabric.dcn.circuits() else { return Ok(all) };
    let network = network.without(faults);
    let lit = next.phases.iter().filter(|phase| !phase.circuits.is_empty());
    if lit.clone().all(|phase| circuits_left(&network, before, phase) == phase.circuits) {
        return Ok(all);
    }
    let demands = phases(fabric, &next.ranks)?;
    let mut changes: Vec<SwitchChange<'_>> = Vec::new();
    for phase in lit {
        let Some(sent) = demands.iter().find(|sent| sent.name == phase.name) else { continue };
        let served = (phase, Evaluator::new(&network, &sent.demand));
        let (from, to) = (circuits_left(&network, before, phase), phase.circuits.as_slice());
        match changes.iter_mut().find(|change| change.from == from && change.to == to) {
            Some(change) => change.phases.push(served),
            None => changes.push(SwitchChange { from, to, phases: vec![served] }),
        }
    }
    all.extend(changes.iter().flat_map(|change| change.stages(&network, fabric.floor)));
    Ok(all)
}

struct SwitchChange<'a> {
    from: Vec<CrossConnect>,
    to: &'a [CrossConnect],
    phases: Vec<(&'a PhasePlan, Evaluator)>,
}

impl SwitchChange<'_> {
    fn stages(&self, network: &ReconfigurableFatTree, floor: f64) -> Vec<ChangeStage> {
        let slowest = self.phases.iter().max_by_key(|(phase, _)| phase.duration_ps);
        let (_, live) = slowest.expect("a change belongs to a phase");
        let (stages, _) =
            transition::stage_above_lower_floor(network, &self.from, self.to, live, floor);
        let mut capacities = vec![1.0_f64; stages.len()];
        for (phase, live) in &self.phases {
            let rates = transition::stage_lambdas(network, &self.from, &stages, live);
            for (capacity, rate) in capacities.iter_mut().zip(rates) {
                *capacity = capacity.min(rate / phase.lambda);
            }
        }
        let (mut lit, mut all) = (self.from.len(), Vec::new());
        for (circuits, capacity) in stages.into_iter().zip(capacities) {
            let circuits_up = lit - circuits.remove.len();
            lit = circuits_up + circuits.add.len();
            let phases = self.phases.iter().map(|(phase, _)| phase.name.clone()).collect();
            let bundles = Vec::new();
            all.push(ChangeStage { phases, bundles, circuits, circuits_up, capacity });
        }
        all
    }
}

fn circuits_left(
    network: &ReconfigurableFatTree,
    before: &Plan,
    phase: &PhasePlan,
) -> Vec<CrossConnect> {
    let was = before.phases.iter().find(|was| was.name == phase.name);
    let mut circuits = was.map_or_else(Vec::new, |was| was.circuits.clone());
    circuits.retain(|circuit| {
        let mut dead = network.dead_ports(circuit.ocs);
        !dead.any(|port| [circuit.a_port, circuit.b_port].contains(&port))
    });
    circuits
}

fn of_bundles(before: &Plan, next: &Plan) -> Option<ChangeStage> {
    let paths: BTreeMap<BundleId, Path> =
        before.transceivers.iter().map(|was| (was.bundle, was.path)).collect();
    let mut bundles = next.transceivers.clone();
    bundles.retain(|now| paths.get(&now.bundle) != Some(&now.path));
    let switching: BTreeSet<NodeId> = bundles.iter().map(|now| now.bundle.node).collect();
    let lit: BTreeSet<_> = before.circuits.iter().collect();
    let was: BTreeMap<_, &Group> = before.groups.iter().map(|group| (group.id, group)).collect();
    let (mut groups, mut up) = (0.0_f64, 0.0);
    for now in next.groups.iter().filter(|group| group.job.is_some()) {
        let same = was.get(&now.id).filter(|was| was.nodes == now.nodes);
        let is_same = same.is_some_and(|was| was.passing == now.passing);
        let mut nodes = now.nodes.iter().chain(&now.passing);
        groups += 1.0;
        up += f64::from(is_same && !nodes.any(|node| switching.contains(node)));
    }
    (!bundles.is_empty()).then(|| ChangeStage {
        bundles,
        circuits_up: next.circuits.iter().filter(|circuit| lit.contains(circuit)).count(),
        capacity: up / groups.max(1.0),
        ..ChangeStage::default()
    })
}
