// SPDX-License-Identifier: Apache-2.0
//! From the plan of a reconfigurable fat-tree to the cross-connects of its switches, phase by phase.
//!
//! A plan is held against the planner's own checker and against the fabric file that the daemon's
//! file names before anything else is made of it.

use lightloom_fabric::fabric::Fabric as Rings;
use lightloom_fabric::plan::Plan;
use lightloom_planner::rfabric::RfabricPlan;
use lightloom_planner::rfabric::check::check;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::file::RfabricInput;
use serde::Deserialize;
use serde_json::Value;

use super::circuits::{self, Switches};
use super::{NO_FABRIC, Wanted, short, some};
use crate::change::Mode;

/// A reconfigurable fat-tree with the step that runs on it, and the devices that are its switches.
#[derive(Clone, Debug)]
pub struct FatTree {
    input: RfabricInput,
    switches: Switches,
}

/// What a plan says of itself beside its phases.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    name: String,
    fabric_sha256: String,
}

/// Whether a document is the plan of a reconfigurable fat-tree.
#[must_use]
pub fn is_plan(document: &Value) -> bool {
    document.get("phases").is_some() && document.get("groups").is_none()
}

/// Why the plan of a reconfigurable fat-tree is refused where none is installed.
pub(super) fn no_fat_tree(document: &Value, rings: Option<&Rings>) -> String {
    let phases = document["phases"].as_array().into_iter().flatten();
    let names: Vec<&str> = phases.filter_map(|phase| phase["name"].as_str()).collect();
    let is =
        format!("this is a plan of a reconfigurable fat-tree with the phases {}", names.join(", "));
    match rings {
        Some(rings) => format!("{is}, and the fabric of this daemon, `{}`, has rings", rings.name),
        None => format!("{is}: {NO_FABRIC} with the file that the plan was made from"),
    }
}

impl FatTree {
    /// What is installed, driven by the devices of `switches`, which were checked against it.
    #[must_use]
    pub fn new(input: RfabricInput, switches: Switches) -> Self {
        Self { input, switches }
    }

    /// The devices of its switches.
    #[must_use]
    pub fn switches(&self) -> &Switches {
        &self.switches
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.input.name
    }

    /// Where every switch shall stand in a phase of this plan, or every reason why not. No device is
    /// asked.
    ///
    /// # Errors
    /// A plan for another fabric, a plan whose check fails, switches without a device, a phase that it
    /// does not have, circuits of other jobs that would be cut.
    pub fn wanted(
        &self,
        document: &Value,
        phase: Option<&str>,
        mode: Mode,
    ) -> Result<Wanted, Vec<String>> {
        let (whole, plan) = self.proven(document)?;
        circuits::must_have_devices(&self.switches, &plan.phases)?;
        let names = || circuits::names(&plan.phases);
        let chosen = match phase {
            Some(name) => plan.phases.iter().find(|p| p.name == name),
            None if plan.phases.len() == 1 => plan.phases.first(),
            None => {
                return Err(vec![format!("name one of its phases with `--phase`: {}", names())]);
            }
        };
        let Some(chosen) = chosen else {
            return Err(vec![format!("it has no such phase; it has {}", names())]);
        };
        circuits::keeps_held(self.name(), self.input.fabric.spec().held.len(), mode)?;
        let target = circuits::on_switches(&self.switches, &chosen.circuits);
        let phase = circuits::wanted_phase(&self.switches, &plan.phases, &plan.transitions, chosen);
        Ok(Wanted { target, phase: Some(Box::new(phase)), plan: Some(Box::new(whole)) })
    }

    /// The plan, once the planner's checker finds nothing wrong with it on this fabric.
    fn proven(&self, document: &Value) -> Result<(Plan, RfabricPlan), Vec<String>> {
        if !is_plan(document) {
            return Err(vec![format!(
                "this is no plan of the reconfigurable fat-tree `{}`: make one with `lightloom plan FABRIC -o plan.json`",
                self.name()
            )]);
        }
        let no_plan = |error: serde_json::Error| vec![format!("no plan: {error}")];
        let head = Head::deserialize(document).map_err(no_plan)?;
        let whole = Plan::deserialize(document).map_err(no_plan)?;
        let plan = RfabricPlan::of(&whole)
            .ok_or_else(|| vec!["no plan: its metrics lack `step_time_ps`".to_owned()])?;
        let input = &self.input;
        if head.fabric_sha256 != input.sha256 {
            return Err(vec![format!(
                "the plan is for another fabric: `{}` (file {}), and this daemon drives `{}` (file {}); make a plan \
                 for it with `lightloom plan`",
                head.name,
                short(&head.fabric_sha256),
                input.name,
                short(&input.sha256),
            )]);
        }
        let names = plan.phases.iter().zip(&input.phases);
        let renamed = names.filter(|(planned, phase)| planned.name != phase.name);
        let mut findings: Vec<String> = renamed
            .map(|(planned, phase)| {
                format!("phase {}: the fabric file has `{}` there", planned.name, phase.name)
            })
            .collect();
        let demands: Vec<Demand> = input.phases.iter().map(|phase| phase.demand.clone()).collect();
        findings.extend(check(&input.fabric, &demands, &plan));
        if findings.is_empty() { Ok((whole, plan)) } else { Err(some(&findings)) }
    }
}
