// SPDX-License-Identifier: Apache-2.0
//! Plans one-way circuits as circuits between the sending and receiving halves of leaves.

use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree};

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
    let existing: Vec<CrossConnect> =
        existing.iter().map(|circuit| fabric.half(*circuit)).collect();
    match plan::plan(&fabric.halves(), &between_halves(phases), &existing, options) {
        Ok(carried) => Ok(whole(fabric, carried)),
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

fn between_halves(phases: &[Phase]) -> Vec<Phase> {
    let mut phases = phases.to_vec();
    phases.iter_mut().for_each(|phase| phase.demand = phase.demand.between_halves());
    phases
}

fn whole(fabric: &ReconfigurableFatTree, mut carried: CarriedStep) -> CarriedStep {
    let join = |circuits: &mut Vec<CrossConnect>| {
        circuits.iter_mut().for_each(|circuit| *circuit = fabric.whole(*circuit));
        circuits.sort_unstable();
    };
    let leaves = fabric.spec().leaves;
    for phase in &mut carried.phases {
        join(&mut phase.circuits);
        let Some(prices) = &mut phase.prices else { continue };
        for own in &mut prices.ports {
            own.sending = if own.leaf.0 < leaves { 1.0 } else { 0.0 };
            own.leaf.0 %= leaves;
        }
        prices.core.iter_mut().for_each(|own| own.leaf.0 %= leaves);
    }
    for stage in carried.transitions.iter_mut().flat_map(|change| &mut change.stages) {
        join(&mut stage.remove);
        join(&mut stage.add);
    }
    carried
}
