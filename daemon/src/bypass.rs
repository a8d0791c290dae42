//! From a plan and what broke to the plan around it, proven by the checker before it is used.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::id::BundleId;
use lightloom_fabric::khop::KhopRing;
use lightloom_fabric::plan::Plan;
use lightloom_planner::check;
use lightloom_planner::khop::{Survey, from_document, replan, to_document};
use sha2::{Digest, Sha256};

use crate::state::Micros;

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

/// When a bypass that did not succeed is tried again: ever later, so that one that cannot succeed leaves others
/// room among the changes that the daemon may make by itself in an hour.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    parts: Vec<Part>,
    tries: u32,
}

impl Patience {
    const FIRST: Micros = Micros::from_secs(1);
    const LAST: Micros = Micros::from_secs(1_800);

    /// `parts` are bypassed now: how long to wait before the same are tried again.
    pub fn wait_after(&mut self, parts: &[Part]) -> Micros {
        if self.parts != parts {
            *self = Self { parts: parts.to_vec(), tries: 0 };
        }
        let wait = Self::FIRST.0.saturating_mul(8u64.saturating_pow(self.tries));
        self.tries += 1;
        Micros(wait.min(Self::LAST.0))
    }
}

/// The hash by which a plan is known.
#[must_use]
pub fn sha256_of(plan: &Plan) -> String {
    let bytes = serde_json::to_vec(plan).unwrap_or_default();
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_succeed_is_tried_ever_later() {
        let [one, other]: [Part; 2] = ["n5", "n9/b0"].map(|part| part.parse().expect(part));
        let mut patience = Patience::default();
        let waits = [(); 7].map(|()| patience.wait_after(&[one]).0 / 1_000_000);
        assert_eq!(waits, [1, 8, 64, 512, 1_800, 1_800, 1_800]);
        let in_the_first_hour =
            waits.iter().scan(0, |at, wait| Some(std::mem::replace(at, *at + wait)));
        assert_eq!(in_the_first_hour.filter(|at| *at < 3_600).count(), 6, "of ten a daemon may do");
        assert_eq!(patience.wait_after(&[one, other]).0, 1_000_000, "something else has broken");
    }
}
