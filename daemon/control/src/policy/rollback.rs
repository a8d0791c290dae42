// SPDX-License-Identifier: Apache-2.0
//! Rollbacks to the exact state before a transaction, except for parts that have failed since. A
//! new plan avoids the failed parts; if the plan is unknown, they stay dark.

use std::sync::Arc;

use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::khop::Port;
use lightloom_fabric::plan::Plan;

use super::Facts;
use crate::kept_plan::KeptPlan;
use crate::messages::{Answer, Apply, Rollback};
use crate::record::{Cause, Failed};
use crate::replan;
use crate::state::{DeviceName, FibreEnd, Now, Position, Slot};

impl Facts<'_> {
    pub fn way_back(&self, rollback: &Rollback) -> Result<(Apply, Option<Arc<Plan>>), Vec<String>> {
        let txn = rollback.txn;
        let past = self.ledger.history.iter().find(|past| past.txn == txn);
        if let Some(by) = past.and_then(|past| past.undone_by) {
            return Err(vec![format!("transaction {txn} was already undone by {by}")]);
        }
        let mut back = self.transactions.way_back(txn, Cause::Rollback(txn))?;
        back.confirm_within = rollback.confirm_within;
        // Consider an operator's report even if it is not part of any journalled change.
        let ledger = self.ledger;
        for (name, failed) in &ledger.reported {
            let known = back.failed.get_or_insert_default();
            known.entry(name.clone()).or_insert_with(|| failed.clone());
        }
        let plan = ledger.plan_named(&back.plan_sha256).cloned();
        if self.installed().is_some() && plan.is_none() && !back.plan_sha256.is_empty() {
            return Err(vec![format!(
                "plan {}, which was in force then, has been deleted, and faults could not be \
                 bypassed without it: apply its file",
                back.plan_sha256
            )]);
        }
        let (Some(plan), Some(installed)) = (plan, self.replannable()) else {
            let reasons = self.lit_on_failed(&back);
            return if reasons.is_empty() { Ok((back, None)) } else { Err(reasons) };
        };
        let covered = FaultSet::of(installed, plan.faults.iter().copied())
            .map_err(|error| vec![error.to_string()])?;
        let known = back.failed.iter().flatten().filter_map(|(name, _)| name.parse::<Part>().ok());
        let news: Vec<Part> =
            known.filter(|part| replan::is_news(installed, &covered, *part)).collect();
        if news.is_empty() {
            return Ok((back, Some(plan)));
        }
        let next = replan::next_plan(installed, &plan, &news, &[])?;
        let mut stood = ledger.owned.clone();
        stood.extend(back.target.clone());
        let mut target = self.both_halves(&next, &plan, &stood)?;
        self.leave_unreachable(&mut target);
        back.target.retain(|device, _| device.bundle().is_none());
        back.target.extend(target);
        let kept = KeptPlan::new(next);
        let next = kept.plan().clone();
        back.plan_sha256 = kept.sha256().to_owned();
        back.plan = Some(Box::new(kept));
        Ok((back, Some(next)))
    }

    pub fn try_bypass(
        &self,
        now: &Now,
        failed: &[(Part, String)],
        repaired: &[Part],
    ) -> Result<(Apply, Option<Arc<Plan>>), Vec<String>> {
        let (failed, repaired) = self.as_planned(failed, repaired, false);
        match self.bypass(now, None, &failed, &repaired) {
            Ok(apply) => {
                let plan = apply.plan.as_ref().map(|kept| kept.plan().clone());
                Ok((apply, plan))
            }
            Err(Answer::Refused { reasons } | Answer::NothingToDo { reasons }) => Err(reasons),
            Err(Answer::Conflict { reason }) => Err(vec![reason]),
            Err(_) => Err(Vec::new()),
        }
    }

    pub(super) fn load_applied(&self) -> Option<Arc<Plan>> {
        let ledger = self.ledger;
        let other = ledger.applied_sha256 != ledger.plan_sha256;
        other.then(|| self.applied_last().ok()).flatten().map(|(_, plan)| plan)
    }

    pub fn applied_last(&self) -> Result<(String, Arc<Plan>), Vec<String>> {
        let sha256 = self.ledger.applied_sha256.clone();
        let Some(plan) = self.ledger.plan_named(&sha256).cloned() else {
            return Err(vec!["the last applied plan is unknown: apply its file".into()]);
        };
        let Some(installed) = self.replannable() else { return Ok((sha256, plan)) };
        let failed = self.failed_parts();
        let parts = failed.keys().filter_map(|name| name.parse::<Part>().ok());
        let Ok(known) = FaultSet::of(installed, parts) else { return Ok((sha256, plan)) };
        if !plan.faults.iter().any(|part: &Part| replan::is_news(installed, &known, *part)) {
            return Ok((sha256, plan));
        }
        let anew = replan::plan_anew(installed, &known, plan.seed)?;
        Ok((replan::sha256_of(&anew), Arc::new(anew)))
    }

    pub fn is_explained(&self, plan: &Plan) -> bool {
        !self.used(plan, &self.failed_parts()).is_empty()
    }

    fn lit_on_failed(&self, back: &Apply) -> Vec<String> {
        let failed = back.failed.iter().flatten();
        let mut reasons: Vec<String> = failed
            .filter_map(|(name, failed)| Some((name.parse::<Part>().ok()?, failed)))
            .filter_map(|(part, failed)| Some((self.lights(back, part)?, part, failed)))
            .map(|((device, position), part, Failed { why, .. })| {
                let sep = if why.is_empty() { "" } else { ": " };
                format!(
                    "{part} is known to be faulty{sep}{why}, and the rollback would light \
                     {device} at \
                        {device}.{position}"
                )
            })
            .collect();
        if !reasons.is_empty() {
            reasons.push(
                "the plan that was in force then is unknown, so it cannot be changed to avoid \
                    these faults: report repaired parts with `lightloom ctl fault --repaired \
                    PART`, or apply a plan made with `--fault`"
                    .into(),
            );
        }
        reasons
    }

    fn lights(&self, back: &Apply, part: Part) -> Option<(DeviceName, Position)> {
        let fibres = &self.sightings.inventory().fibres;
        let ends = back.target.iter().flat_map(|(device, slots)| {
            slots.iter().map(move |(&slot, &position)| (device.clone(), slot, position))
        });
        let mut lit = ends.filter(|end| fibres.contains_key(end));
        let found = lit.find(|end| ends_at(part, end) || ends_at(part, &fibres[end]));
        found.map(|(device, _, position)| (device, position))
    }
}

fn ends_at(part: Part, (device, slot, position): &FibreEnd) -> bool {
    let (Some(bundle), Slot(0), Ok(path)) = (device.bundle(), slot, u8::try_from(position.0))
    else {
        return false;
    };
    let port = Port { bundle, path };
    match part {
        Part::Node(node) => port.bundle.node == node,
        Part::Bundle(bundle) => port.bundle == bundle,
        Part::Fibre(fibre) => port == fibre,
        Part::Ocs(_) | Part::OcsPort(_) | Part::Uplink(_) => false,
    }
}
