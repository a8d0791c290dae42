// SPDX-License-Identifier: Apache-2.0
//! Converts plans of version 1.
//!
//! Version 1 had two documents with one name: one for rings, one for the circuits of a
//! reconfigurable fat-tree. Both become the current plan, for the fabric file that `lightloom
//! convert` makes from the old one.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::{EARLIER_SCHEMA, PhasePlan, Plan, TransitionPlan};
use lightloom_units::seed::Seed;
use lightloom_units::{Dollars, Picoseconds};
use serde_json::Value;

use crate::check::check;
use crate::joint;
use crate::khop::{Layout, to_document};

/// The reason why a plan cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// The text is not a plan of version 1.
    #[error("this is no plan of version 1: {0}")]
    NoPlan(String),
    /// The plan was made from another fabric file.
    #[error(
        "the plan was made from another fabric file than this: name the one that it was made from"
    )]
    OtherFabric,
    /// The converted plan violates a rule of this fabric.
    #[error("the plan is not sound on this fabric: {0}")]
    Unsound(String),
}

#[derive(serde::Deserialize)]
struct CircuitsOfVersion1 {
    seed: Seed,
    phases: Vec<Value>,
    transitions: Vec<TransitionPlan>,
    step_time_ps: Picoseconds,
    static_step_time_ps: Option<Picoseconds>,
    dark_port_time_share: f64,
}

/// Converts the plan in `text` for `fabric`. `before` is the SHA-256 of the plan's original fabric
/// file. The result is checked and has its digest.
///
/// # Errors
/// Fails if `text` is not a plan of version 1 for that fabric.
pub fn convert(text: &[u8], fabric: &Fabric, before: &str) -> Result<Plan, ConvertError> {
    let no_plan = |error: serde_json::Error| ConvertError::NoPlan(error.to_string());
    let value: Value = serde_json::from_slice(text).map_err(no_plan)?;
    if value["schema"] != EARLIER_SCHEMA {
        return Err(ConvertError::NoPlan(format!("its `schema` is {}", value["schema"])));
    }
    let made_from = value["fabric_sha256"].as_str().unwrap_or_default();
    if made_from != before && made_from != fabric.sha256 {
        return Err(ConvertError::OtherFabric);
    }
    let mut plan = match value.get("step_time_ps") {
        None => serde_json::from_value::<Plan>(value).map_err(no_plan)?.upgraded(),
        Some(_) => of_circuits(fabric, value)?,
    };
    plan.fabric_sha256.clone_from(&fabric.sha256);
    plan.digest.clear();
    let unsound = |found: String| ConvertError::Unsound(found);
    let faults = FaultSet::of(fabric, plan.faults.iter().copied())
        .map_err(|error| unsound(error.to_string()))?;
    let inputs = std::mem::take(&mut plan.inputs);
    let plan = plan.sealed(inputs);
    check(fabric, &faults, &plan)
        .map_err(|found| unsound(found.first().map_or_else(String::new, ToString::to_string)))?;
    Ok(plan)
}

/// Converts a circuit plan. Version 1 did not state the bytes that stay below leaves; they are
/// derived from the step.
fn of_circuits(fabric: &Fabric, value: Value) -> Result<Plan, ConvertError> {
    let no_plan = |error: serde_json::Error| ConvertError::NoPlan(error.to_string());
    let cost = value["metrics"]["cost_per_gpu_usd"].as_f64().map(Dollars);
    let old: CircuitsOfVersion1 = serde_json::from_value(value).map_err(no_plan)?;
    let faults = FaultSet::none();
    let mut layout = Layout::dark(fabric);
    for (index, job) in (0..).zip(&fabric.jobs) {
        layout.add_job(fabric, job, index, 0.0, Vec::new(), &mut []);
    }
    let mut plan = to_document(fabric, &faults, old.seed, &layout);
    let sent = joint::phases(fabric, &plan.ranks)
        .map_err(|error| ConvertError::Unsound(error.to_string()))?;
    for (order, mut phase) in old.phases.into_iter().enumerate() {
        phase["order"] = order.into();
        let mut phase: PhasePlan = serde_json::from_value(phase).map_err(no_plan)?;
        if let Some(sent) = sent.get(order) {
            phase.ring_bytes = sent.demand.carried().rings;
            phase.leaf_bytes = sent.demand.carried().leaves;
        }
        plan.phases.push(phase);
    }
    plan.transitions = old.transitions;
    plan.metrics.cost_per_gpu_usd = cost.or(plan.metrics.cost_per_gpu_usd);
    plan.metrics.step_time_ps = Some(old.step_time_ps);
    plan.metrics.static_step_time_ps = old.static_step_time_ps;
    plan.metrics.dark_port_time_share = Some(old.dark_port_time_share);
    Ok(plan)
}
