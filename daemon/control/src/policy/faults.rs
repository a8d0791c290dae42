// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::{Plan, Transceiver};
use lightloom_planner::joint::Bounds;
use lightloom_units::id::{BundleId, NodeId};

use super::{Control, OnFault};
use crate::bypass::{self, is_inside};
use crate::change::Mode;
use crate::controller::{Action, Answer, Apply, Crossed, Event, ReplyTo, Request, end_name};
use crate::desired;
use crate::kept_plan::KeptPlan;
use crate::record::{Asked, Broken, Cause};
use crate::state::{DeviceName, FibreEnd, Now, Position, Positions, Slot, SwitchState, at};

pub(super) const ASKS_ALL: &str = "groups would move, so all other modules are queried first";

pub(super) const CROSSED: &str = "crossed cables?";

pub(super) struct Around {
    pub(super) part: Part,
    pub(super) why: String,
    pub(super) suspected: bool,
}

impl Around {
    pub(super) fn named(part: Part, why: String) -> Self {
        Self { part, why, suspected: false }
    }
}

impl Control {
    /// Names parts as plans do; for a fibre, plans use its lower port. Adds crossed cables to the
    /// reason, because they can no longer be observed after the bypass. `found` is set if the
    /// policy, not an operator, reports the fault.
    pub(super) fn as_planned(
        &self,
        broken: &[(Part, String)],
        repaired: &[Part],
        found: bool,
    ) -> (Vec<(Part, String)>, Vec<Part>) {
        let named = |part: &Part| {
            let installed = self.replannable()?;
            FaultSet::of(installed, [*part]).ok()?.parts(installed).first().copied()
        };
        let named = |part: &Part| named(part).unwrap_or(*part);
        let broken = broken.iter().map(|(part, why)| {
            let said = found && self.is_found_crossed(*part);
            let crossed = self.crossed_at(*part).filter(|_| !said);
            let crossed = crossed.map(|crossed| format!("; {crossed}")).unwrap_or_default();
            (named(part), format!("{why}{crossed}"))
        });
        (broken.collect(), repaired.iter().map(named).collect())
    }

    fn is_found_crossed(&self, part: Part) -> bool {
        let Part::Fibre(port) = part else { return false };
        let Some(device) = self.setup.modules.get(&port.bundle) else { return false };
        let near = (device.clone(), Slot(0), Position(u32::from(port.path)));
        let dark = self.controller.dark_fibres();
        dark.iter().any(|dark| dark.near == near && dark.far_lit_by.is_some())
    }

    fn crossed_at(&self, part: Part) -> Option<String> {
        let Part::Fibre(port) = part else { return None };
        let near = (
            self.setup.modules.get(&port.bundle)?.clone(),
            Slot(0),
            Position(u32::from(port.path)),
        );
        let far = self.controller.inventory().fibres.get(&near);
        let crossed = |end: &FibreEnd| {
            let mut ends = self.controller.crossed(&end.0).into_iter();
            let Crossed { end, lit_by, should_be } = ends.find(|crossed| crossed.end == *end)?;
            let (end, should_be) = (end_name(&end), end_name(&should_be));
            Some(format!("{end} was lit by {lit_by} instead of {should_be}: {CROSSED}"))
        };
        crossed(&near).or_else(|| crossed(far?))
    }

    fn no_rings(&self) -> String {
        match self.installed() {
            Some(fabric) => format!(
                "the fabric `{}` is a reconfigurable fat-tree: bypasses need rings of transceivers",
                fabric.name
            ),
            None => "the configuration has no fabric".into(),
        }
    }

    pub fn fault(
        &mut self,
        now: &Now,
        asked: Asked,
        broken: &[(Part, String)],
        repaired: &[Part],
        reply_to: ReplyTo,
    ) -> Vec<Action> {
        if let Some(why) = &self.failed {
            let reasons = vec![why.to_string()];
            return vec![Action::Answer(reply_to, Answer::Refused { reasons })];
        }
        let devices = self.controller.devices();
        if !broken.is_empty() && !devices.is_empty() && devices.values().all(|seen| !seen.up) {
            let why = "no device responds, so the plan cannot be bypassed and would be abandoned: \
                check the management lines, then report the fault again";
            let reasons = vec![why.to_owned()];
            return vec![Action::Answer(reply_to, Answer::Refused { reasons })];
        }
        let (broken, repaired) = self.as_planned(broken, repaired, asked.actor.is_policy());
        // An automatic bypass cuts only light that ends at the failed parts.
        let found = asked.actor.is_policy();
        let result = self.bypass(now, (&asked.request, found), (&broken, &repaired));
        let mut actions = Vec::new();
        let kept = match &result {
            Err(Answer::Refused { .. }) => Vec::new(),
            _ => self.keep_reported(now, &asked, &broken, &mut actions),
        };
        let more = match result {
            Ok(mut apply) => {
                if let Some(next) = apply.plan.as_ref().filter(|_| !kept.is_empty()) {
                    apply.settles = self.bypassed_by(next.plan());
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

    pub(super) fn bypass(
        &self,
        now: &Now,
        (request, found): (&str, bool),
        (broken, repaired): (&[(Part, String)], &[Part]),
    ) -> Result<Apply, Answer> {
        let refused = |why: String| Answer::Refused { reasons: vec![why] };
        self.replannable().ok_or_else(|| refused(self.no_rings()))?;
        let plan =
            self.plan.as_ref().ok_or_else(|| refused("no plan is in force: apply one".into()))?;
        let again = self.controller.ledger().requests.contains_key(request);
        if let Some(reasons) = self.no_news(broken, repaired).filter(|_| !again) {
            // The part is not a known fault, so the operator probably meant another part.
            return Err(match broken.is_empty() {
                true => Answer::Refused { reasons },
                false => Answer::NothingToDo { reasons },
            });
        }
        let silent = repaired.iter().find(|part| !self.answers(&part.to_string()));
        if let Some(part) = silent.filter(|_| !again) {
            let when =
                format!("lightloom ctl wait {part} && lightloom ctl fault --repaired {part}");
            return Err(refused(format!(
                "{part}: unreachable, so it cannot be put back into service yet: {when}"
            )));
        }
        let broken = match broken.is_empty() {
            true => Vec::new(),
            false => self.all_to_avoid(broken, repaired, now),
        };
        let parts: Vec<Part> = broken.iter().map(|around| around.part).collect();
        let ends = || parts.iter().flat_map(|part| self.nodes_of(*part)).collect();
        let cuts_at = found.then(ends);
        let planned = self.plan_within(now, plan, (&parts, repaired), cuts_at);
        let (next, target) = planned.map_err(|reasons| Answer::Refused { reasons })?;
        let bypass::Around { plan: next, moved } = next;
        let cause = if broken.is_empty() { Cause::Repair } else { Cause::Bypass };
        let known = self.broken_with(&next, now, |part| {
            let around = broken.iter().find(|around| around.part == *part);
            let Some(Around { why, suspected, .. }) = around else { return Broken::default() };
            let price = bypass::said(&moved).unwrap_or_default();
            Broken { why: why.clone(), suspected: *suspected, price, ..Broken::default() }
        });
        let settles = match cause {
            Cause::Repair => self.repaired_by(repaired, &known),
            _ => self.bypassed_by(&next),
        };
        let kept = match &self.spelled {
            Some(spelled) => KeptPlan::of_digest(spelled.next(plan, &next).digest(), next),
            None => KeptPlan::new(next),
        };
        Ok(Apply {
            target,
            plan_sha256: kept.sha256().to_owned(),
            mode: Mode::Update,
            cause: Some(cause),
            broken: Some(known),
            plan: Some(Box::new(kept)),
            settles,
            ..Apply::default()
        })
    }

    /// If the plan needs an unresponsive module, uses a plan without this module: immediately if it
    /// is as good, otherwise after the module has been unresponsive for a heartbeat.
    fn plan_within(
        &self,
        now: &Now,
        plan: &Plan,
        (broken, repaired): (&[Part], &[Part]),
        cuts_at: Option<BTreeSet<NodeId>>,
    ) -> Result<(bypass::Around, SwitchState), Vec<String>> {
        let Some(installed) = self.replannable() else { return Err(vec![self.no_rings()]) };
        let owned = &self.controller.ledger().owned;
        let wanted = |next: bypass::Around| {
            let moves = |device: &DeviceName, to| !self.stays(device, &[(Slot(0), to)].into());
            let mut target = desired::paths_where(&next.plan, &self.setup.modules, moves)?;
            self.add_circuits(&mut target, &next.plan, plan, owned);
            target.retain(|device, want| !self.stays(device, want));
            // An unresponsive optical switch keeps passing light, so rings do not wait for it.
            let is_switch =
                |device: &DeviceName| self.switches().values().any(|(switch, _)| switch == device);
            target.retain(|device, _| !is_switch(device) || self.is_in_reach(device));
            Ok((next, target))
        };
        let open = if cuts_at.is_none() { self.open_at(plan) } else { BTreeSet::new() };
        let mut bounds = Bounds { cuts_at, open, ..Bounds::default() };
        let first = bypass::next_plan_within(installed, plan, broken, repaired, &bounds);
        let first = match first {
            Ok(first) if bounds.cuts_at.is_some() && self.sees_all_but(plan, broken) => {
                let (used, may_move) = (first.plan.metrics.gpus_used, &self.setup.may_move);
                let wider = bypass::or_moving_what_stands_still(
                    installed,
                    plan,
                    (broken, &self.open_at(plan)),
                    first,
                    may_move.groups,
                )?;
                if let Some(why) = may_move.asks(broken, &wider.moved) {
                    return Err(vec![why]);
                }
                if wider.plan.metrics.gpus_used > used && self.asked_all.is_none() {
                    return Err(vec![ASKS_ALL.to_owned()]);
                }
                Ok(wider)
            }
            first => first,
        };
        let first = first.and_then(wanted)?;
        if first.1.keys().all(|device| self.is_in_reach(device)) {
            return Ok(first);
        }
        let is_out = |(_, device): &(&BundleId, &DeviceName)| !self.is_in_reach(device);
        let out = self.setup.modules.iter().filter(is_out);
        bounds.out_of_reach = out.map(|(bundle, _)| bundle.node).collect();
        let other = bypass::next_plan_within(installed, plan, broken, repaired, &bounds);
        let waits = |device: &DeviceName| {
            let since = self.unreachable(device).map(|(since, _)| since);
            !self.is_in_reach(device)
                && since.is_none_or(|since| since + self.setup.heartbeat > now.mono)
        };
        let waited = !first.1.keys().any(waits);
        let as_good = |other: &(bypass::Around, SwitchState)| {
            let used = |next: &(bypass::Around, SwitchState)| next.0.plan.metrics.gpus_used;
            (waited || used(other) >= used(&first))
                && other.1.keys().all(|device| self.is_in_reach(device))
        };
        let other = other.and_then(wanted).ok().filter(as_good);
        Ok(other.unwrap_or(first))
    }

    fn open_at(&self, plan: &Plan) -> BTreeSet<NodeId> {
        let is_open = |transceiver: &&Transceiver| {
            let device = self.setup.modules.get(&transceiver.bundle);
            let seen = device.and_then(|device| self.controller.devices().get(device));
            let read = seen.and_then(|seen| seen.observed.as_ref());
            let to = desired::position(transceiver.path);
            read.is_some_and(|read| at(&read.positions, Slot(0)) != to)
                || device.is_some_and(|device| self.controller.misses_light(device))
        };
        plan.transceivers.iter().filter(is_open).map(|open| open.bundle.node).collect()
    }

    fn sees_all_but(&self, plan: &Plan, broken: &[Part]) -> bool {
        let is_broken = |bundle: &BundleId| {
            plan.faults.iter().chain(broken).any(|part| part.node() == Some(bundle.node))
        };
        let mut modules = self.setup.modules.iter();
        if self.asked_all.is_none() {
            let mut down = self.controller.down_devices().map(|(device, _)| device.as_str());
            return down.all(|name| name.parse().map_or(true, |bundle| is_broken(&bundle)));
        }
        let answers = |device: &DeviceName| {
            let seen = self.controller.devices().get(device).filter(|seen| seen.up);
            seen.is_some_and(|seen| self.asked_all.is_none_or(|asked| seen.read_at >= asked))
        };
        modules.all(|(bundle, device)| answers(device) || is_broken(bundle))
    }

    fn is_in_reach(&self, device: &DeviceName) -> bool {
        self.controller.devices().get(device).is_some_and(|seen| seen.up)
    }

    fn nodes_of(&self, part: Part) -> impl Iterator<Item = NodeId> {
        let far = match part {
            Part::Fibre(port) => self.replannable().and_then(|fabric| fabric.hbd.peer(port)),
            _ => None,
        };
        part.node().into_iter().chain(far.map(|far| far.bundle.node))
    }

    fn stays(&self, device: &DeviceName, want: &Positions) -> bool {
        let ledger = self.controller.ledger();
        if !ledger.owned.contains_key(device) || *ledger.belongs(device) != *want {
            return false;
        }
        let Some(seen) = self.controller.devices().get(device).filter(|seen| seen.up) else {
            return true;
        };
        let stands = seen
            .observed
            .as_ref()
            .is_none_or(|read| want.iter().all(|(slot, to)| at(&read.positions, *slot) == *to));
        let is_settled = !ledger.attention.contains_key(device)
            && !ledger.probed.contains_key(device)
            && !self.controller.is_brought_back(device);
        stands && is_settled
    }

    pub(super) fn leave_what_cannot_be_reached(&self, target: &mut SwitchState) {
        let ledger = self.controller.ledger();
        let up = |device: &DeviceName| self.controller.devices().get(device).is_some_and(|d| d.up);
        target.retain(|device, want| up(device) || *ledger.belongs(device) != *want);
    }

    pub(super) fn reported_or_found(&self) -> BTreeMap<String, Broken> {
        let ledger = self.controller.ledger();
        let mut broken = ledger.reported.clone();
        broken.extend(ledger.broken.clone());
        broken
    }

    /// Keeps an operator's reports until their bypass is committed, so that a bypass that is
    /// currently impossible is retried later. Also keeps faults of an earlier plan when that plan
    /// is undone. Returns the parts that are newly kept.
    fn keep_reported(
        &mut self,
        now: &Now,
        asked: &Asked,
        broken: &[(Part, String)],
        actions: &mut Vec<Action>,
    ) -> Vec<String> {
        if asked.actor.is_policy() {
            return Vec::new();
        }
        let wall_ms = now.wall_ms;
        let news = broken.iter().filter(|(part, _)| {
            let known = self.controller.ledger().reported.contains_key(&part.to_string());
            !known && (!self.goes_around(*part) || !self.is_found(*part))
        });
        let news = news.map(|(part, why)| {
            (part.to_string(), Broken { wall_ms, why: why.clone(), ..Broken::default() })
        });
        let parts: BTreeMap<String, Broken> = news.collect();
        let names = parts.keys().cloned().collect();
        if !parts.is_empty() {
            self.controller.report(now, asked.clone(), parts, actions);
        }
        names
    }

    fn is_found(&self, part: Part) -> bool {
        let ledger = self.controller.ledger();
        let first = ledger.history.front().map(|past| past.txn);
        first.is_some_and(|first| ledger.found_since(first).contains_key(&part.to_string()))
    }

    fn bypassed_by(&self, next: &Plan) -> BTreeSet<String> {
        let ledger = self.controller.ledger();
        self.reports(|name| self.avoids(next, name) && !ledger.broken.contains_key(name))
    }

    fn repaired_by(&self, repaired: &[Part], known: &BTreeMap<String, Broken>) -> BTreeSet<String> {
        let ledger = self.controller.ledger();
        self.reports(|name| {
            let was = ledger.broken.contains_key(name) && !known.contains_key(name);
            was || repaired.iter().any(|part| is_of(name, part))
        })
    }

    pub(super) fn not_bypassed_by(&self, plan: &Plan) -> BTreeSet<String> {
        self.reports(|name| !self.avoids(plan, name))
    }

    fn reports(&self, settled: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let reported = self.controller.ledger().reported.keys();
        reported.filter(|name| settled(name)).cloned().collect()
    }

    fn avoids(&self, plan: &Plan, name: &str) -> bool {
        let Some(installed) = self.replannable() else { return false };
        let Ok(covered) = FaultSet::of(installed, plan.faults.iter().copied()) else {
            return false;
        };
        name.parse().is_ok_and(|part| !bypass::is_news(installed, &covered, part))
    }

    #[must_use]
    pub fn broken(&self) -> BTreeMap<String, Broken> {
        let mut broken = self.reported_or_found();
        for part in self.plan.iter().flat_map(|plan| &plan.faults) {
            broken.entry(part.to_string()).or_default();
        }
        broken
    }

    pub fn broken_with(
        &self,
        plan: &Plan,
        now: &Now,
        news: impl Fn(&Part) -> Broken,
    ) -> BTreeMap<String, Broken> {
        let (known, wall_ms) = (self.broken(), now.wall_ms);
        let of = |part: &Part| {
            let name = part.to_string();
            let broken = known.get(&name).cloned();
            let broken = broken.unwrap_or_else(|| Broken { wall_ms, ..news(part) });
            (name, broken)
        };
        plan.faults.iter().map(of).collect()
    }

    fn no_news(&self, broken: &[(Part, String)], repaired: &[Part]) -> Option<Vec<String>> {
        let known = self.broken();
        let mut reasons = Vec::new();
        for (part, _) in broken {
            let since = known.get(&part.to_string()).filter(|_| self.goes_around(*part))?;
            let since =
                if since.why.is_empty() { String::new() } else { format!(": {}", since.why) };
            reasons.push(format!("{part} is already a known fault{since}"));
        }
        for part in repaired {
            if known.keys().any(|known| is_of(known, part)) {
                return None;
            }
            reasons.push(match inside(part, &known) {
                Some(whole) => {
                    format!("{part} is not a known fault, but is part of {whole}, which is: repair {whole}")
                }
                None => format!("{part} is not a known fault"),
            });
        }
        Some(reasons)
    }

    #[must_use]
    pub fn goes_around(&self, part: Part) -> bool {
        self.plan.as_ref().is_some_and(|plan| self.avoids(plan, &part.to_string()))
    }

    fn answers(&self, part: &str) -> bool {
        let touched = self.setup.modules.iter().filter(|(bundle, _)| {
            let bundle = bundle.to_string();
            is_inside(&bundle, part) || is_inside(part, &bundle)
        });
        let devices = self.controller.devices();
        touched.map(|(_, device)| devices.get(device)).all(|seen| seen.is_some_and(|seen| seen.up))
    }

    #[must_use]
    pub fn forgotten_by(&self, plan: &Plan) -> Vec<String> {
        let Some(installed) = self.replannable() else { return Vec::new() };
        let Ok(covered) = FaultSet::of(installed, plan.faults.iter().copied()) else {
            return Vec::new();
        };
        let known = self.broken();
        let forgotten = known.iter().filter(|(name, _)| {
            name.parse().is_ok_and(|part| bypass::is_news(installed, &covered, part))
        });
        let mut reasons: Vec<String> = forgotten
            .map(|(name, broken)| {
                let why = if broken.why.is_empty() { "" } else { &broken.why };
                let sep = if why.is_empty() { "" } else { ": " };
                format!("this plan uses {name}, which has a known fault{sep}{why}")
            })
            .collect();
        if !reasons.is_empty() {
            let names = known.keys().cloned().collect::<Vec<_>>().join(",");
            let mut ways = format!("plan it again with `--fault {names}`");
            // Suggest another mode only if all parts respond.
            if known.keys().all(|name| self.answers(name)) {
                ways += ", report repaired parts with `ctl fault --repaired PART`, or apply with mode `update`, \
                         which forgets the faults";
            }
            reasons.push(ways);
        }
        reasons
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

/// A repaired node includes its bundles, even bundles that failed separately.
fn is_of(known: &str, part: &Part) -> bool {
    let name = part.to_string();
    let of_node = matches!(part, Part::Node(_)) && known.split('/').next() == Some(&name);
    known == name || of_node
}

fn inside<'a>(part: &Part, known: &'a BTreeMap<String, Broken>) -> Option<&'a str> {
    let part = part.to_string();
    known.keys().find(|whole| is_inside(&part, whole)).map(String::as_str)
}
