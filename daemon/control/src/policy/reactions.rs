// SPDX-License-Identifier: Apache-2.0
//! What the daemon does unasked: it bypasses failed parts and heals rings. `ctl fault` takes the same path.

use std::collections::BTreeMap;

use lightloom_fabric::fault::Part;

use super::bypass::ASKS_ALL;
use super::healing::{self, HOUR_MS};
use super::{Control, OWN, OnFault, diagnoses};
use crate::actor::Policy;
use crate::budget::OWN_CHANGES_MAX;
use crate::ledger::Past;
use crate::messages::{Action, Answer, Event, Note, ReplyTo, Request};
use crate::record::{Asked, Cause, Failed, Record, TxnResult};
use crate::state::{DeviceName, Micros, Now};
use crate::transactions::own;

fn is_asking(begun: &[Action]) -> bool {
    begun.iter().any(|action| match action {
        Action::Answer(OWN, Answer::Refused { reasons }) => *reasons == [ASKS_ALL],
        _ => false,
    })
}

impl Control {
    fn may_bypass(&self) -> bool {
        let is_busy = self.transactions().is_busy() || self.journal_failure.is_some();
        self.setup.on_fault == OnFault::Bypass && !is_busy
    }

    pub(super) fn bypass_due(&self, now: &Now) -> Option<Micros> {
        let tries = self.backoff.due().filter(|at| *at > now.mono);
        tries.min().filter(|_| self.may_bypass())
    }

    pub(super) fn bypass_failed(&mut self, now: &Now, actions: &mut Vec<Action>) {
        self.judges_again = false;
        if !self.may_bypass() {
            return;
        }
        let failed = self.facts().not_yet_bypassed(now);
        self.judges_again = self.facts().waits_for_node(now, &failed);
        if self.judges_again {
            return;
        }
        self.judges_again = self.facts().waits_for_hello(now);
        let tried: Vec<Part> = failed.iter().map(|(part, _)| *part).collect();
        if failed.is_empty() || now.mono < self.backoff.not_before(&tried) {
            self.asked_all.take_if(|_| failed.is_empty());
            return;
        }
        if self.facts().waits_for_all(now) {
            self.judges_again = true;
            return;
        }
        if !self.controller.budget().is_left(now) {
            self.backoff.tried(&tried, now.mono);
            actions.push(Action::Note(Note::TooMany(failed)));
            return;
        }
        self.diagnosed = diagnoses::kept(self.facts(), &self.diagnosed, now, &failed);
        let request = format!("policy-{}-{}", now.wall_ms, self.ledger().last_txn.0 + 1);
        let asked = own(Policy::Fault, request);
        let mut begun = self.fault(now, asked, &failed, &[], OWN);
        if is_asking(&begun) {
            self.asked_all = Some(now.mono);
            self.controller.read_all(now);
            self.judges_again = true;
            return;
        }
        self.asked_all = None;
        self.backoff.tried(&tried, now.mono);
        let again_in = self.backoff.not_before(&tried) - now.mono;
        actions.push(Action::Note(Note::Bypassing(failed.clone(), again_in)));
        let answer = begun.iter().position(|a| matches!(a, Action::Answer(OWN, _)));
        self.refused = match answer.map(|index| begun.remove(index)) {
            Some(Action::Answer(
                _,
                Answer::Refused { reasons } | Answer::NothingToDo { reasons },
            )) => Some(reasons.join("; ")),
            Some(Action::Answer(_, Answer::Conflict { reason })) => Some(reason),
            _ => None,
        };
        if self.refused.is_some() {
            self.backoff.not_begun(&tried, now.mono, self.setup.heartbeat);
        }
        actions.append(&mut begun);
    }

    /// Tries once an hour for the same plan and jobs. Uses at most half of the hourly limit, so that
    /// faults can still be bypassed.
    pub(super) fn heal(&mut self, now: &Now, actions: &mut Vec<Action>) {
        let (Some(heal), Some(applied)) = (&self.setup.heal, &self.applied) else { return };
        let mut plans = self.ledger().history.iter().rev().filter(|past| {
            past.result == TxnResult::Committed && past.plan_before != past.plan_sha256
        });
        let is_repaired = plans.next().is_some_and(|past| past.cause == Cause::Repair);
        let (transactions, facts) = (self.transactions(), self.facts());
        let movable = heal.movable(facts);
        let (plan, hour) = (&self.ledger().plan_sha256, now.wall_ms / HOUR_MS);
        let from = format!("{plan} {movable:?} {hour}");
        if !heal.is_due(now, is_repaired)
            || from == self.healed_from
            || !transactions.is_free()
            || transactions.is_busy()
            || self.journal_failure.is_some()
            || self.controller.budget().spent(now) >= OWN_CHANGES_MAX / 2
            || !facts.plan.is_some_and(|plan| facts.sees_all_but(plan, &[]))
            || !facts.not_yet_bypassed(now).is_empty()
        {
            return;
        }
        let decided = healing::decide(facts, applied, &movable, now);
        self.healed_from = from;
        let Some((apply, note)) = decided else { return };
        actions.push(Action::Note(note));
        if let Some(apply) = apply {
            let request = format!("heal-{}-{}", now.wall_ms, self.ledger().last_txn.0 + 1);
            let (asked, request) = (own(Policy::Heal, request), Request::Apply(apply));
            actions.extend(self.handle(now, Event::Request { asked, request, reply_to: OWN }));
        }
    }

    pub fn fault(
        &mut self,
        now: &Now,
        asked: Asked,
        failed: &[(Part, String)],
        repaired: &[Part],
        reply_to: ReplyTo,
    ) -> Vec<Action> {
        if let Some(why) = &self.journal_failure {
            let reasons = vec![why.to_string()];
            return vec![Action::Answer(reply_to, Answer::Refused { reasons })];
        }
        let devices = self.sightings().devices();
        let all_unreachable = devices.values().all(|seen| !seen.is_reachable());
        if !failed.is_empty() && !devices.is_empty() && all_unreachable {
            let why = "no device responds, so the plan cannot be bypassed and would be abandoned: \
                check the management lines, then report the fault again";
            let reasons = vec![why.to_owned()];
            return vec![Action::Answer(reply_to, Answer::Refused { reasons })];
        }
        let (failed, repaired) = self.facts().as_planned(failed, repaired, asked.actor.is_policy());
        let result = self.facts().bypass(now, Some(&asked), &failed, &repaired);
        let mut actions = Vec::new();
        let kept = match &result {
            Err(Answer::Refused { .. }) => Vec::new(),
            _ => self.keep_reported(now, &asked, &failed, &mut actions),
        };
        let more = match result {
            Ok(mut apply) => {
                if let Some(next) = apply.plan.as_ref().filter(|_| !kept.is_empty()) {
                    apply.resolves.extend(self.facts().bypassed_by(next.plan()));
                }
                let request = Request::Apply(apply);
                self.handle(now, Event::Request { asked, request, reply_to })
            }
            Err(answer) => {
                // A report of a known fault only affects the target of an undo.
                self.lead_back();
                vec![Action::Answer(reply_to, answer)]
            }
        };
        join(&mut actions, more);
        for action in &mut actions {
            if let Action::Answer(_, answer) = action {
                self.say_kept(answer, &kept);
            }
        }
        actions
    }

    fn say_kept(&self, answer: &mut Answer, kept: &[String]) {
        if kept.is_empty() {
            return;
        }
        let is = if kept.len() == 1 { "is" } else { "are" };
        let later = match self.setup.on_fault {
            OnFault::Bypass => ", and bypassed automatically as soon as possible",
            OnFault::Report => "",
        };
        let kept = format!("{} {is} recorded as failed{later}", kept.join(", "));
        match answer {
            Answer::Refused { reasons } => reasons.push(kept),
            Answer::Conflict { reason } => *reason = format!("{reason}; {kept}"),
            _ => {}
        }
    }

    /// Keeps an operator's reports until their bypass is committed, so that a bypass that is
    /// currently impossible is retried later. Also keeps faults of an earlier plan when that plan
    /// is undone. Returns the parts that are newly kept.
    fn keep_reported(
        &mut self,
        now: &Now,
        asked: &Asked,
        failed: &[(Part, String)],
        actions: &mut Vec<Action>,
    ) -> Vec<String> {
        if asked.actor.is_policy() {
            return Vec::new();
        }
        let wall_ms = now.wall_ms;
        let news = failed.iter().filter(|(part, _)| {
            let known = self.ledger().reported.contains_key(&part.to_string());
            !known
                && (!self.facts().is_bypassed(*part) || !self.facts().is_failed_in_history(*part))
        });
        let parts: BTreeMap<String, Failed> = news
            .map(|(part, why)| {
                (part.to_string(), Failed { wall_ms, why: why.clone(), ..Failed::default() })
            })
            .collect();
        let names = parts.keys().cloned().collect();
        if !parts.is_empty() {
            let record = Record::Reported { asked: asked.clone(), parts, wall_ms };
            actions.extend(self.controller.record(record));
        }
        names
    }

    pub fn not_bypassed(&self, now: &Now) -> BTreeMap<String, Failed> {
        let news = self.facts().not_yet_bypassed(now);
        let parts: Vec<Part> = news.iter().map(|(part, _)| *part).collect();
        let known = &self.facts().failed_in_ledger();
        // A dark fibre is listed in `dark_fibres` until it is bypassed.
        let listed = news.iter().filter(|(part, _)| {
            matches!(part, Part::Bundle(_)) || known.contains_key(&part.to_string())
        });
        let reason = self.why_not_bypassed(now, &parts);
        let not_bypassed = listed.map(|(part, why)| {
            let name = part.to_string();
            let since = self.sightings().unreachable_since(&DeviceName::from(name.as_str()));
            let wall_ms = match (known.get(&name), since) {
                (Some(failed), _) => failed.wall_ms,
                (None, Some(since)) => now.wall_ms.saturating_sub((now.mono - since).0 / 1000),
                (None, None) => 0,
            };
            let sep = if why.is_empty() { "" } else { "; " };
            let why = format!("{why}{sep}not yet bypassed: {reason}");
            (name, Failed { wall_ms, why, ..Failed::default() })
        });
        not_bypassed.collect()
    }

    fn why_not_bypassed(&self, now: &Now, parts: &[Part]) -> String {
        if self.journal_failure.is_some() {
            return "the journal has failed".into();
        }
        if self.setup.on_fault != OnFault::Bypass {
            return "the policy only reports faults".into();
        }
        if let Some(open) = &self.ledger().open {
            return format!("transaction {} is in progress", open.intent.txn);
        }
        let left = (self.backoff.not_before(parts) - now.mono).0;
        let again = match left.div_ceil(1_000_000) {
            _ if !self.controller.budget().is_left(now) => {
                "the hourly limit of automatic changes is reached".to_owned()
            }
            0 => "being tried now".to_owned(),
            left => format!("retried in {left} s"),
        };
        let last = self
            .ledger()
            .history
            .back()
            .filter(|past| past.cause == Cause::Bypass && past.result != TxnResult::Committed);
        match (&self.refused, last) {
            (Some(refused), _) => format!("{refused}; {again}"),
            (None, Some(past)) => format!("{}; {again}", failure(past)),
            (None, None) => again,
        }
    }
}

pub(super) fn join(actions: &mut Vec<Action>, more: Vec<Action>) {
    let mut more = more.into_iter().peekable();
    if let (Some(Action::Append(records)), Some(Action::Append(next))) =
        (actions.last_mut(), more.peek_mut())
    {
        records.append(next);
        more.next();
    }
    actions.extend(more);
}

fn failure(past: &Past) -> String {
    let mut said: Vec<_> = past.ends.iter().filter(|(_, end)| !end.detail.is_empty()).collect();
    said.sort_by_key(|(_, end)| end.unlit);
    let result = match past.result {
        TxnResult::Aborted => "aborted",
        TxnResult::RolledBack => "rolled back",
        TxnResult::Partial => "partial",
        TxnResult::Committed => "committed",
    };
    let why = said.first().map(|(device, end)| format!(": {device}: {}", end.detail));
    format!("transaction {} {result}{}", past.txn, why.unwrap_or_default())
}
