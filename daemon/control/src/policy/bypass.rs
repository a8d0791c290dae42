// SPDX-License-Identifier: Apache-2.0
//! Makes the change that bypasses all failed parts, and tells which parts a plan avoids. The plan
//! itself comes from [`replan`](crate::replan).

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::Plan;
use lightloom_planner::joint::Bounds;
use lightloom_units::id::{BundleId, NodeId};

use super::Facts;
use crate::change::{Mode, Phase};
use crate::desired::successor::PlanSuccessor;
use crate::desired::{self, circuits};
use crate::kept_plan::KeptPlan;
use crate::messages::{Answer, Apply};
use crate::record::{Asked, Cause, Failed};
use crate::replan::{self, is_inside};
use crate::sightings::{Crossed, end_name};
use crate::state::{DeviceName, Now, Position, Positions, Slot, SwitchState, at};

pub(super) const ASKS_ALL: &str = "groups would move, so all other modules are queried first";

pub(super) const CROSSED: &str = "crossed cables?";
/// A part is a suspect for an hour after a bypass failed there.
const SUSPECT_MS: u64 = 3_600_000;

struct Avoided {
    part: Part,
    why: String,
    suspected: bool,
}

/// A plan around failed parts, and the positions that must change.
struct Candidate {
    next: replan::NextPlan,
    target: SwitchState,
}

impl Candidate {
    fn gpus_used(&self) -> u64 {
        self.next.plan.metrics.gpus_used
    }
}

impl<'a> Facts<'a> {
    pub fn installed(&self) -> Option<&'a Fabric> {
        self.setup.installed.as_ref()
    }

    /// `None` for plans of circuits without GPUs, which cannot avoid faults.
    pub(super) fn replannable(&self) -> Option<&'a Fabric> {
        self.installed().filter(|fabric| fabric.circuits_alone().is_none())
    }

    /// Names parts as plans do; for a fibre, plans use its lower port. Adds crossed cables to the
    /// reason, because they can no longer be observed after the bypass. `by_policy` is set if the
    /// policy, not an operator, reports the failed parts.
    pub(super) fn as_planned(
        &self,
        failed: &[(Part, String)],
        repaired: &[Part],
        by_policy: bool,
    ) -> (Vec<(Part, String)>, Vec<Part>) {
        let failed = failed.iter().map(|(part, why)| {
            let said = by_policy && self.is_dark_and_crossed(*part);
            let crossed = self.crossed_at(*part).filter(|_| !said);
            let note = crossed.map(|crossed| format!("; {crossed}")).unwrap_or_default();
            (self.name_in_plans(*part), format!("{why}{note}"))
        });
        (failed.collect(), repaired.iter().map(|part| self.name_in_plans(*part)).collect())
    }

    fn name_in_plans(&self, part: Part) -> Part {
        let Some(installed) = self.replannable() else { return part };
        let faults = FaultSet::of(installed, [part]);
        faults.ok().and_then(|faults| faults.parts(installed).first().copied()).unwrap_or(part)
    }

    fn is_dark_and_crossed(&self, part: Part) -> bool {
        let Part::Fibre(port) = part else { return false };
        let Some(device) = self.setup.modules.get(&port.bundle) else { return false };
        let receiver = (device.clone(), Slot(0), Position(u32::from(port.path)));
        let dark = self.sightings.dark_fibres(self.ledger);
        dark.iter().any(|dark| dark.receiver == receiver && dark.sender_lit_by.is_some())
    }

    fn crossed_at(&self, part: Part) -> Option<String> {
        let Part::Fibre(port) = part else { return None };
        let device = self.setup.modules.get(&port.bundle)?;
        let end = (device.clone(), Slot(0), Position(u32::from(port.path)));
        let far = self.sightings.inventory().fibres.get(&end);
        [Some(&end), far].into_iter().flatten().find_map(|end| {
            let mut ends = self.sightings.crossed(&end.0, self.ledger).into_iter();
            let Crossed { end, lit_by, should_be } = ends.find(|crossed| crossed.end == *end)?;
            let (end, should_be) = (end_name(&end), end_name(&should_be));
            Some(format!("{end} was lit by {lit_by} instead of {should_be}: {CROSSED}"))
        })
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

    pub(super) fn bypass(
        &self,
        now: &Now,
        asked: Option<&Asked>,
        failed: &[(Part, String)],
        repaired: &[Part],
    ) -> Result<Apply, Answer> {
        self.replannable().ok_or_else(|| refused(self.no_rings()))?;
        let plan = self.plan.ok_or_else(|| refused("no plan is in force: apply one".into()))?;
        let again = asked.is_some_and(|asked| self.ledger.requests.contains_key(&asked.request));
        if let Some(reasons) = self.no_news(failed, repaired).filter(|_| !again) {
            // The part has not failed, so the operator probably meant another part.
            return Err(match failed.is_empty() {
                true => Answer::Refused { reasons },
                false => Answer::NothingToDo { reasons },
            });
        }
        let unreachable = repaired.iter().find(|part| !self.is_reachable(&part.to_string()));
        if let Some(part) = unreachable.filter(|_| !again) {
            let when =
                format!("lightloom ctl wait {part} && lightloom ctl fault --repaired {part}");
            return Err(refused(format!(
                "{part}: unreachable, so it cannot be put back into service yet: {when}"
            )));
        }
        let avoided = match failed.is_empty() {
            true => Vec::new(),
            false => self.all_to_avoid(failed, repaired, now),
        };
        let parts: Vec<Part> = avoided.iter().map(|avoided| avoided.part).collect();
        // An automatic bypass cuts only light that ends at the failed parts.
        let is_automatic = asked.is_some_and(|asked| asked.actor.is_policy());
        let cuts_at =
            is_automatic.then(|| parts.iter().flat_map(|part| self.nodes_of(*part)).collect());
        let planned = self.plan_within(now, plan, &parts, repaired, cuts_at);
        let Candidate { next, target } = planned.map_err(|reasons| Answer::Refused { reasons })?;
        let replan::NextPlan { plan: next, moved } = next;
        let cause = if parts.is_empty() { Cause::Repair } else { Cause::Bypass };
        let known = self.failed_parts_with(&next, now, |part| {
            let avoided = avoided.iter().find(|avoided| avoided.part == *part);
            let Some(Avoided { why, suspected, .. }) = avoided else { return Failed::default() };
            let price = replan::said(&moved).unwrap_or_default();
            Failed { why: why.clone(), suspected: *suspected, price, ..Failed::default() }
        });
        let mut resolves = self.repaired_by(repaired, &known);
        if cause == Cause::Bypass {
            resolves.extend(self.bypassed_by(&next));
        }
        let kept = match self.spelled {
            Some(spelled) => KeptPlan::of_digest(spelled.next(plan, &next).digest(), next),
            None => KeptPlan::new(next),
        };
        // A bypass is immediate, because its job waits for the ring.
        let phase = match cause {
            Cause::Bypass => None,
            _ => self.in_stages(plan, kept.plan(), &target),
        };
        Ok(Apply {
            phase,
            target,
            plan_sha256: kept.sha256().to_owned(),
            mode: Mode::Update,
            cause: Some(cause),
            failed: Some(known),
            plan: Some(Box::new(kept)),
            resolves,
            ..Apply::default()
        })
    }

    /// If the plan needs an unreachable module, uses a plan without this module: immediately if it
    /// is as good, otherwise after the module has been unreachable for a heartbeat.
    fn plan_within(
        &self,
        now: &Now,
        plan: &Plan,
        parts: &[Part],
        repaired: &[Part],
        cuts_at: Option<BTreeSet<NodeId>>,
    ) -> Result<Candidate, Vec<String>> {
        let Some(installed) = self.replannable() else { return Err(vec![self.no_rings()]) };
        let open = if cuts_at.is_none() { self.open_at(plan) } else { BTreeSet::new() };
        let mut bounds = Bounds { cuts_at, open, ..Bounds::default() };
        let mut narrow = replan::next_plan_within(installed, plan, parts, repaired, &bounds)?;
        if bounds.cuts_at.is_some() && self.sees_all_but(plan, parts) {
            narrow = self.or_wider(installed, plan, parts, narrow)?;
        }
        let first = self.candidate(narrow, plan)?;
        if first.target.keys().all(|device| self.sightings.is_reachable(device)) {
            return Ok(first);
        }
        let unreachable =
            self.setup.modules.iter().filter(|(_, device)| !self.sightings.is_reachable(device));
        bounds.out_of_reach = unreachable.map(|(bundle, _)| bundle.node).collect();
        let other = replan::next_plan_within(installed, plan, parts, repaired, &bounds);
        let Ok(other) = other.and_then(|next| self.candidate(next, plan)) else { return Ok(first) };
        let waits = first.target.keys().any(|device| {
            let since = self.sightings.unreachable_since(device);
            since.is_some_and(|since| since + self.setup.heartbeat > now.mono)
        });
        let is_as_good = !waits || other.gpus_used() >= first.gpus_used();
        let is_reachable = other.target.keys().all(|device| self.sightings.is_reachable(device));
        Ok(if is_as_good && is_reachable { other } else { first })
    }

    fn or_wider(
        &self,
        installed: &Fabric,
        plan: &Plan,
        parts: &[Part],
        narrow: replan::NextPlan,
    ) -> Result<replan::NextPlan, Vec<String>> {
        let (used, may_move) = (narrow.plan.metrics.gpus_used, &self.setup.may_move);
        let (open, groups) = (self.open_at(plan), may_move.groups);
        let wider =
            replan::or_moving_what_stands_still(installed, plan, parts, open, narrow, groups)?;
        if let Some(why) = may_move.asks(parts, &wider.moved) {
            return Err(vec![why]);
        }
        if wider.plan.metrics.gpus_used > used && self.asked_all.is_none() {
            return Err(vec![ASKS_ALL.to_owned()]);
        }
        Ok(wider)
    }

    fn candidate(&self, next: replan::NextPlan, plan: &Plan) -> Result<Candidate, Vec<String>> {
        let modules = &self.setup.modules;
        let mut target = desired::paths_where(&next.plan, modules, |device: &DeviceName, to| {
            !self.stays(device, &[(Slot(0), to)].into())
        })?;
        self.add_circuits(&mut target, &next.plan, plan, &self.ledger.owned);
        target.retain(|device, want| {
            // An unreachable optical switch keeps passing light, so rings do not wait for it.
            let mut switches = self.setup.switches.values();
            let is_switch = switches.any(|(switch, _)| switch == device);
            !self.stays(device, want) && (!is_switch || self.sightings.is_reachable(device))
        });
        Ok(Candidate { next, target })
    }

    fn open_at(&self, plan: &Plan) -> BTreeSet<NodeId> {
        let open = plan.transceivers.iter().filter(|transceiver| {
            let device = self.setup.modules.get(&transceiver.bundle);
            let read = device.and_then(|device| self.sightings.devices().get(device)?.observed());
            let to = desired::position(transceiver.path);
            read.is_some_and(|read| at(&read.positions, Slot(0)) != to)
                || device.is_some_and(|device| self.sightings.is_dark_end(device))
        });
        open.map(|open| open.bundle.node).collect()
    }

    pub(super) fn sees_all_but(&self, plan: &Plan, parts: &[Part]) -> bool {
        let failed: BTreeSet<NodeId> =
            plan.faults.iter().chain(parts).filter_map(|part| part.node()).collect();
        let Some(asked) = self.asked_all else {
            let mut unreachable = self.sightings.unreachable();
            return unreachable.all(|(device, _)| {
                device.bundle().is_none_or(|bundle| failed.contains(&bundle.node))
            });
        };
        let mut modules = self.setup.modules.iter();
        modules.all(|(bundle, device)| {
            self.sightings.is_read_since(device, asked) || failed.contains(&bundle.node)
        })
    }

    fn nodes_of(&self, part: Part) -> impl Iterator<Item = NodeId> {
        let far = match part {
            Part::Fibre(port) => self.replannable().and_then(|fabric| fabric.hbd.peer(port)),
            _ => None,
        };
        part.node().into_iter().chain(far.map(|far| far.bundle.node))
    }

    pub(super) fn stays(&self, device: &DeviceName, want: &Positions) -> bool {
        let ledger = self.ledger;
        if !ledger.owned.contains_key(device) || *ledger.belongs(device) != *want {
            return false;
        }
        if !self.sightings.is_reachable(device) {
            return true;
        }
        let read = self.sightings.reading(device);
        let stands =
            read.is_none_or(|read| want.iter().all(|(slot, to)| at(&read.positions, *slot) == *to));
        let is_certain = !ledger.attention.contains_key(device)
            && !ledger.probed.contains_key(device)
            && !self.transactions.is_brought_back(device, self.sightings);
        stands && is_certain
    }

    pub(super) fn leave_unreachable(&self, target: &mut SwitchState) {
        target.retain(|device, want| {
            self.sightings.is_reachable(device) || *self.ledger.belongs(device) != *want
        });
    }

    pub(super) fn failed_in_ledger(&self) -> BTreeMap<String, Failed> {
        let ledger = self.ledger;
        let mut failed = ledger.reported.clone();
        failed.extend(ledger.failed.clone());
        failed
    }

    pub(super) fn is_failed_in_history(&self, part: Part) -> bool {
        let ledger = self.ledger;
        let first = ledger.history.front().map(|past| past.txn);
        first.is_some_and(|first| ledger.failed_since(first).contains_key(&part.to_string()))
    }

    pub(super) fn bypassed_by(&self, next: &Plan) -> BTreeSet<String> {
        let ledger = self.ledger;
        self.reports(|name| self.avoids(next, name) && !ledger.failed.contains_key(name))
    }

    fn repaired_by(&self, repaired: &[Part], known: &BTreeMap<String, Failed>) -> BTreeSet<String> {
        let ledger = self.ledger;
        self.reports(|name| {
            let was = ledger.failed.contains_key(name) && !known.contains_key(name);
            was || repaired.iter().any(|part| is_of(name, part))
        })
    }

    pub(super) fn not_bypassed_by(&self, plan: &Plan) -> BTreeSet<String> {
        self.reports(|name| !self.avoids(plan, name))
    }

    fn reports(&self, is_resolved: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let reported = self.ledger.reported.keys();
        reported.filter(|name| is_resolved(name)).cloned().collect()
    }

    fn avoids(&self, plan: &Plan, name: &str) -> bool {
        let (Some(installed), Some(covered)) = (self.replannable(), self.covered(plan)) else {
            return false;
        };
        name.parse().is_ok_and(|part| !replan::is_news(installed, &covered, part))
    }

    pub(super) fn covered(&self, plan: &Plan) -> Option<FaultSet> {
        FaultSet::of(self.replannable()?, plan.faults.iter().copied()).ok()
    }

    pub(super) fn used<'b>(
        &self,
        plan: &Plan,
        known: &'b BTreeMap<String, Failed>,
    ) -> Vec<(&'b String, &'b Failed)> {
        let (Some(installed), Some(covered)) = (self.replannable(), self.covered(plan)) else {
            return Vec::new();
        };
        let used = known.iter().filter(|(name, _)| {
            name.parse().is_ok_and(|part| replan::is_news(installed, &covered, part))
        });
        used.collect()
    }

    /// Returns the failed parts of the ledger and of the plan in force.
    pub fn failed_parts(&self) -> BTreeMap<String, Failed> {
        let mut failed = self.failed_in_ledger();
        for part in self.plan.iter().flat_map(|plan| self.faults_of(plan)) {
            failed.entry(part.to_string()).or_default();
        }
        failed
    }

    /// Returns the parts that `plan` avoids and that are installed.
    fn faults_of<'b>(&self, plan: &'b Plan) -> impl Iterator<Item = &'b Part> + use<'a, 'b> {
        let facts = *self;
        plan.faults.iter().filter(move |part| !facts.is_absent(**part))
    }

    fn is_absent(&self, part: Part) -> bool {
        let absent = self.installed().map(|fabric| &fabric.absent);
        matches!((part, absent), (Part::Node(node), Some(absent)) if absent.contains(&node))
    }

    pub fn failed_parts_with(
        &self,
        plan: &Plan,
        now: &Now,
        news: impl Fn(&Part) -> Failed,
    ) -> BTreeMap<String, Failed> {
        let (known, wall_ms) = (self.failed_parts(), now.wall_ms);
        let failed = self.faults_of(plan).map(|part| {
            let name = part.to_string();
            let failed = known.get(&name).cloned();
            (name, failed.unwrap_or_else(|| Failed { wall_ms, ..news(part) }))
        });
        failed.collect()
    }

    fn no_news(&self, failed: &[(Part, String)], repaired: &[Part]) -> Option<Vec<String>> {
        let known = self.failed_parts();
        let mut reasons = Vec::new();
        for (part, _) in failed {
            if self.is_absent(*part) {
                reasons.push(format!("{part} is not installed"));
                continue;
            }
            let Failed { why, .. } =
                known.get(&part.to_string()).filter(|_| self.is_bypassed(*part))?;
            let sep = if why.is_empty() { "" } else { ": " };
            reasons.push(format!("{part} is already a known fault{sep}{why}"));
        }
        for part in repaired {
            if known.keys().any(|known| is_of(known, part)) {
                return None;
            }
            reasons.push(match inside(part, &known) {
                Some(whole) => {
                    format!("{part} is not a known fault, but is part of {whole}, which is: repair {whole}")
                }
                None if self.is_absent(*part) => format!("{part} is not installed"),
                None => format!("{part} is not a known fault"),
            });
        }
        Some(reasons)
    }

    pub fn is_bypassed(&self, part: Part) -> bool {
        self.plan.is_some_and(|plan| self.avoids(plan, &part.to_string()))
    }

    fn is_reachable(&self, part: &str) -> bool {
        let touched = self.setup.modules.iter().filter(|(bundle, _)| {
            let bundle = bundle.to_string();
            is_inside(&bundle, part) || is_inside(part, &bundle)
        });
        touched.map(|(_, device)| device).all(|device| self.sightings.is_reachable(device))
    }

    pub fn forgotten_by(&self, plan: &Plan) -> Vec<String> {
        let known = self.failed_parts();
        let forgotten = self.used(plan, &known).into_iter().map(|(name, Failed { why, .. })| {
            let sep = if why.is_empty() { "" } else { ": " };
            format!("this plan uses {name}, which has a known fault{sep}{why}")
        });
        let mut reasons: Vec<String> = forgotten.collect();
        if !reasons.is_empty() {
            let names = known.keys().cloned().collect::<Vec<_>>().join(",");
            let mut ways = format!("plan it again with `--fault {names}`");
            // Suggest another mode only if all parts respond.
            if known.keys().all(|name| self.is_reachable(name)) {
                ways += ", report repaired parts with `ctl fault --repaired PART`, or apply with mode `update`, \
                         which forgets the faults";
            }
            reasons.push(ways);
        }
        reasons
    }

    fn all_to_avoid(
        &self,
        failed: &[(Part, String)],
        repaired: &[Part],
        now: &Now,
    ) -> Vec<Avoided> {
        let named = failed.iter().cloned();
        let mut avoided: Vec<Avoided> =
            named.map(|(part, why)| Avoided { part, why, suspected: false }).collect();
        let Some(installed) = self.replannable() else { return avoided };
        let faults = self.plan.iter().flat_map(|plan| plan.faults.iter().copied());
        let reported = failed.iter().map(|(part, _)| *part);
        let Ok(known) = FaultSet::of(installed, faults.chain(reported)) else { return avoided };
        let since_ms = now.wall_ms.saturating_sub(SUSPECT_MS);
        let history = self.ledger.history.iter().rev();
        let suspects = replan::suspects(history, since_ms, |sha256: &str, bundle: BundleId| {
            let plan = self.ledger.plan_named(sha256)?;
            let found = plan.transceivers.iter().find(|found| found.bundle == bundle)?;
            u8::try_from(desired::position(found.path).0).ok()
        });
        let mut more: BTreeMap<Part, (String, bool)> =
            suspects.into_iter().map(|(part, why)| (part, (why, true))).collect();
        for (part, _) in failed {
            let Part::Bundle(bundle) = part else { continue };
            for (other, device) in self.of_node(*bundle) {
                if self.sightings.skips_hello_with_node(device, now) {
                    let why = format!("suspect: unresponsive, like {bundle} of the same node");
                    more.insert(Part::Bundle(other), (why, true));
                }
            }
        }
        for (name, before) in &self.ledger.reported {
            if let Ok(part) = name.parse() {
                more.insert(part, (before.why.clone(), false));
            }
        }
        more.retain(|part, _| {
            let name = part.to_string();
            let is_repaired = repaired.iter().any(|part| is_of(&name, part));
            replan::is_news(installed, &known, *part) && !is_repaired
        });
        let more = more.into_iter();
        avoided.extend(more.map(|(part, (why, suspected))| Avoided { part, why, suspected }));
        avoided
    }

    pub fn both_halves(
        &self,
        plan: &Plan,
        before: &Plan,
        owned: &SwitchState,
    ) -> Result<SwitchState, Vec<String>> {
        let mut target = desired::paths(plan, &self.setup.modules)?;
        self.add_circuits(&mut target, plan, before, owned);
        Ok(target)
    }

    /// Returns the order of a change from `before` to `target`, which is `next` with one of its
    /// phases. `None` if no switch moves.
    pub(super) fn in_stages(
        &self,
        before: &Plan,
        next: &Plan,
        target: &SwitchState,
    ) -> Option<Box<Phase>> {
        let (fabric, switches) = (self.installed()?, &self.setup.switches);
        let mut after = SwitchState::new();
        for (device, _) in switches.values() {
            let to = target.get(device).or_else(|| self.ledger.owned.get(device));
            let lit = to.into_iter().flatten().filter(|(_, to)| !to.is_dark());
            after.insert(device.clone(), lit.map(|(slot, to)| (*slot, *to)).collect());
        }
        if !after.keys().any(|device| target.contains_key(device)) {
            return None;
        }
        let to = circuits::in_force(switches, &next.phases, &after)?;
        let successor = PlanSuccessor { fabric, switches, before, next };
        let way = successor.way(to, target, |device: &DeviceName| {
            self.sightings.reading(device).map(|read| &read.positions)
        })?;
        Some(Box::new(Phase { name: to.name.clone(), ways: vec![way] }))
    }

    fn add_circuits(
        &self,
        target: &mut SwitchState,
        plan: &Plan,
        before: &Plan,
        owned: &SwitchState,
    ) {
        let switches = &self.setup.switches;
        let lit = circuits::in_force(switches, &before.phases, owned);
        let next = lit.and_then(|lit| plan.phases.iter().find(|next| next.name == lit.name));
        if let Some(next) = next {
            target.extend(circuits::on_switches(switches, &next.circuits));
        }
    }
}

fn refused(why: String) -> Answer {
    Answer::Refused { reasons: vec![why] }
}

/// A repaired node includes its bundles, even bundles that failed separately.
fn is_of(known: &str, part: &Part) -> bool {
    let name = part.to_string();
    let of_node = matches!(part, Part::Node(_)) && known.split('/').next() == Some(&name);
    known == name || of_node
}

fn inside<'a>(part: &Part, known: &'a BTreeMap<String, Failed>) -> Option<&'a str> {
    let part = part.to_string();
    known.keys().find(|whole| is_inside(&part, whole)).map(String::as_str)
}
