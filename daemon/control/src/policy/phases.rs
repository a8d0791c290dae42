// SPDX-License-Identifier: Apache-2.0
//! Decides when the circuits of each phase of a plan are lit, and for which job.
//!
//! A lease reserves the circuits for one job. When the lease ends, lit circuits stay lit and
//! waiting phases are dropped. The journal contains the lease but not the waiting phases, so the
//! job requests them again after a restart.

mod wish;

use std::collections::{BTreeMap, VecDeque};

use lightloom_fabric::plan::{PhasePlan, Plan, TransitionPlan};

use super::reactions::join;
use super::{Control, OWN};
use crate::change::Mode;
use crate::desired::circuits;
use crate::messages::{Action, Answer, Apply, Event, ReplyTo, Request};
use crate::record::{Asked, Cause, Lease, Record, TxnResult};
use crate::state::{Micros, Now, Txn, at};

pub use wish::{Booking, Missed, Refusal, Standing, Wish};

const WAITING_MAX: usize = 16;
const PAST_MAX: usize = 256;
const TIMES_MAX: usize = 16;
const AHEAD_MAX: Micros = Micros::from_secs(3600);
const LEAST_MAX: Micros = Micros::from_secs(24 * 3600);
const LEASE_MAX: Micros = Micros::from_secs(24 * 3600);
/// Requests that are spaced at least this far apart are exempt from their client's rate limit.
const PACE: Micros = Micros::from_millis(50);
const MARGIN: Micros = Micros::from_millis(1);

#[derive(Clone, Debug, Default)]
pub struct Phases {
    waiting: VecDeque<Booking>,
    past: VecDeque<Booking>,
    took: BTreeMap<(String, String), VecDeque<Micros>>,
    /// Lead time of each phase's last request during a pause in the traffic.
    ahead: BTreeMap<String, Micros>,
    in_use_until: Micros,
    booked_at: Option<Micros>,
}

impl Phases {
    pub fn waiting(&self) -> impl Iterator<Item = &Booking> {
        self.waiting.iter()
    }

    pub fn of_request(&self, request: &str) -> Option<&Booking> {
        self.waiting.iter().chain(self.past.iter().rev()).find(|b| b.asked.request == request)
    }

    pub fn measured(&self, from: &str, to: &str) -> Option<Micros> {
        self.took.get(&(from.to_owned(), to.to_owned()))?.iter().max().copied()
    }

    fn end(&mut self, mut booking: Booking, standing: Standing, now: Micros) {
        booking.ended.get_or_insert(now);
        booking.standing = standing;
        self.past.push_back(booking);
        if self.past.len() > PAST_MAX {
            self.past.pop_front();
        }
    }

    fn drop_waiting(&mut self, now: Micros, why: &Missed, of: impl Fn(&Booking) -> bool) {
        for booking in std::mem::take(&mut self.waiting) {
            match booking.standing == Standing::Waiting && of(&booking) {
                true => self.end(booking, Standing::Missed(why.clone()), now),
                false => self.waiting.push_back(booking),
            }
        }
    }

    fn learn(&mut self, booking: &Booking, now: Micros) {
        let (Some(from), Some(began)) = (&booking.from, booking.began) else { return };
        let took = self.took.entry((from.clone(), booking.wish.phase.clone())).or_default();
        took.push_back(now - began);
        if took.len() > TIMES_MAX {
            took.pop_front();
        }
    }
}

fn stated(plan: &Plan, from: &PhasePlan, to: &PhasePlan) -> Option<Micros> {
    let way = way(plan, from, to)?;
    Some(Micros(way.dark_time_ps.get().div_ceil(1_000_000)))
}

fn hidden(plan: &Plan, from: &PhasePlan, to: &PhasePlan) -> Micros {
    let hidden =
        way(plan, from, to).map(|way| way.dark_time_ps.get().saturating_sub(way.exposed_ps.get()));
    Micros(hidden.unwrap_or(0) / 1_000_000)
}

/// Returns the phase duration from which its circuits save as much time as they cost. The plan
/// states the phase's duration on the previous circuits and on its own, and savings are
/// proportional to the duration. If the previous circuits cannot serve it, its planned duration is
/// enough.
fn worth(plan: &Plan, from: Option<&str>, phase: &PhasePlan, cost: Micros) -> Micros {
    let from = from.and_then(|name| plan.phases.iter().find(|phase| phase.name == name));
    let Some(way) = from.and_then(|from| way(plan, from, phase)) else { return cost };
    let planned = Micros(phase.duration_ps.get() / 1_000_000);
    let Some(without) = way.without_ps else { return cost.min(planned) };
    let saved = u128::from((Micros(without.get() / 1_000_000) - at_rate(phase)).0);
    match saved {
        0 => cost,
        saved => Micros((u128::from(cost.0) * u128::from(planned.0)).div_ceil(saved) as u64),
    }
}

fn at_rate(phase: &PhasePlan) -> Micros {
    let planned = phase.duration_ps.get() / 1_000_000;
    Micros(((1e6 / phase.lambda) as u64).min(planned))
}

/// Returns how much longer a phase takes if its circuits are dark for this time. The packet core
/// and the remaining circuits carry the share of traffic that the plan states.
fn lost(plan: &Plan, from: Option<&str>, phase: &PhasePlan, dark: Micros) -> Micros {
    let from = from.and_then(|name| plan.phases.iter().find(|phase| phase.name == name));
    let way = from.and_then(|from| way(plan, from, phase));
    let exposed = way.map_or(0, |way| way.exposed_ps.get() / 1_000_000);
    let longer = (Micros(phase.duration_ps.get() / 1_000_000) - at_rate(phase)).0.min(exposed);
    match exposed {
        0 => dark,
        exposed => {
            Micros((u128::from(dark.0) * u128::from(longer)).div_ceil(u128::from(exposed)) as u64)
        }
    }
}

fn way<'a>(plan: &'a Plan, from: &PhasePlan, to: &PhasePlan) -> Option<&'a TransitionPlan> {
    plan.transitions.iter().find(|way| is_like(plan, &way.from, from) && is_like(plan, &way.to, to))
}

/// Returns true if the phase of this name is `phase` or has its circuits.
fn is_like(plan: &Plan, name: &str, phase: &PhasePlan) -> bool {
    let named = plan.phases.iter().find(|other| other.name == name);
    named.is_some_and(|named| named.name == phase.name || named.circuits == phase.circuits)
}

impl Control {
    pub fn phases(&self) -> &Phases {
        &self.phases
    }

    pub fn lease(&self, now: &Now) -> Option<(&Lease, Micros)> {
        let lease = self.ledger().lease.as_ref()?;
        let until = lease.until(now);
        (until > now.mono).then(|| (lease, until - now.mono))
    }

    pub fn book(&mut self, now: &Now, asked: Asked, wish: Wish, reply_to: ReplyTo) -> Vec<Action> {
        let request_id = asked.request.clone();
        let paced = self.phases.booked_at.is_none_or(|last| last + PACE <= now.mono);
        let (mut actions, answer) = match self.booked(now, asked, wish) {
            Ok(actions) => (actions, Answer::Booked { request_id, paced }),
            Err(refusal) => (Vec::new(), refusal.answer()),
        };
        actions.push(Action::Answer(reply_to, answer));
        actions
    }

    fn booked(&mut self, now: &Now, asked: Asked, wish: Wish) -> Result<Vec<Action>, Refusal> {
        if let Some(again) = self.asked_again(&asked) {
            return again.map(|()| Vec::new());
        }
        let booking = self.acceptable(now, asked, wish)?;
        let lease = Lease {
            actor: booking.asked.actor.clone(),
            job: booking.wish.job.clone(),
            since: now.clone(),
            within: booking.wish.lease,
        };
        let (asked, wall_ms) = (booking.asked.clone(), now.wall_ms);
        let leased = Record::Leased { asked, lease: Some(lease), wall_ms };
        let mut actions = self.controller.record(leased);
        self.phases.booked_at = Some(now.mono);
        let ahead = booking.wanted() - booking.at.max(self.phases.in_use_until);
        self.phases.ahead.insert(booking.wish.phase.clone(), ahead);
        match self.at_once(&booking) {
            Some(standing) => self.phases.end(booking, standing, now.mono),
            None => self.phases.waiting.push_back(booking),
        }
        let mut more = Vec::new();
        self.phases_due(now, &mut more);
        join(&mut actions, more);
        Ok(actions)
    }

    pub fn release(
        &mut self,
        now: &Now,
        asked: Asked,
        job: &str,
        reply_to: ReplyTo,
    ) -> Vec<Action> {
        let lease = self.lease(now);
        let is_own = lease.is_some_and(|(held, _)| held.actor == asked.actor && held.job == job);
        let mut actions = Vec::new();
        let answer = match (self.journal_failure(), is_own) {
            (Some(why), _) => Answer::Refused { reasons: vec![why.to_owned()] },
            (None, false) => {
                Answer::NothingToDo { reasons: vec![format!("the job `{job}` has no lease")] }
            }
            (None, true) => {
                let released = Record::Leased { asked, lease: None, wall_ms: now.wall_ms };
                actions = self.controller.record(released);
                self.phases.drop_waiting(now.mono, &Missed::Released, |_| true);
                Answer::Done
            }
        };
        actions.push(Action::Answer(reply_to, answer));
        actions
    }

    fn asked_again(&self, asked: &Asked) -> Option<Result<(), Refusal>> {
        let booked = self.phases.of_request(&asked.request).map(|booking| &booking.asked.digest);
        let known = booked
            .or_else(|| self.ledger().requests.get(&asked.request).map(|(digest, _)| digest))?;
        Some(match *known == asked.digest {
            true => Ok(()),
            false => Err(Refusal::OtherRequest(asked.request.clone())),
        })
    }

    fn acceptable(&self, now: &Now, asked: Asked, wish: Wish) -> Result<Booking, Refusal> {
        if let Some(why) = self.journal_failure() {
            return Err(Refusal::NoJournal(why.to_owned()));
        }
        let in_force = self.plan.as_ref().filter(|plan| circuits::has_circuits(plan));
        let plan = in_force.filter(|_| !self.switches().is_empty()).ok_or(Refusal::NoPlan)?;
        let Some(to) = plan.phases.iter().find(|phase| phase.name == wish.phase) else {
            let (phase, known) = (wish.phase.clone(), circuits::names(&plan.phases));
            return Err(Refusal::NoSuchPhase { phase, known });
        };
        let plan_sha256 = self.ledger().plan_sha256.clone();
        if let Some(counted_on) = &wish.revision
            && !(counted_on.len() >= 8 && plan_sha256.starts_with(counted_on.as_str()))
        {
            let counted_on = counted_on.clone();
            return Err(Refusal::OtherPlan { found: plan_sha256, counted_on });
        }
        if let Some(pending) = &self.ledger().pending {
            return Err(Refusal::WaitsForConfirm(pending.txn));
        }
        if let Some((lease, left)) = self.lease(now)
            && (lease.actor != asked.actor || lease.job != wish.job)
        {
            let (job, actor) = (lease.job.clone(), lease.actor.to_string());
            return Err(Refusal::LeaseHeld { job, actor, left });
        }
        in_range(&wish)?;
        if self.phases.waiting.len() >= WAITING_MAX {
            return Err(Refusal::TooMany(WAITING_MAX));
        }
        let last = self.phases.waiting.back();
        if let Some(last) = last.filter(|last| last.until() > now.mono + wish.within) {
            let phase = last.wish.phase.clone();
            return Err(Refusal::Overlaps { phase, free: last.until() - now.mono });
        }
        // The phase at the end of the queue precedes this one.
        let before = last.map(|last| last.wish.phase.clone());
        let from = before.or_else(|| self.phase().map(|phase| phase.name.clone()));
        let precedes = plan.phases.iter().find(|phase| Some(&phase.name) == from.as_ref());
        let stated = precedes.and_then(|from| stated(plan, from, to));
        let expected = self.expected(plan, from.as_deref(), to);
        Ok(Booking {
            asked,
            wish,
            plan_sha256,
            at: now.mono,
            standing: Standing::Waiting,
            began: None,
            fired: None,
            ended: None,
            from,
            expected,
            stated,
        })
    }

    pub fn expected(&self, plan: &Plan, from: Option<&str>, to: &PhasePlan) -> Micros {
        let before = from.and_then(|name| plan.phases.iter().find(|phase| phase.name == name));
        if to.circuits.is_empty() || before.is_some_and(|before| before.circuits == to.circuits) {
            return Micros(0);
        }
        let measured = from.and_then(|from| self.phases.measured(from, &to.name));
        let stated = before.and_then(|before| stated(plan, before, to));
        measured.or(stated).unwrap_or_else(|| {
            let times = plan.transitions.iter().map(|way| way.dark_time_ps.get());
            Micros(times.max().unwrap_or(0).div_ceil(1_000_000))
        })
    }

    pub fn phase_after<'a>(&self, plan: &'a Plan, phase: &str) -> Option<&'a PhasePlan> {
        let at = plan.phases.iter().position(|other| other.name == phase)?;
        let after = plan.phases[at + 1..].iter().chain(&plan.phases[..at]);
        after.into_iter().find(|phase| !phase.circuits.is_empty())
    }

    /// Returns the time that the plan's slack or the lead time of the last request does not hide.
    fn exposed(&self, plan: &Plan, from: Option<&str>, to: &PhasePlan) -> Micros {
        let before = from.and_then(|name| plan.phases.iter().find(|phase| phase.name == name));
        let planned = before.map_or(Micros(0), |before| hidden(plan, before, to));
        let ahead = self.phases.ahead.get(&to.name).copied().unwrap_or(Micros(0));
        self.expected(plan, from, to) - planned.max(ahead)
    }

    /// Returns the minimum duration of a phase that justifies its transition. The cost is the delay
    /// of traffic: the transition into the phase, less the idle time before it, plus the extra time
    /// of the next transition compared with the one from the current phase.
    fn needs(
        &self,
        plan: &Plan,
        from: Option<&str>,
        to: &PhasePlan,
        booking: &Booking,
        next: Option<&str>,
    ) -> Micros {
        let idle = booking.wanted() - booking.at.max(self.phases.in_use_until);
        let into = self.expected(plan, from, to) - idle;
        let next = match next {
            Some(name) => plan.phases.iter().find(|phase| phase.name == name),
            None => self.phase_after(plan, &to.name),
        };
        let onward = next.map_or(Micros(0), |next| {
            let [after_own, after_from] = [Some(to.name.as_str()), from]
                .map(|from| lost(plan, from, next, self.exposed(plan, from, next)));
            after_own - after_from
        });
        worth(plan, from, to, lost(plan, from, to, into) + onward)
    }

    fn at_once(&self, booking: &Booking) -> Option<Standing> {
        if self.ledger().open.is_some() {
            return None;
        }
        let plan = self.plan.as_ref()?;
        let to = plan.phases.iter().find(|phase| phase.name == booking.wish.phase)?;
        let first = self.phases.waiting.front().is_none_or(|first| first.asked == booking.asked);
        let lit = self.phase();
        if first && (to.circuits.is_empty() || lit.is_some_and(|lit| lit.circuits == to.circuits)) {
            let unseen = self.unseen(to);
            let missed = (!unseen.is_empty()).then_some(Standing::Missed(Missed::Refused(unseen)));
            return Some(missed.unwrap_or(Standing::Lit(None)));
        }
        let from = match first {
            true => lit.map(|lit| lit.name.as_str()),
            false => booking.from.as_deref(),
        };
        let mut after = self.phases.waiting.iter().skip_while(|b| b.asked != booking.asked).skip(1);
        let next = after.next().map(|next| next.wish.phase.as_str());
        let needs = self.needs(plan, from, to, booking, next);
        (from.is_some() && booking.wish.least < needs).then_some(Standing::Kept(needs))
    }

    fn begins_at(&self) -> Option<Micros> {
        let first = self.phases.waiting.front().filter(|b| b.standing == Standing::Waiting)?;
        let plan = self.plan.as_ref()?;
        let to = plan.phases.iter().find(|phase| phase.name == first.wish.phase)?;
        let lit = self.phase().map(|lit| lit.name.as_str());
        let expected = self.expected(plan, lit, to) + MARGIN;
        let begins = first.wanted() - expected;
        let in_use = self.phases.in_use_until;
        Some(if in_use <= first.wanted() { begins.max(in_use) } else { begins }.max(first.at))
    }

    pub(super) fn phase_at(&self, now: &Now) -> Option<Micros> {
        let lease = self.lease(now).map(|(_, left)| now.mono + left);
        let busy = self.ledger().open.is_some();
        lease.into_iter().chain(self.begins_at().filter(|_| !busy)).min()
    }

    fn unseen(&self, phase: &PhasePlan) -> Vec<String> {
        let devices = self.sightings().devices();
        let lit = circuits::positions(self.switches(), &phase.circuits).into_iter();
        let unseen = lit.filter_map(|(device, wanted)| {
            let seen = devices.get(&device).filter(|seen| seen.is_reachable());
            let Some(read) = seen.and_then(|seen| seen.observed()) else {
                return Some(format!("{device}: does not answer, so its light is unknown"));
            };
            let stands = wanted.iter().all(|(slot, to)| at(&read.positions, *slot) == *to);
            (!stands).then(|| format!("{device}: is not at the position that was set"))
        });
        unseen.collect()
    }

    pub(super) fn phases_due(&mut self, now: &Now, actions: &mut Vec<Action>) {
        if self.lease(now).is_none() && self.ledger().lease.is_some() {
            self.phases.drop_waiting(now.mono, &Missed::LeaseOver, |_| true);
        }
        while self.begins_at().is_some_and(|at| at <= now.mono) {
            let Some(mut booking) = self.phases.waiting.pop_front() else { return };
            if let Some(standing) = self.standing_without_change(now, &booking) {
                if matches!(standing, Standing::Lit(_)) {
                    self.phases.in_use_until = booking.until();
                }
                self.phases.end(booking, standing, now.mono);
                continue;
            }
            if self.ledger().open.is_some() || self.journal_failure.is_some() {
                self.phases.waiting.push_front(booking);
                return;
            }
            match self.begin_phase(now, &mut booking, actions) {
                Ok(txn) => {
                    booking.standing = Standing::Moving(txn);
                    booking.began = Some(now.mono);
                    self.phases.waiting.push_front(booking);
                    return;
                }
                Err(standing) => self.phases.end(booking, standing, now.mono),
            }
        }
    }

    fn standing_without_change(&mut self, now: &Now, booking: &Booking) -> Option<Standing> {
        if booking.plan_sha256 != self.ledger().plan_sha256
            && (booking.wish.revision.is_some() || self.plan.is_none())
        {
            return Some(Standing::Missed(Missed::OtherPlan));
        }
        let mut phases = self.plan.iter().flat_map(|plan| &plan.phases);
        if !phases.any(|phase| phase.name == booking.wish.phase) {
            return Some(Standing::Missed(Missed::OtherPlan));
        }
        if booking.until() <= now.mono {
            return Some(Standing::Missed(Missed::NoTime));
        }
        self.phases.waiting.push_front(booking.clone());
        let standing = self.at_once(booking);
        self.phases.waiting.pop_front();
        standing
    }

    fn begin_phase(
        &mut self,
        now: &Now,
        booking: &mut Booking,
        actions: &mut Vec<Action>,
    ) -> Result<Txn, Standing> {
        let switches = self.switches();
        let lit = self.phase().map(|lit| lit.name.clone());
        let apply = self.plan.as_ref().and_then(|plan| {
            let to = plan.phases.iter().find(|phase| phase.name == booking.wish.phase)?;
            let (phases, transitions) = (&plan.phases, &plan.transitions);
            let phase = circuits::wanted_phase(switches, phases, transitions, to);
            Some(Apply {
                target: circuits::on_switches(switches, &to.circuits),
                plan_sha256: self.ledger().plan_sha256.clone(),
                mode: Mode::Safe,
                cause: Some(Cause::Phase),
                phase: Some(Box::new(phase)),
                ..Apply::default()
            })
        });
        let Some(apply) = apply else { return Err(Standing::Missed(Missed::OtherPlan)) };
        booking.from = lit;
        let asked = booking.asked.clone();
        let request = Request::Apply(apply);
        let mut begun =
            self.controller.handle(now, Event::Request { asked, request, reply_to: OWN });
        let answer = begun.iter().find_map(|action| match action {
            Action::Answer(OWN, answer) => Some(answer.clone()),
            _ => None,
        });
        self.follow(now, &begun);
        actions.append(&mut begun);
        let reasons = match answer {
            Some(Answer::Accepted { txn }) => return Ok(txn),
            Some(Answer::Refused { reasons } | Answer::NothingToDo { reasons }) => reasons,
            Some(Answer::Conflict { reason }) => vec![reason],
            _ => vec!["the change could not begin".into()],
        };
        Err(Standing::Missed(Missed::Refused(reasons)))
    }

    pub(super) fn phase_fired(&mut self, txn: Txn, now: Micros) {
        let first = self.phases.waiting.front_mut();
        if let Some(booking) = first.filter(|b| b.standing == Standing::Moving(txn)) {
            booking.fired.get_or_insert(now);
        }
    }

    pub(super) fn phase_ended(&mut self, txn: Txn, result: TxnResult, now: Micros) {
        let past = self.ledger().history.back();
        let ends = past.iter().flat_map(|past| &past.ends);
        let failed = ends.filter(|(_, end)| !end.detail.is_empty());
        let why = failed.map(|(device, end)| format!("{device}: {}", end.detail)).collect();
        let other_plan = past.is_some_and(|past| {
            result != TxnResult::Aborted && !past.cause.goes_on_top() && past.cause != Cause::Phase
        });
        let first = self.phases.waiting.front();
        if first.is_some_and(|booking| booking.standing == Standing::Moving(txn))
            && let Some(mut booking) = self.phases.waiting.pop_front()
        {
            booking.ended = Some(now);
            let standing = match result {
                TxnResult::Committed => {
                    self.phases.learn(&booking, now);
                    self.phases.in_use_until = booking.until();
                    Standing::Lit(Some(txn))
                }
                result => Standing::Missed(Missed::Failed(txn, result, why)),
            };
            self.phases.end(booking, standing, now);
            return;
        }
        let ledger = self.ledger();
        if ledger.history.back().is_none_or(|past| past.plan_before == ledger.plan_sha256) {
            return;
        }
        self.phases.took.clear();
        if other_plan {
            self.phases.ahead.clear();
            self.phases.drop_waiting(now, &Missed::OtherPlan, |_| true);
        }
    }
}

fn in_range(wish: &Wish) -> Result<(), Refusal> {
    let (field, time, what) = match wish {
        Wish { within, .. } if *within > AHEAD_MAX => {
            ("in_ms", within, "a phase can be requested at most 3,600,000 ms (an hour) ahead")
        }
        Wish { least, .. } if *least == Micros(0) || *least > LEAST_MAX => {
            ("for_ms", least, "a phase must last from 1 ms to 86,400,000 ms (a day)")
        }
        Wish { lease, .. } if *lease > LEASE_MAX => {
            ("lease_ms", lease, "a lease can last at most 86,400,000 ms (a day)")
        }
        Wish { within, least, lease, .. } if *lease < *within + *least => {
            return Err(Refusal::LeaseTooShort { lease: *lease, needs: *within + *least });
        }
        _ => return Ok(()),
    };
    Err(Refusal::OutOfRange { field, ms: time.0 / 1000, what })
}
