// SPDX-License-Identifier: Apache-2.0
//! Checks the stages from a plan to its successor by executing them on the former plan.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::Path;
use lightloom_fabric::plan::{ChangeStage, PhasePlan, Plan};
use lightloom_units::id::BundleId;

use super::Violation;
use super::circuits::{Asked, can_serve, execute, rates};
use super::links::{selected, working_far_end, works};
use super::network::asked;

const TOLERANCE: f64 = 1e-6;

/// Executes `stages` on `before`, and checks the state during and after each stage: no port has two
/// circuits, at most one failure domain changes, and the stated circuits and capacity are available.
/// The last state must be `next`, the plan around `faults`.
///
/// # Errors
/// Returns all violations.
pub fn check_stages(
    fabric: &Fabric,
    faults: &FaultSet,
    before: &Plan,
    next: &Plan,
    stages: &[ChangeStage],
) -> Result<(), Vec<Violation>> {
    let mut findings = check_bundles(fabric, faults, before, next, stages);
    if let Some(network) = fabric.dcn.circuits() {
        let network = network.without(faults);
        let changes: Vec<PhaseChange<'_>> = next
            .phases
            .iter()
            .map(|phase| PhaseChange::of(&network, before, phase, stages))
            .collect();
        // Traffic takes long to derive, and most faults change no circuit.
        if changes.iter().any(PhaseChange::is_any) {
            let all = asked(fabric, next).unwrap_or_default();
            for (change, asked) in changes.iter().zip(&all).filter(|(change, _)| change.is_any()) {
                findings.extend(change.check(&network, asked));
            }
        }
    }
    let found: Vec<Violation> = findings.into_iter().map(Violation::Network).collect();
    if found.is_empty() { Ok(()) } else { Err(found) }
}

fn check_bundles(
    fabric: &Fabric,
    faults: &FaultSet,
    before: &Plan,
    next: &Plan,
    stages: &[ChangeStage],
) -> Vec<String> {
    let was: BTreeMap<_, _> =
        before.groups.iter().map(|group| (group.id, (&group.nodes, &group.passing))).collect();
    let (mut now, end, mut findings) = (paths(faults, before), paths(faults, next), Vec::new());
    for (at, stage) in stages.iter().enumerate().filter(|(_, stage)| !stage.bundles.is_empty()) {
        let switching: BTreeSet<BundleId> = stage.bundles.iter().map(|set| set.bundle).collect();
        now.retain(|bundle, _| !switching.contains(bundle));
        let (lit, stated) = (lit_fibres(fabric, faults, &now), stage.circuits_up);
        if lit != stated {
            findings.push(format!("stage {at}: {lit} fibres stay lit, not {stated}"));
        }
        let (mut closed, mut all) = (0, 0);
        for group in next.groups.iter().filter(|group| group.job.is_some()) {
            let mut own = group.nodes.iter().chain(&group.passing).flat_map(|node| {
                (0..fabric.hbd.k()).map(|bundle| BundleId { node: *node, bundle })
            });
            let is_here = was.get(&group.id) == Some(&(&group.nodes, &group.passing));
            all += 1;
            closed += u32::from(is_here && own.all(|bundle| now.get(&bundle) == end.get(&bundle)));
        }
        if (stage.capacity * f64::from(all) - f64::from(closed)).abs() > f64::from(all) * TOLERANCE
        {
            findings.push(format!("stage {at}: {closed} of {all} rings do not change"));
        }
        now.extend(stage.bundles.iter().map(|set| (set.bundle, set.path)));
    }
    if now != end {
        findings.push("the stages do not set the bundles of the next plan".to_owned());
    }
    findings
}

fn paths(faults: &FaultSet, plan: &Plan) -> BTreeMap<BundleId, Path> {
    let working = plan.transceivers.iter().filter(|set| works(faults, set.bundle));
    working.map(|set| (set.bundle, set.path)).collect()
}

fn lit_fibres(fabric: &Fabric, faults: &FaultSet, paths: &BTreeMap<BundleId, Path>) -> usize {
    let ports = paths.iter().filter_map(|(bundle, path)| selected(*bundle, *path));
    let far_ends = ports.filter_map(|port| working_far_end(fabric, faults, port));
    far_ends.filter(|far| paths.get(&far.bundle) == Some(&far.selects())).count() / 2
}

struct PhaseChange<'a> {
    phase: &'a PhasePlan,
    from: Vec<CrossConnect>,
    stages: Vec<&'a ChangeStage>,
}

impl<'a> PhaseChange<'a> {
    fn of(
        network: &ReconfigurableFatTree,
        before: &Plan,
        phase: &'a PhasePlan,
        stages: &'a [ChangeStage],
    ) -> Self {
        let was = before.phases.iter().filter(|was| was.name == phase.name);
        let mut from: Vec<CrossConnect> =
            was.flat_map(|was| was.circuits.iter().copied()).collect();
        from.retain(|circuit| {
            let mut dead = network.dead_ports(circuit.ocs);
            !dead.any(|port| port == circuit.a_port || port == circuit.b_port)
        });
        let stages = stages.iter().filter(|stage| stage.phases.contains(&phase.name)).collect();
        Self { phase, from, stages }
    }

    fn is_any(&self) -> bool {
        !self.phase.circuits.is_empty()
            && (!self.stages.is_empty() || self.from != self.phase.circuits)
    }

    fn check(&self, network: &ReconfigurableFatTree, asked: &Asked) -> Vec<String> {
        let (name, mut unserved) = (format!("change of phase {}", self.phase.name), Vec::new());
        let circuits = self.stages.iter().map(|stage| &stage.circuits);
        let (from, to) = (&self.from, &self.phase.circuits);
        let mut findings = execute(network.spec(), &name, circuits, from, to, |at, _, lit| {
            let ChangeStage { circuits_up, capacity, .. } = self.stages[at];
            let rate = capacity * self.phase.lambda * (1.0 - TOLERANCE);
            if lit.len() != *circuits_up
                || !can_serve(network, asked, &rates(network.spec(), lit), rate)
            {
                let (up, share) = (lit.len(), 100.0 * capacity);
                unserved.push(format!(
                    "{name}: in stage {at}, {up} circuits cannot serve {share:.0} %"
                ));
            }
        });
        findings.append(&mut unserved);
        findings
    }
}
