// SPDX-License-Identifier: Apache-2.0
//! All policies around the [controller](crate::controller). They decide which parts have failed,
//! how the daemon responds, which plan is in force, and which state an undo restores.

mod bypass;
mod change_start;
mod diagnoses;
mod failures;
mod healing;
pub mod phases;
mod reactions;
mod rollback;
mod unstored;

use std::sync::Arc;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::plan::{PhasePlan, Plan, Spelled};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::Mode;
use crate::controller::Controller;
use crate::desired::circuits::{self, Switches};
use crate::desired::{self, Modules};
use crate::inventory::Inventory;
use crate::journal::Proof;
use crate::kept_plan::KeptPlan;
use crate::ledger::Ledger;
use crate::messages::{Action, Answer, Apply, Event, Note, ReplyTo, Request, Rollback};
use crate::record::{Asked, Cause, Failed, Record, TxnResult};
use crate::replan::{self, Backoff, MayMove};
use crate::sightings::Sightings;
use crate::state::{Micros, Now};
use crate::transactions::{Planned, Transactions};
pub use change_start::ChangeStart;
pub use diagnoses::Diagnosis;
pub use failures::ManagementLost;
pub use healing::HealPolicy;
use phases::Phases;
use unstored::Unstored;

/// Delay before failures are decided again while other modules of the node are read.
const JUDGE_AGAIN: Micros = Micros::from_millis(5);
const OWN: ReplyTo = ReplyTo(0);

/// Action when a node or module fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "OnFaultFile")]
pub enum OnFault {
    /// Report it only.
    #[default]
    Report,
    /// Plan a bypass and apply it.
    Bypass,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoJournal {
    #[error("the journal is damaged, so changes are refused: {0}")]
    Damaged(String),
    #[error("the journal has failed, so changes are refused: {0}")]
    Failed(String),
}

#[derive(Clone, Debug, Default)]
pub struct Setup {
    pub installed: Option<Fabric>,
    pub modules: Modules,
    pub switches: Switches,
    pub on_fault: OnFault,
    pub may_move: MayMove,
    pub heal: Option<HealPolicy>,
    pub heartbeat: Micros,
}

#[derive(Clone, Copy)]
pub struct Facts<'a> {
    setup: &'a Setup,
    sightings: &'a Sightings,
    transactions: &'a Transactions,
    ledger: &'a Ledger,
    plan: Option<&'a Arc<Plan>>,
    spelled: Option<&'a Spelled>,
    asked_all: Option<Micros>,
}

pub struct Control {
    controller: Controller,
    setup: Arc<Setup>,
    journal_failure: Option<NoJournal>,
    plan: Option<Arc<Plan>>,
    spelled: Option<Spelled>,
    applied: Option<Arc<Plan>>,
    backoff: Backoff,
    judges_again: bool,
    asked_all: Option<Micros>,
    refused: Option<String>,
    healed_from: String,
    phases: Unstored<Phases>,
    diagnosed: Vec<Diagnosis>,
}

impl Control {
    pub fn start(
        inventory: Inventory,
        setup: Setup,
        ledger: Ledger,
        now: &Now,
    ) -> (Self, Vec<Action>) {
        let (controller, actions) = Controller::start(inventory, ledger, now);
        let mut control = Self {
            controller,
            setup: Arc::new(setup),
            journal_failure: None,
            plan: None,
            spelled: None,
            applied: None,
            judges_again: false,
            asked_all: None,
            backoff: Backoff::default(),
            refused: None,
            healed_from: String::new(),
            phases: Unstored::default(),
            diagnosed: Vec::new(),
        };
        control.plans_of_the_ledger();
        control.lead_back();
        control.follow(now, &actions);
        (control, actions)
    }

    pub fn only_read(&mut self, ledger: Ledger, why: NoJournal) {
        self.journal_failure = Some(why);
        self.controller.only_read(ledger);
        self.phases.go_back();
        self.plans_of_the_ledger();
    }

    pub fn stored(&mut self, proof: &Proof) {
        self.phases.mark_stored(proof);
    }

    pub fn go_on(&mut self, ledger: Ledger, now: &Now) -> Vec<Action> {
        self.journal_failure = None;
        let actions = self.controller.go_on(ledger, now);
        self.plans_of_the_ledger();
        self.follow(now, &actions);
        self.lead_back();
        actions
    }

    pub fn controller(&self) -> &Controller {
        &self.controller
    }
    pub fn sightings(&self) -> &Sightings {
        self.controller.sightings()
    }
    pub fn ledger(&self) -> &Ledger {
        self.controller.ledger()
    }
    pub fn transactions(&self) -> &Transactions {
        self.controller.transactions()
    }
    pub fn facts(&self) -> Facts<'_> {
        Facts {
            setup: &self.setup,
            sightings: self.sightings(),
            transactions: self.transactions(),
            ledger: self.ledger(),
            plan: self.plan.as_ref(),
            spelled: self.spelled.as_ref(),
            asked_all: self.asked_all,
        }
    }
    pub fn diagnoses(&self, now: &Now) -> Vec<Diagnosis> {
        diagnoses::all(self.facts(), &self.diagnosed, now)
    }
    pub fn setup(&self) -> &Arc<Setup> {
        &self.setup
    }
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_deref()
    }
    pub fn plan_in_force(&self) -> Option<Arc<Plan>> {
        self.plan.clone()
    }
    pub fn applied(&self) -> Option<&Plan> {
        self.applied.as_deref()
    }
    pub fn journal_failure(&self) -> Option<&str> {
        self.journal_failure.as_ref().map(|failure| match failure {
            NoJournal::Damaged(why) | NoJournal::Failed(why) => why.as_str(),
        })
    }
    pub fn change_start(&self) -> ChangeStart {
        let read = self.sightings().devices().keys().filter_map(|device| {
            let read = self.sightings().reading(device)?;
            Some((device.clone(), read.positions.clone()))
        });
        ChangeStart {
            setup: Arc::clone(&self.setup),
            plan: self.plan.clone(),
            owned: self.ledger().owned.clone(),
            read: read.collect(),
        }
    }

    pub fn switches(&self) -> &Switches {
        &self.setup.switches
    }

    pub fn phase(&self) -> Option<&PhasePlan> {
        let owned = &self.ledger().owned;
        circuits::in_force(self.switches(), &self.plan.as_ref()?.phases, owned)
    }

    pub fn deadline(&self, now: &Now) -> Option<Micros> {
        let again = self.judges_again.then(|| now.mono + JUDGE_AGAIN);
        let bypass = self.bypass_due(now);
        let phase = self.phase_at(now);
        self.controller.deadline(now).into_iter().chain(again).chain(bypass).chain(phase).min()
    }

    pub fn handle(&mut self, now: &Now, event: Event) -> Vec<Action> {
        let actions = self.controller.handle(now, event);
        self.follow(now, &actions);
        actions
    }

    /// Executes everything that is due. The caller must call it after each event too.
    pub fn tick(&mut self, now: &Now) -> Vec<Action> {
        let due = self.controller.deadline(now).is_some_and(|deadline| deadline <= now.mono);
        let mut actions = if due { self.handle(now, Event::Tick) } else { Vec::new() };
        self.bypass_failed(now, &mut actions);
        self.phases_due(now, &mut actions);
        self.heal(now, &mut actions);
        actions
    }

    pub fn not_sent(&mut self, actions: &[Action]) {
        self.controller.not_sent(actions);
    }

    pub fn ask(
        &mut self,
        now: &Now,
        asked: Asked,
        request: Request,
        plan: Option<Box<Plan>>,
        reply_to: ReplyTo,
    ) -> Vec<Action> {
        match self.prepared(now, &asked, request, plan) {
            Err(reasons) => vec![Action::Answer(reply_to, Answer::Refused { reasons })],
            Ok(request) => self.handle(now, Event::Request { asked, request, reply_to }),
        }
    }

    fn prepared(
        &mut self,
        now: &Now,
        asked: &Asked,
        request: Request,
        plan: Option<Box<Plan>>,
    ) -> Result<Request, Vec<String>> {
        if let Some(why) = &self.journal_failure {
            return Err(vec![why.to_string()]);
        }
        let again = self.ledger().requests.contains_key(&asked.request);
        match (request, plan) {
            (Request::Apply(mut apply), Some(plan)) => {
                let reasons = self.objections(&apply, &plan);
                if !reasons.is_empty() && !again {
                    return Err(reasons);
                }
                if apply.cause.is_none() {
                    let why = format!("part of the plan that {} applied", asked.actor);
                    let named = Failed { why, ..Failed::default() };
                    apply.failed =
                        Some(self.facts().failed_parts_with(&plan, now, |_| named.clone()));
                    apply.resolves = self.facts().not_bypassed_by(&plan);
                }
                apply.plan = Some(Box::new(KeptPlan::of_digest(apply.plan_sha256.clone(), *plan)));
                Ok(Request::Apply(apply))
            }
            (Request::Rollback(mut rollback), _) => {
                match self.facts().way_back(&rollback) {
                    Ok((mut back, plan)) => {
                        let (ledger, facts) = (self.ledger(), self.facts());
                        let past = ledger.history.iter().find(|past| past.txn == rollback.txn);
                        let left = past.and_then(|past| ledger.plan_named(&past.plan_sha256));
                        let way = left.zip(plan);
                        back.phase =
                            way.and_then(|(left, to)| facts.in_stages(left, &to, &back.target));
                        rollback.avoiding = Some(Box::new(back));
                    }
                    Err(_) if again => {}
                    Err(reasons) => return Err(reasons),
                }
                Ok(Request::Rollback(rollback))
            }
            (request, _) => Ok(request),
        }
    }

    pub fn objections(&self, apply: &Apply, plan: &Plan) -> Vec<String> {
        match (apply.mode, &apply.cause) {
            (Mode::Safe, None) => self.facts().forgotten_by(plan),
            _ => Vec::new(),
        }
    }

    fn follow(&mut self, now: &Now, actions: &[Action]) {
        let (mut fired, mut ended) = (Vec::new(), Vec::new());
        for action in actions.iter() {
            match action {
                Action::Note(Note::Reachable(_)) if self.refused.take().is_some() => {
                    self.backoff.forget();
                }
                // Bypasses no longer have to wait for the limit on automatic changes.
                Action::Append(records)
                    if records.iter().any(|one| matches!(one, Record::Resumed { .. })) =>
                {
                    self.backoff.forget();
                }
                Action::Note(Note::Fired(txn)) => fired.push(*txn),
                Action::Note(Note::Ended(txn, result)) => ended.push((*txn, *result)),
                _ => {}
            }
        }
        for txn in fired {
            self.phase_fired(txn, now.mono);
        }
        for (txn, result) in ended {
            self.ended(result);
            self.phase_ended(txn, result, now.mono);
        }
    }

    fn lead_back(&mut self) {
        let Some(txn) = self.ledger().pending.as_ref().map(|pending| pending.txn) else {
            return;
        };
        let ledger = self.ledger();
        if ledger.reported.is_empty() && ledger.failed_since(txn).is_empty() {
            return;
        }
        let rollback = Rollback { txn, ..Rollback::default() };
        if let Ok((back, Some(_))) = self.facts().way_back(&rollback) {
            self.controller.lead_back_to(txn, back);
        }
    }

    fn ended(&mut self, result: TxnResult) {
        if matches!(result, TxnResult::Committed | TxnResult::Partial) {
            self.plans_of_the_ledger();
        }
        let last = self.ledger().history.back();
        if result == TxnResult::Committed && last.is_some_and(|past| past.cause.goes_on_top()) {
            self.backoff.forget();
        } else if last.is_some_and(replan::names_suspect) {
            self.backoff.retry_without_delay();
        }
        self.lead_back();
    }

    fn plans_of_the_ledger(&mut self) {
        let ledger = self.ledger();
        let next = ledger.plan_named(&ledger.plan_sha256).cloned();
        if next.as_ref().map(Arc::as_ptr) != self.plan.as_ref().map(Arc::as_ptr) {
            let bypasses =
                self.setup.on_fault == OnFault::Bypass && self.facts().replannable().is_some();
            let spelled =
                next.as_ref().filter(|_| bypasses).map(|next| match (&self.plan, &self.spelled) {
                    (Some(before), Some(spelled)) => spelled.next(before, next),
                    _ => Spelled::of(next),
                });
            (self.plan, self.spelled) = (next, spelled);
        }
        self.applied = self.facts().load_applied();
        self.controller.plans(self.planned());
    }

    fn planned(&self) -> Planned {
        let Some(plan) = &self.plan else { return Planned::default() };
        let mut positions = desired::stated(plan, &self.setup.modules);
        let brought_to = self.phase_in_force();
        let phase = plan.phases.iter().find(|phase| Some(&*phase.name) == brought_to);
        let lit = phase.or_else(|| self.phase()).map_or(&[][..], |phase| &phase.circuits);
        positions.extend(circuits::positions(self.switches(), lit));
        Planned { plan_sha256: self.ledger().plan_sha256.clone(), positions }
    }

    pub fn phase_in_force(&self) -> Option<&str> {
        let ledger = self.ledger();
        let kept = ledger.history.iter().rev().filter(|past| {
            past.result == TxnResult::Committed
                && past.undone_by.is_none()
                && past.plan_sha256 == ledger.plan_sha256
        });
        kept.filter_map(|past| past.phase.as_ref()).map(|phase| &*phase.name).next()
    }
}

impl Request {
    pub fn can_wait_for_room(&self) -> bool {
        match self {
            Self::Apply(apply) => !apply.cause.as_ref().is_some_and(Cause::goes_on_top),
            Self::Confirm(_) | Self::Rollback(_) | Self::Resume => false,
            Self::Adopt(_) | Self::Hold { .. } => true,
        }
    }
}
