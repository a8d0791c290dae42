// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use lightloom_fabric::fault::Part;

use lightloom_control::change::PhaseChange;
use lightloom_control::ledger::Past;
use lightloom_control::record::{Cause, Failed, Intent};
use lightloom_daemon_api::text::named;

const HASH_SHOWN: usize = 12;
const PARTS_MAX: usize = 4;

struct Change<'a> {
    cause: &'a Cause,
    plan_sha256: &'a str,
    phase: Option<&'a PhaseChange>,
    before: &'a BTreeMap<String, Failed>,
    after: &'a BTreeMap<String, Failed>,
}

pub(super) fn of_past(past: &Past) -> String {
    Change {
        cause: &past.cause,
        plan_sha256: &past.plan_sha256,
        phase: past.phase.as_ref(),
        before: &past.failed_before,
        after: &past.failed_after,
    }
    .words()
}

pub(super) fn of_intent(intent: &Intent, known: &BTreeMap<String, Failed>) -> String {
    Change {
        cause: &intent.cause,
        plan_sha256: &intent.plan_sha256,
        phase: intent.phase.as_ref(),
        before: known,
        after: intent.failed.as_ref().unwrap_or(known),
    }
    .words()
}

pub(super) fn plan(sha256: &str) -> String {
    format!("plan {}", sha256.get(..HASH_SHOWN).unwrap_or(sha256))
}

pub(super) fn news(
    all: &BTreeMap<String, Failed>,
    known: &BTreeMap<String, Failed>,
) -> Vec<String> {
    let mut news: Vec<String> =
        all.keys().filter(|part| !known.contains_key(*part)).cloned().collect();
    news.sort_by_cached_key(|part| part.parse::<Part>().ok());
    news
}

impl Change<'_> {
    fn words(&self) -> String {
        let (broken, repaired) = (news(self.after, self.before), news(self.before, self.after));
        let [broken, repaired] = [broken, repaired].map(|parts| named(parts, PARTS_MAX));
        let plan = match self.plan_sha256 {
            "" => None,
            sha256 => Some(plan(sha256)),
        };
        let back = match &plan {
            Some(plan) => format!(" (back to {plan})"),
            None => " (back to no plan)".into(),
        };
        match self.cause {
            Cause::Apply => {
                let what = plan.unwrap_or_else(|| "individual circuits".into());
                let phase = self.phase.map(|phase| format!(", {phase}")).unwrap_or_default();
                format!("apply of {what}{phase}{}", around(&broken, &repaired))
            }
            Cause::Phase => {
                self.phase.map_or_else(|| "phase of the plan".into(), ToString::to_string)
            }
            Cause::Bypass if !broken.is_empty() => {
                format!("bypass of {broken}{}", around("", &repaired))
            }
            Cause::Repair if !repaired.is_empty() => format!("repair of {repaired}"),
            Cause::Bypass => "bypass".into(),
            Cause::Repair => "repair".into(),
            Cause::Rollback(txn) => {
                format!("rollback to before {txn}{back}{}", around(&broken, &repaired))
            }
            Cause::ConfirmTimeout(txn) => {
                let around = around(&broken, &repaired);
                format!("{txn} was not confirmed in time{back}{around}")
            }
            Cause::Drift => "drift restored".into(),
            Cause::Deferred(txn) => format!("deferred part of {txn}"),
            Cause::Late(txn) => format!("late command of {txn} undone"),
            Cause::Probe => "probe of ends without a circuit".into(),
        }
    }
}

fn around(broken: &str, repaired: &str) -> String {
    let mut words = String::new();
    if !broken.is_empty() {
        words += &format!(", around {broken}");
    }
    if !repaired.is_empty() {
        words += &format!("; {repaired} back in service");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightloom_control::change::PhaseOrder;
    use lightloom_control::state::Txn;

    fn words(cause: Cause, plan_sha256: &str, before: &[&str], after: &[&str]) -> String {
        let parts = |names: &[&str]| {
            names.iter().map(|part| ((*part).to_owned(), Failed::default())).collect()
        };
        let (before, after) = (parts(before), parts(after));
        let phase = PhaseChange { name: "sync".into(), order: PhaseOrder::NothingMoves };
        let phase = (plan_sha256 == "phases").then_some(&phase);
        Change { cause: &cause, plan_sha256, phase, before: &before, after: &after }.words()
    }

    #[test]
    fn change_description_names_its_cause() {
        let plan = "0123456789abcdef";
        let said = [
            words(Cause::Apply, plan, &[], &["n5", "n20"]),
            words(Cause::Apply, "", &[], &[]),
            words(Cause::Bypass, plan, &["n5"], &["n17", "n5"]),
            words(Cause::Repair, plan, &["n5", "n9"], &["n9"]),
            words(Cause::Rollback(Txn(2)), plan, &["n5"], &[]),
            words(Cause::Rollback(Txn(1)), "", &[], &[]),
            words(Cause::ConfirmTimeout(Txn(4)), plan, &[], &["n9"]),
            words(Cause::Deferred(Txn(3)), plan, &[], &[]),
            words(Cause::Drift, plan, &[], &[]),
            words(Cause::Apply, "phases", &[], &[]),
        ];
        let expected = [
            "apply of plan 0123456789ab, around n5, n20",
            "apply of individual circuits",
            "bypass of n17",
            "repair of n5",
            "rollback to before 2 (back to plan 0123456789ab); n5 back in service",
            "rollback to before 1 (back to no plan)",
            "4 was not confirmed in time (back to plan 0123456789ab), around n9",
            "deferred part of 3",
            "drift restored",
            "apply of plan phases, phase sync, which is already lit",
        ];
        assert_eq!(said, expected);
    }
}
