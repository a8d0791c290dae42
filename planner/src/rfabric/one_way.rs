// SPDX-License-Identifier: Apache-2.0
//! Plans one-way circuits as circuits between the sending and receiving halves of leaves.

use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree};

use super::one_hop;
use super::phases::Phase;
use super::plan::{self, CarriedStep, Options, PlanError};
use super::unserved;

pub(super) fn plan(
    fabric: &ReconfigurableFatTree,
    phases: &[Phase],
    existing: &[CrossConnect],
    options: Options,
) -> Result<CarriedStep, PlanError> {
    if options.exact.is_some() {
        return Err(PlanError::OneWay);
    }
    let of_halves = existing.iter().map(|circuit| fabric.half(*circuit)).collect::<Vec<_>>();
    match plan::plan(&fabric.halves(), &between_halves(phases), &of_halves, options) {
        Ok(carried) => {
            let mut best = whole(fabric, carried);
            let is_optimal =
                best.transitions.is_empty() && best.phases.iter().all(|own| own.gap <= 0.0);
            if !is_optimal {
                offer_two_way_circuits(&mut best, fabric, phases, existing, options);
            }
            Ok(best)
        }
        Err(PlanError::Unservable { phase, .. }) => {
            let stuck = phases.iter().find(|own| own.name == phase);
            Err(PlanError::unservable(fabric, stuck.unwrap_or(&phases[0])))
        }
        Err(PlanError::NoneForAll(_)) => {
            let all: Vec<&Phase> = phases.iter().collect();
            Err(PlanError::NoneForAll(unserved::why(fabric, &all)))
        }
        Err(error) => Err(error),
    }
}

/// Pairs of one-way circuits form two-way circuits. The search for those is separate, and can find a shorter step.
fn offer_two_way_circuits(
    best: &mut CarriedStep,
    fabric: &ReconfigurableFatTree,
    phases: &[Phase],
    existing: &[CrossConnect],
    options: Options,
) {
    let pairs = existing.iter().filter(|own| own.a < own.b && existing.contains(&own.reversed()));
    let pairs: Vec<CrossConnect> = pairs.copied().collect();
    let Ok(mut offered) = plan::plan(&fabric.with_two_way_circuits(), phases, &pairs, options)
    else {
        return;
    };
    let static_step_time_ps = match (best.static_step_time_ps, offered.static_step_time_ps) {
        (Some(one_way), Some(two_way)) => Some(one_way.min(two_way)),
        (one_way, two_way) => one_way.or(two_way),
    };
    best.static_step_time_ps = static_step_time_ps;
    if offered.step_time_ps >= best.step_time_ps {
        return;
    }
    for (phase, one_way) in offered.phases.iter_mut().zip(&best.phases) {
        add_reversed(&mut phase.circuits);
        // The bound of two-way circuits does not hold for one-way circuits.
        phase.prices.clone_from(&one_way.prices);
        phase.lambda_upper_bound = one_way.lambda_upper_bound.max(phase.lambda);
        phase.gap = one_hop::gap(phase.lambda, phase.lambda_upper_bound);
    }
    for change in &mut offered.transitions {
        change.circuits_kept *= 2;
        for stage in &mut change.stages {
            add_reversed(&mut stage.remove);
            add_reversed(&mut stage.add);
        }
    }
    *best = CarriedStep { static_step_time_ps, ..offered };
}

fn add_reversed(circuits: &mut Vec<CrossConnect>) {
    circuits.extend(circuits.clone().into_iter().map(CrossConnect::reversed));
    circuits.sort_unstable();
}

fn between_halves(phases: &[Phase]) -> Vec<Phase> {
    let mut phases = phases.to_vec();
    phases.iter_mut().for_each(|phase| phase.demand = phase.demand.between_halves());
    phases
}

fn whole(fabric: &ReconfigurableFatTree, mut carried: CarriedStep) -> CarriedStep {
    let leaves = fabric.spec().leaves;
    for phase in &mut carried.phases {
        join_halves(fabric, &mut phase.circuits);
        let Some(prices) = &mut phase.prices else { continue };
        for own in &mut prices.ports {
            own.sending = if own.leaf.0 < leaves { 1.0 } else { 0.0 };
            own.leaf.0 %= leaves;
        }
        prices.core.iter_mut().for_each(|own| own.leaf.0 %= leaves);
    }
    for stage in carried.transitions.iter_mut().flat_map(|change| &mut change.stages) {
        join_halves(fabric, &mut stage.remove);
        join_halves(fabric, &mut stage.add);
    }
    carried
}

fn join_halves(fabric: &ReconfigurableFatTree, circuits: &mut [CrossConnect]) {
    circuits.iter_mut().for_each(|circuit| *circuit = fabric.whole(*circuit));
    circuits.sort_unstable();
}
