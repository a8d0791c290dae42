//! From a plan and what broke to the plan around it, proven by the checker before it is used.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::id::BundleId;
use lightloom_fabric::khop::KhopRing;
use lightloom_fabric::plan::Plan;
use lightloom_planner::check;
use lightloom_planner::khop::{Survey, from_document, replan, to_document};
use sha2::{Digest, Sha256};

/// The next plan with the least change.
///
/// # Errors
/// Why there is none: parts that do not exist, a plan for another fabric, a plan that fails its check.
pub fn next_plan(
    fabric: &Fabric,
    plan: &Plan,
    broken: &[Part],
    repaired: &[Part],
) -> Result<Plan, Vec<String>> {
    let one = |error: &dyn std::fmt::Display| vec![error.to_string()];
    let (mut layout, mut faults) = from_document(fabric, plan).map_err(|e| one(&e))?;
    for part in broken {
        faults.insert(&fabric.hbd, *part).map_err(|e| one(&e))?;
    }
    for part in repaired {
        faults.remove(&fabric.hbd, *part).map_err(|e| one(&e))?;
        // A node that works again has its bundles back.
        if let Part::Node(node) = part {
            faults.bundles.retain(|bundle| bundle.node != *node);
        }
    }
    let survey = Survey::new(&fabric.hbd, &faults);
    replan(fabric, &survey, &mut layout);
    let next = to_document(fabric, &faults, plan.seed, &layout);
    check::check(fabric, &faults, &next).map_err(|violations| {
        violations.iter().take(20).map(ToString::to_string).collect::<Vec<_>>()
    })?;
    Ok(next)
}

/// Whether a plan around `known` does not go around `part` yet.
#[must_use]
pub fn is_news(hbd: &KhopRing, known: &FaultSet, part: Part) -> bool {
    let covers =
        |bundle: &BundleId| known.nodes.contains(&bundle.node) || known.bundles.contains(bundle);
    let covered = match part {
        Part::Node(_) => false,
        Part::Bundle(bundle) => covers(&bundle),
        Part::Fibre(port) => covers(&port.bundle),
    };
    !covered && known.clone().insert(hbd, part).unwrap_or(false)
}

/// The hash by which a plan is known.
#[must_use]
pub fn sha256_of(plan: &Plan) -> String {
    let bytes = serde_json::to_vec(plan).unwrap_or_default();
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
