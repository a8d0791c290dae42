// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet};

use super::faults::{ASKS_ALL, CROSSED};
use super::{Control, OWN, OnFault};
use crate::actor::Policy;
use crate::bypass;
use crate::controller::{Action, Answer, Note, own};
use crate::drive::Site;
use crate::state::{DeviceName, Micros, Now};
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::khop::Port;
use lightloom_units::id::BundleId;

fn is_asking(begun: &[Action]) -> bool {
    begun.iter().any(|action| match action {
        Action::Answer(OWN, Answer::Refused { reasons }) => *reasons == [ASKS_ALL],
        _ => false,
    })
}

impl Control {
    fn detected(&self, now: &Now) -> BTreeMap<Part, String> {
        let bundle = |device: &DeviceName| device.as_str().parse::<BundleId>().ok();
        let known = self.reported_or_found();
        let mut broken: BTreeMap<Part, String> = known
            .iter()
            .filter_map(|(name, broken)| Some((name.parse().ok()?, broken.why.clone())))
            .collect();
        let dark = self.controller.dark_fibres();
        for (bundle, why) in self.deaths(now, &dark) {
            broken.entry(Part::Bundle(bundle)).or_insert(why);
        }
        for fibre in dark.iter().filter(|fibre| !fibre.far_is_down) {
            let ((near, _, position), (far, ..)) = (&fibre.near, &fibre.far);
            let dbm = f64::from(fibre.power_mdbm) / 1000.0;
            if let (Some(bundle), Some(_)) = (bundle(near), bundle(far)) {
                let path = u8::try_from(position.0).unwrap_or(u8::MAX);
                let far = match &fibre.far_lit_by {
                    None => format!("{far} is set to this fibre"),
                    Some(other) => format!("{far} is lit by {other}: {CROSSED}"),
                };
                let why = format!("{near} receives {dbm:.1} dBm, and {far}");
                broken.insert(Part::Fibre(Port { bundle, path }), why);
            }
        }
        let known: BTreeSet<Part> = known.keys().filter_map(|name| name.parse().ok()).collect();
        self.join_siblings(now, &mut broken, &known);
        broken
    }

    fn join_siblings(
        &self,
        now: &Now,
        broken: &mut BTreeMap<Part, String>,
        known: &BTreeSet<Part>,
    ) {
        for bundle in self.found_silent(broken, known) {
            for (sibling, device) in self.of_node(bundle) {
                let seen = self.controller.devices().get(device);
                let silent =
                    seen.is_some_and(|seen| !seen.up) && !self.awaits_verdict(now, bundle, device);
                let suspected = self.controller.is_silent_beside(device, now);
                if silent && !suspected && !self.controller.sends_light(device) {
                    let why = format!("unresponsive, like {bundle} of the same node");
                    broken.entry(Part::Bundle(sibling)).or_insert(why);
                }
            }
        }
    }

    fn found_silent(
        &self,
        broken: &BTreeMap<Part, String>,
        known: &BTreeSet<Part>,
    ) -> Vec<BundleId> {
        let silent = broken.keys().filter_map(|part| match part {
            Part::Bundle(bundle) if !known.contains(part) => Some(*bundle),
            _ => None,
        });
        silent.filter(|bundle| self.down_since(*bundle).is_some()).collect()
    }

    fn down_since(&self, bundle: BundleId) -> Option<Micros> {
        let seen = self.controller.devices().get(self.setup.modules.get(&bundle)?)?;
        (!seen.up).then_some(seen.down_since)
    }

    pub(super) fn of_node(
        &self,
        bundle: BundleId,
    ) -> impl Iterator<Item = (BundleId, &DeviceName)> {
        self.modules_of(bundle.node).filter(move |(other, _)| *other != bundle)
    }

    fn awaits_verdict(&self, now: &Now, bundle: BundleId, device: &DeviceName) -> bool {
        if self.controller.is_silent_beside(device, now) {
            return false;
        }
        let Some(since) = self.down_since(bundle) else { return false };
        let seen = self.controller.devices().get(device).filter(|seen| !seen.up);
        let since = seen.map_or(since, |seen| since.max(seen.down_since));
        let limits = self.controller.inventory().limits(device);
        let waits = Micros(2 * (limits.silent_within + limits.read_within).0);
        now.mono < since + waits && self.controller.may_be_silent(device, since, now)
    }

    /// Waits for another module of the node that may have failed, so that one change bypasses both.
    fn waits_for_siblings(&self, now: &Now, broken: &[(Part, String)]) -> bool {
        let bundles = broken.iter().filter_map(|(part, _)| match part {
            Part::Bundle(bundle) => Some(*bundle),
            _ => None,
        });
        let named = |sibling: BundleId| broken.iter().any(|(p, _)| *p == Part::Bundle(sibling));
        bundles.into_iter().any(|bundle| {
            let mut siblings = self.of_node(bundle).filter(|(sibling, _)| !named(*sibling));
            siblings.any(|(_, device)| self.awaits_verdict(now, bundle, device))
        })
    }

    pub(super) fn news(&self, now: &Now) -> Vec<(Part, String)> {
        let (Some(installed), Some(plan)) = (self.replannable(), &self.plan) else {
            return Vec::new();
        };
        let Ok(mut known) = FaultSet::of(installed, plan.faults.iter().copied()) else {
            return Vec::new();
        };
        let mut broken: Vec<(Part, String)> = self.detected(now).into_iter().collect();
        broken.retain(|(part, _)| {
            bypass::is_news(installed, &known, *part)
                && known.insert(installed, *part).unwrap_or(false)
        });
        broken
    }

    pub(super) fn bypass_due(&self, now: &Now) -> Option<Micros> {
        let may_bypass = self.setup.on_fault == OnFault::Bypass
            && self.failed.is_none()
            && !self.controller.is_busy();
        let tries = || self.backoff.due().filter(|at| *at > now.mono);
        if may_bypass { tries().min() } else { None }
    }

    fn waits_for_all(&self, now: &Now) -> bool {
        let Some(asked) = self.asked_all else { return false };
        let is_awaited = |device: &DeviceName| {
            let within = self.controller.inventory().limits(device).read_within;
            let seen = self.controller.devices().get(device);
            now.mono < asked + within + within
                && seen.is_some_and(|seen| seen.up && seen.read_at < asked)
        };
        self.setup.modules.values().any(is_awaited)
    }

    pub(super) fn notice_deaths(&mut self, now: &Now, actions: &mut Vec<Action>) {
        self.judges_again = false;
        if self.setup.on_fault != OnFault::Bypass
            || self.controller.is_busy()
            || self.failed.is_some()
        {
            return;
        }
        let broken = self.news(now);
        self.judges_again = self.waits_for_siblings(now, &broken);
        if self.judges_again {
            return;
        }
        self.judges_again = self.waits_for_hello(now);
        let tried: Vec<Part> = broken.iter().map(|(part, _)| *part).collect();
        if broken.is_empty() || now.mono < self.backoff.not_before(&tried) {
            self.asked_all.take_if(|_| broken.is_empty());
            return;
        }
        if self.waits_for_all(now) {
            self.judges_again = true;
            return;
        }
        if !self.controller.may_act_alone(now) {
            self.backoff.tried(&tried, now.mono);
            actions.push(Action::Note(Note::TooMany(broken)));
            return;
        }
        self.keep_diagnoses(now, &broken);
        let request = format!("policy-{}-{}", now.wall_ms, self.controller.ledger().last_txn.0 + 1);
        let asked = own(Policy::Fault, request);
        let mut begun = self.fault(now, asked, &broken, &[], OWN);
        if is_asking(&begun) {
            self.asked_all = Some(now.mono);
            self.controller.ask_all(now);
            self.judges_again = true;
            return;
        }
        self.asked_all = None;
        self.backoff.tried(&tried, now.mono);
        let again_in = self.backoff.not_before(&tried) - now.mono;
        actions.push(Action::Note(Note::Bypassing(broken.clone(), again_in)));
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
}
