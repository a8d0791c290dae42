// SPDX-License-Identifier: Apache-2.0

use std::sync::Arc;

use lightloom_fabric::plan::Plan;

use super::Setup;
use crate::change::Mode;
use crate::desired::circuits;
use crate::desired::successor::PlanSuccessor;
use crate::desired::{self, Wanted};
use crate::state::SwitchState;

/// The plan in force and the positions of the devices, copied so that the controller need not wait
/// while a change is planned.
#[derive(Clone, Debug)]
pub struct ChangeStart {
    pub setup: Arc<Setup>,
    pub plan: Option<Arc<Plan>>,
    pub owned: SwitchState,
    pub read: SwitchState,
}

impl ChangeStart {
    pub fn wanted(
        &self,
        plan: &Plan,
        phase: Option<&str>,
        mode: Mode,
    ) -> Result<Wanted, Vec<String>> {
        let Setup { installed, modules, switches, .. } = &*self.setup;
        if let Some(fabric) = installed {
            let held =
                fabric.dcn.circuits().map_or(0, |network| network.spec().held_for_others().count());
            circuits::keeps_held(&fabric.name, held, mode)?;
        }
        let mut wanted = desired::wanted(plan, phase, modules, switches, &self.owned)?;
        let before = installed.as_ref().zip(self.plan.as_deref());
        if let (Some((fabric, before)), Some(phase)) = (before, &mut wanted.phase) {
            let change = PlanSuccessor { fabric, switches, before, next: plan };
            let to = plan.phases.iter().find(|to| to.name == phase.name);
            phase.ways.extend(
                to.and_then(|to| change.way(to, &wanted.target, |name| self.read.get(name))),
            );
        }
        Ok(wanted)
    }
}
